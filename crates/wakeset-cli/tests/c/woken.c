/*
 * A process that is woken for a connection, and leaves it to children that it forks then, one after
 * the other: the first accepts it, and the others find nothing.
 *
 *     woken poll|set
 */
#include "listening.h"
#include <poll.h>

enum { CHILDREN = 4 };

static void wait_in_poll(int listener)
{
	struct pollfd one = {listener, POLLIN, 0};
	must(poll(&one, 1, -1));
}

static void wait_in_set(int listener)
{
	int set = must(epoll_create1(EPOLL_CLOEXEC));
	struct epoll_event event;
	must(watch_new(set, listener, EPOLLIN, 'l'));
	must(epoll_wait(set, &event, 1, -1));
	must(close(set));
}

int main(int argc, char **argv)
{
	int listener = listen_on(AF_INET), accepted = 0, status;
	pid_t waiter = getpid(), client = must(fork());
	if (client == 0) {
		sleep_ms(100);
		until_process_asleep(waiter);
		connect_to(listener);
		pause();
	}
	(argc > 1 && strcmp(argv[1], "set") == 0 ? wait_in_set : wait_in_poll)(listener);
	for (int i = 0; i < CHILDREN; i++) {
		pid_t child = must(fork());
		if (child == 0)
			exit(take_one(listener));
		must(waitpid(child, &status, 0));
		accepted += WIFEXITED(status) && WEXITSTATUS(status) == 1;
	}
	number("accepted", 1, accepted);
	kill_workers(&client, 1);
	return verdict();
}
