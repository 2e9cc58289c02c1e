/*
 * <sys/timerfd.h> on Wakeset: existing source includes this header instead, before headers that use
 * its names.
 *
 * timerfd_create, timerfd_settime and timerfd_gettime become Wakeset's; so do the calls that take
 * any descriptor, see <wakeset/io.h>.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef WAKESET_TIMERFD_H
#define WAKESET_TIMERFD_H

#include <wakeset.h>
#include <wakeset/io.h>

#define timerfd_create ws_timerfd_create
#define timerfd_settime ws_timerfd_settime
#define timerfd_gettime ws_timerfd_gettime

#endif
