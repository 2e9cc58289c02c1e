//! Models of a thread in poll(2): an object in process, which may migrate, close or expire while
//! the thread falls asleep, on the futex or in ppoll(2).

use super::IN;
use crate::migrate::{hold_migrations, wait_for_migrations};
use crate::rooms::kernel::{BELL, KERNEL, KERNEL_FILE};
use crate::rooms::poll::sleeper::Sleeper;
use crate::sys::{self, sync::AtomicBool, sync::Ordering};
use core::ffi::c_int;
use core::time::Duration;
use libc::{pollfd, timespec};
use loom::thread::{JoinHandle, spawn};
use std::sync::Arc;
use wakeset::{
    Counter, CounterFlags, Deadline, Description, Engine, Error, Event, EventPoll, Events, Source,
    Timer, TimerFlags, explore, set_model_clock,
};

/// In place of a doorbell: the thread sleeps on the futex.
const NONE: c_int = -1;
/// A time that never comes.
const FAR: timespec = timespec { tv_sec: 1, tv_nsec: 0 };

/// A call on one object, in the steps that `poll::wait` takes.
struct Call<S: Source + 'static> {
    engine: Engine,
    sleeper: Sleeper,
    bell: c_int,
    source: Description<S>,
    /// Whether the object's number is the kernel's, and stands for the file.
    has_left: AtomicBool,
    file: usize,
}

impl Call<Counter> {
    fn on_counter(bell: c_int) -> Arc<Self> {
        Self::new(bell, Counter::new(0, CounterFlags::NONBLOCK))
    }

    /// A migration, as another thread makes it; then something comes in the kernel.
    fn migrate(&self) {
        let migrating = hold_migrations();
        self.source.wait_queue().detach_watches(|_| self.sleeper.note_moved());
        self.has_left.store(true, Ordering::SeqCst);
        drop(migrating);
        KERNEL.fill(self.file);
    }
}

impl<S: Source + 'static> Call<S> {
    fn new(bell: c_int, source: S) -> Arc<Self> {
        let engine = Engine::new();
        let call = Arc::new(Self {
            sleeper: Sleeper::new(EventPoll::new(&engine).unwrap()),
            bell,
            source: Description::new(&engine, source),
            has_left: AtomicBool::new(false),
            file: KERNEL.open(KERNEL_FILE),
            engine,
        });
        if bell != NONE {
            KERNEL.open(bell);
            call.sleeper.have_doorbell(bell);
        }
        // SAFETY: it ends with the threads of the model.
        unsafe { call.sleeper.be_woken() };
        call
    }

    /// poll(2) without a limit, until the object is readable.
    fn poll(&self) {
        let mut is_watching = false;
        loop {
            if self.has_left.load(Ordering::SeqCst) {
                KERNEL.sleep_on(&mut [entry(KERNEL_FILE)]);
                break;
            }
            if self.source.poll().contains(Events::IN) {
                break;
            }
            if is_watching {
                self.sleeper.set.harvest(1, |_| true);
            } else {
                match self.sleeper.set.add(1, &self.source, Event::new(Events::IN, 0)) {
                    Ok(()) => is_watching = true,
                    Err(Error::Closed) => {
                        wait_for_migrations();
                        continue;
                    }
                    Err(error) => panic!("not watched: {error:?}"),
                }
            }
            self.sleep_once();
            if self.sleeper.has_moved() {
                self.unwatch();
                is_watching = false;
            }
        }
        self.unwatch();
    }

    fn sleep_once(&self) {
        let entered = self.sleeper.enter(self.bell);
        let until = entered.led.map_or(FAR, |until| timespec {
            tv_sec: 0,
            tv_nsec: until.since_boot().as_nanos() as i64,
        });
        let mut rings = false;
        if !entered.stays {
            if self.bell == NONE {
                let _ = self.sleeper.sleep(&entered, &until);
            } else if !sys::pass(&until) {
                let mut entries = [entry(self.bell)];
                KERNEL.sleep_on(&mut entries);
                rings = true;
            }
        }
        self.sleeper.leave(entered.led);
        if rings {
            self.sleeper.silence(empty);
        }
    }

    fn unwatch(&self) {
        self.sleeper.set.clear();
        self.sleeper.forget_moved();
    }
}

fn empty(doorbell: c_int) {
    assert_eq!(doorbell, BELL);
    KERNEL.silence();
}

fn entry(fd: c_int) -> pollfd {
    pollfd { fd, events: IN as i16, revents: 0 }
}

