/*
 * Waits on listening sockets, alone and beside other descriptors: what select(2), poll(2), epoll(7) and accept(2) say has to
 * be the same whoever is woken for a connection.
 */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* siginterrupt */
#include "listening.h"
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>

/* They are killed and waited for. */
static void kill_workers(const pid_t *children, int n)
{
	for (int i = 0; i < n; i++) {
		must(kill(children[i], SIGKILL));
		must(waitpid(children[i], NULL, 0));
	}
}

static void close_both(const int *ends)
{
	must(close(ends[0]));
	must(close(ends[1]));
}

static int64_t milliseconds_since(int64_t begin)
{
	return (now() - begin) / 1000000;
}

/* ---- something that happens while the main thread sleeps ---- */

struct deed {
	struct thread thread;
	pid_t sleeper;
	int listener, pipe, signal;
	int client;
	int times;
};

static void *do_deed(void *argument)
{
	struct deed *deed = argument;
	for (int i = 0; i < (deed->times ? deed->times : 1); i++) {
		until_asleep(deed->sleeper);
		if (deed->pipe >= 0)
			must(write(deed->pipe, "x", 1));
		if (deed->listener >= 0)
			deed->client = connect_to(deed->listener);
		if (deed->signal)
			must((int)syscall(SYS_tgkill, getpid(), deed->sleeper, deed->signal));
	}
	return NULL;
}

static void begin_deed(struct deed *deed, int listener, int pipe, int signal)
{
	*deed = (struct deed){.sleeper = (pid_t)syscall(SYS_gettid), .listener = listener, .pipe = pipe, .signal = signal};
	start(&deed->thread, do_deed, deed);
}

static void end_deed(struct deed *deed)
{
	finish(&deed->thread);
	if (deed->client > 0)
		must(close(deed->client));
}

static const char *poll_text(const struct pollfd *fds, int count, int result)
{
	static char text[256];
	size_t used = 0;
	if (result < 0)
		return outcome(result);
	used += (size_t)snprintf(text, sizeof text, "%d:", result);
	for (int i = 0; i < count; i++) {
		char bits[64];
		name_bits(bits, sizeof bits, (uint32_t)fds[i].revents);
		used += (size_t)snprintf(text + used, sizeof text - used, " %s", *bits ? bits : "-");
	}
	return text;
}

static volatile sig_atomic_t handled;
static void on_signal(int signal)
{
	handled += signal;
}

static void handle(int signal, int flags)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
	must(sigaction(signal, &action, NULL));
}

/* ---- one thread ---- */

static void show_poll(int family)
{
	printf("-- poll(2), %s\n", family_names[family]);
	int listener = listen_on(families[family]), ends[2];
	must(pipe2(ends, O_CLOEXEC));
	struct pollfd fds[] = {{listener, POLLIN, 0}, {ends[0], POLLIN, 0}};
	struct deed deed;
	show("nothing for 20 ms", "0: - -", poll_text(fds, 2, poll(fds, 2, 20)));
	int64_t begin = now();
	poll(fds, 2, 30);
	yes("not earlier than asked", milliseconds_since(begin) >= 30);
	for (int round = 0; round < 3; round++) {
		begin_deed(&deed, listener, -1, 0);
		show("a connection", "1: IN -", poll_text(fds, 2, poll(fds, 2, -1)));
		yes("taken", take_one(listener));
		end_deed(&deed);
		begin_deed(&deed, -1, ends[1], 0);
		show("the pipe", "1: - IN", poll_text(fds, 2, poll(fds, 2, 10000)));
		end_deed(&deed);
		char byte;
		must(read(ends[0], &byte, 1));
		must(write(ends[1], "x", 1));
		int client = connect_to(listener);
		show("both", "2: IN IN", poll_text(fds, 2, poll(fds, 2, -1)));
		show("both again", "2: IN IN", poll_text(fds, 2, poll(fds, 2, -1)));
		must(read(ends[0], &byte, 1));
		yes("taken", take_one(listener));
		must(close(client));
	}
	fds[0].events = POLLIN | POLLPRI | POLLRDHUP | POLLRDNORM;
	begin_deed(&deed, listener, -1, 0);
	number("all bits asked", 1, poll(fds, 2, -1));
	printf("all bits: %#x\n", (unsigned)fds[0].revents);
	yes("taken", take_one(listener));
	end_deed(&deed);
	fds[0].events = POLLIN;
	struct pollfd twice[] = {{listener, POLLIN, 0}, {-1, POLLIN, 0}, {listener, POLLRDNORM, 0}};
	begin_deed(&deed, listener, -1, 0);
	number("named twice", 2, poll(twice, 3, -1));
	printf("bits: %#x %#x %#x\n", (unsigned)twice[0].revents, (unsigned)twice[1].revents, (unsigned)twice[2].revents);
	yes("taken", take_one(listener));
	end_deed(&deed);

	fds[1].events = 0;
	must(close(ends[1]));
	show("HUP is not asked for", "1: - HUP", poll_text(fds, 2, poll(fds, 2, -1)));
	must(close(ends[0]));
	number("a closed one", 1, poll(fds, 2, -1));
	number("is NVAL", POLLNVAL, fds[1].revents);
	must(shutdown(listener, SHUT_RD));
	number("shut down", 1, poll(fds, 1, 1000));
	printf("shut down: %#x\n", (unsigned)fds[0].revents);
	must(close(listener));
}

static void show_select(int family)
{
	printf("-- select(2), %s\n", family_names[family]);
	int listener = listen_on(families[family]), ends[2];
	must(pipe2(ends, O_CLOEXEC));
	fd_set readable, writable, exceptional;
	struct deed deed;
	char byte;
	for (int round = 0; round < 8; round++) {
		FD_ZERO(&readable);
		FD_SET(listener, &readable);
		FD_SET(ends[0], &readable);
		writable = readable;
		FD_CLR(listener, &writable);
		exceptional = readable;
		int connects = round & 1, writes = round & 2;
		begin_deed(&deed, connects ? listener : -1, writes ? ends[1] : -1, 0);
		struct timeval limit = {100, 0};
		if (!connects && !writes)
			limit = (struct timeval){0, 30000};
		int count = round & 4 ? pselect(FD_SETSIZE, &readable, &writable, &exceptional,
						&(struct timespec){limit.tv_sec, limit.tv_usec * 1000}, NULL)
				      : select(FD_SETSIZE, &readable, NULL, &exceptional, &limit);
		end_deed(&deed);
		/* Of two that come one after the other the first may end the wait. */
		number("something or nothing", connects || writes, count > 0);
		if (!(connects && writes)) {
			number("count", connects || writes, count);
			yes("the listener's bit", !FD_ISSET(listener, &readable) == !connects);
			yes("the pipe's bit", !FD_ISSET(ends[0], &readable) == !writes);
		}
		yes("no other bits", !FD_ISSET(listener, &exceptional) && !FD_ISSET(ends[0], &exceptional));
		if (!(round & 4)) {
			if (connects || writes)
				yes("time is left", limit.tv_sec == 99 && limit.tv_usec > 0);
			else
				yes("no time is left", limit.tv_sec == 0 && limit.tv_usec == 0);
		}
		if (connects)
			yes("taken", take_one(listener));
		if (writes)
			must(read(ends[0], &byte, 1));
	}
	FD_ZERO(&readable);
	FD_SET(listener, &readable);
	CALL("negative time", "-1 EINVAL", select(listener + 1, &readable, NULL, NULL, &(struct timeval){-1, 0}));
	CALL("too many nanoseconds", "-1 EINVAL",
	     pselect(listener + 1, &readable, NULL, NULL, &(struct timespec){0, 1000000000}, NULL));
	number("none below the count", 0, select(listener, &readable, NULL, NULL, &(struct timeval){0, 5000}));
	FD_SET(listener, &readable);
	int closed = must(dup(listener));
	must(close(closed));
	FD_SET(closed, &readable);
	CALL("a closed one", "-1 EBADF", select(FD_SETSIZE, &readable, NULL, NULL, &(struct timeval){1, 0}));
	yes("leaves the bits alone", FD_ISSET(listener, &readable) && FD_ISSET(closed, &readable));
	/* An end that hangs up is nothing to who asks for urgent data. */
	must(close(ends[1]));
	FD_ZERO(&readable);
	FD_ZERO(&exceptional);
	FD_SET(listener, &readable);
	FD_SET(ends[0], &exceptional);
	number("a hang-up that is not asked for", 0,
	       select(FD_SETSIZE, &readable, NULL, &exceptional, &(struct timeval){0, 20000}));
	FD_SET(listener, &readable);
	FD_SET(ends[0], &exceptional);
	begin_deed(&deed, listener, -1, 0);
	number("and a connection", 1, select(FD_SETSIZE, &readable, NULL, &exceptional, NULL));
	yes("the listener's bit", FD_ISSET(listener, &readable) && !FD_ISSET(ends[0], &exceptional));
	end_deed(&deed);
	yes("taken", take_one(listener));
	must(close(ends[0]));
	must(close(listener));
}

