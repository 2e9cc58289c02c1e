//! A poller as a migration sees it: a set that it finds by the watches which it detaches, and never
//! by a number.

use super::poller::Poller;
use crate::sys::Errno;
use crate::table::SlotHead;
use crate::table::object::{Host, Lists, Object};
use wakeset::{DetachedWatch, Events, SetRef, Source, WaitQueue};

impl Source for Poller {
    fn poll(&self) -> Events {
        self.set().poll()
    }

    fn wait_queue(&self) -> &WaitQueue {
        self.set().wait_queue()
    }

    fn as_set(&self) -> Option<SetRef<'_>> {
        self.set().as_set()
    }
}

impl Object for Poller {
    fn head(&self) -> &SlotHead {
        &self.head
    }

    fn poll_found(&self) -> Option<Events> {
        Some(self.poll())
    }

    fn as_host(&'static self) -> Option<&'static dyn Host> {
        Some(self)
    }

    fn lose_number(&self) {}

    fn finalize(&self) {}

    fn has_left(&self) -> bool {
        false
    }

    fn seal(&self) -> bool {
        false
    }

    fn carry(&self) -> usize {
        0
    }

    fn settle(&self) {}
}

impl Host for Poller {
    fn is_fixed(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        false
    }

    fn is_in_kernel(&self) -> bool {
        false
    }

    fn begin_migration(&self) {}

    fn each_watched(&self, _: &mut dyn FnMut(&'static SlotHead)) {}

    fn is_empty(&self) -> bool {
        self.set().is_empty()
    }

    /// The thread asks the kernel from now on.
    fn take_over(&self, _: &DetachedWatch, _: &'static SlotHead, _: bool) {
        self.note_moved();
    }

    fn note_taken_over(&self) {}

    fn toggle_unsettled(&self) {}

    fn export(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn arrive(&self) {}

    fn lists(&self) -> &Lists {
        &self.lists
    }
}
