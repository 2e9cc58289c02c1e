/*
 * The program of ci/polls: what one call of poll(2) or select(2) takes as a program makes it, by
 * what libc's own function takes, which no hook stands in front of.
 *
 *     polls [ROUNDS [CASE]]
 *
 * For each function, number of descriptors and case (whose name CASE is a part of) it makes so many
 * rounds (161 if not given) of three stretches of half a millisecond each, in another order each
 * time: libc's own function, the program's call, and libc's own again. It prints the case, the
 * nanoseconds of libc's, the ratio of the program's call, and the ratio of libc's second stretch,
 * which shows the noise; medians of the rounds.
 *
 * The descriptors are UDP sockets, which are the kernel's on both sides; in the cases "mixed" one
 * is an eventfd with nothing in it, first, in the middle or last. libc's own function finds it in
 * the kernel, empty as well.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>

enum { MOST = 100, MOST_ROUNDS = 1001, SIDES = 3, STRETCH = 500000 };

typedef int poll_function(struct pollfd *, nfds_t, int);
typedef int ppoll_function(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
typedef int select_function(int, fd_set *, fd_set *, fd_set *, struct timeval *);
typedef int pselect_function(int, fd_set *, fd_set *, fd_set *, const struct timespec *,
                             const sigset_t *);

static struct functions {
	poll_function *poll;
	ppoll_function *ppoll;
	select_function *select;
	pselect_function *pselect;
} hooked = {poll, ppoll, select, pselect}, own;

enum function { POLL, PPOLL, SELECT, PSELECT, FUNCTIONS };
static const char *const names[] = {"poll", "ppoll", "select", "pselect"};

enum place { NOWHERE, FIRST, MIDDLE, LAST };

static const struct kind {
	const char *name;
	enum place counter;
	int is_ready, has_time;
} kinds[] = {
	{"nothing ready, no time", NOWHERE, 0, 0},
	{"one ready, no time", NOWHERE, 1, 0},
	{"one ready, no limit", NOWHERE, 1, 1},
	{"mixed last, nothing ready, no time", LAST, 0, 0},
	{"mixed middle, nothing ready, no time", MIDDLE, 0, 0},
	{"mixed first, nothing ready, no time", FIRST, 0, 0},
	{"mixed last, one ready, no time", LAST, 1, 0},
	{"mixed last, one ready, no limit", LAST, 1, 1},
	{"mixed middle, one ready, no limit", MIDDLE, 1, 1},
	{"mixed first, one ready, no limit", FIRST, 1, 1},
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

/* Reads libc's symbols itself, because dlsym(3) finds the hooks. */
static int find_in_libc(struct dl_phdr_info *object, size_t size, void *unused)
{
	const ElfW(Dyn) *dynamic = NULL;
	const ElfW(Sym) *symbols = NULL;
	const char *strings = NULL;
	(void)size, (void)unused;
	if (!strstr(object->dlpi_name, "/libc.so.6"))
		return 0;
	for (int i = 0; i < object->dlpi_phnum; i++)
		if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
		if (dynamic->d_tag == DT_SYMTAB)
			symbols = (void *)dynamic->d_un.d_ptr;
		if (dynamic->d_tag == DT_STRTAB)
			strings = (void *)dynamic->d_un.d_ptr;
	}
	/* The names come right after the symbols. */
	for (const ElfW(Sym) *symbol = symbols; (const char *)symbol < strings; symbol++) {
		void *address = (void *)(object->dlpi_addr + symbol->st_value);
		const char *name = strings + symbol->st_name;
		if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC)
			continue;
		if (strcmp(name, "poll") == 0)
			own.poll = (poll_function *)address;
		else if (strcmp(name, "ppoll") == 0)
			own.ppoll = (ppoll_function *)address;
		else if (strcmp(name, "select") == 0)
			own.select = (select_function *)address;
		else if (strcmp(name, "pselect") == 0)
			own.pselect = (pselect_function *)address;
	}
	return 1;
}

