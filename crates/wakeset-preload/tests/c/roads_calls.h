/*
 * The calls of roads.c: CALL(row of the table, what is special, by name, by number), each an entry
 * of make_call. `fd` is the descriptor that the call is made on.
 */

CALL("none", "nothing", 0, 0)

CALL("read", "8 bytes", read(fd, buffer, 8), syscall(SYS_read, fd, buffer, 8))
CALL("read", "1 byte", read(fd, buffer, 1), syscall(SYS_read, fd, buffer, 1))
CALL("read", "nothing", read(fd, buffer, 0), syscall(SYS_read, fd, buffer, 0))
CALL("read", "bad memory", read(fd, BAD, 8), syscall(SYS_read, fd, 8, 8))
CALL("write", "8 bytes", write(fd, buffer, 8), syscall(SYS_write, fd, buffer, 8))
CALL("write", "16 bytes", write(fd, buffer, 16), syscall(SYS_write, fd, buffer, 16))
CALL("write", "1 byte", write(fd, buffer, 1), syscall(SYS_write, fd, buffer, 1))
CALL("write", "bad memory", write(fd, BAD, 8), syscall(SYS_write, fd, 8, 8))
CALL("readv", "one buffer", readv(fd, vectors, 1), syscall(SYS_readv, fd, vectors, 1))
CALL("readv", "two buffers", readv(fd, vectors, 2), syscall(SYS_readv, fd, vectors, 2))
CALL("readv", "no buffer", readv(fd, vectors, 0), syscall(SYS_readv, fd, vectors, 0))
CALL("readv", "bad memory", readv(fd, BAD, 1), syscall(SYS_readv, fd, 8, 1))
CALL("writev", "one buffer", writev(fd, vectors, 1), syscall(SYS_writev, fd, vectors, 1))
CALL("writev", "two buffers", writev(fd, vectors, 2), syscall(SYS_writev, fd, vectors, 2))
CALL("pread", "", pread(fd, buffer, 8, 0), syscall(SYS_pread64, fd, buffer, 8, 0))
CALL("pwrite", "", pwrite(fd, buffer, 8, 0), syscall(SYS_pwrite64, fd, buffer, 8, 0))
CALL("preadv", "", preadv(fd, vectors, 1, 0), syscall(SYS_preadv, fd, vectors, 1, 0, 0))
CALL("pwritev", "", pwritev(fd, vectors, 1, 0), syscall(SYS_pwritev, fd, vectors, 1, 0, 0))
CALL("preadv2", "",
     preadv2(fd, vectors, 1, -1, 0),
     syscall(SYS_preadv2, fd, vectors, 1, -1L, 0, 0))
CALL("pwritev2", "",
     pwritev2(fd, vectors, 1, -1, 0),
     syscall(SYS_pwritev2, fd, vectors, 1, -1L, 0, 0))
CALL("splice", "out of it",
     splice(fd, NULL, kernel_ends[1], NULL, 8, SPLICE_F_NONBLOCK),
     syscall(SYS_splice, fd, 0, kernel_ends[1], 0, 8, SPLICE_F_NONBLOCK))
CALL("splice", "into it",
     splice(kernel_ends[0], NULL, fd, NULL, 8, SPLICE_F_NONBLOCK),
     syscall(SYS_splice, kernel_ends[0], 0, fd, 0, 8, SPLICE_F_NONBLOCK))
CALL("tee", "out of it",
     tee(fd, kernel_ends[1], 8, SPLICE_F_NONBLOCK),
     syscall(SYS_tee, fd, kernel_ends[1], 8, SPLICE_F_NONBLOCK))
CALL("tee", "into it",
     tee(kernel_ends[0], fd, 8, SPLICE_F_NONBLOCK),
     syscall(SYS_tee, kernel_ends[0], fd, 8, SPLICE_F_NONBLOCK))
CALL("vmsplice", "",
     vmsplice(fd, vectors, 1, SPLICE_F_NONBLOCK),
     syscall(SYS_vmsplice, fd, vectors, 1, SPLICE_F_NONBLOCK))
CALL("sendfile", "into it",
     sendfile(fd, kernel_ends[0], NULL, 8),
     syscall(SYS_sendfile, fd, kernel_ends[0], 0, 8))
CALL("sendfile", "out of it",
     sendfile(kernel_ends[1], fd, NULL, 8),
     syscall(SYS_sendfile, kernel_ends[1], fd, 0, 8))
CALL("copy_file_range", "into it",
     copy_file_range(kernel_ends[0], NULL, fd, NULL, 8, 0),
     syscall(SYS_copy_file_range, kernel_ends[0], 0, fd, 0, 8, 0))
