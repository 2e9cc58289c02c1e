/*
 * The traffic of `forks_random.c`: channels are opened, their producers and consumers run, and in
 * the end everything that was sent has been taken.
 */
#ifndef FORKS_RANDOM_TRAFFIC_H
#define FORKS_RANDOM_TRAFFIC_H

#include "channels.h"

/* ---- gates ---- */

/* For traffic, which lets operators go first. */
static void enter(struct gate *gate)
{
	for (;;) {
		unsigned wanted = atomic_load(&gate->wanted);
		if (wanted == 0)
			break;
		sleep_on_word(&gate->wanted, wanted, 5);
	}
	pthread_mutex_lock(&gate->lock);
}

static void leave(struct gate *gate)
{
	pthread_mutex_unlock(&gate->lock);
}

/* What an operator, and a child of it, may do with a channel. */
enum access { SEND, TAKE, BOTH, ACCESSES };

/* Producers go on, so consumers come back. */
static void claim_consumers(struct channel *c)
{
	for (unsigned i = 0; i < c->consumers; i++)
		atomic_fetch_add(&c->consumer[i].wanted, 1);
	for (unsigned i = 0; i < c->consumers; i++)
		pthread_mutex_lock(&c->consumer[i].lock);
}

/* A producer may wait for what it sent, so it is taken meanwhile. Nothing is on its way then. */
static void claim_both(struct channel *c)
{
	claim_consumers(c);
	atomic_fetch_add(&c->producer->wanted, 1);
	while (pthread_mutex_trylock(&c->producer->lock) != 0)
		if (!take_at_once(c))
			nap(20);
	while (atomic_load(&c->counts->taken) != atomic_load(&c->counts->sent))
		if (!take_at_once(c))
			nap(20);
	until_taken(c);
}

static void claim(struct channel *c, enum access access)
{
	begin_wait("traffic to make way", c->number);
	if (access == SEND) {
		atomic_fetch_add(&c->producer->wanted, 1);
		pthread_mutex_lock(&c->producer->lock);
	} else if (access == TAKE) {
		claim_consumers(c);
	} else {
		claim_both(c);
	}
	end_wait();
}

static void give_back(struct gate *gate)
{
	pthread_mutex_unlock(&gate->lock);
	if (atomic_fetch_sub(&gate->wanted, 1) == 1)
		wake_word(&gate->wanted);
}

static void release(struct channel *c, enum access access)
{
	if (access != TAKE)
		give_back(c->producer);
	if (access != SEND)
		for (unsigned i = 0; i < c->consumers; i++)
			give_back(&c->consumer[i]);
}

/* ---- channels come and go ---- */

static int set_of(int fd, uint32_t events, int flags)
{
	int set = need(epoll_create1(flags));
	struct epoll_event event = {.events = events, .data.u64 = MINE};
	need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	return set;
}

static void open_object(struct channel *c, int flags)
{
	int ends[2];
	switch (c->kind) {
	case COUNTER:
	case SEMAPHORE:
		c->in = c->out = need(eventfd(0, flags | (c->kind == SEMAPHORE ? EFD_SEMAPHORE : 0)));
		return;
	case TIMER:
		c->in = c->out = need(timerfd_create(CLOCK_MONOTONIC, flags));
		return;
	case PIPE:
	case PACKETS:
		need(pipe2(ends, flags | (c->kind == PACKETS ? O_DIRECT : 0)));
		break;
	default:
		need(socketpair(AF_UNIX, (c->kind == PAIR ? SOCK_STREAM : SOCK_SEQPACKET) | flags, 0, ends));
	}
	c->in = ends[0];
	c->out = ends[1];
}

/* What is the kernel's from the beginning is not common. */
static enum kind any_kind(void)
{
	unsigned dot = below(MESSAGES * 4 + 2);
	return dot < MESSAGES * 4 ? dot / 4 : MESSAGES + dot % 2;
}

static void open_sets(struct channel *c, int flags)
{
	static const uint32_t events[WAYS] = {[LEVEL] = EPOLLIN, [EXCLUSIVE] = EPOLLIN | EPOLLEXCLUSIVE,
					      [EDGE] = EPOLLIN | EPOLLET,
					      [ONESHOT] = EPOLLIN | EPOLLONESHOT};
	c->sets[0] = c->sets[1] = c->inner = c->room = -1;
	if (c->way == NESTED) {
		c->inner = set_of(c->in, EPOLLIN, flags);
		c->sets[0] = c->sets[1] = set_of(c->inner, EPOLLIN, flags);
	} else if (c->way >= LEVEL) {
		c->sets[0] = c->sets[1] = set_of(c->in, events[c->way], flags);
		if (c->way == EXCLUSIVE && c->consumers == 2)
			c->sets[1] = set_of(c->in, events[c->way], flags);
	}
	if (c->nonblocking && c->kind != TIMER && below(2))
		c->room = set_of(c->out, EPOLLOUT, flags);
}

static void open_channel(struct channel *c, int number)
{
	static const enum way by[] = {BLOCK, POLL, LEVEL};
	int flags;
	memset(c, 0, sizeof *c);
	c->number = number;
	c->counts = &world->counts[number];
	memset(c->counts, 0, sizeof *c->counts);
	c->producer = &gates[number][0];
	c->consumer = &gates[number][1];
	c->kind = any_kind();
	c->way = below(WAYS);
	c->consumers = c->kind <= TIMER && below(3) == 0 ? CONSUMERS : 1;
	c->nonblocking = c->way >= EXCLUSIVE || (c->way != BLOCK && below(2));
	c->cloexec = below(3) != 0;
	flags = c->cloexec ? O_CLOEXEC : 0;
	open_object(c, flags | (c->nonblocking ? O_NONBLOCK : 0));
	open_sets(c, flags);
	c->acknowledge = c->acknowledge_set = -1;
	c->huge = c->kind == COUNTER && below(4) == 0;
	c->brief = is_stream(c) && below(3) != 0;
	if (!c->huge && below(2)) {
		c->acknowledged_by = by[below(3)];
		c->acknowledge = need(eventfd(0, flags));
		if (c->acknowledged_by == LEVEL)
			c->acknowledge_set = set_of(c->acknowledge, EPOLLIN | (below(2) ? EPOLLET : 0), flags);
	}
}

