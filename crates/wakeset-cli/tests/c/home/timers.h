/*
 * For `home.c`: timers that children have read, with sets that watch them.
 */
#ifndef HOME_TIMERS_H
#define HOME_TIMERS_H

#include <sys/timerfd.h>

enum { INTERVAL = 3000000 };

static const long long HOUR = 3600000000000;

static long long nanoseconds(struct timespec time)
{
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* What it was set to: the time that was left. */
static long long set_timer(int fd, int flags, long long value, long long interval)
{
	struct itimerspec old, new = {
		.it_value = { value / 1000000000, value % 1000000000 },
		.it_interval = { interval / 1000000000, interval % 1000000000 },
	};
	must(timerfd_settime(fd, flags, &new, &old));
	return nanoseconds(old.it_value);
}

static long long left(int fd)
{
	struct itimerspec found;
	must(timerfd_gettime(fd, &found));
	return nanoseconds(found.it_value);
}

static int is_about(long long time, long long whole)
{
	return time <= whole && time > whole - 60000000000;
}

/* ---- what a child does ---- */

/* Its status is how often the timer had expired. */
static int take_expirations(void *fd)
{
	long long expirations = take(*(int *)fd);
	return expirations == -1 ? 0 : (int)expirations;
}

static int take_and_execute(void *fd)
{
	if (take_expirations(fd) != 0)
		return 1;
	execl("/proc/self/exe", "home", "take", "0", (char *)NULL);
	return 2;
}

static int set_anew(void *fd)
{
	return set_timer(*(int *)fd, 0, 2 * HOUR, 0) <= 0;
}

static int poll_a_timer(void *fd)
{
	struct pollfd entry = { *(int *)fd, POLLIN, 0 };
	return take_expirations(fd) || poll(&entry, 1, 0) != 0;
}

/* Its own child reads when the parent says so. */
static int leave_a_reader(void *fd)
{
	pid_t keeper = fork();
	if (keeper == 0) {
		hear(down[1]);
		must(take(*(int *)fd));
		say(up[1], 'k');
		_exit(0);
	}
	return keeper < 0;
}

/* ---- what the parent finds ---- */

static int new_timer(uint32_t events, int *set)
{
	int fd = must(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
	*set = events ? watched(events, fd) : -1;
	return fd;
}

static void close_timer(int fd, int set)
{
	must(close(fd));
	if (set != -1)
		must(close(set));
}

/* Waits for an expiration, and takes it. */
static long long next_expirations(int fd, int set)
{
	long long expirations = -1;
	for (int tries = 0; tries < 5000 && expirations == -1; tries++) {
		if (set == -1)
			usleep(500);
		else if (reports(set, 5000) != 1)
			give_up();
		expirations = take(fd);
	}
	return expirations;
}

/* Parent and child read what expires: each expiration once, and none comes at another time. */
static void periodic(uint32_t events)
{
	int set, fd = new_timer(events, &set);
	long long first = now() + INTERVAL, sum = 0;
	set_timer(fd, TFD_TIMER_ABSTIME, first, INTERVAL);
	usleep(2 * INTERVAL / 1000);
	sum += in_child(take_expirations, &fd);
	for (int i = 0; i < 30; i++)
		sum += next_expirations(fd, set);
	/* It has just been read: what is left says when it expires next. */
	long long begun = now(), rest = left(fd), ended = now();
	long long next = first + (begun + rest - first + INTERVAL - 1) / INTERVAL * INTERVAL;
	number("  expires when it would have", 1, next <= ended + rest);
	begun = now();
	long long last = take(fd);
	ended = now();
	sum += last == -1 ? 0 : last;
	/* The kernel's timer may be late. */
	long long least = (begun - first) / INTERVAL, most = (ended - first) / INTERVAL + 1;
	number("  has expired as often as it should", 1, sum >= least && sum <= most);
	close_timer(fd, set);
}

/* A child has read in vain, and the parent sets the timer, as event loops do. */
static void set_again(const char *name, int (*act)(void *), int status, uint32_t events)
{
	int set, fd = new_timer(events, &set);
	set_timer(fd, 0, HOUR, 0);
	number(name, status, in_child(act, &fd));
	sleep_ms(20);
	number("  what was left", 1, is_about(set_timer(fd, 0, 2 * HOUR, HOUR), HOUR));
	number("  what is left", 1, is_about(left(fd), 2 * HOUR));
	for (int i = 0; i < 20; i++) {
		set_timer(fd, 0, 100000, 0);
		number("  expires", 1, next_expirations(fd, set));
	}
	number("  and no more", -1, take(fd));
	if (set != -1)
		number("  nor is it reported", 0, reports(set, 0));
	close_timer(fd, set);
}

static void timers_come(void)
{
	static const uint32_t masks[] = { 0, EPOLLIN, EPOLLIN | EPOLLET };
	heading("timers come home");
	for (int i = 0; i < 3; i++) {
		printf("a timer that goes on\n");
		periodic(masks[i]);
		set_again("a child that reads", take_expirations, 0, masks[i]);
		set_again("a child that executes", take_and_execute, 99, masks[i]);
	}
	int set, fd = new_timer(EPOLLIN, &set);
	set_timer(fd, 0, HOUR, HOUR);
	number("a timer that is looked at", 0, in_child(take_expirations, &fd));
	sleep_ms(20);
	number("  what is left", 1, is_about(left(fd), HOUR));
	close_timer(fd, set);
}

static void timer_stays(const char *name, int (*act)(void *), long long whole)
{
	int set, fd = new_timer(EPOLLIN, &set);
	set_timer(fd, 0, HOUR, 0);
	number(name, 0, in_child(act, &fd));
	sleep_ms(20);
	number("  what was left", 1, is_about(set_timer(fd, TFD_TIMER_ABSTIME, 1, 0), whole));
	number("  is reported", 1, reports(set, 1000));
	if (act == leave_a_reader) {
		say(down[0], 'x');
		hear(up[0]);
		number("  somebody else has read", -1, take(fd));
		set_timer(fd, TFD_TIMER_ABSTIME, 1, 0);
	}
	number("  has expired", 1, next_expirations(fd, set));
	number("  is reported no more", 0, reports(set, 0));
	close_timer(fd, set);
}

static void timers_stay(void)
{
	heading("timers stay");
	timer_stays("a child that sets it", set_anew, 2 * HOUR);
	timer_stays("a child that polls it", poll_a_timer, HOUR);
	timer_stays("a child that leaves a reader", leave_a_reader, HOUR);
	/* One that has expired, of which nobody says whether the child has read it. */
	int set, fd = new_timer(EPOLLIN, &set);
	set_timer(fd, TFD_TIMER_ABSTIME, 1, 0);
	number("a child that reads", 1, in_child(take_expirations, &fd));
	sleep_ms(20);
	for (int i = 0; i < 50; i++)
		if (left(fd) != 0 || take(fd) != -1 || reports(set, 0) != 0)
			give_up();
	close_timer(fd, set);
}

/* ---- random traffic beside it ---- */

enum { TIMERS = 3, TIMER_BATCHES = 25 };

/* What all processes see of a timer that is read by many. */
struct expirations {
	atomic_llong taken;
	atomic_int over;
};

static struct alarm {
	int fd, set;
	long long first, interval;
	struct expirations *counts;
	struct thread reader;
} alarms[TIMERS];

static long long take_some(struct alarm *it)
{
	long long expirations = take(it->fd);
	if (expirations > 0)
		atomic_fetch_add(&it->counts->taken, expirations);
	return expirations;
}

static int take_some_in_child(void *argument)
{
	struct alarm *it = argument;
	dice += (uint64_t)getpid();
	for (unsigned i = 1 + below(3); i > 0; i--) {
		take_some(it);
		usleep(below(300));
	}
	if (below(32) == 0)
		return dup(it->fd) < 0;
	return 0;
}

/* It expires on and on, so a wait that finds nothing has lost a wake-up. */
static void *take_on_and_on(void *argument)
{
	struct alarm *it = argument;
	struct epoll_event event;
	dice += (uint64_t)(uintptr_t)argument;
	while (!atomic_load(&it->counts->over)) {
		if (it->set == -1)
			usleep(below(500));
		else if (epoll_wait(it->set, &event, 1, 20000) != 1)
			give_up();
		take_some(it);
		if (below(8) == 0)
			usleep(below(2000));
	}
	return NULL;
}

static void open_alarm(struct alarm *it, struct expirations *counts)
{
	static const uint32_t masks[] = { 0, EPOLLIN, EPOLLIN | EPOLLET };
	it->counts = counts;
	memset(counts, 0, sizeof *counts);
	it->fd = new_timer(masks[below(3)], &it->set);
	it->interval = 50000 + below(3000000);
	it->first = now() + it->interval;
	set_timer(it->fd, TFD_TIMER_ABSTIME, it->first, it->interval);
	start(&it->reader, take_on_and_on, it);
}

/* Whether each expiration has been read, and read once. */
static int close_alarm(struct alarm *it)
{
	atomic_store(&it->counts->over, 1);
	finish(&it->reader);
	usleep((useconds_t)(2 * it->interval / 1000));
	long long begun = now();
	take_some(it);
	long long ended = now(), taken = atomic_load(&it->counts->taken);
	/* The kernel's timer may be late. */
	long long least = (begun - it->first) / it->interval;
	long long most = (ended - it->first) / it->interval + 1;
	int is_exact = taken >= least && taken <= most;
	if (!is_exact)
		printf("%lld expirations, of %lld to %lld\n", taken, least, most);
	close_timer(it->fd, it->set);
	return is_exact;
}

/* One thread sets a timer again and again, and each time it is to expire; it cannot be late. */
static int set_some(int fd, int set)
{
	for (unsigned i = 1 + below(4); i > 0; i--) {
		struct epoll_event event;
		if (below(4) == 0)
			set_timer(fd, TFD_TIMER_ABSTIME, 1 + below(1000), 0);
		else
			set_timer(fd, 0, 1 + below(300000), 0);
		if (epoll_wait(set, &event, 1, 20000) != 1 || take(fd) != 1 || left(fd) != 0)
			return 1;
	}
	return 0;
}

static void timer_traffic(int rounds)
{
	heading("random traffic through timers");
	struct expirations *counts = mmap(NULL, TIMERS * sizeof *counts, PROT_READ | PROT_WRITE,
					  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED)
		give_up();
	int wrong = 0, done = 0;
	while (done < rounds) {
		int set, fd = new_timer(below(2) ? EPOLLIN : EPOLLIN | EPOLLET, &set);
		for (int i = 0; i < TIMERS; i++)
			open_alarm(&alarms[i], &counts[i]);
		/* What stays in the kernel is closed in the end. */
		for (int i = 0; i < TIMER_BATCHES && done < rounds; i++, done++) {
			wrong += in_child(take_some_in_child, &alarms[below(TIMERS)]) != 0;
			wrong += in_child(take_expirations, &fd) != 0;
			wrong += set_some(fd, set);
			usleep(below(3000));
		}
		for (int i = 0; i < TIMERS; i++)
			wrong += !close_alarm(&alarms[i]);
		close_timer(fd, set);
	}
	number("what went wrong", 0, wrong);
	must(munmap(counts, TIMERS * sizeof *counts));
}

#endif