CALL("copy_file_range", "out of it",
     copy_file_range(fd, &offset, kernel_ends[1], NULL, 8, 0),
     syscall(SYS_copy_file_range, fd, &offset, kernel_ends[1], 0, 8, 0))

CALL("eventfd", "",
     ({ int new = eventfd(2, EFD_NONBLOCK); note_made(COUNTER, new, new, -1); }),
     ({ int new = (int)syscall(SYS_eventfd2, 2, EFD_NONBLOCK); note_made(COUNTER, new, new,
         -1); }))
CALL("eventfd", "without flags",
     ({ int new = eventfd(2, 0); note_made(COUNTER, new, new, -1); }),
     ({ int new = (int)syscall(SYS_eventfd, 2); note_made(COUNTER, new, new, -1); }))
CALL("eventfd", "wrong flags", eventfd(0, 0x40000000), syscall(SYS_eventfd2, 0, 0x40000000))
CALL("timerfd_create", "",
     ({ int new = timerfd_create(CLOCK_MONOTONIC, 0); note_made(TIMER, new, new, -1); }),
     ({ int new = (int)syscall(SYS_timerfd_create, CLOCK_MONOTONIC, 0); note_made(TIMER,
         new, new, -1); }))
CALL("timerfd_create", "wrong clock",
     timerfd_create(77, 0),
     syscall(SYS_timerfd_create, 77, 0))
CALL("timerfd_settime", "",
     timerfd_settime(fd, 0, &time_set, NULL),
     syscall(SYS_timerfd_settime, fd, 0, &time_set, NULL))
CALL("timerfd_settime", "bad memory",
     timerfd_settime(fd, 0, BAD, NULL),
     syscall(SYS_timerfd_settime, fd, 0, 8, NULL))
CALL("timerfd_settime", "wrong flags",
     timerfd_settime(fd, 64, &time_set, NULL),
     syscall(SYS_timerfd_settime, fd, 64, &time_set, NULL))
CALL("timerfd_gettime", "",
     timerfd_gettime(fd, &time_old),
     syscall(SYS_timerfd_gettime, fd, &time_old))
CALL("timerfd_gettime", "bad memory",
     timerfd_gettime(fd, BAD),
     syscall(SYS_timerfd_gettime, fd, 8))

CALL("pipe", "",
     ({ int done = pipe(numbers); note_made(PIPE_OUT, done, numbers[0], numbers[1]); }),
     ({ int done = (int)syscall(SYS_pipe, numbers); note_made(PIPE_OUT, done, numbers[0],
         numbers[1]); }))
CALL("pipe", "bad memory", pipe(BAD), syscall(SYS_pipe, 8))
CALL("pipe2", "",
     ({ int done = pipe2(numbers, O_NONBLOCK); note_made(PIPE_OUT, done, numbers[0],
         numbers[1]); }),
     ({ int done = (int)syscall(SYS_pipe2, numbers, O_NONBLOCK); note_made(PIPE_OUT, done,
         numbers[0], numbers[1]); }))
CALL("pipe2", "packets",
     ({ int done = pipe2(numbers, O_DIRECT); note_made(PIPE_OUT, done, numbers[0],
         numbers[1]); }),
     ({ int done = (int)syscall(SYS_pipe2, numbers, O_DIRECT); note_made(PIPE_OUT, done,
         numbers[0], numbers[1]); }))
CALL("socketpair", "",
     ({ int done = socketpair(AF_UNIX, SOCK_STREAM, 0, numbers); note_made(PAIR, done,
         numbers[0], numbers[1]); }),
     ({ int done = (int)syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, numbers);
         note_made(PAIR, done, numbers[0], numbers[1]); }))
CALL("sendto", "send",
     send(fd, buffer, 5, MSG_DONTWAIT | MSG_NOSIGNAL),
     syscall(SYS_sendto, fd, buffer, 5, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0))
CALL("sendto", "",
     sendto(fd, buffer, 5, MSG_NOSIGNAL, NULL, 0),
     syscall(SYS_sendto, fd, buffer, 5, MSG_NOSIGNAL, NULL, 0))
CALL("sendto", "other flags",
     sendto(fd, buffer, 5, MSG_MORE, NULL, 0),
     syscall(SYS_sendto, fd, buffer, 5, MSG_MORE, NULL, 0))
CALL("sendto", "with an address",
     sendto(fd, buffer, 5, MSG_NOSIGNAL, (struct sockaddr *)other_buffer, 2),
     syscall(SYS_sendto, fd, buffer, 5, MSG_NOSIGNAL, other_buffer, 2))
