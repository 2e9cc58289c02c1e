/*
 * One worker of storm.c: the objects it uses, the signals it is sent, and what it counts.
 */
#ifndef STORM_WORKER_H
#define STORM_WORKER_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { WORKERS = 4, SMALLEST = 1, KINDS = 6, COROUTINE = 16384, ALTERNATE = 16384 };

/* What the supervisor sees; of one victim. */
struct worker {
	/* Written by the sender, and by the worker's handlers. */
	_Atomic uint64_t sent[KINDS], handled[KINDS];
	/* Faults of the worker's own. */
	_Atomic uint64_t faults_made, faults_handled;
	_Atomic int faulting;
	/* Writes to what the supervisor shares: begun, and done. */
	_Atomic uint64_t begun, done;
	_Atomic int ready, over;
};

struct shared {
	struct worker workers[WORKERS];
	/* What all workers of a victim share. */
	_Atomic uint64_t added, taken;
	_Atomic int stop;
	/* What went wrong, and what was found and expected there. */
	_Atomic int failed;
	char what[96];
	long long found, expected;
};

static struct shared *shared;
static int supervisors, common;

static void fail(const char *what, long long found, long long expected)
{
	if (!atomic_exchange(&shared->failed, 1)) {
		snprintf(shared->what, sizeof shared->what, "%s", what);
		shared->found = found;
		shared->expected = expected;
	}
	_exit(3);
}

static void expect(const char *what, long long found, long long expected)
{
	if (found != expected)
		fail(what, found, expected);
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

/* ---- signals ---- */

/* Those that are queued, with a number each, come first; of the others there is one at a time. */
enum { QUEUED = 2, SEGV = 2 };

static int signal_of(int kind)
{
	const int numbers[KINDS] = {SIGRTMIN, SIGRTMIN + 1, SIGSEGV, SIGALRM, SIGUSR1, SIGBUS};
	return numbers[kind];
}

static _Thread_local struct worker *self;
static _Thread_local sigjmp_buf after_fault;
/* The counter that handlers write to, and how much they and the worker have written. */
static _Thread_local volatile int own_counter, own_set;
static _Thread_local _Atomic uint64_t own_written;

static void handle(int number, siginfo_t *info, void *context)
{
	int saved = errno, kind = 0;
	uint64_t one = 1;
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 'o'};
	(void)context;
	if (number == SIGSEGV && info->si_code > 0) {
		self->faults_handled++;
		siglongjmp(after_fault, 1);
	}
	while (signal_of(kind) != number)
		kind++;
	uint64_t handled = self->handled[kind] + 1;
	if (kind < QUEUED)
		expect("the number of a queued signal", info->si_value.sival_int, (int)handled);
	/* Also while the call that was interrupted is about the same objects. */
	own_written++;
	if (write(own_counter, &one, 8) != 8)
		fail("a handler's write", errno, 0);
	epoll_ctl(own_set, EPOLL_CTL_MOD, own_counter, &event);
	self->handled[kind] = handled;
	errno = saved;
}

/*
 * Every second kind runs on the alternate stack, where the thread has one. Handlers of SIGUSR1 can
 * be interrupted, and no others: where a frame of a handler takes 3,376 bytes (AVX-512), the
 * smallest stack has room for two, plain too (and has_room in storm.c has what that leaves). Nor
 * has it room for the loader beside two, which saves all registers when it looks a function up: the
 * program is linked with -z now.
 */
static void register_handlers(void)
{
	for (int kind = 0; kind < KINDS; kind++) {
		struct sigaction action = {.sa_sigaction = handle,
		    .sa_flags = SA_SIGINFO | SA_RESTART | (kind % 2 ? SA_ONSTACK : 0)};
		if (signal_of(kind) != SIGUSR1)
			sigfillset(&action.sa_mask);
		if (sigaction(signal_of(kind), &action, NULL) != 0)
			fail("a sigaction", errno, kind);
	}
}

/* ---- a load of all kinds of objects ---- */

struct objects {
	int set, outer, counter, timer, lines[2], pair[2];
	uint64_t own_read;
};

static int made(int fd)
{
	if (fd < 0)
		fail("a descriptor", errno, 0);
	return fd;
}

static void watch(int set, int fd, unsigned events, uint64_t data)
{
	struct epoll_event event = {.events = events, .data.u64 = data};
	if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0)
		fail("a watch", errno, (long long)data);
}

