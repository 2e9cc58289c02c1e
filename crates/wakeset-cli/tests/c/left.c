/*
 * A poll(2) whose time is up while it leaves a connection to a process that holds less
 * (--order least): of nothing it says that it is ready. The other process is stopped in its sleep,
 * so that it does not take the connection.
 */
#include "listening.h"
#include <poll.h>

enum { HELD = 5, TRIES = 300, MOST_MS = 3 };

static void handle(int signal)
{
	(void)signal;
}

static _Noreturn void wait_for_ever(int listener)
{
	struct sigaction action = {.sa_handler = handle};
	must(sigaction(SIGUSR1, &action, NULL));
	for (;;) {
		struct pollfd one = {listener, POLLIN, 0};
		poll(&one, 1, -1);
	}
}

/* It begins another sleep, and is stopped in that. */
static void stop_in_new_sleep(pid_t child)
{
	must(kill(child, SIGUSR1));
	must(kill(child, SIGCONT));
	sleep_ms(3);
	must(kill(child, SIGSTOP));
	must(waitpid(child, NULL, WUNTRACED));
}

int main(void)
{
	int listener = listen_on(AF_INET), left = 0, stale = 0, held[HELD];
	pid_t child = must(fork());
	if (child == 0)
		wait_for_ever(listener);
	until_process_asleep(child);
	must(kill(child, SIGSTOP));
	must(waitpid(child, NULL, WUNTRACED));
	for (int i = 0; i < HELD; i++) {
		struct pollfd one = {listener, POLLIN, 0};
		connect_to(listener);
		must(poll(&one, 1, -1));
		held[i] = must(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
	}
	for (int i = 0; i < TRIES; i++) {
		stop_in_new_sleep(child);
		int client = connect_to(listener);
		struct pollfd one = {listener, POLLIN, POLLIN};
		if (must(poll(&one, 1, 1 + i % MOST_MS)) == 0) {
			left++;
			stale += one.revents != 0;
		}
		take_one(listener);
		must(close(client));
	}
	printf("left %d times\n", left);
	yes("it leaves connections", left > 0);
	yes("it says of none that it is ready", stale == 0);
	for (int i = 0; i < HELD; i++)
		must(close(held[i]));
	kill_workers(&child, 1);
	return verdict();
}