static void show_several(void)
{
	heading("several listeners");
	int listeners[3], ends[2];
	struct pollfd fds[4];
	must(pipe2(ends, O_CLOEXEC));
	for (int i = 0; i < 3; i++)
		fds[i] = (struct pollfd){listeners[i] = listen_on(families[i]), POLLIN, 0};
	fds[3] = (struct pollfd){ends[0], POLLIN, 0};
	for (int round = 0; round < 6; round++) {
		struct deed deed;
		begin_deed(&deed, listeners[round % 3], -1, 0);
		static const char *want[] = {"1: IN - - -", "1: - IN - -", "1: - - IN -"};
		show("one of three", want[round % 3], poll_text(fds, 4, poll(fds, 4, -1)));
		yes("taken", take_one(listeners[round % 3]));
		end_deed(&deed);
	}
	int first = connect_to(listeners[0]), second = connect_to(listeners[2]);
	show("two of three", "2: IN - IN -", poll_text(fds, 4, poll(fds, 4, -1)));
	yes("taken", take_one(listeners[0]) && take_one(listeners[2]));
	show("none", "0: - - - -", poll_text(fds, 4, poll(fds, 4, 10)));
	/* Another selection of them. */
	show("two of them", "0: - -", poll_text(fds, 2, poll(fds, 2, 10)));
	int third = connect_to(listeners[2]);
	show("the third is not asked for", "0: - -", poll_text(fds, 2, poll(fds, 2, 10)));
	show("all", "1: - - IN -", poll_text(fds, 4, poll(fds, 4, 10)));
	yes("taken", take_one(listeners[2]));
	must(close(first));
	must(close(second));
	must(close(third));
	for (int i = 0; i < 3; i++)
		must(close(listeners[i]));
	must(close(ends[0]));
	must(close(ends[1]));
}

static void show_numbers(void)
{
	heading("numbers");
	int listener = listen_on(AF_INET), other = listen_on(AF_UNIX), ends[2];
	struct pollfd fds[] = {{listener, POLLIN, 0}};
	struct deed deed;
	must(pipe2(ends, O_CLOEXEC));
	show("nothing", "0: -", poll_text(fds, 1, poll(fds, 1, 5)));
	int kept = must(fcntl(listener, F_DUPFD_CLOEXEC, 0));
	must(dup2(other, listener));
	int client = connect_to(kept);
	show("the number has another listener", "0: -", poll_text(fds, 1, poll(fds, 1, 5)));
	begin_deed(&deed, other, -1, 0);
	show("which is connected to", "1: IN", poll_text(fds, 1, poll(fds, 1, -1)));
	end_deed(&deed);
	yes("taken", take_one(other));
	must(close(listener));
	must(dup2(ends[0], listener));
	show("the number has a pipe", "0: -", poll_text(fds, 1, poll(fds, 1, 5)));
	struct pollfd both[] = {{listener, POLLIN, 0}, {kept, POLLIN, 0}};
	show("beside the old listener", "1: - IN", poll_text(both, 2, poll(both, 2, -1)));
	yes("taken", take_one(kept));
	show("nothing", "0: - -", poll_text(both, 2, poll(both, 2, 5)));
	begin_deed(&deed, -1, ends[1], 0);
	show("the pipe", "1: IN -", poll_text(both, 2, poll(both, 2, -1)));
	end_deed(&deed);
	char byte;
	must(read(listener, &byte, 1));
	/* Swapped. */
	must(dup2(kept, listener));
	must(dup2(ends[0], kept));
	show("swapped, nothing", "0: - -", poll_text(both, 2, poll(both, 2, 5)));
	begin_deed(&deed, listener, -1, 0);
	show("swapped", "1: IN -", poll_text(both, 2, poll(both, 2, -1)));
	end_deed(&deed);
	yes("taken", take_one(listener));
	/* A socket that begins to listen after it has been polled. */
	int late = must(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	fds[0].fd = late;
	number("not yet listening", 1, poll(fds, 1, 5));
	must(bind(late, (struct sockaddr *)&address, sizeof(sa_family_t)));
	must(listen(late, 5));
	show("listening", "0: -", poll_text(fds, 1, poll(fds, 1, 5)));
	begin_deed(&deed, late, -1, 0);
	show("a connection", "1: IN", poll_text(fds, 1, poll(fds, 1, -1)));
	end_deed(&deed);
	yes("taken", take_one(late));
	CALL("nothing more", "-1 EAGAIN", accept(late, NULL, NULL));
	must(close(late));
	must(close(client));
	must(close(other));
	must(close(listener));
	must(close(kept));
	must(close(ends[0]));
	must(close(ends[1]));
}

static void show_signals(void)
{
	heading("signals");
	int listener = listen_on(AF_INET);
	struct pollfd fds[] = {{listener, POLLIN, 0}};
	struct deed deed;
	sigset_t none, usr1, before;
	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
		handle(SIGUSR1, flags);
		begin_deed(&deed, -1, -1, SIGUSR1);
		CALL("poll", "-1 EINTR", poll(fds, 1, -1));
		end_deed(&deed);
		fd_set readable;
		FD_ZERO(&readable);
		FD_SET(listener, &readable);
		struct timeval limit = {100, 0};
		begin_deed(&deed, -1, -1, SIGUSR1);
		CALL("select", "-1 EINTR", select(listener + 1, &readable, NULL, NULL, &limit));
		end_deed(&deed);
		yes("the bit is left alone", FD_ISSET(listener, &readable));
		yes("time is left", limit.tv_sec == 99);
	}
	number("handled", 4 * SIGUSR1, handled);
	/* Behind a mask. */
	handled = 0;
	must(sigprocmask(SIG_BLOCK, &usr1, &before));
	must(raise(SIGUSR1));
	CALL("ppoll lets a pending signal in", "-1 EINTR", ppoll(fds, 1, NULL, &none));
	number("handled", SIGUSR1, handled);
	begin_deed(&deed, -1, -1, SIGUSR1);
	CALL("ppoll lets one in that comes", "-1 EINTR", ppoll(fds, 1, NULL, &none));
	end_deed(&deed);
	number("handled", 2 * SIGUSR1, handled);
	begin_deed(&deed, listener, -1, SIGUSR1);
	deed.pipe = -1;
	show("poll does not", "1: IN", poll_text(fds, 1, poll(fds, 1, -1)));
	end_deed(&deed);
	number("handled", 2 * SIGUSR1, handled);
	show("what is ready goes before a signal", "1: IN", poll_text(fds, 1, ppoll(fds, 1, NULL, &none)));
	number("handled", 2 * SIGUSR1, handled);
	yes("taken", take_one(listener));
	fd_set readable;
	FD_ZERO(&readable);
	FD_SET(listener, &readable);
	CALL("pselect lets it in", "-1 EINTR", pselect(listener + 1, &readable, NULL, NULL, NULL, &none));
	number("handled", 3 * SIGUSR1, handled);
	sigset_t after;
	must(sigprocmask(SIG_SETMASK, &before, &after));
	yes("the mask is as it was", sigismember(&after, SIGUSR1) == 1);
	/* A signal in a sleep that has been going on for a while. */
	handled = 0;
	pid_t child = must(fork());
	if (child == 0) {
		sleep_ms(1500);
		kill(getppid(), SIGUSR1);
		_exit(0);
	}
	CALL("after 1.5 s", "-1 EINTR", poll(fds, 1, 10000));
	must(waitpid(child, NULL, 0));
	/* Stopped and continued, which no handler sees. */
	child = must(fork());
	if (child == 0) {
		for (int i = 0; i < 3; i++) {
			sleep_ms(30);
			kill(getppid(), SIGSTOP);
			sleep_ms(30);
			kill(getppid(), SIGCONT);
		}
		_exit(0);
	}
	signal(SIGCHLD, SIG_DFL);
	int64_t begin = now();
	show("stopped and continued", "0: -", poll_text(fds, 1, poll(fds, 1, 400)));
	yes("to its end", milliseconds_since(begin) >= 400);
	must(waitpid(child, NULL, 0));
	must(close(listener));
}

