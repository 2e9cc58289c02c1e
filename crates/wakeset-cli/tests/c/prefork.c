/*
 * Prefork servers that no turn can be kept for, or only by some of their workers: they have to
 * serve as they always did.
 */
#include "by_instruction.h"
#include "listening.h"
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { WORKERS = 4, QUESTIONS = 60 };

/* What the workers of one server count together. */
struct counts {
	atomic_int served[WORKERS];
	atomic_int inside, most;
};
static struct counts *counts;

static void begin(const char *name)
{
	heading(name);
	counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED)
		must(-1);
}

static int served_by_all(void)
{
	int served = 0;
	for (int i = 0; i < WORKERS; i++)
		served += atomic_load(&counts->served[i]);
	return served;
}

/* One connection, answered; 0 if there is none. */
static int answer(int listener, int worker)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd == -1) {
		if (errno != EAGAIN)
			must(-1);
		return 0;
	}
	atomic_fetch_add(&counts->served[worker], 1);
	must(write(fd, "x", 1));
	must(close(fd));
	return 1;
}

static void ask_all(int listener)
{
	int answered = 0;
	for (int i = 0; i < QUESTIONS; i++)
		answered += ask(listener, '?');
	number("answered", QUESTIONS, answered);
	number("served", QUESTIONS, served_by_all());
}

static void end_workers(const pid_t *workers)
{
	for (int i = 0; i < WORKERS; i++) {
		must(kill(workers[i], SIGKILL));
		must(waitpid(workers[i], NULL, 0));
	}
	must(munmap(counts, sizeof *counts));
}

/* ---- one set that all workers wait in ---- */

/*
 * Made before the fork, so that it is one set for all, and nobody may take its watch away for a
 * moment.
 */
static void show_one_set(uint32_t events, const char *name)
{
	begin(name);
	int listener = listen_on(AF_INET), set = must(epoll_create1(0));
	must(watch_new(set, listener, events, 'l'));
	pid_t workers[WORKERS];
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = must(fork());
		while (workers[i] == 0) {
			struct epoll_event event;
			must(epoll_wait(set, &event, 1, -1));
			atomic_fetch_add(&counts->inside, 1);
			while (answer(listener, i) && events & EPOLLET)
				;
			if (events & EPOLLONESHOT)
				must(watch(set, EPOLL_CTL_MOD, listener, events, 'l'));
			atomic_fetch_sub(&counts->inside, 1);
		}
	}
	ask_all(listener);
	/* The last answer comes before its worker has armed the watch again. */
	while (atomic_load(&counts->inside))
		usleep(1000);
	/* A worker that is killed in its sleep leaves the set as it was. */
	must(kill(workers[0], SIGKILL));
	must(waitpid(workers[0], NULL, 0));
	workers[0] = must(fork());
	if (workers[0] == 0)
		for (;;)
			pause();
	for (int i = 0; i < WORKERS; i++)
		atomic_store(&counts->served[i], 0);
	ask_all(listener);
	number("by who is left", 0, atomic_load(&counts->served[0]));
	CALL("MOD", "0", watch(set, EPOLL_CTL_MOD, listener, events, 'm'));
	end_workers(workers);
	must(close(set));
	must(close(listener));
}

/* ---- one shot ---- */

static int oneshot_set, oneshot_listener;

static void *serve_oneshot(void *argument)
{
	int worker = (int)(intptr_t)argument;
	for (;;) {
		struct epoll_event event;
		must(epoll_wait(oneshot_set, &event, 1, -1));
		if (event.data.u64 == 'e')
			return NULL;
		/* Until it is armed again, nobody else may be told. */
		int inside = atomic_fetch_add(&counts->inside, 1) + 1, most = atomic_load(&counts->most);
		if (inside > most)
			atomic_store(&counts->most, inside);
		answer(oneshot_listener, worker);
		sched_yield();
		atomic_fetch_sub(&counts->inside, 1);
		must(watch(oneshot_set, EPOLL_CTL_MOD, oneshot_listener, EPOLLIN | EPOLLONESHOT, 'l'));
	}
}

