/*
 * Numbers, by the operators of `forks_random.c`: duplicates of what has traffic, and objects of an
 * operator's own, of which it knows all.
 */
#ifndef FORKS_RANDOM_NUMBERS_H
#define FORKS_RANDOM_NUMBERS_H

#include "children.h"

/* ---- duplicates beside traffic ---- */

/* Sends by another number, which goes again; perhaps it is put over the first one before. */
static void send_by_duplicate(void)
{
	struct channel *c = any_channel();
	struct channel mine = *c;
	claim(c, SEND);
	mine.out = duplicate(c->out, O_CLOEXEC);
	send_one(&mine);
	if (below(2))
		need(dup3(mine.out, c->out, c->cloexec ? O_CLOEXEC : 0));
	if (below(2))
		send_one(c);
	need(close(mine.out));
	release(c, SEND);
}

static void take_by_duplicate(void)
{
	struct channel *c = any_channel();
	struct channel mine = *c;
	claim(c, TAKE);
	mine.in = duplicate(c->in, O_CLOEXEC);
	if (c->way != ONESHOT)
		consume(&mine, below(c->consumers));
	else
		take_at_once(&mine);
	need(close(mine.in));
	release(c, TAKE);
}

static void watch_again(int set, int op, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.u64 = MINE};
	need(epoll_ctl(set, op, fd, &event));
}

/* The object has another number from now on; its watches go along. */
static void change_number(void)
{
	static const uint32_t events[WAYS] = {[LEVEL] = EPOLLIN, [EDGE] = EPOLLIN | EPOLLET,
					      [ONESHOT] = EPOLLIN | EPOLLONESHOT,
					      [NESTED] = EPOLLIN};
	struct channel *c = any_channel();
	if (c->way == EXCLUSIVE)
		return;
	claim(c, BOTH);
	int old = c->in, set = c->way == NESTED ? c->inner : c->sets[0];
	int copy = need(fcntl(old, c->cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, 0));
	if (c->way >= LEVEL) {
		watch_again(set, EPOLL_CTL_DEL, old, 0);
		watch_again(set, EPOLL_CTL_ADD, copy, events[c->way]);
	}
	if (c->in == c->out && c->room >= 0) {
		watch_again(c->room, EPOLL_CTL_DEL, old, 0);
		watch_again(c->room, EPOLL_CTL_ADD, copy, EPOLLOUT);
	}
	if (c->in == c->out)
		c->out = copy;
	c->in = copy;
	need(close(old));
	release(c, BOTH);
}

/* ---- objects of an operator's own ---- */

static void expect_ready(int set, int fd, int ready)
{
	struct pollfd one = {fd, POLLIN, 0};
	struct epoll_event event;
	expect("poll of a private object", ready, look_at(&one, 1));
	if (set >= 0)
		expect("epoll_wait for a private object", ready, need(epoll_wait(set, &event, 1, 0)));
}

static int close_either(int numbers[2])
{
	int which = (int)below(2);
	need(close(numbers[which]));
	return numbers[1 - which];
}

static void duplicate_private_counter(void)
{
	uint64_t value = below(5), more = 1 + below(5);
	int numbers[2] = {need(eventfd((unsigned)value, O_CLOEXEC | O_NONBLOCK))};
	int set = below(2) ? set_of(numbers[0], EPOLLIN, O_CLOEXEC) : -1;
	int watched = set >= 0;
	numbers[1] = duplicate(numbers[0], O_CLOEXEC);
	expect_ready(set, numbers[below(2)], value != 0);
	expect("a write", 8, add(numbers[below(2)], more));
	expect_ready(set, numbers[below(2)], 1);
	int last = close_either(numbers);
	expect_ready(set, last, 1);
	expect("what it holds", (long long)(value + more), take(last));
	expect_ready(set, last, 0);
	expect("and then", -1, take(last));
	need(close(last));
	if (watched)
		need(close(set));
}

