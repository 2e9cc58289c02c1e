/*
 * What a fork(2) child does with what it has from its parent, and the parent meanwhile: both have
 * one description, whatever either does with its numbers. The parent has a second thread, but for
 * "forked alone" and "forked beside", and its children leave most of it alone.
 *
 * "forked take NUMBER" is what children execute: it reads 8 bytes from a descriptor that it has
 * inherited, and exits with the first of them, or with 99 if there is no such descriptor.
 * "forked stay" and "forked stay_alone" have children that leave everything alone, and print
 * nothing; "forked workers" has some that outlive any deadline, "forked beside" several at once,
 * and "forked pool" and the like some that name nothing, for its counts.
 */
#include "forked/children.h"
#include "forked/beside.h"

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
		{ "put another file over it", put_a_file_over, 0, "5" },
		{ "put another file over it, in vain", put_a_file_over_in_vain, 0, "8" },
		{ "make its own", make_its_own, 0, "-1 EAGAIN" },
		{ "poll", poll_it, 1, "5" },
		{ "a child of its own writes", has_a_child, 0, "11" },
		{ "a forked child of its own writes", forks, 0, "11" },
		{ "a forked child of its own does nothing", forks_without_a_word, 0, "8" },
		{ "threads of its own write", has_threads, 0, "17" },
		{ "it is killed", is_killed, 1000 + SIGKILL, "8" },
		{ "its exec fails", failing_exec, 0, "8" },
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
	/* One of two numbers. */
	counter = counter_of(5);
	int copy = must(dup(counter));
	number("write by a further number", 0, in_child(write_three, &copy));
	value_is("  the value", "8", counter);
	number("read by the first", 99, in_child(read_it, &counter));
	must(close(counter));
	must(close(copy));
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
	must(close(set));
	set = set_with(counter, EPOLLIN);
	int other = counter_of(1);
	watched = &other;
	number("watch another of the parent's", 0, in_child(watch_another, &set));
	value_is("  the first one", "1", counter);
	reports("  the parent's wait", "1", set);
	value_is("  the other one", "1", other);
	reports("  the parent's wait", "0", set);
	must(close(set));
	set = set_with(counter, EPOLLIN);
	watched = &counter;
	must(write(counter, &one, 8));
	number("watch no more", 0, in_child(watch_no_more, &set));
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

static int read_a_byte(void *fd)
{
	char byte = 99;
	return read(*(int *)fd, &byte, 1) == 1 ? byte : 99;
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
	must(pipe2(ends, O_CLOEXEC));
	CALL("write", "3", write(ends[1], "abc", 3));
	number("read a byte", 'a', in_child(read_a_byte, &ends[0]));
	CALL("  what is left", "2", read(ends[0], bytes, 8));
	/* How a parent learns of an exec. */
	pid_t child = fork();
	if (child == 0)
		_exit(leave_it(&ends[1]));
	must(close(ends[1]));
	CALL("the end, at the exec", "0", read(ends[0], bytes, 1));
	number("  ", 99, status_of(child));
	must(close(ends[0]));
}

static int send_done(void *fd)
{
	return (int)send(*(int *)fd, "done", 4, 0);
}

static int receive(void *fd)
{
	char bytes[8] = "";
	return recv(*(int *)fd, bytes, 8, MSG_DONTWAIT) > 0 ? bytes[0] : 99;
}

static int send_message(void *fd)
{
	struct iovec part = {"mm", 2};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	return (int)sendmsg(*(int *)fd, &message, 0);
}

static int shut(void *fd)
{
	return shutdown(*(int *)fd, SHUT_WR);
}

/* The calls of sockets alone. */
static void pairs(void)
{
	heading("a pair of sockets");
	static const struct {
		const char *name;
		int (*act)(void *);
		int made, left;
	} acts[] = {{"send", send_done, 4, 4}, {"recv", receive, 'p', -1}, {"sendmsg", send_message, 2, 2},
		    {"shutdown", shut, 0, 0}};
	for (unsigned i = 0; i < sizeof acts / sizeof *acts; i++) {
		int ends[2];
		char bytes[8];
		must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
		must(send(ends[0], "p", 1, 0));
		if (acts[i].act != receive)
			must(recv(ends[1], bytes, 8, 0));
		number(acts[i].name, acts[i].made, in_child(acts[i].act, &ends[1]));
		number("  the parent receives", acts[i].left, recv(ends[0], bytes, 8, MSG_DONTWAIT));
		must(close(ends[0]));
		must(close(ends[1]));
	}
}

