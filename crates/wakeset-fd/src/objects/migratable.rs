//! What all in-process objects that can migrate have in common: where their state is, how it is
//! sealed and carried to the kernel object, and how an operation blocks and finds out that its
//! object has gone.
//!
//! A kind of object brings its state and the operations on it ([`Migratable`]); the rest is here.

use crate::migrate;
use crate::objects::residence::{Residence, Whereabouts};
use crate::stats::count::count_avoided;
use crate::sys::cancel;
use crate::sys::handled;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::step;
use crate::sys::verdict::Verdict;
use crate::sys::{self, Errno};
use crate::table::kept::KeptFile;
use crate::table::object::Object;
use crate::table::slot::end_use;
use crate::table::{self, Slot, SlotHead, Using, away, duplicates};
use core::ffi::c_int;
use wakeset::{DetachedWatch, Error, Events, mutated};

/// A kind of object whose state lives in its slot, or in the kernel object of its number.
pub(crate) trait Migratable: Slot {
    /// What the kernel object is polled for once the state is there.
    const POLLED: i16;

    fn slot_head(&self) -> &SlotHead;

    /// Where the state is. `None`: the slot has no object, and never had one.
    fn residence(&self) -> Option<&Residence>;

    /// What holds now, as long as the state is in this object's words. `None`: they are sealed, or
    /// there are none.
    fn poll_here(&self) -> Option<Events>;

    /// What held when they were sealed: until its watches have gone they see what the program
    /// would.
    fn poll_carried(&self) -> Events;

    /// Seals the words and takes the state out, in one step.
    fn seal_words(&self);

    /// Wakes threads that are blocked in sealed words. Returns how many of them slept.
    fn wake_blocked(&self) -> usize;

    /// Whether the state that was taken out is another than a new kernel object has.
    fn has_state(&self) -> bool {
        false
    }

    /// Gives the state to the kernel object.
    fn give_to_kernel(&self) {}

    /// The number is about to be closed, or the object has ended: ends what is here of it.
    fn end_here(&self) {
        // A late call finds it sealed and asks the kernel; one that sleeps in it sleeps on, as in
        // Linux.
        if let Some(residence) = self.residence() {
            residence.close();
        }
        self.seal_words();
        self.wake_blocked();
        self.wait_queue().close();
    }

    /// As [`Object::begin_close`].
    fn begins_close_in_kernel(&self) -> bool {
        false
    }

    /// Whether the number has been closed, or is about to be, so that an operation still in the
    /// object hears nothing more.
    fn is_closed(&self) -> bool {
        self.residence().is_some_and(|residence| residence.now() == Whereabouts::Closed)
    }

    /// As [`Object::set_nonblocking`].
    fn change_nonblocking(&self, nonblocking: bool);

    /// As [`Object::is_semaphore`].
    fn takes_one(&self) -> bool {
        false
    }

    /// As [`Object::note_exclusive`].
    fn note_exclusive_watch(&self) {}

    /// As [`Object::file_type`].
    fn type_of_file(&self) -> u32 {
        0
    }

    /// As [`Object::is_overcrowded`].
    fn has_company(&self) -> bool {
        false
    }

    /// As [`Object::has_left`].
    fn is_sealed(&self) -> bool;

    /// Nobody uses the object any more: lets go of other objects that it has in use.
    fn release_others(&self) {}

    /// Whether a call that slept in the object when its number was closed goes on with a file that
    /// was kept for it, or sleeps on; else the number is looked up again.
    fn is_kept_when_closed(&self) -> bool {
        true
    }

    /// As [`Object::companion`].
    fn other_end(&self) -> Option<&'static SlotHead> {
        None
    }

    /// As [`Object::may_report`].
    fn kernel_may_report(&self, watch: &DetachedWatch) -> bool {
        watch.pending
    }

    /// As [`Object::kept`].
    fn kept_file(&self) -> Option<&KeptFile> {
        None
    }

    /// [`Source::poll`](wakeset::Source::poll) of such an object: nothing holds once it has ended.
    #[inline]
    fn poll_anywhere(&self) -> Events {
        self.poll_unless_ended().unwrap_or(Events::empty())
    }

    /// As [`Object::poll_found`].
    #[inline]
    fn poll_unless_ended(&self) -> Option<Events> {
        self.poll_here().or_else(|| poll_sealed(self))
    }
}

