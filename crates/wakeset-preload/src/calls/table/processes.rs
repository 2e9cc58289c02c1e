//! Calls about processes, rings and signals, and `syscall()` itself.

calls! {
    // ---- Processes ----

    "C" fork() -> c_int {
        hand [fork _Fork __register_atfork] raw [fork = fork::raw_fork] => by_hand []
        MigratesNamed "`fork`: what the child names, or leaves \
            to the program that it executes, migrates at that moment. In a process of one thread \
            fork(2) returns when the child has ended or executed a program, or after 10 ms, and \
            then everything that the child has migrates. Every object migrates before \
            any other fork, also that of \
            `daemon` and `forkpty`, by the handlers that are registered before main. \
            `__register_atfork` is hooked so that handlers of the program that prepare for a fork \
            are done before ours."
        apart "fork(3) runs the handlers of pthread_atfork(3) and the system call does not"
    }
    "C" vfork() -> c_int {
        hand [vfork __vfork] raw [vfork = fork::raw_vfork] => by_hand []
        MigratesNamed "What the child names, or leaves to the program that it executes, migrates \
            at that moment. The child works in the same memory, but its numbers are its own."
        apart "a child of the system call returns into the caller's stack frame"
    }
    "C" clone() -> c_int {
        hand [clone __clone] raw [clone = fork::raw_clone, clone3 = fork::raw_clone3] => by_hand []
        MigratesAll "Without `CLONE_VM`. With `CLONE_VM` and `CLONE_VFORK`: as `vfork`. With one \
            of `CLONE_VM` and `CLONE_FILES` and without the other, two descriptor tables share one \
            memory, or two memories one table: every object migrates for good. A thread changes \
            nothing."
        apart "clone(3) takes a function and a stack, and the system call does not"
    }
    "C" unshare(flags: c_int) -> c_int {
        names [unshare] number [unshare] => first [process::before_unshare(flags)]
        ForGood "With `CLONE_FILES`."
    }
    "C" setns(fd, kind) -> c_int {
        names [setns] number [setns] => first [process::before_setns()]
        Noted "What forked children have migrates, and the thread that does this for them ends: \
            another thread may be in the way of the call, or be left out of it."
    }
    "C" setuid(first, second, third) -> c_int {
        names [
            setuid setgid seteuid setegid setreuid setregid setresuid setresgid setgroups initgroups
            setfsuid setfsgid capset
        ]
        number [
            setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset
        ]
        => first [process::before_change()]
        Noted "As `setns`." apart "libc's functions speak for all threads"
    }
    "C" prctl(option: c_int, mode, program, third, fourth) -> c_int {
        names [prctl] number [prctl] => first [sandbox::before_prctl(option, mode, program)]
        ForGood "With `PR_SET_SECCOMP`, if the filter does not grant the calls that Wakeset makes \
            of its own accord ([the table](system-calls.md)). A program that has its calls \
            filtered, or reported to itself, makes no calls by instruction that could be caught: \
            if it makes some, every object migrates for good as well."
    }
    "C" seccomp(operation: c_uint, flags, program) -> c_int {
        number [seccomp] => first [sandbox::before_seccomp(operation, program)]
        ForGood "As `prctl`." apart "libc has no function for it"
    }
    "C-unwind" pthread_cancel(thread) -> c_int {
        names [pthread_cancel] => first [process::before_cancel()]
        ForGood "libc's own blocking calls are exact about cancellation."
        apart "it is a function of libc alone"
    }
    "C" execve(path, arguments, environment) -> c_int {
        names [execve] number [execve] => first [process::before_exec()]
        MigratesInherited ""
    }
    "C" execveat(directory, path, arguments, environment, flags) -> c_int {
        names [execveat] number [execveat] => first [process::before_exec()]
        MigratesInherited ""
    }
    "C" exec(path, arguments, environment) -> c_int {
        names [execv execvp execvpe fexecve] hand [execl execlp execle]
        => first [process::before_exec()]
        MigratesInherited "libc's `execve` is not called through its name."
        apart "they are functions of libc alone"
    }
    "C-unwind" _exit(status) -> c_int {
        names [_Exit quick_exit] hand [_exit] number [exit_group]
        => first [process::before_end()]
        Noted "A connection for which the process was woken, and that it has not accepted, wakes \
            another worker ([the herd](herd.md)). `exit` needs no hook: it runs functions of \
            libraries." apart "neither returns"
    }
    "C" exit(status) -> c_int {
        number [exit] => first [process::before_thread_end()]
        Noted "As `_exit`, for one thread. The end of a thread of libc's needs no hook."
        apart "libc has no function for it"
    }
    "C" posix_spawn(pid, path, actions, attributes, arguments, environment) -> c_int {
        names [posix_spawn posix_spawnp] => first [process::before_spawn(actions)]
        MigratesInherited "Also what `posix_spawn_file_actions_adddup2` has ever named, and every \
            pipe once `posix_spawn_file_actions_addopen` has named a descriptor by its path."
        apart "it is a function of libc alone"
    }
    "C" posix_spawn_file_actions_adddup2(actions, fd: c_int, new) -> c_int {
        names [posix_spawn_file_actions_adddup2] => first [process::note_spawn_number(fd)]
        Noted "For `posix_spawn`." apart "it is a function of libc alone"
    }
    "C" posix_spawn_file_actions_addopen(actions, fd, path, flags, mode) -> c_int {
        names [posix_spawn_file_actions_addopen] => first [process::note_spawn_path(path)]
        Noted "For `posix_spawn`." apart "it is a function of libc alone"
    }
    "C-unwind" system(command, mode) -> usize {
        names [system popen _IO_popen] => first [process::before_spawn(0)]
        MigratesInherited "" apart "they are functions of libc alone"
    }

    // ---- Rings and asynchronous I/O ----

    "C" io_uring_setup(entries, parameters) -> c_int {
        number [io_uring_setup] => body [uring::io_uring_setup]
        Noted "What is submitted to the io_uring is looked at from here on. With \
            `IORING_SETUP_SQPOLL`, where a thread of the kernel's takes entries unseen, or \
            `IORING_SETUP_REGISTERED_FD_ONLY`, every object migrates for good."
        apart "libc has no function for it"
    }
    "C-unwind" io_uring_enter(
        fd: c_int, count: c_uint, wanted: c_uint, flags: c_uint, argument, size
    ) -> c_int {
        number [io_uring_enter] => body [uring::io_uring_enter]
        MigratesNamed "What the submitted entries name. An epoll_ctl(2) on an in-process set is \
            answered ([io_urings](design/program-rings.md)). An entry that is not known, or an \
            io_uring whose setup was not seen: every object migrates for good."
        apart "libc has no function for it"
    }
    "C" io_uring_register(
        fd: c_int, operation: c_uint, argument: *mut c_void, count: c_uint
    ) -> c_int {
        number [io_uring_register] => body [uring::io_uring_register]
        MigratesNamed "Files and eventfds that are registered. An operation that is not known, or \
            that gives the io_uring other memory: every object migrates for good."
        apart "libc has no function for it"
    }
    "C" io_uring_queue_init(entries, ring, parameters, memory, len) -> c_int {
        names [
            io_uring_setup io_uring_queue_init io_uring_queue_init_params io_uring_queue_init_mem
        ] => first [uring::before_library_setup()]
        Noted "liburing makes its system calls by instruction: they are caught from here on, or, \
            where they cannot be, every object migrates for good."
        apart "they are functions of liburing alone"
    }
    "C" io_submit(context, count, requests) -> c_int {
        names [io_submit] number [io_submit] => first [uring::before_io_submit(count, requests)]
        MigratesNamed "Of libaio, too, which exports this name."
        apart "libc has no function for it, and libaio's returns the error instead of setting errno"
    }
    "C" aio(first, second, third, fourth) -> c_int {
        names [aio_read aio_read64 aio_write aio_write64 lio_listio lio_listio64]
        => leaves [MigratedAio]
        ForGood "libc's helper threads read and write by calls that cannot be replaced."
        apart "they are functions of libc alone"
    }

    // ---- Signals ----

    "C" sigaction() -> c_int {
        hand [sigaction __sigaction] => by_hand []
        Noted "Handlers of the program are kept out of critical sections, and SIGSEGV and SIGBUS \
            are always caught: a bad pointer that a hooked call is given becomes EFAULT."
        apart "rt_sigaction(2) takes the kernel's own structure and a restorer; a handler that it \
            sets runs without ours before it, and is looked for when a sleep is interrupted"
    }
    "C" signal() -> usize {
        hand [signal bsd_signal ssignal sysv_signal __sysv_signal sigset siginterrupt] => by_hand []
        Noted "As `sigaction`." apart "they are functions of libc alone"
    }

    // ---- The dynamic loader ----

    "C" dlsym() -> usize {
        hand [dlsym dlvsym] => by_hand []
        Noted "Where libc's function would come back for one of these calls, ours does. What \
            `dlopen` has loaded is about to be used: it is looked at for system call instructions."
        apart "they are functions of libc alone"
    }
    "C" dlopen() -> usize {
        hand [dlopen] => by_hand []
        Noted "What is opened with `RTLD_DEEPBIND` is bound to our functions, not to libc's. What \
            it loads is looked at for system call instructions."
        apart "it is a function of libc alone"
    }
    "C" dlmopen() -> usize {
        hand [dlmopen] => by_hand []
        ForGood "Into another name space than the program's: a second libc makes its calls there. \
            Otherwise as `dlopen`."
        apart "it is a function of libc alone"
    }

    // ---- By number ----

    "C-unwind" syscall() -> usize {
        hand [syscall] => by_hand []
        Noted "Decoded by the number of the call, which then goes the same way as through its name."
        apart "it is the other road itself"
    }
}
