/*
 * A process that uses up its numbers: it gets as many as plain. Sets that mix both kinds of
 * descriptors have had doorbells by then, whose numbers are the program's before it is told that
 * there are none; and the sets go on without.
 */
#include "show.h"
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

enum { LIMIT = 64, SETS = 5 };

static int by_dup(void)
{
	return dup(0);
}

static int by_fcntl(void)
{
	return fcntl(0, F_DUPFD_CLOEXEC, 0);
}

static int by_open(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int by_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0);
}

static int by_eventfd(void)
{
	return eventfd(0, 0);
}

static int by_timerfd(void)
{
	return timerfd_create(CLOCK_MONOTONIC, 0);
}

static int by_set(void)
{
	return epoll_create1(0);
}

static int by_number(void)
{
	return (int)syscall(SYS_dup, 0);
}

static int by_pipe(void)
{
	int ends[2];
	if (pipe(ends) < 0)
		return -1;
	/* One is enough to fill up with. */
	must(close(ends[1]));
	return ends[0];
}

static int by_pair(void)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
		return -1;
	must(close(ends[1]));
	return ends[0];
}

static const struct {
	const char *name;
	int (*make)(void);
} calls[] = {{"dup", by_dup},           {"fcntl", by_fcntl}, {"open", by_open},
	     {"socket", by_socket},     {"eventfd", by_eventfd}, {"timerfd", by_timerfd},
	     {"epoll_create1", by_set}, {"dup by number", by_number}, {"pipe", by_pipe},
	     {"socketpair", by_pair}};

struct mixed {
	int set, counter, socket;
	struct waiter waiter;
};

/* A set of both kinds, in which a thread has slept, or sleeps. */
static void begin_mixed(struct mixed *mixed, int sleeps)
{
	mixed->set = must(epoll_create1(EPOLL_CLOEXEC));
	mixed->counter = must(eventfd(0, EFD_NONBLOCK));
	mixed->socket = must(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	must(watch_new(mixed->set, mixed->counter, EPOLLIN | EPOLLET, 'c'));
	must(watch_new(mixed->set, mixed->socket, EPOLLIN, 's'));
	show("nothing", "none", ordered(mixed->set, 4, 1));
	if (sleeps)
		start_waiting(&mixed->waiter, mixed->set, 1);
}

static void end_mixed(struct mixed *mixed, int sleeps)
{
	number("an add", 8, add(mixed->counter, 1));
	if (sleeps)
		finish(&mixed->waiter.thread);
	else
		show("is an edge", "c=IN", ordered(mixed->set, 4, 5000));
	show("and no other", "none", ordered(mixed->set, 4, 1));
	must(close(mixed->set));
	must(close(mixed->counter));
	must(close(mixed->socket));
}

static void show_full(int call, int sleeps)
{
	struct mixed mixed[SETS];
	int made[LIMIT], count = 0;
	printf("-- %s%s\n", calls[call].name, sleeps ? ", threads asleep" : "");
	for (int i = 0; i < SETS; i++)
		begin_mixed(&mixed[i], sleeps);
	while (count < LIMIT && (made[count] = calls[call].make()) >= 0)
		count++;
	int error = errno;
	show("no more", "EMFILE", strerrorname_np(error));
	printf("%d in all\n", count);
	for (int i = 0; i < count; i++)
		must(close(made[i]));
	for (int i = 0; i < SETS; i++)
		end_mixed(&mixed[i], sleeps);
}

int main(void)
{
	must(setrlimit(RLIMIT_NOFILE, &(struct rlimit){LIMIT, LIMIT}));
	enum { CALLS = sizeof calls / sizeof *calls };
	for (int sleeps = 0; sleeps < 2; sleeps++)
		for (int call = 0; call < CALLS; call++)
			show_full(call, sleeps);
	return verdict();
}
