/*
 * Sets that hold eventfds beside descriptors only the kernel knows: pipes, sockets,
 * timerfd_create(2), signalfd(2). epoll(7) makes no difference between them, and neither may starve
 * the other.
 */
#include "show.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

/* Waits with room for one event until something is known to have been passed over. */
enum { BOUND = 64 };

static int set, counter, ends[2];

static int new_set(void)
{
	return must(epoll_create1(EPOLL_CLOEXEC));
}

static void send_byte(void)
{
	must(write(ends[1], "x", 1));
}

static void take_byte(void)
{
	char byte;
	must(read(ends[0], &byte, 1));
}

static void arm(int timer, long milliseconds)
{
	struct itimerspec time = {{0, 0}, {milliseconds / 1000, milliseconds % 1000 * 1000000}};
	must(timerfd_settime(timer, 0, &time, NULL));
}

static void open_all(void)
{
	set = new_set();
	counter = must(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	kernel_pipe(ends, O_CLOEXEC | O_NONBLOCK);
}

static void close_all(void)
{
	must(close(set));
	must(close(counter));
	must(close(ends[0]));
	must(close(ends[1]));
}

static void show_both(void)
{
	heading("both kinds in one set");
	open_all();
	must(watch_new(set, counter, EPOLLIN, 'c'));
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	show("nothing", "none", ready(set));
	must(add(counter, 1));
	show("a counter", "c=IN", ready(set));
	send_byte();
	show("both", "c=IN p=IN", sorted(set, 16, 0));
	drain(counter);
	show("a pipe", "p=IN", ready(set));
	take_byte();
	show("nothing", "none", ready(set));
	must(watch_new(set, ends[1], EPOLLOUT, 'w'));
	must(watch(set, EPOLL_CTL_MOD, counter, EPOLLIN | EPOLLOUT, 'd'));
	show("writable", "d=OUT w=OUT", sorted(set, 16, 0));
	CALL("a counter twice", "-1 EEXIST", watch_new(set, counter, EPOLLIN, 'c'));
	CALL("a pipe twice", "-1 EEXIST", watch_new(set, ends[0], EPOLLIN, 'p'));
	CALL("remove the counter", "0", epoll_ctl(set, EPOLL_CTL_DEL, counter, NULL));
	show("what is left", "w=OUT", ready(set));
	CALL("remove the pipe's end", "0", epoll_ctl(set, EPOLL_CTL_DEL, ends[1], NULL));
	CALL("twice", "-1 ENOENT", epoll_ctl(set, EPOLL_CTL_DEL, ends[1], NULL));
	show("nothing", "none", ready(set));
	must(watch_new(set, counter, EPOLLIN, 'c'));
	must(close(ends[1]));
	show("the pipe hangs up", "p=HUP", ready(set));
	must(add(counter, 1));
	show("and the counter", "c=IN p=HUP", sorted(set, 16, 0));
	must(dup2(counter, ends[0])); /* closes the reading end, and its number is the counter's now */
	show("the pipe is closed", "c=IN", ready(set));
	CALL("its number is another description's", "0", watch_new(set, ends[0], EPOLLIN, 'e'));
	show("by both its descriptors", "c=IN e=IN", sorted(set, 16, 0));
	must(close(ends[0]));
	must(close(counter));
	show("all closed", "none", ready(set));
	must(close(set));
}

static void show_flags(void)
{
	heading("edge-triggered");
	open_all();
	must(watch_new(set, counter, EPOLLIN | EPOLLET, 'c'));
	must(watch_new(set, ends[0], EPOLLIN | EPOLLET, 'p'));
	for (int i = 0; i < 2; i++) {
		must(add(counter, 1));
		send_byte();
		show("both written", "c=IN p=IN", sorted(set, 16, 0));
		show("once", "none", ready(set));
	}
	must(add(counter, 1));
	show("the counter alone", "c=IN", ready(set));
	send_byte();
	show("the pipe alone", "p=IN", ready(set));
	show("once", "none", ready(set));
	must(watch(set, EPOLL_CTL_MOD, counter, EPOLLIN | EPOLLET, 'c'));
	must(watch(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET, 'p'));
	show("modified", "c=IN p=IN", sorted(set, 16, 0));

	heading("one-shot");
	must(watch(set, EPOLL_CTL_MOD, counter, EPOLLIN | EPOLLONESHOT, 'c'));
	must(watch(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 'p'));
	show("armed", "c=IN p=IN", sorted(set, 16, 0));
	must(add(counter, 1));
	send_byte();
	show("disarmed", "none", ready(set));
	must(watch(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 'p'));
	show("the pipe armed again", "p=IN", ready(set));
	must(watch(set, EPOLL_CTL_MOD, counter, EPOLLIN | EPOLLONESHOT, 'c'));
	show("the counter armed again", "c=IN", ready(set));
	show("once", "none", ready(set));
	close_all();

	heading("exclusive");
	open_all();
	must(watch_new(set, counter, EPOLLIN | EPOLLEXCLUSIVE, 'c'));
	must(watch_new(set, ends[0], EPOLLIN | EPOLLEXCLUSIVE, 'p'));
	must(add(counter, 1));
	send_byte();
	show("both", "c=IN p=IN", sorted(set, 16, 0));
	CALL("modify the counter", "-1 EINVAL", watch(set, EPOLL_CTL_MOD, counter, EPOLLIN, 'c'));
	CALL("modify the pipe", "-1 EINVAL", watch(set, EPOLL_CTL_MOD, ends[0], EPOLLIN, 'p'));
	close_all();
}

static void show_waiting(void)
{
	struct waiter waiter;
	heading("a waiter on both");
	open_all();
	must(watch_new(set, counter, EPOLLIN, 'c'));
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	for (int i = 0; i < 3; i++) {
		start_waiting(&waiter, set, 4);
		must(add(counter, 1));
		show("woken by the counter", "c=IN", what_it_saw(&waiter));
		drain(counter);
		start_waiting(&waiter, set, 4);
		send_byte();
		show("woken by the pipe", "p=IN", what_it_saw(&waiter));
		take_byte();
	}
	close_all();

	heading("a waiter that had only one kind when it went to sleep");
	open_all();
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	start_waiting(&waiter, set, 4);
	must(watch_new(set, counter, EPOLLIN, 'c'));
	number("a counter is added to pipes", 0, count_back(&waiter, 1));
	must(add(counter, 1));
	show("and fires", "c=IN", what_it_saw(&waiter));
	must(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL));
	drain(counter);
	start_waiting(&waiter, set, 4);
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	number("a pipe is added to counters", 0, count_back(&waiter, 1));
	send_byte();
	show("and fires", "p=IN", what_it_saw(&waiter));
	close_all();

	open_all();
	start_waiting(&waiter, set, 4);
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	must(watch_new(set, counter, EPOLLIN, 'c'));
	number("both are added to an empty set", 0, count_back(&waiter, 1));
	send_byte();
	show("and the pipe fires", "p=IN", what_it_saw(&waiter));
	close_all();

	open_all();
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	start_waiting(&waiter, set, 4);
	must(add(counter, 1));
	must(watch_new(set, counter, EPOLLIN, 'c'));
	show("a counter that is ready is added to pipes", "c=IN", what_it_saw(&waiter));
	close_all();

	open_all();
	must(watch_new(set, counter, EPOLLIN, 'c'));
	start_waiting(&waiter, set, 4);
	send_byte();
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	show("a pipe that is ready is added to counters", "p=IN", what_it_saw(&waiter));
	close_all();

	heading("several waiters, edge-triggered");
	struct waiter waiters[4];
	open_all();
	must(watch_new(set, counter, EPOLLIN | EPOLLET, 'c'));
	must(watch_new(set, ends[0], EPOLLIN | EPOLLET, 'p'));
	for (int i = 0; i < 4; i++)
		start_waiting(&waiters[i], set, 4);
	must(add(counter, 1));
	number("the counter wakes one", 1, count_back(waiters, 4));
	send_byte();
	number("the pipe wakes one", 2, count_back(waiters, 4));
	must(add(counter, 1));
	number("the counter wakes one", 3, count_back(waiters, 4));
	send_byte();
	number("the pipe wakes one", 4, count_back(waiters, 4));
	int counters = 0;
	for (int i = 0; i < 4; i++)
		counters += what_it_saw(&waiters[i])[0] == 'c';
	number("two saw the counter", 2, counters);
	close_all();
}

