/*
 * Processes and threads that end at a bad moment.
 */
#ifndef DECLINING_ENDS_H
#define DECLINING_ENDS_H

#include "groups.h"
#include <sched.h>

/*
 * A thread ends its process while others of it sleep, each for itself. They end with it, or do
 * nothing in the moment that they have left: none of them may get what is passed on.
 */
static void show_all_end(enum way way, enum how how)
{
	enum { THREADS = 12 };
	struct group group;
	printf("-- %s, of many threads one that %s\n", way_names[way], how_names[how]);
	begin_group(&group, AF_INET);
	pid_t child = must(fork());
	if (child == 0) {
		static struct worker workers[THREADS];
		for (int i = 0; i < THREADS; i++)
			workers[i] = (struct worker){.way = way, .how = i == 0 ? how : STAYS};
		begin_threads(&group, workers, THREADS);
	}
	wait_until_ready(THREADS);
	group.workers[group.count++] = child;
	add_worker(&group, (struct worker){.way = way, .how = ACCEPTS});
	judge(ask_one_by_one(group.listener, 1));
	end_group(&group);
}

static void end_thread(int signal)
{
	(void)signal;
	pthread_exit(NULL);
}

static void stay_on(int cpu)
{
	cpu_set_t cpus;
	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	must(sched_setaffinity(0, sizeof cpus, &cpus));
}

static int processor;

/* Waits on a processor that it does not take from whoever wakes it. */
static void *wait_for_end(void *listener)
{
	struct pollfd one = {*(int *)listener, POLLIN, 0};
	struct sched_param none = {0};
	stay_on(processor);
	must(sched_setscheduler(0, SCHED_BATCH, &none));
	atomic_store(&counts->victims_process, getpid());
	atomic_store(&counts->victim, gettid());
	atomic_fetch_add(&counts->ready, 1);
	poll(&one, 1, -1);
	return NULL;
}

/*
 * A thread that waits for another listener is to pass on what a worker declines, and a signal ends
 * it just as it is woken for that.
 */
static void show_ended_by_signal(void)
{
	struct group group;
	printf("-- poll, a thread that a signal ends\n");
	begin_group(&group, AF_INET);
	static int second;
	second = listen_on(AF_INET);
	processor = must(sched_getcpu());
	pid_t child = must(fork());
	if (child == 0) {
		pthread_t thread;
		signal(SIGUSR1, end_thread);
		if (pthread_create(&thread, NULL, wait_for_end, &second) != 0)
			_exit(1);
		for (;;)
			pause();
	}
	wait_until_ready(1);
	group.workers[group.count++] = child;
	pid_t worker = must(fork());
	if (worker == 0) {
		struct pollfd one = {group.listener, POLLIN, 0}, other = {group.other[0], POLLIN, 0};
		stay_on(processor);
		atomic_fetch_add(&counts->ready, 1);
		must(poll(&one, 1, -1));
		must(poll(&other, 1, 0));
		must(tgkill(atomic_load(&counts->victims_process), atomic_load(&counts->victim), SIGUSR1));
		sleep_ms(60000);
	}
	wait_until_ready(2);
	group.workers[group.count++] = worker;
	add_worker(&group, (struct worker){.way = POLL, .how = ACCEPTS});
	judge(ask_one_by_one(group.listener, 1));
	must(close(second));
	end_group(&group);
}

#endif
