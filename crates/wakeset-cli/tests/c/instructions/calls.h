/*
 * System calls by instruction, in a program that also makes them through libc: what one road does
 * the other must see.
 */
#ifndef CALLS_H
#define CALLS_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

typedef long raw_call(long number, long a, long b, long c, long d, long e);

static int failures;

static void show(const char *what, long got, long expected)
{
	printf("%s: %ld", what, got);
	if (got != expected) {
		printf(" (should be %ld)", expected);
		failures++;
	}
	printf("\n");
}

static void heading(const char *what)
{
	printf("-- %s\n", what);
}

static uint64_t value;

static long get(raw_call *raw, int fd)
{
	value = 0;
	long result = raw(SYS_read, fd, (long)&value, 8, 0, 0);
	return result == 8 ? (long)value : result;
}

static long put(raw_call *raw, int fd, uint64_t n)
{
	value = n;
	return raw(SYS_write, fd, (long)&value, 8, 0, 0);
}

static long get_by_libc(int fd)
{
	uint64_t n = 0;
	ssize_t result = read(fd, &n, sizeof n);
	return result == 8 ? (long)n : -errno;
}

static inline void counts(raw_call *raw)
{
	heading("an eventfd by both roads");
	int fd = eventfd(3, EFD_NONBLOCK);
	show("by instruction", get(raw, fd), 3);
	show("again", get(raw, fd), -EAGAIN);
	show("written by instruction", put(raw, fd, 4), 8);
	show("through libc", get_by_libc(fd), 4);
	uint64_t five = 5;
	show("written through libc", write(fd, &five, 8), 8);
	show("by instruction", get(raw, fd), 5);
	close(fd);
	fd = raw(SYS_eventfd2, 6, EFD_NONBLOCK, 0, 0, 0);
	show("made by instruction", get_by_libc(fd), 6);
	close(fd);
}

static inline void sets(raw_call *raw)
{
	heading("a set by both roads");
	int set = epoll_create1(0), fd = eventfd(0, EFD_NONBLOCK), other = eventfd(1, EFD_NONBLOCK);
	struct epoll_event event = {EPOLLIN, {.u64 = 1}}, got[4];
	show("added", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
	show("none by instruction", raw(SYS_epoll_wait, set, (long)got, 4, 0, 0), 0);
	put(raw, fd, 1);
	show("one through libc", epoll_wait(set, got, 4, 0), 1);
	event.data.u64 = 2;
	show("added by instruction",
	     raw(SYS_epoll_ctl, set, EPOLL_CTL_ADD, other, (long)&event, 0), 0);
	show("two by instruction", raw(SYS_epoll_wait, set, (long)got, 4, 0, 0), 2);
	show("two through libc", epoll_wait(set, got, 4, 0), 2);
	struct pollfd polled = {fd, POLLIN, 0};
	show("poll by instruction", raw(SYS_poll, (long)&polled, 1, 0, 0, 0), 1);
	show("closed by instruction", raw(SYS_close, fd, 0, 0, 0, 0), 0);
	show("one is left", epoll_wait(set, got, 4, 0), 1);
	show("the other one", (long)got[0].data.u64, 2);
	close(other);
	close(set);
}

/* The objects are in process until then: the kernel's own are empty. */
static inline void polls(raw_call *raw)
{
	heading("poll and select by instruction");
	int counters[2] = {eventfd(1, EFD_NONBLOCK), eventfd(2, EFD_NONBLOCK)};
	struct pollfd polled = {counters[0], POLLIN, 0};
	show("poll", raw(SYS_poll, (long)&polled, 1, 0, 0, 0), 1);
	show("readable", polled.revents, POLLIN);
	fd_set readable;
	struct timeval no_time = {0, 0};
	FD_ZERO(&readable);
	FD_SET(counters[1], &readable);
	show("select",
	     raw(SYS_select, counters[1] + 1, (long)&readable, 0, 0, (long)&no_time), 1);
	show("through libc", get_by_libc(counters[0]) + get_by_libc(counters[1]), 3);
	close(counters[0]);
	close(counters[1]);
}

/* A close that nobody has seen leaves an entry, into which the next file's bytes go. */
static inline void closes(raw_call *raw)
{
	heading("closed by instruction, and the number used again");
	char name[] = "/tmp/wakeset-instructions-XXXXXX", text[32] = "";
	int file = mkstemp(name), again = open(name, O_RDONLY);
	unlink(name);
	int ends[2];
	show("pipe", pipe2(ends, O_NONBLOCK), 0);
	show("written", write(ends[1], "lost", 4), 4);
	show("closed", raw(SYS_close, ends[1], 0, 0, 0, 0), 0);
	show("the same number", dup(file) == ends[1], 1);
	show("written to the file", write(ends[1], "fourteen bytes", 14), 14);
	show("in the file", pread(again, text, sizeof text, 0), 14);
	show("in the pipe", read(ends[0], text, sizeof text), 4);
	show("then the end", read(ends[0], text, sizeof text), 0);
	int fd = eventfd(9, EFD_NONBLOCK);
	show("put over it by instruction", raw(SYS_dup2, file, fd, 0, 0, 0), fd);
	show("bytes", write(fd, "seven b", 7), 7);
	show("in the file", pread(again, text, sizeof text, 14), 7);
	fd = eventfd(9, EFD_NONBLOCK);
	show("close_range", raw(SYS_close_range, fd, fd, 0, 0, 0), 0);
	show("gone", get_by_libc(fd), -EBADF);
	fd = eventfd(9, EFD_NONBLOCK);
	int copy = raw(SYS_fcntl, fd, F_DUPFD, 50, 0, 0);
	show("duplicate", get_by_libc(copy), 9);
	show("the first", get_by_libc(fd), -EAGAIN);
	close(copy);
	show("blocks", raw(SYS_fcntl, fd, F_SETFL, 0, 0, 0), 0);
	show("flags", fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	close(fd);
	int bytes = -1;
	char more[8];
	show("pair", pipe(ends), 0);
	show("written", write(ends[1], "four", 4), 4);
	show("FIONREAD", raw(SYS_ioctl, ends[0], FIONREAD, (long)&bytes, 0, 0), 0);
	show("bytes", bytes, 4);
	show("read", raw(SYS_read, ends[0], (long)more, 8, 0, 0), 4);
	close(ends[0]);
	close(ends[1]);
	close(file);
	close(again);
	show("a bad number", raw(SYS_close, 1000, 0, 0, 0, 0), -EBADF);
	show("a bad address", raw(SYS_read, 0, 8, 8, 0, 0) < 0 || 1, 1);
}

#endif
