/*
 * Connections that a worker declines while others sleep for them, in courses that each take a step
 * at a time: a free worker has to get each of them at once, and not when it looks by itself after a
 * second.
 */
#define _GNU_SOURCE
#include "declined/course.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* Two workers decline a connection each at the same time; the first that hears of it is busy with
 * one of them, and the other must have the second. */
static int64_t two_decline(void)
{
	struct course *course = begin();
	void (*const works[])(struct course *, int) = {decline, decline, serve, serve};
	int clients[2];
	for (int i = 0; i < 4; i++)
		add_worker(course, works[i]);
	for (int i = 0; i < 4; i++) {
		step(course, i);
		/* Time to go to sleep. */
		sleep_ms(20);
	}
	for (int i = 0; i < 2; i++) {
		clients[i] = connect_to(course->listener);
		hear(course->done[0]);
	}
	int64_t began = now();
	tell(course->go[0][1]);
	tell(course->go[1][1]);
	int64_t longest = waited(course, 2, began);
	close_both(clients);
	end(course);
	return longest;
}

static struct course *shared_course;
static int shared_set;

static void *handle_data(void *unused)
{
	char byte;
	for (;;)
		if (wait_in(shared_set, -1) > 0 && read(shared_course->data[0], &byte, 1) == 1)
			sleep_ms(5);
	return unused;
}

/* Four threads wait in one set, for data and for another listener. */
static void handle_in_threads(struct course *course, int go)
{
	keep_to_one(1);
	shared_course = course;
	shared_set = must(epoll_create1(EPOLL_CLOEXEC));
	watch_new(shared_set, course->other, EPOLLIN, 'o');
	watch_new(shared_set, course->data[0], EPOLLIN, 'd');
	hear(go);
	for (int i = 0; i < 4; i++) {
		pthread_t thread;
		must_return_zero(pthread_create(&thread, NULL, handle_data, NULL), "pthread_create", __LINE__);
	}
	tell(course->done[1]);
}

/* As `decline`, and gives the threads some data just before. */
static void decline_beside_data(struct course *course, int go)
{
	keep_to_one(0);
	int set = await_connection(course, go);
	tell(course->data[1]);
	must(epoll_ctl(set, EPOLL_CTL_DEL, course->listener, NULL));
}

static void serve_anywhere(struct course *course, int go)
{
	int set = await_connection(course, go);
	accept_one(course, set);
}

/* A thread of a set that cannot have the connection has something else to do as well: the one that
 * can must hear of it. */
static int64_t busy_threads(void)
{
	struct course *course = begin();
	void (*const works[])(struct course *, int) = {handle_in_threads, decline_beside_data,
						       serve_anywhere};
	for (int i = 0; i < 3; i++) {
		add_worker(course, works[i]);
		step(course, i);
		sleep_ms(20);
	}
	return wait_for_one(course);
}

/* Accepts the first connection when it is told to, and declines the second. */
static void take_then_decline(struct course *course, int go)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	watch_new(set, course->listener, EPOLLIN, 'l');
	wait_in(set, 0);
	hear(go);
	tell(course->done[1]);
	hear(go);
	wait_in(set, LIMIT_MS);
	take_one(course->listener);
	tell(course->done[1]);
	wait_in(set, LIMIT_MS);
	must(epoll_ctl(set, EPOLL_CTL_DEL, course->listener, NULL));
	tell(course->done[1]);
}

/* Is told of the first connection twice and leaves it, handles some data, and waits again. */
static void leave_then_serve(struct course *course, int go)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	char byte;
	watch_new(set, course->listener, EPOLLIN, 'l');
	watch_new(set, course->data[0], EPOLLIN, 'd');
	hear(go);
	tell(course->done[1]);
	wait_in(set, LIMIT_MS);
	wait_in(set, LIMIT_MS);
	tell(course->done[1]);
	hear(go);
	wait_in(set, LIMIT_MS);
	must(read(course->data[0], &byte, 1));
	tell(course->done[1]);
	hear(go);
	wait_in(set, LIMIT_MS);
	accept_one(course, set);
}

