//! Batches of epoll_ctl: the results of the kernel's own loop, with io_uring and without, and everything in force on return.

mod forbid;

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

/// So many commands on kernel descriptors that a ring is used where there is one.
const MANY: usize = 1100;

/// Keeps tests that need many descriptors from running out of them, or of one another's numbers.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    let limit = libc::rlimit { rlim_cur: 8192, rlim_max: 8192 };
    // SAFETY: an initialised value. Where the limit is lower and fixed, pipes say so.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// xorshift: the same programs in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }
}

fn pipe(full: bool) -> [c_int; 2] {
    let mut ends = [-1; 2];
    // SAFETY: room for two descriptors; then one byte.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK), 0, "descriptors for a pipe");
        assert!(!full || libc::write(ends[1], b"x".as_ptr().cast(), 1) == 1);
    }
    ends
}

/// A side: its own calls for the same descriptors.
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
            // SAFETY: as above.
            Self::Wakeset => unsafe { wakeset_fd::epoll_wait(set, events.as_mut_ptr(), 64, 0) }.unwrap(),
        };
        let mut events: Vec<_> = events[..n as usize].iter().map(|event| (event.u64, event.events)).collect();
        events.sort_unstable();
        events
    }

    fn single(self, set: c_int, command: &Command) -> c_int {
        let event = &raw const command.event;
        match self {
            // SAFETY: the event is there.
            Self::Kernel => match unsafe { libc::epoll_ctl(set, command.op, command.fd, event.cast_mut()) } {
                0 => 0,
                _ => -std::io::Error::last_os_error().raw_os_error().unwrap(),
            },
            // SAFETY: as above.
            Self::Wakeset => match unsafe { wakeset_fd::epoll_ctl(set, command.op, command.fd, event) } {
                Ok(()) => 0,
                Err(error) => -error.into_raw(),
            },
        }
    }

    /// On the kernel's side, the loop that a batch stands for.
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

/// A set and what batches are about: the descriptors by index are the same things on both sides.
struct World {
    side: Side,
    set: c_int,
    fds: Vec<c_int>,
    ours: Vec<c_int>,
}

const COUNTERS: usize = 24;
const PIPES: usize = 300;

impl World {
    fn new(side: Side, mixed: bool) -> Self {
        let set = side.set();
        let mut fds: Vec<_> = (0..if mixed { COUNTERS } else { 0 }).map(|i| side.eventfd(i as u32 % 2)).collect();
        let pipes: Vec<_> = (0..PIPES).flat_map(|i| pipe(i % 8 == 0)).collect();
        fds.extend(&pipes);
        let mut ours = fds.clone();
        let inner = side.set();
        // SAFETY: a path; a directory cannot be watched.
        let directory = unsafe { libc::open(c"/".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) };
        ours.extend([inner, directory]);
        fds.extend([inner, directory, set, -1, 8191, c_int::MAX]);
        Self { side, set, fds, ours }
    }

    fn command(&self, (op, target, events): (c_int, usize, u32)) -> Command {
        Command::new(op, self.fds[target], events, target as u64)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.ours.iter().chain([&self.set]).for_each(|fd| self.side.close(*fd));
    }
}

fn compare(mixed: bool, how: impl Fn(&mut Random) -> c_int, seeds: std::ops::Range<u64>) {
    let _alone = alone();
    for seed in seeds {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed << 7);
        let worlds = [Side::Kernel, Side::Wakeset].map(|side| World::new(side, mixed));
        for _ in 0..6 {
            let n = random.one_of(&[1, 2, 5, 40, 255, 256, 257, MANY, 1500]);
            // Orderly batches go over different descriptors, the others meet the same ones again.
            let (orderly, first) = (random.below(2) == 0, random.below(worlds[0].fds.len()));
            let op = random.one_of(&[EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL]);
            let rare = random.one_of(&[3, 60, 4000]);
            let plan: Vec<_> = (0..n)
                .map(|i| {
                    let last = worlds[0].fds.len();
                    let target = if orderly { (first + i) % last } else { random.below(last) };
                    let odd = random.below(rare) == 0;
                    let op = if odd { random.one_of(&[EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, 0, 7]) } else { op };
                    let events = random.one_of(&[IN, IN | OUT, OUT, IN | ET, IN | ONESHOT, IN | EXCLUSIVE, 0]);
                    (op, target, events)
                })
                .collect();
            let flags = how(&mut random);
            let outcomes = worlds.each_ref().map(|world| {
                let mut commands: Vec<_> = plan.iter().map(|step| world.command(*step)).collect();
                let succeeded = world.side.batch(world.set, flags, &mut commands);
                let results: Vec<_> = commands.iter().map(|command| command.result).collect();
                (succeeded, results)
            });
            assert_eq!(outcomes[0], outcomes[1], "seed {seed}, flags {flags}, plan {plan:?}");
            // What is watched, and for what.
            let watched = worlds.each_ref().map(|world| {
                let probe = |target: usize| world.side.single(world.set, &world.command((EPOLL_CTL_MOD, target, IN)));
                let asked: Vec<_> = (0..world.fds.len()).map(probe).collect();
                (asked, world.side.events(world.set).len())
            });
            assert_eq!(watched[0], watched[1], "seed {seed}, flags {flags}, plan {plan:?}");
        }
    }
}

