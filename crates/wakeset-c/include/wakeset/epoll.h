/*
 * <sys/epoll.h> on Wakeset: existing source includes this header instead.
 *
 * The epoll_* calls become Wakeset's; so do eventfd and the calls that take any descriptor, see
 * <wakeset/io.h>. A set's number may be given to code that was not compiled with this header after
 * ws_epoll_pollfd() or ws_release().
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef WAKESET_EPOLL_H
#define WAKESET_EPOLL_H

#include <wakeset.h>
#include <wakeset/eventfd.h>
#include <wakeset/io.h>

/* struct epoll_event is declared as a type of this name only, and stays what it is. */
#define epoll_create ws_epoll_create
#define epoll_create1 ws_epoll_create1
#define epoll_ctl ws_epoll_ctl
#define epoll_wait ws_epoll_wait
#define epoll_pwait ws_epoll_pwait
#define epoll_pwait2 ws_epoll_pwait2

#endif
