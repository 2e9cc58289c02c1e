/*
 * Wakeset: epoll in user space, with Linux's semantics.
 *
 * The functions are Linux's with ws_ before their names: same arguments, same results, same errno. Descriptors that Wakeset made (sets, eventfds)
 * work as ever with all of them, and so does any other descriptor. While only this process can reach such an object its state is in user space, and
 * signalling from thread to thread makes no system call; when something else is about to reach it the state moves into the kernel object behind
 * the number, for good. ws_dup, ws_poll, ws_sendmsg and the like do so by themselves, and fork(2) does. What you call without ws_ does not:
 *
 *     read, write, close, dup, poll, select, fcntl(F_SETFL), epoll_* on such a number   use the ws_ form, or ws_release() the number before
 *     execve and posix_spawn of a program that inherits such a number                   ws_release_inherited() before; close-on-exec needs nothing
 *     io_uring, aio, splice, sendfile, KVM and others that are given such a number      ws_release() before
 *
 * <wakeset/epoll.h> and <wakeset/eventfd.h> give the old names to existing source.
 *
 * In the comments below:
 *   MT      any thread, any number at a time
 *   MT-one  any thread, one at a time for the same object
 *   AS      async-signal-safe, while it does not have to sleep
 *   cancel  a cancellation point (pthreads(7)) where it sleeps in the kernel. A thread that sleeps in an in-process object is not cancelled there,
 *           but at its next cancellation point.
 *
 * What differs from Linux is listed in SEMANTICS.md, and for this library in the README of the crate wakeset-c. The difference to know first: a pointer
 * to memory that is not there may fault instead of giving EFAULT.
 *
 * Functions return -1 (pointers: NULL) on an error and set errno. None throws, and none unwinds but for pthread_cancel(3).
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

/* The version of this header; the library's ABI is that of its symbol versions, WAKESET_0.1 and later ones. */
#define WAKESET_VERSION_MAJOR 0
#define WAKESET_VERSION_MINOR 1
#define WAKESET_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Sets ---- */

/* A new set; `size` is ignored, but above 0. Errors: EINVAL, EMFILE, ENFILE, ENOMEM. MT. epoll_create(2) */
int ws_epoll_create(int size);

/* A new set. `flags`: 0 or EPOLL_CLOEXEC. Errors: EINVAL, EMFILE, ENFILE, ENOMEM. MT. epoll_create1(2) */
int ws_epoll_create1(int flags);

/* Adds, changes or removes (EPOLL_CTL_ADD, _MOD, _DEL) the watch of a set on a descriptor: one of Wakeset's, or of any file with a poll operation.
 * `event` is not looked at for EPOLL_CTL_DEL. When it returns the change is in force.
 * Errors: EBADF, EEXIST, EINVAL, ELOOP, ENOENT, ENOMEM, ENOSPC, EPERM. MT. epoll_ctl(2) */
int ws_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event);

/* Waits for events; how many, at most `maxevents`. `timeout` in milliseconds: -1 is none, 0 only looks. One event wakes one waiting thread.
 * Errors: EBADF, EINTR, EINVAL. MT, cancel. epoll_wait(2) */
int ws_epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

/* The same with a signal mask for the length of the wait; NULL for none. epoll_pwait(2) */
int ws_epoll_pwait(int epfd, struct epoll_event *events, int maxevents, int timeout, const sigset_t *sigmask);

/* The same with a time limit in nanoseconds; NULL for none. On kernels before 5.11 ENOSYS is an error if the set has moved into the kernel.
 * epoll_pwait2(2) */
int ws_epoll_pwait2(int epfd, struct epoll_event *events, int maxevents, const struct timespec *timeout, const sigset_t *sigmask);

