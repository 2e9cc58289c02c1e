/*
 * Wakeset: epoll in user space, with Linux's semantics.
 *
 * The functions are Linux's with ws_ before their names: same arguments, same results, same errno.
 * Descriptors that Wakeset made (sets, eventfds, timers) work as ever with all of them, and so does
 * any other descriptor. While only this process can reach such an object, its state is in user
 * space, and signalling from thread to thread makes no system call. When something else is about to
 * reach the object, its state migrates into the kernel object that has the number, for good.
 * ws_dup, ws_poll, ws_sendmsg and the like see to that by themselves, and so does fork(2). Calls
 * without ws_ do not:
 *
 *     read, write, close, dup, poll, select,      use the ws_ form, or call ws_release() first
 *     fcntl(F_SETFL), epoll_* on such a number
 *     execve and posix_spawn of a program that    call ws_release_inherited() first;
 *     inherits such a number                      close-on-exec needs nothing
 *     io_uring, aio, splice, sendfile, KVM and    call ws_release() first
 *     others that are given such a number
 *
 * <wakeset/epoll.h>, <wakeset/eventfd.h> and <wakeset/timerfd.h> give the old names to existing
 * source.
 *
 * The manual has a page for each function, ws_epoll_wait(3) for one, which is made from this file.
 * Each function says below, after what it does:
 *   Threads: any      any number of threads may call it at a time
 *   Threads: one      any thread may call it, but one at a time for the same object
 *   Signals: safe     a signal handler may call it, and it is async-signal-safe unless it has to
 *                     sleep
 *   Signals: unsafe   no signal handler may call it
 *   Cancels           it is a cancellation point (pthreads(7)) where it sleeps in the kernel. A
 *                     thread that sleeps in an in-process object is not cancelled there, but at its
 *                     next cancellation point.
 *
 * What differs from Linux is listed in SEMANTICS.md, and for this library in the README of the
 * crate wakeset-c. The difference to know first: a pointer to memory that is not there may fault
 * instead of giving EFAULT.
 *
 * Functions return -1 (pointers: NULL) on an error and set errno. None throws, and none unwinds
 * except for pthread_cancel(3).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef WAKESET_H
#define WAKESET_H

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

/* The version of this header. The library's ABI is that of its symbol versions, WAKESET_0.1 and
 * later ones. */
#define WAKESET_VERSION_MAJOR 0
#define WAKESET_VERSION_MINOR 1
#define WAKESET_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Sets ---- */

/* Makes a set. `size` must be above 0 and is otherwise ignored. Returns: the descriptor. Errors:
 * EINVAL, EMFILE, ENFILE, ENOMEM. Threads: any. Signals: unsafe. See epoll_create(2). */
int ws_epoll_create(int size);

/* Makes a set. `flags`: 0 or EPOLL_CLOEXEC. Returns: the descriptor. Errors: EINVAL, EMFILE,
 * ENFILE, ENOMEM. Threads: any. Signals: unsafe. See epoll_create1(2). */
int ws_epoll_create1(int flags);

/* Adds, changes or removes (EPOLL_CTL_ADD, _MOD, _DEL) the watch of a set on a descriptor: one of
 * Wakeset's, or of any file with a poll operation. EPOLL_CTL_DEL ignores `event`. When the function
 * returns, the change is in force.
 * Returns: 0. Errors: EBADF, EEXIST, EINVAL, ELOOP, ENOENT, ENOMEM, ENOSPC, EPERM. Threads: any.
 * Signals: unsafe. See epoll_ctl(2). */
int ws_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event);

/* Waits for events. `timeout` is in milliseconds: -1 sets no limit, 0 only checks. One event wakes
 * one waiting thread.
 * Returns: how many events there are, at most `maxevents`; 0 if the time is up. Errors: EBADF,
 * EINTR, EINVAL. Threads: any. Signals: unsafe. Cancels. See epoll_wait(2). */
int ws_epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

/* Waits for events as ws_epoll_wait() does, with a signal mask for the length of the wait; NULL for
 * none.
 * Returns: as ws_epoll_wait(). Errors: as ws_epoll_wait(). Threads: any. Signals: unsafe. Cancels.
 * See epoll_pwait(2). */