CALL("recvfrom", "recv",
     recv(fd, buffer, 5, MSG_DONTWAIT),
     syscall(SYS_recvfrom, fd, buffer, 5, MSG_DONTWAIT, NULL, NULL))
CALL("recvfrom", "",
     recvfrom(fd, buffer, 5, 0, NULL, NULL),
     syscall(SYS_recvfrom, fd, buffer, 5, 0, NULL, NULL))
CALL("recvfrom", "peek",
     recvfrom(fd, buffer, 5, MSG_PEEK, NULL, NULL),
     syscall(SYS_recvfrom, fd, buffer, 5, MSG_PEEK, NULL, NULL))
CALL("recvfrom", "with an address",
     ({ socklen_t len = 64; recvfrom(fd, buffer, 5, 0, (struct sockaddr *)other_buffer,
         &len); }),
     ({ socklen_t len = 64; syscall(SYS_recvfrom, fd, buffer, 5, 0, other_buffer, &len); }))
CALL("sendmsg", "",
     ({ struct msghdr m = message(-1); sendmsg(fd, &m, MSG_NOSIGNAL); }),
     ({ struct msghdr m = message(-1); syscall(SYS_sendmsg, fd, &m, MSG_NOSIGNAL); }))
CALL("sendmsg", "passing it on",
     ({ struct msghdr m = message(fd); sendmsg(client, &m, MSG_NOSIGNAL); }),
     ({ struct msghdr m = message(fd); syscall(SYS_sendmsg, client, &m, MSG_NOSIGNAL); }))
CALL("sendmmsg", "",
     ({ several.msg_hdr = message(-1); sendmmsg(fd, &several, 1, MSG_NOSIGNAL); }),
     ({ several.msg_hdr = message(-1); syscall(SYS_sendmmsg, fd, &several, 1, MSG_NOSIGNAL);
         }))
CALL("sendmmsg", "passing it on",
     ({ several.msg_hdr = message(fd); sendmmsg(client, &several, 1, MSG_NOSIGNAL); }),
     ({ several.msg_hdr = message(fd); syscall(SYS_sendmmsg, client, &several, 1,
         MSG_NOSIGNAL); }))
CALL("recvmsg", "", recvmsg(fd, &received, 0), syscall(SYS_recvmsg, fd, &received, 0))
CALL("recvmmsg", "",
     ({ several.msg_hdr = received; recvmmsg(fd, &several, 1, MSG_DONTWAIT, NULL); }),
     ({ several.msg_hdr = received; syscall(SYS_recvmmsg, fd, &several, 1, MSG_DONTWAIT,
         NULL); }))
CALL("shutdown", "", shutdown(fd, SHUT_WR), syscall(SYS_shutdown, fd, SHUT_WR))
CALL("setsockopt", "",
     ({ option = 1; setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &option, sizeof option); }),
     ({ option = 1; syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_PASSCRED, &option, sizeof
         option); }))
CALL("getsockopt", "",
     getsockopt(fd, SOL_SOCKET, SO_TYPE, buffer, &option_len),
     syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, buffer, &option_len))
CALL("getsockopt", "memory",
     ({ option_len = 4; getsockopt(fd, SOL_SOCKET, SO_MEMINFO, &option, &option_len); }),
     ({ option_len = 4; syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_MEMINFO, &option,
         &option_len); }))
CALL("accept", "", accept(fd, NULL, NULL), syscall(SYS_accept, fd, NULL, NULL))
CALL("accept", "twice",
     (accept(fd, NULL, NULL), accept(fd, NULL, NULL)),
     (syscall(SYS_accept, fd, NULL, NULL), syscall(SYS_accept, fd, NULL, NULL)))
CALL("socket", "", socket(AF_UNIX, SOCK_STREAM, 0), syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0))
CALL("memfd_create", "", memfd_create("m", 0), syscall(SYS_memfd_create, "m", 0))
CALL("inotify_init", "", inotify_init(), syscall(SYS_inotify_init, 0))
CALL("inotify_init1", "", inotify_init1(0), syscall(SYS_inotify_init1, 0))
CALL("pidfd_open", "", pidfd_open(getpid(), 0), syscall(SYS_pidfd_open, getpid(), 0))
CALL("accept4", "",
     accept4(fd, NULL, NULL, SOCK_NONBLOCK),
     syscall(SYS_accept4, fd, NULL, NULL, SOCK_NONBLOCK))
CALL("accept4", "wrong flags",
     accept4(fd, NULL, NULL, 1),
     syscall(SYS_accept4, fd, NULL, NULL, 1))
CALL("listen", "", listen(fd, 1), syscall(SYS_listen, fd, 1))
CALL("bind", "",
     bind(fd, (struct sockaddr *)other_buffer, 2),
     syscall(SYS_bind, fd, other_buffer, 2))
