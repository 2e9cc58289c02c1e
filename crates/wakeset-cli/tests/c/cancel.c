/*
 * Cancellation: epoll_wait(2), read(2), write(2), poll(2) and system(3) are cancellation points
 * (pthreads(7)), and nothing of the objects is held when a thread leaves through one.
 */
#include "show.h"
#include <sys/uio.h>

enum way { WAIT, WAIT_2, READ, READV, WRITE, POLL, WAYS };
static const char *const names[] = {"epoll_wait", "epoll_pwait2", "read", "readv", "write", "poll"};

static int set, counter, full;
static atomic_int cleaned;

static void clean(void *unused)
{
	(void)unused;
	atomic_fetch_add(&cleaned, 1);
}

static long block(enum way way)
{
	struct epoll_event event;
	uint64_t value = 1;
	struct iovec part = {&value, sizeof value};
	struct pollfd polled = {counter, POLLIN, 0};
	switch (way) {
	case WAIT: return epoll_wait(set, &event, 1, -1);
	case WAIT_2: return epoll_pwait2(set, &event, 1, NULL, NULL);
	case READ: return read(counter, &value, sizeof value);
	case READV: return readv(counter, &part, 1);
	case WRITE: return write(full, &value, sizeof value);
	default: return poll(&polled, 1, -1);
	}
}

static void *block_with_handler(void *argument)
{
	long result;
	pthread_cleanup_push(clean, NULL);
	result = block(*(enum way *)argument);
	pthread_cleanup_pop(0);
	return (void *)result;
}

static void *block_undisturbed(void *argument)
{
	int old;
	long result;
	must_be_zero(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old));
	result = block(*(enum way *)argument);
	/* The request waits until it is let through. */
	pthread_cleanup_push(clean, NULL);
	atomic_fetch_add(&cleaned, 100);
	must_be_zero(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old));
	pthread_testcancel();
	pthread_cleanup_pop(0);
	return (void *)result;
}

/* A request that is there before the call is made: the call does nothing. */
static void *call_when_cancelled(void *argument)
{
	pthread_cleanup_push(clean, NULL);
	must_be_zero(pthread_cancel(pthread_self()));
	(void)!block(*(enum way *)argument);
	pthread_cleanup_pop(0);
	return NULL;
}

static void end(enum way way)
{
	if (way == WRITE)
		drain(full);
	else
		must(add(counter, 1));
}

static void show_all(void)
{
	for (enum way way = 0; way < WAYS; way++) {
		struct thread thread;
		heading(names[way]);
		atomic_store(&cleaned, 0);
		start(&thread, block_with_handler, &way);
		until_asleep(thread.id);
		must_be_zero(pthread_cancel(thread.handle));
		yes("a blocked thread can be cancelled", finish(&thread) == PTHREAD_CANCELED);
		number("its handler ran", 1, atomic_load(&cleaned));

		atomic_store(&cleaned, 0);
		start(&thread, block_undisturbed, &way);
		until_asleep(thread.id);
		must_be_zero(pthread_cancel(thread.handle));
		until_asleep(thread.id);
		number("with cancellation disabled it goes on waiting", 0, atomic_load(&cleaned));
		end(way);
		yes("and is cancelled when that is over", finish(&thread) == PTHREAD_CANCELED);
		number("past its call", 101, atomic_load(&cleaned));
		if (way == WRITE)
			must(add(full, 0xfffffffffffffffd)); /* the write of 1 went through */
		else if (way != READ && way != READV)
			drain(counter);

		/* What a call that need not wait does with a request already there. */
		atomic_store(&cleaned, 0);
		end(way);
		start(&thread, call_when_cancelled, &way);
		yes("a request from before the call is seen in it", finish(&thread) == PTHREAD_CANCELED);
		number("its handler ran", 1, atomic_load(&cleaned));
		if (way == WRITE) {
			must(fcntl(full, F_SETFL, O_NONBLOCK));
			CALL("nothing was written", "-1 EAGAIN", take(full));
			must(fcntl(full, F_SETFL, 0));
			must(add(full, 0xfffffffffffffffe));
		} else {
			must(fcntl(counter, F_SETFL, O_NONBLOCK));
			CALL("nothing was taken", "1", take(counter));
			must(fcntl(counter, F_SETFL, 0));
		}
	}
	heading("afterwards");
	struct waiter waiter;
	start_waiting(&waiter, set, 1);
	must(add(counter, 3));
	show("the set works", "a=IN", what_it_saw(&waiter));
	number("and the counter", 3, take(counter));
}

static void *run_shell(void *unused)
{
	pthread_cleanup_push(clean, NULL);
	(void)!system("exec sleep 60");
	pthread_cleanup_pop(0);
	return unused;
}

static void *cancel_itself(void *unused)
{
	int old;
	pthread_cleanup_push(clean, NULL);
	must_be_zero(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
	pthread_cancel(pthread_self());
	pthread_cleanup_pop(0);
	return unused;
}

static void show_functions(void)
{
	struct thread thread;
	heading("functions of libc");
	atomic_store(&cleaned, 0);
	start(&thread, run_shell, NULL);
	until_asleep(thread.id);
	must_be_zero(pthread_cancel(thread.handle));
	yes("system(3) can be cancelled", finish(&thread) == PTHREAD_CANCELED);
	start(&thread, cancel_itself, NULL);
	yes("a thread can cancel itself at once", finish(&thread) == PTHREAD_CANCELED);
	number("their handlers ran", 2, atomic_load(&cleaned));
}

int main(void)
{
	int ends[2];
	counter = must(eventfd(0, 0));
	full = must(eventfd(0, 0));
	must(add(full, 0xfffffffffffffffe));
	set = must(epoll_create1(0));
	must(watch_new(set, counter, EPOLLIN, 'a'));
	heading("a set with a counter");
	show_all();
	heading("a set with a counter and a pipe");
	kernel_pipe(ends, 0);
	must(watch_new(set, ends[0], EPOLLIN, 'p'));
	show_all();
	show_functions();
	return verdict();
}
