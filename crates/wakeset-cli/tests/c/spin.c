/*
 * Threads that answer each other within microseconds, and pause for as long as a waiter may look
 * before it sleeps: waits that end in a spin, at its end, and in a sleep, in every kind of wait.
 * Each signal is counted, none may be lost, and what else a waiter waits for is not starved.
 */
#include "show.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

enum kind { IN_PROCESS, MIXED, KERNELS, COUNTER, PIPE, KINDS };
static const char *const kind_names[] = {
	"a set", "a set with a socket", "a set of sockets", "blocking counters", "blocking pipes",
};
enum { ROUNDS = 4000, LONGEST_PAUSE = 60000 };

/* Two threads, A and B: what wakes each, and the set that it waits in. */
struct pair {
	enum kind kind;
	int in[2], out[2], set[2];
	int beside[2][2];
	unsigned seed;
	atomic_int beside_seen;
};

static void make_set(struct pair *pair, int i)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = 0};
	pair->set[i] = must(epoll_create1(0));
	must(epoll_ctl(pair->set[i], EPOLL_CTL_ADD, pair->in[i], &event));
	if (pair->kind == MIXED) {
		must(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0,
				pair->beside[i]));
		event.data.u32 = 1;
		must(epoll_ctl(pair->set[i], EPOLL_CTL_ADD, pair->beside[i][0], &event));
	}
}

static void make(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		int ends[2];
		switch (pair->kind) {
		case PIPE:
			must(pipe(ends));
			break;
		case KERNELS:
			must(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
			break;
		default:
			ends[0] = ends[1] = must(eventfd(0, 0));
		}
		pair->in[i] = ends[0];
		pair->out[i] = ends[1];
		if (pair->kind <= KERNELS)
			make_set(pair, i);
	}
}

static void end(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		if (pair->kind <= KERNELS)
			close(pair->set[i]);
		if (pair->kind == MIXED) {
			close(pair->beside[i][0]);
			close(pair->beside[i][1]);
		}
		close(pair->in[i]);
		if (pair->out[i] != pair->in[i])
			close(pair->out[i]);
	}
}

static void wake(struct pair *pair, int i)
{
	uint64_t one = 1;
	must(write(pair->out[i], &one, sizeof one));
}

/* Takes one signal; how many it was. */
static uint64_t take_one(struct pair *pair, int i)
{
	uint64_t value = 0;
	struct epoll_event event;
	while (pair->kind <= KERNELS) {
		must(epoll_wait(pair->set[i], &event, 1, -1));
		if (event.data.u32 == 0)
			break;
		char byte;
		if (read(pair->beside[i][0], &byte, 1) == 1)
			pair->beside_seen++;
	}
	must(read(pair->in[i], &value, sizeof value));
	return value;
}

static void pause_for(unsigned nanoseconds)
{
	struct timespec start, now;
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec <
		 (long)nanoseconds);
}

/* No pause in three rounds of four, so that spinning pays. */
static void sometimes_pause(unsigned *seed)
{
	if (rand_r(seed) % 4 == 0)
		pause_for(rand_r(seed) % LONGEST_PAUSE);
}

static void *answer(void *argument)
{
	struct pair *pair = argument;
	unsigned seed = pair->seed;
	for (int i = 0; i < ROUNDS; i++) {
		if (take_one(pair, 1) != 1)
			return "not one";
		sometimes_pause(&seed);
		if (pair->kind == MIXED) {
			/* EAGAIN: there is enough to see. */
			(void)!write(pair->beside[0][1], "x", 1);
		}
		wake(pair, 0);
	}
	return NULL;
}

static void hop(enum kind kind)
{
	struct pair pair = {.kind = kind, .seed = 7};
	unsigned seed = 5;
	int wrong = 0;
	pthread_t other;
	void *said;
	heading(kind_names[kind]);
	make(&pair);
	must_be_zero(pthread_create(&other, NULL, answer, &pair));
	for (int i = 0; i < ROUNDS; i++) {
		wake(&pair, 1);
		wrong += take_one(&pair, 0) != 1;
		sometimes_pause(&seed);
	}
	must_be_zero(pthread_join(other, &said));
	yes("each signal came once", wrong == 0 && said == NULL);
	if (kind == MIXED) {
		/* One event at a time, so the socket's turn is every second one at the latest. */
		yes("the socket was not starved", pair.beside_seen >= ROUNDS / 2 - 1);
	}
	end(&pair);
}

