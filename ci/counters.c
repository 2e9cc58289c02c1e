/*
 * The second program of ci/counters: round trips, through libc alone.
 *
 *     counters alone|together ROUNDTRIPS
 *
 * In one thread a round trip is write, wait, read; between two each waits for the other's write.
 * Prints round trips per second.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct side {
	int counter, set;
};

static struct side sides[2];
static long trips;
static const uint64_t one = 1;

static int must(int result)
{
	if (result < 0) {
		perror("counters");
		exit(1);
	}
	return result;
}

static void open_side(struct side *side)
{
	struct epoll_event event = {.events = EPOLLIN};
	side->counter = must(eventfd(0, EFD_NONBLOCK));
	side->set = must(epoll_create1(0));
	must(epoll_ctl(side->set, EPOLL_CTL_ADD, side->counter, &event));
}

static void take(struct side *side)
{
	struct epoll_event event;
	uint64_t value;
	must(epoll_wait(side->set, &event, 1, -1));
	must(read(side->counter, &value, sizeof value));
}

static void *answer(void *unused)
{
	for (long i = 0; i < trips; i++) {
		take(&sides[1]);
		must(write(sides[0].counter, &one, sizeof one));
	}
	return unused;
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	int together = argc == 3 && strcmp(argv[1], "together") == 0;
	pthread_t thread;
	if (argc != 3 || (trips = atol(argv[2])) <= 0)
		return 2;
	open_side(&sides[0]);
	open_side(&sides[1]);
	if (together && pthread_create(&thread, NULL, answer, NULL))
		return 1;
	double begin = now();
	for (long i = 0; i < trips; i++) {
		must(write(sides[together].counter, &one, sizeof one));
		take(&sides[0]);
	}
	double seconds = now() - begin;
	if (together)
		pthread_join(thread, NULL);
	printf("round trips/s: %.0f\n", trips / seconds);
	return 0;
}