int ws_epoll_pwait(int epfd, struct epoll_event *events, int maxevents, int timeout,
                   const sigset_t *sigmask);

/* Waits for events as ws_epoll_pwait() does, with a time limit in nanoseconds; NULL for none.
 * Returns: as ws_epoll_wait(). Errors: as ws_epoll_wait(); ENOSYS on kernels before 5.11 if the set
 * has migrated. Threads: any. Signals: unsafe. Cancels. See epoll_pwait2(2). */
int ws_epoll_pwait2(int epfd, struct epoll_event *events, int maxevents,
                    const struct timespec *timeout, const sigset_t *sigmask);

/* Sets for how many microseconds waits of this process may spin before they sleep, on sockets too;
 * 0: they do not. -1, the default: for 30 at most, and only while that saves processor time.
 * Returns: 0. Errors: EINVAL (less than -1, more than 1000000). Threads: any. Signals: safe. */
int ws_spin_limit(int microseconds);

/* Exports a set to another library's loop. From now on poll(2), select(2) and epoll(7) find its
 * number readable when ws_epoll_wait() would find something. Edge-triggered watches on it see each
 * new event (tokio's AsyncFd, GLib, asyncio's add_reader).
 *
 * When the number is readable, the loop calls ws_epoll_wait() with timeout 0; if it watches edges,
 * until that returns 0. The number may be readable once more than there are events, never once
 * less. Each event that finds the set empty costs one write(2). Only ws_close() ends the export.
 * Returns: the descriptor for it, which is the set's own number. Errors: EBADF, EINVAL (not a set),
 * EMFILE, ENFILE, ENOMEM, ENOSPC. Threads: any. Signals: unsafe. See poll(2) and epoll(7). */
int ws_epoll_pollfd(int epfd);

/* ---- Eventfds ---- */

/* Makes an eventfd at `initval`. `flags`: EFD_CLOEXEC, EFD_NONBLOCK, EFD_SEMAPHORE. Use ws_read(),
 * ws_write() and ws_close() on it: write(2) succeeds and wakes nobody. Returns: the descriptor.
 * Errors: EINVAL, EMFILE, ENFILE, ENODEV, ENOMEM. Threads: any. Signals: unsafe. See eventfd(2). */
int ws_eventfd(unsigned int initval, int flags);

/* Takes the value (1 with EFD_SEMAPHORE) out of an eventfd. Returns: 0. Errors: EAGAIN, EBADF,
 * EINTR, EINVAL. Threads: any. Signals: safe. Cancels. See eventfd_read(3). */
int ws_eventfd_read(int fd, eventfd_t *value);

/* Adds to an eventfd. Returns: 0. Errors: EAGAIN, EBADF, EINTR, EINVAL (2^64-1). Threads: any.
 * Signals: safe. Cancels. See eventfd_write(3). */
int ws_eventfd_write(int fd, eventfd_t value);

/* ---- Timers ---- */

/* Makes a timer that is not set. `flags`: TFD_CLOEXEC, TFD_NONBLOCK. It is in user space on
 * CLOCK_MONOTONIC, and on CLOCK_REALTIME while it is set once and relative to now; otherwise, and
 * from the first ws_epoll_pollfd() on, it is the kernel's. Use ws_read() and ws_close() on it.
 * Returns: the descriptor. Errors: EINVAL, EMFILE, ENFILE, ENODEV, ENOMEM, EPERM. Threads: any.
 * Signals: unsafe. See timerfd_create(2). */
int ws_timerfd_create(int clockid, int flags);

/* Sets a timer without a system call. `old_value`, if not NULL, gets what was left. `flags`: 0,
 * TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET.
 * Returns: 0. Errors: EBADF, ECANCELED, EINVAL. Threads: any. Signals: unsafe. See
 * timerfd_settime(2). */
int ws_timerfd_settime(int fd, int flags, const struct itimerspec *new_value,
                       struct itimerspec *old_value);

/* Gets the time that is left, and the interval.
 * Returns: 0. Errors: EBADF, EINVAL. Threads: any. Signals: unsafe. See timerfd_gettime(2). */
int ws_timerfd_gettime(int fd, struct itimerspec *curr_value);

/* ---- Any descriptor ---- */