static void show_fairness(void)
{
	heading("neither kind starves the other");
	open_all();
	must(watch_new(set, counter, EPOLLIN, 'c'));
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	must(add(counter, 1));
	send_byte();
	int longest = 0, since_counter = 0, since_pipe = 0, found = 0;
	for (int i = 0; i < 4096; i++) {
		struct epoll_event event = {0};
		found += epoll_wait(set, &event, 1, i % 2 ? 0 : -1);
		since_counter = event.data.u64 == 'c' ? 0 : since_counter + 1;
		since_pipe = event.data.u64 == 'p' ? 0 : since_pipe + 1;
		if (since_counter > longest)
			longest = since_counter;
		if (since_pipe > longest)
			longest = since_pipe;
	}
	number("every wait finds one", 4096, found);
	yes("each is seen within the bound", longest <= BOUND);

	int many[8];
	for (int i = 0; i < 8; i++) {
		many[i] = must(eventfd(1, EFD_CLOEXEC));
		must(watch_new(set, many[i], EPOLLIN, 'm'));
	}
	int pipe_seen = 0;
	for (int i = 0; i < BOUND && !pipe_seen; i++) {
		struct epoll_event events[2];
		int count = must(epoll_wait(set, events, 2, 0));
		for (int j = 0; j < count; j++)
			pipe_seen |= events[j].data.u64 == 'p';
	}
	yes("a pipe among many counters is seen within the bound", pipe_seen);
	for (int i = 0; i < 8; i++)
		must(close(many[i]));
	close_all();
}