CALL("connect", "",
     connect(fd, (struct sockaddr *)other_buffer, 2),
     syscall(SYS_connect, fd, other_buffer, 2))

CALL("epoll_create", "",
     ({ int new = epoll_create(1); note_made(SET, new, new, -1); }),
     ({ int new = (int)syscall(SYS_epoll_create, 1); note_made(SET, new, new, -1); }))
CALL("epoll_create", "of no size", epoll_create(0), syscall(SYS_epoll_create, 0))
CALL("epoll_create1", "",
     ({ int new = epoll_create1(EPOLL_CLOEXEC); note_made(SET, new, new, -1); }),
     ({ int new = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC); note_made(SET, new, new,
         -1); }))
CALL("epoll_ctl", "watch it",
     epoll_ctl(set, EPOLL_CTL_ADD, fd, &event),
     syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, fd, &event))
CALL("epoll_ctl", "in it",
     epoll_ctl(fd, EPOLL_CTL_MOD, watched, &event),
     syscall(SYS_epoll_ctl, fd, EPOLL_CTL_MOD, watched, &event))
CALL("epoll_ctl", "bad memory",
     epoll_ctl(set, EPOLL_CTL_ADD, fd, BAD),
     syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, fd, 8))
CALL("epoll_wait", "",
     epoll_wait(fd, (void *)buffer, 4, 0),
     syscall(SYS_epoll_wait, fd, buffer, 4, 0))
CALL("epoll_wait", "no capacity",
     epoll_wait(fd, (void *)buffer, 0, 0),
     syscall(SYS_epoll_wait, fd, buffer, 0, 0))
CALL("epoll_wait", "bad memory",
     epoll_wait(fd, BAD, 4, 0),
     syscall(SYS_epoll_wait, fd, 8, 4, 0))
CALL("epoll_pwait", "",
     epoll_pwait(fd, (void *)buffer, 4, 0, NULL),
     syscall(SYS_epoll_pwait, fd, buffer, 4, 0, NULL, 8))
CALL("epoll_pwait", "with a mask",
     epoll_pwait(fd, (void *)buffer, 4, 1, &mask),
     syscall(SYS_epoll_pwait, fd, buffer, 4, 1, &mask, 8))
CALL("epoll_pwait2", "",
     epoll_pwait2(fd, (void *)buffer, 4, &no_time, NULL),
     syscall(SYS_epoll_pwait2, fd, buffer, 4, &no_time, NULL, 8))
CALL("epoll_pwait2", "with a mask",
     epoll_pwait2(fd, (void *)buffer, 4, &millisecond, &mask),
     syscall(SYS_epoll_pwait2, fd, buffer, 4, &millisecond, &mask, 8))

#define REVENTS(call) ({ long found = (call); memcpy(buffer, polled, sizeof polled); found; })
CALL("poll", "it alone",
     REVENTS(poll(polled, 1, 0)),
     REVENTS(syscall(SYS_poll, polled, 1, 0)))
CALL("poll", "and another",
     REVENTS(poll(polled, 2, 1)),
     REVENTS(syscall(SYS_poll, polled, 2, 1)))
CALL("poll", "for input",
     ({ polled[0].events = POLLIN; REVENTS(poll(polled, 1, 1)); }),
     ({ polled[0].events = POLLIN; REVENTS(syscall(SYS_poll, polled, 1, 1)); }))
CALL("poll", "nothing", poll(NULL, 0, 1), syscall(SYS_poll, NULL, 0, 1))
CALL("poll", "bad memory", poll(BAD, 1, 0), syscall(SYS_poll, 8, 1, 0))
CALL("ppoll", "",
     REVENTS(ppoll(polled, 1, &no_time, NULL)),
     REVENTS(syscall(SYS_ppoll, polled, 1, &no_time, NULL, 8)))
CALL("ppoll", "with a mask",
     ({ polled[0].events = POLLIN; REVENTS(ppoll(polled, 1, &millisecond, &mask)); }),
     ({ polled[0].events = POLLIN; REVENTS(syscall(SYS_ppoll, polled, 1, &millisecond,
         &mask, 8)); }))
#define FOUND(call) ({ long found = (call); memcpy(buffer, &readable, sizeof readable); found; })
CALL("select", "",
     FOUND(select(fd + 1, &readable, NULL, NULL, &no_timeval)),
     FOUND(syscall(SYS_select, fd + 1, &readable, NULL, NULL, &no_timeval)))
