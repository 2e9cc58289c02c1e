/*
 * Descriptors that are closed, or almost, while something still goes on with them. By close(2),
 * calls that block on a descriptor go on when another thread closes it; what its number stands for
 * afterwards is none of their business.
 *
 * What each case would catch:
 *   a set closed under a waiter       a waiter, or a migration, that goes by the number and
 *                                     interferes with the set that has it now
 *   jumps out of blocking calls       a call left by siglongjmp(3) that keeps the object from
 *                                     ending at its close, or a pipe's end open after it
 *   dup2 that fails                   a counter given up for a dup2(2) that then does nothing
 *   fork after a close under a reader a fork that waits for ever for the counter, which no number
 *                                     stands for, to migrate
 *   the same, of a set in a set       a fork that waits for ever for the set around, which watches
 *                                     what no number stands for
 */
#include "show.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

static int new_set(void)
{
	return must(epoll_create1(EPOLL_CLOEXEC));
}

static int new_counter(unsigned value, int flags)
{
	return must(eventfd(value, EFD_CLOEXEC | flags));
}

/* ---- a set closed under a waiter ---- */

/*
 * What the waiter sees is its own affair: the kernel reports what its set watches, and so it may be
 * either way.
 */
static void *wait_a_while(void *set)
{
	struct epoll_event event;
	epoll_wait(*(int *)set, &event, 1, 120);
	return NULL;
}

static void show_foreign_source(void)
{
	struct thread waiter;
	int ends[2], set = new_set(), fd = new_counter(0, EFD_NONBLOCK);
	heading("a set closed under a waiter: what it watched moves");
	must(pipe2(ends, O_CLOEXEC));
	must(watch_new(set, fd, EPOLLIN, 'a'));
	int old = set;
	start(&waiter, wait_a_while, &old);
	until_asleep(waiter.id);
	must(close(set));
	set = new_set();
	number("a new set has its number", 0, set - old);
	must(watch_new(set, ends[0], EPOLLIN, 'b'));
	must(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0));
	must(add(fd, 1));
	show("the new set, with nothing of its own", "none", sorted(set, 16, 50));
	must(write(ends[1], "x", 1));
	show("and with something", "b=IN", sorted(set, 16, 1000));
	finish(&waiter);
	must(close(fd));
	must(close(set));
	must(close(ends[0]));
	must(close(ends[1]));
}

static void show_stolen_event(void)
{
	int lost = 0;
	heading("a set closed under a waiter: the waiter is woken");
	for (int round = 0; round < 10; round++) {
		struct thread waiter;
		int mine[2], its[2], set = new_set(), fd = new_counter(0, EFD_NONBLOCK), old = set;
		must(pipe2(mine, O_CLOEXEC));
		must(pipe2(its, O_CLOEXEC));
		must(watch_new(set, fd, EPOLLIN, 'a'));
		must(watch_new(set, its[0], EPOLLIN, 'b'));
		start(&waiter, wait_a_while, &old);
		until_asleep(waiter.id);
		must(close(set));
		set = new_set();
		must(watch_new(set, mine[0], EPOLLIN | EPOLLET, 'c'));
		for (int i = 0; i < 60; i++) {
			if (i == 30)
				must(write(mine[1], "x", 1));
			must(add(fd, 1));
			take(fd);
			usleep(500);
		}
		lost += strcmp(sorted(set, 16, 50), "c=IN") != 0;
		finish(&waiter);
		must(close(fd));
		must(close(set));
		for (int i = 0; i < 2; i++) {
			must(close(mine[i]));
			must(close(its[i]));
		}
	}
	number("edges of the new set that went to the old waiter", 0, lost);
}

/* ---- jumps out of blocking calls ---- */

static sigjmp_buf back;

static void jump(int signal_number)
{
	(void)signal_number;
	siglongjmp(back, 1);
}

static void jump_soon(void)
{
	struct itimerval soon = {.it_value.tv_usec = 50000};
	must(setitimer(ITIMER_REAL, &soon, NULL));
}

