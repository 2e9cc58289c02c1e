/*
 * Workers of a prefork server that are told of a connection and do not accept it, because they are
 * at their limit: another worker has to get it at once. In Linux that is so where all are told; a
 * worker that is woken alone has to pass it on.
 *
 *     declining [shared | steps | ends | ends-alone | given WAY]
 *
 * With "shared", only what Linux tells all workers; with "steps", what shows whether each step of
 * the passing on is made; with "ends", workers that end before they accept, of which Linux tells
 * all, and with "ends-alone" those that ask to be woken alone; "given" is the master of a group, by
 * an exec.
 */
#include "listening.h"
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/wait.h>

#include "declining/worker.h"
#include "declining/groups.h"
#include "declining/ends.h"

static void show_steps(void)
{
	show_given(POLL);
	show_given(EPOLL);
	for (int i = 0; i < 3; i++)
		show_ended_by_signal();
	show_declined(AF_INET, POLL, DROPS);
	show_declined(AF_INET, EPOLL, DROPS);
	show_declined(AF_INET, EPOLL, AGAIN);
	show_two_listeners(POLL);
	show_two_listeners(EPOLL);
	show_shared_set(POLL);
	show_shared_set(EPOLL);
	show_quiet(POLL, CLOSES);
	show_quiet(EPOLL, CLOSES);
	show_quiet(POLL, AGAIN);
	show_quiet(EPOLL, AGAIN);
}

static void show_ends(int first, int last)
{
	for (int way = first; way < last; way++) {
		for (int how = FIRST_END; how <= LAST_END; how++)
			show_left_by(way, how);
		show_all_end(way, ENDS_AT_ONCE);
		for (int how = FIRST_THREADS_END; how <= LAST_THREADS_END; how++)
			show_threads_decline(way, how);
	}
}

int main(int count, char **arguments)
{
	int shared = count > 1 && strcmp(arguments[1], "shared") == 0;
	int steps = count > 1 && strcmp(arguments[1], "steps") == 0;
	signal(SIGPIPE, SIG_IGN);
	if (steps) {
		show_steps();
		return verdict();
	}
	if (count > 2 && strcmp(arguments[1], "given") == 0)
		return run_given((enum way)(arguments[2][0] - '0'));
	if (count > 1 && strcmp(arguments[1], "ends") == 0) {
		show_ends(SELECT, EXCLUSIVE);
		return verdict();
	}
	if (count > 1 && strcmp(arguments[1], "ends-alone") == 0) {
		show_ends(EXCLUSIVE, WAYS);
		return verdict();
	}
	for (int way = 0; way < (shared ? EXCLUSIVE : WAYS); way++) {
		for (int how = 0; how < HOWS; how++)
			if (is_possible(way, how))
				show_declined(AF_INET, way, how);
		show_declined(AF_UNIX, way, DROPS);
		show_left_by(way, CLOSES);
		show_left_by(way, ENDS);
		show_burst(way);
		show_given(way);
		if (way < EXCLUSIVE)
			show_all_decline(way);
		show_later(way);
	}
	show_steps();
	show_numbers_taken(SELECT);
	show_numbers_taken(EPOLL);
	show_threads_decline(POLL, DROPS);
	show_threads_decline(EPOLL, DROPS);
	return verdict();
}
