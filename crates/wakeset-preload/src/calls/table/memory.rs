//! Calls that are looked at because of system calls by instruction: where code may come from, where
//! threads begin, and which signals are blocked.

calls! {
    // ---- Code ----

    "C" mmap(
        address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int,
        offset: c_long
    ) -> usize {
        names [mmap mmap64] number [mmap] => body [instruction::mmap]
        Noted "Memory that is executable is looked at for system call instructions."
    }
    "C" mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int {
        names [mprotect] number [mprotect] => body [instruction::mprotect]
        Noted "As `mmap`."
    }
    "C" pkey_mprotect(
        address: *mut c_void, len: size_t, protection: c_int, key: c_int
    ) -> c_int {
        names [pkey_mprotect] number [pkey_mprotect] => body [instruction::pkey_mprotect]
        Noted "As `mmap`."
    }
    "C" mremap(address, len, new_len, flags, new_address) -> usize {
        names [mremap] number [mremap] => first [instruction::before_mremap()]
        Noted "Code may go where its system calls are not seen."
    }
    "C" shmat(segment: c_int, address: *const c_void, flags: c_int) -> usize {
        names [shmat] number [shmat] => body [instruction::shmat]
        Noted "With `SHM_EXEC`, as `mmap`."
    }

    // ---- Threads ----

    "C" pthread_create(
        thread, attributes, function: *mut c_void, argument: *mut c_void
    ) -> c_int {
        names [pthread_create] => body [instruction::pthread_create]
        Noted "Where system calls by instruction are caught, each thread begins with that."
        apart "it is a function of libc alone"
    }
    "C" thrd_create(thread, function: *mut c_void, argument: *mut c_void) -> c_int {
        names [thrd_create] => body [instruction::thrd_create]
        Noted "As `pthread_create`." apart "it is a function of libc alone"
    }
    "C" timer_create(clock, event: *const c_void, timer) -> c_int {
        names [timer_create] => first [instruction::before_notified(event)]
        Noted "With `SIGEV_THREAD`, where system calls by instruction are caught, every object \
            migrates for good." apart "libc's timer is a structure of its own"
    }
    "C" mq_notify(queue, event: *const c_void) -> c_int {
        names [mq_notify] => first [instruction::before_notified(event)]
        Noted "As `timer_create`." apart "libc makes a socket for `SIGEV_THREAD`"
    }
    "C" getaddrinfo_a(mode, list, n, event: *const c_void) -> c_int {
        names [getaddrinfo_a] => first [instruction::before_notified(event)]
        Noted "As `timer_create`." apart "it is a function of libc alone"
    }

    // ---- Masks ----

    "C" sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        names [sigprocmask] number [rt_sigprocmask] => body [signals::change_mask]
        Noted "Where system calls by instruction are caught, SIGSYS cannot be blocked."
    }
    "C" pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        names [pthread_sigmask] => body [signals::change_mask]
        Noted "As `sigprocmask`." apart "it is a function of libc alone"
    }
    "C-unwind" sigsuspend(mask: *const sigset_t) -> c_int {
        names [sigsuspend] alias [__sigsuspend] number [rt_sigsuspend] => body [signals::suspend]
        Noted "As `sigprocmask`."
    }
}
