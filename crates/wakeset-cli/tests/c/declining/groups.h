/*
 * Groups of workers of which some decline, and how long a connection waits among them.
 */
#ifndef DECLINING_GROUPS_H
#define DECLINING_GROUPS_H

#include "worker.h"
#include <sys/wait.h>

/* The first of the queue come first. */
enum { DECLINING = 2, GROUP = 3, CONNECTIONS = 8 };

/* A machine that is busy with other things needs some patience. */
enum { BOUND_MS = 500, GIVE_UP_MS = 3000 };

struct group {
	int listener, other[2];
	pid_t workers[GROUP];
	int count;
};

static void add_worker(struct group *group, struct worker worker)
{
	int ready = atomic_load(&counts->ready);
	worker.listener = group->listener;
	worker.other = group->other[0];
	pid_t pid = must(fork());
	if (pid == 0)
		work(worker);
	group->workers[group->count++] = pid;
	while (atomic_load(&counts->ready) == ready)
		sleep_ms(1);
	/* Time to go to sleep. */
	sleep_ms(20);
}

static void begin_counts(void)
{
	counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED)
		must(-1);
}

static void begin_group(struct group *group, int family)
{
	*group = (struct group){.listener = listen_on(family)};
	begin_counts();
	kernel_pipe(group->other, O_CLOEXEC);
}

static void end_group(struct group *group)
{
	kill_workers(group->workers, group->count);
	must(close(group->listener));
	close_both(group->other);
	must(munmap(counts, sizeof *counts));
}

/* A client that has connected: waits for its answer, and says how long that took. */
static int64_t wait_for_answer(int client, int64_t began)
{
	struct pollfd one = {client, POLLIN, 0};
	char byte = 0;
	int found = must(poll(&one, 1, GIVE_UP_MS));
	int64_t waited = now() - began;
	if (found == 0 || read(client, &byte, 1) != 1 || byte != 'x')
		waited = (int64_t)GIVE_UP_MS * 1000000;
	must(close(client));
	return waited;
}

static int64_t longest_of(int64_t longest, int64_t waited)
{
	return waited > longest ? waited : longest;
}

static void judge(int64_t longest)
{
	printf("counts: longest wait %.1f ms, %d told, %d declined\n", (double)longest / 1e6,
	       atomic_load(&counts->told), atomic_load(&counts->declines));
	yes("no connection is stranded", longest < BOUND_MS * 1000000LL);
}

static int64_t ask_one_by_one(int listener, int connections)
{
	int64_t longest = 0;
	for (int i = 0; i < connections; i++) {
		int64_t began = now();
		longest = longest_of(longest, wait_for_answer(connect_to(listener), began));
		/* Time for all to sleep again. */
		sleep_ms(30);
	}
	return longest;
}

static void show_declined(int family, enum way way, enum how how)
{
	struct group group;
	printf("-- %s, a worker that %s, %s\n", way_names[way], how_names[how],
	       family == AF_UNIX ? "unix" : "TCP");
	begin_group(&group, family);
	for (int i = 0; i < GROUP; i++)
		add_worker(&group, (struct worker){.way = way, .how = i < DECLINING ? how : ACCEPTS});
	judge(ask_one_by_one(group.listener, CONNECTIONS));
	end_group(&group);
}

/* Each ends, or closes the listener, with its first connection. */
static void show_left_by(enum way way, enum how how)
{
	struct group group;
	printf("-- %s, a worker that %s\n", way_names[way], how_names[how]);
	begin_group(&group, AF_INET);
	for (int i = 0; i < GROUP; i++)
		add_worker(&group, (struct worker){.way = way, .how = i < DECLINING ? how : ACCEPTS});
	judge(ask_one_by_one(group.listener, DECLINING + 1));
	end_group(&group);
}

static void show_burst(enum way way)
{
	enum { BURST = 20 };
	struct group group;
	int clients[BURST];
	int64_t longest = 0;
	printf("-- %s, a burst\n", way_names[way]);
	begin_group(&group, AF_INET);
	for (int i = 0; i < GROUP; i++)
		add_worker(&group, (struct worker){.way = way, .how = i < DECLINING ? DROPS : ACCEPTS});
	for (int round = 0; round < 3; round++) {
		int64_t began = now();
		for (int i = 0; i < BURST; i++)
			clients[i] = connect_to(group.listener);
		for (int i = 0; i < BURST; i++)
			longest = longest_of(longest, wait_for_answer(clients[i], began));
		sleep_ms(30);
	}
	judge(longest);
	end_group(&group);
}

/*
 * Of a connection that all decline each is told once, and then it is quiet, as where all are told
 * at the same time. A level is told for as long as a worker waits for it; here each leaves the
 * listener alone.
 */
