//! A close in which the kernel closes the number before the table forgets it, because a call by the
//! number must not find the kernel object of an object that goes on: that of one of several
//! numbers, and of an end of a pair.
//!
//! The kernel may give the number out again at once, to a thread whose call nobody saw: a system
//! call instruction, or any call in a program that uses the library. That thread's next call would
//! take the closed object for its file. So while a number is being closed whoever looks it up waits
//! until the table has forgotten it:
//!
//! | the closing thread | the thread that has been given the number |
//! |---|---|
//! | says which number it is | |
//! | makes the entry an alias, which no fast path takes | |
//! | closes it in the kernel | gets it from the kernel |
//! | vacates the entry | finds an alias; or what comes of it |
//! | says that it is over | looks whether it is being closed, waits for that, and looks at the entry again |
//!
//! There is one such close at a time, under the migrations lock. Nothing is waited for while it
//! lasts, so that a lookup may wait for it whatever locks its thread has. A forked child does not
//! wait for a thread of its parent.

use crate::sys;
use crate::sys::process::{Memory, memory};
use crate::sys::steps::{step_lock, step_waited};
use crate::table::{self, SlotHead, duplicates};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use wakeset::mutated;

/// The number that is being closed, plus one; 0 for none. With [`AWAITED`] a thread may sleep.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static CLOSING: AtomicU32 = AtomicU32::new(0);
/// No number is so high.
const AWAITED: u32 = 1 << 31;

/// Runs `close`, which closes in the kernel a number that stands for `head`, and then vacates its
/// entry, or leaves it as it was. The caller holds the migrations lock and has a signal guard.
pub(crate) fn while_closing<T>(fd: c_int, head: &'static SlotHead, close: impl FnOnce() -> T) -> T {
    let before = match mutated!("closed_number_is_looked_up") {
        true => None,
        false => duplicates::lead_to(fd, head.address()),
    };
    // Without memory to say where it leads, the table keeps it as it is.
    let Some(before) = before else { return close() };
    CLOSING.store(word_of(fd), Ordering::SeqCst);
    step_lock!(Locked, &CLOSING);
    let at_home = table::begin_alias(fd, head);
    let result = close();
    if at_home {
        table::end_alias(fd, head);
        // A forked child writes to what is not as it was at first, and so copies it.
        duplicates::lead_to(fd, before);
    }
    if CLOSING.swap(0, Ordering::SeqCst) & AWAITED != 0 {
        sys::futex_wake(&CLOSING, u32::MAX >> 1);
    }
    step_lock!(Unlocked, &CLOSING);
    result
}

fn word_of(fd: c_int) -> u32 {
    fd as u32 + 1
}

/// Waits until the number is not being closed.
#[inline]
pub(super) fn wait(fd: c_int) {
    if is_closing(fd) {
        wait_for_close(fd);
    }
}

fn is_closing(fd: c_int) -> bool {
    CLOSING.load(Ordering::SeqCst) & !AWAITED == word_of(fd)
}

#[cold]
fn wait_for_close(fd: c_int) {
    while is_closing(fd) {
        if memory() == Memory::Copied {
            // A fork that nobody told us of.
            return begin_anew();
        }
        step_lock!(Waiting, &CLOSING);
        let (now, awaited) = (word_of(fd), word_of(fd) | AWAITED);
        let _ = CLOSING.compare_exchange(now, awaited, Ordering::SeqCst, Ordering::SeqCst);
        sys::futex_wait(&CLOSING, awaited);
    }
    step_waited!();
}

/// In a forked child: the closing thread may be the parent's.
pub(crate) fn begin_anew() {
    // A page that is not written to is not copied.
    if CLOSING.load(Ordering::SeqCst) != 0 {
        CLOSING.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use crate::migrate;
    use crate::sys;
    use crate::sys::signal_guard::SignalGuard;
    use crate::table::alone::alone;
    use crate::table::duplicates::{self, Loss};
    use crate::table::{self, Entry};
    use libc::{EFD_NONBLOCK, EPOLL_CTL_ADD, EPOLLIN, epoll_event};
    extern crate std;
    use std::thread;
    use std::time::{Duration, Instant};

    fn make() {
        let _ = crate::eventfd(0, 0);
    }

    /// Whether a child ends that calls this after a fork of which we are not told.
    fn ends_in_child(call: impl Fn()) -> bool {
        // SAFETY: the child calls what one may call after such a fork, and ends.
        unsafe {
            let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t;
            if child == 0 {
                libc::alarm(10);
                call();
                libc::_exit(0);
            }
            let mut status = -1;
            libc::waitpid(child, &raw mut status, 0) == child && status == 0
        }
    }

    /// The next file was added to a set as the object that had its number before, and the set
    /// never heard of it.
    #[test]
    fn a_number_that_is_being_closed_is_not_taken_for_the_next_file() {
        let _alone = alone();
        let set = crate::epoll_create1(0).unwrap();
        let file = sys::eventfd(1, EFD_NONBLOCK).unwrap();
        let one = crate::eventfd(0, EFD_NONBLOCK).unwrap();
        let two = crate::dup(one).unwrap();
        // The number that it was made with, which has a tag of its own, and then a further one.
        let three = crate::dup(one).unwrap();
        for (data, number) in [(1, one), (2, two)] {
            let add = move || {
                let event = epoll_event { events: EPOLLIN as u32, u64: data };
                // SAFETY: a valid event.
                unsafe { crate::epoll_ctl(set, EPOLL_CTL_ADD, number, &raw const event) }
            };
            let adding = {
                let _guard = SignalGuard::enter();
                let _migrating = migrate::hold_migrations();
                let Entry::Object(head) = table::get(number) else { panic!("an eventfd") };
                let mut adding = None;
                let loss = duplicates::lose_held(number, head, || {
                    assert_eq!(sys::raw!(dup2, file, number), Ok(number as usize));
                    let adding = adding.insert(thread::spawn(add));
                    let end = Instant::now() + Duration::from_millis(200);
                    while !adding.is_finished() && Instant::now() < end {
                        thread::sleep(Duration::from_millis(1));
                    }
                    // By another thread than that which closes.
                    let fork =
                        move || [ends_in_child(|| _ = crate::close(number)), ends_in_child(make)];
                    assert_eq!(thread::spawn(fork).join().unwrap(), [true; 2]);
                    true
                });
                assert_eq!(loss, Loss::GoesOn);
                adding
            };
            let adding = adding.expect("it was closed");
            assert_eq!(adding.join().unwrap(), Ok(()));
            let mut events = [epoll_event { events: 0, u64: 0 }; 4];
            // SAFETY: room for four.
            let found = unsafe { crate::epoll_wait(set, events.as_mut_ptr(), 4, 0) };
            assert_eq!(found, Ok(data as usize as i32));
        }
        for number in [set, one, two, three] {
            crate::close(number).unwrap();
        }
        sys::close(file).unwrap();
    }
}
