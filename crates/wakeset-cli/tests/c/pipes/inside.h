/*
 * What goes on while both ends stay: standard streams, small stacks, handlers, threads and forks.
 */
#ifndef PIPES_INSIDE_H
#define PIPES_INSIDE_H

#include "ends.h"
#include <limits.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/wait.h>

/* libc's streams use the first three numbers without calling what a library can replace. */
static void show_streams(void)
{
	heading("the numbers of the standard streams");
	for (int way = 0; way < 3; way++) {
		fflush(stdout);
		pid_t child = must(fork());
		if (child == 0) {
			int ends[2] = {-1, -1};
			char text[8] = "";
			alarm(10);
			must(close(0));
			if (way == 2)
				must(close(1));
			way == 1 ? make_sockets(ends, O_NONBLOCK) : make_pipe(ends, O_NONBLOCK);
			if (ends[0] != 0)
				_exit(9);
			if (way < 2) {
				put(ends[1], "a\n");
				_exit(fgets(text, sizeof text, stdin) && text[0] == 'a' ? 7 : 8);
			}
			puts("a");
			fflush(stdout);
			_exit(ends[1] == 1 && read(0, text, 2) == 2 && text[0] == 'a' ? 7 : 8);
		}
		number("read", 7, finish_child(child));
	}
}

/* ---- small stacks ---- */

/*
 * What a program does with a pipe of its own on a stack of the least size: short and long writes,
 * reads, a set, and what moves it.
 */
static void use_pipe(int way)
{
	static char bytes[5000];
	int ends[2], set = epoll_create1(EPOLL_CLOEXEC);
	if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) == -1)
		return;
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (char)(i * 3);
	watch_new(set, ends[0], EPOLLIN | EPOLLET, 'a');
	static const size_t lengths[] = {1, 50, 500, 4090, 5000};
	if (write(ends[1], bytes, lengths[way % 5]) < 0)
		return;
	struct epoll_event event;
	epoll_wait(set, &event, 1, 0);
	if (way % 3 == 0) {
		poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, 0);
	} else if (way % 3 == 1) {
		close(dup(ends[1]));
	}
	while (read(ends[0], bytes, sizeof bytes) > 0)
		;
	close(ends[1]);
	close(ends[0]);
	close(set);
}

enum { WAYS = 15 };

static void *use_pipe_in_thread(void *way)
{
	use_pipe((int)(intptr_t)way);
	return NULL;
}

static int handled_way;

static void use_pipe_in_handler(int signal)
{
	(void)signal;
	use_pipe(handled_way);
}

static void show_small_stacks(void)
{
	enum { BELOW = 32768, PATTERN = 0x5a };
	size_t frame = getauxval(AT_MINSIGSTKSZ), size = frame > 4096 ? frame + 4096 : 8192;
	unsigned char *memory = aligned_alloc(4096, BELOW + 65536);
	struct sigaction action = {.sa_handler = use_pipe_in_handler, .sa_flags = SA_ONSTACK};
	pthread_attr_t attributes;
	heading("small stacks");
	must_be_zero(pthread_attr_init(&attributes));
	must_be_zero(pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN));
	must(sigaction(SIGUSR2, &action, NULL));
	stack_t before, stack = {.ss_sp = memory + BELOW, .ss_size = size};
	must(sigaltstack(&stack, &before));
	for (int way = 0; way < WAYS; way++) {
		pthread_t thread;
		must_be_zero(pthread_create(&thread, &attributes, use_pipe_in_thread, (void *)(intptr_t)way));
		must_be_zero(pthread_join(thread, NULL));
		handled_way = way;
		memset(memory, PATTERN, BELOW);
		must(raise(SIGUSR2));
		long overrun = BELOW;
		while (overrun > 0 && memory[BELOW - overrun] == PATTERN)
			overrun--;
		number("bytes below the signal stack", 0, overrun);
	}
	must(sigaltstack(&before, NULL));
	must_be_zero(pthread_attr_destroy(&attributes));
	free(memory);
}

static int handler_end = -1;
static atomic_long raised;

static void write_in_handler(int signal)
{
	int saved = errno;
	char byte = (char)signal;
	if (write(handler_end, &byte, 1) == 1)
		atomic_fetch_add(&raised, 1);
	errno = saved;
}

static void show_handler(void)
{
	int ends[2], set = must(epoll_create1(EPOLL_CLOEXEC));
	long heard = 0, own = 0;
	heading("a handler that writes");
	make_pipe(ends, O_NONBLOCK);
	handler_end = ends[1];
	must(watch_new(set, ends[0], EPOLLIN | EPOLLET, 'a'));
	struct sigaction action = {.sa_handler = write_in_handler, .sa_flags = SA_RESTART};
	must(sigaction(SIGALRM, &action, NULL));
	must(setitimer(ITIMER_REAL, &(struct itimerval){{0, 100}, {0, 100}}, NULL));
	for (int64_t end = now() + 300 * 1000000LL; now() < end;) {
		struct epoll_event event;
		char bytes[64];
		/* Different bytes, so that the handler interrupts every way of a write. */
		if (write(ends[1], "own", 3) == 3)
			own += 3;
		if (epoll_wait(set, &event, 1, 10) == 1)
			for (ssize_t got; (got = read(ends[0], bytes, sizeof bytes)) > 0;)
				heard += got;
	}
	must(setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL));
	yes("it ran", atomic_load(&raised) > 0);
	heard += there(ends[0]);
	number("bytes that are missing", 0, atomic_load(&raised) + own - heard);
	close_both(ends);
	must(close(set));
}

/* ---- threads and forks ---- */

enum { WRITERS = 2, EACH = 4000 };

static void *write_many(void *argument)
{
	int fd = *(int *)argument;
	for (int i = 0; i < EACH;) {
		if (write(fd, i % 7 ? "x" : "yz", i % 7 ? 1 : 2) > 0)
			i++;
		else
			sched_yield();
	}
	return NULL;
}

static void show_threads(void (*make)(int[2], int), const char *what)
{
	printf("%s\n", what);
	for (int round = 0; round < 10; round++) {
		int ends[2], set = must(epoll_create1(EPOLL_CLOEXEC));
		struct thread writers[WRITERS];
		long expected = 0, heard = 0;
		for (int i = 0; i < EACH; i++)
			expected += WRITERS * (i % 7 ? 1 : 2);
		make(ends, O_NONBLOCK);
		must(watch_new(set, ends[0], EPOLLIN | (round % 2 ? EPOLLET : 0), 'a'));
		for (int i = 0; i < WRITERS; i++)
			start(&writers[i], write_many, &ends[1]);
		int forks = 0;
		while (heard < expected) {
			struct epoll_event event;
			char bytes[64];
			if (must(epoll_wait(set, &event, 1, 5000)) == 0)
				break;
			for (ssize_t got; (got = read(ends[0], bytes, sizeof bytes)) > 0;)
				heard += got;
			if (forks < 1 && heard > expected / 10 * round) {
				forks++;
				pid_t child = must(fork());
				if (child == 0)
					_exit(0);
				finish_child(child);
			}
		}
		if (heard != expected)
			number("bytes", expected, heard);
		if (heard < expected)
			give_up();
		for (int i = 0; i < WRITERS; i++)
			finish(&writers[i]);
		number("bytes left", 0, there(ends[0]));
		close_both(ends);
		must(close(set));
	}
}

#endif
