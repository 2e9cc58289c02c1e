//! Calls that wait.

calls! {
    // ---- epoll ----

    "C" epoll_create(size: c_int) -> c_int {
        names [epoll_create] number [epoll_create] => body [epoll::epoll_create]
        Answered "Makes an in-process set."
    }
    "C" epoll_create1(flags: c_int) -> c_int {
        names [epoll_create1] number [epoll_create1] => body [epoll::epoll_create1]
        Answered "Makes an in-process set."
    }
    "C" epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        names [epoll_ctl] number [epoll_ctl] => body [epoll::epoll_ctl]
        Answered "Watches of kernel descriptors are made in the kernel half of the set."
    }
    "C-unwind" epoll_wait(
        epfd: c_int, events: *mut epoll_event, capacity: c_int, timeout: c_int
    ) -> c_int {
        names [epoll_wait] number [epoll_wait] => body [epoll::epoll_wait]
        Answered "A wait for a listening socket takes its turn."
    }
    "C-unwind" epoll_pwait(
        epfd: c_int, events: *mut epoll_event, capacity: c_int, timeout: c_int,
        mask: *const sigset_t
    ) -> c_int {
        names [epoll_pwait] raw [epoll_pwait = epoll::raw_epoll_pwait] => body [epoll::epoll_pwait]
        Answered "As `epoll_wait`. With a signal mask the wait sleeps in the kernel."
    }
    "C-unwind" epoll_pwait2(
        epfd: c_int, events: *mut epoll_event, capacity: c_int, timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int {
        names [epoll_pwait2] raw [epoll_pwait2 = epoll::raw_epoll_pwait2]
        => body [epoll::epoll_pwait2]
        Answered "As `epoll_pwait`."
    }

    // ---- poll and select ----

    "C-unwind" poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
        names [poll] alias [__poll] hand [__poll_chk] number [poll] => body [poll::poll]
        WaitsInTurn "Answered in process if it names an object, also beside descriptors of the \
            kernel's. A wait for listening sockets or a userfaultfd takes its turn, and objects \
            that it names migrate."
    }
    "C-unwind" ppoll(
        fds: *mut pollfd, n: nfds_t, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int {
        names [ppoll] hand [__ppoll_chk] raw [ppoll = poll::raw_ppoll] => body [poll::ppoll]
        WaitsInTurn "As `poll`."
    }
    "C-unwind" select(
        n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval
    ) -> c_int {
        names [select] alias [__select] number [select] => body [select::select]
        WaitsInTurn "Answered in process if it names an object, also beside descriptors of the \
            kernel's. A wait for listening sockets takes its turn, and objects that it names \
            migrate."
    }
    "C-unwind" pselect(
        n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t
    ) -> c_int {
        names [pselect] raw [pselect6 = select::raw_pselect6] => body [select::pselect]
        WaitsInTurn "As `select`."
    }
}
