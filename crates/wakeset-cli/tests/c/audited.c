/*
 * A program under an auditor (LD_AUDIT), the library that is its argument: it begins anew with
 * that in its environment. The loader then gives out thread-local storage before it has seen what
 * the program's objects need, and has little left for those.
 */
#include "show.h"
#include <link.h>

/* Thread-local storage of the program's own comes on top. */
static __thread char own[256];

static int count_object(struct dl_phdr_info *info, size_t size, void *count)
{
	(void)info;
	(void)size;
	++*(int *)count;
	return 0;
}

static void *wait_for_it(void *argument)
{
	int *set = argument;
	struct epoll_event event;
	own[255] = 1;
	return epoll_wait(*set, &event, 1, 10000) == 1 ? argument : NULL;
}

int main(int count, char **arguments)
{
	uint64_t one = 1, value = 0;
	pthread_t waiter;
	void *woken = NULL;
	int objects = 0;
	if (count == 2) {
		char *again[] = { arguments[0], NULL };
		setenv("LD_AUDIT", arguments[1], 1);
		execv(arguments[0], again);
		perror("execv");
		return 2;
	}
	heading("a program under an auditor");
	yes("LD_AUDIT is set", getenv("LD_AUDIT") != NULL);
	dl_iterate_phdr(count_object, &objects);
	yes("there are objects", objects > 2);
	int counter = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int set = epoll_create1(EPOLL_CLOEXEC);
	watch_new(set, counter, EPOLLIN, 'c');
	show("nothing yet", "none", ready(set));
	pthread_create(&waiter, NULL, wait_for_it, &set);
	number("write", sizeof one, write(counter, &one, sizeof one));
	pthread_join(waiter, &woken);
	yes("another thread is woken", woken == &set);
	yes("its storage is its own", own[255] == 0);
	show("after the write", "c=IN", ready(set));
	number("read", sizeof value, read(counter, &value, sizeof value));
	number("what it held", 1, (long long)value);
	show("after the read", "none", ready(set));
	return verdict();
}
