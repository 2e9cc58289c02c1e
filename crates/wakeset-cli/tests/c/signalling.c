/*
 * Signals that are counted one by one: 100 threads, more than have a place of their own in the
 * counts, write to an eventfd, wait and read; some then go on when it is the kernel's.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS 100
#define TRIPS 1000
#define LATE 7

static const uint64_t one = 1;

static void must(int condition, const char *what)
{
	if (!condition) {
		perror(what);
		exit(1);
	}
}

static void trip(int set, int counter)
{
	struct epoll_event event;
	uint64_t value;
	must(write(counter, &one, 8) == 8, "write");
	must(epoll_wait(set, &event, 1, -1) == 1, "epoll_wait");
	must(read(counter, &value, 8) == 8 && value == 1, "read");
}

static pthread_barrier_t barrier;

static void *work(void *unused)
{
	struct epoll_event event = {.events = EPOLLIN};
	int counter = eventfd(0, EFD_NONBLOCK), set = epoll_create1(0);
	must(counter >= 0 && set >= 0, "descriptors");
	must(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) == 0, "epoll_ctl");
	/* All of them at one time. */
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < TRIPS; i++)
		trip(set, counter);
	pthread_barrier_wait(&barrier);
	return unused;
}

/* One that leaves: by a call that names it. */
static void leave(void)
{
	int pipe_ends[2], pair[2], counter = eventfd(0, 0), other = eventfd(0, 0);
	char byte = 'x';
	must(pipe(pipe_ends) == 0 && counter >= 0 && other >= 0, "descriptors");
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
	must(write(pipe_ends[1], &byte, 1) == 1, "write");
	must(write(pipe_ends[1], "abc", 3) == 3, "write");
	/* The pipe is the kernel's with it. */
	must(splice(pipe_ends[0], NULL, counter, NULL, 8, SPLICE_F_NONBLOCK) < 0, "splice");
	for (int i = 0; i < LATE; i++)
		must(write(counter, &one, 8) == 8, "write");
	must(write(pipe_ends[1], &byte, 1) == 1, "write");
	must(send(pair[0], "m", 1, 0) == 1, "send");
	/* So is a pair that is duplicated. */
	close(dup(pair[0]));
	must(send(pair[0], "m", 1, 0) == 1, "send");
	must(send(pair[1], "m", 1, 0) == 1, "send");
	/* And an eventfd with both of its numbers. */
	int twin = dup(other);
	must(splice(pipe_ends[0], NULL, other, NULL, 8, SPLICE_F_NONBLOCK) < 0, "splice");
	must(write(other, &one, 8) == 8 && write(twin, &one, 8) == 8, "write");
	/* The number is another file's. */
	close(counter);
	must(dup(STDERR_FILENO) == counter, "dup");
	must(write(counter, "", 0) == 0, "write");
}

int main(void)
{
	pthread_t threads[THREADS];
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		must(pthread_create(&threads[i], NULL, work, NULL) == 0, "pthread_create");
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	leave();
	return 0;
}
