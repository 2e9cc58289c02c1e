/*
 * A plugin: each function makes a call through this library's own bindings. Compiled also as the
 * library that a plugin needs (-DNEEDED), with other names.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#ifdef NEEDED
#define EXPORT(name) needed_##name
#else
#define EXPORT(name) plugin_##name
#endif

/* A constructor is the first of a library's code to run: it adds to the program's eventfd. */
__attribute__((constructor)) static void begin(void)
{
	const char *number = getenv("PLUGIN_EVENTFD");
	uint64_t value = 100;
	if (number && write(atoi(number), &value, sizeof value) != sizeof value)
		abort();
}

ssize_t EXPORT(read)(int fd, void *buffer, size_t len)
{
	return read(fd, buffer, len);
}

ssize_t EXPORT(write)(int fd, const void *buffer, size_t len)
{
	return write(fd, buffer, len);
}

int EXPORT(close)(int fd)
{
	return close(fd);
}

int EXPORT(eventfd)(unsigned value)
{
	return eventfd(value, EFD_NONBLOCK);
}

int EXPORT(epoll_wait)(int set, struct epoll_event *events, int n, int timeout)
{
	return epoll_wait(set, events, n, timeout);
}

/* What comes after this library, where it asks. */
void *EXPORT(next)(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

void *EXPORT(default)(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}
