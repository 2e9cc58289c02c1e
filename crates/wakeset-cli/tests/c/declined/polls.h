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
	int64_t began = now();
	tell(course->go[COUNT][1]);
	int64_t longest = waited(course, COUNT, began);
	for (int i = 0; i < COUNT; i++)
		must(close(clients[i]));
	end(course);
	return longest;
}

#endif
