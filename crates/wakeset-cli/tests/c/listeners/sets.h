/*
 * Listeners in epoll sets.
 */
#ifndef LISTENERS_SETS_H
#define LISTENERS_SETS_H

#include "deed.h"

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
	CALL("MOD to EXCLUSIVE", "-1 EINVAL",
	     watch(set, EPOLL_CTL_MOD, listener, EPOLLIN | EPOLLEXCLUSIVE, 'x'));
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
		int fine = watch(set, EPOLL_CTL_MOD, listener, EPOLLIN, 'c') == 0 &&
		    strcmp(ordered(set, 4, 5000), "c=IN") == 0;
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

/*
 * In a child: from some point on the kernel refuses every new watch, as it does when it has no
 * memory for one. What is watched stays watched.
 */
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
	CALL("ADD of another", error == ENOSPC ? "-1 ENOSPC" : "-1 ENOMEM",
	     watch_new(set, ends[1], EPOLLOUT, 'q'));
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

/*
 * A thread that has come to know that it accepts until there is nothing left is not back for one
 * more when a set tells it of a connection. In a child: looks at the listener fail from some point
 * on, and what says that there is nothing is believed.
 */
static void show_told_again(void)
{
	int status;
	heading("connections of which a set tells one by one");
	pid_t child = must(fork());
	if (child == 0) {
		int listener = listen_on(AF_INET), set = must(epoll_create1(EPOLL_CLOEXEC));
		must(watch_new(set, listener, EPOLLIN, 'l'));
		for (int round = 0; round < 4; round++) {
			connect_to(listener);
			show("a connection", "l=IN", ordered(set, 4, 1000));
			yes("is all there is", take_one(listener) && !take_one(listener));
		}
		connect_to(listener);
		connect_to(listener);
		show("two", "l=IN", ordered(set, 4, 1000));
		yes("one is taken", take_one(listener));
		show("the other", "l=IN", ordered(set, 4, 1000));
		refuse(SYS_ppoll, -1, ENOMEM);
		yes("is taken, too", take_one(listener));
		_exit(verdict());
	}
	must(waitpid(child, &status, 0));
	number("the child's end", 0, status);
}

#endif
