/*
 * What children of `forked.c` and `vforked.c` do: each act gets the address of a descriptor's
 * number, and returns the child's exit status. How a child is made is `in_child`, which the
 * programs have.
 */
#ifndef FORKED_ACTS_H
#define FORKED_ACTS_H

#include "../show.h"
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>

static const char *self = "/proc/self/exe";

static int status_of(pid_t child)
{
	int status;
	must(child);
	must(waitpid(child, &status, 0));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int take_from(int fd)
{
	char text[16];
	snprintf(text, sizeof text, "%d", fd);
	execl(self, self, "take", text, NULL);
	return 98;
}

static void value_is(const char *name, const char *want, int counter)
{
	uint64_t value = 0;
	char text[64];
	snprintf(text, sizeof text, "%s", outcome(read(counter, &value, 8) == 8 ? (int)value : -1));
	show(name, want, text);
}

static int counter_of(unsigned value)
{
	return must(eventfd(value, EFD_CLOEXEC | EFD_NONBLOCK));
}

static void reports(const char *name, const char *want, int set)
{
	struct epoll_event event;
	CALL(name, want, epoll_wait(set, &event, 1, 0));
}

static int set_with(int fd, uint32_t events)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	struct epoll_event event = { .events = events, .data.fd = fd };
	must(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	return set;
}

/* ---- what a child does ---- */

static int nothing(void *fd)
{
	(void)fd;
	return 7;
}

static int write_three(void *fd)
{
	uint64_t three = 3;
	return write(*(int *)fd, &three, 8) != 8;
}

static int read_it(void *fd)
{
	uint64_t value;
	return read(*(int *)fd, &value, 8) == 8 ? (int)value : 99;
}

static int keep_open(void *fd)
{
	fcntl(*(int *)fd, F_SETFD, 0);
	return take_from(*(int *)fd);
}

static int keep_open_by_ioctl(void *fd)
{
	ioctl(*(int *)fd, FIONCLEX);
	return take_from(*(int *)fd);
}

static int keep_a_duplicate(void *fd)
{
	int copy = dup(*(int *)fd);
	close(*(int *)fd);
	return take_from(copy);
}

static int keep_over_another(void *fd)
{
	dup2(*(int *)fd, 77);
	return take_from(77);
}

static int leave_it(void *fd)
{
	return take_from(*(int *)fd);
}

static int make_it_block(void *fd)
{
	return fcntl(*(int *)fd, F_SETFL, 0);
}

static int close_all(void *unused)
{
	(void)unused;
	return close_range(3, ~0U, 0);
}

/* Another file gets the number, in the child alone. */
static int put_a_file_over(void *fd)
{
	int file = open("/dev/null", O_RDWR);
	uint64_t three = 3;
	bool done = file != -1 && dup2(file, *(int *)fd) == *(int *)fd;
	return !(done && write(*(int *)fd, &three, 8) == 8 && read(*(int *)fd, &three, 8) == 0);
}

static int use_number(void *fd)
{
	close(*(int *)fd);
	return put_a_file_over(fd);
}

static int *watched;

static int watch_another(void *set)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = *watched };
	return epoll_ctl(*(int *)set, EPOLL_CTL_ADD, *watched, &event);
}

static int wait_in(void *set)
{
	struct epoll_event event;
	return epoll_wait(*(int *)set, &event, 1, 0);
}

static int poll_it(void *fd)
{
	struct pollfd one = { .fd = *(int *)fd, .events = POLLIN };
	return poll(&one, 1, 0);
}

static int set_timer(void *fd)
{
	struct itimerspec soon = { .it_value.tv_nsec = 1 };
	return timerfd_settime(*(int *)fd, 0, &soon, NULL);
}

static int has_a_child(void *fd)
{
	pid_t child = vfork();
	if (child == 0)
		_exit(write_three(fd));
	int status = 0;
	waitpid(child, &status, 0);
	return write_three(fd) || status != 0;
}

static int forks(void *fd)
{
	pid_t child = fork();
	if (child == 0)
		_exit(write_three(fd));
	int status = status_of(child);
	return write_three(fd) || status != 0;
}

/* ---- what its parent does meanwhile ---- */

static atomic_int stop;
static int traffic;

static void *write_on(void *unused)
{
	(void)unused;
	uint64_t one = 1, written = 0;
	for (; !atomic_load(&stop); written++)
		must(write(traffic, &one, 8));
	return (void *)written;
}

static void *read_on(void *set)
{
	struct epoll_event event;
	uint64_t value, sum = 0;
	for (bool last = false;; last = atomic_load(&stop) == 2) {
		if (epoll_wait(*(int *)set, &event, 1, 1) == -1 && errno != EINTR)
			must(-1);
		if (read(traffic, &value, 8) == 8)
			sum += value;
		else if (last)
			return (void *)sum;
	}
}

/* An end of a pair whose other end was closed after it had sent something. */
static int end_with_unread(void)
{
	int ends[2];
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends));
	must(send(ends[0], "abc", 3, 0));
	must(close(ends[0]));
	return ends[1];
}

/* It is told of that close at once, also as the kernel's, and closed. */
static void hears_of_the_close(int end)
{
	char bytes[8];
	int set = set_with(end, EPOLLIN);
	struct iovec nothing_at_all[2] = { { 0 } };
	must(readv(end, nothing_at_all, 2));
	struct epoll_event event = { 0 };
	number("a set is told", 1, must(epoll_wait(set, &event, 1, 0)));
	number("  of the close", EPOLLIN | EPOLLHUP, event.events);
	CALL("what was sent is there", "3", recv(end, bytes, 8, 0));
	CALL("  and then the end", "0", recv(end, bytes, 8, 0));
	must(close(set));
	must(close(end));
}

/*
 * Every count is exact beside the children of each act, which `children` makes. It returns what
 * they have added.
 */
static void under_traffic_of(int acts, uint64_t (*children)(int act))
{
	heading("children beside traffic");
	for (int act = 0; act < acts; act++) {
		traffic = must(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
		int set = set_with(traffic, EPOLLIN | EPOLLET);
		pthread_t writers[2], reader;
		void *written[2], *got;
		atomic_store(&stop, 0);
		for (int i = 0; i < 2; i++)
			must_be_zero(pthread_create(&writers[i], NULL, write_on, NULL));
		must_be_zero(pthread_create(&reader, NULL, read_on, &set));
		uint64_t by_children = children(act);
		atomic_store(&stop, 1);
		for (int i = 0; i < 2; i++)
			must_be_zero(pthread_join(writers[i], &written[i]));
		atomic_store(&stop, 2);
		must_be_zero(pthread_join(reader, &got));
		uint64_t sent = (uint64_t)written[0] + (uint64_t)written[1] + by_children;
		yes("  every count", sent == (uint64_t)got);
		must(close(set));
		must(close(traffic));
	}
}

#endif
