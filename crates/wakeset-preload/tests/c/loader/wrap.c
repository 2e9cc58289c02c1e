/*
 * A preload of another's: functions in place of libc's that count their calls and then make libc's,
 * as `RTLD_NEXT` finds it.
 *
 * With -DANSWERED of calls that Wakeset may answer, otherwise of some that it lets pass.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

int wrap_counts[8];

/* Too deep: it calls itself by way of libc's. */
static int depth;
#define NEXT(function, ...)                                             \
	({                                                              \
		static __typeof__(&function) next;                      \
		if (!next)                                              \
			next = (__typeof__(next))dlsym(RTLD_NEXT, #function); \
		if (++depth > 50)                                       \
			abort();                                        \
		__typeof__(next(__VA_ARGS__)) result = next(__VA_ARGS__); \
		depth--;                                                \
		result;                                                 \
	})

#ifdef ANSWERED
ssize_t read(int fd, void *buffer, size_t len)
{
	wrap_counts[0]++;
	return NEXT(read, fd, buffer, len);
}

ssize_t write(int fd, const void *buffer, size_t len)
{
	wrap_counts[1]++;
	return NEXT(write, fd, buffer, len);
}

int close(int fd)
{
	wrap_counts[2]++;
	return NEXT(close, fd);
}

int epoll_wait(int set, struct epoll_event *events, int n, int timeout)
{
	wrap_counts[3]++;
	return NEXT(epoll_wait, set, events, n, timeout);
}

int eventfd(unsigned value, int flags)
{
	wrap_counts[4]++;
	return NEXT(eventfd, value, flags);
}

int epoll_create1(int flags)
{
	wrap_counts[5]++;
	return NEXT(epoll_create1, flags);
}

int pipe2(int ends[2], int flags)
{
	wrap_counts[6]++;
	return NEXT(pipe2, ends, flags);
}

int socketpair(int domain, int type, int protocol, int pair[2])
{
	wrap_counts[7]++;
	return NEXT(socketpair, domain, type, protocol, pair);
}
#else
int open(const char *path, int flags, ...)
{
	va_list more;
	va_start(more, flags);
	int mode = va_arg(more, int);
	va_end(more);
	wrap_counts[0]++;
	return NEXT(open, path, flags, mode);
}

/* libc has a second name for it, and our hook of that calls this. */
int __sigaction(int, const struct sigaction *, struct sigaction *);
int sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
	wrap_counts[1]++;
	return NEXT(__sigaction, signal, action, old);
}
#endif
