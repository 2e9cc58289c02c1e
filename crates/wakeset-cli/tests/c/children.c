/*
 * Children of all kinds, drawn at random, beside threads that signal each other: every count is
 * exact, and no descriptor and no memory is left over.
 *
 *     children [NUMBER [SEED]]
 */
#include "show.h"
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

enum { PAIRS = 2 };

/* Two threads, an eventfd and a set that watches it. */
static struct pair {
	int counter, set;
	pthread_t writer, reader;
	uint64_t written, got;
	/* By children, and by the main thread. */
	uint64_t added;
} pairs[PAIRS];
static atomic_int stop;

static void *write_on(void *argument)
{
	struct pair *pair = argument;
	for (uint64_t one = 1; !atomic_load(&stop); pair->written++) {
		must(write(pair->counter, &one, 8));
		if (pair->written % 64 == 63)
			usleep(100);
	}
	return NULL;
}

static void *read_on(void *argument)
{
	struct pair *pair = argument;
	struct epoll_event event;
	uint64_t value;
	for (int last = 0;; last = atomic_load(&stop) == 2) {
		/* Interrupted, where a child ends while libc has signals blocked in its parent. */
		if (epoll_wait(pair->set, &event, 1, 20) == -1 && errno != EINTR)
			must(-1);
		if (read(pair->counter, &value, 8) == 8)
			pair->got += value;
		else if (last)
			return NULL;
	}
}

static void begin(struct pair *pair)
{
	memset(pair, 0, sizeof *pair);
	pair->counter = must(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	pair->set = must(epoll_create1(EPOLL_CLOEXEC));
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	must(epoll_ctl(pair->set, EPOLL_CTL_ADD, pair->counter, &event));
	must_be_zero(pthread_create(&pair->writer, NULL, write_on, pair));
	must_be_zero(pthread_create(&pair->reader, NULL, read_on, pair));
}

static int counts_lost;

static void end(void)
{
	atomic_store(&stop, 1);
	for (int i = 0; i < PAIRS; i++)
		must_be_zero(pthread_join(pairs[i].writer, NULL));
	atomic_store(&stop, 2);
	for (int i = 0; i < PAIRS; i++) {
		struct pair *pair = &pairs[i];
		must_be_zero(pthread_join(pair->reader, NULL));
		counts_lost += pair->got != pair->written + pair->added;
		must(close(pair->counter));
		must(close(pair->set));
	}
	atomic_store(&stop, 0);
}

/* ---- children ---- */

static struct pair *named;
static int ends[2];

static int act(int what)
{
	uint64_t two = 2;
	switch (what % 6) {
	case 0:
		return 0;
	case 1:
		return write(named->counter, &two, 8) != 8;
	case 2:
		return close_range(3, ~0U, 0);
	case 3:
		/* Says what it is told to its parent's pipe. */
		return dup2(ends[1], 1) != 1 || close_range(3, ~0U, 0) || write(1, "x", 1) != 1;
	case 4:
		return dup2(ends[1], named->counter) < 0 || write(named->counter, "x", 1) != 1;
	default:
		execl("/proc/self/exe", "children", "end", NULL);
		return 1;
	}
}

static int act_apart(void *what)
{
	return act(*(int *)what);
}

static pid_t begin_child(int how, int what)
{
	static char stack[256 << 10] __attribute__((aligned(16)));
	pid_t child = 0;
	switch (how) {
	case 0:
		child = fork();
		break;
	case 1:
	case 2:
		child = vfork();
		break;
	case 3:
		child = clone(act_apart, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &what);
		break;
	default: {
		char *const arguments[] = { "children", "end", NULL };
		must_be_zero(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ));
	}
	}
	if (child == 0)
		_exit(act(what));
	return must(child);
}

static void one_child(void)
{
	int how = rand() % 5, what = rand() % 12;
	/* Half of them do nothing. */
	what = what < 6 ? what : 0;
	named = &pairs[rand() % PAIRS];
	must(pipe2(ends, O_CLOEXEC | O_NONBLOCK));
	int status = -1;
	must(waitpid(begin_child(how, what), &status, 0));
	if (status != 0) {
		printf("child %d %d: %#x (should be 0)\n", how, what, status);
		surprises++;
	}
	if (how < 4 && what == 1)
		named->added += 2;
	char byte = 0;
	ssize_t length = read(ends[0], &byte, 1);
	counts_lost += how < 4 && (what == 3 || what == 4) ? length != 1 : length != -1;
	must(close(ends[0]));
	must(close(ends[1]));
}

static int open_numbers(void)
{
	int open = 0;
	for (int fd = 0; fd < 4096; fd++)
		open += fcntl(fd, F_GETFD) != -1;
	return open;
}

static long pages(void)
{
	char text[64] = "";
	int file = must(open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
	must(read(file, text, sizeof text - 1));
	must(close(file));
	return atol(text);
}

int main(int count, char **arguments)
{
	if (count > 1 && strcmp(arguments[1], "end") == 0)
		return 0;
	int number_of = count > 1 ? atoi(arguments[1]) : 400;
	srand(count > 2 ? (unsigned)atoi(arguments[2]) : 1);
	int open_before = 0;
	long pages_before = 0;
	for (int done = 0; done < number_of;) {
		for (int i = 0; i < PAIRS; i++)
			begin(&pairs[i]);
		/* What has migrated has gone with the next pairs. */
		for (int i = 0; i < 20; i++, done++)
			one_child();
		end();
		if (done == 100) {
			open_before = open_numbers();
			pages_before = pages();
		}
	}
	number("descriptors left over", open_before, open_numbers());
	yes("no memory left over", pages() < pages_before + 256);
	number("counts that are not exact", 0, counts_lost);
	return verdict();
}