/* Hands a set to someone else's loop. Returns the descriptor for it, which is the set's own number: from now on poll(2), select(2) and epoll(7) find it
 * readable when ws_epoll_wait() would find something. Edge-triggered watches on it see each new event (tokio's AsyncFd, GLib, asyncio's add_reader).
 *
 * The loop calls ws_epoll_wait() with timeout 0 when it is readable, until that returns 0 if it watches edges. It may be readable once more than
 * there are events, never once less. It costs one write(2) for each event that finds the set empty. Nothing takes it back but ws_close().
 * Errors: EBADF, EINVAL (not a set), EMFILE, ENFILE, ENOMEM, ENOSPC. MT. poll(2), epoll(7) */
int ws_epoll_pollfd(int epfd);

/* ---- Eventfds ---- */

/* A new eventfd with a counter at `initval`. `flags`: EFD_CLOEXEC, EFD_NONBLOCK, EFD_SEMAPHORE.
 * Errors: EINVAL, EMFILE, ENFILE, ENODEV, ENOMEM. MT. eventfd(2) */
int ws_eventfd(unsigned int initval, int flags);

/* Takes the value (1 with EFD_SEMAPHORE) out of an eventfd; 0 or -1. Errors: EAGAIN, EBADF, EINTR, EINVAL. MT, AS, cancel. eventfd_read(3) */
int ws_eventfd_read(int fd, eventfd_t *value);

/* Adds to an eventfd; 0 or -1. Errors: EAGAIN, EBADF, EINTR, EINVAL (2^64-1). MT, AS, cancel. eventfd_write(3) */
int ws_eventfd_write(int fd, eventfd_t value);

/* ---- Timers ---- */

/* A new timer, not set. `flags`: TFD_CLOEXEC, TFD_NONBLOCK. In user space on CLOCK_MONOTONIC, and on CLOCK_REALTIME while it is set once and by the time
 * from now; the kernel's otherwise, and from the first ws_epoll_pollfd() on. Errors: EINVAL, EMFILE, ENFILE, ENODEV, ENOMEM, EPERM. MT. timerfd_create(2) */
int ws_timerfd_create(int clockid, int flags);

/* Sets a timer; `old_value`, if not NULL, gets what was left. No system call. `flags`: 0, TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET.
 * Errors: EBADF, ECANCELED, EINVAL. MT. timerfd_settime(2) */
int ws_timerfd_settime(int fd, int flags, const struct itimerspec *new_value, struct itimerspec *old_value);

/* What is left, and the interval. Errors: EBADF, EINVAL. MT. timerfd_gettime(2) */
int ws_timerfd_gettime(int fd, struct itimerspec *curr_value);

/* ---- Any descriptor ---- */

/* read(2), of an eventfd 8 bytes. Errors: those of read(2). MT, AS, cancel. */
ssize_t ws_read(int fd, void *buf, size_t count);

/* write(2), to an eventfd 8 bytes. Errors: those of write(2). MT, AS, cancel. */
ssize_t ws_write(int fd, const void *buf, size_t count);

/* readv(2), writev(2). More than one buffer leaves an eventfd to the kernel. MT, cancel. */
ssize_t ws_readv(int fd, const struct iovec *iov, int iovcnt);
ssize_t ws_writev(int fd, const struct iovec *iov, int iovcnt);

/* close(2). Watches on the last descriptor of an object go with it. Errors: those of close(2). MT, cancel. */
int ws_close(int fd);

/* close_range(2); ENOSYS before Linux 5.9. MT. */
int ws_close_range(unsigned int first, unsigned int last, int flags);

/* dup(2), dup2(2), dup3(2). Leave what they duplicate to the kernel. Errors: theirs, and EBUSY for a set that has, or had, a source of the program's own.
 * MT. */
int ws_dup(int oldfd);
int ws_dup2(int oldfd, int newfd);
int ws_dup3(int oldfd, int newfd, int flags);

/* fcntl(2) and ioctl(2): F_SETFL and FIONBIO with O_NONBLOCK, F_DUPFD as dup(2). MT, cancel (fcntl). */
int ws_fcntl(int fd, int cmd, ...);
int ws_ioctl(int fd, unsigned long request, ...);

