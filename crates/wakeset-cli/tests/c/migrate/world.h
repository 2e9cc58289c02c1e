/*
 * A world of sets, eventfds and threads that sleep, and how it should look.
 */
#ifndef MIGRATE_WORLD_H
#define MIGRATE_WORLD_H

#include "../show.h"
#include <sys/wait.h>

static int set;   /* watches the counters below */
static int outer; /* watches the set */
static int full_of_five, empty, edge, shot, full;
static int asleep_in_wait, asleep_in_read, wait_set;
static struct waiter waiter;
static struct thread reader;

static void *read_once(void *unused)
{
	(void)unused;
	return (void *)(intptr_t)take(asleep_in_read);
}

/* None of these is closed on exec, for some ways out are that. */
static void make_world(void)
{
	set = must(epoll_create1(0));
	outer = must(epoll_create1(0));
	wait_set = must(epoll_create1(0));
	full_of_five = must(eventfd(5, EFD_NONBLOCK));
	empty = must(eventfd(0, EFD_NONBLOCK));
	edge = must(eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE));
	shot = must(eventfd(1, EFD_NONBLOCK));
	full = must(eventfd(0, EFD_NONBLOCK));
	asleep_in_wait = must(eventfd(0, EFD_NONBLOCK));
	asleep_in_read = must(eventfd(0, 0));
	must(watch_new(outer, set, EPOLLIN, 's'));
	must(watch_new(set, edge, EPOLLIN | EPOLLET, 'e'));
	must(watch_new(set, shot, EPOLLIN | EPOLLONESHOT, 'o'));
	must(add(edge, 3));
	(void)ready(set); /* takes the edge and the shot */
	must(watch_new(set, full_of_five, EPOLLIN, 'a'));
	must(watch_new(set, empty, EPOLLIN, 'b'));
	must(watch_new(set, full, EPOLLIN | EPOLLOUT, 'f'));
	must(add(full, 0xfffffffffffffffe));
	must(watch_new(wait_set, asleep_in_wait, EPOLLIN, 'w'));
	start_waiting(&waiter, wait_set, 4);
	start(&reader, read_once, NULL);
	until_asleep(reader.id);
}

/* What must hold of it when some way out has added `more` to the five. */
static void look_at_world(int more)
{
	show("the set", "a=IN f=IN", sorted(set, 16, 0));
	show("the set above", "s=IN", ready(outer));
	CALL("the five", "8", add(full_of_five, 10));
	number("and ten more, and what others added", 15 + more, take(full_of_five));
	CALL("then none", "-1 EAGAIN", take(full_of_five));
	must(add(empty, 1));
	show("the empty one filled", "b=IN f=IN", sorted(set, 16, 0));
	number("by one", 1, take(empty));
	CALL("the full one is full", "-1 EAGAIN", add(full, 1));
	drain(full);
	show("and drained", "f=OUT", ready(set));
	must(epoll_ctl(set, EPOLL_CTL_DEL, full, NULL));
	show("nothing else is ready", "none", ready(set));
	show("nor above", "none", ready(outer));
	number("the semaphore", 1, take(edge));
	must(add(edge, 1));
	show("its next edge", "e=IN", ready(set));
	show("once", "none", ready(set));
	must(watch(set, EPOLL_CTL_MOD, shot, EPOLLIN | EPOLLONESHOT, 'p'));
	show("the next shot", "p=IN", ready(set));
	CALL("a watch is known", "-1 EEXIST", watch_new(set, empty, EPOLLIN, 'b'));
	must(epoll_ctl(set, EPOLL_CTL_DEL, empty, NULL));
	must(add(asleep_in_wait, 1));
	show("who sleeps in a wait is woken", "w=IN", what_it_saw(&waiter));
	must(add(asleep_in_read, 6));
	number("who sleeps in a read is woken", 6, (intptr_t)finish(&reader));
	const int all[] = {set, outer, wait_set, full_of_five, empty, edge, shot, full, asleep_in_wait,
	                   asleep_in_read};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		must(close(all[i]));
}

/* ---- what another process does with it ---- */

static pid_t parent; /* the process that makes the worlds */

/*
 * A child's look has things move in its parent. An edge that was reported is not told again if no
 * thread there runs (SEMANTICS.md, Difference 8): so not while fork(2) returns.
 */
static void be_a_child(int counter, int its_set)
{
	until_process_asleep(parent ? parent : getppid());
	show("  child: the set", "a=IN f=IN", sorted(its_set, 16, 0));
	CALL("  child: adds one", "8", add(counter, 1));
	int own = must(epoll_create1(0));
	must(watch_new(own, counter, EPOLLIN, 'c'));
	show("  child: a set of its own", "c=IN", ready(own));
	long long value = take(counter);
	yes("  child: takes all", value > 0);
	must(add(counter, (uint64_t)value));
	show("  child: and gives it back", "c=IN", ready(own));
	must(close(own));
}

static void child_and_exit(void)
{
	surprises = 0; /* the parent's are the parent's */
	be_a_child(full_of_five, set);
	_exit(surprises ? 1 : 0);
}

static void await(pid_t child)
{
	int status = -1;
	must(child);
	while (waitpid(child, &status, 0) == -1 && errno == EINTR)
		;
	number("  the child's status", 0, status);
}

static char numbers[3][16];
static char *const *arguments(int counter)
{
	static char name[] = "migrate", mode[] = "child";
	static char *list[] = {name, mode, numbers[0], numbers[1], NULL};
	snprintf(numbers[0], sizeof numbers[0], "%d", counter);
	snprintf(numbers[1], sizeof numbers[1], "%d", set);
	return list;
}

#endif
