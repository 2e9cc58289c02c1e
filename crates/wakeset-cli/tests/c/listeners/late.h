/*
 * A listener that a set gets while a thread sleeps in it already.
 */
#ifndef LISTENERS_LATE_H
#define LISTENERS_LATE_H

#include "deed.h"
#include <sys/wait.h>

enum { MOST_LATE = 12 };

/* A worker that waits for one connection, and dies of it. */
static pid_t dying_worker(int listener)
{
	pid_t worker = must(fork());
	if (worker == 0) {
		struct epoll_event event;
		int set = must(epoll_create1(EPOLL_CLOEXEC));
		must(watch_new(set, listener, EPOLLIN, 'l'));
		epoll_wait(set, &event, 1, 8000);
		/* An end that it could be seen to come to would wake another. */
		kill(getpid(), SIGKILL);
	}
	return worker;
}

/* A datagram socket that sends to itself. */
static int own_address(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int fd = must(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	must(bind(fd, (struct sockaddr *)&address, sizeof address));
	must(getsockname(fd, (struct sockaddr *)&address, &length));
	must(connect(fd, (struct sockaddr *)&address, length));
	return fd;
}

/*
 * The connection wakes a worker that dies, so the threads have to find it by themselves. So many
 * are left by then: those that have slept longest.
 */
static void show_late_listener(int threads, int stay)
{
	struct waiter waiters[MOST_LATE];
	int status, listener = listen_on(AF_INET), other = own_address();
	heading("a listener for a set that threads sleep in");
	number("threads", threads, threads);
	pid_t worker = dying_worker(listener);
	/* Made after the fork, which would leave it to the kernel. */
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	must(watch_new(set, other, EPOLLIN | EPOLLET, 'o'));
	for (int i = 0; i < threads; i++)
		start_waiting(&waiters[i], set, 1);
	must(watch_new(set, listener, EPOLLIN, 'l'));
	sleep_ms(200);
	number("and stay", stay, stay);
	for (int left = 1; left <= threads - stay; left++) {
		must((int)send(other, "x", 1, 0));
		number("threads that have left", left, count_back(waiters, threads));
	}
	int client = connect_to(listener);
	must(waitpid(worker, &status, 0));
	int64_t died = now();
	int told = 0;
	while (told < threads && now() - died < 3000000000) {
		sleep_ms(20);
		told = count_back(waiters, threads);
	}
	yes("the last are told though the worker died", told == threads);
	for (int i = 0; i < threads; i++)
		finish(&waiters[i].thread);
	number("nobody has taken it", 1, take_one(listener));
	must(close(client));
	must(close(listener));
	must(close(other));
	must(close(set));
}

#endif
