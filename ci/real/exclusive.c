/*
 * The least that a server which waits in select(2) can pay when one of its workers is woken for
 * each connection: preloaded, this answers select(2) on a listening socket by epoll_wait(2), with
 * the listener under EPOLLEXCLUSIVE.
 *
 * It is a limit to measure against and nothing to use: it does not see that a number has come to
 * stand for another file, the kernel chooses the worker, and it knows only such calls as one
 * listener's workers make.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 16 };

/* What the set of this process watches. One thread waits. */
static pid_t owner;
static int set = -1;
static fd_set watched;

static int listens(int fd)
{
	int is_listener = 0;
	socklen_t size = sizeof is_listener;

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listener, &size) == 0 && is_listener;
}

static int is_empty(const fd_set *fds, int count)
{
	if (fds != NULL)
		for (int fd = 0; fd < count; fd++)
			if (FD_ISSET(fd, fds))
				return 0;
	return 1;
}

/* Watches these descriptors, in a set that is made anew. Returns whether a listener is among
 * them. */
static int watch(const fd_set *fds, int count)
{
	int listeners = 0;

	if (set >= 0 && owner == getpid())
		close(set);
	owner = getpid();
	watched = *fds;
	set = epoll_create1(EPOLL_CLOEXEC);
	for (int fd = 0; fd < count; fd++) {
		struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

		if (!FD_ISSET(fd, fds))
			continue;
		if (listens(fd)) {
			event.events |= EPOLLEXCLUSIVE;
			listeners++;
		}
		if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0)
			return 0;
	}
	return listeners > 0;
}

int select(int count, fd_set *reads, fd_set *writes, fd_set *errors, struct timeval *limit)
{
	static int serves;
	struct epoll_event events[MOST];
	int ms = limit == NULL ? -1 : limit->tv_sec * 1000 + limit->tv_usec / 1000;

	if (reads != NULL && is_empty(writes, count) && is_empty(errors, count)) {
		if (owner != getpid() || memcmp(&watched, reads, sizeof watched) != 0)
			serves = watch(reads, count);
		if (serves) {
			int found = epoll_wait(set, events, MOST, ms);

			if (found < 0)
				return -1;
			FD_ZERO(reads);
			for (int i = 0; i < found; i++)
				FD_SET(events[i].data.fd, reads);
			return found;
		}
	}
	int (*kernel)(int, fd_set *, fd_set *, fd_set *, struct timeval *) =
		dlsym(RTLD_NEXT, "select");
	return kernel(count, reads, writes, errors, limit);
}
