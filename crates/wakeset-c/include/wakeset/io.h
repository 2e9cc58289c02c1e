/*
 * The calls that take any descriptor, on Wakeset: read and write, and those that have to leave an
 * eventfd, a timer or a set to the kernel first.
 *
 * Part of <wakeset/epoll.h>, <wakeset/eventfd.h> and <wakeset/timerfd.h>. The names are macros
 * without arguments, so a function's address is right too, and a member of that name (ops->read) is
 * renamed with its declaration if the declaration comes later. Where it comes earlier the compiler
 * says so; where it comes later, of a class that was compiled without this header (std::fstream),
 * the linker does. Never is the wrong function called in silence. Then define WAKESET_NO_IO_NAMES
 * before the include, and use ws_read, ws_write, ws_close and the others by name.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef WAKESET_IO_H
#define WAKESET_IO_H

#include <wakeset.h>

#ifndef WAKESET_NO_IO_NAMES

/* What declares these names, before they mean something else. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define read ws_read
#define write ws_write
#define readv ws_readv
#define writev ws_writev
#define close ws_close
#define close_range ws_close_range
#define dup ws_dup
#define dup2 ws_dup2
#define dup3 ws_dup3
#define fcntl ws_fcntl
#define ioctl ws_ioctl
#define poll ws_poll
#define ppoll ws_ppoll
#define select ws_select
#define pselect ws_pselect
#define sendmsg ws_sendmsg

#endif
#endif
