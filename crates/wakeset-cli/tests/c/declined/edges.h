/*
 * A worker that watches by edges.
 */
#ifndef DECLINED_EDGES_H
#define DECLINED_EDGES_H

/* Watches the listener, waits later, and declines what it is told of. */
static void decline_second(struct course *course, int go)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	hear(go);
	watch_new(set, course->listener, EPOLLIN, 'l');
	tell(course->done[1]);
	hear(go);
	tell(course->done[1]);
	wait_in(set, LIMIT_MS);
	tell(course->done[1]);
	hear(go);
	must(epoll_ctl(set, EPOLL_CTL_DEL, course->listener, NULL));
}

/* Is told by an edge, accepts one connection or until there is nothing left, and waits again
 * later. */
static void serve_by_edges(struct course *course, int go, int drains)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	hear(go);
	watch_new(set, course->listener, EPOLLIN | EPOLLET, 'l');
	tell(course->done[1]);
	wait_in(set, LIMIT_MS);
	while (take_one(course->listener) && drains)
		;
	tell(course->done[1]);
	hear(go);
	wait_in(set, LIMIT_MS);
	accept_one(course, set);
}

static void drain_then_serve(struct course *course, int go)
{
	serve_by_edges(course, go, 1);
}

static void take_then_serve(struct course *course, int go)
{
	serve_by_edges(course, go, 0);
}

/* What comes after an edge was followed is new, also if another was woken for it. */
static int64_t told_by_edge_before(void (*serve)(struct course *, int))
{
	int first;
	struct course *course = begin_with_two(decline_second, serve, &first);
	int second = connect_to(course->listener);
	hear(course->done[0]);
	tell(course->go[1][1]);
	sleep_ms(20);
	int64_t longest = wait_beside(course, 0, 1);
	must(close(first));
	must(close(second));
	end(course);
	return longest;
}

static int64_t drained_before(void)
{
	return told_by_edge_before(drain_then_serve);
}

static int64_t taken_before(void)
{
	return told_by_edge_before(take_then_serve);
}

/* Is told by an edge, leaves the connection, and waits again. */
static void leave_edge_then_serve(struct course *course, int go)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	hear(go);
	watch_new(set, course->listener, EPOLLIN | EPOLLET, 'l');
	tell(course->done[1]);
	wait_in(set, LIMIT_MS);
	tell(course->done[1]);
	hear(go);
	tell(course->done[1]);
	wait_in(set, LIMIT_MS);
	accept_one(course, set);
}

/* Waits for a moment, and takes a connection when it is told to. */
static void take_when_told(struct course *course, int go)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	hear(go);
	watch_new(set, course->listener, EPOLLIN, 'l');
	wait_in(set, 20);
	tell(course->done[1]);
	hear(go);
	take_one(course->listener);
	tell(course->done[1]);
}

/* What it has left is gone, because a worker that is busy with it has taken it: it must hear of
 * the next one. */
static int64_t taken_by_another(void)
{
	enum { TAKES, DECLINES, SERVES };
	struct course *course = begin();
	add_worker(course, take_when_told);
	add_worker(course, decline_second);
	add_worker(course, leave_edge_then_serve);
	for (int i = 0; i < 3; i++)
		step(course, i);
	sleep_ms(20);
	int first = connect_to(course->listener);
	hear(course->done[0]);
	static const int next[] = {SERVES, TAKES, DECLINES};
	for (int i = 0; i < 3; i++) {
		step(course, next[i]);
		sleep_ms(20);
	}
	int second = connect_to(course->listener);
	hear(course->done[0]);
	sleep_ms(20);
	int64_t longest = wait_beside(course, DECLINES, 1);
	must(close(first));
	must(close(second));
	end(course);
	return longest;
}

#endif