#[test]
fn a_batch_has_the_results_of_the_loop() {
    compare(true, |random| random.one_of(&[0, SINGLE_CALLS]), 0..25);
}

#[test]
fn a_batch_that_stops_has_the_results_of_the_loop_that_stops() {
    compare(true, |random| STOP_AT_ERROR | random.one_of(&[0, SINGLE_CALLS]), 100..125);
}

#[test]
fn a_batch_of_kernel_descriptors_has_the_results_of_the_loop() {
    compare(false, |random| random.one_of(&[0, STOP_AT_ERROR, SINGLE_CALLS]), 200..225);
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

/// Whether this kernel gives out rings as the batches need them; says so if not.
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
        let mut twice: Vec<_> = adds(&pipes).into_iter().zip(adds(&pipes)).flat_map(|(a, b)| [a, b]).collect();
        assert_eq!(epoll_ctl_batch(set, 0, &mut twice), Ok(pipes.len()));
        assert!(twice.chunks(2).all(|pair| (pair[0].result, pair[1].result) == (0, -libc::EEXIST)));
        assert_eq!(epoll_ctl_batch(set, SINGLE_CALLS, &mut removals(&pipes)), Ok(0), "single calls were asked for");
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
    // A ring that is there and then cannot be used.
    without(&[libc::SYS_io_uring_enter], libc::EPERM, || {
        assert_eq!(epoll_ctl_batch(set, 0, &mut adds(&pipes)), Ok(pipes.len()));
        assert_eq!(epoll_ctl_batch(set, STOP_AT_ERROR, &mut removals(&pipes)), Ok(pipes.len()));
    });
    pipes.iter().chain([&set]).for_each(|fd| Side::Wakeset.close(*fd));
}

/// Runs `f` on a set while two other threads keep its locks busy, so that the kernel puts commands aside.
fn under_contention(f: impl Fn(c_int)) {
    let set = Side::Wakeset.set();
    let over = AtomicBool::new(false);
    // Always ready, so that each look at the set takes its lock for a while.
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
        // Also if it panics, or the scope would wait for ever.
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
            assert_eq!(done, Ok(commands.len()), "round {round}: {:?}", commands.iter().find(|done| done.result != 0));
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
                assert_eq!(epoll_ctl_batch(set, flags, &mut adds(&watched)), Ok(watched.len()), "round {round}");
                assert_eq!(epoll_ctl_batch(set, flags, &mut removals(&watched)), Ok(watched.len()), "round {round}");
                fds.iter().for_each(|fd| Side::Wakeset.close(*fd));
                // The same numbers, ready as well: nobody has asked for them.
                let fds: Vec<_> = (0..MANY).flat_map(make).collect();
                assert!(watched.iter().all(|fd| fds.contains(fd)), "numbers are used again");
                for (data, _) in Side::Wakeset.events(set) {
                    assert!(!fds.contains(&(data as c_int)), "round {round}: {data} is watched");
                }
                let mut again = removals(&fds);
                assert_eq!(epoll_ctl_batch(set, SINGLE_CALLS, &mut again), Ok(0), "round {round}: a late addition");
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

/// Closing a ring ended a later sleep of the thread, without a signal.
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
