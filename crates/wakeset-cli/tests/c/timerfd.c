/*
 * timerfd_create(2): what its calls answer, libc's functions and syscall(2) alike, and that a timer
 * which gets out of the process's hands is what it was: the time that is left, the interval, the
 * expirations that nobody has read, and its watches.
 */
#include "show.h"
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>

extern char **environ;

enum { HOUR = 3600 };

static struct timespec at(int64_t nanoseconds)
{
	return (struct timespec){nanoseconds / 1000000000, nanoseconds % 1000000000};
}

static int set_timer(int fd, int flags, int64_t value, int64_t interval)
{
	struct itimerspec new = {.it_value = at(value), .it_interval = at(interval)};
	return timerfd_settime(fd, flags, &new, NULL);
}

static int new_timer(int flags)
{
	return must(timerfd_create(CLOCK_MONOTONIC, flags));
}

/* Seconds, rounded up. */
static long long left(int fd)
{
	struct itimerspec now_left;
	must(timerfd_gettime(fd, &now_left));
	return now_left.it_value.tv_sec + (now_left.it_value.tv_nsec > 0);
}

/* The next expiration: the kernel's may be a little late. */
static long long take_soon(int fd)
{
	for (int tries = 0; tries < 5000; tries++) {
		long long got = take(fd);
		if (got != -1 || errno != EAGAIN)
			return got;
		sleep_ms(1);
	}
	return -1;
}

static void show_calls(void)
{
	heading("calls");
	CALL("an unknown clock", "-1 EINVAL", timerfd_create(12345, 0));
	CALL("unknown flags", "-1 EINVAL", timerfd_create(CLOCK_MONOTONIC, 1));
	CALL_FD("the clock that goes on while suspended", "fd", timerfd_create(CLOCK_BOOTTIME, 0));
	int fd = new_timer(TFD_NONBLOCK | TFD_CLOEXEC);
	number("closed on exec", FD_CLOEXEC, must(fcntl(fd, F_GETFD)));
	number("non-blocking", O_NONBLOCK, must(fcntl(fd, F_GETFL)) & O_NONBLOCK);
	CALL("read before it is set", "-1 EAGAIN", take(fd));
	CALL("unknown flags to set it", "-1 EINVAL", set_timer(fd, 4, 1, 0));
	CALL("nanoseconds of a second", "-1 EINVAL",
	     timerfd_settime(fd, 0, &(struct itimerspec){.it_value = {0, 1000000000}}, NULL));
	CALL("nowhere", "-1 EFAULT", timerfd_settime(fd, 0, NULL, NULL));
	CALL("nowhere to answer", "-1 EFAULT", timerfd_gettime(fd, NULL));
	CALL("a number that is closed", "-1 EBADF", set_timer(-1, 0, 1, 0));
	CALL("an eventfd", "-1 EINVAL", set_timer(must(eventfd(0, EFD_CLOEXEC)), 0, 1, 0));
	CALL("a write", "-1 EINVAL", add(fd, 1));
	CALL("set for the past", "0", set_timer(fd, TFD_TIMER_ABSTIME, 1, 0));
	number("read", 1, take_soon(fd));
	CALL("set for an hour", "0", set_timer(fd, 0, HOUR * 1000000000LL, 0));
	number("left", HOUR, left(fd));
	struct itimerspec new = {.it_value = {1, 0}}, old;
	CALL("syscall timerfd_settime", "0", syscall(SYS_timerfd_settime, fd, 0, &new, &old));
	number("was left", HOUR, old.it_value.tv_sec + (old.it_value.tv_nsec > 0));
	CALL("syscall timerfd_gettime", "0", syscall(SYS_timerfd_gettime, fd, &old));
	number("is left", 1, old.it_value.tv_sec + (old.it_value.tv_nsec > 0));
	CALL("set for the past", "0", set_timer(fd, TFD_TIMER_ABSTIME, 1, 0));
	uint64_t value = 0;
	sleep_ms(5);
	CALL("syscall read", "8", syscall(SYS_read, fd, &value, 8));
	number("read", 1, (long long)value);
	int made = must(syscall(SYS_timerfd_create, CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC));
	CALL("syscall timerfd_create, and set", "0", set_timer(made, 0, 1000000, 0));
	number("read", 1, take_soon(made));
	CALL("a point in real time", "0",
	     set_timer(made, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, 1, 0));
	number("read", 1, take_soon(made));
	must(close(made));
	must(close(fd));
}

/* ---- ways out ---- */

struct world {
	int set, periodic, far, over, disarmed;
	int64_t first, interval;
};

/*
 * The periodic one expired four times, and will not again before the program has ended: it counts
 * in eighths of the machine's uptime.
 */
