//! What the objects of the table are to the rooms that do not know their kinds: something to watch,
//! to close and to migrate.

use crate::sys::Errno;
use crate::table::kept::KeptFile;
use crate::table::slot::SlotHead;
use core::ffi::c_int;
use core::sync::atomic::AtomicUsize;
use wakeset::{DetachedWatch, Event, Events, Source};

/// An in-process object: a set, a source, or an end of a pair.
pub(crate) trait Object: Source {
    fn head(&self) -> &SlotHead;

    /// What holds, for a call that has found the object under a number. `None`: it had ended when
    /// it was looked at, so that the number stands for something else, or for nothing.
    fn poll_found(&self) -> Option<Events>;

    /// As a set, if it is one.
    fn as_host(&'static self) -> Option<&'static dyn Host> {
        None
    }

    /// The number is about to be closed. Calls may still be asleep in the object; nobody may touch
    /// the number any more.
    fn lose_number(&self);

    /// Ends the object: nobody uses it any more.
    fn finalize(&self);

    /// Its number was closed by a call that was not seen. Whether it has to migrate for that,
    /// because what the close means to others is the kernel's to tell.
    fn begin_close(&self) -> bool {
        false
    }

    /// Whether a close of its number has begun.
    fn is_closing(&self) -> bool {
        false
    }

    /// The file for those that sleep in the object when its number goes. `None`: no call that
    /// sleeps in it would be told anything more.
    fn kept(&self) -> Option<&KeptFile> {
        None
    }

    /// Takes note of a change of `O_NONBLOCK` that the kernel object has made.
    fn set_nonblocking(&self, _: bool) {}

    /// Whether a read takes one of what it holds, as `EFD_SEMAPHORE` asks for.
    fn is_semaphore(&self) -> bool {
        false
    }

    /// Before a watch with `EPOLLEXCLUSIVE` is added to it, or changed.
    fn note_exclusive(&self) {}

    /// Whether a watch that has just been added makes it the kernel's.
    fn is_overcrowded(&self) -> bool {
        false
    }

    /// The type of file that its number stands for, as in `st_mode`. 0 for what has none there:
    /// eventfds, timerfds and sets.
    fn file_type(&self) -> u32 {
        0
    }

    /// Whether its state has left, or is leaving.
    fn has_left(&self) -> bool;

    /// The object that has to migrate with it.
    fn companion(&self) -> Option<&'static SlotHead> {
        None
    }

    /// First part of a migration: takes the state out, so that operations wait. Whether it was this
    /// object's part to do so, and to take the next steps.
    fn seal(&self) -> bool;

    /// Second part: wakes blocked threads, and gives the state to the kernel object. Returns how
    /// many of them slept.
    fn carry(&self) -> usize;

    /// Whether the kernel may have something to report that a watch has not reported here.
    fn may_report(&self, watch: &DetachedWatch) -> bool {
        watch.pending
    }

    /// Last part: the state is in the kernel, and operations go there.
    fn settle(&self);
}

/// A set, as a migration sees it. The caller of each holds the migrations lock.
pub(crate) trait Host: Object {
    /// Whether it can never migrate.
    fn is_fixed(&self) -> bool;

    fn is_closed(&self) -> bool;

    /// Whether everything in it is, or is about to be, in the kernel half.
    fn is_in_kernel(&self) -> bool;

    /// From here on additions wait, and then go to the kernel.
    fn begin_migration(&self);

    /// What it watches in process that has a number, or had one.
    fn each_watched(&self, f: &mut dyn FnMut(&'static SlotHead));

    /// Whether it watches nothing in process.
    fn is_empty(&self) -> bool;

    /// Puts a watch of `source` that leaves user space into the kernel half. `quiet`: no thread is
    /// between a source and its watches.
    fn take_over(&self, watch: &DetachedWatch, source: &'static SlotHead, quiet: bool);

    /// A batch has put watches into the kernel half, and goes on with others.
    fn note_taken_over(&self);

    /// A set in this one is about to migrate: until that is over, this one does not hear of it.
    /// Called again when it is.
    fn toggle_unsettled(&self);

    /// Makes the number tell of both halves, for a set that stays.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM, ENOSPC: there is no doorbell to be had.
    fn export(&self) -> Result<(), Errno>;

    /// Nothing is left here: the set is the kernel epoll.
    fn arrive(&self);

    /// Whether the kernel epoll that it is by now may become a set again.
    fn may_return(&self) -> bool {
        false
    }

    /// Before a source in the kernel half comes home: whether the set can watch it here. If so, a
    /// wait that finds nothing waits for the end of that, which is
    /// [`toggle_unsettled`](Self::toggle_unsettled).
    fn begin_return(&self, _: Event) -> bool {
        false
    }

    /// Takes the watch of such a source out of the kernel half; whether it was there.
    fn give_up_watch(&self, _: c_int, _: Event) -> bool {
        false
    }

    /// Watches such a source here; whether that could be done.
    fn take_back(&self, _: c_int, _: &'static SlotHead, _: Event) -> bool {
        false
    }

    /// The same in the kernel half, as before.
    fn leave_watch(&self, _: c_int, _: Event) {}

    /// The migration's lists.
    fn lists(&self) -> &Lists;
}

/// Lists of sets that a migration makes, linked through the sets themselves: 0 for a set that is
/// not in the list. The migrations lock guards them.
#[derive(Debug)]
pub(crate) struct Lists {
    /// The next of the sets that are unsettled.
    pub(crate) unsettled: AtomicUsize,
    /// The next of the sets whose kernel half a migration has changed.
    pub(crate) touched: AtomicUsize,
}

impl Lists {
    pub(crate) const fn new() -> Self {
        Self { unsettled: AtomicUsize::new(0), touched: AtomicUsize::new(0) }
    }
}