static void make_objects(struct objects *objects)
{
	sigset_t all, before;
	sigfillset(&all);
	/* Handlers use these two. */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	objects->set = own_set = made(epoll_create1(EPOLL_CLOEXEC));
	objects->counter = own_counter = made(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	own_written = objects->own_read = 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	objects->outer = made(epoll_create1(EPOLL_CLOEXEC));
	objects->timer = made(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
	made(pipe2(objects->lines, O_CLOEXEC | O_NONBLOCK));
	made(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, objects->pair));
	watch(objects->set, objects->counter, EPOLLIN, 'o');
	watch(objects->set, objects->timer, EPOLLIN | EPOLLET, 't');
	watch(objects->set, objects->lines[0], EPOLLIN, 'l');
	watch(objects->set, objects->pair[0], EPOLLIN | EPOLLET, 'p');
	watch(objects->set, common, EPOLLIN | EPOLLEXCLUSIVE, 'c');
	watch(objects->outer, objects->set, EPOLLIN, 's');
}

static void drain(struct objects *objects)
{
	uint64_t value;
	while (read(objects->counter, &value, 8) == 8)
		objects->own_read += value;
}

static void close_objects(struct objects *objects)
{
	const int fds[] = {objects->outer, objects->timer, objects->lines[0], objects->lines[1],
	    objects->pair[0], objects->pair[1], objects->set, objects->counter};
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	drain(objects);
	expect("what was read of what was written", (long long)objects->own_read,
	       (long long)own_written);
	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
		expect("a close", close(fds[i]), 0);
	make_objects(objects);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* One byte through a pipe or a pair. */
static void pass(const int *ends, int is_pair, char byte)
{
	char got = 0;
	expect("a write of a byte", write(ends[is_pair ? 0 : 1], &byte, 1), 1);
	expect("a read of a byte", read(ends[is_pair ? 1 : 0], &got, 1), 1);
	expect("the byte", got, byte);
}

static void use_timer(int timer)
{
	struct itimerspec soon = {{0, 0}, {0, 1}};
	struct pollfd polled = {timer, POLLIN, 0};
	uint64_t expirations = 0;
	int found;
	expect("a timer", timerfd_settime(timer, 0, &soon, NULL), 0);
	while ((found = poll(&polled, 1, 5000)) < 0 && errno == EINTR)
		;
	expect("a timer that is due", found, 1);
	expect("a read of a timer", read(timer, &expirations, 8), 8);
	expect("expirations", (long long)expirations, 1);
}

static void use_common(void)
{
	uint64_t one = 1;
	shared->added++;
	expect("an addition", write(common, &one, 8), 8);
	if (read(common, &one, 8) == 8)
		shared->taken += one;
}

static void use_supervisors(void)
{
	uint64_t one = 1;
	self->begun++;
	expect("a write to the supervisor", write(supervisors, &one, 8), 8);
	self->done++;
}

/* Not while a SIGSEGV is under way: the kernel merges a signal that is sent with a fault's. */
static void fault(void)
{
	self->faulting = 1;
	if (self->sent[SEGV] == self->handled[SEGV] && sigsetjmp(after_fault, 1) == 0) {
		int *volatile nowhere = (int *)8;
		self->faults_made++;
		*nowhere = 1;
	}
	self->faulting = 0;
}

static void use_set(struct objects *objects)
{
	struct epoll_event events[6];
	struct timeval no_time = {0, 0};
	fd_set readable;
	uint64_t one = 1;
	own_written++;
	expect("a write", write(objects->counter, &one, 8), 8);
	int found = epoll_wait(objects->set, events, 6, 0);
	if (found < 1)
		fail("a set with something to report", found, errno);
	found = epoll_wait(objects->outer, events, 1, 0);
	expect("a set around it", found, 1);
	FD_ZERO(&readable);
	FD_SET(objects->counter, &readable);
	expect("a select", select(objects->counter + 1, &readable, NULL, NULL, &no_time), 1);
	drain(objects);
}

static void copy(int fd)
{
	int made_ = made(dup(fd));
	expect("a close", close(made_), 0);
}

static void work(uint64_t *state, struct objects *objects)
{
	switch (next_random(state) % 256) {
	case 0 ... 3:
		close_objects(objects);
		break;
	case 4:
		copy(objects->counter);
		break;
	case 5:
		copy(objects->set);
		break;
	case 6:
		copy(objects->lines[0]);
		break;
	case 7 ... 15:
		/* siglongjmp lets signals in before it leaves the handler, two on top of it. */
		if (self != &shared->workers[SMALLEST])
			fault();
		break;
	case 16:
		expect("a bad pointer", epoll_ctl(objects->set, EPOLL_CTL_ADD, objects->counter, (void *)8),
		       -1);
		break;
	case 17 ... 40:
		use_supervisors();
		break;
	case 41 ... 70:
		use_timer(objects->timer);
		break;
	case 71 ... 110:
		pass(objects->lines, 0, (char)next_random(state));
		break;
	case 111 ... 150:
		pass(objects->pair, 1, (char)next_random(state));
		break;
	case 151 ... 190:
		use_common();
		break;
	default:
		use_set(objects);
	}
}

#endif
