/*
 * A listener under two numbers, the last number that is free, clients; and what is left to the
 * kernel.
 */
#ifndef LISTENERS_NUMBERS_H
#define LISTENERS_NUMBERS_H

#include "deed.h"
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/time.h>

/* One listener under two numbers, in one call or set: both are told of. */
static void show_twins(void)
{
	heading("two numbers of one listener");
	int listener = listen_on(AF_INET), other = listen_on(AF_UNIX),
	    twin = must(fcntl(listener, F_DUPFD_CLOEXEC, 0));
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
		CALL("ADD of the twin", "0",
		     watch_new(set, twin, EPOLLIN | (way == 2 ? EPOLLEXCLUSIVE : 0), 't'));
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
	int listener = listen_on(AF_UNIX), ends[2],
	    file = must(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
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

/*
 * A listener's number that stands for something else, once a thread has come to expect that there
 * is no more to accept.
 */
static void show_successors(void)
{
	heading("accept(2) on what was a listener");
	static const char *const names[] = {"a pair", "a pair put there", "a pipe", "datagrams",
	                                    "no listener yet"};
	static const char *const wanted[] = {"-1 EINVAL", "-1 EINVAL", "-1 ENOTSOCK", "-1 EOPNOTSUPP",
	                                     "-1 EINVAL"};
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

#endif
