/*
 * What must not be lost or go astray while an eventfd or a set moves into the kernel, which poll(2)
 * and dup(2) of it make it do: edges, watches around it, and the number it has. To the plain kernel
 * all of this is nothing special.
 *
 * What each case would catch:
 *   edges before a second move      a move that takes for reported an edge of a watch that moved
 *                                   before it
 *   edges before a nested move      the same of a set that moved before it
 *   moves inside nested sets        a set that gets its first watch in the kernel, unnoticed by the
 *                                   sets around it
 *   a close during a move           a move that goes on with a number that stands for another file
 *                                   by now
 *   a write during a move           a move that takes for reported the edge of a write that comes
 *                                   while it is made
 *   oneshot watches during moves    a move that disarms a watch on the way, or loses what it was to
 *                                   report
 */
#include "show.h"
#include <sched.h>
#include <sys/socket.h>

enum way { POLL, DUP, WAYS };
static const char *const names[] = {"poll", "dup"};

static int new_set(void)
{
	return must(epoll_create1(EPOLL_CLOEXEC));
}

static int new_counter(void)
{
	return must(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

static void move(int fd, enum way way)
{
	if (way == POLL)
		must(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0));
	else
		must(close(must(dup(fd))));
}

static void show_second_move(enum way way)
{
	int set = new_set(), first = new_counter(), second = new_counter();
	struct epoll_event events[4];
	int found = 0;
	printf("by %s\n", names[way]);
	must(watch_new(set, first, EPOLLIN | EPOLLET, 'a'));
	must(watch_new(set, second, EPOLLIN | EPOLLET, 'b'));
	must(add(first, 1));
	must(add(second, 1));
	show("both edges", "a=IN b=IN", sorted(set, 4, 0));
	move(first, way);
	must(add(first, 1));
	move(second, way);
	int count = must(epoll_wait(set, events, 4, 200));
	/* That a move repeats the other's edge is no loss. */
	for (int i = 0; i < count; i++)
		found |= events[i].data.u64 == 'a';
	yes("an edge of the first, from before the second moved", found);
	must(close(first));
	must(close(second));
	must(close(set));
}

static void show_second_move_beside_a_set(enum way way)
{
	int outer = new_set(), inner = new_set(), inside = new_counter(), beside = new_counter();
	struct epoll_event events[4];
	int found = 0;
	printf("by %s\n", names[way]);
	must(watch_new(inner, inside, EPOLLIN, 'i'));
	must(watch_new(outer, inner, EPOLLIN | EPOLLET, 'a'));
	must(watch_new(outer, beside, EPOLLIN | EPOLLET, 'b'));
	must(add(beside, 1));
	show("the counter's edge", "b=IN", ordered(outer, 4, 0));
	move(inner, way);
	must(add(inside, 1));
	move(beside, way);
	int count = must(epoll_wait(outer, events, 4, 200));
	for (int i = 0; i < count; i++)
		found |= events[i].data.u64 == 'a';
	yes("an edge of the set, from before the counter moved", found);
	must(close(outer));
	must(close(inner));
	must(close(inside));
	must(close(beside));
}

static void show_nested(enum way way)
{
	int outermost = new_set(), outer = new_set(), inner = new_set(), fd = new_counter();
	printf("by %s\n", names[way]);
	must(watch_new(outer, inner, EPOLLIN, 'b'));
	must(watch_new(inner, fd, EPOLLIN, 'c'));
	move(fd, way);
	must(add(fd, 1));
	show("a counter moved: the set around its set", "b=IN", sorted(outer, 4, 200));
	show("its set", "c=IN", sorted(inner, 4, 200));
	must(close(fd));
	must(close(inner));

	inner = new_set();
	fd = new_counter();
	must(watch_new(outermost, outer, EPOLLIN, 'a'));
	must(watch_new(outer, inner, EPOLLIN, 'b'));
	must(watch_new(inner, fd, EPOLLIN, 'c'));
	show("nothing yet", "none", ready(outermost));
	move(inner, way);
	must(add(fd, 1));
	show("the innermost of three sets moved: the outermost", "a=IN", sorted(outermost, 4, 200));
	show("the one between", "b=IN", sorted(outer, 4, 200));
	show("the innermost", "c=IN", sorted(inner, 4, 200));
	must(close(fd));
	must(close(inner));
	must(close(outer));
	must(close(outermost));
}

/* ---- a close during a move ---- */

static atomic_int target = -1, stop;

static void *poll_target(void *unused)
{
	(void)unused;
	while (!atomic_load(&stop)) {
		struct pollfd polled = {atomic_load(&target), POLLIN, 0};
		if (polled.fd >= 0)
			poll(&polled, 1, 0);
		else
			sched_yield();
	}
	return NULL;
}

static void show_close(void)
{
	struct thread movers[3];
	int ends[2], strays = 0;
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends));
	must(close(must(dup(ends[0]))));
	for (int i = 0; i < 3; i++)
		start(&movers[i], poll_target, NULL);
	int64_t end = now() + 1500000000LL;
	for (int round = 0; round < 25000 && now() < end; round++) {
		int fd = new_counter(), copy;
		must(add(fd, 0x4141414141414141));
		atomic_store(&target, fd);
		spin(rand() % 200);
		/* The number is a socket's next. */
		if (round % 4 == 0) {
			copy = must(dup2(ends[1], fd));
		} else {
			must(close(fd));
			copy = must(dup(ends[1]));
		}
		spin(300);
		atomic_store(&target, -1);
		if (round % 16 == 0)
			sched_yield();
		char stray[64];
		strays += read(ends[0], stray, sizeof stray) > 0;
		must(close(copy));
	}
	atomic_store(&stop, 1);
	for (int i = 0; i < 3; i++)
		finish(&movers[i]);
	number("what came out of a socket that nobody wrote to", 0, strays);
	must(close(ends[0]));
	must(close(ends[1]));
}

