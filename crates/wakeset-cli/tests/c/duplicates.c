/*
 * dup(2), dup2(2), dup3(2) and fcntl(2) with F_DUPFD: one open file description with several
 * numbers. To which number a watch belongs, and what the close of which number ends, as epoll(7)
 * has it under "Questions and answers", 6.
 */
#include "show.h"
#include <dirent.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

enum { COUNTER, TIMER, SET, PIPE, KINDS };
static const char *const names[KINDS] = {"eventfd", "timerfd", "epoll", "pipe"};

static int new_counter(void)
{
	return must(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

static int new_set(void)
{
	return must(epoll_create1(EPOLL_CLOEXEC));
}

/* For a set and a pipe, what makes it ready. */
static int feeder;

static int make(int kind)
{
	int ends[2];
	switch (kind) {
	case COUNTER:
		return new_counter();
	case TIMER:
		return must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	case SET:
		feeder = new_counter();
		int set = new_set();
		must(epoll_ctl(set, EPOLL_CTL_ADD, feeder,
			       &(struct epoll_event){EPOLLIN, {.u64 = 9}}));
		return set;
	default:
		must(pipe2(ends, O_CLOEXEC | O_NONBLOCK));
		feeder = ends[1];
		return ends[0];
	}
}

static void make_ready(int kind, int fd)
{
	switch (kind) {
	case COUNTER:
		must(add(fd, 1));
		break;
	case TIMER:
		must(timerfd_settime(fd, 0, &(struct itimerspec){.it_value = {0, 1}}, NULL));
		sleep_ms(2);
		break;
	case SET:
		must(add(feeder, 1));
		break;
	default:
		must(write(feeder, "x", 1));
	}
}

static void make_quiet(int kind, int fd)
{
	char byte;
	struct epoll_event event;
	switch (kind) {
	case SET:
		must(epoll_wait(fd, &event, 1, 0));
		must((int)take(feeder));
		break;
	case PIPE:
		must(read(fd, &byte, 1));
		break;
	default:
		must((int)take(fd));
	}
}

static void unmake(int kind)
{
	if (kind == SET || kind == PIPE)
		must(close(feeder));
}

static int ctl(int set, int op, int fd, uint32_t events, uint64_t data)
{
	return epoll_ctl(set, op, fd, &(struct epoll_event){events, {.u64 = data}});
}

/* The data of what is ready, in ascending order, as the digits of a number; 0 for nothing. */
static long long digits_of(int set)
{
	struct epoll_event events[8];
	int n = must(epoll_wait(set, events, 8, 0));
	long long digits = 0;
	for (int digit = 1; digit < 10; digit++)
		for (int i = 0; i < n; i++)
			if (events[i].data.u64 == (uint64_t)digit)
				digits = digits * 10 + digit;
	return digits;
}

static int by_dup(int fd)
{
	return dup(fd);
}
static int by_fcntl(int fd)
{
	return fcntl(fd, F_DUPFD, 0);
}
static int by_fcntl_cloexec(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, 20);
}
static int by_dup2(int fd)
{
	return dup2(fd, 90);
}
static int by_dup3(int fd)
{
	return dup3(fd, 91, O_CLOEXEC);
}
static int by_number(int fd)
{
	return (int)syscall(SYS_dup, fd);
}
static const struct {
	const char *name;
	int (*call)(int);
	int flags;
} ways[] = {
	{"dup", by_dup, 0},
	{"F_DUPFD", by_fcntl, 0},
	{"F_DUPFD_CLOEXEC", by_fcntl_cloexec, FD_CLOEXEC},
	{"dup2", by_dup2, 0},
	{"dup3", by_dup3, FD_CLOEXEC},
	{"syscall", by_number, 0},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void show_ways(int kind)
{
	heading(names[kind]);
	for (int way = 0; way < WAYS; way++)
		for (int first = 0; first < 2; first++) {
			int fd = make(kind), set = new_set(), another = new_counter();
			must(ctl(set, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
			int other = must(ways[way].call(fd));
			printf("%s\n", ways[way].name);
			number("close-on-exec", ways[way].flags, must(fcntl(other, F_GETFD)));
			number("of the first", FD_CLOEXEC, must(fcntl(fd, F_GETFD)));
			CALL("watched by the other", "0",
			     ctl(set, EPOLL_CTL_ADD, other, EPOLLIN, 2));
			number("quiet", 0, digits_of(set));
			make_ready(kind, first ? other : fd);
			number("both", 12, digits_of(set));
			CALL("changed by the other", "0",
			     ctl(set, EPOLL_CTL_MOD, other, EPOLLIN | EPOLLONESHOT, 3));
			number("both", 13, digits_of(set));
			number("once", 1, digits_of(set));
			make_quiet(kind, first ? fd : other);
			number("quiet", 0, digits_of(set));
			int gone = first ? other : fd, left = first ? fd : other;
			must(close(gone));
			CALL("change of the closed", "-1 EBADF",
			     ctl(set, EPOLL_CTL_MOD, gone, EPOLLIN, 4));
			CALL("removal of the closed", "-1 EBADF",
			     epoll_ctl(set, EPOLL_CTL_DEL, gone, NULL));
			make_ready(kind, left);
			number("ready", 1, digits_of(set));
			must(dup2(another, gone));
			CALL("removal of another's", "-1 ENOENT",
			     epoll_ctl(set, EPOLL_CTL_DEL, gone, NULL));
			must(dup2(left, gone));
			CALL("there already", "-1 EEXIST",
			     ctl(set, EPOLL_CTL_ADD, gone, EPOLLIN, 5));
			CALL("changed again", "0", ctl(set, EPOLL_CTL_MOD, gone, EPOLLIN, 6));
			number("ready", first ? 16 : 6, digits_of(set));
			must(close(gone));
			must(close(left));
			number("after the last close", 0, digits_of(set));
			unmake(kind);
			must(close(set));
			must(close(another));
		}
}

static void show_errors(void)
{
	heading("errors");
	int fd = new_counter();
	CALL("dup3 onto itself", "-1 EINVAL", dup3(fd, fd, 0));
	yes("dup2 onto itself", dup2(fd, fd) == fd);
	CALL("unknown flags", "-1 EINVAL", dup3(fd, 50, 1));
	CALL("onto no number", "-1 EBADF", dup2(fd, -1));
	CALL("onto a number that is too high", "-1 EBADF", dup2(fd, 1 << 30));
	CALL("from one that is too high", "-1 EINVAL", fcntl(fd, F_DUPFD, 1 << 30));
	CALL("from a negative one", "-1 EINVAL", fcntl(fd, F_DUPFD, -1));
	int other = must(dup(fd));
	yes("onto another of its own", dup2(fd, other) == other);
	must(add(other, 1));
	number("read", 1, take(fd));
	yes("and back", dup3(other, fd, O_CLOEXEC) == fd);
	must(add(other, 2));
	number("read", 2, take(fd));
	must(fcntl(other, F_SETFL, 0));
	number("blocks by either", 0, must(fcntl(fd, F_GETFL)) & O_NONBLOCK);
	must(fcntl(fd, F_SETFL, O_NONBLOCK));
	CALL("does not block by the other", "-1 EAGAIN", take(other));
	must(close(fd));
	must(close(other));
	CALL("closed", "-1 EBADF", dup(fd));
	CALL("read", "-1 EBADF", take(other));
}

static void show_sets(void)
{
	heading("sets");
	int set = new_set(), counter = new_counter();
	int other = must(dup(set));
	must(ctl(other, EPOLL_CTL_ADD, counter, EPOLLIN | EPOLLET, 1));
	CALL("watched already", "-1 EEXIST", ctl(set, EPOLL_CTL_ADD, counter, EPOLLIN, 1));
	must(add(counter, 1));
	number("an edge for one", 1, digits_of(set));
	number("of them", 0, digits_of(other));
	must(close(set));
	must(add(counter, 1));
	number("by the other", 1, digits_of(other));
	CALL("closed", "-1 EBADF", ctl(set, EPOLL_CTL_MOD, counter, EPOLLIN, 1));

	int outer = new_set(), third = must(dup(other));
	CALL("around it", "0", ctl(outer, EPOLL_CTL_ADD, other, EPOLLIN, 2));
	CALL("around its other number", "0", ctl(outer, EPOLL_CTL_ADD, third, EPOLLIN, 3));
	CALL("around itself", "-1 EINVAL", ctl(other, EPOLL_CTL_ADD, third, EPOLLIN, 4));
	CALL("in a circle", "-1 ELOOP", ctl(third, EPOLL_CTL_ADD, outer, EPOLLIN, 4));
	must(ctl(other, EPOLL_CTL_MOD, counter, EPOLLIN, 1));
	number("both", 23, digits_of(outer));
	must(close(other));
	number("both still", 23, digits_of(outer));
	must(close(third));
	number("neither", 0, digits_of(outer));
	must(close(outer));
	must(close(counter));
}

static void *wait_for(void *argument)
{
	struct epoll_event event;
	int n = epoll_wait(*(int *)argument, &event, 1, 10000);
	return (void *)(intptr_t)(n == 1 ? (long)event.data.u64 : -1);
}

static void *read_from(void *argument)
{
	return (void *)(intptr_t)take(*(int *)argument);
}

static void show_sleepers(void)
{
	heading("calls that sleep while their number is closed");
	for (int forks = 0; forks < 2; forks++) {
		int set = new_set(), counter = new_counter();
		must(ctl(set, EPOLL_CTL_ADD, counter, EPOLLIN, 5));
		int others[2] = {must(dup(set)), must(dup(counter))};
		int blocking = must(eventfd(0, EFD_CLOEXEC)), again = must(dup(blocking));
		pthread_t waiter, reader;
		void *got;
		must_be_zero(pthread_create(&waiter, NULL, wait_for, &set));
		must_be_zero(pthread_create(&reader, NULL, read_from, &blocking));
		sleep_ms(30);
		must(close(set));
		must(close(counter));
		must(close(blocking));
		sleep_ms(10);
		if (forks) {
			pid_t child = must(fork());
			if (child == 0)
				_exit(0);
			must(waitpid(child, NULL, 0));
		}
		must(add(others[1], 1));
		must(add(again, 3));
		must_be_zero(pthread_join(waiter, &got));
		number("the wait", 5, (long)got);
		must_be_zero(pthread_join(reader, &got));
		number("the read", 3, (long)got);
		number("ready by the other", 5, digits_of(others[0]));
		must(close(others[0]));
		must(close(others[1]));
		must(close(again));
	}
}

static void show_fork(int kind)
{
	printf("fork, %s\n", names[kind]);
	int set = new_set(), fd = make(kind), another = new_counter();
	int second = must(dup(fd)), third = must(dup(fd)), twin = must(dup(set));
	must(ctl(set, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	must(ctl(set, EPOLL_CTL_ADD, second, EPOLLIN | EPOLLONESHOT, 2));
	must(ctl(set, EPOLL_CTL_ADD, third, EPOLLIN, 3));
	/* One number is closed, one is another file's by now. */
	must(dup2(another, third));
	must(close(second));
	must(close(set));
	make_ready(kind, fd);
	pid_t child = must(fork());
	if (child == 0) {
		number("in the child", 123, digits_of(twin));
		_exit(verdict());
	}
	int status;
	must(waitpid(child, &status, 0));
	number("status", 0, WEXITSTATUS(status));
	number("in the parent", 13, digits_of(twin));
	CALL("removal of the closed", "-1 EBADF", epoll_ctl(twin, EPOLL_CTL_DEL, second, NULL));
	CALL("removal of another's", "-1 ENOENT", epoll_ctl(twin, EPOLL_CTL_DEL, third, NULL));
	must(dup2(fd, second));
	CALL("armed again", "0", ctl(twin, EPOLL_CTL_MOD, second, EPOLLIN, 4));
	number("all", 134, digits_of(twin));
	must(close(fd));
	number("by the last number", 134, digits_of(twin));
	must(close(second));
	number("after the last close", 0, digits_of(twin));
	unmake(kind);
	must(close(twin));
	must(close(third));
	must(close(another));
}

/* Numbers are taken away and given to others while threads use them. */
static atomic_int stop;
static int shared_number, home;
static atomic_long read_sum;

static void *use_number(void *argument)
{
	long sum = 0;
	uint64_t value;
	(void)argument;
	while (!atomic_load(&stop)) {
		/* By whatever stands there now. */
		ssize_t got = read(shared_number, &value, sizeof value);
		if (got == sizeof value)
			sum += (long)value;
	}
	atomic_fetch_add(&read_sum, sum);
	return NULL;
}

static void show_threads(int rounds)
{
	heading("numbers used again beside threads");
	pthread_t threads[3];
	home = new_counter();
	shared_number = 95;
	must(dup2(home, shared_number));
	for (int i = 0; i < 3; i++)
		must_be_zero(pthread_create(&threads[i], NULL, use_number, NULL));
	long added = 0, left = 0;
	for (int round = 0; round < rounds; round++) {
		int counter = new_counter(), twin = must(dup(counter));
		must(add(counter, 1));
		must(add(home, 2));
		added += 3;
		must(dup2(round % 2 ? counter : twin, shared_number));
		must(add(shared_number, 4));
		added += 4;
		must(dup2(home, shared_number));
		/* What nobody has taken goes with the last number. */
		long long rest = take(twin);
		left += rest > 0 ? rest : 0;
		must(close(round % 3 ? counter : twin));
		must(close(round % 3 ? twin : counter));
	}
	atomic_store(&stop, 1);
	for (int i = 0; i < 3; i++)
		must_be_zero(pthread_join(threads[i], NULL));
	long long rest = take(home);
	left += rest > 0 ? rest : 0;
	/* A read that had begun by the counter's number may come after the last look at it. */
	long lost = added - left - atomic_load(&read_sum);
	yes("nothing comes twice", lost >= 0);
	number("nothing is lost", 0, lost);
	must(close(home));
	must(close(shared_number));
}

static int open_numbers(void)
{
	int n = 0;
	DIR *directory = opendir("/proc/self/fd");
	while (readdir(directory))
		n++;
	closedir(directory);
	return n;
}

static long resident(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (fscanf(file, "%*d %ld", &pages) != 1)
		pages = 0;
	fclose(file);
	return pages;
}

#include "duplicates/random.h"

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 20000;
	for (int kind = 0; kind < KINDS; kind++)
		show_ways(kind);
	show_errors();
	show_sets();
	show_sleepers();
	heading("fork");
	for (int kind = 0; kind < KINDS; kind++)
		show_fork(kind);
	show_threads(steps / 20);
	show_random(steps);
	return verdict();
}
