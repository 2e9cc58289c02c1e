/*
 * Every kind of object and every kind of wait, once, in whatever surroundings: it uses neither
 * /proc nor files, and what a call says is printed and not judged. The surroundings may be such
 * that a call fails; then it has to fail in the same way under `wakeset run`.
 */
#include "show.h"
#include <arpa/inet.h>
#include <sched.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>

static void say(const char *name, long long result)
{
	printf("%s: %s\n", name, outcome(result));
}
#define SAY(call) (errno = 0, say(#call, (call)))

static int open_one(const char *name, int fd)
{
	printf("%s: %s\n", name, fd >= 0 ? "fd" : outcome(-1));
	return fd;
}
#define OPEN(call) (errno = 0, open_one(#call, (call)))

static atomic_int handled;
static void handler(int signal)
{
	(void)signal;
	atomic_fetch_add(&handled, 1);
}

/* Writes after a while: its parameter is a descriptor. */
static void *write_later(void *argument)
{
	sleep_ms(30);
	uint64_t one = 1;
	if (write((int)(intptr_t)argument, &one, sizeof one) < 0)
		printf("late write: %s\n", outcome(-1));
	return NULL;
}

static void in_time_from_a_thread(const char *name, int fd, const char *(*wait)(int), int on)
{
	pthread_t thread;
	int error = pthread_create(&thread, NULL, write_later, (void *)(intptr_t)fd);
	if (error) {
		printf("no thread: %s\n", strerrorname_np(error));
		write_later((void *)(intptr_t)fd);
	}
	printf("%s: %s\n", name, wait(on));
	if (!error)
		pthread_join(thread, NULL);
}

static const char *wait_long(int set)
{
	return sorted(set, 16, 10000);
}

static const char *wait_masked(int set)
{
	struct epoll_event events[16];
	sigset_t none;
	sigemptyset(&none);
	return events_text(events, epoll_pwait(set, events, 16, 10000, &none));
}

static const char *wait_exactly(int set)
{
	struct epoll_event events[16];
	struct timespec limit = {10, 1};
	return events_text(events, epoll_pwait2(set, events, 16, &limit, NULL));
}

static const char *wait_by_poll(int fd)
{
	struct pollfd entry = {fd, POLLIN, 0};
	int found = poll(&entry, 1, 10000);
	return found == 1 ? "polled" : outcome(found);
}

static const char *wait_by_read(int fd)
{
	return outcome(take(fd));
}

static void show_counters(void)
{
	heading("eventfds");
	int fd = OPEN(eventfd(3, EFD_NONBLOCK)), semaphore = OPEN(eventfd(2, EFD_SEMAPHORE));
	SAY(take(fd));
	SAY(take(fd));
	SAY(add(fd, 5));
	SAY(take(fd));
	SAY(take(semaphore));
	SAY(take(semaphore));
	int blocking = OPEN(eventfd(0, 0));
	in_time_from_a_thread("read", blocking, wait_by_read, blocking);
	in_time_from_a_thread("poll", blocking, wait_by_poll, blocking);
	SAY(take(blocking));
	int copy = OPEN(dup(fd));
	SAY(add(copy, 2));
	SAY(take(fd));
	SAY(fcntl(fd, F_GETFL) & O_NONBLOCK);
	close(copy), close(fd), close(semaphore), close(blocking);
}

