/*
 * N producers each add 1 to an eventfd of their own with write(2), many times; one consumer waits
 * with epoll_wait(2) and reads until all is counted. What an event loop that is told things by
 * other threads does all day.
 *
 *     stress [PRODUCERS [ADDS [MODE]]]
 *
 * MODE is `eventfd`, or one of two that make no system call at all, for comparison:
 *     bare   the producers add to counters in memory and the consumer empties these, round and
 *            round
 *     idle   the same, but the consumer only waits for the producers to end
 * The time is that from letting the producers go to the last event counted.
 */
#include "show.h"

struct producer {
	_Alignas(64) _Atomic uint64_t bare; /* a cache line of its own */
	int fd;
	struct thread thread;
};

static struct producer *producers;
static pthread_barrier_t gate;
static long count = 8;
static long long adds = 1000000;
static int in_memory;

static void *produce(void *argument)
{
	struct producer *producer = argument;
	pthread_barrier_wait(&gate);
	pthread_barrier_wait(&gate);
	if (in_memory)
		for (long long i = 0; i < adds; i++)
			atomic_fetch_add(&producer->bare, 1);
	else
		for (long long i = 0; i < adds; i++)
			if (add(producer->fd, 1) != 8)
				return "a write failed";
	return NULL;
}

static long long consume_eventfds(int set)
{
	struct epoll_event events[64];
	long long counted = 0, waits = 0;
	while (counted < adds * count) {
		int got = must(epoll_wait(set, events, 64, -1));
		waits++;
		for (int i = 0; i < got; i++) {
			long long value = take(((struct producer *)events[i].data.ptr)->fd);
			if (value > 0)
				counted += value;
		}
	}
	yes("the consumer waited", waits > 0);
	return counted;
}

static long long consume_memory(void)
{
	long long counted = 0;
	while (counted < adds * count)
		for (long i = 0; i < count; i++)
			counted += (long long)atomic_exchange(&producers[i].bare, 0);
	return counted;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 3 ? argv[3] : "eventfd";
	if (argc > 1)
		count = atol(argv[1]);
	if (argc > 2)
		adds = atoll(argv[2]);
	int idle = strcmp(mode, "idle") == 0;
	in_memory = idle || strcmp(mode, "bare") == 0;
	if (count < 1 || adds < 1 || (!in_memory && strcmp(mode, "eventfd") != 0)) {
		fprintf(stderr, "usage: stress [PRODUCERS [ADDS [eventfd|bare|idle]]]\n");
		return 2;
	}
	producers = aligned_alloc(64, (size_t)count * sizeof *producers);
	if (!producers)
		return 2;
	memset(producers, 0, (size_t)count * sizeof *producers);
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	must_be_zero(pthread_barrier_init(&gate, NULL, (unsigned)count + 1));
	for (long i = 0; i < count; i++) {
		if (!in_memory) {
			struct epoll_event event = {.events = EPOLLIN, .data.ptr = &producers[i]};
			producers[i].fd = must(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
			must(epoll_ctl(set, EPOLL_CTL_ADD, producers[i].fd, &event));
		}
		start(&producers[i].thread, produce, &producers[i]);
	}

	/* Once until all are there, and the time is taken; then they may go. */
	pthread_barrier_wait(&gate);
	int64_t since = now();
	pthread_barrier_wait(&gate);
	long long counted = idle ? 0 : in_memory ? consume_memory() : consume_eventfds(set);
	int64_t until = now();
	for (long i = 0; i < count; i++) {
		const char *complaint = finish(&producers[i].thread);
		if (complaint)
			show("a producer", "good", complaint);
		if (idle)
			counted += (long long)atomic_load(&producers[i].bare);
		else if (!in_memory)
			must(close(producers[i].fd));
	}
	if (idle)
		until = now();
	number("events", adds * count, counted);
	printf("events/ms: %.0f\n", (double)counted * 1e6 / (double)(until - since));
	return verdict();
}
