/*
 * Which object a function is in, as dladdr(3) says.
 */
#ifndef DIFFERENCES_LOADER_H
#define DIFFERENCES_LOADER_H

#include "../show.h"
#include <dlfcn.h>

static const char *object_of(void *function)
{
	Dl_info info;
	if (!function || !dladdr(function, &info))
		return "none";
	const char *slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}

#endif