CALL("select", "with time",
     ({ struct timeval time = {0, 1000}; FOUND(select(fd + 1, &readable, NULL, NULL,
         &time)); }),
     ({ struct timeval time = {0, 1000}; FOUND(syscall(SYS_select, fd + 1, &readable, NULL,
         NULL, &time)); }))
CALL("select", "for output",
     FOUND(select(fd + 1, NULL, &readable, NULL, &no_timeval)),
     FOUND(syscall(SYS_select, fd + 1, NULL, &readable, NULL, &no_timeval)))
CALL("select", "bad memory",
     select(fd + 1, BAD, NULL, NULL, &no_timeval),
     syscall(SYS_select, fd + 1, 8, NULL, NULL, &no_timeval))
CALL("pselect", "",
     FOUND(pselect(fd + 1, &readable, NULL, NULL, &no_time, NULL)),
     FOUND(syscall(SYS_pselect6, fd + 1, &readable, NULL, NULL, &no_time, NULL)))
CALL("pselect", "with a mask",
     FOUND(pselect(fd + 1, &readable, NULL, NULL, &millisecond, &mask)),
     ({ masked[0] = (long)&mask; masked[1] = 8; FOUND(syscall(SYS_pselect6, fd + 1,
         &readable, NULL, NULL, &millisecond, masked)); }))

CALL("close", "", close(fd), syscall(SYS_close, fd))
CALL("close_range", "", close_range(fd, fd, 0), syscall(SYS_close_range, fd, fd, 0))
CALL("close_range", "all", close_range(3, ~0U, 0), syscall(SYS_close_range, 3, ~0U, 0))
CALL("close_range", "closefrom", (closefrom(fd), 0), syscall(SYS_close_range, fd, ~0U, 0))
CALL("close_range", "close on exec",
     close_range(fd, fd, CLOSE_RANGE_CLOEXEC),
     syscall(SYS_close_range, fd, fd, CLOSE_RANGE_CLOEXEC))
CALL("close_range", "unshare",
     close_range(fd, fd, CLOSE_RANGE_UNSHARE),
     syscall(SYS_close_range, fd, fd, CLOSE_RANGE_UNSHARE))
CALL("dup", "", dup(fd), syscall(SYS_dup, fd))
CALL("dup2", "of it", dup2(fd, 50), syscall(SYS_dup2, fd, 50))
CALL("dup2", "over it", dup2(kernel_ends[0], fd), syscall(SYS_dup2, kernel_ends[0], fd))
CALL("dup2", "to itself", dup2(fd, fd), syscall(SYS_dup2, fd, fd))
CALL("dup3", "of it", dup3(fd, 50, O_CLOEXEC), syscall(SYS_dup3, fd, 50, O_CLOEXEC))
CALL("dup3", "over it",
     dup3(kernel_ends[0], fd, 0),
     syscall(SYS_dup3, kernel_ends[0], fd, 0))
CALL("dup3", "to itself", dup3(fd, fd, 0), syscall(SYS_dup3, fd, fd, 0))
CALL("dup3", "wrong flags", dup3(fd, 50, 1), syscall(SYS_dup3, fd, 50, 1))
CALL("fcntl", "F_GETFL", fcntl(fd, F_GETFL), syscall(SYS_fcntl, fd, F_GETFL, 0))
CALL("fcntl", "F_SETFL, and a read",
     (fcntl(fd, F_SETFL, 0), fcntl(fd, F_SETFL, O_NONBLOCK), read(fd, buffer, 8)),
     (syscall(SYS_fcntl, fd, F_SETFL, 0), syscall(SYS_fcntl, fd, F_SETFL, O_NONBLOCK),
         syscall(SYS_read, fd, buffer, 8)))
CALL("fcntl", "F_SETFL of O_ASYNC",
     fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK),
     syscall(SYS_fcntl, fd, F_SETFL, O_ASYNC | O_NONBLOCK))
CALL("fcntl", "F_DUPFD", fcntl(fd, F_DUPFD, 60), syscall(SYS_fcntl, fd, F_DUPFD, 60))
CALL("fcntl", "F_DUPFD_CLOEXEC",
     fcntl(fd, F_DUPFD_CLOEXEC, 60),
     syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 60))
CALL("fcntl", "F_SETPIPE_SZ",
     fcntl(fd, F_SETPIPE_SZ, 4096),
     syscall(SYS_fcntl, fd, F_SETPIPE_SZ, 4096))
CALL("fcntl", "F_GETPIPE_SZ",
     fcntl(fd, F_GETPIPE_SZ),
     syscall(SYS_fcntl, fd, F_GETPIPE_SZ, 0))
