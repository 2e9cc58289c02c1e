use super::super::entries::{NONE, Polled};
use super::super::poller::Poller;
use super::*;
use crate::table::alone::alone;
use crate::table::away::tests::{eventfd, give_back, lend, write};
use crate::table::away::{self, Return};
use crate::table::gate;
use core::ffi::c_int;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
extern crate std;

/// What no child has here.
const CHILD: u32 = 1 << 31;

/// Looks at `numbers` in a call that has had a doorbell from an earlier sleep, once told to;
/// says which poller it has.
fn look_with_doorbell(
    numbers: [c_int; 2],
    ready: &mpsc::Sender<&'static Poller>,
    go: &mpsc::Receiver<()>,
) -> bool {
    let frame = Frame::new(0);
    let mut asked = numbers.map(|fd| pollfd { fd, events: POLLIN, revents: 0 });
    let all = [const { Cell::new(NONE) }; 3];
    let (bell, entries) = all.split_last().unwrap();
    let asked = Polled::new(asked.as_mut_ptr(), asked.len());
    assert!(asked.load(entries));
    let poller = Taken::take(&frame).unwrap();
    while poller.borrow_doorbell() == Err(Unlent::Busy) {
        thread::yield_now();
    }
    assert!(poller.doorbell() >= 0);
    let has = core::ops::Deref::deref(&poller);
    // SAFETY: pollers are never freed.
    ready.send(unsafe { &*core::ptr::from_ref(has) }).unwrap();
    go.recv().unwrap();
    let mut wait = Wait {
        asked: &asked,
        frame: &frame,
        all: &all,
        entries,
        bell,
        mask: core::ptr::null(),
        kernel: false,
        is_unasked: false,
        attempts: 0,
        deadline: None,
        tells_nothing: true,
    };
    wait.look(Some(&poller)).is_none()
}

/// It waited for the migrations lock, and dup2(2) waits with that for the doorbell.
#[test]
fn a_poll_waits_for_a_way_home_without_its_doorbell() {
    let _alone = alone();
    let numbers = [eventfd(0, 0), eventfd(0, 0)];
    let [comes, stays] = numbers;
    lend(comes, CHILD);
    give_back(CHILD);
    let (ready, is_ready) = mpsc::channel();
    let (go, told) = mpsc::channel();
    let looking = thread::spawn(move || look_with_doorbell(numbers, &ready, &told));
    let poller = is_ready.recv().unwrap();
    let mut is_free = false;
    {
        let _guard = SignalGuard::enter();
        let _migrating = gate::hold_migrations();
        let came = away::bring_home([comes], |_| {
            go.send(()).unwrap();
            let end = Instant::now() + Duration::from_secs(3);
            while !is_free && Instant::now() < end {
                thread::sleep(Duration::from_millis(1));
                is_free = poller.doorbell() < 0;
            }
            Return::Later
        });
        assert!(!came);
    }
    assert!(looking.join().unwrap(), "nothing is ready");
    assert!(is_free, "whoever wants the number waits for ever");
    assert!(!away::is(comes), "a poll that may sleep keeps it in the kernel");
    [comes, stays].into_iter().for_each(|fd| crate::close(fd).unwrap());
}

/// Asks for an eventfd that is in process and a pipe that is the kernel's, for 20 ms.
fn poll_both([here, there]: [c_int; 2]) -> (Outcome, [i16; 2]) {
    let mut asked = [here, there].map(|fd| pollfd { fd, events: POLLIN, revents: 0 });
    let time = Timeout::from(Some(Duration::from_millis(20)));
    // SAFETY: two entries, and no mask.
    let outcome = unsafe { crate::poll::poll(asked.as_mut_ptr(), 2, time, core::ptr::null()) };
    (outcome, asked.map(|entry| entry.revents))
}

/// Such a call looks at its objects alone before it goes to sleep.
#[test]
fn a_call_that_is_likely_to_sleep_tells_of_both_halves() {
    let _alone = alone();
    let mut pipe = [0; 2];
    // SAFETY: room for two numbers. They are the kernel's, because no hook stands in front.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let both = [eventfd(0, 0), pipe[0]];
    let nothing = (Outcome::Done(Ok(0)), [0, 0]);
    assert_eq!(poll_both(both), nothing);
    assert!(is_likely_to_sleep());

    let mut byte = 0_u8;
    assert_eq!(sys::write(pipe[1], &raw const byte, 1), Ok(1));
    // A thread that loses its processor seems to have slept.
    for _ in 0..1000 {
        assert_eq!(poll_both(both), (Outcome::Done(Ok(1)), [0, POLLIN]));
        if !is_likely_to_sleep() {
            break;
        }
    }
    assert!(!is_likely_to_sleep(), "it asks the kernel last, which has something at once");

    assert_eq!(sys::read(pipe[0], (&raw mut byte).cast(), 1), Ok(1));
    assert_eq!(poll_both(both), nothing);
    assert!(is_likely_to_sleep());
    assert_eq!(sys::write(pipe[1], &raw const byte, 1), Ok(1));
    write(both[0], 1);
    assert_eq!(poll_both(both), (Outcome::Done(Ok(2)), [POLLIN, POLLIN]));
    crate::close(both[0]).unwrap();
    pipe.into_iter().for_each(|fd| sys::close(fd).unwrap());
}
