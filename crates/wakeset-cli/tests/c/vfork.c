/*
 * vfork(2) beside threads: the child works on its parent's memory with a descriptor table of its
 * own, in which a number may stand for another file by the time it is used. Nothing of the parent's
 * may go there. And posix_spawn(3) with file actions that are used more than once.
 */
#include "show.h"
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

extern char **environ;

enum act { EXEC, CLOSE, DUP2, LAST };
static const char *const acts[] = { "exec", "close", "dup2" };

static int files[2];
static atomic_int begun, go_on;

static int temporary(void)
{
	return must(memfd_create("file", 0));
}

static void *spawner(void *argument)
{
	enum act act = *(enum act *)argument;
	pid_t child = vfork();
	if (child == 0) {
		atomic_store(&begun, 1);
		while (!atomic_load(&go_on))
			usleep(1000);
		if (act == CLOSE)
			close(files[0]);
		if (act == DUP2)
			dup2(2, files[0]);
		if (act == EXEC)
			execl("/nonexistent/program", "program", NULL);
		_exit(0);
	}
	must(child);
	int status = 0;
	must(waitpid(child, &status, 0));
	number("  the child's status", 0, status);
	return NULL;
}

/* What takes the files' numbers while the child has them. */
enum kind { PIPE, COUNTERS, TIMERS, KINDS };
static const char *const kinds[] = { "a pipe", "eventfds", "timers" };

