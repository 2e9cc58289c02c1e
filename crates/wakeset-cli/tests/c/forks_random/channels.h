/*
 * Channels of `forks_random.c`: an object, or two ends of one, into which producers write and from
 * which consumers read, with a way to wait for it and a way to acknowledge what was taken.
 */
#ifndef FORKS_RANDOM_CHANNELS_H
#define FORKS_RANDOM_CHANNELS_H

#include "world.h"
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

enum kind { COUNTER, SEMAPHORE, TIMER, PIPE, PAIR, MESSAGES, PACKETS };
static const char *const kinds[] = {"counter", "semaphore", "timer", "pipe",
				    "pair",    "messages",  "packets"};

enum way { BLOCK, POLL, SELECT, LEVEL, EXCLUSIVE, EDGE, ONESHOT, NESTED, WAYS };
static const char *const ways[] = {"read", "poll", "select", "level",
				   "exclusive", "edge", "oneshot", "nested"};

enum {
	CONSUMERS = 2,
	/* What a set says of a channel's own object, and of one that a child has put in. */
	MINE = 1,
	ANOTHERS = 2,
	MESSAGE = 200,
	CHUNK = 16384,
	/* What a brief channel holds. */
	BRIEF = 100,
};

/* One of the two locks: who has the object's end in its hands. Traffic makes way for operators. */
struct gate {
	pthread_mutex_t lock;
	atomic_uint wanted;
};

/* Its numbers are each process's own. */
struct channel {
	int number;
	enum kind kind;
	enum way way, acknowledged_by;
	/* What is read from and what is written to: one number for what is one object. */
	int in, out;
	/* A set for each consumer, or for all; one within it; one for room; -1 if there is none. */
	int sets[CONSUMERS], inner, room;
	/* An eventfd to acknowledge by, and its set. */
	int acknowledge, acknowledge_set;
	int nonblocking, cloexec, huge, ends_by_close;
	/* A stream that always has room for what is written, as one that wakes a loop. */
	int brief;
	unsigned consumers;
	struct counts *counts;
	struct gate *producer, *consumer;
};

static struct channel channels[CHANNELS];
static struct gate gates[CHANNELS][1 + CONSUMERS];

static int is_stream(const struct channel *c)
{
	return c->kind == PIPE || c->kind == PAIR;
}

static int is_eventfd(const struct channel *c)
{
	return c->kind == COUNTER || c->kind == SEMAPHORE;
}

static void describe_channel(int number)
{
	const struct channel *c = &channels[number];
	struct pollfd ready = {c->in, POLLIN, 0};
	poll(&ready, 1, 0);
	printf("    channel %d: %s by %s%s%s%s, %u consumers, acknowledged by %s; sent %llu, taken %llu, "
	       "acknowledged %llu, stop %d; poll says %#x\n",
	       number, kinds[c->kind], ways[c->way], c->nonblocking ? ", O_NONBLOCK" : "",
	       c->brief ? ", brief" : "", c->cloexec ? "" : ", inherited", c->consumers,
	       c->acknowledge >= 0 ? ways[c->acknowledged_by] : "a word",
	       atomic_load(&c->counts->sent), atomic_load(&c->counts->taken),
	       atomic_load(&c->counts->acknowledged), atomic_load(&c->counts->stop),
	       (unsigned)ready.revents);
}

/* ---- to wait until a number is readable or writable ---- */

/* poll(2) without time says EINTR as well, if it finds nothing. */
static int look_at(struct pollfd *fds, nfds_t n)
{
	int count;
	do
		count = poll(fds, n, 0);
	while (count == -1 && errno == EINTR);
	return need(count);
}

static void wait_by_poll(int fd, short events)
{
	struct pollfd one = {fd, events, 0};
	int count;
	do
		count = poll(&one, 1, -1);
	while (count == -1 && errno == EINTR);
	need(count);
	if (one.revents & (POLLNVAL | POLLERR))
		fail("poll says %#x", (unsigned)one.revents);
}

