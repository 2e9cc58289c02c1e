/*
 * The calls that programs make, with the version that libc's functions have on x86-64:
 * CALL(system call, function, version, result, parameters, arguments from a[0] on).
 */
CALL(eventfd2, eventfd, "2.7", int, (unsigned n, int flags), (n, flags), (A(0), A(1)))
CALL(timerfd_create, timerfd_create, "2.8", int, (int clock, int flags), (clock, flags),
     (A(0), A(1)))
CALL(timerfd_settime, timerfd_settime, "2.8", int,
     (int fd, int flags, const struct itimerspec *to, struct itimerspec *old),
     (fd, flags, to, old), (A(0), A(1), P(2), P(3)))
CALL(epoll_create1, epoll_create1, "2.9", int, (int flags), (flags), (A(0)))
CALL(epoll_ctl, epoll_ctl, "2.3.2", int, (int set, int op, int fd, struct epoll_event *event),
     (set, op, fd, event), (A(0), A(1), A(2), P(3)))
CALL(epoll_wait, epoll_wait, "2.3.2", int, (int set, struct epoll_event *to, int n, int limit),
     (set, to, n, limit), (A(0), P(1), A(2), A(3)))
CALL(epoll_pwait, epoll_pwait, "2.6", int,
     (int set, struct epoll_event *to, int n, int limit, const sigset_t *mask),
     (set, to, n, limit, mask), (A(0), P(1), A(2), A(3), P(4)))
CALL(epoll_pwait2, epoll_pwait2, "2.35", int,
     (int set, struct epoll_event *to, int n, const struct timespec *limit,
      const sigset_t *mask),
     (set, to, n, limit, mask), (A(0), P(1), A(2), P(3), P(4)))
CALL(read, read, "2.2.5", ssize_t, (int fd, void *to, size_t n), (fd, to, n),
     (A(0), P(1), a[2]))
CALL(write, write, "2.2.5", ssize_t, (int fd, const void *from, size_t n), (fd, from, n),
     (A(0), P(1), a[2]))
CALL(readv, readv, "2.2.5", ssize_t, (int fd, const struct iovec *to, int n), (fd, to, n),
     (A(0), P(1), A(2)))
CALL(writev, writev, "2.2.5", ssize_t, (int fd, const struct iovec *from, int n), (fd, from, n),
     (A(0), P(1), A(2)))
CALL(pread64, pread64, "2.2.5", ssize_t, (int fd, void *to, size_t n, off64_t at),
     (fd, to, n, at), (A(0), P(1), a[2], (off64_t)a[3]))
CALL(close, close, "2.2.5", int, (int fd), (fd), (A(0)))
CALL(dup, dup, "2.2.5", int, (int fd), (fd), (A(0)))
CALL(dup2, dup2, "2.2.5", int, (int fd, int to), (fd, to), (A(0), A(1)))
CALL(dup3, dup3, "2.9", int, (int fd, int to, int flags), (fd, to, flags), (A(0), A(1), A(2)))
CALL(pipe2, pipe2, "2.9", int, (int ends[2], int flags), (ends, flags), (P(0), A(1)))
CALL(socketpair, socketpair, "2.2.5", int, (int domain, int type, int protocol, int ends[2]),
     (domain, type, protocol, ends), (A(0), A(1), A(2), P(3)))
CALL(sendmsg, sendmsg, "2.2.5", ssize_t, (int fd, const struct msghdr *message, int flags),
     (fd, message, flags), (A(0), P(1), A(2)))
CALL(recvmsg, recvmsg, "2.2.5", ssize_t, (int fd, struct msghdr *message, int flags),
     (fd, message, flags), (A(0), P(1), A(2)))
CALL(poll, poll, "2.2.5", int, (struct pollfd *fds, nfds_t n, int limit), (fds, n, limit),
     (P(0), a[1], A(2)))
CALL(select, select, "2.2.5", int,
     (int n, fd_set *in, fd_set *out, fd_set *other, struct timeval *limit),
     (n, in, out, other, limit), (A(0), P(1), P(2), P(3), P(4)))
CALL(splice, splice, "2.5", ssize_t,
     (int from, off64_t *from_at, int to, off64_t *to_at, size_t n, unsigned flags),
     (from, from_at, to, to_at, n, flags), (A(0), P(1), A(2), P(3), a[4], (unsigned)a[5]))
CALL(shutdown, shutdown, "2.2.5", int, (int fd, int how), (fd, how), (A(0), A(1)))
/* Without a fixed number of arguments; these have the ones that programs pass. */
VARIADIC(fcntl, fcntl, "2.2.5", (int fd, int command, ...), command,
	 (fd, command, argument), (A(0), A(1), a[2]))
VARIADIC(ioctl, ioctl, "2.2.5", (int fd, unsigned long request, ...), request,
	 (fd, request, argument), (A(0), a[1], a[2]))
VARIADIC(open, open, "2.2.5", (const char *path, int flags, ...), flags,
	 (path, flags, argument), (P(0), A(1), a[2]))
