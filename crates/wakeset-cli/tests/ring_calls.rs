//! Events of a busy set are taken from its ring without a system call.
//!
//! Counted by the kernel: a child process forbids itself every system call but its end
//! (seccomp(2)), and dies at the first other one.

use std::hint::black_box;
use std::io;

use wakeset::{Counter, CounterFlags, Description, Engine, Event, EventPoll, Events};

const COUNTERS: usize = 1000;

/// From here on the process ends with SIGSYS at any system call but exit_group(2).
fn forbid_calls() -> io::Result<()> {
    // seccomp_data: the number of the call comes first.
    let program = [
        libc::sock_filter {
            code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
            jt: 0,
            jf: 0,
            k: 0,
        },
        libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 1,
            jf: 0,
            k: libc::SYS_exit_group as u32,
        },
        libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_KILL_PROCESS,
        },
        libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ALLOW,
        },
    ];
    let filter =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: a program of that length, which the kernel copies.
    let forbidden = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter, 0, 0)
                == 0
    };
    if forbidden { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How a child ends that runs `before`, and then `work` without system calls: what `work` returns
/// as its exit status, or the signal.
fn run_without_calls(before: impl FnOnce(), work: impl FnOnce() -> i32) -> Result<i32, i32> {
    // SAFETY: the child calls nothing that other threads may hold a lock of, and has all memory
    // that it needs.
    match unsafe { libc::fork() } {
        -1 => panic!("{}", io::Error::last_os_error()),
        0 => {
            before();
            let status = if forbid_calls().is_ok() { work() } else { 99 };
            // SAFETY: ends the process.
            unsafe { libc::_exit(status) }
        }
        child => {
            let mut status = 0;
            // SAFETY: our child, and room for its status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            if libc::WIFSIGNALED(status) {
                Err(libc::WTERMSIG(status))
            } else {
                Ok(libc::WEXITSTATUS(status))
            }
        }
    }
}

#[test]
fn the_filter_ends_a_process_that_makes_a_call() {
    let ended = run_without_calls(
        || {},
        || {
            // SAFETY: asks for a number.
            black_box(unsafe { libc::getppid() });
            0
        },
    );
    assert_eq!(ended, Err(libc::SIGSYS));
    assert_eq!(run_without_calls(|| {}, || 7), Ok(7));
}

#[test]
fn a_busy_set_is_harvested_without_a_system_call() {
    for flags in [Events::empty(), Events::ET, Events::ONESHOT] {
        let engine = Engine::new();
        let set = EventPoll::new(&engine).expect("memory for a set");
        let ring = set.make_ring(64).expect("memory for a ring");
        let counters: Vec<_> = (0..COUNTERS)
            .map(|_| Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK)))
            .collect();
        for (i, counter) in counters.iter().enumerate() {
            set.add(i as i32, counter, Event::new(Events::IN | flags, i as u64))
                .expect("memory for a watch");
        }
        let mut events = [Event::default(); 32];
        // With its first lock a thread asks the kernel for its thread id.
        let begin = || assert!(set.make_ring(64).is_ok());
        let ended = run_without_calls(begin, || {
            for round in 0..100 {
                let mut read = 0;
                for (i, counter) in counters.iter().enumerate() {
                    let armed = flags != Events::ONESHOT
                        || round == 0
                        || set
                            .modify(i as i32, counter, Event::new(Events::IN | flags, i as u64))
                            .is_ok();
                    if counter.write(1).is_err() || !armed {
                        return 1;
                    }
                }
                loop {
                    let n = ring.take(&mut events);
                    if n == 0 {
                        break;
                    }
                    let values = events[..n]
                        .iter()
                        .map(|event| counters[event.data as usize].read().unwrap_or(0));
                    read += values.sum::<u64>();
                }
                if read != COUNTERS as u64 {
                    return 2;
                }
            }
            0
        });
        assert_eq!(ended, Ok(0), "{flags:?}");
    }
}