static void prepare(const struct kind *kind, int n)
{
	static const int in_front[] = {[NOWHERE] = -1, [FIRST] = 0};
	int at = kind->counter == LAST ? n - 1
	         : kind->counter == MIDDLE ? n / 2 : in_front[kind->counter];
	/* A socket without data can be written to, and not read. */
	int ready = !kind->is_ready ? -1 : at == n - 1 ? n - 2 : n - 1;
	FD_ZERO(&read_set);
	FD_ZERO(&write_set);
	highest = 0;
	for (int i = 0; i < n; i++) {
		int fd = i == at ? counter : sockets[i];
		entries[i] = (struct pollfd){.fd = fd, .events = i == ready ? POLLOUT : POLLIN};
		FD_SET(fd, i == ready ? &write_set : &read_set);
		highest = fd > highest ? fd : highest;
	}
}

static inline int call(const struct functions *through, enum function function,
                       const struct kind *kind, int n)
{
	struct timespec no_time = {0};
	struct timeval none = {0};
	fd_set reads, writes;
	switch (function) {
	case POLL:
		return through->poll(entries, n, kind->has_time ? -1 : 0);
	case PPOLL:
		return through->ppoll(entries, n, kind->has_time ? NULL : &no_time, NULL);
	case SELECT:
		reads = read_set;
		writes = write_set;
		return through->select(highest + 1, &reads, &writes, NULL,
		                       kind->has_time ? NULL : &none);
	default:
		reads = read_set;
		writes = write_set;
		return through->pselect(highest + 1, &reads, &writes, NULL,
		                        kind->has_time ? NULL : &no_time, NULL);
	}
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

/* The nanoseconds of a call, in one stretch of so many. */
static double stretch(const struct functions *through, enum function function,
                      const struct kind *kind, int n, int calls)
{
	double begin = now();
	for (int i = 0; i < calls; i++) {
		if (call(through, function, kind, n) != kind->is_ready) {
			fprintf(stderr, "polls: %s, %d: %s\n", names[function], n, kind->name);
			exit(1);
		}
	}
	return (now() - begin) / calls;
}

static int by_value(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

static double median(double *values, int n)
{
	qsort(values, n, sizeof *values, by_value);
	return values[n / 2];
}

static void measure(enum function function, const struct kind *kind, int n, int rounds)
{
	static const struct functions *const sides[SIDES] = {&own, &hooked, &own};
	static double plain[MOST_ROUNDS], ours[MOST_ROUNDS], again[MOST_ROUNDS];
	prepare(kind, n);
	int calls = 1 + STRETCH / stretch(&own, function, kind, n, 200);
	for (int round = 0; round < rounds; round++) {
		double took[SIDES];
		for (int i = 0; i < SIDES; i++) {
			int side = (round + (round % 2 ? i : SIDES - i)) % SIDES;
			took[side] = stretch(sides[side], function, kind, n, calls);
		}
		plain[round] = took[0];
		ours[round] = took[1] / took[0];
		again[round] = took[2] / took[0];
	}
	printf("%s; %d; %s; %.1f; %.4f; %.4f\n", kind->name, n, names[function],
	       median(plain, rounds), median(ours, rounds), median(again, rounds));
}

int main(int argc, char **argv)
{
	static const int numbers[] = {1, 2, 10, MOST};
	int rounds = argc > 1 ? atoi(argv[1]) : 161;
	const char *part = argc > 2 ? argv[2] : "";
	if (rounds < 1 || rounds > MOST_ROUNDS)
		return 2;
	dl_iterate_phdr(find_in_libc, NULL);
	if (!own.poll || !own.ppoll || !own.select || !own.pselect) {
		fprintf(stderr, "polls: libc's own functions cannot be found\n");
		return 1;
	}
	counter = must(eventfd(0, 0));
	for (int i = 0; i < MOST; i++)
		sockets[i] = must(socket(AF_INET, SOCK_DGRAM, 0));
	/* An object with a higher number than all. */
	must(eventfd(0, 0));
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
		for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
			for (int f = 0; f < FUNCTIONS; f++)
				if (strstr(kinds[k].name, part) &&
				    numbers[i] > (kinds[k].counter && kinds[k].is_ready))
					measure(f, &kinds[k], numbers[i], rounds);
	return 0;
}