/* Threads that share a set and arm the listener again when they have taken their connection. */
static void show_oneshot(void)
{
	begin("threads that arm a listener again");
	int ends[2];
	must(pipe2(ends, O_CLOEXEC));
	oneshot_listener = listen_on(AF_INET6);
	oneshot_set = must(epoll_create1(EPOLL_CLOEXEC));
	must(watch_new(oneshot_set, oneshot_listener, EPOLLIN | EPOLLONESHOT, 'l'));
	must(watch_new(oneshot_set, ends[0], EPOLLIN, 'e'));
	struct thread threads[WORKERS];
	for (int i = 0; i < WORKERS; i++)
		start(&threads[i], serve_oneshot, (void *)(intptr_t)i);
	ask_all(oneshot_listener);
	number("at a time", 1, atomic_load(&counts->most));
	must(write(ends[1], "e", 1));
	for (int i = 0; i < WORKERS; i++)
		finish(&threads[i]);
	must(munmap(counts, sizeof *counts));
	must(close(ends[0]));
	must(close(ends[1]));
	must(close(oneshot_set));
	must(close(oneshot_listener));
}

/* ---- a listener that exec hands on ---- */

enum { FIRST_PASSED = 3 };

/*
 * A worker as a supervisor starts it: descriptor 3 is the listener, LISTEN_FDS says so, and
 * standard input tells it to stop.
 */
static int serve_activated(int with_set)
{
	const char *passed = getenv("LISTEN_FDS");
	if (!passed || strcmp(passed, "1") != 0)
		return 1;
	int set = -1;
	if (with_set) {
		set = must(epoll_create1(EPOLL_CLOEXEC));
		must(watch_new(set, FIRST_PASSED, EPOLLIN, 'l'));
		must(watch_new(set, STDIN_FILENO, EPOLLIN, 'i'));
	}
	for (;;) {
		struct pollfd fds[] = {{FIRST_PASSED, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
		struct epoll_event event;
		if (with_set)
			must(epoll_wait(set, &event, 1, -1));
		else
			must(poll(fds, 2, -1));
		if (with_set ? event.data.u64 == 'i' : fds[1].revents != 0)
			return 0;
		int fd = accept4(FIRST_PASSED, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0) {
			must(write(fd, "x", 1));
			must(close(fd));
		}
	}
}

static void show_activated(void)
{
	heading("a listener that exec hands on");
	int listener = listen_on(AF_UNIX), ends[2], answered = 0;
	must(pipe2(ends, O_CLOEXEC));
	pid_t workers[WORKERS];
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = must(fork());
		if (workers[i])
			continue;
		/* It has waited on it before, under its own number. */
		struct pollfd one = {listener, POLLIN, 0};
		must(poll(&one, 1, 1));
		int high = must(fcntl(listener, F_DUPFD, 100));
		must(dup2(ends[0], STDIN_FILENO));
		must(dup2(high, FIRST_PASSED));
		must(close(high));
		must(setenv("LISTEN_FDS", "1", 1));
		char *arguments[] = {"prefork", i % 2 ? "set" : "poll", NULL};
		execv("/proc/self/exe", arguments);
		_exit(127);
	}
	for (int i = 0; i < QUESTIONS; i++)
		answered += ask(listener, '?');
	number("answered", QUESTIONS, answered);
	/* Its end is what all of them read. */
	must(close(ends[1]));
	for (int i = 0; i < WORKERS; i++) {
		int status;
		must(waitpid(workers[i], &status, 0));
		number("status", 0, status);
	}
	must(close(ends[0]));
	must(close(listener));
}

/* ---- calls that nobody sees ---- */

/*
 * Half of the workers make their system calls without libc: they are woken for every connection,
 * the others in turn.
 */
static void show_unseen(void)
{
	begin("workers that call the kernel themselves");
	int listener = listen_on(AF_INET);
	pid_t workers[WORKERS];
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = must(fork());
		while (workers[i] == 0) {
			struct pollfd one = {listener, POLLIN, 0};
			if (i % 2) {
				must(poll(&one, 1, -1));
				answer(listener, i);
				continue;
			}
			if (by_instruction(SYS_poll, (long)&one, 1, -1, 0, 0) != 1)
				_exit(1);
			long fd = by_instruction(SYS_accept4, listener, 0, 0, SOCK_CLOEXEC, 0);
			if (fd < 0)
				continue;
			atomic_fetch_add(&counts->served[i], 1);
			by_instruction(SYS_write, fd, (long)"x", 1, 0, 0);
			by_instruction(SYS_close, fd, 0, 0, 0, 0);
		}
	}
	ask_all(listener);
	end_workers(workers);
	must(close(listener));
}

