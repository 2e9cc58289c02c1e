/*
 * A preload with a dlsym(3) of its own, which finds libc's as such preloads do: by its version.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

void *dlsym(void *restrict handle, const char *restrict name)
{
	static void *(*real)(void *, const char *);
	if (!real)
		real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	if (!real)
		abort();
	return real(handle, name);
}
