/*
 * The program of ci/polls: what one call of poll(2) or select(2) takes, through libc alone.
 *
 *     polls [CALLS]
 *
 * For each function, number of descriptors and case it makes so many calls (20,000 if not given)
 * and prints the case and the nanoseconds of one call. The descriptors are UDP sockets, which are
 * the kernel's on both sides; in the cases "mixed" the last one is an eventfd with nothing in it.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>

enum { MOST = 100, CHUNKS = 10 };

enum function { POLL, PPOLL, SELECT, PSELECT, FUNCTIONS };
static const char *const functions[] = {"poll", "ppoll", "select", "pselect"};

static const struct kind {
	const char *name;
	int is_mixed, is_ready, has_time;
} kinds[] = {
	{"nothing ready, no time", 0, 0, 0},
	{"one ready, no time", 0, 1, 0},
	{"one ready, no limit", 0, 1, 1},
	{"mixed, nothing ready, no time", 1, 0, 0},
};

static int sockets[MOST], counter;
static struct pollfd entries[MOST];
static fd_set read_set, write_set;
static int highest;

static int must(int result)
{
	if (result < 0) {
		perror("polls");
		exit(1);
	}
	return result;
}

static void prepare(const struct kind *kind, int n)
{
	FD_ZERO(&read_set);
	FD_ZERO(&write_set);
	highest = 0;
	for (int i = 0; i < n; i++) {
		int last = i == n - 1;
		int fd = last && kind->is_mixed ? counter : sockets[i];
		/* A socket without data can be written to, and not read. */
		int writes = last && kind->is_ready;
		entries[i] = (struct pollfd){.fd = fd, .events = writes ? POLLOUT : POLLIN};
		FD_SET(fd, writes ? &write_set : &read_set);
		highest = fd > highest ? fd : highest;
	}
}

static int call(enum function function, const struct kind *kind, int n)
{
	struct timespec no_time = {0};
	struct timeval none = {0};
	fd_set reads, writes;
	switch (function) {
	case POLL:
		return poll(entries, n, kind->has_time ? -1 : 0);
	case PPOLL:
		return ppoll(entries, n, kind->has_time ? NULL : &no_time, NULL);
	case SELECT:
		reads = read_set;
		writes = write_set;
		return select(highest + 1, &reads, &writes, NULL, kind->has_time ? NULL : &none);
	default:
		reads = read_set;
		writes = write_set;
		return pselect(highest + 1, &reads, &writes, NULL, kind->has_time ? NULL : &no_time,
		               NULL);
	}
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

/* The fastest of some stretches, because all that disturbs one makes it slower. */
static double measure(enum function function, const struct kind *kind, int n, int calls)
{
	double best = 1e18;
	prepare(kind, n);
	for (int chunk = 0; chunk < CHUNKS; chunk++) {
		double begin = now();
		for (int i = 0; i < calls / CHUNKS; i++) {
			if (call(function, kind, n) != kind->is_ready) {
				fprintf(stderr, "polls: %s, %d: %s\n", functions[function], n, kind->name);
				exit(1);
			}
		}
		double took = (now() - begin) / (calls / CHUNKS);
		best = took < best ? took : best;
	}
	return best;
}

int main(int argc, char **argv)
{
	static const int numbers[] = {1, 2, 10, MOST};
	int calls = argc > 1 ? atoi(argv[1]) : 20000;
	if (calls < CHUNKS)
		return 2;
	counter = must(eventfd(0, 0));
	for (int i = 0; i < MOST; i++)
		sockets[i] = must(socket(AF_INET, SOCK_DGRAM, 0));
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
		for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
			for (int f = 0; f < FUNCTIONS; f++)
				printf("%s; %d; %s; %.1f\n", kinds[k].name, numbers[i], functions[f],
				       measure(f, &kinds[k], numbers[i], calls));
	return 0;
}