static void wait_by_select(int fd)
{
	int count;
	do {
		fd_set set;
		FD_ZERO(&set);
		FD_SET(fd, &set);
		count = select(fd + 1, &set, NULL, NULL, NULL);
	} while (count == -1 && errno == EINTR);
	expect("select", 1, count);
}

/* Until the channel's own object is reported. */
static void wait_by_set(int set)
{
	for (;;) {
		struct epoll_event events[4];
		int count = epoll_wait(set, events, 1 + (int)below(4), -1);
		/* A SIGCHLD that nothing handles may end a wait while its thread has it blocked. */
		if (count == -1 && errno != EINTR)
			need(-1);
		for (int i = 0; i < count; i++)
			if (events[i].data.u64 == MINE)
				return;
	}
}

static void wait_readable(const struct channel *c, unsigned who)
{
	begin_wait("something to read", c->number);
	if (c->way == POLL)
		wait_by_poll(c->in, POLLIN);
	else if (c->way == SELECT)
		wait_by_select(c->in);
	else if (c->way != BLOCK)
		wait_by_set(c->sets[who]);
	if (c->way == NESTED) {
		struct epoll_event event;
		need(epoll_wait(c->inner, &event, 1, 0));
	}
	end_wait();
}

static void wait_writable(const struct channel *c)
{
	begin_wait("room", c->number);
	if (c->room >= 0)
		wait_by_set(c->room);
	else
		wait_by_poll(c->out, POLLOUT);
	end_wait();
}

/* ---- to send ---- */

static unsigned char byte_at(uint64_t offset)
{
	return (unsigned char)((offset + 1) * 0x9e3779b97f4a7c15 >> 56);
}

static void write_all(const struct channel *c, const void *data, size_t length)
{
	for (size_t done = 0; done < length;) {
		struct iovec part = {(char *)data + done, length - done};
		begin_wait("a write", c->number);
		ssize_t count = below(4) ? write(c->out, part.iov_base, part.iov_len)
					 : writev(c->out, &part, 1);
		end_wait();
		if (count > 0)
			done += (size_t)count;
		else if (count == -1 && errno == EAGAIN && c->nonblocking)
			wait_writable(c);
		else if (!(count == -1 && errno == EINTR))
			need(-1);
	}
}

static void until_taken(const struct channel *c);

static void send_count(const struct channel *c, uint64_t value)
{
	atomic_fetch_add(&c->counts->sent, value);
	write_all(c, &value, sizeof value);
}

static void send_bytes(const struct channel *c, size_t length)
{
	unsigned char data[CHUNK];
	uint64_t offset = atomic_fetch_add(&c->counts->sent, length);
	for (size_t i = 0; i < length; i++)
		data[i] = byte_at(offset + i);
	write_all(c, data, length);
}

/* Once only, so it expires once only, and is read before it is set again. */
static void send_expiration(const struct channel *c)
{
	struct itimerspec time = {0};
	until_taken(c);
	atomic_fetch_add(&c->counts->sent, 1);
	if (below(2)) {
		time.it_value.tv_nsec = 1 + below(200000);
		need(timerfd_settime(c->out, 0, &time, NULL));
	} else {
		int64_t when = now() + below(200000);
		time.it_value = (struct timespec){when / 1000000000, when % 1000000000};
		need(timerfd_settime(c->out, TFD_TIMER_ABSTIME, &time, NULL));
	}
}

static void send_one(const struct channel *c)
{
	switch (c->kind) {
	case COUNTER:
		send_count(c, c->huge && below(4) == 0 ? UINT64_MAX - 1 : 1 + below(1000));
		break;
	case SEMAPHORE:
		send_count(c, 1 + below(3));
		break;
	case TIMER:
		send_expiration(c);
		break;
	case MESSAGES:
	case PACKETS:
		send_bytes(c, 1 + below(MESSAGE));
		break;
	default:
		if (c->brief) {
			if (atomic_load(&c->counts->sent) - atomic_load(&c->counts->taken) > BRIEF)
				until_taken(c);
			send_bytes(c, 1 + below(4));
			break;
		}
		send_bytes(c, 1 + (below(16) ? below(300) : below(CHUNK)));
	}
}

/* ---- to take ---- */