/* ---- many writers ---- */

enum { WRITERS = 3, WRITES = 20000 };

static void *write_often(void *argument)
{
	unsigned seed = 3;
	for (int i = 0; i < WRITES; i++) {
		must(add(*(int *)argument, 1));
		if (rand_r(&seed) % 64 == 0)
			sometimes_pause(&seed);
	}
	return NULL;
}

static void writers(int limit)
{
	int counter = must(eventfd(0, EFD_NONBLOCK)), set = must(epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	pthread_t threads[WRITERS];
	uint64_t total = 0, value;
	must(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event));
	for (int i = 0; i < WRITERS; i++)
		must_be_zero(pthread_create(&threads[i], NULL, write_often, &counter));
	while (total < (uint64_t)WRITERS * WRITES) {
		must(epoll_wait(set, &event, 1, limit));
		if (read(counter, &value, sizeof value) == sizeof value)
			total += value;
	}
	for (int i = 0; i < WRITERS; i++)
		must_be_zero(pthread_join(threads[i], NULL));
	number("all that was written has come", WRITERS * WRITES, (long long)total);
	close(set);
	close(counter);
}

/* ---- signals ---- */

static atomic_int handled;
static void count_signal(int signal)
{
	(void)signal;
	handled++;
}

static sigjmp_buf back;
static void jump(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

struct knock {
	pthread_t thread;
	atomic_int stop, wanted, sent;
};

/* Sends a signal each time one is wanted, after a pause of random length. */
static void *knock_often(void *argument)
{
	struct knock *knock = argument;
	unsigned seed = 11;
	while (!knock->stop) {
		if (knock->wanted == knock->sent) {
			sched_yield();
			continue;
		}
		knock->sent++;
		pause_for(rand_r(&seed) % LONGEST_PAUSE);
		must_be_zero(pthread_kill(knock->thread, SIGUSR1));
	}
	return NULL;
}

/*
 * A handler that runs at any time in a wait ends it. One that comes before the wait does not, so
 * the wait has a limit, and one that is over counts as a signal too early: not most are.
 */
static void interrupted(int how)
{
	enum { SIGNALS = 400 };
	struct knock knock = {.thread = pthread_self()};
	struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
	int set = must(epoll_create1(0)), counter = must(eventfd(0, EFD_NONBLOCK)), other, early = 0;
	struct epoll_event event = {.events = EPOLLIN};
	pthread_t thread;
	must(sigaction(SIGUSR1, &action, NULL));
	must(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event));
	other = must(socket(AF_UNIX, SOCK_DGRAM, 0));
	event.events = EPOLLPRI;
	if (how)
		must(epoll_ctl(set, EPOLL_CTL_ADD, other, &event));
	must_be_zero(pthread_create(&thread, NULL, knock_often, &knock));
	handled = 0;
	for (int i = 0; i < SIGNALS; i++) {
		knock.wanted++;
		int n = epoll_wait(set, &event, 1, 50);
		if (!(n == -1 && errno == EINTR))
			early++;
		while (handled != knock.wanted)
			sched_yield();
	}
	knock.stop = 1;
	must_be_zero(pthread_join(thread, NULL));
	yes("a handler ends the wait", early <= SIGNALS / 2);
	number("each signal was handled", SIGNALS, handled);
	close(set);
	close(counter);
	close(other);
}

/* Sends a signal after a pause of random length, and again every few milliseconds until it is told
 * that the read is over. */
static void *knock_until_heard(void *argument)
{
	struct knock *knock = argument;
	unsigned seed = 13;
	int done = 0;
	while (!knock->stop) {
		if (knock->wanted == done) {
			sched_yield();
			continue;
		}
		pause_for(rand_r(&seed) % LONGEST_PAUSE);
		for (done++; knock->sent != done && !knock->stop; sleep_ms(3))
			must_be_zero(pthread_kill(knock->thread, SIGUSR1));
	}
	return NULL;
}

