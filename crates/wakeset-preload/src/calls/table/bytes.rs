//! Calls that read and write, and those that make and set eventfds, timerfds, pipes and pairs.

calls! {
    // ---- Reads and writes ----

    "C-unwind" read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
        names [read] alias [__read] hand [__read_chk] raw [read = read_write::raw_read]
        => body [read_write::read]
        Answered "An impossible address migrates the object, and so does a blocking read of an \
            armed timerfd. A read of a userfaultfd waits its turn."
    }
    "C-unwind" write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
        names [write] alias [__write] raw [write = read_write::raw_write]
        => body [read_write::write]
        Answered "A write of more than 8 bytes to an eventfd migrates it, and so does an \
            impossible address. A write that is longer than 512 bytes (192 into a pair) \
            migrates a pipe or pair, and so does one into a pair that has to wait."
    }
    "C-unwind" readv(fd: c_int, vectors: *const iovec, n: c_int) -> ssize_t {
        names [readv] number [readv] => body [read_write::readv]
        Answered "One buffer is a read, and so are up to 16 of a pipe or pair. With several \
            another object migrates."
    }
    "C-unwind" writev(fd: c_int, vectors: *const iovec, n: c_int) -> ssize_t {
        names [writev] number [writev] => body [read_write::writev]
        Answered "One buffer is a write, and so are up to 16 of a pipe or pair. With several \
            another object migrates."
    }
    "C-unwind" pread(fd, buffer, len, offset, room) -> usize {
        names [pread pread64 __pread_chk __pread64_chk] alias [__pread64] number [pread64]
        => migrates [fd]
        MigratesNamed "Positioned reads are not modelled."
    }
    "C-unwind" pwrite(fd, buffer, len, offset) -> usize {
        names [pwrite pwrite64] alias [__pwrite64] number [pwrite64] => migrates [fd]
        MigratesNamed "Positioned writes are not modelled."
    }
    "C-unwind" preadv(fd, vectors, n, offset, high) -> usize {
        names [preadv preadv64] number [preadv] => migrates [fd]
        MigratesNamed "Positioned reads are not modelled."
    }
    "C-unwind" preadv2(fd, vectors, n, offset, flags, last) -> usize {
        names [preadv2 preadv64v2] number [preadv2] => migrates [fd]
        MigratesNamed "Positioned reads are not modelled."
    }
    "C-unwind" pwritev(fd, vectors, n, offset, high) -> usize {
        names [pwritev pwritev64] number [pwritev] => migrates [fd]
        MigratesNamed "Positioned writes are not modelled."
    }
    "C-unwind" pwritev2(fd, vectors, n, offset, flags, last) -> usize {
        names [pwritev2 pwritev64v2] number [pwritev2] => migrates [fd]
        MigratesNamed "Positioned writes are not modelled."
    }
    "C-unwind" splice(from, from_offset, to, to_offset, len, flags) -> usize {
        names [splice] number [splice] => migrates [from to]
        MigratesNamed "Both descriptors."
    }
    "C-unwind" tee(from, to, len, flags) -> usize {
        names [tee] number [tee] => migrates [from to]
        MigratesNamed "Both descriptors."
    }
    "C-unwind" vmsplice(fd, vectors, n, flags) -> usize {
        names [vmsplice] number [vmsplice] => migrates [fd]
        MigratesNamed "The kernel moves pages, which an in-process pipe does not have."
    }
    "C-unwind" sendfile(to, from, offset, len) -> usize {
        names [sendfile sendfile64] number [sendfile] => migrates [to from]
        MigratesNamed "Both descriptors."
    }
    "C-unwind" copy_file_range(from, from_offset, to, to_offset, len, flags) -> usize {
        names [copy_file_range] number [copy_file_range] => migrates [from to]
        MigratesNamed "Both descriptors."
    }

    // ---- eventfds and timerfds ----

    "C" eventfd(initial: c_uint, flags: c_int) -> c_int {
        names [eventfd] number [eventfd2] raw [eventfd = create::raw_eventfd]
        => body [create::eventfd]
        Answered "Makes an in-process eventfd."
    }
    "C-unwind" eventfd_read(fd: c_int, value: *mut u64) -> c_int {
        names [eventfd_read] => body [read_write::eventfd_read]
        Answered "As `read` of 8 bytes. libc's own function does not go through `read`."
        apart "it is a function of libc alone"
    }
    "C-unwind" eventfd_write(fd: c_int, value: u64) -> c_int {
        names [eventfd_write] => body [read_write::eventfd_write]
        Answered "As `write` of 8 bytes. libc's own function does not go through `write`."
        apart "it is a function of libc alone"
    }
    "C" timerfd_create(clock: c_int, flags: c_int) -> c_int {
        names [timerfd_create] number [timerfd_create] => body [create::timerfd_create]
        Answered "Makes an in-process timerfd of `CLOCK_MONOTONIC` or `CLOCK_REALTIME`. Other \
            clocks are the kernel's."
    }
    "C" timerfd_settime(
        fd: c_int, flags: c_int, new: *const itimerspec, old: *mut itimerspec
    ) -> c_int {
        names [timerfd_settime] number [timerfd_settime] => body [create::timerfd_settime]
        Answered "What depends on a clock that can be set migrates the timerfd."
    }
    "C" timerfd_gettime(fd: c_int, current: *mut itimerspec) -> c_int {
        names [timerfd_gettime] number [timerfd_gettime] => body [create::timerfd_gettime]
        Answered ""
    }

    // ---- Pipes and sockets ----

    "C" pipe(fds: *mut c_int) -> c_int {
        names [pipe] alias [__pipe] number [pipe] => body [create::pipe]
        Answered "Makes an in-process pipe."
    }
    "C" pipe2(fds: *mut c_int, flags: c_int) -> c_int {
        names [pipe2] number [pipe2] => body [create::pipe2]
        Answered "Makes an in-process pipe; with `O_DIRECT` it is the kernel's."
    }
    "C" socketpair(domain: c_int, kind: c_int, protocol: c_int, fds: *mut c_int) -> c_int {
        names [socketpair] number [socketpair] => body [create::socketpair]
        Answered "Makes an in-process pair for `AF_UNIX` and `SOCK_STREAM`. Other pairs are the \
            kernel's."
    }
    "C-unwind" send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        names [send] alias [__send] => body [socket::send]
        Answered "In-process pairs. Flags other than `MSG_DONTWAIT` and `MSG_NOSIGNAL` migrate \
            both ends." apart "the kernel has sendto(2) for it"
    }
    "C-unwind" recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
        names [recv] alias [__recv] hand [__recv_chk] => body [socket::recv]
        Answered "In-process pairs. Flags other than `MSG_DONTWAIT` migrate both ends."
        apart "the kernel has recvfrom(2) for it"
    }
    "C-unwind" sendto(
        fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, address: *const sockaddr,
        address_len: socklen_t
    ) -> ssize_t {
        names [sendto] number [sendto] => body [socket::sendto]
        Answered "Without an address it is `send`. With one the pair migrates."
    }
    "C-unwind" recvfrom(
        fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr,
        address_len: *mut socklen_t
    ) -> ssize_t {
        names [recvfrom] hand [__recvfrom_chk] number [recvfrom] => body [socket::recvfrom]
        Answered "Without memory for an address it is `recv`. With it the pair migrates."
    }
    "C-unwind" sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        names [sendmsg] number [sendmsg] => body [socket::sendmsg]
        Answered "In-process pairs, without an address or control data, from up to 16 buffers. \
            What `SCM_RIGHTS` passes on migrates."
    }
    "C-unwind" sendmmsg(fd: c_int, messages: *mut mmsghdr, n: c_uint, flags: c_int) -> c_int {
        names [sendmmsg] number [sendmmsg]
        => first [socket::before_sendmmsg(messages, n), socket::migrate_pair(fd)]
        MigratesNamed "What `SCM_RIGHTS` passes on, and the pipe or pair that the call names."
    }
    "C-unwind" recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        names [recvmsg] number [recvmsg] => body [socket::recvmsg]
        Answered "In-process pairs, without memory for an address, into up to 16 buffers. What \
            `SCM_RIGHTS` brings has new numbers."
    }
    "C-unwind" recvmmsg(
        fd: c_int, messages: *mut mmsghdr, n: c_uint, flags: c_int, limit: *mut timespec
    ) -> c_int {
        names [recvmmsg] number [recvmmsg] => body [socket::recvmmsg]
        MigratesNamed "A pipe or pair. What `SCM_RIGHTS` brings has new numbers."
    }
    "C" shutdown(fd: c_int, how: c_int) -> c_int {
        names [shutdown] number [shutdown] => body [socket::shutdown]
        Answered "In-process pairs, if both ends are open."
    }
    "C" setsockopt(
        fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t
    ) -> c_int {
        names [setsockopt] number [setsockopt] => first [socket::migrate_pair(fd)]
        MigratesNamed "A pipe or pair."
    }
    "C" getsockopt(
        fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t
    ) -> c_int {
        names [getsockopt] number [getsockopt] => first [socket::before_getsockopt(fd, name)]
        MigratesNamed "A pipe or pair, for `SO_MEMINFO`, whose answer depends on what is in the \
            pair."
    }
    "C" sockatmark(fd: c_int) -> c_int {
        names [sockatmark] => first [socket::migrate_pair(fd)]
        MigratesNamed "A pipe or pair, as `ioctl` with `SIOCATMARK`. libc's own function does not \
            go through `ioctl`."
        apart "it is a function of libc alone"
    }
    "C-unwind" accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        names [accept] number [accept] => body [socket::accept]
        WaitsInTurn "A thread that blocks beside others that wait in turn sleeps as they do."
    }
    "C-unwind" accept4(
        fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int
    ) -> c_int {
        names [accept4] number [accept4] => body [socket::accept4]
        WaitsInTurn "As `accept`."
    }
    "C" listen(fd: c_int, backlog: c_int) -> c_int {
        names [listen] number [listen] => body [socket::listen]
        Noted "The descriptor may be a listener from now on."
    }
    "C" bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        names [bind] number [bind] => body [socket::bind]
        Noted "The descriptor of a stream socket may be a listener soon."
    }
    "C-unwind" connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        names [connect] alias [__connect] number [connect] => first [socket::before_connect(fd)]
        Noted "The descriptor is no listener any more."
    }
}