static atomic_int quiet;

static void *keep_signalling(void *argument)
{
	pid_t to = *(pid_t *)argument;
	while (!atomic_load(&quiet))
		syscall(SYS_tgkill, getpid(), to, SIGUSR1);
	return NULL;
}

/* Signals that the mask of a call blocks do not end it. */
static void show_masked(void)
{
	heading("signals that a call blocks");
	int listener = listen_on(AF_INET), set = must(epoll_create1(EPOLL_CLOEXEC)), ends[2];
	struct pollfd fds[] = {{listener, POLLIN, 0}, {listener, POLLIN, 0}};
	struct epoll_event event;
	struct timespec limit = {0, 20000};
	struct thread signaller;
	pid_t me = (pid_t)syscall(SYS_gettid);
	sigset_t usr1;
	must(pipe2(ends, O_CLOEXEC));
	must(watch_new(set, listener, EPOLLIN, 'l'));
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	handle(SIGUSR1, SA_RESTART);
	atomic_store(&quiet, 0);
	start(&signaller, keep_signalling, &me);
	for (int way = 0; way < 3; way++) {
		int ended = 0;
		handled = 0;
		for (int i = 0; i < (way == 2 ? 200 : 4000); i++) {
			fd_set readable;
			FD_ZERO(&readable);
			FD_SET(listener, &readable);
			/* Another call each time, so that there is something to do before the sleep. */
			fds[1].fd = i % 2 ? ends[0] : -1;
			int found = way == 0   ? ppoll(fds, 2, &limit, &usr1)
				    : way == 1 ? pselect(listener + 1, &readable, NULL, NULL, &limit, &usr1)
					       : epoll_pwait(set, &event, 1, 1, &usr1);
			ended += found != 0;
		}
		number("calls that ended early", 0, ended);
		yes("handled between them", handled != 0);
	}
	atomic_store(&quiet, 1);
	finish(&signaller);
	handled = 0;
	must(close(ends[0]));
	must(close(ends[1]));
	must(close(set));
	must(close(listener));
}

/* ---- epoll sets ---- */

static void show_sets(int family)
{
	printf("-- epoll sets, %s\n", family_names[family]);
	int listener = listen_on(families[family]), set = must(epoll_create1(EPOLL_CLOEXEC));
	struct deed deed;
	CALL("ADD", "0", watch_new(set, listener, EPOLLIN, 'l'));
	CALL("ADD again", "-1 EEXIST", watch_new(set, listener, EPOLLIN, 'l'));
	show("nothing", "none", ordered(set, 4, 5));
	for (int round = 0; round < 3; round++) {
		begin_deed(&deed, listener, -1, 0);
		show("a connection", "l=IN", ordered(set, 4, -1));
		show("until it is taken", "l=IN", ordered(set, 4, -1));
		end_deed(&deed);
		yes("taken", take_one(listener));
		show("nothing", "none", ready(set));
	}
	CALL("MOD", "0", watch(set, EPOLL_CTL_MOD, listener, EPOLLIN, 'm'));
	int client = connect_to(listener);
	show("has new data", "m=IN", ordered(set, 4, 1000));
	CALL("MOD to nothing", "0", watch(set, EPOLL_CTL_MOD, listener, 0, 'm'));
	show("nothing", "none", ordered(set, 4, 5));
	CALL("MOD back", "0", watch(set, EPOLL_CTL_MOD, listener, EPOLLIN, 'n'));
	show("again", "n=IN", ordered(set, 4, 1000));
	CALL("MOD to EXCLUSIVE", "-1 EINVAL", watch(set, EPOLL_CTL_MOD, listener, EPOLLIN | EPOLLEXCLUSIVE, 'x'));
	show("leaves it", "n=IN", ordered(set, 4, 1000));
	CALL("MOD to edges", "0", watch(set, EPOLL_CTL_MOD, listener, EPOLLIN | EPOLLET, 'e'));
	show("one edge", "e=IN", ordered(set, 4, 1000));
	show("and no more", "none", ordered(set, 4, 5));
	int second = connect_to(listener);
	show("another", "e=IN", ordered(set, 4, 1000));
	show("and no more for a while", "none", ordered(set, 4, 2300));
	yes("taken", take_one(listener) && take_one(listener) && !take_one(listener));
	show("nothing", "none", ordered(set, 4, 5));
	begin_deed(&deed, listener, -1, 0);
	show("an edge in a sleep", "e=IN", ordered(set, 4, -1));
	end_deed(&deed);
	yes("taken", take_one(listener));
	CALL("MOD to ONESHOT", "0", watch(set, EPOLL_CTL_MOD, listener, EPOLLIN | EPOLLONESHOT, 'o'));
	int third = connect_to(listener);
	show("one report", "o=IN", ordered(set, 4, 1000));
	show("and no more", "none", ordered(set, 4, 5));
	CALL("MOD arms it again", "0", watch(set, EPOLL_CTL_MOD, listener, EPOLLIN | EPOLLONESHOT, 'p'));
	show("one more report", "p=IN", ordered(set, 4, 1000));
	yes("taken", take_one(listener));
	CALL("DEL", "0", watch(set, EPOLL_CTL_DEL, listener, 0, 0));
	CALL("DEL again", "-1 ENOENT", watch(set, EPOLL_CTL_DEL, listener, 0, 0));
	CALL("MOD", "-1 ENOENT", watch(set, EPOLL_CTL_MOD, listener, EPOLLIN, 'l'));
	CALL("ADD EXCLUSIVE", "0", watch_new(set, listener, EPOLLIN | EPOLLEXCLUSIVE, 'x'));
	CALL("MOD of it", "-1 EINVAL", watch(set, EPOLL_CTL_MOD, listener, EPOLLIN, 'x'));
	for (int round = 0; round < 2; round++) {
		begin_deed(&deed, listener, -1, 0);
		show("a connection", "x=IN", ordered(set, 4, -1));
		end_deed(&deed);
		yes("taken", take_one(listener));
	}
	CALL("MOD of it still", "-1 EINVAL", watch(set, EPOLL_CTL_MOD, listener, EPOLLIN, 'x'));
	CALL("DEL", "0", watch(set, EPOLL_CTL_DEL, listener, 0, 0));
	CALL("ADD EXCLUSIVE and ONESHOT", "-1 EINVAL",
	     watch_new(set, listener, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 'x'));
	CALL("ADD with RDHUP", "0", watch_new(set, listener, EPOLLIN | EPOLLRDHUP, 'r'));
	begin_deed(&deed, listener, -1, 0);
	show("a connection", "r=IN", ordered(set, 4, -1));
	end_deed(&deed);
	yes("taken", take_one(listener));
	CALL("DEL", "0", watch(set, EPOLL_CTL_DEL, listener, 0, 0));
	/* A number that stands for something else meanwhile. */
	CALL("ADD", "0", watch_new(set, listener, EPOLLIN, 'l'));
	int kept = must(fcntl(listener, F_DUPFD_CLOEXEC, 0)), ends[2];
	must(pipe2(ends, O_CLOEXEC));
	must(dup2(ends[0], listener));
	CALL("MOD of another file", "-1 ENOENT", watch(set, EPOLL_CTL_MOD, listener, EPOLLIN, 'q'));
	int fourth = connect_to(kept);
	show("the old file is watched", "l=IN", ordered(set, 4, 1000));
	CALL("ADD of the new one", "0", watch_new(set, listener, EPOLLIN, 'q'));
	must(write(ends[1], "x", 1));
	show("both are", "l=IN q=IN", sorted(set, 4, 1000));
	yes("taken", take_one(kept));
	show("the new one", "q=IN", ordered(set, 4, 1000));
	must(close(listener));
	must(close(ends[0]));
	must(close(ends[1]));
	must(close(client));
	must(close(second));
	must(close(third));
	must(close(fourth));
	must(close(kept));
	show("all closed", "none", ordered(set, 4, 5));
	must(close(set));
}