/* poll(2), ppoll(2), select(2), pselect(2). Leave the eventfds and sets they name to the kernel, except a set with a source of the program's own, which they
 * hand out (ws_epoll_pollfd). MT, cancel. */
int ws_poll(struct pollfd *fds, nfds_t nfds, int timeout);
int ws_ppoll(struct pollfd *fds, nfds_t nfds, const struct timespec *timeout, const sigset_t *sigmask);
int ws_select(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout);
int ws_pselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, const struct timespec *timeout,
               const sigset_t *sigmask);

/* sendmsg(2). Leaves the descriptors it passes to the kernel (SCM_RIGHTS, unix(7)). MT, cancel. */
ssize_t ws_sendmsg(int sockfd, const struct msghdr *msg, int flags);

/* Leaves an eventfd or a set to the kernel, with its value and its watches: from now on it works with any call of any library. Does nothing to other
 * descriptors. Errors: EBADF; EBUSY: a set that has, or had, a source of the program's own. MT. */
int ws_release(int fd);

/* Leaves to the kernel what has no close-on-exec flag: before execve(2) or posix_spawn(3). MT. */
void ws_release_inherited(void);

/* ---- Sources of the program's own ---- */

/* Something that becomes ready and has no descriptor: a queue, a completion, a device. */
typedef struct ws_source ws_source;

struct ws_source_ops {
    /* What holds now, as EPOLL bits. Any thread calls it that waits in, or changes, a set which watches the source, with a lock of the set held: it
     * must be quick, and must not call ws_epoll_*, ws_source_*, longjmp(3) or pthread_exit(3). Not NULL. */
    uint32_t (*on_poll)(void *context);
    /* The last thing that happens to the context, in ws_source_close(). May be NULL. */
    void (*on_close)(void *context);
};

/* A new source; the table is copied. It belongs to the process: a forked child may only close it.
 * Errors: EINVAL (no on_poll), ENOMEM. MT. poll_wait() in the kernel's drivers */
ws_source *ws_source_create(const struct ws_source_ops *ops, void *context);

/* To be called after each change that may have made one of `events` true: wakes those who wait for them. It is the edge that EPOLLET watches see. What ends a
 * readiness needs no call. MT, AS. wake_up_poll() in the kernel */
void ws_source_wake(ws_source *source, uint32_t events);

/* Ends a source; NULL is none. Every set forgets it at once; when it returns, no callback runs any more, nor will. No other thread may be about to use it.
 * MT-one. close(2) */
void ws_source_close(ws_source *source);

/* ws_epoll_ctl() for a source, with all flags. A set that has had one stays in this process: after a fork(2) the child must not use it but close it, and
 * ws_dup() and ws_release() refuse it with EBUSY.
 * Errors: EBADF, EEXIST, EFAULT, EINVAL, ELOOP, ENOENT, ENOMEM; EMFILE, ENFILE, ENOSPC: the set also has descriptors of the kernel's and no eventfd can be
 * had to connect the two. MT. epoll_ctl(2) */
int ws_epoll_ctl_source(int epfd, int op, ws_source *source, struct epoll_event *event);

/* ---- Several changes in one call ---- */

/* One change: as the arguments of ws_epoll_ctl(). */
struct ws_epoll_ctl_cmd {
    int op;
    int fd;
    struct epoll_event event; /* not looked at for EPOLL_CTL_DEL */
    int result;               /* set by the call: 0, or an errno, negated; -ECANCELED behind a stop */
};

#define WS_BATCH_STOP_AT_ERROR 1 /* make no further change behind one that fails */
#define WS_BATCH_SINGLE_CALLS 2  /* never use io_uring: for a program whose seccomp(2) filter kills for it */

