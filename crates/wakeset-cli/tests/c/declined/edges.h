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

#endif