/* Reads as read(2) does, of an eventfd or a timer 8 bytes.
 * Returns: as read(2). Errors: as read(2). Threads: any. Signals: safe. Cancels. */
ssize_t ws_read(int fd, void *buf, size_t count);

/* Writes as write(2) does, to an eventfd 8 bytes.
 * Returns: as write(2). Errors: as write(2). Threads: any. Signals: safe. Cancels. */
ssize_t ws_write(int fd, const void *buf, size_t count);

/* Reads and writes as readv(2) and writev(2) do. With more than one buffer an eventfd migrates.
 * Returns: as readv(2) and writev(2). Errors: as readv(2) and writev(2). Threads: any. Signals:
 * unsafe. Cancels. */
ssize_t ws_readv(int fd, const struct iovec *iov, int iovcnt);
ssize_t ws_writev(int fd, const struct iovec *iov, int iovcnt);

/* Closes a descriptor as close(2) does. Watches on the last descriptor of an object end with it.
 * Returns: 0. Errors: as close(2). Threads: any. Signals: unsafe. Cancels. */
int ws_close(int fd);

/* Closes descriptors as close_range(2) does.
 * Returns: 0. Errors: as close_range(2); ENOSYS before Linux 5.9. Threads: any. Signals: unsafe. */
int ws_close_range(unsigned int first, unsigned int last, int flags);

/* Duplicates a descriptor as dup(2), dup2(2) and dup3(2) do. What is duplicated migrates.
 * Returns: the new descriptor. Errors: as dup(2), dup2(2) and dup3(2); EBUSY for a set that has, or
 * had, a source of the program's own. Threads: any. Signals: unsafe. */
int ws_dup(int oldfd);
int ws_dup2(int oldfd, int newfd);
int ws_dup3(int oldfd, int newfd, int flags);

/* Controls a descriptor as fcntl(2) and ioctl(2) do: F_SETFL and FIONBIO with O_NONBLOCK; F_DUPFD
 * as ws_dup().
 * Returns: as fcntl(2) and ioctl(2). Errors: as fcntl(2) and ioctl(2). Threads: any. Signals:
 * unsafe. Cancels (fcntl). */
int ws_fcntl(int fd, int cmd, ...);
int ws_ioctl(int fd, unsigned long request, ...);

/* Waits as poll(2), ppoll(2), select(2) and pselect(2) do, in process as far as what they name is.
 * A set with both in-process objects and descriptors of the kernel's migrates, except one with a
 * source of the program's own, which is exported (ws_epoll_pollfd()).
 * Returns: as poll(2), ppoll(2), select(2) and pselect(2). Errors: as poll(2), ppoll(2), select(2)
 * and pselect(2). Threads: any. Signals: unsafe. Cancels. */
int ws_poll(struct pollfd *fds, nfds_t nfds, int timeout);
int ws_ppoll(struct pollfd *fds, nfds_t nfds, const struct timespec *timeout,
             const sigset_t *sigmask);
int ws_select(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds,
              struct timeval *timeout);
int ws_pselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds,
               const struct timespec *timeout, const sigset_t *sigmask);

/* Sends a message as sendmsg(2) does. The descriptors that it passes on migrate (SCM_RIGHTS,
 * unix(7)).
 * Returns: as sendmsg(2). Errors: as sendmsg(2). Threads: any. Signals: unsafe. Cancels. */
ssize_t ws_sendmsg(int sockfd, const struct msghdr *msg, int flags);

/* Has an eventfd, a timer or a set migrate with its value and its watches: from now on it works
 * with any call of any library. Does nothing to other descriptors.
 * Returns: 0. Errors: EBADF; EBUSY for a set that has, or had, a source of the program's own.
 * Threads: any. Signals: unsafe. */
int ws_release(int fd);

/* Has everything migrate that lacks the close-on-exec flag: call it before execve(2) or
 * posix_spawn(3).
 * No errors. Threads: any. Signals: unsafe. */
void ws_release_inherited(void);

/* ---- Sources of the program's own ---- */

/* Something that becomes ready and has no descriptor: a queue, a completion, a device. */
typedef struct ws_source ws_source;

