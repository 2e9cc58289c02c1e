/*
 * Threads and handlers that do one thing, and a system call that no library sees.
 */
#ifndef DIFFERENCES_THREADS_H
#define DIFFERENCES_THREADS_H

#include "../show.h"
#include <poll.h>
#include <setjmp.h>
#include <signal.h>

static atomic_int stop;

static void *run_on(void *unused)
{
	while (!atomic_load(&stop))
		spin(1000);
	return unused;
}

static sigjmp_buf way_out;

static void leave(int signal)
{
	(void)signal;
	siglongjmp(way_out, 1);
}

static void *wait_and_leave(void *set)
{
	struct epoll_event event;
	if (!sigsetjmp(way_out, 1))
		epoll_wait(*(int *)set, &event, 1, -1);
	return NULL;
}

static void note(int signal)
{
	(void)signal;
}

struct reader {
	int fd;
	const char *volatile result;
};

static void *read_once(void *argument)
{
	struct reader *reader = argument;
	long long got = take(reader->fd);
	reader->result = got >= 0          ? "a value"
	                 : errno == EINTR  ? "EINTR"
	                 : errno == EBADF  ? "EBADF"
	                 : errno == EAGAIN ? "EAGAIN"
	                                   : "?";
	return NULL;
}

struct timed_waiter {
	int set;
	char saw[64];
};

static void *wait_a_second(void *argument)
{
	struct timed_waiter *waiter = argument;
	snprintf(waiter->saw, sizeof waiter->saw, "%s", ordered(waiter->set, 1, 1000));
	return NULL;
}

struct poll_of {
	struct thread thread;
	int fd;
	char result[64];
};

static void *poll_once(void *argument)
{
	struct poll_of *poll_of = argument;
	struct pollfd entry = {poll_of->fd, POLLIN, 0};
	int64_t begin = now();
	int found = poll(&entry, 1, 4000);
	const char *when = now() - begin < 3000000000 ? "early" : "late";
	snprintf(poll_of->result, sizeof poll_of->result, "%d %s, %s", found,
	         entry.revents == POLLNVAL ? "NVAL" : "-", when);
	return NULL;
}

#endif
