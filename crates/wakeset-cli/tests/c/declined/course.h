/*
 * A course of steps, which the program has its workers take one at a time.
 */
#ifndef DECLINED_COURSE_H
#define DECLINED_COURSE_H

#include "../listening.h"
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { WORKERS = 5, ROUNDS = 4, MOST = 3 };
enum { BOUND_MS = 500, BUSY_MS = 2000, SLOW_BOUND_MS = 2600, LIMIT_MS = 3000 };

/* What the processes of a course share. */
struct course {
	int listener, other, data[2];
	int go[WORKERS][2], done[2];
	pid_t workers[WORKERS];
	int count;
	/* When connections were accepted. */
	_Atomic int64_t accepted[MOST];
};

static void tell(int to)
{
	must(write(to, "x", 1));
}

static void hear(int from)
{
	char byte;
	must(read(from, &byte, 1));
}

/* Has a worker take its next step, and waits until it says that it has. */
static void step(const struct course *course, int worker)
{
	tell(course->go[worker][1]);
	hear(course->done[0]);
}

/* Keeps the calling process on the first processor that it may use; `last`, behind the others. */
static void keep_to_one(int last)
{
	cpu_set_t all, one;
	int first = 0;
	must(sched_getaffinity(0, sizeof all, &all));
	while (!CPU_ISSET(first, &all))
		first++;
	CPU_ZERO(&one);
	CPU_SET(first, &one);
	must(sched_setaffinity(0, sizeof one, &one));
	if (last)
		must(nice(5));
}

static int wait_in(int set, int milliseconds)
{
	struct epoll_event events[4];
	return must(epoll_wait(set, events, 4, milliseconds));
}

static struct course *begin(void)
{
	struct course *course = mmap(NULL, sizeof *course, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (course == MAP_FAILED)
		must(-1);
	course->listener = listen_on(AF_INET);
	course->other = listen_on(AF_INET);
	kernel_pipe(course->data, O_CLOEXEC | O_NONBLOCK);
	kernel_pipe(course->done, O_CLOEXEC);
	for (int i = 0; i < WORKERS; i++)
		kernel_pipe(course->go[i], O_CLOEXEC);
	return course;
}

/* Forks a worker that does this with its own pipe. */
static void add_worker(struct course *course, void (*work)(struct course *, int go))
{
	int go = course->go[course->count][0];
	pid_t pid = must(fork());
	if (pid == 0) {
		work(course, go);
		sleep_ms(60000);
		_exit(0);
	}
	course->workers[course->count++] = pid;
}

static void end(struct course *course)
{
	kill_workers(course->workers, course->count);
	must(close(course->listener));
	must(close(course->other));
	close_both(course->data);
	close_both(course->done);
	for (int i = 0; i < WORKERS; i++)
		close_both(course->go[i]);
	must(munmap(course, sizeof *course));
}

/* How long after `began` the connections were accepted. */
static int64_t waited(const struct course *course, int connections, int64_t began)
{
	int64_t longest = 0;
	for (int i = 0; i < connections; i++) {
		int64_t at = 0;
		while ((at = atomic_load(&course->accepted[i])) == 0 &&
		       now() - began < LIMIT_MS * 1000000LL)
			sleep_ms(1);
		int64_t wait = at == 0 ? LIMIT_MS * 1000000LL : at - began;
		longest = wait > longest ? wait : longest;
	}
	return longest;
}

/* Has a worker go on, and returns how long the connections wait from then. */
static int64_t wait_beside(const struct course *course, int worker, int connections)
{
	int64_t began = now();
	tell(course->go[worker][1]);
	return waited(course, connections, began);
}

/* Connects, returns how long that waits for a worker, and ends the course. */
static int64_t wait_for_one(struct course *course)
{
	int64_t began = now();
	int client = connect_to(course->listener);
	int64_t longest = waited(course, 1, began);
	must(close(client));
	end(course);
	return longest;
}

/* A second connection wakes a worker, which declines it when it is told to. Returns how long one of
 * the two waits from then, and ends the course. */
static int64_t wait_for_second(struct course *course, int first, int declines)
{
	int second = connect_to(course->listener);
	hear(course->done[0]);
	sleep_ms(20);
	int64_t longest = wait_beside(course, declines, 1);
	must(close(first));
	must(close(second));
	end(course);
	return longest;
}

/* Waits for a connection when told to. Returns the set. */
static int await_connection(struct course *course, int go)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	hear(go);
	watch_new(set, course->listener, EPOLLIN, 'l');
	tell(course->done[1]);
	wait_in(set, LIMIT_MS);
	return set;
}

/* Adds the listener, waits for a connection, and removes the listener instead of accepting. */
static void decline(struct course *course, int go)
{
	keep_to_one(0);
	int set = await_connection(course, go);
	tell(course->done[1]);
	hear(go);
	must(epoll_ctl(set, EPOLL_CTL_DEL, course->listener, NULL));
}

/* A connection was accepted now. */
static void note_accepted(struct course *course)
{
	int64_t at = now();
	for (int i = 0; i < MOST; i++) {
		int64_t none = 0;
		if (atomic_compare_exchange_strong(&course->accepted[i], &none, at))
			return;
	}
}

/* Accepts one connection, says when, and is busy with it. */
static void accept_one(struct course *course, int set)
{
	while (!take_one(course->listener))
		wait_in(set, LIMIT_MS);
	note_accepted(course);
	sleep_ms(BUSY_MS);
}

static void serve(struct course *course, int go)
{
	keep_to_one(1);
	int set = await_connection(course, go);
	accept_one(course, set);
}

/* Sleeps for the other listener. */
static void await_other(struct course *course, int go)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	hear(go);
	watch_new(set, course->other, EPOLLIN, 'o');
	tell(course->done[1]);
	for (;;)
		wait_in(set, -1);
}

#endif