struct ws_source_ops {
    /* Returns what holds now, as EPOLL bits. It is called by any thread that waits in, or changes,
     * a set which watches the source, with a lock of the set held. It must be quick, and must not
     * call ws_epoll_*, ws_source_*, longjmp(3) or pthread_exit(3). Not NULL. */
    uint32_t (*on_poll)(void *context);
    /* The last thing that happens to the context, in ws_source_close(). May be NULL. */
    void (*on_close)(void *context);
};

/* Makes a source; `ops` is copied. The source belongs to the process: a forked child may only close
 * it.
 * Returns: the source. Errors: EINVAL (no `on_poll`), ENOMEM. Threads: any. Signals: unsafe.
 * Compare poll_wait() in the kernel's drivers. */
ws_source *ws_source_create(const struct ws_source_ops *ops, void *context);

/* Wakes the threads that wait for `events`. Call it after each change that may have made one of
 * them true: it is the edge that EPOLLET watches see. A change that ends a readiness needs no call.
 * No errors. Threads: any. Signals: safe. Compare wake_up_poll() in the kernel. */
void ws_source_wake(ws_source *source, uint32_t events);

/* Ends a source; NULL is allowed. Every set forgets it at once; when the function returns, no
 * callback runs any more, nor will. No other thread may be about to use the source.
 * No errors. Threads: one. Signals: unsafe. Compare close(2). */
void ws_source_close(ws_source *source);

/* Does what ws_epoll_ctl() does, for a source, with all flags. A set that has had one stays in this
 * process: after a fork(2) the child must not use the set but close it, and ws_dup() and
 * ws_release() refuse it with EBUSY.
 * Returns: 0. Errors: EBADF, EEXIST, EFAULT, EINVAL, ELOOP, ENOENT, ENOMEM; EMFILE, ENFILE and
 * ENOSPC if the set also has descriptors of the kernel's and no eventfd can be had to connect the
 * two. Threads: any. Signals: unsafe. See epoll_ctl(2). */
int ws_epoll_ctl_source(int epfd, int op, ws_source *source, struct epoll_event *event);

/* ---- Several changes in one call ---- */

/* One change: the arguments of ws_epoll_ctl(). */
struct ws_epoll_ctl_cmd {
    int op;
    int fd;
    struct epoll_event event; /* ignored for EPOLL_CTL_DEL */
    int result;               /* set by the call: 0, or a negated errno; -ECANCELED after a stop */
};

#define WS_BATCH_STOP_AT_ERROR 1 /* make no further change after one that fails */
#define WS_BATCH_SINGLE_CALLS 2  /* never use io_uring, for a seccomp(2) filter that kills for it */

/* Makes `n` changes in order, each as ws_epoll_ctl() would. All are in force when it returns: a
 * descriptor that was removed may be closed and its number used again. It is no transaction.
 * `flags`: 0 or WS_BATCH_*. Many descriptors of the kernel's are passed to it together, where
 * io_uring is allowed (Linux 6.6).
 * Returns: how many changes succeeded. Errors: EFAULT (`cmds` is NULL), EINVAL (flags); all others
 * are results of the commands. Threads: any. Signals: unsafe. See epoll_ctl(2). */
ssize_t ws_epoll_ctl_batch(int epfd, int flags, struct ws_epoll_ctl_cmd *cmds, size_t n);

/* ---- Leases: removals that say whether an event is in use ---- */

/* A thread's lease of the events of a set: what ws_lease_wait() reports is leased until the thread
 * waits again, releases the lease, or arms the watch again through it. A forked child does not use
 * the leases of its parent, nor destroy them. */
typedef struct ws_lease ws_lease;

/* The leases that have an event of a removed watch. */
typedef struct ws_lease_holders ws_lease_holders;

/* Makes a lease for the set `epfd`. Returns: the lease. Errors: EBADF, ENOMEM, EOPNOTSUPP (no set,
 * or one that lives in the kernel). Threads: any. Signals: unsafe. */
ws_lease *ws_lease_create(int epfd);

/* Waits for events as ws_epoll_wait() does, and leases what it reports; what was leased before is
 * released.
 * Returns: as ws_epoll_wait(). Errors: as ws_epoll_wait(); EBADF also if the number stands for
 * another set by now. Threads: one. Signals: unsafe. See epoll_wait(2). */