static void show_all_decline(enum way way)
{
	struct group group;
	printf("-- %s, all decline\n", way_names[way]);
	begin_group(&group, AF_INET);
	for (int i = 0; i < GROUP; i++)
		add_worker(&group, (struct worker){.way = way, .how = way == EDGE ? AGAIN : CLOSES});
	int client = connect_to(group.listener);
	sleep_ms(400);
	number("told", GROUP, atomic_load(&counts->told));
	sleep_ms(300);
	number("and no more", GROUP, atomic_load(&counts->told));
	must(close(client));
	end_group(&group);
}

/* All decline, and accept once they have room again. */
static void show_later(enum way way)
{
	struct group group;
	int64_t longest = 0;
	printf("-- %s, all decline and accept later\n", way_names[way]);
	begin_group(&group, AF_INET);
	for (int i = 0; i < GROUP; i++)
		add_worker(&group, (struct worker){.way = way, .how = DROPS, .later = 1});
	for (int i = 0; i < 3; i++) {
		int64_t began = now();
		longest = longest_of(longest, wait_for_answer(connect_to(group.listener), began));
		sleep_ms(2 * PAUSE_MS);
	}
	judge(longest - PAUSE_MS * 1000000LL);
	end_group(&group);
}

/* Those who come first wait for the second listener only: what the first one has is not theirs. */
static void show_two_listeners(enum way way)
{
	struct group group, second;
	printf("-- %s, listeners of which not all are watched by all\n", way_names[way]);
	begin_group(&group, AF_INET);
	second = group;
	second.listener = listen_on(AF_INET);
	must(pipe2(second.other, O_CLOEXEC));
	add_worker(&second, (struct worker){.way = way, .how = ACCEPTS});
	add_worker(&second, (struct worker){.way = way, .how = ACCEPTS});
	add_worker(&group, (struct worker){.way = way, .how = DROPS});
	add_worker(&group, (struct worker){.way = way, .how = DROPS});
	add_worker(&group, (struct worker){.way = way, .how = ACCEPTS});
	judge(ask_one_by_one(group.listener, CONNECTIONS));
	kill_workers(second.workers, second.count);
	must(close(second.listener));
	close_both(second.other);
	end_group(&group);
}

static void *sleep_in_set(void *set)
{
	struct epoll_event event;
	for (;;)
		epoll_wait(*(int *)set, &event, 1, -1);
	return NULL;
}

/* The same where those who come first are two threads that sleep in one set. */
static void show_shared_set(enum way way)
{
	struct group group;
	printf("-- %s, after two threads in one set that watches something else\n", way_names[way]);
	begin_group(&group, AF_INET);
	int second = listen_on(AF_INET);
	pid_t sleeper = must(fork());
	if (sleeper == 0) {
		static int set;
		struct epoll_event event = {.events = EPOLLIN};
		pthread_t thread;
		set = must(epoll_create1(EPOLL_CLOEXEC));
		must(epoll_ctl(set, EPOLL_CTL_ADD, second, &event));
		if (pthread_create(&thread, NULL, sleep_in_set, &set) != 0)
			_exit(1);
		sleep_in_set(&set);
	}
	sleep_ms(50);
	add_worker(&group, (struct worker){.way = way, .how = DROPS});
	add_worker(&group, (struct worker){.way = way, .how = DROPS});
	add_worker(&group, (struct worker){.way = way, .how = ACCEPTS});
	judge(ask_one_by_one(group.listener, CONNECTIONS));
	kill_workers(&sleeper, 1);
	must(close(second));
	end_group(&group);
}

/*
 * Workers that take or close the numbers which the program does not use: those that Wakeset hides
 * are among them.
 */
static void show_numbers_taken(enum way way)
{
	struct group group;
	printf("-- %s, high numbers are taken and closed\n", way_names[way]);
	begin_group(&group, AF_INET);
	for (int fd = 396; fd < 408; fd++)
		must(dup2(group.other[0], fd));
	for (int i = 0; i < GROUP; i++)
		add_worker(&group, (struct worker){.way = way, .how = i < DECLINING ? DROPS : ACCEPTS,
						   .takes = 1});
	must(close_range(396, 407, 0));
	judge(ask_one_by_one(group.listener, CONNECTIONS));
	end_group(&group);
}

static void *work_in_thread(void *argument)
{
	work(*(struct worker *)argument);
	return NULL;
}

static void begin_threads(const struct group *group, struct worker *workers, int n)
{
	for (int i = 0; i < n; i++) {
		pthread_t thread;
		workers[i].listener = group->listener;
		workers[i].other = group->other[0];
		if (pthread_create(&thread, NULL, work_in_thread, &workers[i]) != 0)
			_exit(1);
		sleep_ms(20);
	}
	for (;;)
		pause();
}