/* Makes `n` changes in order, each as ws_epoll_ctl() would; how many succeeded. All are in force when it returns: a descriptor that was removed may be closed
 * and its number used again. It is no transaction. `flags`: 0 or WS_BATCH_*. Many descriptors of the kernel's are handed over together, where io_uring
 * is allowed (Linux 6.6). Errors: EFAULT (cmds is NULL), EINVAL (flags); all others are results of the commands. MT. epoll_ctl(2) */
ssize_t ws_epoll_ctl_batch(int epfd, int flags, struct ws_epoll_ctl_cmd *cmds, size_t n);

/* ---- Removals that tell ---- */

/* A thread's hand for the events of a set: what ws_hand_wait() reports is in it until the thread waits again, puts it down, or arms the watch again through
 * it. A forked child does not use the hands of its parent, nor destroy them. */
typedef struct ws_hand ws_hand;

/* The hands that have an event of a removed watch. */
typedef struct ws_holders ws_holders;

/* A hand for the set `epfd`. Errors: EBADF, ENOMEM, EOPNOTSUPP (no set, or one that lives in the kernel). MT. */
ws_hand *ws_hand_create(int epfd);

/* ws_epoll_wait(), with what it reports in the hand; what was in it is put down. Errors: those, and EBADF also if the number stands for another set by now.
 * MT-one. epoll_wait(2) */
int ws_hand_wait(ws_hand *hand, struct epoll_event *events, int maxevents, int timeout);

/* Says that the thread is done with all that is in its hand. MT-one. */
void ws_hand_put_down(ws_hand *hand);

/* EPOLL_CTL_MOD that gives back the event of that watch. Errors: EFAULT, and those of ws_epoll_ctl(). MT-one. epoll_ctl(2) */
int ws_hand_mod(ws_hand *hand, int fd, struct epoll_event *event);

/* Puts down what is in a hand, and frees it: before the set is closed. NULL is none. MT-one. */
void ws_hand_destroy(ws_hand *hand);

#define WS_TOLD_FREE 0     /* in nobody's hands: what the data leads to can be freed */
#define WS_TOLD_IN_HAND 1  /* in the hands in *holders: it can be freed once ws_holders_wait() says 1 */
#define WS_TOLD_DISARMED 2 /* one-shot, and reported to a thread without a hand, whose next EPOLL_CTL_MOD fails with ENOENT: that thread frees it */
#define WS_TOLD_UNKNOWN 3  /* it cannot be said: descriptors of the kernel's, and watches that were not always one-shot in sets that are waited in without hands */

/* EPOLL_CTL_DEL that says where an event of the watch is: WS_TOLD_*. `holders` gets the hands for WS_TOLD_IN_HAND, else NULL. With too little memory for them
 * it says WS_TOLD_UNKNOWN. Errors: EFAULT (holders is NULL), and those of ws_epoll_ctl(). MT. */
int ws_epoll_del_telling(int epfd, int fd, ws_holders **holders);

/* The same by a thread that may have an event of the watch in its hand: only other hands count. MT-one. */
int ws_hand_del_telling(ws_hand *hand, int fd, ws_holders **holders);

/* Waits until none of them has it any more: 1, or 0 if the time is up; NULL is no time limit. Errors: EINVAL. MT. */
int ws_holders_wait(ws_holders *holders, const struct timespec *timeout);

/* Frees them; NULL is none. Not after the set is closed. MT-one. */
void ws_holders_free(ws_holders *holders);

/* ---- Event rings ---- */

/* Gives a set an event ring of `entries` slots, from 1 to 2^20, rounded up to a power of two, unless it has one: 1, or 0 if the number is the kernel's, whatever it
 * stands for, where nothing changes. From then on the waits of this set take in-process events from the ring, at most as many as it has slots in one call: the same events,
 * without a lock that the set's threads share, and where there are any without a system call. Removals and closes wait for threads that are taking at that
 * moment. `flags`: 0, WS_RING_POLL, or WS_RING_POLL | WS_RING_HINTS. Errors: EBADF, EINVAL (an object of ours that is no set; entries; flags), ENOMEM. MT. epoll_wait(2), io_uring(7) */
