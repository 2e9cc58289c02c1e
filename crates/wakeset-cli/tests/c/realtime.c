/*
 * Two threads of real-time priority on one processor, each with eventfds and a set of its own: a
 * thread that waits for another in a loop, be it sched_yield(2) that it calls there, waits for ever
 * if its priority is higher (sched(7)). Where a program may not have such a priority, the threads
 * are ordinary ones, and the output is the same.
 *
 * The case would catch a spin lock anywhere on the way of eventfd(2), epoll_ctl(2) and close(2).
 */
#include "show.h"
#include <sched.h>

static atomic_int done, stop;
static int processor;

static void become_real_time(int priority)
{
	cpu_set_t one;
	struct sched_param param = {.sched_priority = priority};
	CPU_ZERO(&one);
	CPU_SET(processor, &one);
	must_be_zero(pthread_setaffinity_np(pthread_self(), sizeof one, &one));
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &param);
}

static void come_and_go(int set)
{
	int fd = must(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	must(watch_new(set, fd, EPOLLIN, 'a'));
	must(close(fd));
}

static void *high(void *unused)
{
	(void)unused;
	become_real_time(50);
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	for (int i = 0; i < 4000; i++) {
		usleep(70);
		come_and_go(set);
	}
	atomic_store(&done, 1);
	return NULL;
}

static void *low(void *unused)
{
	(void)unused;
	become_real_time(10);
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	while (!atomic_load(&stop)) {
		for (int i = 0; i < 200; i++)
			come_and_go(set);
		usleep(200);
	}
	return NULL;
}

int main(void)
{
	static struct thread higher, lower;
	cpu_set_t mine;
	must(sched_getaffinity(0, sizeof mine, &mine));
	while (!CPU_ISSET(processor, &mine))
		processor++;
	/*
	 * Another one for this thread, if there is one: it is to tell the others' end even if they never
	 * end.
	 */
	if (CPU_COUNT(&mine) > 1) {
		CPU_CLR(processor, &mine);
		must(sched_setaffinity(0, sizeof mine, &mine));
	}
	heading("two priorities on one processor");
	start(&lower, low, NULL);
	start(&higher, high, NULL);
	int ended = in_time(&done);
	yes("the higher one comes to its end", ended);
	if (!ended)
		give_up();
	atomic_store(&stop, 1);
	finish(&higher);
	finish(&lower);
	return verdict();
}