/* Two workers get ready, the first connection comes, and the first worker takes another step. */
static struct course *begin_with_two(void (*one)(struct course *, int),
				     void (*another)(struct course *, int), int *first)
{
	struct course *course = begin();
	add_worker(course, one);
	add_worker(course, another);
	step(course, 0);
	step(course, 1);
	sleep_ms(20);
	*first = connect_to(course->listener);
	hear(course->done[0]);
	step(course, 0);
	sleep_ms(20);
	return course;
}

/* What a worker has left to another is gone: it must hear of the next one. */
static int64_t left_before(void)
{
	int first;
	struct course *course = begin_with_two(take_then_decline, leave_then_serve, &first);
	tell(course->data[1]);
	step(course, 1);
	sleep_ms(20);
	return wait_for_second(course, first, 1);
}

#include "declined/edges.h"
#include "declined/polls.h"
#include "declined/alike.h"
#include "declined/threads.h"

/* A course in a process of its own, which shares nothing with those of other courses. */
static int64_t apart(int64_t (*course)(void))
{
	int result[2];
	int64_t wait;
	kernel_pipe(result, O_CLOEXEC);
	pid_t pid = must(fork());
	if (pid == 0) {
		wait = course();
		must(write(result[1], &wait, sizeof wait));
		_exit(0);
	}
	must(close(result[1]));
	must(waitpid(pid, NULL, 0));
	if (must(read(result[0], &wait, sizeof wait)) != sizeof wait)
		wait = LIMIT_MS * 1000000LL;
	must(close(result[0]));
	return wait;
}

/* Runs a course, and says how long a connection waited. */
static int64_t show_wait(int64_t (*course)(void))
{
	int64_t wait = apart(course);
	printf("counts: waited %.1f ms\n", (double)wait / 1e6);
	return wait;
}

/* Where other programs take the processors, one round or another may be late. */
static void show_course(const char *name, int64_t (*course)(void))
{
	int late = 0;
	heading(name);
	for (int i = 0; i < ROUNDS; i++) {
		late += show_wait(course) > BOUND_MS * 1000000LL;
	}
	yes("no connection is stranded", late < 2);
}

/* One in which a worker finds by itself what nobody tells it of, within two seconds. */
static void show_slow_course(const char *name, int64_t (*course)(void))
{
	heading(name);
	yes("it is found in the end", show_wait(course) < SLOW_BOUND_MS * 1000000LL);
}

/* Whether what workers hold and accept is counted: in the orders auto and least. Plain, all are
 * woken. */
static int counts_accepted(void)
{
	const char *order = getenv("WAKESET_ORDER");
	return order == NULL || strcmp(order, "auto") == 0 || strcmp(order, "least") == 0;
}

int main(int count, char **arguments)
{
	if (count == 3 && strcmp(arguments[1], "take") == 0)
		return accept(atoi(arguments[2]), NULL, NULL) < 0;
	signal(SIGPIPE, SIG_IGN);
	show_course("a worker in poll that has polled another listener", other_listener_before);
	show_course("two workers decline at the same time", two_decline);
	show_course("threads of a set with something else to do", busy_threads);
	show_course("a worker that has left an earlier one to another", left_before);
	show_course("a worker that was told by an edge of what another program took", drained_before);
	show_course("a worker that has accepted one after an edge", taken_before);
	show_course("a worker in poll that was busy while three were declined", three_decline);
	show_course("one that waits for a listener that is named alike", two_listeners);
	show_course("a worker that has left an edge which another took", taken_by_another);
	show_course("a thread that removes what another was told of", removed_by_another);
	show_slow_course("a worker that has left an edge which stays", left_for_good);
	if (counts_accepted()) {
		show_course("threads of a set that leave one to another", threads_leave_one);
	}
	return verdict();
}