int ws_ring_setup(int epfd, size_t entries, int flags);

/* Sockets that are added from now on are watched through an io_uring where that is allowed (Linux 6.1): a wait takes what hundreds of them have in two system calls,
 * and in none if there is nothing; the same events. It serves the thread that makes the call: when another one uses the set, or the process forks, its watches
 * go back to the kernel's epoll, for good. It holds watched files open, so a watched number is closed through ws_close() or ws_dup2(), or removed before;
 * with close(2) neither the connection nor the watch would end. Closing a number ends its watch, also where another stands for the same file. */
#define WS_RING_POLL 1

/* Besides: an edge (EPOLLET) of a stream socket that comes of data or of room for data is reported as the io_uring tells it, without a look at the socket. Then an event says
 * that the socket has become readable or writable since the last one, not that it still is, and only which of the two. It has to be non-blocking, and to be read and written
 * until EAGAIN, which may come at once. Exact are all events from an end or an error on, levels, other sockets, and watches for EPOLLPRI, EPOLLRDBAND or EPOLLWRBAND. */
#define WS_RING_HINTS 2

/* A set's events, written into memory that another process reads. Neither side trusts the other: a peer that crashes or lies can stop the flow, or put
 * nonsense into the events of this ring, and nothing else. Level-triggered watches are written again when the reader has taken their last event and they
 * still hold. What has been written is not taken back by EPOLL_CTL_DEL, as what ws_epoll_wait() has returned is not. */
typedef struct ws_ring_writer ws_ring_writer;

/* The side that reads, usually in another process. */
typedef struct ws_ring_reader ws_ring_reader;

/* Shared memory for `entries` events of the set `epfd`, from 1 to 2^20, rounded up to a power of two. Nobody else takes events of that set from now on. It
 * belongs to the process: a forked child may only destroy it. A fork leaves the set to the kernel, where the writer finds its events too, with system
 * calls. Errors: EBADF, EINVAL, EMFILE, ENFILE, ENOMEM, EOPNOTSUPP (no set, or one that lives in the kernel). MT. memfd_create(2) */
ws_ring_writer *ws_ring_writer_create(int epfd, unsigned int entries);

/* The descriptor to pass to the other process (SCM_RIGHTS, or inherited). It is the writer's, and close-on-exec. Errors: EINVAL (NULL). MT. unix(7) */
int ws_ring_writer_fd(const ws_ring_writer *writer);

/* Writes what is ready and fits; how many. If that is none, waits until there is something, and room for it: 0 if the time is up; NULL is no time limit, and
 * one of 0 only looks. Errors: EBADF (the set's number was closed, or this is a forked child), EINTR, EINVAL, ENOMEM; EPROTO: the reader says that it has
 * taken what there never was, and as long as it does nothing is written. MT-one. epoll_wait(2) */
ssize_t ws_ring_writer_pump(ws_ring_writer *writer, const struct timespec *timeout);

/* Ends the writer, before its set is closed; NULL is none. The reader can still take what is there, and is not told. MT-one. */
void ws_ring_writer_destroy(ws_ring_writer *writer);

/* Maps the memory behind a descriptor that another process has passed on; the descriptor may be closed afterwards. One reader for a ring; after
 * fork(2) parent or child may go on with it, not both. Errors: EACCES and EPERM (it may not be written to), EBADF, EINVAL (it is no such
 * memory), ENOMEM. MT. mmap(2) */
ws_ring_reader *ws_ring_reader_open(int fd);

/* Takes events; how many, at most `maxevents`. If there are none, waits for one: 0 if the time is up; NULL is no time limit, and one of 0 only looks. Makes no
 * system call unless it, or the writer, sleeps. A writer that is gone is not noticed: give a limit, or watch a socket to it.
 * Errors: EINTR, EINVAL; EPROTO: the writer says that it has written what cannot be, and as long as it does nothing is taken. MT-one. epoll_wait(2) */