CALL("fcntl", "F_SETOWN", fcntl(fd, F_SETOWN, 1), syscall(SYS_fcntl, fd, F_SETOWN, 1))
#define REQUEST(what_, request) \
	CALL("ioctl", what_, ioctl(fd, (request), buffer), syscall(SYS_ioctl, fd, (request), buffer))
REQUEST("FIONBIO", FIONBIO)
REQUEST("FIONREAD", FIONREAD)
REQUEST("FIOCLEX", FIOCLEX)
REQUEST("TCGETS", TCGETS)
REQUEST("terminals", TIOCOUTQ)
REQUEST("TFD_IOC_SET_TICKS", 0x40085400)
REQUEST("sockets", 0x8905)
REQUEST("file systems", 0x80086601)
REQUEST("block devices", 0x1260)
REQUEST("cloning of files", 0x40049409)
REQUEST("UFFDIO_COPY", 0xc028aa03)
REQUEST("perf events", 0x2400)
REQUEST("name spaces", 0xb701)
REQUEST("random numbers", 0x5203)
REQUEST("KVM_IRQFD", 0x4020ae76)
REQUEST("VHOST_SET_VRING_KICK", 0x4008af20)
REQUEST("an unknown class", 0x4004ee01)
CALL("ioctl", "FIONREAD, bad memory",
     ioctl(fd, FIONREAD, 8),
     syscall(SYS_ioctl, fd, FIONREAD, 8))
CALL("pidfd_getfd", "",
     pidfd_getfd((int)pidfd(), fd, 0),
     syscall(SYS_pidfd_getfd, pidfd(), fd, 0))

CALL("open", "", open("/dev/null", O_RDONLY), syscall(SYS_open, "/dev/null", O_RDONLY))
CALL("open", "by the name of a descriptor",
     ({ sprintf(other_buffer, "/proc/self/fd/%d", fd); open(other_buffer, O_RDONLY |
         O_NONBLOCK); }),
     ({ sprintf(other_buffer, "/proc/self/fd/%d", fd); syscall(SYS_open, other_buffer,
         O_RDONLY | O_NONBLOCK); }))
CALL("openat", "",
     openat(AT_FDCWD, "/dev/null", O_RDONLY),
     syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY))
CALL("openat", "by the name of a descriptor",
     ({ sprintf(other_buffer, "/dev/fd/%d", fd); openat(AT_FDCWD, other_buffer, O_RDONLY |
         O_NONBLOCK); }),
     ({ sprintf(other_buffer, "/dev/fd/%d", fd); syscall(SYS_openat, AT_FDCWD, other_buffer,
         O_RDONLY | O_NONBLOCK); }))
CALL("creat", "", creat("/dev/null", 0600), syscall(SYS_creat, "/dev/null", 0600))
CALL("creat", "by the name of a descriptor",
     ({ sprintf(other_buffer, "/dev/fd/%d", ends[0]); creat(other_buffer, 0600); }),
     ({ sprintf(other_buffer, "/dev/fd/%d", ends[0]); syscall(SYS_creat, other_buffer,
         0600); }))
CALL("inotify_add_watch", "by the name of a descriptor",
     ({ name_of(ends[0]); inotify_add_watch(notifier(), other_buffer, IN_MODIFY); }),
     ({ name_of(ends[0]); syscall(SYS_inotify_add_watch, notifier(), other_buffer, IN_MODIFY);
         }))
CALL("inotify_add_watch", "another file",
     inotify_add_watch(notifier(), "/dev/null", IN_MODIFY),
     syscall(SYS_inotify_add_watch, notifier(), "/dev/null", IN_MODIFY))
CALL("fanotify_mark", "by the name of a descriptor",
     ({ name_of(ends[0]); fanotify_mark(notifier(), FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD,
         other_buffer); }),
     ({ name_of(ends[0]); syscall(SYS_fanotify_mark, notifier(), FAN_MARK_ADD, FAN_MODIFY,
         AT_FDCWD, other_buffer); }))
CALL("fanotify_mark", "by a descriptor",
     fanotify_mark(notifier(), FAN_MARK_ADD, FAN_MODIFY, fd, NULL),
     syscall(SYS_fanotify_mark, notifier(), FAN_MARK_ADD, FAN_MODIFY, fd, NULL))
CALL("fanotify_mark", "another file",
     fanotify_mark(notifier(), FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, "/dev/null"),
     syscall(SYS_fanotify_mark, notifier(), FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, "/dev/null"))

CALL("unshare", "descriptors", unshare(CLONE_FILES), syscall(SYS_unshare, CLONE_FILES))
CALL("unshare", "nothing", unshare(0), syscall(SYS_unshare, 0))
CALL("setns", "nothing", setns(-1, 0), syscall(SYS_setns, -1, 0))
CALL("execve", "that fails",
     execve("/nothing", nothing, nothing),
     syscall(SYS_execve, "/nothing", nothing, nothing))
