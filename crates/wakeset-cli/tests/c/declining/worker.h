/*
 * A worker that accepts, or declines in one of several ways.
 */
#ifndef DECLINING_WORKER_H
#define DECLINING_WORKER_H

#include "../listening.h"
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>

enum way { SELECT, POLL, EPOLL, EDGE, EXCLUSIVE, EXCLUSIVE_EDGE, WAYS };
static const char *const way_names[] = {"select",     "poll",             "epoll, level",
					"epoll, edge", "epoll, exclusive", "epoll, exclusive, edge"};

/*
 * What a worker does instead of accept(2): it waits again as before; without the listener; with a
 * watch for nothing; with another call for something else; it only looks at something else, and
 * sleeps; it calls accept(2), which finds no number left. Or it closes the listener; or the process
 * ends, or executes a program; or the thread ends. Or it does nothing any more.
 */
enum how {
	AGAIN, DROPS, DISARMS, ELSEWHERE, LOOKS, FULL, HOWS, CLOSES = HOWS,
	ENDS, FIRST_END = ENDS, ENDS_AT_ONCE, ENDS_BY_NUMBER, ENDS_QUICKLY, IS_ENDED, EXECS,
	LAST_END = EXECS,
	RETURNS, FIRST_THREADS_END = RETURNS, LEAVES, LEAVES_BY_NUMBER,
	LAST_THREADS_END = LEAVES_BY_NUMBER,
	STAYS, ACCEPTS
};
static const char *const how_names[] = {
	"waits again", "drops it", "disarms it", "waits elsewhere", "looks elsewhere",
	"has no number left", "closes it", "ends by exit", "ends by _exit", "ends by exit_group",
	"ends by quick_exit", "is ended by another thread", "executes a program", "returns",
	"ends by pthread_exit", "ends by the system call"};

/* How long a worker leaves the listener alone. */
enum { PAUSE_MS = 150 };

/* What the workers count together. */
struct counts {
	atomic_int told, ready;
	atomic_int declines;
	/* The thread that a signal ends. */
	atomic_int victim, victims_process;
};
static struct counts *counts;

struct worker {
	enum way way;
	enum how how;
	int listener, other;
	/* After a pause it accepts what it has declined. */
	int later;
	/* It takes and closes numbers that are none of its business. */
	int takes;
	int set;
};

static uint32_t events_of(enum way way)
{
	return EPOLLIN | (way == EDGE || way == EXCLUSIVE_EDGE ? EPOLLET : 0) |
	       (way == EXCLUSIVE || way == EXCLUSIVE_EDGE ? EPOLLEXCLUSIVE : 0);
}

static int is_possible(int way, int how)
{
	return how != DISARMS || way == EPOLL || way == EDGE;
}

/* Waits for this listener, -1 for none, and for something that never comes. Whether it is ready. */
static int wait_for(const struct worker *worker, int listener, int limit)
{
	struct pollfd fds[] = {{worker->other, POLLIN, 0}, {listener, POLLIN, 0}};
	struct timeval time = {limit / 1000, limit % 1000 * 1000};
	struct epoll_event event;
	fd_set readable;
	switch (worker->way) {
	case SELECT:
		FD_ZERO(&readable);
		FD_SET(worker->other, &readable);
		if (listener >= 0)
			FD_SET(listener, &readable);
		must(select((listener > worker->other ? listener : worker->other) + 1, &readable, NULL, NULL,
			    limit < 0 ? NULL : &time));
		return listener >= 0 && FD_ISSET(listener, &readable);
	case POLL:
		must(poll(fds, 2, limit));
		return fds[1].revents != 0;
	default:
		return must(epoll_wait(worker->set, &event, 1, limit)) > 0;
	}
}

static void *end_process(void *unused)
{
	(void)unused;
	_exit(0);
}

static void end_from_another_thread(void)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, end_process, NULL) != 0)
		must(-1);
	sleep_ms(60000);
}