/* A child lives that was forked after the close, before the other end is the kernel's. */
static void closed_before_a_child(void)
{
	heading("closed before a child, and unread");
	int end = end_with_unread();
	pid_t child = fork();
	if (child == 0) {
		hear(down[1]);
		_exit(0);
	}
	hears_of_the_close(end);
	say(down[0], 'x');
	number("the child", 0, status_of(child));
}

/* ---- while there is a child ---- */

static void beside_a_child(void)
{
	heading("beside a child that has it, too");
	int counter = counter_of(1), set = set_with(counter, EPOLLIN), ends[2], other = counter_of(0);
	char byte;
	must(pipe2(ends, O_CLOEXEC | O_NONBLOCK));
	pid_t child = fork();
	if (child == 0) {
		hear(down[1]);
		_exit(write_three(&other) || read_it(&other) != 5);
	}
	must(close(counter));
	reports("a closed eventfd is still reported", "1", set);
	must(close(ends[1]));
	CALL("a pipe is still written to", "-1 EAGAIN", read(ends[0], &byte, 1));
	int made = counter_of(4);
	value_is("made beside it", "4", made);
	uint64_t two = 2;
	must(write(other, &two, 8));
	say(down[0], 'x');
	number("what the parent has written arrives", 0, status_of(child));
	reports("the eventfd is no more", "0", set);
	CALL("the pipe is at its end", "0", read(ends[0], &byte, 1));
	must(close(made));
	must(close(ends[0]));
	must(close(set));
	must(close(other));
}

static int is_open(void *fd)
{
	return fcntl(*(int *)fd, F_GETFD) != -1;
}

/* What is found out about children that end takes no number: neither from the parent, nor from
 * those that it forks meanwhile. */
static void numbers_beside_an_end(void)
{
	heading("numbers, when children end");
	int counter = counter_of(1), lowest = must(open("/dev/null", O_RDONLY | O_CLOEXEC));
	must(close(lowest));
	int taken = 0, left = 0;
	for (int i = 0; i < 100; i++) {
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		/* It ends, and nobody has waited for it, so that there is something to find out. */
		for (int look = 0; look < i % 2 * 2000; look++)
			taken += is_open(&lowest);
		for (int more = 0; more < 3; more++)
			left += in_child(is_open, &lowest);
		must(waitpid(child, NULL, 0));
	}
	number("the lowest number is free", 0, taken);
	number("  and in further children", 0, left);
	must(close(counter));
}

static int threads(void)
{
	return entries_of("/proc/self/task", NULL);
}

/* What concerns a process with all its threads. */
static void changes_beside_a_child(void)
{
	heading("what a process may do, while it has a child");
	for (int way = 0; way < 3; way++) {
		int counter = counter_of(2);
		pid_t child = fork();
		if (child == 0) {
			hear(down[1]);
			_exit(write_three(&counter) || read_it(&counter) != 5);
		}
		if (way == 0)
			number("setgid", 0, setgid(getgid()));
		else if (way == 1)
			number("unshare", 0, unshare(0));
		else
			CALL("setns", "-1 EBADF", setns(-1, 0));
		number("  its threads", 2, threads());
		say(down[0], 'x');
		number("  the child", 0, status_of(child));
		value_is("  the value", "-1 EAGAIN", counter);
		must(close(counter));
	}
}

/* Each hears the other, in turn. */
static void in_turn(void)
{
	heading("parent and child in turn");
	int there = must(eventfd(0, EFD_CLOEXEC)), back = must(eventfd(0, EFD_CLOEXEC));
	int set = set_with(back, EPOLLIN);
	pid_t child = fork();
	uint64_t value = 1;
	int sum = 0;
	if (child == 0) {
		for (int i = 0; i < 100; i++) {
			must(read(there, &value, 8));
			value++;
			must(write(back, &value, 8));
		}
		_exit(0);
	}
	for (int i = 0; i < 100; i++) {
		struct epoll_event event;
		value = 1;
		must(write(there, &value, 8));
		if (epoll_wait(set, &event, 1, 10000) != 1)
			must(-1);
		must(read(back, &value, 8));
		sum += (int)value;
	}
	number("the sum", 200, sum);
	number("the child", 0, status_of(child));
	must(close(set));
	must(close(there));
	must(close(back));
}

