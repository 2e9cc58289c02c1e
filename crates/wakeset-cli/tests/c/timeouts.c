/*
 * How long a wait waits: TIMEOUT of epoll_wait(2), epoll_pwait2(2), poll(2), ppoll(2) and
 * select(2). Never less than was asked for, by CLOCK_MONOTONIC; how much more is nobody's promise
 * and is not looked at.
 */
#include "show.h"
#include <sys/select.h>

#define MS 1000000LL

static int set;
static struct epoll_event events[4];

static void not_early(const char *name, int64_t nanoseconds, int64_t since)
{
	yes(name, now() - since >= nanoseconds);
}

static void *write_later(void *argument)
{
	sleep_ms(40);
	must(add(*(int *)argument, 1));
	return NULL;
}

/* Each way to wait, on whatever the set holds now, which is nothing ready. */
static void show_quiet(const char *what)
{
	int64_t since;
	struct timespec time;
	heading(what);
	number("epoll_wait 0", 0, epoll_wait(set, events, 4, 0));
	since = now();
	number("epoll_wait 1 ms", 0, epoll_wait(set, events, 4, 1));
	not_early("not early", 1 * MS, since);
	since = now();
	number("epoll_wait 25 ms", 0, epoll_wait(set, events, 4, 25));
	not_early("not early", 25 * MS, since);
	since = now();
	number("epoll_pwait 10 ms", 0, epoll_pwait(set, events, 4, 10, NULL));
	not_early("not early", 10 * MS, since);
	time = (struct timespec){0, 0};
	number("epoll_pwait2 0", 0, epoll_pwait2(set, events, 4, &time, NULL));
	static const long waits[] = {1, 999, 50000, 999999, 1000001, 12345678};
	for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
		time = (struct timespec){0, waits[i]};
		since = now();
		number("epoll_pwait2 in nanoseconds", 0, epoll_pwait2(set, events, 4, &time, NULL));
		not_early("not early", waits[i], since);
		number("and does not change the time", waits[i], time.tv_nsec);
	}
	struct pollfd polled = {set, POLLIN, 0};
	since = now();
	number("poll of the set, 10 ms", 0, poll(&polled, 1, 10));
	not_early("not early", 10 * MS, since);
	time = (struct timespec){0, 3 * MS};
	since = now();
	number("ppoll of the set, 3 ms", 0, ppoll(&polled, 1, &time, NULL));
	not_early("not early", 3 * MS, since);
	fd_set readable;
	FD_ZERO(&readable);
	FD_SET(set, &readable);
	struct timeval left = {0, 3000};
	since = now();
	number("select of the set, 3 ms", 0, select(set + 1, &readable, NULL, NULL, &left));
	not_early("not early", 3 * MS, since);
	yes("select says that no time is left", left.tv_sec == 0 && left.tv_usec == 0);
}

/* Each way to wait for good, ended by a write from another thread. */
static void show_for_good(const char *what, int fd)
{
	struct thread thread;
	heading(what);
	for (int way = 0; way < 5; way++) {
		static const char *const names[] = {"epoll_wait -1", "epoll_wait -2", "epoll_wait the least int",
						    "epoll_pwait -1", "epoll_pwait2 with no time"};
		int64_t since = now();
		int got;
		start(&thread, write_later, &fd);
		switch (way) {
		case 0: got = epoll_wait(set, events, 4, -1); break;
		case 1: got = epoll_wait(set, events, 4, -2); break;
		case 2: got = epoll_wait(set, events, 4, (int)0x80000000); break;
		case 3: got = epoll_pwait(set, events, 4, -1, NULL); break;
		default: got = epoll_pwait2(set, events, 4, NULL, NULL); break;
		}
		number(names[way], 1, got);
		not_early("not before the write", 40 * MS, since);
		finish(&thread);
		drain(fd);
	}
	start(&thread, write_later, &fd);
	number("epoll_wait the greatest int", 1, epoll_wait(set, events, 4, 0x7fffffff));
	finish(&thread);
	drain(fd);
	struct timespec long_time = {0x7fffffffffffffff, 999999999};
	start(&thread, write_later, &fd);
	number("epoll_pwait2 the longest time", 1, epoll_pwait2(set, events, 4, &long_time, NULL));
	finish(&thread);
	must(add(fd, 1));
	number("epoll_wait -1 with something ready", 1, epoll_wait(set, events, 4, -1));
	number("epoll_wait 0 with something ready", 1, epoll_wait(set, events, 4, 0));
	number("epoll_wait 10000 with something ready", 1, epoll_wait(set, events, 4, 10000));
	number("epoll_pwait2 with no time and something ready", 1,
	       epoll_pwait2(set, events, 4, NULL, NULL));
	drain(fd);
}

int main(void)
{
	int ends[2], fd = must(eventfd(0, EFD_NONBLOCK)), inner = must(epoll_create1(0));
	kernel_pipe(ends, 0);
	set = must(epoll_create1(0));
	show_quiet("an empty set");
	must(watch_new(set, fd, EPOLLIN, 'a'));
	show_quiet("a set with a counter");
	show_for_good("waits for good, a counter", fd);
	must(watch_new(set, inner, EPOLLIN, 'i'));
	show_quiet("a set with a counter and a set");
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	show_quiet("a set with a counter, a set and a pipe");
	show_for_good("waits for good, a counter, a set and a pipe", fd);
	must(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
	must(epoll_ctl(set, EPOLL_CTL_DEL, inner, NULL));
	show_quiet("a set with a pipe");

	heading("readiness that goes away does not end a wait");
	must(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL));
	must(watch_new(set, fd, EPOLLIN, 'a'));
	must(add(fd, 1));
	drain(fd);
	int64_t since = now();
	number("epoll_wait 20 ms", 0, epoll_wait(set, events, 4, 20));
	not_early("not early", 20 * MS, since);
	since = now();
	number("no descriptors at all: poll 5 ms", 0, poll(NULL, 0, 5));
	not_early("not early", 5 * MS, since);
	return verdict();
}
