/*
 * One thread that waits by poll(2) or select(2), with and without signals.
 */
#ifndef LISTENERS_CALLS_H
#define LISTENERS_CALLS_H

#include "deed.h"
#include <sys/select.h>
#include <sys/time.h>

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
	printf("bits: %#x %#x %#x\n", (unsigned)twice[0].revents, (unsigned)twice[1].revents,
	       (unsigned)twice[2].revents);
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
		/* Few numbers, and all that there are. */
		int most = (listener > ends[1] ? listener : ends[1]) + 1;
		int count = round & 4 ? pselect(most, &readable, &writable, &exceptional,
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
	/* The first numbers of the second word. */
	int high = must(fcntl(listener, F_DUPFD_CLOEXEC, 64));
	FD_ZERO(&readable);
	FD_SET(high, &readable);
	begin_deed(&deed, listener, -1, 0);
	number("of a high number", 1,
	       select(high + 1, &readable, NULL, NULL, &(struct timeval){100, 0}));
	end_deed(&deed);
	yes("its bit", FD_ISSET(high, &readable));
	yes("taken", take_one(listener));
	must(close(high));
	FD_ZERO(&readable);
	FD_SET(listener, &readable);
	CALL("negative time", "-1 EINVAL",
	     select(listener + 1, &readable, NULL, NULL, &(struct timeval){-1, 0}));
	CALL("too many nanoseconds", "-1 EINVAL",
	     pselect(listener + 1, &readable, NULL, NULL, &(struct timespec){0, 1000000000}, NULL));
	number("none below the count", 0,
	       select(listener, &readable, NULL, NULL, &(struct timeval){0, 5000}));
	FD_SET(listener, &readable);
	int closed = must(dup(listener));
	must(close(closed));
	FD_SET(closed, &readable);
	CALL("a closed one", "-1 EBADF",
	     select(FD_SETSIZE, &readable, NULL, NULL, &(struct timeval){1, 0}));
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
		for (int i = 0; i < (way == 2 ? 200 : 500); i++) {
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

#endif
