/*
 * Reaches every probe: a sleep in a set and in read(2), the wakes that end them, a migration, and a
 * turn at a listening socket.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

static int counter, blocking, set;
static const uint64_t one = 1;

static int must(int result)
{
	if (result < 0) {
		perror("probes");
		exit(1);
	}
	return result;
}

static void *sleeper(void *unused)
{
	struct epoll_event event;
	uint64_t value;
	for (int i = 0; i < 20; i++) {
		must(epoll_wait(set, &event, 1, -1));
		must(read(counter, &value, sizeof value));
		must(write(blocking, &one, sizeof one));
	}
	return unused;
}

int main(void)
{
	pthread_t thread;
	uint64_t value;
	struct epoll_event event = {.events = EPOLLIN};
	counter = must(eventfd(0, EFD_NONBLOCK));
	blocking = must(eventfd(0, 0));
	set = must(epoll_create1(0));
	must(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event));
	if (pthread_create(&thread, NULL, sleeper, NULL))
		return 1;
	for (int i = 0; i < 20; i++) {
		/* long enough for the other side to sleep */
		usleep(2000);
		must(write(counter, &one, sizeof one));
		must(read(blocking, &value, sizeof value));
	}
	pthread_join(thread, NULL);
	must(dup(counter));

	int listener = must(socket(AF_INET, SOCK_STREAM, 0));
	int client = must(socket(AF_INET, SOCK_STREAM, 0));
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	must(bind(listener, (struct sockaddr *)&address, sizeof address));
	must(listen(listener, 1));
	must(getsockname(listener, (struct sockaddr *)&address, &length));
	must(connect(client, (struct sockaddr *)&address, sizeof address));
	struct pollfd polled = {.fd = listener, .events = POLLIN};
	must(poll(&polled, 1, -1));
	must(accept(listener, NULL, NULL));
	return 0;
}
