/*
 * For `forked.c`: children that outlive any deadline, so that each is taken for a worker.
 */
#ifndef FORKED_WORKERS_H
#define FORKED_WORKERS_H

#include "beside.h"

/* Until a parent has no connection with a child any more, beside so many sockets of its own. */
static void until_no_child_can_ask(int own)
{
	while (entries_of("/proc/self/fd", "socket:") > own)
		usleep(1000);
}

/* What a worker has from its parent, and does not name before it is told to. */
static struct {
	int counter, set, timer, pipe[2], pair[2];
} work;

static void make_work(void)
{
	work.counter = counter_of(5);
	work.set = set_with(work.counter, EPOLLIN);
	work.timer = must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	must(pipe2(work.pipe, O_CLOEXEC | O_NONBLOCK));
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, work.pair));
}

static void end_work(void)
{
	const int all[] = { work.counter, work.set, work.timer, work.pipe[0], work.pipe[1],
		work.pair[0], work.pair[1] };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		must(close(all[i]));
}

/* The parent uses everything beside the worker, and leaves something in each. */
static void use_work(void)
{
	char bytes[8];
	struct itimerspec once = { .it_value.tv_nsec = 1 };
	uint64_t one = 1;
	reports("the set", "1", work.set);
	must(write(work.counter, &one, 8));
	CALL("the pipe", "3", write(work.pipe[1], "pqr", 3));
	CALL("  read", "1", read(work.pipe[0], bytes, 1));
	CALL("the pair", "2", write(work.pair[0], "st", 2));
	must(timerfd_settime(work.timer, 0, &once, NULL));
}

/* What the worker finds: all that its parent has left, by each of these calls for the first
 * time. */
static int do_work(void *unused)
{
	(void)unused;
	hear(down[1]);
	char bytes[8] = "";
	if (wait_in(&work.set) != 1 || read_it(&work.counter) != 6 || wait_in(&work.set) != 0)
		return 1;
	if (read(work.pipe[0], bytes, 8) != 2 || bytes[0] != 'q')
		return 2;
	if (recv(work.pair[1], bytes, 8, MSG_DONTWAIT) != 2 || bytes[0] != 's')
		return 3;
	struct pollfd timer = { work.timer, POLLIN, 0 };
	if (poll(&timer, 1, 1000) != 1)
		return 4;
	if (write_three(&work.counter) != 0 || write(work.pipe[1], "u", 1) != 1)
		return 5;
	return write(work.pair[1], "v", 1) != 1;
}

/* A process has a second thread until it says so. */
static pthread_t companion;

static void begin_companion(void)
{
	must_be_zero(pthread_create(&companion, NULL, hear_one, &up[1]));
}

static void end_companion(void)
{
	say(up[0], 'x');
	must_be_zero(pthread_join(companion, NULL));
}

/* A worker that names nothing for more than a second, beside a thread all along, or not. */
static void worker(const char *name, bool is_left_alone)
{
	heading(name);
	char bytes[8];
	until_no_child_can_ask(4);
	make_work();
	begin_companion();
	pid_t child = fork();
	if (child == 0)
		_exit(do_work(NULL));
	if (is_left_alone)
		end_companion();
	int made = counter_of(1);
	usleep(1500 * 1000);
	use_work();
	say(down[0], 'x');
	number("what it does", 0, status_of(child));
	value_is("  the value", "3", work.counter);
	CALL("  the pipe", "1", read(work.pipe[0], bytes, 8));
	CALL("  the pair", "1", recv(work.pair[0], bytes, 8, MSG_DONTWAIT));
	value_is("made since", "1", made);
	number("the next one writes", 0, in_child(write_three, &made));
	value_is("  the value", "3", made);
	must(close(made));
	end_work();
	if (!is_left_alone)
		end_companion();
}

/* Numbers that a worker has, and what its parent makes under them once it has closed them. */
static void numbers_again(void)
{
	heading("a number that a worker has");
	begin_companion();
	int counter = counter_of(5), ends[2];
	char byte;
	must(pipe2(ends, O_CLOEXEC | O_NONBLOCK));
	pid_t child = fork();
	if (child == 0) {
		hear(down[1]);
		_exit(read_it(&counter) != 5 || write(ends[1], "w", 1) != 1);
	}
	usleep(1200 * 1000);
	must(close(counter));
	int next = counter_of(2);
	number("the next file has it", counter, next);
	must(close(ends[1]));
	CALL("its pipe is not at its end", "-1 EAGAIN", read(ends[0], &byte, 1));
	say(down[0], 'x');
	number("it has its own", 0, status_of(child));
	value_is("  and the parent the next", "2", next);
	CALL("what it has written", "1", read(ends[0], &byte, 1));
	CALL("  and then the end", "0", read(ends[0], &byte, 1));
	must(close(next));
	must(close(ends[0]));
	end_companion();
}

/* The child of a vfork(2) closes what a worker has, and gets its number again. */
static void numbers_in_vfork(void)
{
	heading("a number that a worker has, and the child of a vfork(2)");
	begin_companion();
	int counter = counter_of(5);
	pid_t child = fork();
	if (child == 0) {
		hear(down[1]);
		_exit(read_it(&counter) != 5);
	}
	pid_t vforked = vfork();
	if (vforked == 0) {
		close(counter);
		_exit(dup(0) != counter);
	}
	number("it gets the number", 0, status_of(vforked));
	must(close(counter));
	say(down[0], 'x');
	number("the worker has what stood there", 0, status_of(child));
	end_companion();
}

static void workers(void)
{
	worker("a worker", false);
	numbers_again();
	numbers_in_vfork();
	/* Its parent is to have one thread in the end: all that it may have migrates. */
	worker("a worker of one thread", true);
}

enum { MOST_WORKERS = 4 };

static void begin_idlers(pid_t *children, int count)
{
	for (int i = 0; i < count; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			hear(down[1]);
			_exit(0);
		}
	}
}

static void end_idlers(const pid_t *children, int count)
{
	for (int i = 0; i < count; i++)
		say(down[0], 'x');
	for (int i = 0; i < count; i++)
		if (status_of(children[i]) != 0)
			exit(1);
}

/* Workers that name nothing, until their parent has used everything for a while. */
static void pool(int count, bool is_left_alone)
{
	pid_t children[MOST_WORKERS];
	make_work();
	read_it(&work.counter);
	begin_companion();
	begin_idlers(children, count);
	if (is_left_alone)
		end_companion();
	for (int i = 0; i < 300; i++) {
		char byte = 'x';
		uint64_t one = 1;
		must(write(work.counter, &one, 8));
		must(write(work.pipe[1], &byte, 1));
		must(write(work.pair[0], &byte, 1));
		if (wait_in(&work.set) != 1 || read_it(&work.counter) != 1 ||
		    read(work.pipe[0], &byte, 1) != 1 || recv(work.pair[1], &byte, 1, 0) != 1)
			exit(1);
		usleep(5000);
	}
	end_idlers(children, count);
	until_no_child_can_ask(6);
}

/* For the counts: what a name asks for, if it is one. */
static bool is_pool(const char *name)
{
	struct rlimit few = { 64, 64 };
	if (strcmp(name, "pool") == 0)
		pool(2, false);
	else if (strcmp(name, "pool_left") == 0)
		pool(2, true);
	else if (strcmp(name, "pool_of_many") == 0)
		must(setrlimit(RLIMIT_NOFILE, &few)), pool(4, false);
	else
		return false;
	return true;
}

#endif
