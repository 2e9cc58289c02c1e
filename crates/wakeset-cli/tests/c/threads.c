/*
 * Waits that sleep and what other threads do meanwhile: NOTES of epoll_wait(2) on descriptors added
 * during a wait, epoll(7) on how many waiters an event wakes, and EPOLLEXCLUSIVE in epoll_ctl(2).
 */
#include "show.h"

enum { WAITERS = 4 };

static int new_set(void)
{
	return must(epoll_create1(EPOLL_CLOEXEC));
}

static int new_counter(void)
{
	return must(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

static void show_one(void)
{
	struct waiter waiter;
	heading("one waiter");
	int set = new_set(), fd = new_counter(), other = new_counter();
	must(add(other, 1));

	start_waiting(&waiter, set, 4);
	must(watch_new(set, other, EPOLLIN, 'a'));
	show("sees what is added ready", "a=IN", what_it_saw(&waiter));
	must(epoll_ctl(set, EPOLL_CTL_DEL, other, NULL));

	start_waiting(&waiter, set, 4);
	must(watch_new(set, fd, EPOLLIN, 'b'));
	must(add(fd, 1));
	show("sees a write to what was added meanwhile", "b=IN", what_it_saw(&waiter));
	drain(fd);

	start_waiting(&waiter, set, 4);
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLOUT, 'c'));
	show("sees what a change of the mask makes ready", "c=OUT", what_it_saw(&waiter));
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 'd'));
	must(add(fd, 1));
	show("takes the one shot", "d=IN", ready(set));

	start_waiting(&waiter, set, 4);
	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 'e'));
	show("sees what is armed again", "e=IN", what_it_saw(&waiter));

	must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN, 'f'));
	drain(fd);
	start_waiting(&waiter, set, 4);
	must(close(fd));
	must(watch_new(set, other, EPOLLIN | EPOLLET, 'g'));
	show("outlives the close of all it watches", "g=IN", what_it_saw(&waiter));

	start_waiting(&waiter, set, 4);
	must(epoll_ctl(set, EPOLL_CTL_DEL, other, NULL));
	must(add(other, 1));
	number("is not woken by what was removed", 0, count_back(&waiter, 1));
	must(watch_new(set, other, EPOLLIN, 'h'));
	show("until it is added again", "h=IN", what_it_saw(&waiter));
	must(close(other));
	must(close(set));

	/*
	 * epoll_wait(2) does not say what becomes of a wait on a set whose descriptor is closed; the
	 * kernel's goes on.
	 */
	set = new_set();
	fd = new_counter();
	int copy = must(dup(set));
	must(watch_new(set, fd, EPOLLIN, 'i'));
	start_waiting(&waiter, set, 4);
	must(close(set));
	number("outlives the descriptor it was called with", 0, count_back(&waiter, 1));
	must(add(fd, 1));
	show("and sees what comes", "i=IN", what_it_saw(&waiter));
	must(close(copy));
	must(close(fd));
}

