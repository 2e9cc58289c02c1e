/*
 * A preload of another's: functions in place of libc's that make the call by what `RTLD_NEXT`
 * finds. With -DALL of every call that programs make, otherwise of one that Wakeset lets pass.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

/* Too deep: it calls itself by way of libc's. */
static __thread int depth;

static void *next_of(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);
	if (!function || depth > 50)
		abort();
	return function;
}

#define BODY(function, names)                                                \
	static __typeof__(&function) next;                                   \
	if (!next)                                                           \
		next = (__typeof__(next))next_of(#function);                 \
	depth++;                                                             \
	__typeof__(next names) result = next names;                          \
	depth--;                                                             \
	return result;

#define CALL(call, function, version, type, parameters, names, arguments) \
	type function parameters                                          \
	{                                                                 \
		BODY(function, names)                                     \
	}
#define VARIADIC(call, function, version, parameters, last, names, arguments) \
	int function parameters                                               \
	{                                                                     \
		va_list more;                                                 \
		va_start(more, last);                                         \
		unsigned long argument = va_arg(more, unsigned long);         \
		va_end(more);                                                 \
		BODY(function, names)                                         \
	}

#ifdef ALL
#include "calls.h"
#else
VARIADIC(open, open, "2.2.5", (const char *path, int flags, ...), flags, (path, flags, argument), )
#endif
