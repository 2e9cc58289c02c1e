/*
 * Several threads or processes that wait for the same listener.
 */
#ifndef LISTENERS_WAITERS_H
#define LISTENERS_WAITERS_H

#include "deed.h"
#include <sys/select.h>
#include <sys/time.h>

enum way { SELECT, PSELECT, POLL, PPOLL, EPOLL, EDGE, EXCLUSIVE, BLOCKING, WAYS };
static const char *way_names[] = {"select",       "pselect",         "poll",           "ppoll",
				  "epoll, level", "epoll, edge", "epoll, exclusive", "accept"};

/*
 * Waits for connections and answers them with a byte, until it has been told to stop by one with a
 * byte of its own.
 */
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
	/* A thread that begins late would find all questions answered. */
	for (int i = 0; i < SERVERS; i++)
		until_asleep(servers[i].thread.id);
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
	printf("-- processes, %s, %s, %s\n", way_names[way], family_names[family],
	       passed ? "passed" : "inherited");
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

/*
 * Of three that wait, the one that is woken may be stopped before it accepts. Another has to get
 * the connection, also if a signal ends its waits again and again before they are long.
 */
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

/*
 * Workers that block in accept(2) beside one that polls, or has a set, and is stopped when it has
 * been told of a connection: they have to get it.
 */
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
	struct later later = {.sleeper = (pid_t)syscall(SYS_gettid), .listener = listener,
	                      .signal = SIGUSR1};
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

#endif
