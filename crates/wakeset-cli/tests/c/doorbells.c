/*
 * A set with a pipe and an eventfd in it, waited on by one thread while another only polls it.
 * By epoll(7) what is level-triggered stays ready for every waiter, however often it was polled.
 *
 * What each case would catch:
 *   a look beside a sleeper   a wait, with no timeout or few maxevents, that takes the notice meant
 *                             for a sleeper, which then sleeps on beside a ready eventfd, whatever
 *                             else is written to it
 *   two sleepers              the same of a sleeper that is woken for the pipe and returns with
 *                             maxevents events
 *   a look of higher priority the first, every time: the notice is taken before the thread that it
 *                             was meant for can run. Where a program may not have such a priority,
 *                             the case is as good as the first
 */
#include "show.h"
#include <sched.h>

static struct thread sleeper;
static int set, counter, ends[2];
static atomic_int begun, at_rest, looked, looking, stop;

/* Sleeps until it is told of the counter, once a round. */
static void *sleep_for_counter(void *unused)
{
	(void)unused;
	for (int round = 1;; round++) {
		while (atomic_load(&begun) < round) {
			if (atomic_load(&stop))
				return NULL;
			sched_yield();
		}
		for (int told = 0; !told;) {
			struct epoll_event events[4];
			int count = epoll_wait(set, events, 4, -1);
			for (int i = 0; i < count; i++)
				told |= events[i].data.u64 == 'a';
		}
		atomic_store(&at_rest, round);
	}
}

/* Looks once a round, with this patience. */
static void *look_once(void *patience)
{
	for (int round = 1;; round++) {
		struct epoll_event event;
		while (atomic_load(&looking) < round) {
			if (atomic_load(&stop))
				return NULL;
			sched_yield();
		}
		epoll_wait(set, &event, 1, *(int *)patience);
		atomic_store(&looked, round);
	}
}

static int reaches(atomic_int *value, int round)
{
	for (int64_t end = now() + 5000000000LL; atomic_load(value) < round;) {
		if (now() > end)
			return 0;
		sched_yield();
	}
	return 1;
}

static void make_objects(void)
{
	set = must(epoll_create1(EPOLL_CLOEXEC));
	counter = must(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	kernel_pipe(ends, O_CLOEXEC | O_NONBLOCK);
	must(watch_new(set, counter, EPOLLIN, 'a'));
	must(watch_new(set, ends[0], EPOLLIN | EPOLLET, 'b'));
	atomic_int *all[] = {&begun, &at_rest, &looked, &looking, &stop};
	for (int i = 0; i < 5; i++)
		atomic_store(all[i], 0);
}

static void close_objects(void)
{
	must(close(set));
	must(close(counter));
	must(close(ends[0]));
	must(close(ends[1]));
}

static void show_look(const char *name, int patience)
{
	static struct thread looker;
	heading(name);
	make_objects();
	start(&sleeper, sleep_for_counter, NULL);
	start(&looker, look_once, &patience);
	for (int round = 1; round <= 2500; round++) {
		atomic_store(&begun, round);
		usleep(100);
		atomic_store(&looking, round);
		spin(rand() % 2000);
		if (round % 2) {
			must(write(ends[1], "x", 1));
			must(add(counter, 1));
		} else {
			must(add(counter, 1));
			must(write(ends[1], "x", 1));
		}
		if (!reaches(&at_rest, round) || !reaches(&looked, round)) {
			show("one sleeps, and the eventfd", "was reported", "stays ready");
			give_up();
		}
		char byte[8];
		while (read(ends[0], byte, sizeof byte) > 0)
			;
		drain(counter);
	}
	atomic_store(&stop, 1);
	finish(&sleeper);
	finish(&looker);
	show("one sleeps, and the eventfd", "was reported", "was reported");
	close_objects();
}

/* Has one processor to itself and the sleeper, and runs before it if it may. */
static void *look_with_priority(void *unused)
{
	struct sched_param param = {.sched_priority = 50};
	(void)unused;
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &param);
	for (int round = 1; round <= 50; round++) {
		struct epoll_event event;
		char byte;
		atomic_store(&begun, round);
		until_asleep(sleeper.id);
		must(add(counter, 1));
		must(write(ends[1], "x", 1));
		/* Halves may take turns in who is looked at first. */
		for (int look = 0; look < round % 2 + 1; look++)
			epoll_wait(set, &event, 1, 0);
		/* No sched_yield(2), which gives way to nobody of lower priority. */
		for (int i = 0; i < 50000 && atomic_load(&at_rest) < round; i++)
			usleep(100);
		if (atomic_load(&at_rest) < round) {
			show("one sleeps, and the eventfd", "was reported", "stays ready");
			give_up();
		}
		must(read(ends[0], &byte, 1));
		drain(counter);
	}
	atomic_store(&stop, 1);
	return NULL;
}

static void show_priority(void)
{
	static struct thread looker;
	cpu_set_t before, one;
	heading("a look of higher priority");
	must_be_zero(pthread_getaffinity_np(pthread_self(), sizeof before, &before));
	int processor = 0;
	while (!CPU_ISSET(processor, &before))
		processor++;
	CPU_ZERO(&one);
	CPU_SET(processor, &one);
	must_be_zero(pthread_setaffinity_np(pthread_self(), sizeof one, &one));
	make_objects();
	start(&sleeper, sleep_for_counter, NULL);
	start(&looker, look_with_priority, NULL);
	finish(&looker);
	finish(&sleeper);
	must_be_zero(pthread_setaffinity_np(pthread_self(), sizeof before, &before));
	show("one sleeps, and the eventfd", "was reported", "was reported");
	close_objects();
}

int main(void)
{
	show_look("a look beside a sleeper", 0);
	show_look("two sleepers", 20);
	show_priority();
	return verdict();
}