static void show_many(void)
{
	struct waiter waiters[WAITERS];
	int fds[WAITERS], set = new_set();

	heading("one event, edge-triggered");
	for (int i = 0; i < WAITERS; i++) {
		fds[i] = new_counter();
		must(watch_new(set, fds[i], EPOLLIN | EPOLLET, (char)('a' + i)));
	}
	for (int i = 0; i < WAITERS; i++)
		start_waiting(&waiters[i], set, 4);
	for (int i = 0; i < WAITERS; i++) {
		must(add(fds[0], 1));
		number("waiters it woke so far", i + 1, count_back(waiters, WAITERS));
	}
	for (int i = 0; i < WAITERS; i++)
		show("saw", "a=IN", what_it_saw(&waiters[i]));

	heading("as many events as waiters");
	for (int i = 0; i < WAITERS; i++)
		start_waiting(&waiters[i], set, 1);
	for (int i = 0; i < WAITERS; i++)
		must(add(fds[i], 1));
	int letters = 0;
	for (int i = 0; i < WAITERS; i++)
		letters |= 1 << (what_it_saw(&waiters[i])[0] - 'a');
	number("each event was seen, as bits", (1 << WAITERS) - 1, letters);

	heading("one event, one-shot");
	must(watch(set, EPOLL_CTL_MOD, fds[1], EPOLLIN | EPOLLONESHOT, 'o'));
	show("what was there", "o=IN", ready(set));
	for (int i = 0; i < WAITERS; i++)
		start_waiting(&waiters[i], set, 4);
	for (int i = 0; i < WAITERS; i++) {
		must(add(fds[1], 1));
		number("a disarmed watch wakes nobody", i, count_back(waiters, WAITERS));
		must(watch(set, EPOLL_CTL_MOD, fds[1], EPOLLIN | EPOLLONESHOT, 'o'));
		number("armed, one", i + 1, count_back(waiters, WAITERS));
	}
	for (int i = 0; i < WAITERS; i++)
		show("saw", "o=IN", what_it_saw(&waiters[i]));

	heading("one event, level-triggered, that nobody reads");
	drain(fds[2]);
	must(watch(set, EPOLL_CTL_MOD, fds[2], EPOLLIN, 'l'));
	for (int i = 0; i < WAITERS; i++)
		start_waiting(&waiters[i], set, 4);
	must(add(fds[2], 1));
	for (int i = 0; i < WAITERS; i++)
		show("what one leaves wakes the next", "l=IN", what_it_saw(&waiters[i]));
	for (int i = 0; i < WAITERS; i++)
		must(close(fds[i]));
	must(close(set));

	heading("a waiter per set");
	int sets[WAITERS], fd = new_counter();
	for (int i = 0; i < WAITERS; i++) {
		sets[i] = new_set();
		must(watch_new(sets[i], fd, EPOLLIN, 'p'));
		start_waiting(&waiters[i], sets[i], 4);
	}
	must(add(fd, 1));
	for (int i = 0; i < WAITERS; i++)
		show("a plain watch is always told", "p=IN", what_it_saw(&waiters[i]));
	drain(fd);

	for (int i = 0; i < WAITERS; i++) {
		must(epoll_ctl(sets[i], EPOLL_CTL_DEL, fd, NULL));
		must(watch_new(sets[i], fd, EPOLLIN | EPOLLEXCLUSIVE, 'x'));
		start_waiting(&waiters[i], sets[i], 4);
	}
	int plain = new_set();
	struct waiter plain_waiter;
	must(watch_new(plain, fd, EPOLLIN, 'p'));
	start_waiting(&plain_waiter, plain, 4);
	must(add(fd, 1));
	int woken = count_back(waiters, WAITERS);
	yes("EPOLLEXCLUSIVE: one or more are told", woken >= 1);
	yes("but not all", woken < WAITERS);
	show("a plain watch beside them is", "p=IN", what_it_saw(&plain_waiter));
	for (int i = 0; i < WAITERS; i++)
		must(add(fd, 1));
	for (int i = 0; i < WAITERS; i++)
		show("with more events, the others", "x=IN", what_it_saw(&waiters[i]));
	for (int i = 0; i < WAITERS; i++)
		must(close(sets[i]));
	must(close(plain));
	must(close(fd));
}

static void show_nested(void)
{
	struct waiter waiter;
	heading("a waiter above nested sets");
	int top = new_set(), middle = new_set(), low = new_set(), fd = new_counter(),
	    other = new_counter();
	must(watch_new(top, middle, EPOLLIN, 'm'));
	must(watch_new(middle, low, EPOLLIN, 'l'));
	must(watch_new(low, fd, EPOLLIN, 'a'));
	start_waiting(&waiter, top, 4);
	must(add(fd, 1));
	show("a write at the bottom", "m=IN", what_it_saw(&waiter));
	drain(fd);
	must(add(other, 1));
	start_waiting(&waiter, top, 4);
	must(watch_new(low, other, EPOLLIN, 'b'));
	show("something ready added at the bottom", "m=IN", what_it_saw(&waiter));
	must(epoll_ctl(low, EPOLL_CTL_DEL, other, NULL));
	start_waiting(&waiter, top, 4);
	must(watch(low, EPOLL_CTL_MOD, fd, EPOLLOUT, 'a'));
	show("a mask changed at the bottom", "m=IN", what_it_saw(&waiter));
	must(watch(low, EPOLL_CTL_MOD, fd, EPOLLIN, 'a'));

	int ready_set = new_set();
	must(watch_new(ready_set, other, EPOLLIN, 'b'));
	start_waiting(&waiter, top, 4);
	must(watch_new(middle, ready_set, EPOLLIN, 'r'));
	show("a ready set added in the middle", "m=IN", what_it_saw(&waiter));
	must(close(ready_set));
	must(watch(top, EPOLL_CTL_MOD, middle, EPOLLIN | EPOLLET, 'e'));
	show("nothing is left", "none", ready(top));
	for (int i = 0; i < 2; i++) {
		start_waiting(&waiter, top, 4);
		must(add(fd, 1));
		show("edge-triggered, every write", "e=IN", what_it_saw(&waiter));
	}
	must(close(top));
	must(close(middle));
	must(close(low));
	must(close(fd));
	must(close(other));
}

