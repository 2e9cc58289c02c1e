/*
 * What every program here has in common: one line of output per check, and a way to tell that a
 * thread sleeps.
 *
 * The programs describe epoll and eventfd as the man pages and the running kernel have them. Each
 * check names the outcome it wants, so a wrong expectation fails on the plain kernel already; the
 * harness then runs the same binary under `wakeset run` and requires the same bytes. Nothing here
 * uses more than libc, and nothing prints a descriptor's number, an address or a time.
 */
#ifndef SHOW_H
#define SHOW_H

#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int surprises;

/*
 * Line by line even into a pipe: a child made by fork must not print its parent's buffer a second
 * time.
 */
__attribute__((constructor)) static void print_by_line(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
}

/* One line: what was tried, what came out. */
static inline void show(const char *name, const char *want, const char *got)
{
	if (strcmp(want, got) == 0) {
		printf("%s: %s\n", name, got);
	} else {
		surprises++;
		printf("%s: %s (should be %s)\n", name, got, want);
	}
}

static inline void number(const char *name, long long want, long long got)
{
	char wanted[32], gotten[32];
	snprintf(wanted, sizeof wanted, "%lld", want);
	snprintf(gotten, sizeof gotten, "%lld", got);
	show(name, wanted, gotten);
}

static inline void yes(const char *name, int truth)
{
	show(name, "yes", truth ? "yes" : "no");
}

static inline void heading(const char *text)
{
	printf("-- %s\n", text);
}

/* What a program's main returns. */
static inline int verdict(void)
{
	return surprises ? 1 : 0;
}

/* A system call's result as text: its value, or -1 and the errno's name. */
static inline const char *outcome(long long result)
{
	static _Thread_local char text[48];
	if (result == -1)
		snprintf(text, sizeof text, "-1 %s", strerrorname_np(errno));
	else
		snprintf(text, sizeof text, "%lld", result);
	return text;
}

/* errno is set before the call, so that the text tells what this call made of it. */
#define CALL(name, want, call)                        \
	do {                                          \
		errno = 0;                            \
		long long result_ = (call);           \
		show((name), (want), outcome(result_)); \
	} while (0)

/*
 * The same for a call that makes a descriptor: its number is nobody's business, and it is closed
 * again.
 */
#define CALL_FD(name, want, call)                                    \
	do {                                                         \
		errno = 0;                                           \
		int made_ = (int)(call);                             \
		show((name), (want), made_ >= 0 ? "fd" : outcome(made_)); \
		if (made_ >= 0)                                      \
			close(made_);                                \
	} while (0)

/* For what cannot fail unless the program itself is wrong. */
#define must(call) must_be_good((call), #call, __LINE__)
static inline int must_be_good(long long result, const char *call, int line)
{
	if (result < 0) {
		printf("line %d: %s: %s\n", line, call, outcome(-1));
		exit(2);
	}
	return (int)result;
}

/* pthread functions return their error. */
#define must_be_zero(call) must_return_zero((call), #call, __LINE__)
static inline void must_return_zero(int error, const char *call, int line)
{
	if (error) {
		printf("line %d: %s: %s\n", line, call, strerrorname_np(error));
		exit(2);
	}
}

/* ---- eventfds ---- */

static inline ssize_t add(int fd, uint64_t value)
{
	return write(fd, &value, sizeof value);
}

/* The value read, or -1 with errno: fit for the small numbers the programs use. */
static inline long long take(int fd)
{
	uint64_t value = 0;
	ssize_t got = read(fd, &value, sizeof value);
	return got == (ssize_t)sizeof value ? (long long)value : -1;
}

/* For a counter that holds something, however much. */
static inline void drain(int fd)
{
	uint64_t value;
	must(read(fd, &value, sizeof value));
}

/* ---- pipes ---- */

/*
 * One that is the kernel's to everybody, having had a second descriptor: for what is about kernel
 * descriptors beside others.
 */
static inline void kernel_pipe(int ends[2], int flags)
{
	must(pipe2(ends, flags));
	must(close(must(dup(ends[0]))));
}

/* ---- sets ---- */

/* A watch is known by a letter, which comes back in its events. */
static inline int watch(int set, int op, int fd, uint32_t events, char letter)
{
	struct epoll_event event = {.events = events, .data.u64 = (unsigned char)letter};
	return epoll_ctl(set, op, fd, &event);
}

static inline int watch_new(int set, int fd, uint32_t events, char letter)
{
	return watch(set, EPOLL_CTL_ADD, fd, events, letter);
}

static inline void name_bits(char *text, size_t size, uint32_t bits)
{
	static const struct {
		uint32_t bit;
		const char *name;
	} names[] = {{EPOLLIN, "IN"},   {EPOLLOUT, "OUT"}, {EPOLLPRI, "PRI"},
		     {EPOLLERR, "ERR"}, {EPOLLHUP, "HUP"}, {EPOLLRDHUP, "RDHUP"}};
	size_t used = 0;
	text[0] = '\0';
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (bits & names[i].bit)
			used += (size_t)snprintf(text + used, size - used, "%s%s", used ? "|" : "", names[i].name);
		bits &= ~names[i].bit;
	}
	if (bits)
		snprintf(text + used, size - used, "%s0x%x", used ? "|" : "", bits);
}

static inline int by_letter(const void *left, const void *right)
{
	const struct epoll_event *a = left, *b = right;
	return (a->data.u64 > b->data.u64) - (a->data.u64 < b->data.u64);
}

