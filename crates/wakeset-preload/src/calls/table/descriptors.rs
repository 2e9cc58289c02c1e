//! Calls about descriptors, and about files by name.

calls! {
    // ---- Descriptors ----

    "C-unwind" close(fd: c_int) -> c_int {
        names [close] alias [__close] number [close] => body [descriptor::close]
        Answered "Ends the object; the kernel closes the number. The other end of a pipe or pair \
            stays; if the end has not read all that was sent to it, it migrates."
    }
    "C" close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        names [close_range] number [close_range] => body [descriptor::close_range]
        Answered "As `close` for each descriptor. With `CLOSE_RANGE_UNSHARE` every object \
            migrates, for good."
    }
    "C" closefrom(first: c_int) -> () {
        names [closefrom] => body [descriptor::closefrom]
        Answered "As `close` for each descriptor." apart "the kernel has close_range(2) for it"
    }
    "C" dup(fd: c_int) -> c_int {
        names [dup] number [dup] => body [descriptor::dup]
        Answered "A further number of the object, which stays in process. Pipes and pairs \
            migrate, and so does a set whose number another loop watches."
    }
    "C" dup2(old: c_int, new: c_int) -> c_int {
        names [dup2] alias [__dup2] number [dup2] => body [descriptor::dup2]
        Answered "As `dup`. The object of the number that the call closes migrates, unless it \
            goes on under another."
    }
    "C" dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        names [dup3] number [dup3] => body [descriptor::dup3]
        Answered "As `dup2`."
    }
    "C-unwind" fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
        names [fcntl fcntl64] alias [__fcntl] number [fcntl] => body [descriptor::fcntl]
        Noted "`F_SETFL`: `O_NONBLOCK` is noted. `F_DUPFD` and `F_DUPFD_CLOEXEC` are \
            answered as `dup` is. Pipes and pairs migrate for `F_SETFL` with `O_DIRECT` or \
            `O_ASYNC`, for `F_SETPIPE_SZ`, `F_SETOWN` and all else that is neither a question nor \
            about the descriptor."
    }
    "C" ioctl(fd: c_int, request: c_ulong, argument: c_long) -> c_int {
        names [ioctl] number [ioctl] => body [descriptor::ioctl]
        Noted "`FIONBIO` is noted. `FIONREAD` of an in-process pipe or pair is answered; other \
            requests about its bytes migrate it, and so does `TFD_IOC_SET_TICKS` a timerfd. A \
            request of a class that may name an eventfd inside its argument (KVM, VFIO, vhost…) \
            migrates every object; those of terminals, sockets, file systems, block devices, \
            cloning, userfaultfd, perf events, name spaces and random numbers do not."
    }
    "C-unwind" pidfd_getfd(process, fd, flags) -> usize {
        names [pidfd_getfd] number [pidfd_getfd] => body [descriptor::pidfd_getfd]
        MigratesNamed "The number that is copied may be one of this process."
    }
    "C" kcmp(first, second, kind, index_or_fd, argument) -> usize {
        number [kcmp] => first [descriptor::before_kcmp(kind, argument)]
        MigratesNamed "The set that `KCMP_EPOLL_TFD` asks about: the kernel knows only its own \
            watches." apart "libc has no function for it"
    }
    "C" userfaultfd(flags: c_int) -> c_int {
        number [userfaultfd] => body [descriptor::userfaultfd]
        Noted "The descriptor is a userfaultfd from now on." apart "libc has no function for it"
    }

    // ---- New numbers ----

    "C" socket(domain, kind, protocol) -> c_int {
        names [socket] number [socket] => makes []
        Noted "If an object is still known under the number, its close was not seen: it ends."
    }
    "C" memfd_create(name, flags) -> c_int {
        names [memfd_create] number [memfd_create] => makes []
        Noted "As `socket`."
    }
    "C" inotify_init() -> c_int {
        names [inotify_init] number [inotify_init] => makes []
        Noted "As `socket`."
    }
    "C" inotify_init1(flags) -> c_int {
        names [inotify_init1] number [inotify_init1] => makes []
        Noted "As `socket`."
    }
    "C" pidfd_open(process, flags) -> c_int {
        names [pidfd_open] number [pidfd_open] => makes []
        Noted "As `socket`."
    }
    "C" signalfd(fd, mask, flags) -> c_int {
        names [signalfd] => makes_or_keeps [fd]
        Noted "As `socket`, if it makes a new one."
        apart "the system call takes the size of the mask besides"
    }
    "C" signalfd4(fd, mask, size, flags) -> c_int {
        number [signalfd4] => makes_or_keeps [fd]
        Noted "As `socket`, if it makes a new one." apart "libc has no function for it"
    }
    "C-unwind" mkstemp(template, first, second) -> c_int {
        names [
            mkstemp mkstemp64 mkostemp mkostemp64 mkstemps mkstemps64 mkostemps mkostemps64
            shm_open posix_openpt
        ]
        => makes []
        Noted "As `socket`." apart "they are functions of libc alone"
    }
    "C-unwind" tmpfile() -> usize {
        names [tmpfile tmpfile64] => makes_stream []
        Noted "As `socket`." apart "they are functions of libc alone"
    }
    "C-unwind" opendir(path) -> usize {
        names [opendir] => makes_directory []
        Noted "As `socket`." apart "it is a function of libc alone"
    }

    // ---- Files by name, and streams ----

    "C-unwind" open(path, flags, mode) -> usize {
        names [open open64 __open __open64 __open_2 __open64_2] number [open] => opens [path]
        MigratesPipes "A name in `/dev/fd`, `/dev/std…` or `/proc/…/fd` is a second way to one."
    }
    "C-unwind" openat(directory, path, flags, mode) -> usize {
        names [openat openat64 __openat_2 __openat64_2] number [openat] => opens [path]
        MigratesPipes "As `open`."
    }
    "C-unwind" openat2(directory, path, how, size) -> usize {
        number [openat2] => opens [path]
        MigratesPipes "As `open`." apart "libc has no function for it"
    }
    "C-unwind" creat(path, mode) -> usize {
        names [creat creat64] number [creat] => opens [path]
        MigratesPipes "As `open`."
    }
    "C" inotify_add_watch(notifier, path, events) -> usize {
        names [inotify_add_watch] number [inotify_add_watch] => opens [path]
        MigratesPipes "As `open`. The kernel reports only reads and writes that it makes itself."
    }
    "C" fanotify_mark(notifier, flags, events, directory: c_int, path) -> usize {
        names [fanotify_mark] number [fanotify_mark]
        => first [path::before_mark(directory, path)]
        MigratesPipes "As `inotify_add_watch`. Without a path, the pipe or pair of the descriptor."
    }
    "C-unwind" fopen(path, mode, stream) -> usize {
        names [fopen fopen64 _IO_fopen freopen freopen64] => opens_stream [path]
        MigratesPipes "As `open`." apart "it is a function of libc alone"
    }
    "C-unwind" fdopen(fd, mode) -> usize {
        names [fdopen _IO_fdopen] => migrates [fd]
        MigratesNamed "The stream reads and writes by calls that cannot be replaced."
        apart "it is a function of libc alone"
    }
    "C-unwind" dprintf() -> usize {
        hand [dprintf __dprintf_chk] => by_hand []
        MigratesNamed "libc writes by a call that cannot be replaced."
        apart "it is a function of libc alone"
    }
    "C-unwind" vdprintf(fd, format, arguments, more) -> usize {
        names [vdprintf __vdprintf_chk] => migrates [fd]
        MigratesNamed "As `dprintf`." apart "it is a function of libc alone"
    }
    "C-unwind" backtrace_symbols_fd(addresses, n, fd) -> usize {
        names [backtrace_symbols_fd] => migrates [fd]
        MigratesNamed "As `dprintf`." apart "it is a function of libc alone"
    }
}