static void show_others(void)
{
	int pair[2];
	char byte;
	sigset_t signals;
	heading("sockets, timers, signals");
	open_all();
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	must(close(must(dup(pair[0]))));
	int timer = must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	must(sigprocmask(SIG_BLOCK, &signals, NULL));
	int signal_fd = must(signalfd(-1, &signals, SFD_CLOEXEC));
	must(watch_new(set, counter, EPOLLIN, 'c'));
	must(watch_new(set, pair[0], EPOLLIN | EPOLLRDHUP, 's'));
	must(watch_new(set, timer, EPOLLIN, 't'));
	must(watch_new(set, signal_fd, EPOLLIN, 'u'));
	show("nothing", "none", ready(set));
	must(add(counter, 1));
	must(write(pair[1], "x", 1));
	must(raise(SIGUSR1));
	show("all but the timer", "c=IN s=IN u=IN", sorted(set, 16, 0));
	drain(counter);
	must(read(pair[0], &byte, 1));
	struct signalfd_siginfo info;
	must(read(signal_fd, &info, sizeof info));
	number("the signal", SIGUSR1, info.ssi_signo);
	arm(timer, 1);
	show("the timer, waited for", "t=IN", ordered(set, 16, -1));
	drain(timer);
	arm(timer, 1000000);
	must(add(counter, 1));
	show("the counter comes before the timer", "c=IN", ordered(set, 16, -1));
	must(shutdown(pair[1], SHUT_WR));
	show("the socket's other side is done", "c=IN s=IN|RDHUP", sorted(set, 16, 0));
	must(close(pair[1]));
	show("and gone", "c=IN s=IN|HUP|RDHUP", sorted(set, 16, 0));
	must(close(pair[0]));
	must(close(timer));
	must(close(signal_fd));
	close_all();
}

static void show_nested(void)
{
	struct waiter waiter;
	heading("nested");
	open_all();
	int counters = new_set(), pipes = new_set();
	must(watch_new(set, counters, EPOLLIN, 'C'));
	must(watch_new(set, pipes, EPOLLIN, 'P'));
	must(watch_new(counters, counter, EPOLLIN, 'c'));
	must(watch_new(pipes, ends[0], EPOLLIN, 'p'));
	show("nothing", "none", ready(set));
	must(add(counter, 1));
	show("a set of counters", "C=IN", ready(set));
	send_byte();
	show("both", "C=IN P=IN", sorted(set, 16, 0));
	drain(counter);
	show("a set of pipes", "P=IN", ready(set));
	take_byte();
	show("nothing", "none", ready(set));
	for (int i = 0; i < 2; i++) {
		start_waiting(&waiter, set, 4);
		must(add(counter, 1));
		show("waits for a counter", "C=IN", what_it_saw(&waiter));
		drain(counter);
		start_waiting(&waiter, set, 4);
		send_byte();
		show("waits for a pipe", "P=IN", what_it_saw(&waiter));
		take_byte();
	}
	must(close(pipes));
	must(watch_new(counters, ends[0], EPOLLIN, 'p'));
	start_waiting(&waiter, set, 4);
	send_byte();
	show("a set of both, waits for the pipe", "C=IN", what_it_saw(&waiter));
	show("which is there", "p=IN", ready(counters));
	take_byte();
	start_waiting(&waiter, set, 4);
	must(add(counter, 1));
	show("waits for the counter", "C=IN", what_it_saw(&waiter));
	show("which is there", "c=IN", ready(counters));
	drain(counter);

	must(watch(set, EPOLL_CTL_MOD, counters, EPOLLIN | EPOLLET, 'E'));
	send_byte();
	show("edge-triggered above, the pipe", "E=IN", ready(set));
	show("once", "none", ready(set));
	must(add(counter, 1));
	show("edge-triggered above, the counter", "E=IN", ready(set));
	show("once", "none", ready(set));
	must(watch_new(set, ends[1], EPOLLOUT, 'w'));
	show("a pipe beside the nested set", "w=OUT", ready(set));
	must(add(counter, 1));
	show("and the nested set", "E=IN w=OUT", sorted(set, 16, 0));
	CALL("no loop through a mixed set", "-1 ELOOP", watch_new(counters, set, EPOLLIN, 'L'));
	must(close(counters));
	show("the nested set closed", "w=OUT", ready(set));
	close_all();
}