/// What holds of an object whose words have been found sealed. `None`: it has ended.
#[cold]
fn poll_sealed<M: Migratable>(object: &M) -> Option<Events> {
    loop {
        match object.residence().map(Residence::now) {
            Some(Whereabouts::Migrating) => return Some(object.poll_carried()),
            Some(Whereabouts::InKernel) => {
                let now = sys::poll_now(object.slot_head().fd(), M::POLLED);
                let is_open = now & libc::POLLNVAL == 0;
                return is_open.then(|| Events::from_bits_retain(u32::from(now as u16)));
            }
            // The next object in the slot has begun since.
            Some(Whereabouts::Here) => {}
            Some(Whereabouts::Closed) | None => return None,
        }
        if let Some(events) = object.poll_here() {
            return Some(events);
        }
    }
}

impl<M: Migratable> Object for M {
    fn head(&self) -> &SlotHead {
        self.slot_head()
    }

    fn poll_found(&self) -> Option<Events> {
        match self.poll_unless_ended() {
            None if mutated!("poll_takes_what_has_ended_for_empty") => Some(Events::empty()),
            found => found,
        }
    }

    fn lose_number(&self) {
        self.end_here();
    }

    fn finalize(&self) {
        // Nothing is left to end of an object that has lost its number to a close.
        if self.residence().is_none_or(|residence| residence.now() != Whereabouts::Closed) {
            self.end_here();
        }
        if let Some(kept) = self.kept_file() {
            kept.let_go();
        }
        self.release_others();
    }

    fn kept(&self) -> Option<&KeptFile> {
        self.kept_file()
    }

    fn begin_close(&self) -> bool {
        self.begins_close_in_kernel()
    }

    fn is_closing(&self) -> bool {
        self.is_closed()
    }

    fn set_nonblocking(&self, nonblocking: bool) {
        self.change_nonblocking(nonblocking);
    }

    fn is_semaphore(&self) -> bool {
        self.takes_one()
    }

    fn note_exclusive(&self) {
        self.note_exclusive_watch();
    }

    fn is_overcrowded(&self) -> bool {
        self.has_company()
    }

    fn file_type(&self) -> u32 {
        self.type_of_file()
    }

    fn has_left(&self) -> bool {
        self.is_sealed()
    }

    fn companion(&self) -> Option<&'static SlotHead> {
        self.other_end()
    }

    fn seal(&self) -> bool {
        let begun = self.residence().is_some_and(Residence::begin_migration);
        if begun {
            self.seal_words();
        }
        begun
    }

    fn carry(&self) -> usize {
        let woken = self.wake_blocked();
        if self.has_state() {
            let head = self.slot_head();
            migrate::mark_if_lost(head, self.type_of_file());
            if !head.is_lost() {
                self.give_to_kernel();
            }
        }
        woken
    }

    fn may_report(&self, watch: &DetachedWatch) -> bool {
        self.kernel_may_report(watch)
    }

    fn settle(&self) {
        if let Some(residence) = self.residence() {
            residence.settle_in_kernel();
        }
    }
}

/// How an operation on an object has ended.
#[must_use]
pub(crate) enum Attempt<T> {
    Done(T),
    /// The object is the kernel's.
    InKernel,
    /// The number stands for something else by now, or the state is back: look it up again.
    Again,
    Failed(Error),
}

/// Tries an operation out of reach of signal handlers.
fn try_guarded<T>(attempt: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    step!(attempt_before_section);
    let _guard = SignalGuard::enter();
    step!(attempt_in_section);
    attempt()
}

/// Tries an operation once.
pub(crate) fn carry_out_once<M: Migratable, T>(
    object: &M,
    attempt: impl Fn() -> Result<T, Error>,
) -> Attempt<T> {
    conclude(object, try_guarded(attempt))
}

