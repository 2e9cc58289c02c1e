//! Batches of epoll_ctl(2) have the results of a loop on the kernel, with io_uring and without it,
//! and everything is in force when the call returns.

mod forbid;

#[path = "batch/against_the_loop.rs"]
mod against_the_loop;

use forbid::without;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, c_int, epoll_event};
use std::sync::atomic::{AtomicBool, Ordering};
use wakeset_fd::batch::{SINGLE_CALLS, STOP_AT_ERROR};
use wakeset_fd::{Command, Errno, epoll_ctl_batch};

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const ET: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

/// Commands on kernel descriptors: so many that an io_uring is used where there is one.
const MANY: usize = 1100;

/// Keeps apart tests that need many descriptors, so that they neither run out of numbers nor take
/// each other's.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    let limit = libc::rlimit { rlim_cur: 8192, rlim_max: 8192 };
    // SAFETY: an initialised value. Where the limit is lower and fixed, pipes say so.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn pipe(full: bool) -> [c_int; 2] {
    let mut ends = [-1; 2];
    // SAFETY: room for two descriptors; then one byte.
    unsafe {
        assert_eq!(
            libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK),
            0,
            "descriptors for a pipe"
        );
        assert!(!full || libc::write(ends[1], b"x".as_ptr().cast(), 1) == 1);
    }
    ends
}

/// A side, with its own calls for the same descriptors.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Kernel,
    Wakeset,
}

impl Side {
    fn eventfd(self, value: u32) -> c_int {
        let flags = libc::EFD_NONBLOCK | libc::EFD_CLOEXEC;
        match self {
            // SAFETY: no pointer is passed.
            Self::Kernel => unsafe { libc::eventfd(value, flags) },
            Self::Wakeset => wakeset_fd::eventfd(value, flags).unwrap(),
        }
    }

    fn set(self) -> c_int {
        match self {
            // SAFETY: no pointer is passed.
            Self::Kernel => unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) },
            Self::Wakeset => wakeset_fd::epoll_create1(libc::EPOLL_CLOEXEC).unwrap(),
        }
    }

    fn close(self, fd: c_int) {
        match self {
            // SAFETY: the test's own.
            Self::Kernel => assert_eq!(unsafe { libc::close(fd) }, 0),
            Self::Wakeset => wakeset_fd::close(fd).unwrap(),
        }
    }

    fn events(self, set: c_int) -> Vec<(u64, u32)> {
        let mut events = [epoll_event { events: 0, u64: 0 }; 64];
        let n = match self {
            // SAFETY: room for as many as are said.
            Self::Kernel => unsafe { libc::epoll_wait(set, events.as_mut_ptr(), 64, 0) },
            Self::Wakeset => {
                // SAFETY: as above.
                unsafe { wakeset_fd::epoll_wait(set, events.as_mut_ptr(), 64, 0) }.unwrap()
            }
        };
        let mut events: Vec<_> =
            events[..n as usize].iter().map(|event| (event.u64, event.events)).collect();
        events.sort_unstable();
        events
    }

    fn single(self, set: c_int, command: &Command) -> c_int {
        let event = &raw const command.event;
        match self {
            Self::Kernel => {
                // SAFETY: the event is there.
                match unsafe { libc::epoll_ctl(set, command.op, command.fd, event.cast_mut()) } {
                    0 => 0,
                    _ => -std::io::Error::last_os_error().raw_os_error().unwrap(),
                }
            }
            Self::Wakeset => {
                // SAFETY: as above.
                match unsafe { wakeset_fd::epoll_ctl(set, command.op, command.fd, event) } {
                    Ok(()) => 0,
                    Err(error) => -error.into_raw(),
                }
            }
        }
    }

    /// A batch; on the kernel's side, the loop that it stands for.
    fn batch(self, set: c_int, flags: c_int, commands: &mut [Command]) -> usize {
        if self == Self::Wakeset {
            return epoll_ctl_batch(set, flags, commands).unwrap();
        }
        let mut stopped = false;
        for command in &mut *commands {
            command.result = if stopped { -libc::ECANCELED } else { self.single(set, command) };
            stopped |= command.result != 0 && flags & STOP_AT_ERROR != 0;
        }
        commands.iter().filter(|command| command.result == 0).count()
    }
}

#[test]
fn unknown_flags_are_refused() {
    let mut commands = [Command::new(EPOLL_CTL_DEL, -1, 0, 0); 2];
    commands[1].result = 5;
    assert_eq!(epoll_ctl_batch(-1, 8, &mut commands), Err(Errno::EINVAL));
    assert_eq!((commands[0].result, commands[1].result), (0, 5), "nothing is done");
    assert_eq!(epoll_ctl_batch(-1, 0, &mut commands), Ok(0));
    assert_eq!((commands[0].result, commands[1].result), (-libc::EBADF, -libc::EBADF));
    assert_eq!(epoll_ctl_batch(-1, 0, &mut []), Ok(0));
}

