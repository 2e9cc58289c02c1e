/*
 * Sets and counters of one thread.
 */
#ifndef SEMANTICS_SETS_H
#define SEMANTICS_SETS_H

#include "../show.h"

static int new_set(void)
{
	return must(epoll_create1(EPOLL_CLOEXEC));
}

static int new_counter(unsigned value)
{
	return must(eventfd(value, EFD_CLOEXEC | EFD_NONBLOCK));
}

static void close_both(int a, int b)
{
	must(close(a));
	must(close(b));
}

#endif
