/*
 * What all parts of `forks_random.c` share: memory that the children write to as well, chance, how
 * a failure is told, and the watch over threads that wait.
 */
#ifndef FORKS_RANDOM_WORLD_H
#define FORKS_RANDOM_WORLD_H

#include "../show.h"
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum {
	CHANNELS = 6,
	OPERATORS = 2,
	LINGERERS = 6,
	/* The first thread, the operators, their children, and the threads of the channels. */
	SLOTS = 1 + 2 * OPERATORS + 3 * CHANNELS,
	/* Seconds that a wait may take, with everything else running. */
	PATIENCE = 30,
};

/* What is counted of a channel, by each process. */
struct counts {
	/* Counts or bytes. What is sent is counted before it is written. */
	atomic_ullong sent, taken, acknowledged;
	/* Grows with `taken`, for whom sleeps until something is taken. */
	atomic_uint turns, sleepers;
	/* Producers end, and then, with the next thing sent, a consumer. */
	atomic_int stop;
	atomic_uint gone;
};

/* What a thread waits for, and since when; 0 if it does not wait. */
struct slot {
	atomic_llong since;
	const char *_Atomic what;
	atomic_int channel;
};

static struct world {
	pid_t pid;
	atomic_int failed;
	char failure[256];
	struct counts counts[CHANNELS];
	struct slot slots[SLOTS];
	/* An operator's child has done what it had to do. */
	atomic_uint done[OPERATORS];
	/* What an operator and its child have read of a timer that goes on. */
	atomic_ullong expirations[OPERATORS];
	/* A child that lends its own set for a while tells of an act so. */
	atomic_uint told[OPERATORS];
} *world;

/* Killed when the program fails. */
static atomic_int living[OPERATORS], lingering[LINGERERS];

static _Thread_local struct slot *my_slot;
static _Thread_local uint64_t dice;
/* Of an operator and its children. */
static _Thread_local int me;

static void describe_channel(int channel);

/* ---- chance ---- */

static void seed_dice(uint64_t seed)
{
	dice = (seed + 1) * 0x9e3779b97f4a7c15;
	dice = (dice ^ dice >> 29) | 1;
}

/* xorshift64*: the same acts for the same seed, as far as threads allow. */
static unsigned below(unsigned limit)
{
	dice ^= dice >> 12;
	dice ^= dice << 25;
	dice ^= dice >> 27;
	return (unsigned)(dice * 0x2545f4914f6cdd1d >> 33) % limit;
}

static void nap(unsigned microseconds)
{
	struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000L};
	nanosleep(&time, NULL);
}

/* ---- failures ---- */

static void end_children(void)
{
	for (int i = 0; i < OPERATORS; i++)
		if (living[i] > 0)
			kill(living[i], SIGKILL);
	for (int i = 0; i < LINGERERS; i++)
		if (lingering[i] > 0)
			kill(lingering[i], SIGKILL);
}

/* The threads that have waited for two seconds and more. */
static void describe_waits(void)
{
	for (int i = 0; i < SLOTS; i++) {
		struct slot *slot = &world->slots[i];
		long long since = atomic_load(&slot->since);
		if (since == 0 || now() - since < 2000000000LL)
			continue;
		printf("  %s %d has waited for %s since %lld ms\n",
		       i == 0                 ? "first thread"
		       : i <= OPERATORS     ? "operator"
		       : i <= 2 * OPERATORS ? "child"
					    : "thread",
		       i, atomic_load(&slot->what), (now() - since) / 1000000);
		if (atomic_load(&slot->channel) >= 0)
			describe_channel(atomic_load(&slot->channel));
	}
}

/* A child leaves it to its parent to say so. */
__attribute__((format(printf, 1, 2))) static _Noreturn void fail(const char *format, ...)
{
	va_list list;
	int first = atomic_exchange(&world->failed, 1) == 0;
	va_start(list, format);
	if (getpid() != world->pid) {
		if (first)
			vsnprintf(world->failure, sizeof world->failure, format, list);
		_exit(99);
	}
	vprintf(format, list);
	printf("\n%s\n", world->failure);
	describe_waits();
	end_children();
	give_up();
}

/* As must(), in any process. */
#define need(call) need_good((call), #call, __LINE__)
static int need_good(long long result, const char *call, int line)
{
	if (result < 0)
		fail("line %d: %s: %s", line, call, strerrorname_np(errno));
	return (int)result;
}

static void expect(const char *what, long long want, long long got)
{
	if (want != got)
		fail("%s: %lld (should be %lld)", what, got, want);
}

/* ---- waits ---- */

static void begin_wait(const char *what, int channel)
{
	atomic_store(&my_slot->what, what);
	atomic_store(&my_slot->channel, channel);
	atomic_store(&my_slot->since, now());
}

/* errno stays. */
static void end_wait(void)
{
	atomic_store(&my_slot->since, 0);
}

/* The thread that says what hangs. */
static void *watch_over(void *stop)
{
	while (!atomic_load((atomic_int *)stop)) {
		for (int i = 0; i < SLOTS; i++) {
			long long since = atomic_load(&world->slots[i].since);
			if (since != 0 && now() - since > PATIENCE * 1000000000LL)
				fail("nothing has ended a wait");
		}
		sleep_ms(100);
	}
	return NULL;
}

static void sleep_on_word(atomic_uint *word, unsigned seen, long milliseconds)
{
	struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
	syscall(SYS_futex, word, FUTEX_WAIT, seen, &time, NULL, 0);
}

static void wake_word(atomic_uint *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void make_world(void)
{
	world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (world == MAP_FAILED)
		must(-1);
	world->pid = getpid();
	my_slot = &world->slots[0];
}

#endif