static void numbers_drift(enum act act, enum kind kind)
{
	printf("-- %s in the child, and %s under those numbers in the parent\n", acts[act], kinds[kind]);
	files[0] = temporary();
	files[1] = temporary();
	/* They outlive their numbers here. */
	int kept[2] = { must(fcntl(files[0], F_DUPFD_CLOEXEC, 500)),
	               must(fcntl(files[1], F_DUPFD_CLOEXEC, 500)) };
	atomic_store(&begun, 0);
	atomic_store(&go_on, 0);
	pthread_t thread;
	must_be_zero(pthread_create(&thread, NULL, spawner, &act));
	while (!atomic_load(&begun))
		usleep(1000);
	must(close(files[0]));
	must(close(files[1]));
	int ends[2];
	uint64_t three = 3, seen = 0;
	struct itimerspec soon = { .it_value.tv_nsec = 1 };
	if (kind == PIPE) {
		must(pipe2(ends, O_NONBLOCK));
	} else {
		for (int i = 0; i < 2; i++)
			ends[i] = must(kind == COUNTERS ? eventfd(0, EFD_NONBLOCK)
			               : timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	}
	yes("  the same numbers", ends[0] == files[0] && ends[1] == files[1]);
	if (kind == PIPE)
		CALL("  write", "6", write(ends[1], "secret", 6));
	for (int i = 0; i < 2 && kind == COUNTERS; i++)
		CALL("  write", "8", write(ends[i], &three, 8));
	for (int i = 0; i < 2 && kind == TIMERS; i++)
		CALL("  set", "0", timerfd_settime(ends[i], 0, &soon, NULL));
	atomic_store(&go_on, 1);
	must_be_zero(pthread_join(thread, NULL));
	if (kind == PIPE) {
		char bytes[8] = "";
		CALL("  read", "6", read(ends[0], bytes, sizeof bytes));
		show("  the bytes", "secret", bytes);
	}
	for (int i = 0; i < 2 && kind != PIPE; i++) {
		CALL("  read", "8", read(ends[i], &seen, 8));
		number("  the value", kind == COUNTERS ? 3 : 1, (long long)seen);
	}
	for (int i = 0; i < 2; i++) {
		number("  bytes in the file", 0, must(lseek(kept[i], 0, SEEK_END)));
		must(close(kept[i]));
		must(close(ends[i]));
	}
}

static volatile int hits;

static void one(int signal)
{
	(void)signal;
	hits++;
}

static void hundred(int signal)
{
	(void)signal;
	hits += 100;
}

static void handlers_of_the_child(void)
{
	heading("handlers that the child registers are its own");
	struct sigaction now;
	signal(SIGUSR1, one);
	signal(SIGUSR2, one);
	pid_t child = vfork();
	if (child == 0) {
		signal(SIGUSR1, SIG_DFL);
		bool known = signal(SIGUSR2, hundred) == one;
		struct sigaction mine;
		sigaction(SIGUSR2, NULL, &mine);
		_exit(known && mine.sa_handler == hundred ? 0 : 1);
	}
	int status;
	must(waitpid(must(child), &status, 0));
	number("its status", 0, status);
	must(sigaction(SIGUSR1, NULL, &now));
	yes("the first is as it was", now.sa_handler == one);
	must(sigaction(SIGUSR2, NULL, &now));
	yes("the second too", now.sa_handler == one);
	must(raise(SIGUSR1));
	must(raise(SIGUSR2));
	number("and they run", 2, hits);
}

static void what_the_child_writes(void)
{
	heading("the child's memory is its parent's, and the call's result is the child");
	volatile int written = 0;
	pid_t child = vfork();
	if (child == 0) {
		written = 7;
		_exit(3);
	}
	int status;
	yes("its number", waitpid(must(child), &status, 0) == child);
	number("its status", 3, WEXITSTATUS(status));
	number("what it has written", 7, written);
	int counter = must(eventfd(1, EFD_NONBLOCK));
	uint64_t value = 0;
	CALL("an eventfd made afterwards", "8", read(counter, &value, 8));
	must(close(counter));
}

static void *kill_children(void *argument)
{
	atomic_int *child = argument;
	for (int i = 0; i < 400; i++) {
		pid_t now = atomic_load(child);
		if (now > 0)
			kill(now, SIGKILL);
		usleep(100);
	}
	return NULL;
}

static void children_that_are_killed(void)
{
	heading("children that are killed at any moment");
	static atomic_int last;
	pthread_t thread;
	must_be_zero(pthread_create(&thread, NULL, kill_children, &last));
	int lost = 0;
	for (int i = 0; i < 100; i++) {
		int ends[2];
		must(pipe2(ends, O_NONBLOCK));
		must(write(ends[1], "xy", 2));
		pid_t child = vfork();
		if (child == 0) {
			atomic_store(&last, getpid());
			dup2(ends[1], 1);
			close(ends[0]);
			execl("/nonexistent/program", "program", NULL);
			_exit(0);
		}
		atomic_store(&last, 0);
		must(waitpid(must(child), NULL, 0));
		char bytes[4];
		lost += read(ends[0], bytes, sizeof bytes) != 2;
		must(close(ends[0]));
		must(close(ends[1]));
	}
	must_be_zero(pthread_join(thread, NULL));
	number("pipes that have lost something", 0, lost);
}

static void actions_used_twice(void)
{
	heading("file actions that are used twice");
	posix_spawn_file_actions_t actions;
	must_be_zero(posix_spawn_file_actions_init(&actions));
	int ends[2];
	must(pipe2(ends, O_CLOEXEC));
	int number_of_end = ends[1];
	must_be_zero(posix_spawn_file_actions_adddup2(&actions, number_of_end, 1));
	must(close(ends[0]));
	must(close(ends[1]));
	for (int i = 0; i < 2; i++) {
		must(pipe2(ends, O_CLOEXEC));
		yes("the same number", ends[1] == number_of_end);
		char *const arguments[] = { "echo", "hello", NULL };
		pid_t child;
		must_be_zero(posix_spawnp(&child, "echo", &actions, NULL, arguments, environ));
		must(waitpid(child, NULL, 0));
		char bytes[8] = "";
		must(fcntl(ends[0], F_SETFL, O_NONBLOCK));
		CALL("what it says", "6", read(ends[0], bytes, sizeof bytes));
		must(close(ends[0]));
		must(close(ends[1]));
	}
	posix_spawn_file_actions_destroy(&actions);
}

int main(void)
{
	/* There is something of ours from the beginning. */
	int counter = must(eventfd(0, 0));
	for (enum act act = 0; act < LAST; act++)
		for (enum kind kind = 0; kind < KINDS; kind++)
			numbers_drift(act, kind);
	what_the_child_writes();
	handlers_of_the_child();
	children_that_are_killed();
	actions_used_twice();
	must(close(counter));
	return verdict();
}
