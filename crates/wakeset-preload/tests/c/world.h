/*
 * The world that a call finds, and where its objects are afterwards.
 */
#ifndef WORLD_H
#define WORLD_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

/* ---- system calls that no hook sees ---- */

static long bare(long number, long a, long b, long c, long d)
{
	long result;
	register long r10 __asm__("r10") = d;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
}

/* ---- the world that a call finds ---- */

enum kind {
	COUNTER,
	TIMER,
	EXPIRED,
	SET,
	PIPE_OUT,
	PIPE_IN,
	PAIR,
	LISTENER,
	KERNEL_PIPE,
	CLOSED,
	KINDS
};
static const char *const kinds[] = {"eventfd",         "timerfd",          "expired timerfd",
				    "set",             "pipe's read end",  "pipe's write end",
				    "pair",            "listener",         "kernel's pipe",
				    "closed number"};

static int counter, timer, expired, set, watched, ends[2], pair[2], kernel_ends[2];
static int listener, client;

/* What the call itself has made, and is looked at, too. */
static int made[2];
static enum kind made_kind;

static int must(long result)
{
	if (result < 0) {
		printf("the world cannot be made: %s\n", strerrorname_np(errno));
		_exit(2);
	}
	return (int)result;
}

static void make_world(void)
{
	struct itimerspec far = {.it_value = {1000, 0}}, now = {.it_value = {0, 1}};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
	counter = must(eventfd(5, EFD_NONBLOCK));
	timer = must(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	expired = must(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	must(timerfd_settime(timer, 0, &far, NULL));
	must(timerfd_settime(expired, 0, &now, NULL));
	set = must(epoll_create1(0));
	watched = must(eventfd(1, EFD_NONBLOCK));
	must(epoll_ctl(set, EPOLL_CTL_ADD, watched, &event));
	must(pipe2(ends, O_NONBLOCK));
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
	must(write(ends[1], "from the pipe", 13));
	must(write(pair[1], "from the pair", 13));
	/* With a second descriptor it is the kernel's. */
	must(pipe2(kernel_ends, O_NONBLOCK));
	must(close(must(dup(kernel_ends[0]))));
	must(write(kernel_ends[1], "from the kernel", 15));
	/* A connection waits. The name is the kernel's choice. */
	socklen_t len = sizeof address;
	listener = must(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
	must(bind(listener, (struct sockaddr *)&address, sizeof(sa_family_t)));
	must(listen(listener, 4));
	must(getsockname(listener, (struct sockaddr *)&address, &len));
	client = must(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
	must(connect(client, (struct sockaddr *)&address, len));
	made[0] = made[1] = -1;
}

static int descriptor_of(enum kind kind)
{
	switch (kind) {
	case COUNTER: return counter;
	case TIMER: return timer;
	case EXPIRED: return expired;
	case SET: return set;
	case PIPE_OUT: return ends[0];
	case PIPE_IN: return ends[1];
	case PAIR: return pair[0];
	case LISTENER: return listener;
	case KERNEL_PIPE: return kernel_ends[0];
	default: return 300;
	}
}

/* ---- where objects are ---- */

static void kernel_text(int fd, char *text, size_t size)
{
	char path[40];
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	long info = bare(SYS_open, (long)path, O_RDONLY, 0, 0);
	long got = info < 0 ? 0 : bare(SYS_read, info, (long)text, (long)size - 1, 0);
	text[got < 0 ? 0 : got] = '\0';
	if (info >= 0)
		bare(SYS_close, info, 0, 0, 0);
}

/* `k` if the kernel's object sees what libc's calls change, `i` if it does not: then the object is
 * in process. `-` for a closed number, `?` for an object of another kind, `!` for one that takes
 * nothing. */
static char where(enum kind kind, int fd, int in)
{
	char before[1024], after[1024];
	int bytes = 0, more = 0;
	uint64_t one = 1;
	struct itimerspec far = {.it_value = {2000, 0}};
	struct epoll_event event = {.events = EPOLLIN};
	if (bare(SYS_fcntl, fd, F_GETFD, 0, 0) < 0)
		return '-';
	kernel_text(fd, before, sizeof before);
	switch (kind) {
	case COUNTER:
		if (write(fd, &one, 8) != 8)
			return '?';
		break;
	case TIMER:
	case EXPIRED:
		if (timerfd_settime(fd, 0, &far, NULL) != 0)
			return '?';
		kernel_text(fd, after, sizeof after);
		return strstr(after, "it_value: (0, 0)") ? 'i' : 'k';
	case SET:
		if (epoll_ctl(fd, EPOLL_CTL_ADD, eventfd(0, 0), &event) != 0)
			return '?';
		kernel_text(fd, after, sizeof after);
		return strstr(after, "tfd:") ? 'k' : 'i';
	default:
		if (bare(SYS_ioctl, fd, FIONREAD, (long)&bytes, 0) < 0)
			return '?';
		if (write(in, "x", 1) != 1)
			return '!';
		bare(SYS_ioctl, fd, FIONREAD, (long)&more, 0);
		return more == bytes ? 'i' : 'k';
	}
	kernel_text(fd, after, sizeof after);
	return strcmp(before, after) == 0 ? 'i' : 'k';
}

static void look(char *text)
{
	*text++ = where(COUNTER, counter, -1);
	*text++ = where(COUNTER, watched, -1);
	*text++ = where(TIMER, timer, -1);
	*text++ = where(EXPIRED, expired, -1);
	*text++ = where(SET, set, -1);
	*text++ = where(PIPE_OUT, ends[0], ends[1]);
	*text++ = where(PAIR, pair[0], pair[1]);
	*text++ = ' ';
	/* Where new ones begin. */
	*text++ = where(COUNTER, eventfd(0, EFD_NONBLOCK), -1);
	if (made[0] >= 0) {
		*text++ = ' ';
		*text++ = where(made_kind, made[0], made[1]);
	}
	*text = '\0';
}

#endif