/* A set that a child inherits is one set for both. */
static void show_shared_set(void)
{
	heading("a set and a fork");
	int listener = listen_on(AF_INET), set = must(epoll_create1(0));
	CALL("ADD", "0", watch_new(set, listener, EPOLLIN, 'l'));
	int client = connect_to(listener);
	show("a connection", "l=IN", ordered(set, 4, 1000));
	yes("taken", take_one(listener));
	show("nothing", "none", ordered(set, 4, 5));
	pid_t child = must(fork());
	if (child == 0) {
		int fine = watch(set, EPOLL_CTL_MOD, listener, EPOLLIN, 'c') == 0 && strcmp(ordered(set, 4, 5000), "c=IN") == 0;
		_exit(fine ? take_one(listener) : 9);
	}
	sleep_ms(100);
	int second = connect_to(listener), status;
	must(waitpid(child, &status, 0));
	number("the child's", 1, WEXITSTATUS(status));
	CALL("MOD", "0", watch(set, EPOLL_CTL_MOD, listener, EPOLLIN, 'd'));
	int third = connect_to(listener);
	show("a connection", "d=IN", ordered(set, 4, 1000));
	yes("taken", take_one(listener));
	must(close(client));
	must(close(second));
	must(close(third));
	must(close(set));
	must(close(listener));
}

/* In a child: from some point on the kernel refuses every new watch, as it does when it has no memory for one. What is watched stays watched. */
static void show_no_memory(int error)
{
	printf("-- no memory: %s\n", strerrorname_np(error));
	fflush(stdout);
	pid_t child = must(fork());
	if (child) {
		int status;
		must(waitpid(child, &status, 0));
		number("ended well", 0, status);
		return;
	}
	int listener = listen_on(AF_INET), set = must(epoll_create1(EPOLL_CLOEXEC)), ends[2];
	struct pollfd fds = {listener, POLLIN, 0};
	struct deed deed;
	kernel_pipe(ends, O_CLOEXEC);
	CALL("ADD", "0", watch_new(set, listener, EPOLLIN, 'l'));
	CALL("ADD of a pipe", "0", watch_new(set, ends[0], EPOLLIN, 'p'));
	for (int round = 0; round < 6; round++) {
		begin_deed(&deed, listener, -1, 0);
		show("a connection", "l=IN", ordered(set, 4, 10000));
		end_deed(&deed);
		yes("taken", take_one(listener));
		begin_deed(&deed, listener, -1, 0);
		show("the same for poll", "1: IN", poll_text(&fds, 1, poll(&fds, 1, 10000)));
		end_deed(&deed);
		yes("taken", take_one(listener));
		if (round == 1)
			refuse(SYS_epoll_ctl, EPOLL_CTL_ADD, error);
	}
	int client = connect_to(listener);
	show("one that is there already", "l=IN", ordered(set, 4, 10000));
	show("without a sleep", "l=IN", ordered(set, 4, 0));
	must(write(ends[1], "x", 1));
	show("with something else", "l=IN p=IN", sorted(set, 4, 10000));
	yes("taken", take_one(listener));
	show("the pipe", "p=IN", ordered(set, 4, 0));
	CALL("ADD of another", error == ENOSPC ? "-1 ENOSPC" : "-1 ENOMEM", watch_new(set, ends[1], EPOLLOUT, 'q'));
	CALL("MOD", "0", watch(set, EPOLL_CTL_MOD, listener, EPOLLIN, 'm'));
	int second = connect_to(listener);
	show("has new data", "m=IN p=IN", sorted(set, 4, 10000));
	CALL("MOD to edges", "0", watch(set, EPOLL_CTL_MOD, listener, EPOLLIN | EPOLLET, 'e'));
	show("one edge", "e=IN p=IN", sorted(set, 4, 10000));
	yes("taken", take_one(listener));
	show("nothing", "p=IN", ordered(set, 4, 0));
	int third = connect_to(listener);
	show("another edge", "e=IN p=IN", sorted(set, 4, 0));
	CALL("DEL", "0", watch(set, EPOLL_CTL_DEL, listener, 0, 0));
	CALL("DEL again", "-1 ENOENT", watch(set, EPOLL_CTL_DEL, listener, 0, 0));
	show("and it is gone", "p=IN", ordered(set, 4, 0));
	must(close(client));
	must(close(second));
	must(close(third));
	exit(verdict());
}

/* ---- several waiters ---- */

enum way { SELECT, PSELECT, POLL, PPOLL, EPOLL, EDGE, EXCLUSIVE, BLOCKING, WAYS };
static const char *way_names[] = {"select",       "pselect",         "poll",           "ppoll",
				  "epoll, level", "epoll, edge", "epoll, exclusive", "accept"};