static void close_number(int fd)
{
	if (fd >= 0)
		need(close(fd));
}

static void close_sets(const struct channel *c)
{
	close_number(c->sets[0]);
	if (c->sets[1] != c->sets[0])
		close_number(c->sets[1]);
	close_number(c->inner);
	close_number(c->room);
}

static void close_channel(const struct channel *c)
{
	int sets_first = below(2);
	if (sets_first)
		close_sets(c);
	close_number(c->in);
	if (c->out != c->in)
		close_number(c->out);
	if (!sets_first)
		close_sets(c);
	close_number(c->acknowledge);
	close_number(c->acknowledge_set);
}

/* ---- threads ---- */

struct traffic {
	struct channel *channel;
	unsigned who;
	uint64_t seed;
	struct slot *slot;
	pthread_t thread;
};

static struct traffic producers[CHANNELS], consumers[CHANNELS][CONSUMERS];

static void take_role(const struct traffic *role)
{
	my_slot = role->slot;
	seed_dice(role->seed);
}

static void *produce(void *argument)
{
	struct traffic *role = argument;
	struct channel *c = role->channel;
	take_role(role);
	while (!atomic_load(&c->counts->stop)) {
		enter(c->producer);
		for (unsigned n = 1 + below(4); n > 0; n--)
			send_one(c);
		if (below(8))
			until_taken(c);
		leave(c->producer);
		switch (below(8)) {
		case 0: break;
		case 1: sched_yield(); break;
		default: nap(below(400));
		}
	}
	enter(c->producer);
	until_taken(c);
	leave(c->producer);
	return NULL;
}

static int is_over(const struct channel *c)
{
	struct counts *counts = c->counts;
	return atomic_load(&counts->stop) == 2 &&
	       atomic_load(&counts->taken) == atomic_load(&counts->sent);
}

static void *consume_on(void *argument)
{
	struct traffic *role = argument;
	struct channel *c = role->channel;
	struct gate *gate = &c->consumer[role->who];
	int result;
	take_role(role);
	do {
		enter(gate);
		result = consume(c, role->who);
		leave(gate);
	} while (result != -1 && !(result == 1 && is_over(c)));
	atomic_fetch_add(&c->counts->gone, 1);
	wake_word(&c->counts->gone);
	return NULL;
}

static struct slot *traffic_slot(int channel, int role)
{
	return &world->slots[1 + 2 * OPERATORS + 3 * channel + role];
}

static void start_traffic(void)
{
	for (int i = 0; i < CHANNELS; i++) {
		struct channel *c = &channels[i];
		open_channel(c, i);
		producers[i] = (struct traffic){c, 0, (uint64_t)below(INT_MAX), traffic_slot(i, 0), 0};
		must_be_zero(pthread_create(&producers[i].thread, NULL, produce, &producers[i]));
		for (unsigned j = 0; j < c->consumers; j++) {
			struct traffic *role = &consumers[i][j];
			*role = (struct traffic){c, j, (uint64_t)below(INT_MAX), traffic_slot(i, 1 + (int)j), 0};
			must_be_zero(pthread_create(&role->thread, NULL, consume_on, role));
		}
	}
}

/* By a consumer, if one is left: it may have seen that it is over before this was sent. */
static void until_last_is_taken(const struct channel *c)
{
	struct counts *counts = c->counts;
	begin_wait("the last one to be taken", c->number);
	while (atomic_load(&counts->taken) != atomic_load(&counts->sent)) {
		if (atomic_load(&counts->gone) == c->consumers)
			take_at_once(c);
		nap(100);
	}
	end_wait();
}

/* One more is sent for each consumer, which goes when it has taken it; or it finds the end. */
static void end_consumers(struct channel *c)
{
	struct counts *counts = c->counts;
	if (c->ends_by_close) {
		need(close(c->out));
		c->out = -1;
	}
	for (unsigned seen; (seen = atomic_load(&counts->gone)) < c->consumers;) {
		if (!c->ends_by_close) {
			send_one(c);
			atomic_store(&counts->stop, 2);
			until_last_is_taken(c);
		}
		begin_wait("a consumer to end", c->number);
		/* One that took it before it is over takes another one. */
		sleep_on_word(&counts->gone, seen, c->ends_by_close ? 2 * PATIENCE * 1000 : 20);
		end_wait();
	}
}

static void end_traffic(void)
{
	for (int i = 0; i < CHANNELS; i++)
		atomic_store(&channels[i].counts->stop, 1);
	for (int i = 0; i < CHANNELS; i++)
		must_be_zero(pthread_join(producers[i].thread, NULL));
	for (int i = 0; i < CHANNELS; i++) {
		struct channel *c = &channels[i];
		end_consumers(c);
		for (unsigned j = 0; j < c->consumers; j++)
			must_be_zero(pthread_join(consumers[i][j].thread, NULL));
		while (!c->ends_by_close && take_at_once(c))
			;
		if (atomic_load(&c->counts->taken) != atomic_load(&c->counts->sent)) {
			describe_channel(i);
			fail("a count is not exact");
		}
		close_channel(c);
	}
}

#endif