static struct world make_world(void)
{
	struct world w = {.set = must(epoll_create1(0))};
	int *timers[] = {&w.periodic, &w.far, &w.over, &w.disarmed};
	for (int i = 0; i < 4; i++) {
		*timers[i] = new_timer(TFD_NONBLOCK);
		must(watch_new(w.set, *timers[i], EPOLLIN, "pfod"[i]));
	}
	int64_t then = now();
	w.interval = then / 8;
	w.first = then - w.interval * 3 - w.interval / 2;
	must(set_timer(w.periodic, TFD_TIMER_ABSTIME, w.first, w.interval));
	must(set_timer(w.far, 0, HOUR * 1000000000LL, 1));
	must(set_timer(w.over, 0, 1, 0));
	must(set_timer(w.disarmed, 0, 0, 5000000000LL));
	sleep_ms(3);
	return w;
}

static void show_world(struct world *w, const char *ready_now, int expirations)
{
	show("  ready", ready_now, sorted(w->set, 16, 0));
	struct itimerspec spec;
	must(timerfd_gettime(w->periodic, &spec));
	int64_t next = spec.it_value.tv_sec * 1000000000LL + spec.it_value.tv_nsec + now();
	/* To the nanosecond but for the time the two calls take. */
	yes("  expires next when it should",
	    next >= w->first + 4 * w->interval && next < w->first + 4 * w->interval + 1000000000);
	yes("  in its interval",
	    spec.it_interval.tv_sec * 1000000000LL + spec.it_interval.tv_nsec == w->interval);
	CALL("  periodic", expirations ? "4" : "-1 EAGAIN", take(w->periodic));
	CALL("  again", "-1 EAGAIN", take(w->periodic));
	CALL("  far", "-1 EAGAIN", take(w->far));
	number("  far has left", HOUR, left(w->far));
	CALL("  over", expirations ? "1" : "-1 EAGAIN", take(w->over));
	must(timerfd_gettime(w->disarmed, &spec));
	yes("  disarmed", spec.it_value.tv_sec == 0 && spec.it_value.tv_nsec == 0 &&
	    spec.it_interval.tv_sec == 5);
	show("  ready", "none", ready(w->set));
	must(set_timer(w->far, 0, 2000000, 0));
	show("  far comes soon", "f=IN", ordered(w->set, 16, 10000));
	number("  read", 1, take(w->far));
	int all[] = {w->set, w->periodic, w->far, w->over, w->disarmed};
	for (int i = 0; i < 5; i++)
		must(close(all[i]));
}

static void by_nothing(struct world *w)
{
	(void)w;
}

static void by_dup(struct world *w)
{
	must(close(must(dup(w->periodic))));
	must(close(must(dup(w->far))));
	must(close(must(fcntl(w->over, F_DUPFD, 100))));
	must(close(must(dup2(w->disarmed, 120))));
}

static void by_poll(struct world *w)
{
	struct pollfd fds[] = {{w->periodic, POLLIN, 0}, {w->far, POLLIN, 0},
	                       {w->over, POLLIN | POLLOUT, 0}};
	number("  poll", 2, poll(fds, 3, 0));
	number("  of which", POLLIN * 2, fds[0].revents + fds[1].revents + fds[2].revents);
}

static void by_select(struct world *w)
{
	fd_set in;
	FD_ZERO(&in);
	FD_SET(w->far, &in);
	FD_SET(w->over, &in);
	FD_SET(w->disarmed, &in);
	struct timeval at_once = {0, 0};
	number("  select", 1, select(w->disarmed + 1, &in, NULL, NULL, &at_once));
}

static void by_fork(struct world *w)
{
	pid_t child = must(fork());
	if (child == 0)
		_exit(ready(w->set)[0] == 'n');
	int status;
	must(waitpid(child, &status, 0));
	number("  the child sees it too", 0, status);
}

static void by_spawn(struct world *w)
{
	(void)w;
	pid_t child;
	char *arguments[] = {"true", NULL};
	must_be_zero(posix_spawnp(&child, "true", NULL, NULL, arguments, environ));
	must(waitpid(child, NULL, 0));
}

static void by_message(struct world *w)
{
	int pair[2];
	must(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair));
	char byte = 'b';
	struct iovec part = {&byte, 1};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(4 * sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
	                         .msg_controllen = sizeof control};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(4 * sizeof(int));
	memcpy(CMSG_DATA(header), (int[]){w->periodic, w->far, w->over, w->disarmed}, 4 * sizeof(int));
	must(sendmsg(pair[0], &message, 0));
	must(close(pair[0]));
	must(close(pair[1]));
}

static void by_unmodelled_calls(struct world *w)
{
	int pair[2];
	must(pipe2(pair, O_CLOEXEC));
	CALL("  splice", "-1 EINVAL", splice(w->far, NULL, pair[1], NULL, 8, 0));
	uint64_t value;
	CALL("  pread", "-1 ESPIPE", pread(w->periodic, &value, 8, 0));
	struct iovec two[] = {{&value, 8}, {&value, 8}};
	CALL("  readv of two buffers", "-1 EAGAIN", readv(w->disarmed, two, 2));
	must(close(pair[0]));
	must(close(pair[1]));
}