/* Waits for connections and answers them with a byte, until it has been told to stop by one with a byte of its own. */
static int serve(int listener, int control, enum way way)
{
	int served = 0, set = -1;
	if (way == EPOLL || way == EDGE || way == EXCLUSIVE) {
		set = must(epoll_create1(EPOLL_CLOEXEC));
		must(watch_new(set, listener,
			       EPOLLIN | (way == EDGE ? EPOLLET : way == EXCLUSIVE ? EPOLLEXCLUSIVE : 0), 'l'));
		must(watch_new(set, control, EPOLLIN, 'c'));
	}
	for (;;) {
		struct pollfd fds[] = {{listener, POLLIN, 0}, {control, POLLIN, 0}};
		struct epoll_event events[2];
		fd_set readable;
		FD_ZERO(&readable);
		FD_SET(listener, &readable);
		FD_SET(control, &readable);
		int most = (listener > control ? listener : control) + 1, stop = 0, count;
		switch (way) {
		case SELECT:
			must(select(most, &readable, NULL, NULL, NULL));
			stop = FD_ISSET(control, &readable);
			break;
		case PSELECT:
			must(pselect(most, &readable, NULL, NULL, NULL, NULL));
			stop = FD_ISSET(control, &readable);
			break;
		case POLL:
			must(poll(fds, 2, -1));
			stop = fds[1].revents != 0;
			break;
		case PPOLL:
			must(ppoll(fds, 2, &(struct timespec){10, 0}, NULL));
			stop = fds[1].revents != 0;
			break;
		case BLOCKING:
			break;
		default:
			count = must(epoll_wait(set, events, 2, -1));
			for (int i = 0; i < count; i++)
				stop |= events[i].data.u64 == 'c';
		}
		do {
			int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
			if (fd == -1) {
				if (errno != EAGAIN)
					must(-1);
				break;
			}
			char byte;
			if (way == BLOCKING && read(fd, &byte, 1) == 1 && byte == 'q')
				stop = 1;
			else if (write(fd, "x", 1) == 1)
				served++;
			must(close(fd));
		} while (way == EDGE);
		if (stop)
			break;
	}
	if (set >= 0)
		must(close(set));
	return served;
}

struct server {
	struct thread thread;
	int listener, control;
	enum way way;
	int served;
};

static void *serve_in_thread(void *argument)
{
	struct server *server = argument;
	server->served = serve(server->listener, server->control, server->way);
	return NULL;
}

enum { SERVERS = 4, QUESTIONS = 100 };

static void show_threads(int family, enum way way)
{
	printf("-- threads, %s, %s\n", way_names[way], family_names[family]);
	int listener = listen_on(families[family]), control[2], answered = 0, served = 0;
	struct server servers[SERVERS];
	must(pipe2(control, O_CLOEXEC));
	if (way == BLOCKING)
		must(set_blocking(listener));
	for (int i = 0; i < SERVERS; i++) {
		servers[i].listener = listener;
		servers[i].control = control[0];
		servers[i].way = way;
		start(&servers[i].thread, serve_in_thread, &servers[i]);
	}
	for (int i = 0; i < QUESTIONS; i++)
		answered += ask(listener, '?');
	for (int i = 0; way == BLOCKING && i < SERVERS; i++)
		ask(listener, 'q');
	must(write(control[1], "x", 1));
	for (int i = 0; i < SERVERS; i++) {
		finish(&servers[i].thread);
		served += servers[i].served;
	}
	number("answered", QUESTIONS, answered);
	number("served", QUESTIONS, served);
	must(close(listener));
	must(close(control[0]));
	must(close(control[1]));
}

static void show_processes(int family, enum way way, int passed)
{
	printf("-- processes, %s, %s, %s\n", way_names[way], family_names[family], passed ? "passed" : "inherited");
	int control[2], pair[2], answered = 0, served = 0, listener = -1;
	pid_t children[SERVERS];
	must(pipe2(control, O_CLOEXEC));
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	if (!passed)
		listener = listen_on(families[family]);
	for (int i = 0; i < SERVERS; i++) {
		children[i] = must(fork());
		if (children[i] == 0)
			_exit(serve(passed ? receive(pair[1]) : listener, control[0], way));
	}
	if (passed)
		listener = listen_on(families[family]);
	for (int i = 0; passed && i < SERVERS; i++)
		must(pass(pair[0], listener));
	for (int i = 0; i < QUESTIONS; i++)
		answered += ask(listener, '?');
	must(write(control[1], "x", 1));
	for (int i = 0; i < SERVERS; i++) {
		int status;
		must(waitpid(children[i], &status, 0));
		served += WEXITSTATUS(status);
	}
	number("answered", QUESTIONS, answered);
	number("served", QUESTIONS, served);
	must(close(listener));
	close_both(control);
	close_both(pair);
}

static void do_nothing(int unused)
{
	(void)unused;
}

/* Of three that wait, the one that is woken may be stopped before it accepts. Another has to get the connection, also if a signal ends
 * its waits again and again before they are long. */
static void show_stopped(enum way way, int signals)
{
	printf("-- a worker that is stopped, %s%s\n", way_names[way], signals ? ", among signals" : "");
	int listener = listen_on(AF_INET), woken[2], go[2], answered = 0;
	pid_t children[3];
	must(pipe2(woken, O_CLOEXEC));
	must(pipe2(go, O_CLOEXEC));
	for (int i = 0; i < 3; i++) {
		children[i] = must(fork());
		if (children[i])
			continue;
		struct pollfd one = {listener, POLLIN, 0};
		int set = must(epoll_create1(EPOLL_CLOEXEC));
		if (way >= EPOLL)
			must(watch_new(set, listener, EPOLLIN | (way == EDGE ? EPOLLET : 0), 'l'));
		if (signals) {
			struct sigaction action = {.sa_handler = do_nothing};
			struct itimerval often = {{0, 300000}, {0, 300000}};
			must(sigaction(SIGALRM, &action, NULL));
			must(setitimer(ITIMER_REAL, &often, NULL));
		}
		for (;;) {
			struct epoll_event event;
			int found;
			do {
				found = way >= EPOLL ? epoll_wait(set, &event, 1, -1) : poll(&one, 1, -1);
			} while (found < 0 && errno == EINTR);
			must(found);
			/* The first to come here hangs. */
			char byte;
			if (read(go[0], &byte, 1) == 1)
				for (;;)
					pause();
			int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
			if (fd >= 0) {
				while (read(fd, &byte, 1) < 0 && errno == EINTR)
					;
				must(write(fd, "x", 1));
				must(close(fd));
			}
		}
	}
	must(fcntl(go[0], F_SETFL, O_NONBLOCK));
	sleep_ms(200);
	/* Each has had one before. */
	int held[3];
	char byte = '?';
	for (int i = 0; i < 3; i++) {
		held[i] = connect_to(listener);
		sleep_ms(50);
	}
	for (int i = 0; i < 3; i++) {
		must(write(held[i], &byte, 1));
		must(read(held[i], &byte, 1));
		must(close(held[i]));
	}
	sleep_ms(50);
	must(write(go[1], "h", 1));
	int64_t begin = now(), longest = 0;
	for (int i = 0; i < 5; i++) {
		begin = now();
		answered += ask(listener, '?');
		if (now() - begin > longest)
			longest = now() - begin;
	}
	number("answered", 5, answered);
	/* A second, and patience for a busy machine. */
	yes("within the bound", longest < 1500 * 1000000LL);
	kill_workers(children, 3);
	must(close(listener));
	close_both(woken);
	close_both(go);
}

/* Answers one question; it may take a signal or two. */
static void answer_one(int listener)
{
	char byte;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return;
	must(read(fd, &byte, 1));
	must(write(fd, "x", 1));
	must(close(fd));
}