/* ---- poll, and then a blocking accept ---- */

/*
 * A worker whose connection somebody else has taken hangs in accept(2), where the next one finds
 * it.
 */
static void show_blocking(void)
{
	begin("poll before a blocking accept");
	int listener = listen_on(AF_INET);
	must(set_blocking(listener));
	pid_t workers[WORKERS];
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = must(fork());
		while (workers[i] == 0) {
			struct pollfd one = {listener, POLLIN, 0};
			must(poll(&one, 1, -1));
			answer(listener, i);
		}
	}
	ask_all(listener);
	end_workers(workers);
	must(close(listener));
}

/* ---- what a wait in turn needs, and does not get ---- */

/*
 * The last number, kept for when it is needed by a descriptor that makes way for each connection.
 */
static int reserve = -1;

static void show_shortage(const char *name, void (*bring_about)(int listener))
{
	begin(name);
	int listener = listen_on(AF_INET);
	pid_t workers[WORKERS];
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = must(fork());
		if (workers[i] == 0)
			bring_about(listener);
		while (workers[i] == 0) {
			struct pollfd one = {listener, POLLIN, 0};
			must(poll(&one, 1, -1));
			if (reserve >= 0)
				must(close(reserve));
			answer(listener, i);
			if (reserve >= 0)
				must(fcntl(listener, F_DUPFD_CLOEXEC, reserve));
		}
	}
	ask_all(listener);
	end_workers(workers);
	must(close(listener));
}

static void leave_no_numbers(int listener)
{
	struct rlimit limit;
	must(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = 32;
	must(setrlimit(RLIMIT_NOFILE, &limit));
	for (int fd; (fd = fcntl(listener, F_DUPFD_CLOEXEC, 0)) >= 0;)
		reserve = fd;
}

static void forbid_sets(int listener)
{
	(void)listener;
	refuse(SYS_epoll_create1, -1, EPERM);
}

static void forbid_watches(int listener)
{
	(void)listener;
	refuse(SYS_epoll_ctl, -1, ENOSYS);
}

static void forbid_waits(int listener)
{
	(void)listener;
	refuse(SYS_epoll_pwait, -1, EPERM);
}

/* As a daemon does that closes whatever it may have inherited, though it has waited already. */
static void close_all(int listener)
{
	struct pollfd one = {listener, POLLIN, 0};
	must(poll(&one, 1, 1));
	for (int fd = 3; fd < 4096; fd++)
		if (fd != listener)
			close(fd);
	must(poll(&one, 1, 1));
	must((int)syscall(SYS_close_range, (unsigned)listener + 1, ~0U, 0));
}

int main(int count, char **arguments)
{
	signal(SIGPIPE, SIG_IGN);
	if (count > 1)
		return serve_activated(strcmp(arguments[1], "set") == 0);
	show_one_set(EPOLLIN, "one set for all workers");
	show_one_set(EPOLLIN | EPOLLET, "one set for all workers, edges");
	show_one_set(EPOLLIN | EPOLLONESHOT, "one set for all workers, one shot");
	show_oneshot();
	show_activated();
	show_unseen();
	show_blocking();
	show_shortage("no descriptor to spare", leave_no_numbers);
	show_shortage("a sandbox without epoll_create1", forbid_sets);
	show_shortage("a sandbox without epoll_ctl", forbid_watches);
	show_shortage("a sandbox without epoll_pwait", forbid_waits);
	show_shortage("a daemon that closes everything", close_all);
	return verdict();
}
