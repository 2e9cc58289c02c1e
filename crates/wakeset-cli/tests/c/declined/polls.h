/*
 * Workers in poll(2).
 */
#ifndef DECLINED_POLLS_H
#define DECLINED_POLLS_H

/* Polls for a moment, is busy while the others decline, and takes one connection for each poll. */
static void take_after_each_poll(struct course *course, int go)
{
	struct pollfd one = {course->listener, POLLIN, 0};
	hear(go);
	must(poll(&one, 1, 20));
	tell(course->done[1]);
	hear(go);
	for (int i = 0; i < 3; i++) {
		do
			must(poll(&one, 1, LIMIT_MS));
		while (!take_one(course->listener));
		note_accepted(course);
	}
}

/* A note of what was declined stands for any number, and it may come while the only worker that is
 * left is busy: it must hear of each. */
static int64_t three_decline(void)
{
	enum { COUNT = 3 };
	struct course *course = begin();
	int clients[COUNT];
	for (int i = 0; i <= COUNT; i++) {
		add_worker(course, i < COUNT ? decline : take_after_each_poll);
		step(course, i);
		sleep_ms(20);
	}
	for (int i = 0; i < COUNT; i++) {
		clients[i] = connect_to(course->listener);
		hear(course->done[0]);
	}
	for (int i = 0; i < COUNT; i++) {
		tell(course->go[i][1]);
		sleep_ms(20);
	}
	int64_t longest = wait_beside(course, COUNT, COUNT);
	for (int i = 0; i < COUNT; i++)
		must(close(clients[i]));
	end(course);
	return longest;
}

/* Is told of a connection, and hangs. */
static void hang(struct course *course, int go)
{
	await_connection(course, go);
	tell(course->done[1]);
}

/* More than the automatic order calls a few. */
enum { HELD = 5 };

/* Connections, which a worker is to keep. */
static void hold(const struct course *course, int held[HELD])
{
	for (int i = 0; i < HELD; i++)
		held[i] = connect_to(course->listener);
}

static void let_go(const int held[HELD])
{
	for (int i = 0; i < HELD; i++)
		must(close(held[i]));
}

/* Holds connections, polls the other listener, and then this one for a moment, when a second has
 * passed and it looks at what is there before it sleeps. */
static void poll_one_after_another(struct course *course, int go)
{
	struct pollfd one = {course->listener, POLLIN, 0}, other = {course->other, POLLIN, 0};
	hear(go);
	for (int i = 0; i < HELD; i++) {
		must(poll(&one, 1, LIMIT_MS));
		must(accept4(course->listener, NULL, NULL, SOCK_CLOEXEC));
	}
	tell(course->done[1]);
	hear(go);
	must(poll(&other, 1, 20));
	sleep_ms(1100);
	tell(course->done[1]);
	hear(go);
	if (must(poll(&one, 1, 10)) > 0 && take_one(course->listener))
		note_accepted(course);
}

/* A worker that leaves a connection to one that holds less names the listener of this wait. */
static int64_t other_listener_before(void)
{
	struct course *course = begin();
	void (*const works[])(struct course *, int) = {poll_one_after_another, hang, await_other,
						       await_other, serve_anywhere};
	int held[HELD];
	hold(course, held);
	for (int i = 0; i < WORKERS; i++) {
		add_worker(course, works[i]);
		step(course, i);
		sleep_ms(20);
	}
	step(course, 0);
	int client = connect_to(course->listener);
	hear(course->done[0]);
	sleep_ms(20);
	int64_t longest = wait_beside(course, 0, 1);
	let_go(held);
	must(close(client));
	end(course);
	return longest;
}

#endif