static void wait_until_ready(int n)
{
	while (atomic_load(&counts->ready) < n)
		sleep_ms(1);
	sleep_ms(20);
}

/* Threads of one process: their sets, if they have some, stay when they have ended. */
static void show_threads_decline(enum way way, enum how how)
{
	struct group group;
	printf("-- %s, threads, one that %s\n", way_names[way], how_names[how]);
	begin_group(&group, AF_INET);
	pid_t child = must(fork());
	if (child == 0) {
		static struct worker workers[GROUP];
		for (int i = 0; i < GROUP; i++)
			workers[i] = (struct worker){.way = way, .how = i < DECLINING ? how : ACCEPTS};
		begin_threads(&group, workers, GROUP);
	}
	wait_until_ready(GROUP);
	group.workers[group.count++] = child;
	judge(ask_one_by_one(group.listener, how < FIRST_THREADS_END ? CONNECTIONS : DECLINING + 1));
	end_group(&group);
}

/* How often a worker that has nothing to do has slept: a few more than it was asked. */
static long switches_of(pid_t pid)
{
	char path[64], line[128];
	long switches = -1;
	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file))
		sscanf(line, "voluntary_ctxt_switches: %ld", &switches);
	if (file)
		fclose(file);
	return switches;
}

/*
 * A worker declines what no other can have, because the others wait for another listener: each of
 * those is asked once or twice, and not again and again; also if the worker is told of it again and
 * again.
 */
static void show_quiet(enum way way, enum how how)
{
	struct group group, second;
	printf("-- %s, what no other can have, of a worker that %s\n", way_names[way], how_names[how]);
	begin_group(&group, AF_INET);
	second = group;
	second.listener = listen_on(AF_INET);
	must(pipe2(second.other, O_CLOEXEC));
	for (int i = 0; i < GROUP; i++)
		add_worker(&second, (struct worker){.way = way, .how = ACCEPTS});
	add_worker(&group, (struct worker){.way = way, .how = how});
	long before = switches_of(second.workers[0]);
	int client = connect_to(group.listener);
	sleep_ms(500);
	long asked = switches_of(second.workers[0]) - before;
	printf("counts: asked %ld times\n", asked);
	yes("declined", atomic_load(&counts->declines) > 0);
	yes("each is asked a few times at most", asked < 20);
	must(close(client));
	kill_workers(second.workers, second.count);
	must(close(second.listener));
	close_both(second.other);
	end_group(&group);
}

/*
 * A master that has its listener from the process that started it, as from systemd(1): it does
 * nothing with it but fork workers. The one that made the listener is not among its ancestors, of
 * which one under Wakeset would share with the workers what the master has not made. Under the
 * second number it says how it has ended.
 */
enum { GIVEN = 3, TELLS };

static int run_given(enum way way)
{
	struct group group = {.listener = GIVEN};
	begin_counts();
	kernel_pipe(group.other, O_CLOEXEC);
	for (int i = 0; i < GROUP; i++)
		add_worker(&group, (struct worker){.way = way, .how = i < DECLINING ? DROPS : ACCEPTS});
	judge(ask_one_by_one(group.listener, CONNECTIONS));
	end_group(&group);
	char failed = (char)verdict();
	fflush(stdout);
	must(write(TELLS, &failed, 1));
	return failed;
}

static _Noreturn void execute_given(enum way way, int listener, int tells)
{
	char name[] = {(char)('0' + way), 0};
	/* The numbers may be the ones that they are to get. */
	listener = must(fcntl(listener, F_DUPFD_CLOEXEC, TELLS + 1));
	tells = must(fcntl(tells, F_DUPFD_CLOEXEC, TELLS + 1));
	must(dup2(listener, GIVEN));
	must(dup2(tells, TELLS));
	execl("/proc/self/exe", "declining", "given", name, NULL);
	_exit(must(-1));
}

static void show_given(enum way way)
{
	printf("-- %s, a listener that the master was given\n", way_names[way]);
	fflush(stdout);
	int listener = listen_on(AF_INET), ends[2];
	char failed = 1;
	kernel_pipe(ends, O_CLOEXEC);
	pid_t starter = must(fork());
	if (starter == 0) {
		starter = getpid();
		if (must(fork()) != 0)
			_exit(0);
		while (getppid() == starter)
			sleep_ms(1);
		execute_given(way, listener, ends[1]);
	}
	must(waitpid(starter, NULL, 0));
	must(close(ends[1]));
	number("the master tells of its end", 1, must((int)read(ends[0], &failed, 1)));
	number("the master ends with", 0, failed);
	must(close(ends[0]));
	must(close(listener));
}

#endif