/* Where the kernel has it: it makes up expirations. */
static void by_ticks(struct world *w)
{
	uint64_t ticks = 4;
	(void)ioctl(w->over, _IOW('T', 0, uint64_t), &ticks);
	(void)take(w->over);
	must(set_timer(w->over, 0, 1, 0));
	sleep_ms(3);
}

static void show_ways_out(void)
{
	static const struct {
		const char *name;
		void (*way)(struct world *);
	} ways[] = {{"nothing", by_nothing}, {"dup", by_dup}, {"poll", by_poll}, {"select", by_select},
	            {"fork", by_fork},
		    {"spawn", by_spawn}, {"a message", by_message},
		        {"calls that are not modelled", by_unmodelled_calls},
		    {"made up expirations", by_ticks}};
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		heading(ways[i].name);
		struct world w = make_world();
		ways[i].way(&w);
		show_world(&w, "o=IN p=IN", 1);
	}
	heading("read by a child");
	struct world w = make_world();
	pid_t child = must(fork());
	if (child == 0)
		_exit(take(w.periodic) == 4 && take(w.over) == 1 ? 0 : 1);
	int status;
	must(waitpid(child, &status, 0));
	number("  the child's reads", 0, status);
	show_world(&w, "none", 0);
}

/* ---- blocking, and asleep ---- */

static int blocking;

static void *read_it(void *unused)
{
	(void)unused;
	return (void *)(intptr_t)take(blocking);
}

static void show_blocking(void)
{
	heading("blocking");
	blocking = new_timer(TFD_CLOEXEC);
	int64_t begun = now();
	must(set_timer(blocking, 0, 3000000, 0));
	number("read", 1, take(blocking));
	yes("not early", now() - begun >= 3000000);
	struct thread reader;
	start(&reader, read_it, NULL);
	until_asleep(reader.id);
	must(set_timer(blocking, 0, 1000000, 0));
	number("read by another", 1, (long long)(intptr_t)finish(&reader));
	must(close(blocking));
}

/* ---- moves under traffic ---- */

enum { ROUNDS = 400 };
/*
 * A timer that has expired, and whose kernel object refuses to be set, must not hold up who moves
 * it: for good, it was.
 */
static void show_refusal(void)
{
	heading("a timer that cannot be set in the kernel");
	pid_t child = must(fork());
	if (child == 0) {
		int fd = new_timer(TFD_NONBLOCK | TFD_CLOEXEC),
		    null = must(open("/dev/null", O_WRONLY | O_CLOEXEC));
		must(set_timer(fd, 0, 1000, 0));
		sleep_ms(5);
		must(dup2(null, 2));
		alarm(10);
		refuse(SYS_timerfd_settime, -1, ENOMEM);
		must(dup(fd));
		_exit(7);
	}
	int status;
	must(waitpid(child, &status, 0));
	number("duplicated", 7, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static atomic_int over;

static void *fork_all_the_time(void *unused)
{
	(void)unused;
	while (!atomic_load(&over)) {
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		if (child > 0)
			waitpid(child, NULL, 0);
		sleep_ms(1);
	}
	return NULL;
}

static void *expire_all_the_time(void *shared)
{
	intptr_t wrong = 0;
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	for (int i = 0; i < ROUNDS; i++) {
		int fd = new_timer(TFD_NONBLOCK | TFD_CLOEXEC);
		must(watch_new(set, fd, i % 2 ? EPOLLIN : EPOLLIN | EPOLLET, 'x'));
		if (shared)
			must(set_timer(fd, TFD_TIMER_ABSTIME, now() + i % 7 * 50000, 0));
		else
			must(set_timer(fd, 0, 1 + i % 7 * 50000, 0));
		struct epoll_event event;
		wrong += epoll_wait(set, &event, 1, 10000) != 1;
		wrong += take(fd) != 1;
		must(set_timer(fd, 0, 100000, 0));
		wrong += epoll_wait(set, &event, 1, 10000) != 1;
		wrong += take(fd) != 1;
		must(close(fd));
	}
	must(close(set));
	return (void *)wrong;
}

static void show_traffic(void)
{
	heading("moves under traffic");
	struct thread forker, workers[2];
	start(&forker, fork_all_the_time, NULL);
	for (int i = 0; i < 2; i++)
		start(&workers[i], expire_all_the_time, (void *)(intptr_t)i);
	for (int i = 0; i < 2; i++)
		number("lost or doubled", 0, (long long)(intptr_t)finish(&workers[i]));
	atomic_store(&over, 1);
	finish(&forker);
}

int main(void)
{
	show_calls();
	show_ways_out();
	show_blocking();
	show_refusal();
	show_traffic();
	return verdict();
}