/// Whether this kernel gives out io_urings as batches need them. Prints a note if not.
fn has_rings() -> bool {
    let mut parameters = [0_u32; 30];
    // SAFETY: room for the parameters.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr()) };
    if ring >= 0 {
        // SAFETY: just made.
        unsafe { libc::close(ring as c_int) };
        // SAFETY: a structure of byte arrays, with room for the answer.
        let release = unsafe {
            let mut names: libc::utsname = std::mem::zeroed();
            libc::uname(&mut names);
            std::ffi::CStr::from_ptr(names.release.as_ptr()).to_string_lossy().into_owned()
        };
        let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
        if (numbers.next(), numbers.next()) >= (Some(6), Some(6)) {
            return true;
        }
    }
    println!("skipped: io_uring of Linux 6.6 is not allowed here");
    assert!(std::env::var_os("WAKESET_REQUIRE_ALL").is_none(), "skipped: io_uring");
    false
}

fn adds(fds: &[c_int]) -> Vec<Command> {
    fds.iter().map(|fd| Command::new(EPOLL_CTL_ADD, *fd, IN, *fd as u64)).collect()
}

fn removals(fds: &[c_int]) -> Vec<Command> {
    fds.iter().map(|fd| Command::new(EPOLL_CTL_DEL, *fd, 0, 0)).collect()
}

#[test]
fn many_kernel_descriptors_go_through_io_uring() {
    let _alone = alone();
    if !has_rings() {
        return;
    }
    let set = Side::Wakeset.set();
    let pipes: Vec<_> = (0..MANY).flat_map(|_| pipe(false)).collect();
    // The first one makes the set a mixed one.
    assert_eq!(Side::Wakeset.single(set, &adds(&pipes)[0]), 0);
    without(&[libc::SYS_epoll_ctl], libc::EPERM, || {
        assert_eq!(epoll_ctl_batch(set, 0, &mut adds(&pipes[1..])), Ok(pipes.len() - 1));
        assert_eq!(epoll_ctl_batch(set, STOP_AT_ERROR, &mut removals(&pipes)), Ok(pipes.len()));
        // The same twice, in order.
        let mut twice: Vec<_> =
            adds(&pipes).into_iter().zip(adds(&pipes)).flat_map(|(a, b)| [a, b]).collect();
        assert_eq!(epoll_ctl_batch(set, 0, &mut twice), Ok(pipes.len()));
        assert!(twice.chunks(2).all(|pair| (pair[0].result, pair[1].result) == (0, -libc::EEXIST)));
        assert_eq!(
            epoll_ctl_batch(set, SINGLE_CALLS, &mut removals(&pipes)),
            Ok(0),
            "single calls were asked for"
        );
    });
    assert_eq!(epoll_ctl_batch(set, SINGLE_CALLS, &mut removals(&pipes)), Ok(pipes.len()));
    pipes.iter().chain([&set]).for_each(|fd| Side::Wakeset.close(*fd));
}

#[test]
fn where_io_uring_is_not_allowed_the_results_are_the_same() {
    let _alone = alone();
    let set = Side::Wakeset.set();
    let pipes: Vec<_> = (0..MANY).flat_map(|_| pipe(false)).collect();
    for errno in [libc::ENOMEM, libc::EMFILE, libc::EBUSY] {
        without(&[libc::SYS_io_uring_setup], errno, || {
            assert_eq!(epoll_ctl_batch(set, 0, &mut adds(&pipes)), Ok(pipes.len()));
            assert_eq!(epoll_ctl_batch(set, 0, &mut removals(&pipes)), Ok(pipes.len()));
        });
    }
    // An io_uring that can be made and then cannot be used.
    without(&[libc::SYS_io_uring_enter], libc::EPERM, || {
        assert_eq!(epoll_ctl_batch(set, 0, &mut adds(&pipes)), Ok(pipes.len()));
        assert_eq!(epoll_ctl_batch(set, STOP_AT_ERROR, &mut removals(&pipes)), Ok(pipes.len()));
    });
    pipes.iter().chain([&set]).for_each(|fd| Side::Wakeset.close(*fd));
}

/// Runs `f` on a set while two other threads keep its locks busy, so that the kernel puts commands
/// off.
fn under_contention(f: impl Fn(c_int)) {
    let set = Side::Wakeset.set();
    let over = AtomicBool::new(false);
    // Always ready, so that each wait on the set takes its lock for a while.
    let busy: Vec<_> = (0..32).flat_map(|_| pipe(true)).collect();
    busy.chunks(2).for_each(|pair| assert_eq!(Side::Wakeset.single(set, &adds(pair)[0]), 0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let mut events = [epoll_event { events: 0, u64: 0 }; 64];
                    // SAFETY: room for as many as are said.
                    unsafe { wakeset_fd::epoll_wait(set, events.as_mut_ptr(), 64, 0) }.unwrap();
                }
            });
        }
        // Also if `f` panics, since the scope would wait for ever.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(set)));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    busy.iter().chain([&set]).for_each(|fd| Side::Wakeset.close(*fd));
}