/* ---- a write during a move ---- */

static atomic_int turn, moved;
static int moving;

static void *move_each(void *way)
{
	for (int round = 1;; round++) {
		int now_ = 0;
		while ((now_ = atomic_load(&turn)) < round) {
			if (now_ < 0)
				return NULL;
			sched_yield();
		}
		spin(rand() % 200);
		move(moving, *(enum way *)way);
		atomic_store(&moved, round);
	}
}

static void show_write(enum way way, uint32_t more, int rounds)
{
	struct thread mover;
	int lost = 0;
	atomic_store(&turn, 0);
	start(&mover, move_each, &way);
	for (int round = 1; round <= rounds && lost < 3; round++) {
		int set = new_set(), fd = new_counter();
		must(watch_new(set, fd, EPOLLIN | EPOLLET | more, 'a'));
		/* With one edge reported before, and with none. */
		if (round % 2) {
			must(add(fd, 1));
			if (strcmp(ready(set), "a=IN") != 0)
				lost++;
			drain(fd);
			if (more)
				must(watch(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLET | more, 'a'));
		}
		moving = fd;
		atomic_store(&turn, round);
		spin(rand() % 3000);
		must(add(fd, 1));
		while (atomic_load(&moved) != round)
			sched_yield();
		if (strcmp(ordered(set, 4, 200), "a=IN") != 0)
			lost++;
		must(close(fd));
		must(close(set));
	}
	atomic_store(&turn, -1);
	finish(&mover);
	number(names[way], 0, lost);
}

int main(void)
{
	heading("edges before a second move");
	for (enum way way = POLL; way < WAYS; way++)
		show_second_move(way);
	heading("edges before a nested move");
	for (enum way way = POLL; way < WAYS; way++)
		show_second_move_beside_a_set(way);
	heading("moves inside nested sets");
	for (enum way way = POLL; way < WAYS; way++)
		show_nested(way);
	heading("a close during a move");
	show_close();
	heading("a write during a move: edges lost");
	for (enum way way = POLL; way < WAYS; way++)
		show_write(way, 0, 10000);
	heading("oneshot watches during moves: events lost");
	for (enum way way = POLL; way < WAYS; way++)
		show_write(way, EPOLLONESHOT, 5000);
	return verdict();
}