fn run<S: Source + 'static, T: 'static>(
    call: &Arc<Call<S>>,
    body: impl FnOnce(&Call<S>) -> T + 'static,
) -> JoinHandle<T> {
    let call = Arc::clone(call);
    spawn(move || body(&call))
}

/// A call that meets a write.
fn meet_a_write(bell: c_int) {
    let call = Call::on_counter(bell);
    let writer = run(&call, |call| call.source.write(1).unwrap());
    call.poll();
    writer.join().unwrap();
}

/// Catches a thread that sleeps on the futex although the counter has been written: it has not
/// looked since it was counted in, or it takes the word as it is after the waker has changed it.
#[test]
fn a_poller_on_the_futex_hears_of_a_write() {
    explore(3, || meet_a_write(NONE));
}

/// Catches the same of a thread in ppoll(2), and a waker that finds it counted in and no doorbell.
#[test]
fn a_poller_in_the_kernel_hears_of_a_write() {
    explore(3, || meet_a_write(BELL));
}

/// Catches a thread that sleeps for an object that is the kernel's by now.
#[test]
fn a_poller_on_the_futex_hears_of_a_migration() {
    explore(2, || {
        let call = Call::on_counter(NONE);
        let migrating = run(&call, Call::migrate);
        call.poll();
        migrating.join().unwrap();
    });
}

/// The same in ppoll(2), which does not have the object's number among its entries yet.
#[test]
fn a_poller_in_the_kernel_hears_of_a_migration() {
    explore(2, || {
        let call = Call::on_counter(BELL);
        let migrating = run(&call, Call::migrate);
        call.poll();
        migrating.join().unwrap();
    });
}

/// A call that meets the setting of a timer.
fn meet_an_expiry(bell: c_int) {
    set_model_clock(1);
    let call = Call::new(bell, Timer::new(TimerFlags::NONBLOCK));
    let setter = run(&call, |call| {
        call.source.set_at(Duration::from_nanos(10), Duration::ZERO).unwrap();
    });
    call.poll();
    setter.join().unwrap();
    assert!(Deadline::now().since_boot() >= Duration::from_nanos(10));
}

/// Catches a thread that sleeps past an expiry which no other waiter minds, or of which it was told
/// while it fell asleep.
#[test]
fn a_poller_on_the_futex_hears_of_a_timer() {
    explore(2, || meet_an_expiry(NONE));
}

/// The same in ppoll(2).
#[test]
fn a_poller_in_the_kernel_hears_of_a_timer() {
    explore(2, || meet_an_expiry(BELL));
}

/// Catches an object whose close takes along what the poller has been told of another.
#[test]
fn a_poller_hears_of_a_write_beside_a_close() {
    explore(2, || {
        let call = Call::on_counter(NONE);
        let closed = Description::new(&call.engine, Counter::new(0, CounterFlags::NONBLOCK));
        // Its level would keep the call, which does not ask for it, from sleeping.
        call.sleeper.set.add(2, &closed, Event::new(Events::IN | Events::ET, 0)).unwrap();
        let other = run(&call, move |call| {
            closed.write(1).unwrap();
            drop(closed);
            call.source.write(1).unwrap();
        });
        call.poll();
        other.join().unwrap();
    });
}

/// Catches a waker that rings under a number which the program has by then.
#[test]
fn a_doorbell_that_was_given_back_is_not_rung() {
    explore(3, || {
        let call = Call::on_counter(BELL);
        let writer = run(&call, |call| call.source.write(1).unwrap());
        call.poll();
        let programs = call.sleeper.lay_doorbell_down(empty).then(|| {
            KERNEL.close(BELL);
            KERNEL.open(BELL)
        });
        writer.join().unwrap();
        if programs.is_some() {
            let mut entries = [entry(BELL)];
            KERNEL.poll(&mut entries);
            assert_eq!(entries[0].revents, 0, "the program's file was written to");
        }
    });
}

/// Catches a ring that is left in a doorbell which is given back: the next thread that sleeps on it
/// would wake for nothing. The second ring may come while the thread empties the doorbell of the
/// first, and does not sleep again.
#[test]
fn a_doorbell_that_was_given_back_is_silent() {
    explore(3, || {
        let call = Call::on_counter(BELL);
        let writer = run(&call, |call| {
            call.source.write(1).unwrap();
            call.sleeper.note_moved();
        });
        call.poll();
        let is_given_back = call.sleeper.lay_doorbell_down(empty);
        let mut entries = [entry(BELL)];
        KERNEL.poll(&mut entries);
        assert!(!is_given_back || entries[0].revents == 0, "the doorbell rings");
        writer.join().unwrap();
    });
}