/* Workers that block in accept(2) beside one that polls, or has a set, and is stopped when it has been told of a connection: they have to
 * get it. */
static void show_stopped_beside_accept(enum way way)
{
	printf("-- workers in accept(2) beside one that is stopped, %s\n", way_names[way]);
	int listener = listen_on(AF_INET), waits[2], go[2], answered = 0;
	char byte;
	pid_t children[3];
	must(set_blocking(listener));
	must(pipe2(waits, O_CLOEXEC));
	must(pipe2(go, O_CLOEXEC | O_NONBLOCK));
	children[0] = must(fork());
	if (children[0] == 0) {
		struct pollfd one = {listener, POLLIN, 0};
		struct epoll_event event;
		int set = must(epoll_create1(EPOLL_CLOEXEC));
		if (way >= EPOLL)
			must(watch_new(set, listener, EPOLLIN | (way == EDGE ? EPOLLET : 0), 'l'));
		for (int limit = 1;; limit = -1) {
			int found = must(way >= EPOLL ? epoll_wait(set, &event, 1, limit) : poll(&one, 1, limit));
			if (limit > 0)
				must(write(waits[1], "w", 1));
			if (found && read(go[0], &byte, 1) == 1)
				raise(SIGSTOP);
			if (found)
				answer_one(listener);
		}
	}
	must(read(waits[0], &byte, 1));
	for (int i = 1; i < 3; i++) {
		children[i] = must(fork());
		while (children[i] == 0)
			answer_one(listener);
	}
	int64_t longest = 0;
	for (int i = 0; i < 12; i++) {
		/* Time for all to sleep again, so that each is woken in turn. */
		sleep_ms(50);
		if (i == 6)
			must(write(go[1], "h", 1));
		int64_t begin = now();
		answered += ask(listener, '?');
		if (now() - begin > longest)
			longest = now() - begin;
	}
	number("answered", 12, answered);
	yes("within the bound", longest < 1500 * 1000000LL);
	kill_workers(children, 3);
	must(close(listener));
	close_both(waits);
	close_both(go);
}

struct later {
	struct thread thread;
	pid_t sleeper;
	int listener, signal;
	void (*meanwhile)(int listener);
	int client;
};

static void *do_later(void *argument)
{
	struct later *later = argument;
	until_asleep(later->sleeper);
	if (later->signal)
		must((int)syscall(SYS_tgkill, getpid(), later->sleeper, later->signal));
	if (later->meanwhile)
		later->meanwhile(later->listener);
	sleep_ms(30);
	until_asleep(later->sleeper);
	later->client = connect_to(later->listener);
	return NULL;
}

static void set_nonblocking(int listener)
{
	must(fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_NONBLOCK));
}

static void set_limit(int listener)
{
	struct timeval limit = {0, 1000};
	must(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
}

static void shut(int listener)
{
	must(shutdown(listener, SHUT_RD));
}

/* accept(2) that blocks on a listener that others poll: signals, limits, flags. */
static void show_accept_beside_poll(int family)
{
	printf("-- accept(2) of a listener that is polled, too, %s\n", family_names[family]);
	int listener = listen_on(families[family]);
	struct pollfd one = {listener, POLLIN, 0};
	struct deed deed;
	must(set_blocking(listener));
	number("nothing", 0, poll(&one, 1, 1));
	begin_deed(&deed, listener, -1, 0);
	CALL_FD("a connection", "fd", accept(listener, NULL, NULL));
	end_deed(&deed);
	handle(SIGUSR1, 0);
	begin_deed(&deed, -1, -1, SIGUSR1);
	CALL("a signal", "-1 EINTR", accept(listener, NULL, NULL));
	end_deed(&deed);
	struct later later = {.sleeper = (pid_t)syscall(SYS_gettid), .listener = listener, .signal = SIGUSR1};
	for (int way = 0; way < 3; way++) {
		handled = 0;
		if (way == 0)
			handle(SIGUSR1, SA_RESTART);
		else if (way == 1)
			signal(SIGUSR1, on_signal);
		else {
			handle(SIGUSR1, 0);
			must(siginterrupt(SIGUSR1, 0));
		}
		start(&later.thread, do_later, &later);
		CALL_FD("goes on after one that restarts", "fd", accept4(listener, NULL, NULL, SOCK_CLOEXEC));
		finish(&later.thread);
		number("handled", SIGUSR1, handled);
		must(close(later.client));
	}
	must(siginterrupt(SIGUSR1, 1));
	begin_deed(&deed, -1, -1, SIGUSR1);
	CALL("siginterrupt(3)", "-1 EINTR", accept(listener, NULL, NULL));
	end_deed(&deed);
	must(siginterrupt(SIGUSR1, 0));
	later.signal = 0;
	later.meanwhile = set_nonblocking;
	start(&later.thread, do_later, &later);
	CALL_FD("O_NONBLOCK is set meanwhile", "fd", accept(listener, NULL, NULL));
	finish(&later.thread);
	must(close(later.client));
	CALL("and holds for the next", "-1 EAGAIN", accept(listener, NULL, NULL));
	must(set_blocking(listener));
	later.meanwhile = set_limit;
	start(&later.thread, do_later, &later);
	CALL_FD("a limit is set meanwhile", "fd", accept(listener, NULL, NULL));
	finish(&later.thread);
	must(close(later.client));
	int64_t begin = now();
	CALL("and holds for the next", "-1 EAGAIN", accept(listener, NULL, NULL));
	yes("soon", milliseconds_since(begin) < 900);
	struct timeval none = {0, 0};
	must(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none));
	CALL("wrong flags", "-1 EINVAL", accept4(listener, NULL, NULL, 1));
	pid_t child = must(fork());
	if (child == 0) {
		sleep_ms(100);
		shut(listener);
		_exit(0);
	}
	CALL("shut down", "-1 EINVAL", accept(listener, NULL, NULL));
	must(waitpid(child, NULL, 0));
	must(close(listener));
}

