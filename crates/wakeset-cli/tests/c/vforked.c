/*
 * What a vfork(2) child does with what its parent has, between the call and its exec: to the kernel
 * both have one description, whatever either does with its numbers. Each child also runs as one of
 * clone(2) with CLONE_VM and CLONE_VFORK.
 *
 * "vforked take NUMBER" is what children execute: it reads 8 bytes from a descriptor that it has
 * inherited, and exits with the first of them, or with 99 if there is no such descriptor.
 * "vforked stay" has children that leave everything alone, and prints nothing.
 */
#include "forked/acts.h"

static bool by_clone;

/* Runs `act` in a child, and returns its exit status. */
static int in_child(int (*act)(void *), void *argument)
{
	static char stack[256 << 10] __attribute__((aligned(16)));
	pid_t child;
	if (by_clone) {
		child = clone(act, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, argument);
	} else {
		child = vfork();
		if (child == 0)
			_exit(act(argument));
	}
	return status_of(child);
}

/* ---- what a child does ---- */

/* ---- what becomes of it ---- */

static void counters(void)
{
	heading("an eventfd");
	static const struct {
		const char *name;
		int (*act)(void *);
		int status;
		const char *left;
	} cases[] = {
		{ "nothing", nothing, 7, "5" },
		{ "write", write_three, 0, "8" },
		{ "read", read_it, 5, "-1 EAGAIN" },
		{ "keep it open", keep_open, 5, "-1 EAGAIN" },
		{ "keep it open, by ioctl", keep_open_by_ioctl, 5, "-1 EAGAIN" },
		{ "keep a duplicate", keep_a_duplicate, 5, "-1 EAGAIN" },
		{ "keep it over another number", keep_over_another, 5, "-1 EAGAIN" },
		{ "execute another program", leave_it, 99, "5" },
		{ "close everything", close_all, 0, "5" },
		{ "put another file there", use_number, 0, "5" },
		{ "poll", poll_it, 1, "5" },
		{ "a child of its own writes", has_a_child, 0, "11" },
		{ "a forked child of its own writes", forks, 0, "11" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int counter = counter_of(5), set = set_with(counter, EPOLLIN | EPOLLET);
		reports("the set before", "1", set);
		number(cases[i].name, cases[i].status, in_child(cases[i].act, &counter));
		value_is("  the value", cases[i].left, counter);
		uint64_t one = 1;
		must(write(counter, &one, 8));
		reports("  the set hears of the parent's", "1", set);
		must(close(set));
		must(close(counter));
	}
	int counter = must(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	number("make it block", 0, in_child(make_it_block, &counter));
	number("  it does", 0, fcntl(counter, F_GETFL) & O_NONBLOCK);
	must(fcntl(counter, F_SETFL, O_NONBLOCK));
	value_is("  and not any more", "-1 EAGAIN", counter);
	must(close(counter));
	counter = must(eventfd(6, EFD_NONBLOCK));
	number("inherited without a word", 6, in_child(leave_it, &counter));
	value_is("  the value", "-1 EAGAIN", counter);
	must(close(counter));
}

static void sets(void)
{
	heading("a set");
	int counter = counter_of(0), set = set_with(counter, EPOLLIN);
	number("wait, for nothing", 0, in_child(wait_in, &set));
	uint64_t one = 1;
	must(write(counter, &one, 8));
	number("wait, for something", 1, in_child(wait_in, &set));
	reports("  the parent's wait", "1", set);
	int other = counter_of(1);
	watched = &other;
	number("watch another of the parent's", 0, in_child(watch_another, &set));
	value_is("  the first one", "1", counter);
	reports("  the parent's wait", "1", set);
	value_is("  the other one", "1", other);
	reports("  the parent's wait", "0", set);
	must(close(other));
	must(close(counter));
	must(close(set));
}

static void timers(void)
{
	heading("a timer");
	int timer = must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)), set = set_with(timer, EPOLLIN);
	struct itimerspec now;
	number("set it", 0, in_child(set_timer, &timer));
	struct epoll_event event;
	CALL("  the parent's wait", "1", epoll_wait(set, &event, 1, 10000));
	must(timerfd_gettime(timer, &now));
	number("  what is left", 0, now.it_value.tv_nsec);
	value_is("  how often", "1", timer);
	must(close(set));
	must(close(timer));
}