static void show_scarcity(void)
{
	struct rlimit old, tight;
	heading("with no descriptor left");
	open_all();
	must(getrlimit(RLIMIT_NOFILE, &old));
	int next = must(dup(0));
	must(close(next));
	tight = old;
	tight.rlim_cur = (rlim_t)next;
	must(setrlimit(RLIMIT_NOFILE, &tight));
	CALL("a counter is added", "0", watch_new(set, counter, EPOLLIN, 'c'));
	CALL("a pipe is added", "0", watch_new(set, ends[0], EPOLLIN, 'p'));
	must(add(counter, 1));
	send_byte();
	show("both", "c=IN p=IN", sorted(set, 16, 0));
	drain(counter);
	take_byte();
	struct waiter waiter;
	must(setrlimit(RLIMIT_NOFILE, &old)); /* to look at the waiter's state takes one */
	start_waiting(&waiter, set, 4);
	must(add(counter, 1));
	show("a wait for the counter", "c=IN", what_it_saw(&waiter));
	drain(counter);
	start_waiting(&waiter, set, 4);
	send_byte();
	show("a wait for the pipe", "p=IN", what_it_saw(&waiter));
	close_all();
}

/* ---- traffic of both kinds at once ---- */

enum { EACH = 20000 };

static void *fill_counter(void *unused)
{
	for (int i = 0; i < EACH; i++)
		must(add(counter, 1));
	return unused;
}

static void *fill_pipe(void *unused)
{
	for (int i = 0; i < EACH; i++) {
		struct pollfd room = {ends[1], POLLOUT, 0};
		while (write(ends[1], "x", 1) == -1)
			must(poll(&room, 1, -1));
	}
	return unused;
}

static void show_traffic(const char *name, uint32_t bits)
{
	struct thread writers[2];
	open_all();
	must(watch_new(set, counter, EPOLLIN | bits, 'c'));
	must(watch_new(set, ends[0], EPOLLIN | bits, 'p'));
	start(&writers[0], fill_counter, NULL);
	start(&writers[1], fill_pipe, NULL);
	long long counted = 0, bytes = 0;
	while (counted < EACH || bytes < EACH) {
		struct epoll_event event;
		char buffer[256];
		must(epoll_wait(set, &event, 1, -1));
		if (event.data.u64 == 'c') {
			counted += take(counter);
		} else {
			ssize_t got;
			while ((got = read(ends[0], buffer, sizeof buffer)) > 0)
				bytes += got;
		}
		if (bits & EPOLLONESHOT)
			must(watch(set, EPOLL_CTL_MOD, event.data.u64 == 'c' ? counter : ends[0], EPOLLIN | bits,
				   (char)event.data.u64));
	}
	finish(&writers[0]);
	finish(&writers[1]);
	number(name, EACH, counted);
	number("and bytes", EACH, bytes);
	close_all();
}

int main(void)
{
	show_both();
	show_flags();
	show_waiting();
	show_fairness();
	show_others();
	show_nested();
	show_scarcity();
	heading("traffic");
	show_traffic("level-triggered: counts", 0);
	show_traffic("edge-triggered: counts", EPOLLET);
	show_traffic("one-shot: counts", EPOLLONESHOT);
	return verdict();
}
