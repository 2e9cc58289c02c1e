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

static void workers(void)
{
	worker("a worker", false);
	numbers_again();
	/* Its parent is to have one thread in the end: all that it may have migrates. */
	worker("a worker of one thread", true);
}

/* Two workers that name nothing, until their parent has used everything for a while. */
static void pool(void)
{
	make_work();
	read_it(&work.counter);
	pid_t children[2];
	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			hear(down[1]);
			_exit(0);
		}
	}
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
	for (int i = 0; i < 2; i++)
		say(down[0], 'x');
	for (int i = 0; i < 2; i++)
		if (status_of(children[i]) != 0)
			exit(1);
	until_no_child_can_ask(6);
}

#endif