/// Tries an operation, and lets `block` repeat it until it no longer would block, if that is given.
///
/// # Errors
/// The number has been closed, or is another file's, while the call slept: the call goes on with
/// the file that it began with.
pub(crate) fn carry_out<M: Migratable, T>(
    fd: c_int,
    object: &'static M,
    attempt: impl Fn() -> Result<T, Error>,
    block: Option<impl FnOnce(&dyn Fn() -> Result<T, Error>) -> Result<T, Error>>,
) -> Result<Attempt<T>, Kept> {
    let attempt = || try_guarded(&attempt);
    let mut result = attempt();
    if matches!(result, Err(Error::WouldBlock))
        && let Some(block) = block
    {
        let Some(using) = Using::begin(fd, object) else { return Ok(Attempt::Again) };
        let before = handled::not_restarting();
        // A handler that runs in a spin ends the call as one that runs in the sleep does.
        let again = || match attempt() {
            Err(Error::WouldBlock) if handled::not_restarting() != before => {
                Err(Error::Interrupted)
            }
            result => result,
        };
        result = block(&again);
        if matches!(result, Err(Error::Sealed)) {
            if let Some(residence) = object.residence() {
                residence.wait_until_settled();
            }
            // By the handle, where the number may be another's by now.
            let head = object.slot_head();
            let has_handle = head.has_several() && !mutated!("sleeper_goes_on_by_its_number");
            let has_file = has_handle || object.kept_file().and_then(KeptFile::number).is_some();
            if has_file || object.is_closed() && object.is_kept_when_closed() {
                return Err(Kept(using.leave_counted()));
            }
        }
    }
    Ok(conclude(object, result))
}

/// A call that slept in an object when its number was closed, or became another file's. It is still
/// counted as a user of the object.
#[must_use]
pub(crate) struct Kept(&'static SlotHead);

impl Kept {
    /// Makes the system call on the file. Where it could not be kept, or nothing could come of it,
    /// this sleeps until a signal comes, as the call would in Linux.
    ///
    /// It can be cancelled in there; the object and the file then stay as they are.
    pub(crate) fn call<T>(self, call: impl FnOnce(c_int) -> Result<T, Errno>) -> Result<T, Errno> {
        let object = self.0.object();
        let handle = || self.0.has_several().then(|| self.0.fd());
        let kept = || object.kept().and_then(KeptFile::number);
        let result = cancel::point(|| match kept().or_else(handle) {
            Some(number) => call(number),
            None => loop {
                if let Err(errno) = sys::pause() {
                    break Err(errno);
                }
            },
        });
        end_use(object);
        result
    }
}

/// What the result of an operation means. One that has found the words sealed waits until the state
/// is in the kernel.
pub(crate) fn conclude<M: Migratable, T>(object: &M, result: Result<T, Error>) -> Attempt<T> {
    match result {
        Ok(value) => {
            count_avoided();
            Attempt::Done(value)
        }
        Err(Error::Sealed) => {
            step!(attempt_sealed);
            if let Some(residence) = object.residence() {
                residence.wait_until_settled();
            }
            step!(attempt_settled);
            if object.is_sealed() {
                return Attempt::InKernel;
            }
            if object.is_closed() {
                // The number still stands for it while its close is under way.
                migrate::wait_for_migrations();
            }
            Attempt::Again
        }
        Err(error) => Attempt::Failed(error),
    }
}

/// What becomes of an operation on an object whose state has gone to the kernel: it is the
/// kernel's, if the object does not come home. `None`: look the number up again, which says by now
/// whether it may. If it says so already nobody waits: a thread may be stopped with the lock.
pub(crate) fn in_kernel<M: Migratable, T>(fd: c_int, object: &'static M) -> Option<Verdict<T>> {
    let head = object.slot_head();
    let residence = || object.residence().map(Residence::now);
    if away::leaves_for_good(fd, head, || residence() == Some(Whereabouts::InKernel)) {
        return Some(Verdict::Kernel);
    }
    if table::stands_for(fd, head) {
        migrate::wait_for_migrations();
        if table::stands_for(fd, head) {
            duplicates::leave_lost(fd, head, || object.is_sealed());
        }
    }
    None
}

/// errno of an operation that has failed.
pub(crate) fn errno(error: Error) -> Errno {
    Errno::new(error.errno())
}