/* One listener under two numbers, in one call or set: both are told of. */
static void show_twins(void)
{
	heading("two numbers of one listener");
	int listener = listen_on(AF_INET), other = listen_on(AF_UNIX), twin = must(fcntl(listener, F_DUPFD_CLOEXEC, 0));
	struct pollfd fds[] = {{listener, POLLIN, 0}, {twin, POLLIN, 0}, {other, POLLIN, 0}};
	struct deed deed;
	for (int round = 0; round < 3; round++) {
		begin_deed(&deed, listener, -1, 0);
		show("poll", "2: IN IN -", poll_text(fds, 3, poll(fds, 3, -1)));
		end_deed(&deed);
		yes("taken", take_one(twin));
		fd_set readable;
		FD_ZERO(&readable);
		FD_SET(listener, &readable);
		FD_SET(twin, &readable);
		begin_deed(&deed, listener, -1, 0);
		number("select", 2, select(FD_SETSIZE, &readable, NULL, NULL, NULL));
		end_deed(&deed);
		yes("taken", take_one(twin));
		begin_deed(&deed, other, -1, 0);
		show("the other one", "1: - - IN", poll_text(fds, 3, poll(fds, 3, -1)));
		end_deed(&deed);
		yes("taken", take_one(other));
	}
	for (int way = 0; way < 4; way++) {
		int set = must(epoll_create1(EPOLL_CLOEXEC));
		CALL("ADD", "0", watch_new(set, listener, EPOLLIN | (way == 1 ? EPOLLET : 0), 'l'));
		show("nothing", "none", ordered(set, 4, 1));
		CALL("ADD of the twin", "0", watch_new(set, twin, EPOLLIN | (way == 2 ? EPOLLEXCLUSIVE : 0), 't'));
		CALL("ADD of another", "0", watch_new(set, other, EPOLLIN, 'o'));
		if (way == 3) {
			CALL("MOD", "0", watch(set, EPOLL_CTL_MOD, listener, EPOLLIN, 'l'));
			CALL("MOD of the twin", "0", watch(set, EPOLL_CTL_MOD, twin, EPOLLIN, 't'));
		}
		for (int round = 0; round < 3; round++) {
			begin_deed(&deed, listener, -1, 0);
			show("a connection", way == 2 ? "l=IN t=IN" : "t=IN l=IN", ordered(set, 4, -1));
			end_deed(&deed);
			yes("taken", take_one(twin));
			begin_deed(&deed, other, -1, 0);
			show("the other one", "o=IN", ordered(set, 4, -1));
			end_deed(&deed);
			yes("taken", take_one(other));
		}
		CALL("DEL", "0", watch(set, EPOLL_CTL_DEL, listener, 0, 0));
		begin_deed(&deed, listener, -1, 0);
		show("the twin alone", "t=IN", ordered(set, 4, -1));
		end_deed(&deed);
		yes("taken", take_one(twin));
		must(close(set));
	}
	must(close(twin));
	show("alone again", "0: -", poll_text(fds, 1, poll(fds, 1, 5)));
	begin_deed(&deed, listener, -1, 0);
	show("alone again", "1: IN", poll_text(fds, 1, poll(fds, 1, -1)));
	end_deed(&deed);
	yes("taken", take_one(listener));
	must(close(other));
	must(close(listener));
}

/* A listener that becomes a client. */
static void show_client(void)
{
	heading("a listener that becomes a client");
	int listener = listen_on(AF_INET), server = listen_on(AF_INET);
	struct pollfd one = {listener, POLLIN | POLLRDHUP, 0};
	struct sockaddr_in address;
	socklen_t length = sizeof address;
	for (int way = 0; way < 2; way++) {
		show("nothing", "0: -", poll_text(&one, 1, poll(&one, 1, 5)));
		struct sockaddr none = {.sa_family = AF_UNSPEC};
		must(connect(listener, &none, sizeof none));
		must(getsockname(server, (struct sockaddr *)&address, &length));
		must(set_blocking(listener));
		if (way)
			must((int)syscall(SYS_connect, listener, &address, sizeof address));
		else
			must(connect(listener, (struct sockaddr *)&address, sizeof address));
		int accepted = must(accept(server, NULL, NULL));
		show("nothing", "0: -", poll_text(&one, 1, poll(&one, 1, 5)));
		must(shutdown(accepted, SHUT_WR));
		show("its peer has shut down", "1: IN|RDHUP", poll_text(&one, 1, poll(&one, 1, 1000)));
		must(close(accepted));
		/* And back again. */
		must(connect(listener, &none, sizeof none));
		must(listen(listener, 5));
	}
	must(close(server));
	must(close(listener));
}

/* The last number that the limit allows is for the connection. */
static void show_last_number(int before)
{
	printf("-- the last number, %s\n", before ? "polled before" : "not polled before");
	pid_t child = must(fork());
	if (child == 0) {
		int listener = listen_on(AF_UNIX), client = must(socket(AF_UNIX, SOCK_STREAM, 0)), last = -1;
		struct pollfd one = {listener, POLLIN, 0};
		struct rlimit limit;
		if (before)
			must(poll(&one, 1, 1));
		must(getrlimit(RLIMIT_NOFILE, &limit));
		limit.rlim_cur = 64;
		must(setrlimit(RLIMIT_NOFILE, &limit));
		for (int fd; (fd = fcntl(listener, F_DUPFD_CLOEXEC, 0)) >= 0;)
			last = fd;
		must(close(last));
		struct sockaddr_un address;
		socklen_t length = sizeof address;
		must(getsockname(listener, (struct sockaddr *)&address, &length));
		for (int round = 0; round < 3; round++) {
			show("nothing", "0: -", poll_text(&one, 1, poll(&one, 1, 5)));
			must(connect(client, (struct sockaddr *)&address, length));
			show("a connection", "1: IN", poll_text(&one, 1, poll(&one, 1, -1)));
			CALL_FD("gets the last number", "fd", accept(listener, NULL, NULL));
			/* Another client under the same number. */
			must(close(client));
			client = must(socket(AF_UNIX, SOCK_STREAM, 0));
		}
		must(connect(client, (struct sockaddr *)&address, length));
		must(fcntl(listener, F_DUPFD_CLOEXEC, 0));
		show("a connection", "1: IN", poll_text(&one, 1, poll(&one, 1, -1)));
		CALL("there is none", "-1 EMFILE", accept(listener, NULL, NULL));
		CALL("there is none", "-1 EMFILE", accept4(listener, NULL, NULL, SOCK_CLOEXEC));
		exit(verdict());
	}
	int status;
	must(waitpid(child, &status, 0));
	number("status", 0, status);
}

/* ---- what is left to the kernel ---- */