/* Either end may have several numbers: the other one finds the end with the last of them. */
static void duplicate_private_ends(void)
{
	int ends[2], pair = (int)below(2);
	char byte = 0;
	pthread_rwlock_rdlock(&staying);
	if (pair)
		need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends));
	else
		need(pipe2(ends, O_CLOEXEC | O_NONBLOCK));
	int set = set_of(ends[0], below(2) ? EPOLLIN | EPOLLRDHUP : EPOLLIN, O_CLOEXEC);
	int writers[2] = {ends[1], duplicate(ends[1], O_CLOEXEC)};
	expect_ready(set, ends[0], 0);
	expect("a write", 1, write(writers[below(2)], "a", 1));
	int writer = close_either(writers);
	expect("a write", 1, write(writer, "b", 1));
	expect_ready(set, ends[0], 1);
	expect("the first byte", 1, read(ends[0], &byte, 1));
	expect("it is", 'a', byte);
	need(close(writer));
	expect("the second byte", 1, read(ends[0], &byte, 1));
	expect("it is", 'b', byte);
	/* Children of the other operator may have it for a moment. */
	begin_wait("the end of a private pipe or pair", -1);
	wait_by_poll(ends[0], POLLIN);
	end_wait();
	expect("the end", 0, read(ends[0], &byte, 1));
	struct epoll_event event;
	expect("the end in a set", 1, need(epoll_wait(set, &event, 1, 0)));
	need(close(ends[0]));
	need(close(set));
	pthread_rwlock_unlock(&staying);
}

static void duplicate_private_timer(void)
{
	int numbers[2] = {need(timerfd_create(CLOCK_MONOTONIC, O_CLOEXEC))};
	struct itimerspec time = {.it_value.tv_nsec = 1 + below(100000)}, left;
	need(timerfd_settime(numbers[0], 0, &time, NULL));
	numbers[1] = duplicate(numbers[0], O_CLOEXEC);
	int last = close_either(numbers);
	begin_wait("a private timer", -1);
	if (below(2))
		wait_by_poll(last, POLLIN);
	expect("expirations", 1, take(last));
	end_wait();
	need(timerfd_gettime(last, &left));
	expect("nothing is left", 0, left.it_value.tv_sec + left.it_value.tv_nsec);
	need(close(last));
}

static void duplicate_private_set(void)
{
	int counter = need(eventfd(0, O_CLOEXEC | O_NONBLOCK));
	int numbers[2] = {set_of(counter, EPOLLIN | (below(2) ? EPOLLET : 0), O_CLOEXEC)};
	struct epoll_event event;
	numbers[1] = duplicate(numbers[0], O_CLOEXEC);
	add(counter, 1);
	if (below(2))
		expect_ready(-1, numbers[below(2)], 1);
	int last = close_either(numbers);
	expect("a duplicate of a set", 1, need(epoll_wait(last, &event, 1, 0)));
	expect("what it holds", 1, take(counter));
	expect("and then", 0, need(epoll_wait(last, &event, 1, 0)));
	int which = below(2);
	need(close(which ? last : counter));
	need(close(which ? counter : last));
}

static void duplicate_private(void)
{
	switch (below(4)) {
	case 0: duplicate_private_counter(); break;
	case 1: duplicate_private_ends(); break;
	case 2: duplicate_private_timer(); break;
	default: duplicate_private_set();
	}
}

static void open_and_close(void)
{
	int fds[12], count = 0, ends[2];
	fds[count++] = need(eventfd(below(2), O_CLOEXEC | (below(2) ? O_NONBLOCK : 0)));
	fds[count++] = need(timerfd_create(CLOCK_MONOTONIC, O_CLOEXEC));
	need(pipe2(ends, O_CLOEXEC));
	fds[count++] = ends[0];
	fds[count++] = ends[1];
	need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
	fds[count++] = ends[0];
	fds[count++] = ends[1];
	for (int i = 0; i < 3; i++, count++)
		fds[count] = set_of(fds[below((unsigned)count)], EPOLLIN, O_CLOEXEC);
	/* In any order, and all are closed. */
	while (count > 0) {
		int which = (int)below((unsigned)count);
		need(close(fds[which]));
		fds[which] = fds[--count];
	}
}

/* ---- objects of an operator's own, and a child ---- */

