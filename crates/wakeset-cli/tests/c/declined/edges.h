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

/* Has a program without Wakeset, whose calls nobody counts, take a connection. */
static void take_outside(int listener)
{
	char number[16];
	int status;
	snprintf(number, sizeof number, "%d", listener);
	pid_t child = must(fork());
	if (child == 0) {
		must(unsetenv("LD_PRELOAD"));
		must(fcntl(listener, F_SETFD, 0));
		execl("/proc/self/exe", "declined", "take", number, NULL);
		_exit(1);
	}
	must(waitpid(child, &status, 0));
	must_be_zero(status);
}

/* Watches the listener by edges, and is told. Goes on when it is to. */
static int told_by_edge(struct course *course, int go)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	hear(go);
	watch_new(set, course->listener, EPOLLIN | EPOLLET, 'l');
	tell(course->done[1]);
	wait_in(set, LIMIT_MS);
	tell(course->done[1]);
	hear(go);
	return set;
}

/* Is told by an edge, follows it with an accept(2), and waits again later. */
static void take_then_serve(struct course *course, int go)
{
	int set = told_by_edge(course, go);
	take_one(course->listener);
	tell(course->done[1]);
	hear(go);
	wait_in(set, LIMIT_MS);
	accept_one(course, set);
}

/* What comes after an edge was followed is new, also if another was woken for it. Another program
 * may be faster than the one that follows it. */
static int64_t told_by_edge_before(int is_taken)
{
	struct course *course = begin();
	add_worker(course, decline_second);
	add_worker(course, take_then_serve);
	step(course, 0);
	step(course, 1);
	sleep_ms(20);
	int first = connect_to(course->listener);
	hear(course->done[0]);
	if (is_taken)
		take_outside(course->listener);
	step(course, 1);
	step(course, 0);
	sleep_ms(20);
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
	return told_by_edge_before(1);
}

static int64_t taken_before(void)
{
	return told_by_edge_before(0);
}

/* Is told by an edge, leaves the connection, and waits again. */
static void leave_edge_then_serve(struct course *course, int go)
{
	int set = told_by_edge(course, go);
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
	return wait_for_second(course, first, DECLINES);
}

/* Is told by an edge and leaves the connection, once more, and declines. */
static void leave_edge_then_decline(struct course *course, int go)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	hear(go);
	watch_new(set, course->listener, EPOLLIN | EPOLLET, 'l');
	wait_in(set, 20);
	tell(course->done[1]);
	for (int i = 0; i < 2; i++) {
		hear(go);
		tell(course->done[1]);
		wait_in(set, LIMIT_MS);
		tell(course->done[1]);
	}
	hear(go);
	must(epoll_ctl(set, EPOLL_CTL_DEL, course->listener, NULL));
}

/* It has left one that stays, and another declines the next: nothing says that there are two now.
 * It must hear of them when it looks by itself for the second time. */
static int64_t left_for_good(void)
{
	enum { DECLINES, SERVES };
	struct course *course = begin();
	add_worker(course, leave_edge_then_decline);
	add_worker(course, leave_edge_then_serve);
	step(course, DECLINES);
	step(course, SERVES);
	sleep_ms(20);
	int first = connect_to(course->listener);
	hear(course->done[0]);
	step(course, SERVES);
	step(course, DECLINES);
	hear(course->done[0]);
	step(course, DECLINES);
	sleep_ms(20);
	return wait_for_second(course, first, DECLINES);
}

#endif