/* A child whose parent ends, in this way or that, before it names anything. */
static void parent_first(void)
{
	heading("a parent that ends first");
	static const char *const ways[] = { "exit", "_exit", "exec" };
	for (int way = 0; way < 3; way++) {
		pid_t middle = fork();
		if (middle == 0) {
			int counter = counter_of(4);
			pthread_t thread;
			must_be_zero(pthread_create(&thread, NULL, sleep_on, NULL));
			uint64_t one = 1;
			must(write(counter, &one, 8));
			pid_t child = fork();
			if (child == 0) {
				hear(down[1]);
				say(up[1], (char)read_it(&counter));
				_exit(0);
			}
			if (way == 0)
				exit(0);
			if (way == 1)
				_exit(0);
			execl("/bin/true", "true", NULL);
		}
		number(ways[way], 0, status_of(middle));
		say(down[0], 'x');
		char got = 0;
		must(read(up[0], &got, 1));
		number("  what it has left", 5, got);
	}
}

/* Every count is exact beside children that leave it alone, that name it, and that are killed. */
static uint64_t children_beside_traffic(int act)
{
	uint64_t by_children = 0;
	for (int i = 0; i < 60; i++) {
		if (i % 10 == 9 && act == 1)
			by_children += 3 * !in_child(write_three, &traffic);
		else if (i % 10 == 9 && act == 2)
			by_children += 3 * !in_child(forks, &traffic) * 2;
		else if (i % 10 == 9 && act == 3)
			by_children += 3 * (in_child(is_killed, &traffic) == 1000 + SIGKILL);
		else
			in_child(nothing, &traffic);
	}
	return by_children;
}

/* Objects of all kinds, beside children that end, close everything or execute another program. */
static void stay(void)
{
	static int (*const acts[])(void *) = { nothing, close_all, leave_it, put_a_file_over };
	int counter = counter_of(0), timer = must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)), ends[2];
	int set = set_with(counter, EPOLLIN);
	char byte;
	must(pipe2(ends, O_CLOEXEC));
	/* With one thread not too many, all of which are waited for. */
	int children = threads() > 1 ? 30 : 12;
	for (int i = 0; i < children; i++) {
		in_child(acts[i % 4], &counter);
		uint64_t one = 1;
		must(write(counter, &one, 8));
		must(write(ends[1], "x", 1));
		if (wait_in(&set) != 1 || read_it(&counter) != 1 || read(ends[0], &byte, 1) != 1)
			exit(1);
	}
	/* Until it is noticed that the last child is no more. */
	while (entries_of("/proc/self/fd", "socket:") > 0)
		usleep(1000);
	must(close(timer));
}

#include "forked/workers.h"

int main(int count, char **arguments)
{
	uint64_t value = 0;
	if (count == 3)
		return read(atoi(arguments[2]), &value, 8) > 0 ? (int)(value & 0xff) : 99;
	if (count == 2 && strcmp(arguments[1], "stay_alone") == 0) {
		stay();
		return threads() != 1;
	}
	const bool alone = count == 2 && strcmp(arguments[1], "alone") == 0;
	const bool beside = count == 2 && strcmp(arguments[1], "beside") == 0;
	const bool at_work = count == 2 && strcmp(arguments[1], "workers") == 0;
	if (count == 2 && strncmp(arguments[1], "pool", 4) == 0) {
		make_conversation();
		return !is_pool(arguments[1]);
	}
	pthread_t thread;
	if (!alone && !beside && !at_work)
		must_be_zero(pthread_create(&thread, NULL, sleep_on, NULL));
	if (count == 2 && strcmp(arguments[1], "stay") == 0) {
		stay();
		return 0;
	}
	make_conversation();
	if (at_work) {
		workers();
		return verdict();
	}
	if (beside) {
		beside_each_other();
		return verdict();
	}
	if (alone)
		slow_child();
	counters();
	sets();
	timers();
	pipes();
	pairs();
	closed_before_a_child();
	beside_a_child();
	few_numbers();
	if (alone)
		return verdict();
	last_thread();
	numbers_beside_an_end();
	in_turn();
	parent_first();
	under_traffic_of(4, children_beside_traffic);
	/* After setns(2) nothing stays any more. */
	changes_beside_a_child();
	return verdict();
}