#[test]
fn commands_on_one_descriptor_keep_their_order() {
    let _alone = alone();
    under_contention(|set| {
        let pipes: Vec<_> = (0..MANY).flat_map(|_| pipe(true)).collect();
        assert_eq!(epoll_ctl_batch(set, 0, &mut adds(&pipes)), Ok(pipes.len()));
        for round in 0..200 {
            let pairs = removals(&pipes).into_iter().zip(adds(&pipes));
            let mut commands: Vec<_> = pairs.flat_map(|(removal, add)| [removal, add]).collect();
            let done = epoll_ctl_batch(set, 0, &mut commands);
            assert_eq!(
                done,
                Ok(commands.len()),
                "round {round}: {:?}",
                commands.iter().find(|done| done.result != 0)
            );
        }
        pipes.iter().for_each(|fd| Side::Wakeset.close(*fd));
    });
}

#[test]
fn what_is_removed_can_be_closed_and_its_number_used_again() {
    let _alone = alone();
    for mixed in [false, true] {
        under_contention(|set| {
            for round in 0..20 {
                let make = |i: usize| {
                    if mixed && i.is_multiple_of(3) {
                        [Side::Wakeset.eventfd(1), Side::Wakeset.eventfd(1)]
                    } else {
                        pipe(true)
                    }
                };
                let fds: Vec<_> = (0..MANY).flat_map(make).collect();
                let watched: Vec<_> = fds.chunks(2).map(|pair| pair[0]).collect();
                let flags = if round % 3 == 0 { STOP_AT_ERROR } else { 0 };
                assert_eq!(
                    epoll_ctl_batch(set, flags, &mut adds(&watched)),
                    Ok(watched.len()),
                    "round {round}"
                );
                assert_eq!(
                    epoll_ctl_batch(set, flags, &mut removals(&watched)),
                    Ok(watched.len()),
                    "round {round}"
                );
                fds.iter().for_each(|fd| Side::Wakeset.close(*fd));
                // Other files with the same numbers, ready as well: no watch asks for them.
                let fds: Vec<_> = (0..MANY).flat_map(make).collect();
                assert!(watched.iter().all(|fd| fds.contains(fd)), "numbers are used again");
                for (data, _) in Side::Wakeset.events(set) {
                    assert!(!fds.contains(&(data as c_int)), "round {round}: {data} is watched");
                }
                let mut again = removals(&fds);
                assert_eq!(
                    epoll_ctl_batch(set, SINGLE_CALLS, &mut again),
                    Ok(0),
                    "round {round}: a late addition"
                );
                assert!(again.iter().all(|command| command.result == -libc::ENOENT));
                fds.iter().for_each(|fd| Side::Wakeset.close(*fd));
            }
        });
    }
}

#[test]
fn batches_leave_no_descriptor_and_work_after_a_fork() {
    let _alone = alone();
    let numbers = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let set = Side::Kernel.set();
    let pipes: Vec<_> = (0..MANY).flat_map(|_| pipe(false)).collect();
    let over = AtomicBool::new(false);
    let go_over = || {
        assert_eq!(epoll_ctl_batch(set, 0, &mut adds(&pipes)), Ok(pipes.len()));
        assert_eq!(epoll_ctl_batch(set, 0, &mut removals(&pipes)), Ok(pipes.len()));
    };
    let before = numbers();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                go_over();
            }
        });
        let mut pairs: Vec<_> = adds(&pipes).into_iter().chain(removals(&pipes)).collect();
        for _ in 0..20 {
            // SAFETY: the child makes system calls only.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    let own = libc::epoll_create1(libc::EPOLL_CLOEXEC);
                    let done = epoll_ctl_batch(own, 0, &mut pairs);
                    libc::_exit(if done == Ok(2 * pipes.len()) { 0 } else { 1 });
                }
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                assert_eq!(status, 0, "the child's batch");
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(numbers(), before);
    pipes.iter().chain([&set]).for_each(|fd| Side::Kernel.close(*fd));
}

/// Closing an io_uring used to end a later sleep of the thread, without a signal.
#[test]
fn a_sleep_after_a_batch_is_not_interrupted() {
    let _alone = alone();
    // SAFETY: no pointers.
    let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    let pipes: Vec<_> = (0..600).map(|_| pipe(false)).collect();
    let fds: Vec<_> = pipes.iter().map(|ends| ends[0]).collect();
    for _ in 0..4 {
        assert_eq!(epoll_ctl_batch(set, 0, &mut adds(&fds)), Ok(fds.len()));
        let mut event = epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one.
        let waited = unsafe { libc::epoll_wait(set, &raw mut event, 1, 60) };
        assert_eq!(waited, 0, "{}", std::io::Error::last_os_error());
        assert_eq!(epoll_ctl_batch(set, 0, &mut removals(&fds)), Ok(fds.len()));
    }
    // SAFETY: our own.
    unsafe {
        for end in pipes.iter().flatten() {
            libc::close(*end);
        }
        libc::close(set);
    }
}