int ws_lease_wait(ws_lease *lease, struct epoll_event *events, int maxevents, int timeout);

/* Releases everything that is leased: the thread has finished with it.
 * No errors. Threads: one. Signals: unsafe. */
void ws_lease_release(ws_lease *lease);

/* Makes the change EPOLL_CTL_MOD, and releases the event of that watch.
 * Returns: 0. Errors: EFAULT, and as ws_epoll_ctl(). Threads: one. Signals: unsafe. See
 * epoll_ctl(2). */
int ws_lease_mod(ws_lease *lease, int fd, struct epoll_event *event);

/* Releases everything that is leased and frees the lease; to be called before the set is closed.
 * NULL is allowed.
 * No errors. Threads: one. Signals: unsafe. */
void ws_lease_destroy(ws_lease *lease);

/* What a removal says of the removed watch. */
#define WS_REMOVAL_IDLE 0     /* no event is leased: what the data leads to can be freed */
#define WS_REMOVAL_IN_USE 1   /* an event is leased by *holders: the data can be freed once
                               * ws_lease_holders_wait() returns 1 */
#define WS_REMOVAL_DISARMED 2 /* one-shot, and reported to a thread without a lease. That thread's
                               * next EPOLL_CTL_MOD fails with ENOENT, and it frees the data. */
#define WS_REMOVAL_UNKNOWN 3  /* not known: for descriptors of the kernel's, and for watches that
                               * were not always one-shot in sets that are waited in without
                               * leases */

/* Makes the change EPOLL_CTL_DEL, and says whether an event of the watch is in use. `holders` gets
 * the leases for WS_REMOVAL_IN_USE, else NULL. With too little memory for them the function returns
 * WS_REMOVAL_UNKNOWN.
 * Returns: one of WS_REMOVAL_*. Errors: EFAULT (`holders` is NULL), and as ws_epoll_ctl(). Threads:
 * any. Signals: unsafe. */
int ws_epoll_retire(int epfd, int fd, ws_lease_holders **holders);

/* Does what ws_epoll_retire() does, by a thread that may have leased an event of the watch: only
 * other leases count.
 * Returns: one of WS_REMOVAL_*. Errors: as ws_epoll_retire(). Threads: one. Signals: unsafe. */
int ws_lease_retire(ws_lease *lease, int fd, ws_lease_holders **holders);

/* Waits until no lease has the event any more. NULL sets no time limit.
 * Returns: 1, or 0 if the time is up. Errors: EINVAL. Threads: any. Signals: unsafe. */
int ws_lease_holders_wait(ws_lease_holders *holders, const struct timespec *timeout);

/* Frees the holders; NULL is allowed. Not after the set is closed.
 * No errors. Threads: one. Signals: unsafe. */
void ws_lease_holders_free(ws_lease_holders *holders);

/* ---- Event rings ---- */

/* Watches sockets through an io_uring where that is allowed (Linux 6.1), from the call on: a wait
 * takes what hundreds of them have in two system calls, and in none if there is nothing; the same
 * events. The ring serves the thread that makes the call: when another one uses the set, or the
 * process forks, its watches go back to the kernel's epoll, for good. It holds watched files open,
 * so a watched number is closed through ws_close() or ws_dup2(), or removed before; with close(2)
 * neither the connection nor the watch would end. Closing a number ends its watch, also where
 * another number stands for the same file. */
#define WS_RING_POLL 1

/* Besides WS_RING_POLL: an edge (EPOLLET) of a stream socket that comes of data or of room for data
 * is reported as the io_uring tells it, without a check of the socket. Then an event says that the
 * socket has become readable or writable since the last one, not that it still is, and only which
 * of the two. The socket has to be non-blocking, and to be read and written until EAGAIN, which may
 * come at once. Exact are all events from an end or an error on, levels, other sockets, and watches
 * for EPOLLPRI, EPOLLRDBAND or EPOLLWRBAND. */
#define WS_RING_HINTS 2