static void share_private_counter(void)
{
	uint64_t value = 1 + below(5), more = 1 + below(5);
	int child_takes = below(2), watched = below(2);
	int counter = need(eventfd((unsigned)value, O_CLOEXEC));
	int set = watched ? set_of(counter, EPOLLIN, O_CLOEXEC) : -1;
	pid_t child = fork_one();
	if (child == 0) {
		if (child_takes)
			expect("what a child takes", (long long)value, take(counter));
		expect("what a child adds", 8, add(counter, more));
		_exit(0);
	}
	if (below(2))
		await_child(child, "a child of a private counter", 0), child = 0;
	if (child_takes && child != 0)
		await_child(child, "a child of a private counter", 0), child = 0;
	begin_wait("a private counter", -1);
	if (watched)
		wait_by_set(set);
	uint64_t wanted = child_takes ? more : value + more, sum = 0;
	while (sum < wanted)
		sum += (uint64_t)need((int)take(counter));
	end_wait();
	expect("what a private counter gave", (long long)wanted, (long long)sum);
	if (child != 0)
		await_child(child, "a child of a private counter", 0);
	close_number(set);
	need(close(counter));
}

/* The parent sleeps until the child writes, and until its end comes with the child's. */
static void share_private_ends(void)
{
	int ends[2], by_set = below(2), by_edge = below(2);
	char byte = 0;
	pthread_rwlock_rdlock(&staying);
	if (below(2))
		need(pipe2(ends, O_CLOEXEC));
	else
		need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
	int set = by_set ? set_of(ends[0], EPOLLIN | (by_edge ? EPOLLET : 0), O_CLOEXEC) : -1;
	unsigned delay = below(3) ? 0 : below(2000), killed = below(3) == 0;
	pid_t child = fork_one();
	if (child == 0) {
		nap(delay);
		expect("a child's write", 1, write(ends[1], "c", 1));
		nap(delay);
		if (killed)
			raise(SIGKILL);
		_exit(0);
	}
	need(close(ends[1]));
	begin_wait("a private pipe or pair", -1);
	if (by_set)
		wait_by_set(set);
	expect("a byte of a child", 1, read(ends[0], &byte, 1));
	expect("it is", 'c', byte);
	/* The edge may have come with the byte. */
	if (by_set && !by_edge)
		wait_by_set(set);
	expect("the end of a child", 0, read(ends[0], &byte, 1));
	end_wait();
	await_child(child, "a child of a private pipe", killed ? SIGKILL : 0);
	need(close(ends[0]));
	close_number(set);
	pthread_rwlock_unlock(&staying);
}

/* By parent and child, of a timer that goes on. Either may be told of what the other takes. */
static void take_expirations(int timer, int set, unsigned reads)
{
	for (; reads > 0; reads--) {
		begin_wait("a timer that goes on", -1);
		if (set >= 0)
			wait_by_set(set);
		else if (below(2))
			wait_by_poll(timer, POLLIN);
		atomic_fetch_add(&world->expirations[me], (uint64_t)take(timer));
		end_wait();
		if (below(2))
			nap(below(500));
	}
}

/* How often it has expired by then. */
static long long expirations(int64_t start, int64_t period, int64_t when)
{
	return when < start ? 0 : (when - start) / period + 1;
}

/* Each period counts once, whoever has read it. */
static void share_private_timer(void)
{
	int timer = need(timerfd_create(CLOCK_MONOTONIC, O_CLOEXEC));
	int set = below(2) ? set_of(timer, EPOLLIN | (below(2) ? EPOLLET : 0), O_CLOEXEC) : -1;
	int64_t period = 50000 + below(400000), start = now() + below(300000);
	struct itimerspec time = {.it_interval.tv_nsec = period,
				  .it_value = {start / 1000000000, start % 1000000000}};
	unsigned reads = below(4);
	need(timerfd_settime(timer, TFD_TIMER_ABSTIME, &time, NULL));
	atomic_store(&world->expirations[me], 0);
	pid_t child = fork_one();
	if (child == 0) {
		take_expirations(timer, set, below(4));
		_exit(0);
	}
	take_expirations(timer, set, reads);
	await_child(child, "a child of a private timer", 0);
	/* The last read waits for the next expiration, so it has all before it. */
	int64_t before = now();
	take_expirations(timer, -1, 1);
	long long all = (long long)atomic_load(&world->expirations[me]);
	long long least = expirations(start, period, before);
	long long most = expirations(start, period, now());
	if (all < least || all > most)
		fail("a timer has expired %lld times (should be %lld to %lld)", all, least, most);
	need(close(timer));
	close_number(set);
}

static void share_private(void)
{
	switch (below(5)) {
	case 0:
	case 1: share_private_counter(); break;
	case 2:
	case 3: share_private_ends(); break;
	default: share_private_timer();
	}
}

#endif
