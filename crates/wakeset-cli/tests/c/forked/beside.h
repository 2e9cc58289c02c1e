/*
 * For "forked alone" and "forked beside": children of a process of one thread that take their time.
 * Such a process waits for its children at first.
 */
#ifndef FORKED_BESIDE_H
#define FORKED_BESIDE_H

#include "children.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* With one thread, while the parent still waits for its children to be quick. */
static void slow_child(void)
{
	heading("a child that takes its time");
	int counter = counter_of(5), set = set_with(counter, EPOLLIN);
	pid_t child = fork();
	if (child == 0) {
		hear(down[1]);
		_exit(write_three(&counter));
	}
	say(down[0], 'x');
	number("it writes", 0, status_of(child));
	value_is("  the value", "8", counter);
	must(close(set));
	must(close(counter));
}

/*
 * Children that are meant to run beside each other. One that was over when its fork(2) returned ran
 * before it: some of them may, not most.
 */
static void several_at_once(int quick_ones)
{
	int kinds = MAP_SHARED | MAP_ANONYMOUS, over = 0, counter = counter_of(1);
	_Atomic int *last = mmap(NULL, sizeof *last, PROT_READ | PROT_WRITE, kinds, -1, 0);
	for (int i = 0; i < 40; i++) {
		for (int k = 0; k < quick_ones; k++)
			in_child(nothing, &counter);
		*last = 0;
		pid_t child = fork();
		if (child == 0) {
			usleep(5000);
			*last = 1;
			_exit(0);
		}
		over += *last;
		if (i % 8 == 7)
			while (waitpid(-1, NULL, 0) > 0) {
			}
		must(close(counter));
		counter = counter_of(1);
	}
	number("most were over when fork returned", 0, over > 20);
	must(munmap((void *)last, sizeof *last));
	must(close(counter));
}

/* A thread that ends when it is told to. */
static void *hear_one(void *from)
{
	hear(*(int *)from);
	return NULL;
}

/* Forks beside another thread, which has ended when this returns. */
static void fork_beside_a_thread(int *counter)
{
	pthread_t thread;
	must_be_zero(pthread_create(&thread, NULL, hear_one, &down[1]));
	in_child(nothing, counter);
	say(down[0], 'x');
	must_be_zero(pthread_join(thread, NULL));
}

/*
 * A process whose threads come and go: the last one's end is the end of the process, and a fork of
 * the only one left is no fork beside others.
 */
static void last_thread(void)
{
	heading("a process with one thread left");
	pid_t other = fork();
	if (other == 0) {
		int counter = counter_of(4);
		fork_beside_a_thread(&counter);
		syscall(SYS_exit, 5);
	}
	number("its status", 5, status_of(other));
	other = fork();
	if (other == 0) {
		int counter = counter_of(4);
		fork_beside_a_thread(&counter);
		in_child(nothing, &counter);
		_exit(entries_of("/proc/self/task", NULL));
	}
	number("its threads", 1, status_of(other));
}

static int make_a_pipe(void *unused)
{
	int ends[2];
	(void)unused;
	return pipe(ends) != 0;
}

/* The last numbers are the program's. */
static void few_numbers(void)
{
	heading("few numbers");
	for (int left = 2; left < 6; left++) {
		pid_t other = fork();
		if (other == 0) {
			int counter = counter_of(4), top = dup(counter);
			must(close(top));
			struct rlimit few = {(rlim_t)(top + left), (rlim_t)(top + left)};
			must(setrlimit(RLIMIT_NOFILE, &few));
			_exit(in_child(make_a_pipe, NULL) || read_it(&counter) != 4);
		}
		number("a child makes a pipe", 0, status_of(other));
	}
}

static void beside_each_other(void)
{
	heading("children beside each other");
	several_at_once(0);
	/* Another process, which has not yet waited for anything. */
	pid_t other = fork();
	if (other == 0) {
		heading("with quick ones in between");
		several_at_once(1);
		exit(verdict());
	}
	number("the same", 0, status_of(other));
}

#endif