static void show_left(void)
{
	heading("what is left to the kernel");
	int listener = listen_on(AF_UNIX), ends[2], file = must(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
	struct deed deed;
	must(pipe2(ends, O_CLOEXEC));
	struct pollfd fds[80] = {{listener, POLLIN | POLLOUT, 0}};
	show("a listener is never written to", "0: -", poll_text(fds, 1, poll(fds, 1, 5)));
	begin_deed(&deed, listener, -1, 0);
	show("but read", "1: IN", poll_text(fds, 1, poll(fds, 1, -1)));
	end_deed(&deed);
	yes("taken", take_one(listener));
	fds[0].events = POLLIN;
	fds[1] = (struct pollfd){file, POLLIN, 0};
	show("a file is always ready", "1: - IN", poll_text(fds, 2, poll(fds, 2, -1)));
	fds[1].events = POLLPRI;
	show("but not with urgent data", "0: - -", poll_text(fds, 2, poll(fds, 2, 10)));
	begin_deed(&deed, listener, -1, 0);
	show("beside a file", "1: IN -", poll_text(fds, 2, poll(fds, 2, -1)));
	end_deed(&deed);
	yes("taken", take_one(listener));
	for (int i = 1; i < 80; i++)
		fds[i] = (struct pollfd){must(fcntl(ends[0], F_DUPFD_CLOEXEC, 0)), POLLIN, 0};
	number("eighty, nothing", 0, poll(fds, 80, 10));
	begin_deed(&deed, listener, -1, 0);
	number("eighty, a connection", 1, poll(fds, 80, -1));
	end_deed(&deed);
	yes("taken", take_one(listener));
	begin_deed(&deed, -1, ends[1], 0);
	number("eighty, the pipe", 79, poll(fds, 80, -1));
	end_deed(&deed);
	char byte;
	must(read(ends[0], &byte, 1));
	for (int i = 1; i < 80; i++)
		must(close(fds[i].fd));
	/* A set in a set. */
	int inner = must(epoll_create1(EPOLL_CLOEXEC)), outer = must(epoll_create1(EPOLL_CLOEXEC));
	must(watch_new(inner, listener, EPOLLIN, 'l'));
	must(watch_new(outer, inner, EPOLLIN, 'i'));
	for (int round = 0; round < 2; round++) {
		begin_deed(&deed, listener, -1, 0);
		show("a set in a set", "i=IN", ordered(outer, 4, -1));
		show("the inner one", "l=IN", ordered(inner, 4, -1));
		end_deed(&deed);
		yes("taken", take_one(listener));
		show("nothing", "none", ready(outer));
	}
	struct pollfd one = {inner, POLLIN, 0};
	begin_deed(&deed, listener, -1, 0);
	show("a set that is polled", "1: IN", poll_text(&one, 1, poll(&one, 1, -1)));
	end_deed(&deed);
	yes("taken", take_one(listener));
	CALL("MOD in it", "0", watch(inner, EPOLL_CTL_MOD, listener, EPOLLIN, 'm'));
	must(close(inner));
	must(close(outer));
	/* A child that shares our memory. */
	one = (struct pollfd){listener, POLLIN, 0};
	show("nothing", "0: -", poll_text(&one, 1, poll(&one, 1, 5)));
	int client = connect_to(listener);
	pid_t child = vfork();
	if (child == 0)
		_exit(poll(&one, 1, 1000));
	int status;
	must(waitpid(child, &status, 0));
	number("a child by vfork", 1, WEXITSTATUS(status));
	yes("taken", take_one(listener));
	begin_deed(&deed, listener, -1, 0);
	show("and its parent", "1: IN", poll_text(&one, 1, poll(&one, 1, -1)));
	end_deed(&deed);
	yes("taken", take_one(listener));
	must(close(client));
	must(close(ends[0]));
	must(close(ends[1]));
	must(close(file));
	must(close(listener));
}

/* accept(2) that finds nothing, often enough to be expected. */
static void show_accepts(void)
{
	heading("accept(2)");
	int listener = listen_on(AF_INET);
	struct pollfd one = {listener, POLLIN, 0};
	for (int round = 0; round < 6; round++) {
		int client = connect_to(listener);
		show("a connection", "1: IN", poll_text(&one, 1, poll(&one, 1, -1)));
		CALL_FD("taken", "fd", accept(listener, NULL, NULL));
		CALL("no more", "-1 EAGAIN", accept4(listener, NULL, NULL, SOCK_NONBLOCK));
		CALL("no more", "-1 EAGAIN", accept(listener, NULL, NULL));
		must(close(client));
	}
	for (int round = 0; round < 6; round++) {
		int first = connect_to(listener), second = connect_to(listener);
		show("two", "1: IN", poll_text(&one, 1, poll(&one, 1, -1)));
		CALL_FD("taken", "fd", accept(listener, NULL, NULL));
		CALL_FD("taken", "fd", accept(listener, NULL, NULL));
		CALL("no more", "-1 EAGAIN", accept(listener, NULL, NULL));
		must(close(first));
		must(close(second));
	}
	/* What a wait has reported is gone when it is to be taken, often enough to be expected. */
	int other = must(fcntl(listener, F_DUPFD_CLOEXEC, 0));
	for (int round = 0; round < 12; round++) {
		int client = connect_to(listener);
		show("a connection", "1: IN", poll_text(&one, 1, poll(&one, 1, -1)));
		if (round % 4 != 3)
			CALL_FD("taken by another", "fd", accept(other, NULL, NULL));
		if (round % 4 == 3)
			CALL_FD("taken", "fd", accept(listener, NULL, NULL));
		else
			CALL("is gone", "-1 EAGAIN", accept(listener, NULL, NULL));
		must(close(client));
	}
	int client = connect_to(listener);
	number("and a last", 1, poll(&one, 1, -1));
	CALL_FD("taken", "fd", accept(listener, NULL, NULL));
	CALL("wrong flags", "-1 EINVAL", accept4(listener, NULL, NULL, 1));
	/* It blocks from now on, with a limit. */
	must(set_blocking(listener));
	struct timeval limit = {0, 50000};
	must(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	int second = connect_to(listener);
	CALL_FD("taken", "fd", accept(listener, NULL, NULL));
	int64_t begin = now();
	CALL("no more", "-1 EAGAIN", accept(listener, NULL, NULL));
	yes("after a while", milliseconds_since(begin) >= 50);
	int third = connect_to(listener);
	show("one more", "1: IN", poll_text(&one, 1, poll(&one, 1, -1)));
	CALL_FD("taken by another", "fd", accept(other, NULL, NULL));
	begin = now();
	CALL("is gone", "-1 EAGAIN", accept(listener, NULL, NULL));
	yes("after a while", milliseconds_since(begin) >= 50);
	must(close(third));
	must(close(other));
	must(close(client));
	must(close(second));
	must(close(listener));
	CALL("closed", "-1 EBADF", accept(listener, NULL, NULL));
}

/* A listener's number that stands for something else, once a thread has come to expect that there is no more to accept. */
static void show_successors(void)
{
	heading("accept(2) on what was a listener");
	static const char *const names[] = {"a pair", "a pair put there", "a pipe", "datagrams", "no listener yet"};
	static const char *const wanted[] = {"-1 EINVAL", "-1 EINVAL", "-1 ENOTSOCK", "-1 EOPNOTSUPP", "-1 EINVAL"};
	for (int way = 0; way < 5; way++) {
		int listener = listen_on(AF_INET), ends[2] = {-1, -1};
		for (int round = 0; round < 40; round++) {
			int client = connect_to(listener);
			must(poll(&(struct pollfd){listener, POLLIN, 0}, 1, -1));
			close(must(accept(listener, NULL, NULL)));
			if (round < 39 && accept(listener, NULL, NULL) != -1)
				show("no more", "-1", "a connection");
			must(close(client));
		}
		/* The last round has left it on its way back. */
		if (way != 1)
			must(close(listener));
		if (way < 2)
			must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends));
		else if (way == 2)
			must(pipe2(ends, O_NONBLOCK));
		else
			ends[0] = must(socket(AF_INET, (way == 3 ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK, 0));
		if (way == 1)
			must(dup2(ends[0], listener));
		else
			yes("the same number", ends[0] == listener);
		CALL(names[way], wanted[way], accept(listener, NULL, NULL));
		if (way == 1)
			must(close(listener));
		must(close(ends[0]));
		if (way < 3)
			must(close(ends[1]));
	}
}

/* With an argument it does not stop itself: a supervisor would stop with it. With "threads" it shows those and nothing else. */
int main(int count, char **arguments)
{
	signal(SIGPIPE, SIG_IGN);
	if (count > 1 && strcmp(arguments[1], "threads") == 0) {
		show_threads(0, POLL);
		show_threads(0, EPOLL);
		return verdict();
	}
	for (int family = 0; family < 3; family++) {
		show_poll(family);
		show_select(family);
		show_sets(family);
	}
	show_several();
	show_numbers();
	show_masked();
	if (count == 1)
		show_signals();
	show_shared_set();
	show_no_memory(ENOSPC);
	show_no_memory(ENOMEM);
	show_twins();
	show_client();
	show_last_number(0);
	show_last_number(1);
	show_left();
	show_accepts();
	show_successors();
	for (int family = 0; family < 3; family++)
		for (int way = 0; way < WAYS; way++) {
			show_threads(family, way);
			if (way != BLOCKING) {
				show_processes(family, way, 0);
				show_processes(family, way, 1);
			}
		}
	for (int signals = 0; signals < 2; signals++) {
		show_stopped(POLL, signals);
		show_stopped(EPOLL, signals);
		show_stopped(EDGE, signals);
	}
	show_stopped_beside_accept(POLL);
	show_stopped_beside_accept(EPOLL);
	show_stopped_beside_accept(EDGE);
	for (int family = 0; family < 3; family++)
		show_accept_beside_poll(family);
	return verdict();
}