static void pipes(void)
{
	heading("a pipe");
	int ends[2];
	char bytes[8] = "";
	must(pipe2(ends, O_CLOEXEC | O_NONBLOCK));
	CALL("write", "3", write(ends[1], "abc", 3));
	number("read as a program", 'a', in_child(keep_open, &ends[0]));
	CALL("  what is left", "-1 EAGAIN", read(ends[0], bytes, 8));
	must(close(ends[0]));
	must(close(ends[1]));
}

/* ---- while there is a child ---- */

static atomic_int go_on, has_begun;

static int wait_until_told(void *unused)
{
	(void)unused;
	atomic_store(&has_begun, 1);
	while (!atomic_load(&go_on))
		usleep(1000);
	return 0;
}

static void *with_a_child(void *unused)
{
	in_child(wait_until_told, unused);
	return NULL;
}

static pthread_t begin_a_child(void)
{
	pthread_t thread;
	atomic_store(&go_on, 0);
	atomic_store(&has_begun, 0);
	must_be_zero(pthread_create(&thread, NULL, with_a_child, NULL));
	while (!atomic_load(&has_begun))
		usleep(1000);
	return thread;
}

static void end_it(pthread_t child)
{
	atomic_store(&go_on, 1);
	must_be_zero(pthread_join(child, NULL));
}

static void closes_beside_a_child(void)
{
	heading("what the parent closes while a child has it, too");
	int counter = counter_of(1), set = set_with(counter, EPOLLIN), ends[2];
	char byte;
	must(pipe2(ends, O_CLOEXEC | O_NONBLOCK));
	pthread_t child = begin_a_child();
	must(close(counter));
	reports("an eventfd is still reported", "1", set);
	must(close(ends[1]));
	CALL("a pipe is still written to", "-1 EAGAIN", read(ends[0], &byte, 1));
	int made = counter_of(4);
	value_is("made beside it", "4", made);
	end_it(child);
	reports("the eventfd is no more", "0", set);
	CALL("the pipe is at its end", "0", read(ends[0], &byte, 1));
	must(close(made));
	must(close(ends[0]));
	must(close(set));
}

static void closed_before_a_child(void)
{
	heading("closed before a child, and unread");
	int end = end_with_unread();
	pthread_t child = begin_a_child();
	hears_of_the_close(end);
	end_it(child);
}

/* Every count is exact beside children that leave it alone, that name it, and that are killed. */
static uint64_t children_beside_traffic(int act)
{
	uint64_t by_children = 0;
	for (int i = 0; i < 100; i++) {
		if (i % 10 == 9 && act == 1)
			by_children += 3 * !in_child(write_three, &traffic);
		else if (act == 2)
			by_children += 3 * !in_child(has_a_child, &traffic) * 2;
		else
			in_child(nothing, &traffic);
	}
	return by_children;
}

/* Objects of all kinds, beside children that end, close everything or execute another program. */
static void stay(void)
{
	static int (*const acts[])(void *) = { nothing, close_all, leave_it };
	int counter = counter_of(0), timer = must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)), ends[2];
	int set = set_with(counter, EPOLLIN);
	char byte;
	must(pipe2(ends, O_CLOEXEC));
	for (int i = 0; i < 30; i++) {
		by_clone = i % 2;
		in_child(acts[i % 3], &counter);
		uint64_t one = 1;
		must(write(counter, &one, 8));
		must(write(ends[1], "x", 1));
		if (wait_in(&set) != 1 || read_it(&counter) != 1 || read(ends[0], &byte, 1) != 1)
			exit(1);
	}
	must(close(timer));
}

int main(int count, char **arguments)
{
	uint64_t value = 0;
	if (count == 3)
		return read(atoi(arguments[2]), &value, 8) > 0 ? (int)(value & 0xff) : 99;
	if (count == 2 && strcmp(arguments[1], "stay") == 0) {
		stay();
		return 0;
	}
	for (int i = 0; i < 2; i++, by_clone = true) {
		heading(i ? "by clone" : "by vfork");
		counters();
		sets();
		timers();
		pipes();
		closes_beside_a_child();
		closed_before_a_child();
		under_traffic_of(3, children_beside_traffic);
	}
	return verdict();
}
