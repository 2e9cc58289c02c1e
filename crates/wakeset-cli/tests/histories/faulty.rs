//! A world with one thing wrong: the kernel, with what it is told or what it says now and then
//! changed on the way. Rounds on it have to notice, or they would not notice it of Wakeset either.

use crate::backend::{Backend, Errno, Kernel, KernelSigset, forward};
use crate::check;
use crate::plan::{EXCLUSIVE, ONESHOT, Plan, Style};
use crate::random::Random;
use crate::round;
use crate::world::World;
use libc::{c_int, c_uint, epoll_event, timespec};
use std::convert::identity;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A report that was to be the last of a wait's gets lost.
    LosesReports = 1,
    /// ONESHOT is forgotten.
    RepeatsOneshot,
    /// EXCLUSIVE is forgotten.
    WakesAll,
    /// A removal only says that it was one.
    KeepsRemoved,
    /// A waiter that sleeps is not woken any more.
    SleepsOn,
}

/// The fault at work.
static FAULT: AtomicU32 = AtomicU32::new(0);
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Whether it shows this time: one in `n`.
fn strikes(fault: Fault, n: usize) -> bool {
    FAULT.load(Ordering::Relaxed) == fault as u32
        && Random::new(COUNT.fetch_add(1, Ordering::Relaxed), 0).chance(1, n)
}

struct Faulty;

impl Backend for Faulty {
    unsafe fn epoll_ctl(
        set: c_int,
        op: c_int,
        fd: c_int,
        event: *mut epoll_event,
    ) -> Result<(), Errno> {
        if op == libc::EPOLL_CTL_DEL && strikes(Fault::KeepsRemoved, 4) {
            return Ok(());
        }
        // SAFETY: valid by the caller's contract, or null.
        let mut event = unsafe { event.as_ref() }.copied();
        if let Some(event) = &mut event {
            if strikes(Fault::RepeatsOneshot, 4) {
                event.events &= !ONESHOT;
            }
            if strikes(Fault::WakesAll, 1) {
                event.events &= !EXCLUSIVE;
            }
        }
        // SAFETY: an event, or none.
        unsafe {
            Kernel::epoll_ctl(
                set,
                op,
                fd,
                event.as_mut().map_or(std::ptr::null_mut(), |event| event),
            )
        }
    }

    unsafe fn epoll_wait(
        set: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: c_int,
    ) -> Result<c_int, Errno> {
        if timeout < 0 && strikes(Fault::SleepsOn, 4) {
            // SAFETY: the caller's contract.
            let n = unsafe { Kernel::epoll_wait(set, events, max, 0) };
            if n != Ok(0) {
                return n;
            }
            loop {
                std::thread::park();
            }
        }
        // SAFETY: the caller's contract.
        let n = unsafe { Kernel::epoll_wait(set, events, max, timeout) }?;
        Ok(if n > 1 && strikes(Fault::LosesReports, 8) { n - 1 } else { n })
    }

    forward! { through identity to Kernel:
        fn epoll_create1(flags: c_int) -> Result<c_int, Errno>;
        unsafe fn epoll_pwait2(
            set: c_int,
            events: *mut epoll_event,
            max: c_int,
            timeout: *const timespec,
            mask: *const KernelSigset,
        ) -> Result<c_int, Errno>;
        fn eventfd(initial: c_uint, flags: c_int) -> Result<c_int, Errno>;
        unsafe fn read(fd: c_int, buffer: *mut u8, len: usize) -> Result<usize, Errno>;
        unsafe fn write(fd: c_int, buffer: *const u8, len: usize) -> Result<usize, Errno>;
        fn close(fd: c_int) -> Result<(), Errno>;
        fn dup(fd: c_int) -> Result<c_int, Errno>;
        fn dup2(fd: c_int, to: c_int) -> Result<c_int, Errno>;
        fn set_nonblocking(fd: c_int, nonblocking: bool) -> Result<(), Errno>;
    }
}

impl World for Faulty {
    const NAME: &'static str = "the faulty kernel";

    fn time_limit() -> Duration {
        // A thread that sleeps on never wakes, and the test need not wait as long as one that might
        // pass.
        if FAULT.load(Ordering::Relaxed) == Fault::SleepsOn as u32 {
            Duration::from_secs(1)
        } else {
            Kernel::time_limit()
        }
    }
}

/// What rounds of a style say of a fault, until they say `expected` or a minute is over.
fn demand_notice(fault: Fault, style: Style, expected: &str) {
    let _alone = crate::run_alone();
    FAULT.store(fault as u32, Ordering::Relaxed);
    let begin = Instant::now();
    let mut seeds = Random::new(fault as u64, 0);
    let mut other = Vec::new();
    while begin.elapsed() < Duration::from_secs(60) {
        let seed = seeds.next();
        let plan = Plan::draw::<Faulty>(&mut Random::new(seed, 0));
        if plan.style != style {
            continue;
        }
        let said = match round::run::<Faulty>(plan, seed) {
            Ok(outcome) => check::check(&outcome)
                .into_iter()
                .map(|broken| (broken.rule.to_string(), broken.text))
                .collect(),
            Err(hang) => vec![(hang.lines().next().unwrap_or_default().to_string(), hang)],
        };
        for (rule, text) in said {
            if rule == expected {
                // With the calls, or threads, that show it.
                assert!(text.contains("\n  "), "{text}");
                return;
            }
            other.push(rule);
        }
    }
    panic!("not noticed; {other:?}");
}

#[test]
fn a_lost_report_is_noticed() {
    demand_notice(Fault::LosesReports, Style::Wild, "a wait does not miss what is ready");
}

#[test]
fn a_repeated_oneshot_is_noticed() {
    demand_notice(Fault::RepeatsOneshot, Style::Wild, "ONESHOT is reported once per arm");
}

#[test]
fn a_wake_of_all_is_noticed() {
    demand_notice(Fault::WakesAll, Style::OneWake, "an exclusive wake is for one");
}

#[test]
fn a_removal_that_is_none_is_noticed() {
    demand_notice(
        Fault::KeepsRemoved,
        Style::Wild,
        "nothing is reported after DEL, MOD or close returned",
    );
}

#[test]
fn a_waiter_that_sleeps_on_is_noticed() {
    demand_notice(Fault::SleepsOn, Style::Served, "waiters sleep while something is ready");
}