/* Events as text, "a=IN b=IN|OUT", or "none", or the errno. */
static inline const char *events_text(struct epoll_event *events, int count)
{
	static _Thread_local char text[512];
	size_t used = 0;
	if (count < 0)
		return outcome(count);
	if (count == 0)
		return "none";
	for (int i = 0; i < count && used < sizeof text - 64; i++) {
		char bits[64];
		name_bits(bits, sizeof bits, events[i].events);
		used += (size_t)snprintf(text + used, sizeof text - used, "%s%c=%s", i ? " " : "",
					 (char)events[i].data.u64, bits);
	}
	return text;
}

/* What a wait reports, in the order reported. */
static inline const char *ordered(int set, int most, int milliseconds)
{
	struct epoll_event events[16];
	return events_text(events, epoll_wait(set, events, most, milliseconds));
}

/* What a wait reports, by letter: for sets whose order nobody promises. */
static inline const char *sorted(int set, int most, int milliseconds)
{
	struct epoll_event events[16];
	int count = epoll_wait(set, events, most, milliseconds);
	if (count > 0)
		qsort(events, (size_t)count, sizeof *events, by_letter);
	return events_text(events, count);
}

/* What is ready now. */
static inline const char *ready(int set)
{
	return ordered(set, 16, 0);
}

/* ---- time ---- */

static inline int64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static inline void sleep_ms(int milliseconds)
{
	struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
	while (nanosleep(&time, &time) == -1 && errno == EINTR)
		;
}

/* Some hundreds of these move one thread's step past another's. */
static inline void spin(int turns)
{
	for (volatile int turn = 0; turn < turns; turn++)
		;
}

/*
 * Whether the flag is set before patience ends. Only a program that hangs sees the end of it: then
 * it can say so, and leave by give_up, as nothing it started can be waited for.
 */
static inline int in_time(atomic_int *flag)
{
	for (int64_t end = now() + 10 * 1000000000LL; !atomic_load(flag);) {
		if (now() > end)
			return 0;
		sleep_ms(1);
	}
	return 1;
}

static inline _Noreturn void give_up(void)
{
	fflush(stdout);
	_exit(3);
}

/* ---- threads ---- */

struct thread {
	pthread_t handle;
	pid_t id;
	void *(*body)(void *);
	void *argument;
	sem_t running;
};

static inline void *run_thread(void *opaque)
{
	struct thread *thread = opaque;
	void *(*body)(void *) = thread->body;
	void *argument = thread->argument;
	thread->id = (pid_t)syscall(SYS_gettid);
	sem_post(&thread->running);
	return body(argument);
}

static inline void start(struct thread *thread, void *(*body)(void *), void *argument)
{
	thread->body = body;
	thread->argument = argument;
	sem_init(&thread->running, 0, 0);
	must_be_zero(pthread_create(&thread->handle, NULL, run_thread, thread));
	while (sem_wait(&thread->running) == -1)
		;
}

static inline void *finish(struct thread *thread)
{
	void *result;
	must_be_zero(pthread_join(thread->handle, &result));
	return result;
}

/* until_asleep() of what has this file in proc(5). */
static inline void until_asleep_by(const char *path)
{
	char line[256];
	for (int in_a_row = 0; in_a_row < 5;) {
		FILE *file = fopen(path, "re");
		char state = 'R';
		if (!file)
			return;
		if (fgets(line, sizeof line, file)) {
			char *end = strrchr(line, ')');
			if (end && end[1] == ' ')
				state = end[2];
		}
		fclose(file);
		in_a_row = state == 'S' ? in_a_row + 1 : 0;
		sleep_ms(2);
	}
}

/*
 * Returns when the thread has been asleep for a while: it is inside the blocking call its body
 * makes. The kernel's own word for it, so that no check depends on how fast the machine is.
 */
static inline void until_asleep(pid_t id)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)id);
	until_asleep_by(path);
}

/* The same of the first thread of another process. */
static inline void until_process_asleep(pid_t id)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)id);
	until_asleep_by(path);
}

/* A thread that waits once, for good, and keeps what it saw. */
struct waiter {
	struct thread thread;
	int set;
	int most;
	char saw[512];
	atomic_int back;
};

static inline void *wait_once(void *argument)
{
	struct waiter *waiter = argument;
	snprintf(waiter->saw, sizeof waiter->saw, "%s", sorted(waiter->set, waiter->most, -1));
	atomic_store(&waiter->back, 1);
	return NULL;
}

/* Returns when the thread is asleep in its wait. */
static inline void start_waiting(struct waiter *waiter, int set, int most)
{
	waiter->set = set;
	waiter->most = most;
	atomic_store(&waiter->back, 0);
	start(&waiter->thread, wait_once, waiter);
	until_asleep(waiter->thread.id);
}

static inline const char *what_it_saw(struct waiter *waiter)
{
	finish(&waiter->thread);
	return waiter->saw;
}

/* How many are back from their waits when all has come to rest. */
static inline int count_back(struct waiter *waiters, int count)
{
	int back = 0;
	sleep_ms(30);
	for (int i = 0; i < count; i++)
		if (!atomic_load(&waiters[i].back))
			until_asleep(waiters[i].thread.id);
	for (int i = 0; i < count; i++)
		back += atomic_load(&waiters[i].back);
	return back;
}

/*
 * From here on the kernel refuses each call of this number with this errno, if its second argument
 * is that, -1 for any, and its third at least `third`. What a shortage does that is the whole
 * system's. For good, so in a child.
 */
__attribute__((unused)) static void refuse_from(int call, long argument, unsigned third, int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | (argument < 0 ? BPF_JGE : BPF_JEQ) | BPF_K, argument < 0 ? 0 : argument, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, third, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

__attribute__((unused)) static void refuse(int call, long argument, int error)
{
	refuse_from(call, argument, 0, error);
}

#endif