/* Gives a set an event ring of `entries` slots, from 1 to 2^20, rounded up to a power of two,
 * unless it has one. From then on the waits of this set take in-process events from the ring, at
 * most as many as it has slots in one call: the same events, without a lock that the set's threads
 * share, and where there are any without a system call. Removals and closes wait for threads that
 * are taking at that moment. `flags`: 0, WS_RING_POLL, or WS_RING_POLL | WS_RING_HINTS.
 * Returns: 1, or 0 if the number is the kernel's, whatever it stands for, where nothing changes.
 * Errors: EBADF, EINVAL (an in-process object that is no set; entries; flags), ENOMEM. Threads:
 * any. Signals: unsafe. See epoll_wait(2) and io_uring(7). */
int ws_ring_setup(int epfd, size_t entries, int flags);

/* A set's events, written into memory that another process reads. Neither side trusts the other: a
 * peer that crashes or lies can stop the flow, or put nonsense into the events of this ring, and
 * nothing else. Level-triggered watches are written again when the reader has taken their last
 * event and they still hold. EPOLL_CTL_DEL does not take back what has been written, as it does not
 * take back what ws_epoll_wait() has returned. */
typedef struct ws_ring_writer ws_ring_writer;

/* The side that reads, usually in another process. */
typedef struct ws_ring_reader ws_ring_reader;

/* Makes shared memory for `entries` events of the set `epfd`, from 1 to 2^20, rounded up to a power
 * of two. From now on only the writer takes events of that set. It belongs to the process: a forked
 * child may only destroy it. A fork leaves the set to the kernel, where the writer finds its events
 * too, with system calls.
 * Returns: the writer. Errors: EBADF, EINVAL, EMFILE, ENFILE, ENOMEM, EOPNOTSUPP (no set, or one
 * that lives in the kernel). Threads: any. Signals: unsafe. See memfd_create(2). */
ws_ring_writer *ws_ring_writer_create(int epfd, unsigned int entries);

/* Says which descriptor to pass to the other process (SCM_RIGHTS, or inherited). It belongs to the
 * writer and is close-on-exec.
 * Returns: the descriptor. Errors: EINVAL (NULL). Threads: any. Signals: unsafe. See unix(7). */
int ws_ring_writer_fd(const ws_ring_writer *writer);

/* Writes what is ready and fits. If that is no event, waits until there is one, and a free slot for
 * it. NULL sets no time limit, and a limit of 0 only checks.
 * Returns: how many events were written; 0 if the time is up. Errors: EBADF (the set's number was
 * closed, or this is a forked child), EINTR, EINVAL, ENOMEM; EPROTO if the reader claims to have
 * taken events that were never written, and as long as it does, nothing is written. Threads: one.
 * Signals: unsafe. See epoll_wait(2). */
ssize_t ws_ring_writer_pump(ws_ring_writer *writer, const struct timespec *timeout);

/* Ends the writer, before its set is closed; NULL is allowed. The reader can still take what is
 * there, and is not told.
 * No errors. Threads: one. Signals: unsafe. */
void ws_ring_writer_destroy(ws_ring_writer *writer);

/* Maps the memory of a descriptor that another process has passed on; the descriptor may be closed
 * afterwards. A ring has one reader; after fork(2) parent or child may go on with it, not both.
 * Returns: the reader. Errors: EACCES and EPERM (it may not be written to), EBADF, EINVAL (it is no
 * such memory), ENOMEM. Threads: any. Signals: unsafe. See mmap(2). */
ws_ring_reader *ws_ring_reader_open(int fd);

/* Takes events. If there are none, waits for one. NULL sets no time limit, and a limit of 0 only
 * checks. Makes no system call unless it, or the writer, sleeps. A writer that is gone is not
 * noticed: give a limit, or watch a socket to it.
 * Returns: how many events were taken, at most `maxevents`; 0 if the time is up. Errors: EINTR,
 * EINVAL; EPROTO if the writer claims to have written what cannot be, and as long as it does,
 * nothing is taken. Threads: one. Signals: unsafe. See epoll_wait(2). */
int ws_ring_reader_take(ws_ring_reader *reader, struct epoll_event *events, int maxevents,
                        const struct timespec *timeout);

/* Unmaps the memory; NULL is allowed. No errors. Threads: one. Signals: unsafe. */
void ws_ring_reader_destroy(ws_ring_reader *reader);

/* ---- Which waiter is woken next ---- */

