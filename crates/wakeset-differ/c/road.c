/*
 * A plugin that makes the calls of a program: by its own bindings, or by functions that it is given
 * a way to find. How it is opened, and how the functions are found, are the roads.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* The function of that name and version; a null finder means this library's own binding. */
typedef void *(*Finder)(const char *name, const char *version);

static void *found(Finder find, const char *name, const char *version)
{
	void *function = find(name, version);
	if (!function)
		abort();
	return function;
}

#define THROUGH(find, function, version) \
	((find) ? (__typeof__(&function))found(find, #function, "GLIBC_" version) : function)
#define A(n) ((int)a[n])
#define P(n) ((void *)a[n])

/* A call of that number: its result, or a negative errno. */
long road_call(Finder find, long number, const unsigned long a[6])
{
	long result = -1;
	switch (number) {
#define CALL(call, function, version, type, parameters, names, arguments)   \
	case SYS_##call:                                                    \
		result = THROUGH(find, function, version) arguments; \
		break;
#define VARIADIC(call, function, version, parameters, last, names, arguments) \
	CALL(call, function, version, int, parameters, names, arguments)
#include "calls.h"
#undef CALL
#undef VARIADIC
	default:
		abort();
	}
	return result < 0 ? -errno : result;
}

/* The same through syscall(2). */
long road_number(Finder find, long number, const unsigned long a[6])
{
	long result = THROUGH(find, syscall, "2.2.5")(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	return result < 0 ? -errno : result;
}

/* A child that ends when fork(2) has returned, and the wait for it. */
void road_fork(Finder find)
{
	int status, kind = MAP_SHARED | MAP_ANONYMOUS;
	_Atomic int *returned = mmap(NULL, sizeof *returned, PROT_READ | PROT_WRITE, kind, -1, 0);
	if (returned == MAP_FAILED)
		return;
	pid_t child = THROUGH(find, fork, "2.2.5")();
	if (child == 0) {
		while (!*returned)
			usleep(50);
		_exit(0);
	}
	*returned = 1;
	while (waitpid(child, &status, 0) == -1 && errno == EINTR)
		;
	munmap((void *)returned, sizeof *returned);
}

/* A finder: what comes after this library. */
void *road_next(const char *name, const char *version)
{
	(void)version;
	return dlsym(RTLD_NEXT, name);
}

/* A finder: what the program's own search finds, asked from here. */
void *road_default(const char *name, const char *version)
{
	(void)version;
	return dlsym(RTLD_DEFAULT, name);
}