/* A handler without SA_RESTART ends a read that waits; `sent` says how many reads are over. */
static void interrupted_reads(void)
{
	enum { READS = 300 };
	struct knock knock = {.thread = pthread_self()};
	struct sigaction action = {.sa_handler = count_signal};
	int counter = must(eventfd(0, 0)), wrong = 0, often = 0;
	pthread_t thread;
	must(sigaction(SIGUSR1, &action, NULL));
	must_be_zero(pthread_create(&thread, NULL, knock_until_heard, &knock));
	for (int i = 0; i < READS; i++) {
		uint64_t value;
		handled = 0;
		knock.wanted++;
		wrong += read(counter, &value, sizeof value) != -1 || errno != EINTR;
		knock.sent++;
		often += handled > 1;
	}
	knock.stop = 1;
	must_be_zero(pthread_join(thread, NULL));
	yes("each read was interrupted", wrong == 0);
	yes("most by the first signal", often <= READS / 2);
	close(counter);
}

/* A handler leaves waits by a jump, at any moment; the set goes on. */
static void jumped(void)
{
	enum { SIGNALS = 200 };
	struct knock knock = {.thread = pthread_self()};
	struct sigaction action = {.sa_handler = jump, .sa_flags = SA_NODEFER};
	int set = must(epoll_create1(0)), counter = must(eventfd(0, EFD_NONBLOCK));
	struct epoll_event event = {.events = EPOLLIN};
	volatile int jumps = 0;
	pthread_t thread;
	must(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event));
	sigset_t knocks;
	sigemptyset(&knocks);
	sigaddset(&knocks, SIGUSR1);
	must_be_zero(pthread_sigmask(SIG_BLOCK, &knocks, NULL));
	must(sigaction(SIGUSR1, &action, NULL));
	must_be_zero(pthread_create(&thread, NULL, knock_often, &knock));
	while (jumps < SIGNALS) {
		if (sigsetjmp(back, 1) == 0) {
			knock.wanted++;
			must_be_zero(pthread_sigmask(SIG_UNBLOCK, &knocks, NULL));
			for (;;)
				epoll_wait(set, &event, 1, -1);
		}
		jumps++;
	}
	knock.stop = 1;
	must_be_zero(pthread_join(thread, NULL));
	must(add(counter, 1));
	CALL("the set still reports", "1", epoll_wait(set, &event, 1, 1000));
	close(set);
	close(counter);
}

/* ---- time, and forks ---- */

static void times(void)
{
	int set = must(epoll_create1(0)), timer = must(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	int wrong = 0;
	must(epoll_ctl(set, EPOLL_CTL_ADD, timer, &event));
	for (int i = 1; i <= 200; i++) {
		struct itimerspec when = {.it_value.tv_nsec = i * 500};
		must(timerfd_settime(timer, 0, &when, NULL));
		wrong += epoll_wait(set, &event, 1, -1) != 1;
	}
	yes("each timer expired", wrong == 0);
	struct timespec limit = {.tv_nsec = 5000}, before, after;
	for (int i = 0; i < 200; i++) {
		clock_gettime(CLOCK_MONOTONIC, &before);
		wrong += epoll_pwait2(set, &event, 1, &limit, NULL) != 0;
		clock_gettime(CLOCK_MONOTONIC, &after);
		wrong += (after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec <
			 limit.tv_nsec;
	}
	yes("no wait ended early", wrong == 0);
	close(set);
	close(timer);
}

static void *answer_for_ever(void *argument)
{
	struct pair *pair = argument;
	while (take_one(pair, 1) == 1)
		wake(pair, 0);
	return NULL;
}

/* Children of a process whose threads spin wait as their parents do. */
static void forks(void)
{
	struct pair pair = {.kind = IN_PROCESS};
	pthread_t other;
	int wrong = 0;
	make(&pair);
	must_be_zero(pthread_create(&other, NULL, answer_for_ever, &pair));
	for (int i = 0; i < 5; i++) {
		for (int j = 0; j < 200; j++) {
			wake(&pair, 1);
			wrong += take_one(&pair, 0) != 1;
		}
		pid_t child = must(fork());
		if (child == 0) {
			hop(COUNTER);
			_exit(verdict());
		}
		int status;
		must(waitpid(child, &status, 0));
		wrong += status != 0;
	}
	yes("parents and children hear each other's threads", wrong == 0);
	must(add(pair.in[1], 2));
	must_be_zero(pthread_join(other, NULL));
	end(&pair);
}

int main(void)
{
	for (enum kind kind = 0; kind < KINDS; kind++)
		hop(kind);
	heading("many writers");
	writers(-1);
	writers(1);
	heading("signals");
	interrupted(0);
	interrupted(1);
	interrupted_reads();
	jumped();
	heading("time");
	times();
	heading("forks");
	forks();
	return verdict();
}