#define WS_ORDER_FIFO 0   /* the one that has been idle longest: the work is spread evenly */
#define WS_ORDER_LIFO 1   /* one that was busy of late: warm caches, uneven */
#define WS_ORDER_KERNEL 2 /* left to the kernel, which wakes all */
#define WS_ORDER_TURNS 3  /* of a listener: the same one for 32 connections, then the one that has
                           * been idle longest; of a userfaultfd: as WS_ORDER_FIFO */

/* ---- Listener groups: one connection wakes one waiter ---- */

/* A waiter for connections to a listening socket. Each thread and each process has its own; they
 * share nothing but the kernel's queue, and any may die at any time: a connection that one of them
 * was woken for is then seen by another within a second. */
typedef struct ws_listener_waiter ws_listener_waiter;

/* Joins the waiters for connections to `listener`, which stays open meanwhile and should be
 * non-blocking. `order`: WS_ORDER_*, the same for all. After fork(2) the child may go on with what
 * it inherited.
 * Returns: the waiter. Errors: EBADF, EINVAL (not listening; no such order), ENOMEM, ENOTSOCK.
 * Threads: any. Signals: unsafe. See listen(2). */
ws_listener_waiter *ws_listener_join(int listener, int order);

/* Sleeps until it is this waiter's turn with a connection, or the time is up. NULL sets no limit.
 * Another waiter may be faster with accept(2), which then says EAGAIN: wait again.
 * Returns: 1 if it is this waiter's turn; 0 if the time is up. Errors: EBADF, EINTR, EINVAL,
 * EMFILE, ENFILE, ENOMEM, ENOSPC, ENOTSOCK. Threads: one. Signals: unsafe. See epoll_wait(2),
 * EPOLLEXCLUSIVE. */
int ws_listener_wait(ws_listener_waiter *waiter, const struct timespec *timeout);

/* Waits as ws_listener_wait() does, and then accepts with accept4(2), `addr`, `addrlen` and
 * `flags`. Needs a non-blocking listener.
 * Returns: the new descriptor. Errors: as ws_listener_wait() and accept4(2); EAGAIN if the time is
 * up. Threads: one. Signals: unsafe. Cancels (in accept4). */
int ws_listener_accept(ws_listener_waiter *waiter, struct sockaddr *addr, socklen_t *addrlen,
                       int flags, const struct timespec *timeout);

/* Leaves the group; NULL is allowed. No errors. Threads: one. Signals: unsafe. */
void ws_listener_leave(ws_listener_waiter *waiter);

/* ---- Userfault handler pools: one fault wakes one thread ---- */

/* The threads of this process that serve one userfaultfd. */
typedef struct ws_fault_pool ws_fault_pool;

struct uffd_msg; /* <linux/userfaultfd.h> */

/* Makes a pool for a userfaultfd that has been through UFFDIO_API and stays open as long as the
 * pool. `order`: WS_ORDER_*.
 * Returns: the pool. Errors: EBADF, EINVAL, EMFILE, ENFILE, ENOMEM. Threads: any. Signals: unsafe.
 * See ioctl_userfaultfd(2). */
ws_fault_pool *ws_fault_pool_create(int uffd, int order);

/* Waits for messages. Ask for one at a time unless several are served as fast together. NULL sets
 * no time limit; a limit holds only with an O_NONBLOCK userfaultfd.
 * Returns: how many messages there are, from 1 to `maxmsgs`. Errors: ECANCELED (stopped), EINTR,
 * EINVAL, ETIMEDOUT, and as read(2). Threads: any. Signals: unsafe. See userfaultfd(2). */
int ws_fault_pool_next(ws_fault_pool *pool, struct uffd_msg *msgs, int maxmsgs,
                       const struct timespec *timeout);

/* Ends the calls under way and all later ones with ECANCELED. The one that waits in the kernel for
 * a userfaultfd without O_NONBLOCK ends with its next message.
 * No errors. Threads: any. Signals: unsafe. */
void ws_fault_pool_stop(ws_fault_pool *pool);

/* Frees a pool in which no call is under way; NULL is allowed.
 * No errors. Threads: one. Signals: unsafe. */
void ws_fault_pool_destroy(ws_fault_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