CALL("execveat", "that fails",
     execveat(AT_FDCWD, "/nothing", nothing, nothing, 0),
     syscall(SYS_execveat, AT_FDCWD, "/nothing", nothing, nothing, 0))

/* Other names for calls of above. */
CALL("read", "__read", __read(fd, buffer, 8), syscall(SYS_read, fd, buffer, 8))
CALL("read", "__read_chk", __read_chk(fd, buffer, 8, 64), syscall(SYS_read, fd, buffer, 8))
CALL("write", "__write", __write(fd, buffer, 8), syscall(SYS_write, fd, buffer, 8))
CALL("pread", "pread64", pread64(fd, buffer, 8, 0), syscall(SYS_pread64, fd, buffer, 8, 0))
CALL("pread", "__pread64",
     __pread64(fd, buffer, 8, 0),
     syscall(SYS_pread64, fd, buffer, 8, 0))
CALL("pread", "__pread_chk",
     __pread_chk(fd, buffer, 8, 0, 64),
     syscall(SYS_pread64, fd, buffer, 8, 0))
CALL("pread", "__pread64_chk",
     __pread64_chk(fd, buffer, 8, 0, 64),
     syscall(SYS_pread64, fd, buffer, 8, 0))
CALL("pwrite", "pwrite64", pwrite64(fd, buffer, 8, 0), syscall(SYS_pwrite64, fd, buffer, 8, 0))
CALL("pwrite", "__pwrite64",
     __pwrite64(fd, buffer, 8, 0),
     syscall(SYS_pwrite64, fd, buffer, 8, 0))
CALL("preadv", "preadv64",
     preadv64(fd, vectors, 1, 0),
     syscall(SYS_preadv, fd, vectors, 1, 0, 0))
CALL("pwritev", "pwritev64",
     pwritev64(fd, vectors, 1, 0),
     syscall(SYS_pwritev, fd, vectors, 1, 0, 0))
CALL("preadv2", "preadv64v2",
     preadv64v2(fd, vectors, 1, -1, 0),
     syscall(SYS_preadv2, fd, vectors, 1, -1L, 0, 0))
CALL("pwritev2", "pwritev64v2",
     pwritev64v2(fd, vectors, 1, -1, 0),
     syscall(SYS_pwritev2, fd, vectors, 1, -1L, 0, 0))
CALL("sendfile", "sendfile64",
     sendfile64(fd, kernel_ends[0], NULL, 8),
     syscall(SYS_sendfile, fd, kernel_ends[0], 0, 8))
CALL("pipe", "__pipe",
     ({ int done = __pipe(numbers); note_made(PIPE_OUT, done, numbers[0], numbers[1]); }),
     ({ int done = (int)syscall(SYS_pipe, numbers); note_made(PIPE_OUT, done, numbers[0],
         numbers[1]); }))
CALL("sendto", "__send",
     __send(fd, buffer, 5, MSG_NOSIGNAL),
     syscall(SYS_sendto, fd, buffer, 5, MSG_NOSIGNAL, NULL, 0))
CALL("recvfrom", "__recv",
     __recv(fd, buffer, 5, 0),
     syscall(SYS_recvfrom, fd, buffer, 5, 0, NULL, NULL))
CALL("recvfrom", "__recv_chk",
     __recv_chk(fd, buffer, 5, 64, 0),
     syscall(SYS_recvfrom, fd, buffer, 5, 0, NULL, NULL))
CALL("recvfrom", "__recvfrom_chk",
     __recvfrom_chk(fd, buffer, 5, 64, 0, NULL, NULL),
     syscall(SYS_recvfrom, fd, buffer, 5, 0, NULL, NULL))
CALL("connect", "__connect",
     __connect(fd, (struct sockaddr *)other_buffer, 2),
     syscall(SYS_connect, fd, other_buffer, 2))
CALL("poll", "__poll", REVENTS(__poll(polled, 1, 0)), REVENTS(syscall(SYS_poll, polled, 1, 0)))
CALL("poll", "__poll_chk",
     REVENTS(__poll_chk(polled, 1, 0, sizeof polled)),
     REVENTS(syscall(SYS_poll, polled, 1, 0)))
CALL("ppoll", "__ppoll_chk",
     REVENTS(__ppoll_chk(polled, 1, &no_time, NULL, sizeof polled)),
     REVENTS(syscall(SYS_ppoll, polled, 1, &no_time, NULL, 8)))
CALL("select", "__select",
     FOUND(__select(fd + 1, &readable, NULL, NULL, &no_timeval)),
     FOUND(syscall(SYS_select, fd + 1, &readable, NULL, NULL, &no_timeval)))