int ws_ring_reader_take(ws_ring_reader *reader, struct epoll_event *events, int maxevents, const struct timespec *timeout);

/* Unmaps the memory; NULL is none. MT-one. */
void ws_ring_reader_destroy(ws_ring_reader *reader);

/* ---- Who is woken next ---- */

#define WS_ORDER_FIFO 0   /* who has been idle longest: the work is spread evenly */
#define WS_ORDER_LIFO 1   /* one that was busy of late: warm caches, uneven */
#define WS_ORDER_KERNEL 2 /* left to the kernel, which wakes all */
#define WS_ORDER_TURNS 3  /* of a listener: the same one for 32 connections, then who has been idle longest; of a userfaultfd: as WS_ORDER_FIFO */

/* ---- Listener groups: one connection wakes one waiter ---- */

/* One who waits for connections to a listening socket. Each thread and each process has its own; they share nothing but the kernel's queue, and any may die
 * at any time: a connection that one of them was woken for is then seen by another within a second. */
typedef struct ws_listener_waiter ws_listener_waiter;

/* Joins those who wait for connections to `listener`, which stays open meanwhile and should be non-blocking. `order`: WS_ORDER_*, for all the same. After
 * fork(2) the child may go on with what it inherited.
 * Errors: EBADF, EINVAL (not listening; no such order), ENOMEM, ENOTSOCK. MT. listen(2) */
ws_listener_waiter *ws_listener_join(int listener, int order);

/* Sleeps until it is this waiter's turn with a connection (1) or the time is up (0). NULL is no limit. Another may be faster with accept(2), which then says
 * EAGAIN: wait again. Errors: EBADF, EINTR, EINVAL, EMFILE, ENFILE, ENOMEM, ENOSPC, ENOTSOCK. MT-one. epoll_wait(2), EPOLLEXCLUSIVE */
int ws_listener_wait(ws_listener_waiter *waiter, const struct timespec *timeout);

/* The same, and accepts: the new descriptor. `addr`, `addrlen` and `flags` as for accept4(2). Errors: those of the two; EAGAIN: the time is up. Needs a
 * non-blocking listener. MT-one, cancel (in accept4). */
int ws_listener_accept(ws_listener_waiter *waiter, struct sockaddr *addr, socklen_t *addrlen, int flags,
                       const struct timespec *timeout);

/* Leaves; NULL is none. MT-one. */
void ws_listener_leave(ws_listener_waiter *waiter);

/* ---- Userfault handler pools: one fault wakes one thread ---- */

/* The threads of this process that serve one userfaultfd. */
typedef struct ws_fault_pool ws_fault_pool;

struct uffd_msg; /* <linux/userfaultfd.h> */

/* A pool for a userfaultfd that has been through UFFDIO_API and stays open as long as the pool. `order`: WS_ORDER_*.
 * Errors: EBADF, EINVAL, EMFILE, ENFILE, ENOMEM. MT. ioctl_userfaultfd(2) */
ws_fault_pool *ws_fault_pool_create(int uffd, int order);

/* Waits for messages; how many, from 1 to `maxmsgs`. Ask for one at a time unless several are served as fast together. NULL is no time limit; one holds only
 * with an O_NONBLOCK userfaultfd. Errors: ECANCELED (stopped), EINTR, EINVAL, ETIMEDOUT, and those of read(2). MT. userfaultfd(2) */
int ws_fault_pool_next(ws_fault_pool *pool, struct uffd_msg *msgs, int maxmsgs, const struct timespec *timeout);

/* Ends the calls under way and all later ones with ECANCELED; of a userfaultfd without O_NONBLOCK, the one that waits in the kernel ends with its next
 * message. MT. */
void ws_fault_pool_stop(ws_fault_pool *pool);

/* Frees a pool in which no call is under way; NULL is none. MT-one. */
void ws_fault_pool_destroy(ws_fault_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