static void show_timers(void)
{
	heading("timerfds");
	int fd = OPEN(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	struct itimerspec soon = {.it_value.tv_nsec = 1000000}, seen = {.it_value.tv_sec = 0};
	SAY(take(fd));
	SAY(timerfd_settime(fd, 0, &soon, NULL));
	int set = OPEN(epoll_create1(0));
	SAY(watch_new(set, fd, EPOLLIN, 't'));
	printf("wait: %s\n", wait_long(set));
	SAY(take(fd));
	SAY(timerfd_gettime(fd, &seen));
	soon.it_value.tv_sec = 100;
	SAY(timerfd_settime(fd, 0, &soon, NULL));
	close(dup(fd));
	SAY(timerfd_gettime(fd, &seen));
	yes("still far", seen.it_value.tv_sec >= 90);
	close(fd), close(set);
}

static void show_pair(const char *name, int ends[2], int made)
{
	char text[8] = "";
	heading(name);
	say("made", made);
	if (made < 0)
		return;
	SAY(write(ends[1], "abc", 3));
	SAY(read(ends[0], text, 2));
	int set = OPEN(epoll_create1(EPOLL_CLOEXEC));
	SAY(watch_new(set, ends[0], EPOLLIN | EPOLLET, 'p'));
	SAY(watch_new(set, ends[1], EPOLLOUT, 'w'));
	printf("ready: %s\n", sorted(set, 16, 0));
	printf("again: %s\n", sorted(set, 16, 0));
	in_time_from_a_thread("poll", ends[1], wait_by_poll, ends[0]);
	/* Another descriptor: with bytes in it. */
	int copy = OPEN(dup(ends[0]));
	SAY(read(copy, text, sizeof text));
	SAY(close(ends[1]));
	SAY(read(copy, text, sizeof text));
	SAY(read(copy, text, sizeof text));
	close(copy), close(ends[0]), close(set);
}

static void show_sets(void)
{
	heading("sets");
	int set = OPEN(epoll_create(7)), outer = OPEN(epoll_create1(0)), fd = OPEN(eventfd(0, 0)),
	    kernels[2] = {-1, -1};
	SAY(watch_new(set, fd, EPOLLIN, 'e'));
	SAY(watch_new(outer, set, EPOLLIN, 's'));
	SAY(epoll_wait(set, (struct epoll_event[1]){{0}}, 1, 0));
	SAY(epoll_wait(set, (struct epoll_event[1]){{0}}, 1, 5));
	in_time_from_a_thread("wait", fd, wait_long, set);
	SAY(take(fd));
	in_time_from_a_thread("around", fd, wait_long, outer);
	SAY(take(fd));
	in_time_from_a_thread("pwait", fd, wait_masked, set);
	SAY(take(fd));
	in_time_from_a_thread("pwait2", fd, wait_exactly, set);
	SAY(take(fd));
	heading("with a descriptor of the kernel's");
	SAY(pipe2(kernels, O_DIRECT));
	SAY(watch_new(set, kernels[0], EPOLLIN, 'k'));
	printf("nothing: %s\n", sorted(set, 16, 0));
	printf("soon: %s\n", sorted(set, 16, 5));
	in_time_from_a_thread("here", fd, wait_long, set);
	in_time_from_a_thread("there", kernels[1], wait_long, set);
	SAY(take(fd));
	printf("left: %s\n", sorted(set, 16, 0));
	struct itimerspec soon = {.it_value.tv_nsec = 3000000};
	/* Where it cannot be set, a read that blocks would never end. */
	int timer = OPEN(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	SAY(take(kernels[0]));
	SAY(timerfd_settime(timer, 0, &soon, NULL));
	SAY(watch_new(set, timer, EPOLLIN, 't'));
	printf("a timer: %s\n", wait_long(set));
	SAY(take(timer));
	SAY(watch(set, EPOLL_CTL_DEL, fd, 0, 0));
	SAY(watch(set, EPOLL_CTL_DEL, fd, 0, 0));
	close(set), close(outer), close(fd), close(kernels[0]), close(kernels[1]), close(timer);
}

static void *connect_later(void *argument)
{
	int client = socket(AF_UNIX, SOCK_STREAM, 0);
	sleep_ms(30);
	if (connect(client, argument, sizeof(sa_family_t) + 20) < 0)
		printf("connect: %s\n", outcome(-1));
	return (void *)(intptr_t)client;
}

/* poll(2), select(2) and accept(2) of a listener. */
static void show_listeners(void)
{
	heading("listeners");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path + 1, 20, "wakeset-%010d", (int)getpid());
	int listener = OPEN(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
	SAY(bind(listener, (void *)&address, sizeof(sa_family_t) + 20));
	SAY(listen(listener, 5));
	SAY(accept(listener, NULL, NULL));
	for (int way = 0; way < 3; way++) {
		pthread_t thread;
		void *client = NULL;
		int set = -1;
		int error = pthread_create(&thread, NULL, connect_later, &address);
		if (error)
			client = connect_later(&address);
		if (way == 0) {
			struct pollfd entry = {listener, POLLIN, 0};
			SAY(poll(&entry, 1, 10000));
		} else if (way == 1) {
			fd_set wanted;
			FD_ZERO(&wanted);
			FD_SET(listener, &wanted);
			struct timeval limit = {10, 0};
			SAY(select(listener + 1, &wanted, NULL, NULL, &limit));
		} else {
			set = OPEN(epoll_create1(0));
			SAY(watch_new(set, listener, EPOLLIN, 'l'));
			printf("wait: %s\n", wait_long(set));
		}
		if (!error)
			pthread_join(thread, &client);
		int connection = OPEN(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
		close(connection), close((int)(intptr_t)client), close(set);
	}
	close(listener);
}

static void show_signals(void)
{
	heading("signals");
	struct sigaction action = {.sa_handler = handler};
	SAY(sigaction(SIGALRM, &action, NULL));
	int set = OPEN(epoll_create1(0)), fd = OPEN(eventfd(0, 0));
	SAY(watch_new(set, fd, EPOLLIN, 'e'));
	struct itimerval soon = {.it_value.tv_usec = 20000};
	SAY(setitimer(ITIMER_REAL, &soon, NULL));
	printf("interrupted: %s\n", wait_long(set));
	SAY(setitimer(ITIMER_REAL, &soon, NULL));
	SAY(take(fd));
	number("handled", 2, atomic_load(&handled));
	close(set), close(fd);
}

static void show_processes(void)
{
	heading("processes");
	int fd = OPEN(eventfd(1, EFD_NONBLOCK)), set = OPEN(epoll_create1(0));
	int ends[2] = {-1, -1}, status = -1;
	SAY(watch_new(set, fd, EPOLLIN, 'e'));
	SAY(pipe(ends));
	SAY(write(ends[1], "x", 1));
	pid_t child = fork();
	if (child == 0) {
		int own = eventfd(4, 0);
		char byte = 0;
		_exit(add(fd, 2) == 8 && take(own) == 4 && read(ends[0], &byte, 1) == 1 && byte == 'x' ? 7 : 8);
	}
	yes("a child", child > 0);
	waitpid(child, &status, 0);
	number("its status", 7, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	printf("ready: %s\n", ready(set));
	SAY(take(fd));
	close(fd), close(set), close(ends[0]), close(ends[1]);
}

int main(void)
{
	int ends[2] = {-1, -1};
	errno = 0;
	show_counters();
	show_timers();
	show_pair("a pipe", ends, pipe(ends));
	show_pair("a pipe that does not block", ends, pipe2(ends, O_NONBLOCK));
	int back[2] = {-1, -1}, made = socketpair(AF_UNIX, SOCK_STREAM, 0, back);
	show_pair("a socket pair", back, made);
	show_sets();
	show_listeners();
	show_signals();
	show_processes();
	return 0;
}
