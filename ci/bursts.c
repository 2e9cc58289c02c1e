/*
 * The program of ci/bursts: a thread that keeps busy hands items, one at a time, to one that waits.
 *
 *     bursts MEANS MAKE TAKE BURST PAUSE SECONDS
 *
 * MAKE and TAKE are what an item costs each of the two threads in nanoseconds. After each BURST
 * items (0: never) the first one sleeps for PAUSE microseconds. A consumer that is awake takes
 * single items, where one that sleeps takes many at once. Prints the processor time and the time
 * of an item in microseconds, and how many items a wait has brought.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum means { EPOLL, POLL, READ, PIPE, MEANS };
static const char *const names[] = {"epoll", "poll", "read", "pipe"};

static enum means means;
static int in, out, set;
static long make, take, burst, rest, waits;
static atomic_long made;
static atomic_int over;

static int must(int result)
{
	if (result < 0) {
		perror("bursts");
		exit(1);
	}
	return result;
}

static double now(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void work(long nanoseconds)
{
	double until = now(CLOCK_MONOTONIC) + nanoseconds / 1e3;
	while (now(CLOCK_MONOTONIC) < until)
		;
}

static void open_pair(void)
{
	int ends[2];
	if (means == PIPE) {
		must(pipe(ends));
		in = ends[0];
		out = ends[1];
	} else {
		in = out = must(eventfd(0, means == READ ? 0 : EFD_NONBLOCK));
	}
	if (means == EPOLL) {
		struct epoll_event event = {.events = EPOLLIN};
		set = must(epoll_create1(0));
		must(epoll_ctl(set, EPOLL_CTL_ADD, in, &event));
	}
}

static void wake(void)
{
	uint64_t one = 1;
	must(write(out, &one, means == PIPE ? 1 : sizeof one));
}

static void wait_for_some(void)
{
	char bytes[4096];
	struct epoll_event event;
	struct pollfd entry = {.fd = in, .events = POLLIN};
	if (means == EPOLL)
		must(epoll_wait(set, &event, 1, -1));
	else if (means == POLL)
		must(poll(&entry, 1, -1));
	must(read(in, bytes, means == PIPE ? sizeof bytes : sizeof(uint64_t)));
	waits++;
}

static void *consume(void *unused)
{
	while (!over) {
		wait_for_some();
		for (long items = atomic_exchange(&made, 0); items > 0; items--)
			work(take);
	}
	return unused;
}

int main(int count, char **arguments)
{
	if (count != 7)
		return 2;
	while (means < MEANS && strcmp(names[means], arguments[1]) != 0)
		means++;
	if (means == MEANS)
		return 2;
	make = atol(arguments[2]);
	take = atol(arguments[3]);
	burst = atol(arguments[4]);
	rest = atol(arguments[5]);
	double seconds = atof(arguments[6]);
	pthread_t consumer;
	open_pair();
	must(-pthread_create(&consumer, NULL, consume, NULL));
	double start = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID);
	long items = 0;
	while (now(CLOCK_MONOTONIC) < start + seconds * 1e6) {
		work(make);
		made++;
		wake();
		items++;
		if (burst != 0 && items % burst == 0)
			usleep(rest);
	}
	used = now(CLOCK_PROCESS_CPUTIME_ID) - used;
	double time = now(CLOCK_MONOTONIC) - start;
	printf("%.3f %.3f %.2f\n", used / items, time / items, (double)items / waits);
	over = 1;
	wake();
	must(-pthread_join(consumer, NULL));
	return 0;
}
