/*
 * How late timers come, and what that costs: a periodic timer or a time limit, awaited ROUNDS
 * times, in one of several ways.
 *
 *     timers WAY MICROSECONDS ROUNDS
 *
 * Prints the median, the 90th and the 99th percentile of how late each came (in microseconds), the
 * processor time of each (in microseconds), and the number of early ones, which has to be 0.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static double processor(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 + usage.ru_utime.tv_usec +
	       usage.ru_stime.tv_usec;
}

static void demand(int holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

int main(int count, char **arguments)
{
	demand(count == 4, "usage: timers timerfd|mixed|read|limit MICROSECONDS ROUNDS");
	const char *way = arguments[1];
	double period = atof(arguments[2]);
	int rounds = atoi(arguments[3]), early = 0;
	int is_limit = strcmp(way, "limit") == 0, reads = strcmp(way, "read") == 0;
	double *late = calloc(rounds, sizeof *late);
	int set = epoll_create1(0), timer = -1;
	struct epoll_event event = {.events = EPOLLIN};
	demand(set >= 0, "epoll_create1");
	if (strcmp(way, "mixed") == 0) {
		int quiet = socket(AF_INET, SOCK_DGRAM, 0);
		demand(quiet >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, quiet, &event) == 0, "socket");
	}
	timer = timerfd_create(CLOCK_MONOTONIC, reads ? 0 : TFD_NONBLOCK);
	demand(timer >= 0, "timerfd_create");
	if (!reads)
		demand(epoll_ctl(set, EPOLL_CTL_ADD, timer, &event) == 0, "epoll_ctl");
	double due = now() + period, begin = processor();
	if (!is_limit) {
		struct timespec first = {due / 1e6, (long)(due * 1e3) % 1000000000};
		struct timespec each = {period / 1e6, (long)(period * 1e3) % 1000000000};
		struct itimerspec set_to = {.it_value = first, .it_interval = each};
		demand(timerfd_settime(timer, TFD_TIMER_ABSTIME, &set_to, NULL) == 0, "timerfd_settime");
	}
	for (int i = 0; i < rounds; i++) {
		uint64_t expired = 1;
		if (is_limit) {
			struct timespec limit = {period / 1e6, (long)(period * 1e3) % 1000000000};
			due = now() + period;
			demand(epoll_pwait2(set, &event, 1, &limit, NULL) == 0, "epoll_pwait2");
		} else {
			if (!reads)
				demand(epoll_wait(set, &event, 1, -1) == 1, "epoll_wait");
			demand(read(timer, &expired, sizeof expired) == sizeof expired, "read");
			/* The last of those that have come. */
			due += (expired - 1) * period;
		}
		late[i] = now() - due;
		/* The clock is read in nanoseconds. */
		early += late[i] < -0.01;
		due += period;
	}
	double used = (processor() - begin) / rounds;
	qsort(late, rounds, sizeof *late, compare);
	printf("%.1f %.1f %.1f %.2f %d\n", late[rounds / 2], late[rounds * 9 / 10],
	       late[rounds * 99 / 100], used, early);
	return 0;
}
