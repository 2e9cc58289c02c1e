/*
 * <sys/eventfd.h> on Wakeset: existing source includes this header instead, before headers that use
 * its names.
 *
 * eventfd, eventfd_read and eventfd_write become Wakeset's; so do the calls that take any
 * descriptor, see <wakeset/io.h>.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef WAKESET_EVENTFD_H
#define WAKESET_EVENTFD_H

#include <wakeset.h>
#include <wakeset/io.h>

#define eventfd ws_eventfd
#define eventfd_read ws_eventfd_read
#define eventfd_write ws_eventfd_write

#endif