static void took(const struct channel *c, uint64_t amount)
{
	atomic_fetch_add(&c->counts->taken, amount);
	if (c->acknowledge >= 0) {
		need(write(c->acknowledge, &amount, sizeof amount));
		return;
	}
	atomic_fetch_add(&c->counts->turns, 1);
	if (atomic_load(&c->counts->sleepers))
		wake_word(&c->counts->turns);
}

static ssize_t read_some(const struct channel *c, void *data, size_t length)
{
	ssize_t count;
	struct iovec part = {data, length};
	begin_wait("a read", c->number);
	do
		count = below(4) ? read(c->in, data, length) : readv(c->in, &part, 1);
	while (count == -1 && errno == EINTR);
	end_wait();
	return count;
}

/* One read: 1, or 0 if there was nothing, or -1 at the end. */
static int take_one(const struct channel *c)
{
	unsigned char data[4096];
	uint64_t value = 0;
	int counts = c->kind <= TIMER;
	size_t length = c->kind >= MESSAGES ? MESSAGE : 1 + below(sizeof data);
	ssize_t count = counts ? read_some(c, &value, 8) : read_some(c, data, length);
	if (count == -1 && errno == EAGAIN && c->nonblocking)
		return 0;
	need((int)count);
	if (counts) {
		expect("what a read gives", 8, count);
		if (value == 0 || (c->kind != COUNTER && value != 1))
			fail("a %s gives %llu", kinds[c->kind], (unsigned long long)value);
		took(c, value);
		return 1;
	}
	if (count == 0)
		return -1;
	uint64_t offset = atomic_load(&c->counts->taken);
	for (ssize_t i = 0; i < count; i++)
		if (data[i] != byte_at(offset + (uint64_t)i))
			fail("byte %llu of a %s is another", (unsigned long long)offset + (unsigned long long)i,
			     kinds[c->kind]);
	took(c, (uint64_t)count);
	return 1;
}

/* Without a wait, for who alone reads: whether something was there. */
static int take_at_once(const struct channel *c)
{
	struct pollfd one = {c->in, POLLIN, 0};
	return look_at(&one, 1) == 1 && take_one(c) == 1;
}

/* As a consumer does: waits, and takes one, or all if it would not be told of the rest. */
static int consume(const struct channel *c, unsigned who)
{
	int all = c->way == EXCLUSIVE || c->way == EDGE || c->way == ONESHOT, got = 0, result;
	wait_readable(c, who);
	do {
		result = take_one(c);
		if (result != 0)
			got = result;
	} while (result == 1 && all);
	if (c->way == ONESHOT) {
		struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = MINE};
		need(epoll_ctl(c->sets[who], EPOLL_CTL_MOD, c->in, &event));
	}
	return got;
}

/* ---- until everything is taken ---- */

static void hear_acknowledgements(const struct channel *c)
{
	while (atomic_load(&c->counts->acknowledged) != atomic_load(&c->counts->sent)) {
		uint64_t value;
		if (c->acknowledged_by == POLL)
			wait_by_poll(c->acknowledge, POLLIN);
		else if (c->acknowledged_by != BLOCK)
			wait_by_set(c->acknowledge_set);
		expect("an acknowledgement", 8, read(c->acknowledge, &value, 8));
		atomic_fetch_add(&c->counts->acknowledged, value);
	}
}

/* For the producer whose turn it is. A lost wake-up of a consumer ends here. */
static void until_taken(const struct channel *c)
{
	struct counts *counts = c->counts;
	begin_wait("what was sent to be taken", c->number);
	if (c->acknowledge >= 0) {
		hear_acknowledgements(c);
	} else {
		atomic_fetch_add(&counts->sleepers, 1);
		for (;;) {
			unsigned seen = atomic_load(&counts->turns);
			if (atomic_load(&counts->taken) == atomic_load(&counts->sent))
				break;
			/* A child may be killed before it wakes whom it has told. */
			sleep_on_word(&counts->turns, seen, 1000);
		}
		atomic_fetch_sub(&counts->sleepers, 1);
	}
	end_wait();
}

#endif