/* The process or thread ends; with RETURNS when this has returned. */
static void end_with(enum how how)
{
	switch (how) {
	case ENDS:
		exit(0);
	case ENDS_AT_ONCE:
		_exit(0);
	case ENDS_BY_NUMBER:
		syscall(SYS_exit_group, 0);
		break;
	case ENDS_QUICKLY:
		quick_exit(0);
	case IS_ENDED:
		end_from_another_thread();
		break;
	case EXECS:
		execl("/bin/true", "true", NULL);
		must(-1);
		break;
	case LEAVES:
		pthread_exit(NULL);
	case LEAVES_BY_NUMBER:
		syscall(SYS_exit, 0);
		break;
	default:
		break;
	}
}

static void pause_with(const struct worker *worker)
{
	int listener = worker->listener;
	switch (worker->how) {
	case DROPS:
	case FULL:
		if (worker->set >= 0)
			must(watch(worker->set, EPOLL_CTL_DEL, listener, 0, 0));
		wait_for(worker, -1, PAUSE_MS);
		if (worker->set >= 0)
			must(watch_new(worker->set, listener, events_of(worker->way), 'l'));
		break;
	case DISARMS:
		must(watch(worker->set, EPOLL_CTL_MOD, listener, 0, 'l'));
		wait_for(worker, -1, PAUSE_MS);
		must(watch(worker->set, EPOLL_CTL_MOD, listener, events_of(worker->way), 'l'));
		break;
	case ELSEWHERE: {
		struct pollfd one = {worker->other, POLLIN, 0};
		must(poll(&one, 1, PAUSE_MS));
		break;
	}
	case LOOKS: {
		struct pollfd one = {worker->other, POLLIN, 0};
		must(poll(&one, 1, 0));
		sleep_ms(PAUSE_MS);
		break;
	}
	case CLOSES:
		must(close(listener));
		sleep_ms(60000);
		break;
	case STAYS:
		sleep_ms(60000);
		break;
	default:
		end_with(worker->how);
	}
}

/* Takes one and answers it; whether there was one. */
static int answer(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return 0;
	if (write(fd, "x", 1) < 0 && errno != EPIPE && errno != ECONNRESET)
		must(-1);
	must(close(fd));
	return 1;
}

/* accept(2) without a number for the connection. */
static void accept_in_vain(int listener)
{
	struct rlimit limit, none;
	must(getrlimit(RLIMIT_NOFILE, &limit));
	none = limit;
	none.rlim_cur = 3;
	must(setrlimit(RLIMIT_NOFILE, &none));
	int fd = accept(listener, NULL, NULL);
	if (fd >= 0 || (errno != EMFILE && errno != EAGAIN))
		must(-1);
	must(setrlimit(RLIMIT_NOFILE, &limit));
}

static void work(struct worker worker)
{
	worker.set = -1;
	if (worker.way >= EPOLL) {
		worker.set = must(epoll_create1(EPOLL_CLOEXEC));
		must(watch_new(worker.set, worker.other, EPOLLIN, 'o'));
		must(watch_new(worker.set, worker.listener, events_of(worker.way), 'l'));
	}
	if (worker.takes) {
		wait_for(&worker, worker.listener, 1);
		for (int fd = 400; fd < 440; fd++)
			must(dup2(worker.other, fd));
		closefrom(300);
	}
	atomic_fetch_add(&counts->ready, 1);
	for (int declined = 0;;) {
		if (!wait_for(&worker, worker.listener, -1))
			continue;
		atomic_fetch_add(&counts->told, 1);
		if (worker.how == ACCEPTS || (worker.later && declined)) {
			while (answer(worker.listener) && (events_of(worker.way) & EPOLLET))
				;
			declined = 0;
			continue;
		}
		declined = 1;
		atomic_fetch_add(&counts->declines, 1);
		if (worker.how == FULL)
			accept_in_vain(worker.listener);
		pause_with(&worker);
		if (worker.how == RETURNS)
			return;
	}
}

#endif