/* ---- two threads in turn ---- */

enum { TURNS = 5000 };

struct side {
	int set, mine, theirs;
	long long sum;
};

static void *answer(void *argument)
{
	struct side *side = argument;
	struct epoll_event event;
	for (int i = 0; i < TURNS; i++) {
		must(epoll_wait(side->set, &event, 1, -1));
		side->sum += take(side->mine);
		must(add(side->theirs, 2));
	}
	return NULL;
}

static void show_turns(uint32_t bits)
{
	struct thread thread;
	int mine = new_counter(), theirs = new_counter();
	struct side here = {new_set(), mine, theirs, 0}, there = {new_set(), theirs, mine, 0};
	must(watch_new(here.set, mine, EPOLLIN | bits, 'a'));
	must(watch_new(there.set, theirs, EPOLLIN | bits, 'a'));
	must(add(mine, 2));
	start(&thread, answer, &there);
	answer(&here);
	finish(&thread);
	number(bits ? "two threads in turn, edge-triggered: this one" : "two threads in turn: this one",
	       2 * TURNS, here.sum);
	number("the other", 2 * TURNS, there.sum);
	must(close(here.set));
	must(close(there.set));
	must(close(mine));
	must(close(theirs));
}

/* ---- many producers, many consumers, one set ---- */

enum { PRODUCERS = 3, CONSUMERS = 3, EACH = 20000 };

struct shop {
	int set, stop, fds[PRODUCERS];
	uint32_t bits;
	atomic_llong bought;
};

struct producer {
	struct thread thread;
	int fd;
};

static void *produce(void *argument)
{
	struct producer *producer = argument;
	for (int i = 0; i < EACH; i++)
		must(add(producer->fd, 1));
	return NULL;
}

static void *consume(void *argument)
{
	struct shop *shop = argument;
	for (;;) {
		struct epoll_event events[2];
		int count = must(epoll_wait(shop->set, events, 2, -1));
		for (int i = 0; i < count; i++) {
			if (events[i].data.u64 == 's')
				return NULL;
			int fd = shop->fds[events[i].data.u64 - 'a'];
			long long value = take(fd);
			if (shop->bits & EPOLLONESHOT)
				must(watch(shop->set, EPOLL_CTL_MOD, fd, EPOLLIN | shop->bits, (char)events[i].data.u64));
			/* Another consumer may have taken it first. */
			if (value > 0 && atomic_fetch_add(&shop->bought, value) + value == PRODUCERS * EACH)
				must(add(shop->stop, 1));
		}
	}
}

static void show_shop(const char *name, uint32_t bits)
{
	struct shop shop = {.set = new_set(), .stop = new_counter(), .bits = bits};
	struct producer producers[PRODUCERS];
	struct thread consumers[CONSUMERS];
	must(watch_new(shop.set, shop.stop, EPOLLIN, 's'));
	for (int i = 0; i < PRODUCERS; i++) {
		shop.fds[i] = producers[i].fd = new_counter();
		must(watch_new(shop.set, shop.fds[i], EPOLLIN | bits, (char)('a' + i)));
	}
	for (int i = 0; i < CONSUMERS; i++)
		start(&consumers[i], consume, &shop);
	for (int i = 0; i < PRODUCERS; i++)
		start(&producers[i].thread, produce, &producers[i]);
	for (int i = 0; i < PRODUCERS; i++)
		finish(&producers[i].thread);
	for (int i = 0; i < CONSUMERS; i++)
		finish(&consumers[i]);
	number(name, PRODUCERS * EACH, atomic_load(&shop.bought));
	for (int i = 0; i < PRODUCERS; i++)
		must(close(shop.fds[i]));
	must(close(shop.stop));
	must(close(shop.set));
}

int main(void)
{
	show_one();
	show_many();
	show_nested();
	heading("many events");
	show_turns(0);
	show_turns(EPOLLET);
	show_shop("three producers, three consumers, level-triggered", 0);
	show_shop("three producers, three consumers, edge-triggered", EPOLLET);
	show_shop("three producers, three consumers, one-shot", EPOLLONESHOT);
	show_shop("three producers, three consumers, one-shot and edge-triggered", EPOLLONESHOT | EPOLLET);
	return verdict();
}
