/*
 * Workers of which one sends what it accepts to another process, by SCM_RIGHTS, and closes it: it
 * holds nothing, and is the one that holds least (--order least) from the connection on that each
 * other worker has one.
 *
 *     passing
 */
#include "listening.h"
#include <poll.h>
#include <sys/mman.h>

enum { WORKERS = 3, CONNECTIONS = 60 };

/* How it closes: by close(2), by number, by a duplicate of another, with others, or in a thread. */
enum how { CLOSE, BY_NUMBER, BY_DUPLICATE, BY_RANGE, BY_THREAD, HOWS };
static const char *const how_names[] = {"close", "by number", "dup2", "close_range", "in a thread"};

static void *close_it(void *fd)
{
	must(close(*(int *)fd));
	return NULL;
}

static void close_by(enum how how, int fd, int other)
{
	pthread_t closer;
	switch (how) {
	case BY_NUMBER:
		must(syscall(SYS_close, fd));
		break;
	case BY_DUPLICATE:
		must(dup2(other, fd));
		must(close(fd));
		break;
	case BY_RANGE:
		must(close_range((unsigned)fd, (unsigned)fd, 0));
		break;
	case BY_THREAD:
		must_be_zero(pthread_create(&closer, NULL, close_it, &fd));
		must_be_zero(pthread_join(closer, NULL));
		break;
	default:
		must(close(fd));
	}
}

static _Noreturn void serve(int listener, int to, int polls, enum how how, atomic_int *accepted)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	must(watch_new(set, listener, EPOLLIN, 'l'));
	for (;;) {
		struct pollfd one = {listener, POLLIN, 0};
		struct epoll_event event;
		must(polls ? poll(&one, 1, -1) : epoll_wait(set, &event, 1, -1));
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd == -1)
			continue;
		must(write(fd, "x", 1));
		if (to >= 0) {
			must(pass(to, fd));
			close_by(how, fd, to);
		}
		atomic_fetch_add(accepted, 1);
	}
}

/* Until this many connections are served, and all workers sleep again. */
static void until_served(const pid_t *workers, const atomic_int *accepted, int connections)
{
	for (int served = 0; served < connections; sleep_ms(1)) {
		served = 0;
		for (int i = 0; i < WORKERS; i++)
			served += atomic_load(&accepted[i]);
	}
	for (int i = 0; i < WORKERS; i++)
		until_process_asleep(workers[i]);
}

static void show_passing(int polls, enum how how)
{
	int listener = listen_on(AF_INET), ends[2], clients[CONNECTIONS];
	atomic_int *accepted = mmap(NULL, WORKERS * sizeof *accepted, PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t workers[WORKERS + 1];
	must(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends));
	for (int i = 0; i <= WORKERS; i++) {
		workers[i] = must(fork());
		if (workers[i] == 0 && i < WORKERS)
			serve(listener, i == 0 ? ends[1] : -1, polls, how, &accepted[i]);
		while (workers[i] == 0)
			receive(ends[0]);
	}
	sleep_ms(50);
	for (int i = 0; i < CONNECTIONS; i++) {
		char byte;
		clients[i] = connect_to(listener);
		must(read(clients[i], &byte, 1));
		until_served(workers, accepted, i + 1);
	}
	int others = atomic_load(&accepted[1]) + atomic_load(&accepted[2]);
	printf("counts: %s, %s: %d passed on, %d kept\n", polls ? "poll" : "epoll", how_names[how],
	       atomic_load(&accepted[0]), others);
	/* One each, and a few beside a busy machine; a third each where it were not known. */
	yes("the one that passes them on holds nothing", others < CONNECTIONS / 3);
	for (int i = 0; i < CONNECTIONS; i++)
		must(close(clients[i]));
	kill_workers(workers, WORKERS + 1);
	must(munmap(accepted, WORKERS * sizeof *accepted));
	must(close(listener));
	close_both(ends);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	for (int polls = 0; polls < 2; polls++)
		for (enum how how = CLOSE; how < HOWS; how++)
			show_passing(polls, how);
	return verdict();
}
