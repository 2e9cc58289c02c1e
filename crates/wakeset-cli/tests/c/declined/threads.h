/*
 * Workers whose threads wait in one set.
 */
#ifndef DECLINED_THREADS_H
#define DECLINED_THREADS_H

/* What another worker is woken for as well, that has taken by then. */
static void *take_what_stays(void *unused)
{
	for (;;)
		if (wait_in(shared_set, -1) > 0) {
			sleep_ms(100);
			take_one(shared_course->listener);
		}
	return unused;
}

/* Holds connections, and two of its threads wait in one set for more. */
static void hold_in_threads(struct course *course, int go)
{
	shared_course = course;
	shared_set = must(epoll_create1(EPOLL_CLOEXEC));
	hear(go);
	/* A level would wake the other thread as well. */
	watch_new(shared_set, course->listener, EPOLLIN | EPOLLET, 'l');
	wait_in(shared_set, LIMIT_MS);
	for (int i = 0; i < HELD; i++)
		must(accept4(course->listener, NULL, NULL, SOCK_CLOEXEC));
	for (int i = 0; i < 2; i++) {
		pthread_t thread;
		must_return_zero(pthread_create(&thread, NULL, take_what_stays, NULL), "pthread_create",
				 __LINE__);
	}
	tell(course->done[1]);
}

/* One of the threads leaves a connection to a worker that holds less, which must hear of it: the
 * other thread sleeps in the set that was first. */
static int64_t threads_leave_one(void)
{
	struct course *course = begin();
	int held[HELD];
	hold(course, held);
	add_worker(course, hold_in_threads);
	add_worker(course, serve_anywhere);
	for (int i = 0; i < 2; i++) {
		step(course, i);
		sleep_ms(20);
	}
	/* In which it comes to have a credit. */
	sleep_ms(400);
	int64_t began = now();
	int client = connect_to(course->listener);
	int64_t longest = waited(course, 1, began);
	let_go(held);
	must(close(client));
	end(course);
	return longest;
}

static int removal[2];

static void *remove_listener(void *unused)
{
	hear(removal[0]);
	must(epoll_ctl(shared_set, EPOLL_CTL_DEL, shared_course->listener, NULL));
	return unused;
}

/* Is told of a connection, and has another thread decline it, which has not waited. */
static void decline_by_another(struct course *course, int go)
{
	pthread_t thread;
	shared_course = course;
	kernel_pipe(removal, O_CLOEXEC);
	must_return_zero(pthread_create(&thread, NULL, remove_listener, NULL), "pthread_create",
			 __LINE__);
	shared_set = await_connection(course, go);
	tell(removal[1]);
}

/* A free worker sleeps meanwhile. */
static int64_t removed_by_another(void)
{
	struct course *course = begin();
	add_worker(course, decline_by_another);
	add_worker(course, serve_anywhere);
	for (int i = 0; i < 2; i++) {
		step(course, i);
		sleep_ms(20);
	}
	return wait_for_one(course);
}

#endif