static void show_jumps(void)
{
	/* Static, for they are to outlast the jumps. */
	static int set, fd, ends[2];
	char byte;
	struct epoll_event event;
	struct sigaction action = {.sa_handler = jump};
	must(sigaction(SIGALRM, &action, NULL));

	heading("jumps out of blocking calls");
	set = new_set();
	fd = new_counter(0, 0);
	must(watch_new(set, fd, EPOLLIN, 'a'));
	if (sigsetjmp(back, 1) == 0) {
		jump_soon();
		take(fd);
		printf("read came back\n");
	}
	must(add(fd, 1));
	show("written to, after a jump out of read", "a=IN", ready(set));
	must(close(fd));
	show("closed", "none", ready(set));
	must(close(set));

	set = new_set();
	fd = new_counter(0, EFD_NONBLOCK);
	must(watch_new(set, fd, EPOLLIN, 'b'));
	if (sigsetjmp(back, 1) == 0) {
		jump_soon();
		epoll_wait(set, &event, 1, -1);
		printf("epoll_wait came back\n");
	}
	must(close(set));
	set = new_set();
	must(add(fd, 1));
	must(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0));
	show("a set that watches nothing, after a jump out of epoll_wait", "none", sorted(set, 16, 20));
	must(close(set));
	must(close(fd));

	must(pipe2(ends, O_CLOEXEC));
	if (sigsetjmp(back, 1) == 0) {
		jump_soon();
		must(read(ends[0], &byte, 1));
		printf("read came back\n");
	}
	/* Nothing keeps the end open for a read that is over. */
	must(close(ends[0]));
	signal(SIGPIPE, SIG_IGN);
	CALL("a write, the reader gone after a jump", "-1 EPIPE", write(ends[1], "x", 1));
	must(close(ends[1]));
	signal(SIGALRM, SIG_DFL);
}

/* ---- dup2 that fails ---- */

static void show_failing_dup2(void)
{
	struct rlimit limit, low;
	int set = new_set(), fd = new_counter(7, EFD_NONBLOCK);
	heading("dup2 that fails");
	must(watch_new(set, fd, EPOLLIN, 'a'));
	must(getrlimit(RLIMIT_NOFILE, &limit));
	low = limit;
	low.rlim_cur = (rlim_t)fd;
	must(setrlimit(RLIMIT_NOFILE, &low));
	CALL("dup2 to a number beyond the limit", "-1 EBADF", dup2(0, fd));
	CALL("dup3", "-1 EBADF", dup3(0, fd, O_CLOEXEC));
	must(setrlimit(RLIMIT_NOFILE, &limit));
	show("it is watched as before", "a=IN", ready(set));
	number("and holds what it held", 7, take(fd));
	must(close(fd));
	must(close(set));
}

/* ---- fork after a close under a reader ---- */

static void *read_for_good(void *fd)
{
	take(*(int *)fd);
	return NULL;
}

static void fork_a_child(void)
{
	int status = -1;
	/* Ends the program if fork does not. */
	alarm(10);
	pid_t child = must(fork());
	if (child == 0)
		_exit(5);
	must(waitpid(child, &status, 0));
	number("the child's status", 5, WEXITSTATUS(status));
	alarm(0);
}

static void show_fork(void)
{
	static struct thread reader;
	static int fd;
	int set = new_set();
	heading("fork after a close under a reader");
	fd = new_counter(0, 0);
	must(watch_new(set, fd, EPOLLIN, 'a'));
	start(&reader, read_for_good, &fd);
	until_asleep(reader.id);
	must(close(fd));
	fork_a_child();
}

static void *wait_for_good(void *set)
{
	struct epoll_event event;
	epoll_wait(*(int *)set, &event, 1, -1);
	return NULL;
}

static void show_fork_around(void)
{
	static struct thread waiter;
	static int set;
	int outer = new_set();
	heading("fork after a close under a waiter, of a set in a set");
	set = new_set();
	must(watch_new(outer, set, EPOLLIN, 's'));
	start(&waiter, wait_for_good, &set);
	until_asleep(waiter.id);
	must(close(set));
	fork_a_child();
	must(close(outer));
}

int main(void)
{
	show_foreign_source();
	show_stolen_event();
	show_jumps();
	show_failing_dup2();
	/* Last: their threads stay. */
	show_fork();
	show_fork_around();
	return verdict();
}
