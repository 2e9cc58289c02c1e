/*
 * What children of a fork do, in `forked.c`: each gets the address of a descriptor's number, and
 * returns its exit status.
 */
#ifndef FORKED_CHILDREN_H
#define FORKED_CHILDREN_H

#include "../show.h"
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

static const char *self = "/proc/self/exe";

/* Both ways of a conversation between parent and child, by the kernel alone. */
static int down[2], up[2];

static void say(int to, char what)
{
	must(write(to, &what, 1));
}

static void hear(int from)
{
	char what;
	if (read(from, &what, 1) != 1)
		must(-1);
}

/* A process has a second thread. */
static void *sleep_on(void *unused)
{
	for (;;)
		pause();
	return unused;
}

/* Of datagrams, which never live in process. */
static void make_conversation(void)
{
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, down));
	must(socketpair(AF_UNIX, SOCK_DGRAM, 0, up));
}

static int status_of(pid_t child)
{
	int status;
	must(child);
	must(waitpid(child, &status, 0));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Runs `act` in a child, and returns its exit status. */
static int in_child(int (*act)(void *), void *argument)
{
	pid_t child = fork();
	if (child == 0)
		_exit(act(argument));
	return status_of(child);
}

static int take_from(int fd)
{
	char text[16];
	snprintf(text, sizeof text, "%d", fd);
	execl(self, "forked", "take", text, NULL);
	return 98;
}

static void value_is(const char *name, const char *want, int counter)
{
	uint64_t value = 0;
	char text[64];
	snprintf(text, sizeof text, "%s", outcome(read(counter, &value, 8) == 8 ? (int)value : -1));
	show(name, want, text);
}

static int counter_of(unsigned value)
{
	return must(eventfd(value, EFD_CLOEXEC | EFD_NONBLOCK));
}

static void reports(const char *name, const char *want, int set)
{
	struct epoll_event event;
	CALL(name, want, epoll_wait(set, &event, 1, 0));
}

static int set_with(int fd, uint32_t events)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	struct epoll_event event = { .events = events, .data.fd = fd };
	must(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	return set;
}

/* ---- what a child does ---- */

static int nothing(void *fd)
{
	(void)fd;
	return 7;
}

static int write_three(void *fd)
{
	uint64_t three = 3;
	return write(*(int *)fd, &three, 8) != 8;
}

static int read_it(void *fd)
{
	uint64_t value;
	return read(*(int *)fd, &value, 8) == 8 ? (int)value : 99;
}

static int keep_open(void *fd)
{
	fcntl(*(int *)fd, F_SETFD, 0);
	return take_from(*(int *)fd);
}

static int keep_open_by_ioctl(void *fd)
{
	ioctl(*(int *)fd, FIONCLEX);
	return take_from(*(int *)fd);
}

static int keep_a_duplicate(void *fd)
{
	int copy = dup(*(int *)fd);
	close(*(int *)fd);
	return take_from(copy);
}

static int keep_over_another(void *fd)
{
	dup2(*(int *)fd, 77);
	return take_from(77);
}

static int leave_it(void *fd)
{
	return take_from(*(int *)fd);
}

static int make_it_block(void *fd)
{
	return fcntl(*(int *)fd, F_SETFL, 0);
}

static int close_all(void *unused)
{
	(void)unused;
	return close_range(3, ~0U, 0);
}

/* Another file gets the number, in the child alone. */
static int use_number(void *fd)
{
	close(*(int *)fd);
	int file = open("/dev/null", O_RDWR);
	uint64_t three = 3;
	bool done = file != -1 && dup2(file, *(int *)fd) == *(int *)fd;
	return !(done && write(*(int *)fd, &three, 8) == 8 && read(*(int *)fd, &three, 8) == 0);
}

static int put_a_file_over(void *fd)
{
	int file = open("/dev/null", O_RDWR);
	uint64_t three = 3;
	bool done = file != -1 && dup2(file, *(int *)fd) == *(int *)fd;
	return !(done && write(*(int *)fd, &three, 8) == 8 && read(*(int *)fd, &three, 8) == 0);
}

static int put_a_file_over_in_vain(void *fd)
{
	return dup2(-1, *(int *)fd) != -1 || dup3(1, *(int *)fd, 12345) != -1 || write_three(fd);
}

/* What the child makes is its own, also beside what it has from its parent. */
static int make_its_own(void *fd)
{
	int own = counter_of(0), set = set_with(own, EPOLLIN);
	struct epoll_event event = { .events = EPOLLIN };
	uint64_t one = 1;
	if (write(own, &one, 8) != 8 || epoll_wait(set, &event, 1, 0) != 1)
		return 1;
	if (epoll_ctl(set, EPOLL_CTL_ADD, *(int *)fd, &event) != 0)
		return 2;
	return epoll_wait(set, &event, 1, 0) != 1 || read_it(&own) != 1 || read_it(fd) != 5;
}

static int *watched;

static int watch_another(void *set)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = *watched };
	return epoll_ctl(*(int *)set, EPOLL_CTL_ADD, *watched, &event);
}

static int watch_no_more(void *set)
{
	return epoll_ctl(*(int *)set, EPOLL_CTL_DEL, *watched, NULL);
}

static int wait_in(void *set)
{
	struct epoll_event event;
	return epoll_wait(*(int *)set, &event, 1, 0);
}

static int poll_it(void *fd)
{
	struct pollfd one = { .fd = *(int *)fd, .events = POLLIN };
	return poll(&one, 1, 0);
}

static int set_timer(void *fd)
{
	struct itimerspec soon = { .it_value.tv_nsec = 1 };
	return timerfd_settime(*(int *)fd, 0, &soon, NULL);
}

static int has_a_child(void *fd)
{
	pid_t child = vfork();
	if (child == 0)
		_exit(write_three(fd));
	int status = 0;
	waitpid(child, &status, 0);
	return write_three(fd) || status != 0;
}

static int forks(void *fd)
{
	int failed = in_child(write_three, fd);
	return write_three(fd) || failed;
}

static int forks_without_a_word(void *fd)
{
	int failed = in_child(nothing, fd) != 7;
	return write_three(fd) || failed;
}

static void *write_there(void *fd)
{
	return (void *)(intptr_t)write_three(fd);
}

static int has_threads(void *fd)
{
	pthread_t threads[4];
	void *failed = NULL, *one;
	for (int i = 0; i < 4; i++)
		must_be_zero(pthread_create(&threads[i], NULL, write_there, fd));
	for (int i = 0; i < 4; i++) {
		must_be_zero(pthread_join(threads[i], &one));
		failed = failed ? failed : one;
	}
	return failed != NULL;
}

static int is_killed(void *fd)
{
	write_three(fd);
	raise(SIGKILL);
	return 1;
}

static int failing_exec(void *fd)
{
	execl("/nonexistent", "nothing", NULL);
	return write_three(fd);
}

#endif
