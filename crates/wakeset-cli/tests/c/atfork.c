/*
 * fork(2) and the handlers of pthread_atfork(3) that were registered before any library's
 * constructor ran. They prepare last, so whatever a library does before a fork has to be done after
 * them: one that holds a lock of its own when such a handler wants a mutex which another thread has
 * while it calls epoll, waits for ever.
 */
#include "show.h"
#include <sys/wait.h>

enum { FORKS = 300 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int done;

static void take_mutex(void)
{
	pthread_mutex_lock(&mutex);
}

static void give_mutex(void)
{
	pthread_mutex_unlock(&mutex);
}

static void register_early(void)
{
	pthread_atfork(take_mutex, give_mutex, give_mutex);
}

/* The loader calls these before the constructors of libraries. */
__attribute__((section(".preinit_array"), used)) static void (*const early)(void) = register_early;

static void *call_epoll_with_the_mutex(void *unused)
{
	struct epoll_event events[4], event = {.events = EPOLLIN};
	while (!done) {
		int inner = must(epoll_create1(EPOLL_CLOEXEC)), outer = must(epoll_create1(EPOLL_CLOEXEC));
		int counter = must(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
		must(epoll_ctl(inner, EPOLL_CTL_ADD, counter, &event));
		must(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event));
		for (int i = 0; i < 20; i++) {
			take_mutex();
			must(epoll_wait(outer, events, 4, 0));
			must(epoll_ctl(inner, EPOLL_CTL_MOD, counter, &event));
			give_mutex();
		}
		must(close(outer));
		must(close(inner));
		must(close(counter));
	}
	return unused;
}

int main(void)
{
	struct thread threads[2];
	int well = 0;
	heading("handlers from before all constructors");
	for (int i = 0; i < 2; i++)
		start(&threads[i], call_epoll_with_the_mutex, NULL);
	/* Ends the program if fork does not. */
	alarm(30);
	for (int i = 0; i < FORKS; i++) {
		int status = -1;
		pid_t child = must(fork());
		if (child == 0)
			_exit(5);
		must(waitpid(child, &status, 0));
		well += WIFEXITED(status) && WEXITSTATUS(status) == 5;
	}
	done = 1;
	for (int i = 0; i < 2; i++)
		finish(&threads[i]);
	number("children that ended well", FORKS, well);
	return verdict();
}