CALL("close", "__close", __close(fd), syscall(SYS_close, fd))
CALL("dup2", "__dup2", __dup2(fd, 50), syscall(SYS_dup2, fd, 50))
CALL("fcntl", "fcntl64", fcntl64(fd, F_DUPFD, 60), syscall(SYS_fcntl, fd, F_DUPFD, 60))
CALL("fcntl", "__fcntl", __fcntl(fd, F_DUPFD, 60), syscall(SYS_fcntl, fd, F_DUPFD, 60))
#define BY_NAME(what_, call)                                                                  \
	CALL("open", what_, ({ name_of(ends[0]); call; }),                                    \
	     ({ name_of(ends[0]); syscall(SYS_open, other_buffer, O_RDONLY | O_NONBLOCK); }))
BY_NAME("open64", open64(other_buffer, O_RDONLY | O_NONBLOCK))
BY_NAME("__open", __open(other_buffer, O_RDONLY | O_NONBLOCK))
BY_NAME("__open64", __open64(other_buffer, O_RDONLY | O_NONBLOCK))
BY_NAME("__open_2", __open_2(other_buffer, O_RDONLY | O_NONBLOCK))
BY_NAME("__open64_2", __open64_2(other_buffer, O_RDONLY | O_NONBLOCK))
#define AT_NAME(what_, call)                                                                  \
	CALL("openat", what_, ({ name_of(ends[0]); call; }),                                  \
	     ({ name_of(ends[0]);                                                             \
		syscall(SYS_openat, AT_FDCWD, other_buffer, O_RDONLY | O_NONBLOCK); }))
AT_NAME("openat64", openat64(AT_FDCWD, other_buffer, O_RDONLY | O_NONBLOCK))
AT_NAME("__openat_2", __openat_2(AT_FDCWD, other_buffer, O_RDONLY | O_NONBLOCK))
AT_NAME("__openat64_2", __openat64_2(AT_FDCWD, other_buffer, O_RDONLY | O_NONBLOCK))
CALL("creat", "creat64",
     ({ name_of(ends[0]); creat64(other_buffer, 0600); }),
     ({ name_of(ends[0]); syscall(SYS_creat, other_buffer, 0600); }))

/* What is looked at because of system call instructions. */
#define CODE (PROT_READ | PROT_EXEC)
#define MAPPED(call) ((long)(call) > 0)
CALL("mmap", "code",
     MAPPED(mmap(NULL, 4096, CODE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
     MAPPED(syscall(SYS_mmap, NULL, 4096, CODE, MAP_PRIVATE | MAP_ANONYMOUS, -1L, 0)))
CALL("mmap", "mmap64",
     MAPPED(mmap64(NULL, 4096, CODE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
     MAPPED(syscall(SYS_mmap, NULL, 4096, CODE, MAP_PRIVATE | MAP_ANONYMOUS, -1L, 0)))
CALL("mmap", "of no descriptor",
     (long)mmap(NULL, 4096, CODE, MAP_PRIVATE, -1, 0),
     syscall(SYS_mmap, NULL, 4096, CODE, MAP_PRIVATE, -1L, 0))
CALL("mprotect", "", mprotect(page, 4096, CODE), syscall(SYS_mprotect, page, 4096, CODE))
CALL("mprotect", "bad memory", mprotect(BAD, 1, CODE), syscall(SYS_mprotect, 8, 1, CODE))
CALL("pkey_mprotect", "",
     pkey_mprotect(page, 4096, CODE, -1),
     syscall(SYS_pkey_mprotect, page, 4096, CODE, -1))
CALL("mremap", "",
     MAPPED(mremap(page, 4096, 8192, MREMAP_MAYMOVE)),
     MAPPED(syscall(SYS_mremap, page, 4096, 8192, MREMAP_MAYMOVE, 0)))
CALL("shmat", "no segment", (long)shmat(-1, NULL, SHM_EXEC), syscall(SYS_shmat, -1, 0, SHM_EXEC))
CALL("sigprocmask", "",
     sigprocmask(SIG_BLOCK, &mask, NULL),
     syscall(SYS_rt_sigprocmask, SIG_BLOCK, &mask, 0, 8))
CALL("prctl", "",
     prctl(PR_GET_DUMPABLE, 0, 0, 0, 0),
     syscall(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0))
CALL("sigsuspend", "bad memory", sigsuspend(BAD), syscall(SYS_rt_sigsuspend, 8, 8))
CALL("sigsuspend", "__sigsuspend", __sigsuspend(BAD), syscall(SYS_rt_sigsuspend, 8, 8))
