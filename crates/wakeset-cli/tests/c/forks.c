/*
 * What a fork costs a process: page faults, time, the pages that the child has for itself at its
 * end, because it or its parent wrote to them, and the mappings, each of which is copied. The last
 * two do not depend on where code lies in its pages, nor on how many of those the kernel maps at
 * once, and are the same in each run.
 *
 *     forks [OBJECTS [FORKS]]
 *
 * So many objects, of all kinds, are made before each fork and closed after it; that is not
 * counted.
 */
#include "show.h"
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

static long faults(void)
{
	struct rusage own, children;
	must(getrusage(RUSAGE_SELF, &own));
	must(getrusage(RUSAGE_CHILDREN, &children));
	return own.ru_minflt + children.ru_minflt;
}

enum { MOST = 1000 };
static int made[2 * MOST], numbers;

static void make(int objects)
{
	numbers = 0;
	for (int i = 0; i < objects; i++) {
		int ends[2] = {-1, -1};
		switch (i % 5) {
		case 0:
			ends[0] = must(eventfd(i % 2, EFD_CLOEXEC));
			break;
		case 1:
			must(pipe2(ends, O_CLOEXEC));
			break;
		case 2:
			ends[0] = must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
			break;
		case 3:
			ends[0] = must(epoll_create1(EPOLL_CLOEXEC));
			break;
		case 4:
			must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
			break;
		}
		for (int end = 0; end < 2; end++)
			if (ends[end] != -1)
				made[numbers++] = ends[end];
	}
}

/* How many pages this process shares with no other, and has written to; 0 if the kernel does not
 * tell. */
static int own_pages(void)
{
	char text[2048];
	int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
	ssize_t length = file == -1 ? -1 : read(file, text, sizeof text - 1);
	text[length > 0 ? length : 0] = 0;
	const char *line = strstr(text, "Private_Dirty:");
	return line ? atoi(line + strlen("Private_Dirty:")) / (int)(sysconf(_SC_PAGESIZE) / 1024) : 0;
}

/* How many mappings this process has; 0 if the kernel does not tell. */
static int mappings(void)
{
	char text[4096];
	int lines = 0, file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	for (ssize_t length; file != -1 && (length = read(file, text, sizeof text)) > 0;)
		for (ssize_t i = 0; i < length; i++)
			lines += text[i] == '\n';
	return lines;
}

/* The pages of a child that ends at once. */
static int pages_of_a_child(void)
{
	int status;
	pid_t child = must(fork());
	if (child == 0)
		_exit(own_pages());
	must(waitpid(child, &status, 0));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

static int by_size(const void *left, const void *right)
{
	int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
	return (a > b) - (a < b);
}

int main(int count, char **arguments)
{
	int objects = count > 1 ? atoi(arguments[1]) : 0, forks = count > 2 ? atoi(arguments[2]) : 200;
	int pages = 0;
	long copied = 0;
	int64_t *times = calloc((size_t)forks, sizeof *times);
	must(times && objects <= MOST ? 0 : -1);
	/* The first few find their way to libc's functions. */
	for (int i = -10; i < forks; i++) {
		int status;
		make(objects);
		long before = faults();
		int64_t begin = now();
		pid_t child = must(fork());
		if (child == 0)
			_exit(0);
		must(waitpid(child, &status, 0));
		if (i >= 0) {
			times[i] = now() - begin;
			copied += faults() - before;
		}
		if (i + 1 == forks)
			pages = pages_of_a_child();
		for (int end = 0; end < numbers; end++)
			must(close(made[end]));
	}
	qsort(times, (size_t)forks, sizeof *times, by_size);
	printf("faults of a fork: %.2f\n", (double)copied / forks);
	printf("pages of a child: %d\n", pages);
	printf("mappings: %d\n", mappings());
	/* Not for the test: nothing about time is the same twice. */
	if (count > 2)
		printf("microseconds of a fork: %.1f\n", times[forks / 2] / 1e3);
	return verdict();
}
