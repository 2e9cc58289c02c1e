/*
 * Reaches every probe: a sleep in a set and in read(2), the wakes that end them, a migration, a
 * turn at a listening socket, and one at a userfaultfd.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
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

static void *page_toucher(void *page)
{
	*(volatile char *)page = 1;
	return page;
}

/* A fault that this thread serves. Not everybody may have a userfaultfd. */
static void serve_fault(void)
{
	long size = sysconf(_SC_PAGESIZE);
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	struct uffdio_api api = {.api = UFFD_API};
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
		return;
	void *page = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register reg = {.range = {(uintptr_t)page, (uint64_t)size},
	                              .mode = UFFDIO_REGISTER_MODE_MISSING};
	struct uffdio_zeropage zero = {.range = reg.range};
	struct uffd_msg message;
	pthread_t thread;
	must(ioctl(fd, UFFDIO_REGISTER, &reg));
	if (pthread_create(&thread, NULL, page_toucher, page))
		exit(1);
	must((int)read(fd, &message, sizeof message));
	must(ioctl(fd, UFFDIO_ZEROPAGE, &zero));
	pthread_join(thread, NULL);
	close(fd);
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
	/* An eventfd cannot be spliced, which is for the kernel to say. */
	if (splice(counter, NULL, counter, NULL, 1, 0) >= 0)
		return 1;

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
	serve_fault();
	return 0;
}
