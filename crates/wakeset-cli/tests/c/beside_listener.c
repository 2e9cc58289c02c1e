/*
 * An eventfd and a pipe that are polled beside a listener, as by a server with a thread pool: each
 * answer is exact, whoever else waits for the listener.
 *
 *     beside_listener alone | forked | cloned | late | twice | threads | set
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 50

static int listener, counter, ends[2];
static struct sockaddr_in address = {.sin_family = AF_INET};

static void must(int condition, const char *what)
{
	if (!condition) {
		perror(what);
		exit(1);
	}
}

static int dial(void)
{
	int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* Nobody may have called listen(2) yet. */
	for (int i = 0; connect(client, (struct sockaddr *)&address, sizeof address) != 0; i++) {
		must(errno == ECONNREFUSED && i < 5000, "connect");
		usleep(1000);
	}
	return client;
}

static void make_socket(void)
{
	socklen_t size = sizeof address;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	address.sin_port = 0;
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	must(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
	must(getsockname(listener, (struct sockaddr *)&address, &size) == 0, "getsockname");
}

static void make(void)
{
	make_socket();
	must(listen(listener, 16) == 0, "listen");
	counter = eventfd(0, 0);
	must(counter >= 0 && pipe(ends) == 0, "objects");
}

static void *signal_later(void *which)
{
	uint64_t one = 1;
	usleep(300);
	switch (*(int *)which) {
	case 0:
		must(write(counter, &one, 8) == 8, "write");
		break;
	case 1:
		must(write(ends[1], "x", 1) == 1, "write");
		break;
	default:
		close(dial());
	}
	return NULL;
}

/* Takes what was found, which is `which` and nothing else. */
static void take(int which)
{
	uint64_t value;
	char byte;
	int connection;
	if (which == 0) {
		must(read(counter, &value, 8) == 8 && value == 1, "read");
	} else if (which == 1) {
		must(read(ends[0], &byte, 1) == 1 && byte == 'x', "read");
	} else {
		must((connection = accept(listener, NULL, NULL)) >= 0, "accept");
		close(connection);
	}
}

/* Waits for each in turn, ready before the call or during it, by poll and by select. */
static void serve(int rounds)
{
	for (int i = 0; i < rounds * 12; i++) {
		int which = i % 3, by_select = i / 3 % 2, before = i / 6 % 2;
		struct pollfd asked[] = {
			{counter, POLLIN, 0}, {ends[0], POLLIN, 0}, {listener, POLLIN, 0}};
		fd_set set;
		pthread_t thread;
		must(pthread_create(&thread, NULL, signal_later, &which) == 0, "pthread_create");
		if (before)
			pthread_join(thread, NULL);
		if (by_select) {
			FD_ZERO(&set);
			for (int j = 0; j < 3; j++)
				FD_SET(asked[j].fd, &set);
			must(select(asked[2].fd + asked[1].fd + 3, &set, NULL, NULL, NULL) == 1, "select");
			for (int j = 0; j < 3; j++)
				must(!FD_ISSET(asked[j].fd, &set) == (j != which), "a bit");
		} else {
			must(poll(asked, 3, 10000) == 1, "poll");
			for (int j = 0; j < 3; j++)
				must(asked[j].revents == (j == which ? POLLIN : 0), "revents");
		}
		if (!before)
			pthread_join(thread, NULL);
		take(which);
	}
	/* Nothing is left, and the time is up. */
	struct pollfd asked[] = {{counter, POLLIN, 0}, {listener, POLLIN, 0}};
	must(poll(asked, 2, 5) == 0, "a poll of nothing");
}

/* Another waiter, which takes one connection, with or without objects of its own. */
static void *wait_once(void *unused)
{
	int own = eventfd(0, 0), connection;
	struct pollfd asked[] = {{listener, POLLIN, 0}, {own, POLLIN, 0}};
	do {
		must(poll(asked, 2, 10000) == 1 && asked[0].revents == POLLIN, "poll");
		connection = accept(listener, NULL, NULL);
	} while (connection < 0);
	close(connection);
	close(own);
	return unused;
}

/* Two waiters take four connections: nobody waits for what another one has. */
static void with_threads(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_t threads[2];
		for (int j = 0; j < 2; j++)
			must(pthread_create(&threads[j], NULL, wait_once, NULL) == 0, "pthread_create");
		for (int j = 0; j < 2; j++)
			close(dial());
		for (int j = 0; j < 2; j++)
			pthread_join(threads[j], NULL);
	}
}

static pid_t by_fork(void)
{
	return fork();
}

/* Handlers of pthread_atfork(3) do not hear of it. */
static pid_t by_clone(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* Two children wait for the listener; each calls listen(2) first if that is `late`. */
static void with_children(pid_t (*begin)(void), int late)
{
	for (int i = 0; i < 5; i++) {
		pid_t children[2];
		for (int j = 0; j < 2; j++) {
			must((children[j] = begin()) >= 0, "fork");
			if (children[j] == 0) {
				must(!late || listen(listener, 16) == 0, "listen");
				wait_once(NULL);
				_exit(0);
			}
		}
		for (int j = 0; j < 2; j++)
			close(dial());
		for (int j = 0; j < 2; j++) {
			int status;
			must(waitpid(children[j], &status, 0) == children[j] && status == 0, "a child");
		}
	}
}

/* A set that watches it as well is told, and so is the poll. */
static void with_set(void)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = 5};
	int set = epoll_create1(0);
	must(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == 0, "epoll_ctl");
	for (int i = 0; i < ROUNDS; i++) {
		int client = dial();
		must(epoll_wait(set, &event, 1, 10000) == 1 && event.data.fd == 5, "epoll_wait");
		struct pollfd asked[] = {{counter, POLLIN, 0}, {listener, POLLIN, 0}};
		must(poll(asked, 2, 10000) == 1 && asked[1].revents == POLLIN, "poll");
		take(2);
		close(client);
	}
	close(set);
}

/* Whoever has the other number may wait for it, too. */
static void with_two_numbers(void)
{
	int other = dup(listener);
	serve(2);
	close(other);
}

int main(int argc, char **argv)
{
	make();
	serve(argc > 1 ? ROUNDS : 5);
	if (argc < 2 || !strcmp(argv[1], "threads"))
		with_threads();
	if (argc < 2 || !strcmp(argv[1], "forked"))
		with_children(by_fork, 0);
	if (argc < 2 || !strcmp(argv[1], "cloned"))
		with_children(by_clone, 0);
	if (argc < 2 || !strcmp(argv[1], "twice"))
		with_two_numbers();
	if (argc < 2 || !strcmp(argv[1], "set"))
		with_set();
	if (argc < 2 || !strcmp(argv[1], "late")) {
		close(listener);
		make_socket();
		with_children(by_fork, 1);
	}
	/* Another listener under the number, which nobody has waited for. */
	close(listener);
	close(counter);
	close(ends[0]);
	close(ends[1]);
	make();
	serve(5);
	puts("ok");
	return 0;
}
