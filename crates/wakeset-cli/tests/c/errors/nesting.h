/*
 * How deep sets may be nested, and how many paths may lead to one.
 */
#ifndef ERRORS_NESTING_H
#define ERRORS_NESTING_H

#include "../show.h"

/* Adds up to `most` sets over `below` until one is refused; says how many were taken. */
static int pile_up(const int *below, int count, int most, int *above, const char **refusal)
{
	*refusal = "never";
	int made = 0;
	for (; made < most; made++) {
		above[made] = must(epoll_create1(EPOLL_CLOEXEC));
		for (int i = 0; i < count; i++) {
			errno = 0;
			if (watch_new(above[made], below[i], EPOLLIN, 's') == -1) {
				*refusal = outcome(-1);
				must(close(above[made]));
				return made;
			}
		}
	}
	return made;
}

static void close_all(const int *fds, int count)
{
	for (int i = 0; i < count; i++)
		must(close(fds[i]));
}

static void show_nesting(void)
{
	heading("sets in sets: loops");
	int chain[8];
	for (int i = 0; i < 8; i++)
		chain[i] = must(epoll_create1(EPOLL_CLOEXEC));
	CALL("b in a", "0", watch_new(chain[0], chain[1], EPOLLIN, 'b'));
	CALL("a in b, a loop of two", "-1 ELOOP", watch_new(chain[1], chain[0], EPOLLIN, 'a'));
	CALL("c in b", "0", watch_new(chain[1], chain[2], EPOLLIN, 'c'));
	CALL("a in c, a loop of three", "-1 ELOOP", watch_new(chain[2], chain[0], EPOLLIN, 'a'));
	CALL("c in a too, no loop", "0", watch_new(chain[0], chain[2], EPOLLIN, 'c'));
	CALL("b is taken out", "0", epoll_ctl(chain[0], EPOLL_CTL_DEL, chain[1], NULL));
	CALL("a in b is no loop now", "0", watch_new(chain[1], chain[0], EPOLLIN, 'a'));
	close_all(chain, 8);

	heading("sets in sets: depth");
	for (int i = 0; i < 8; i++)
		chain[i] = must(epoll_create1(EPOLL_CLOEXEC));
	int fd = must(eventfd(1, EFD_CLOEXEC));
	for (int i = 0; i < 4; i++)
		CALL("one set more below", "0", watch_new(chain[i], chain[i + 1], EPOLLIN, 's'));
	CALL("a sixth set", "-1 ELOOP", watch_new(chain[4], chain[5], EPOLLIN, 's'));
	CALL("an eventfd in the fifth", "0", watch_new(chain[4], fd, EPOLLIN, 'e'));
	show("is seen from the top", "s=IN", ready(chain[0]));
	CALL("a set above the top", "-1 ELOOP", watch_new(chain[6], chain[0], EPOLLIN, 's'));
	CALL("two chains may not meet either", "-1 ELOOP",
	     (must(watch_new(chain[6], chain[7], EPOLLIN, 's')),
	      watch_new(chain[4], chain[6], EPOLLIN, 's')));
	must(close(fd));
	close_all(chain, 8);

	/*
	 * Limits on the paths by which one descriptor wakes sets: any number of length 1, 500 of length 2,
	 * then 100, 50 and 10. Each pile below multiplies few sets into many paths.
	 */
	heading("sets in sets: paths");
	int bottom[25], middle[25], third[25], fourth[25], top[40];
	const char *refusal;
	fd = must(eventfd(0, EFD_CLOEXEC));
	for (int i = 0; i < 25; i++) {
		bottom[i] = must(epoll_create1(EPOLL_CLOEXEC));
		must(watch_new(bottom[i], fd, EPOLLIN, 'e'));
	}
	int taken = pile_up(bottom, 25, 40, top, &refusal);
	number("sets over 25, each 25 paths", 20, taken);
	show("and then", "-1 EINVAL", refusal);
	must(close(top[--taken]));
	CALL("there is room when one is closed", "1", pile_up(bottom, 25, 1, top + taken, &refusal));
	taken++;
	int late = must(epoll_create1(EPOLL_CLOEXEC));
	CALL("an empty set may be watched", "0", watch_new(top[0], late, EPOLLIN, 's'));
	CALL("but may not make a path too many", "-1 EINVAL", watch_new(late, fd, EPOLLIN, 'e'));
	must(close(late));
	close_all(top, taken);
	close_all(bottom, 25);

	for (int i = 0; i < 5; i++) {
		bottom[i] = must(epoll_create1(EPOLL_CLOEXEC));
		must(watch_new(bottom[i], fd, EPOLLIN, 'e'));
	}
	number("length 3: 5 over 5", 5, pile_up(bottom, 5, 5, middle, &refusal));
	taken = pile_up(middle, 5, 40, top, &refusal);
	number("sets over these, each 25 paths", 4, taken);
	show("and then", "-1 EINVAL", refusal);
	close_all(top, taken);
	close_all(middle, 5);
	close_all(bottom, 5);

	must(bottom[0] = epoll_create1(EPOLL_CLOEXEC));
	must(watch_new(bottom[0], fd, EPOLLIN, 'e'));
	number("length 4: 5 over 1", 5, pile_up(bottom, 1, 5, middle, &refusal));
	number("5 over 5", 2, pile_up(middle, 5, 2, third, &refusal));
	taken = pile_up(third, 2, 40, top, &refusal);
	number("sets over these, each 10 paths", 5, taken);
	show("and then", "-1 EINVAL", refusal);
	close_all(top, taken);

	number("length 5: 1 over 2", 1, pile_up(third, 2, 1, fourth, &refusal));
	taken = pile_up(fourth, 1, 40, top, &refusal);
	number("sets over this one, each 10 paths", 1, taken);
	show("and then", "-1 EINVAL", refusal);
	close_all(top, taken);
	close_all(fourth, 1);
	close_all(third, 2);
	close_all(middle, 5);
	close_all(bottom, 1);

	heading("one eventfd in many sets");
	struct rlimit limit;
	must(getrlimit(RLIMIT_NOFILE, &limit));
	if (limit.rlim_cur < 2000 && limit.rlim_max >= 2000) {
		limit.rlim_cur = 2000;
		must(setrlimit(RLIMIT_NOFILE, &limit));
	}
	if (limit.rlim_cur >= 2000) {
		static int many[1200];
		number("no limit of 1000 there", 1200, pile_up(&fd, 1, 1200, many, &refusal));
		must(add(fd, 1));
		show("the last has the event", "s=IN", ready(many[1199]));
		close_all(many, 1200);
	} else {
		printf("too few descriptors to show it\n");
	}
	must(close(fd));
}

#endif
