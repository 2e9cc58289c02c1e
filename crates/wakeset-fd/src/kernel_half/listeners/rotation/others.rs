//! Which data the watches outside the rotation have: an event is taken for a listener's by its
//! data, so a member is *ambiguous* while another watch of the set may have the same.
//!
//! Each watch outside leaves a bit of its data, which says too much the more of them there have
//! been. So what was known of a member's data stays known when the program removes its watch, and
//! is believed when it adds one with that data again: nginx does so after every 16 connections.
//!
//! Under loom this file runs as it is, beside `outline`, which has the table of who looks at what.

use super::Member;
use super::outline::Outline;
use crate::sys::sync::{
    AtomicBool, AtomicI32, AtomicU64, Ordering, array_of, const_fn, fence, mutant,
};
use core::ffi::c_int;
use wakeset::mutated;

/// Words with a bit for the data of each watch.
const WORDS: usize = 8;

/// The word with the bit for the data of a watch, and the bit; other data has the same.
fn bit_of(data: u64) -> (usize, u64) {
    let hash = data.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((hash >> 58) as usize % WORDS, 1 << (hash >> 52 & 63))
}

/// The data of a member that was removed or changed, and whether another watch may have the same.
/// Changed with the lock held, but for a watch that comes to have that data.
#[derive(Debug)]
struct Former {
    is_some: AtomicBool,
    data: AtomicU64,
    is_ambiguous: AtomicBool,
    /// Its number, -1 once that has a watch again; and its inode, 0 if that is not known.
    fd: AtomicI32,
    inode: AtomicU64,
}

impl Former {
    const_fn! {
        const fn none() -> Self {
            Self {
                is_some: AtomicBool::new(false),
                data: AtomicU64::new(0),
                is_ambiguous: AtomicBool::new(false),
                fd: AtomicI32::new(-1),
                inode: AtomicU64::new(0),
            }
        }
    }

    fn is_some(&self) -> bool {
        self.is_some.load(Ordering::Relaxed)
    }

    fn has(&self, data: u64) -> bool {
        self.is_some() && self.data.load(Ordering::Relaxed) == data
    }

    /// Another watch has this data. Whether this is so.
    fn note(&self, data: u64) -> bool {
        let has = self.has(data);
        if has {
            self.is_ambiguous.store(true, Ordering::Relaxed);
        }
        has
    }
}

#[derive(Debug)]
pub(super) struct Others {
    words: [AtomicU64; WORDS],
    former: Former,
}

impl Others {
    const_fn! {
        pub(super) const fn none() -> Self {
            Self { words: array_of![AtomicU64::new(0); WORDS], former: Former::none() }
        }
    }

    /// For a new set.
    pub(super) fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.former.is_some.store(false, Ordering::Relaxed);
    }

    /// Whether a member is remembered: each watch that is added is compared with it.
    pub(super) fn remember_any(&self) -> bool {
        self.former.is_some()
    }

    /// A member is about to be removed or changed.
    pub(super) fn remember(&self, member: &Member) {
        self.former.data.store(member.data, Ordering::Relaxed);
        self.former.is_ambiguous.store(member.is_ambiguous, Ordering::Relaxed);
        self.former.fd.store(member.fd, Ordering::Relaxed);
        self.former.inode.store(member.inode.unwrap_or(0), Ordering::Relaxed);
        self.former.is_some.store(true, Ordering::Relaxed);
    }

    /// This number has a watch again.
    pub(super) fn forget_number(&self, fd: c_int) {
        if self.remember_number(fd) {
            self.former.fd.store(-1, Ordering::Relaxed);
        }
    }

    /// Whether the member that was removed or changed last is remembered, had this number, and has
    /// not been added since.
    pub(super) fn remember_number(&self, fd: c_int) -> bool {
        self.former.is_some() && self.former.fd.load(Ordering::Relaxed) == fd
    }

    /// The same, and was the listener with this inode. The caller holds the lock.
    pub(super) fn remember_listener(&self, fd: c_int, inode: u64) -> bool {
        self.remember_number(fd) && self.former.inode.load(Ordering::Relaxed) == inode
    }

    /// The kernel half has watches of which nothing is known.
    pub(super) fn note_unknown(&self) {
        self.words.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
    }

    /// A watch that is not in the rotation has this data.
    pub(super) fn note(&self, data: u64) {
        let (word, bit) = bit_of(data);
        if let Some(word) = self.words.get(word) {
            // For `outline`.
            word.fetch_or(bit, Ordering::SeqCst);
        }
        self.former.note(data);
    }

    /// Whether a watch that is not in the rotation may have this data.
    pub(super) fn may_have(&self, data: u64) -> bool {
        if self.former.has(data) && !mutated!("renewed_watch_is_ambiguous") {
            return self.former.is_ambiguous.load(Ordering::Relaxed);
        }
        let (word, bit) = bit_of(data);
        self.words.get(word).is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Before a watch of this descriptor is removed, or has this data: whether it is no member's,
    /// and none is taken for it. The data is noted then. Without the lock.
    #[inline(always)]
    pub(super) fn are_apart(&self, outline: &Outline, fd: c_int, data: Option<u64>) -> bool {
        let late = mutant!("data_noted_late");
        let note = |when: bool| {
            if let Some(data) = data.filter(|_| when) {
                self.note(data);
            }
        };
        // Before the look, and after it for what has become of a member before.
        note(!late);
        let version = outline.leaves_out(fd, data);
        note(late);
        let (Some(version), Some(data)) = (version, data) else { return version.is_some() };
        if !self.former.note(data) || mutant!("former_noted_unseen") {
            return true;
        }
        // A member that is added with that data again may have looked at the note before.
        fence(Ordering::SeqCst);
        outline.is_still(version)
    }

    /// After a watch of this descriptor was added or changed: an event with its data may be its
    /// own. The caller holds the lock.
    pub(super) fn mark_same(&self, members: &mut [Member], fd: c_int, data: u64) {
        let is_member = members.iter().any(|member| member.fd == fd);
        let has_same = |member: &Member| member.is_some() && member.fd != fd && member.data == data;
        let others = members.iter_mut().filter(|member| has_same(member));
        let found = others.map(|member| member.is_ambiguous = true).count() > 0;
        if !is_member {
            self.note(data);
        }
        let is_ambiguous = found || self.may_have(data);
        if let Some(own) = members.iter_mut().find(|member| member.fd == fd) {
            own.is_ambiguous |= is_ambiguous;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// nginx removes and adds its watch again and again: once it had some dozens of connections,
    /// one of them seemed to have the listener's data, and the worker stepped back no more.
    #[test]
    fn a_watch_that_is_added_again_is_known() {
        let others = Others::none();
        let member = Member { fd: 3, data: 7, ..Member::NONE };
        assert!(!others.may_have(7));
        others.remember(&member);
        (100..10_000).for_each(|data| others.note(data));
        assert!(!others.may_have(7));
        assert!(others.may_have(8), "nothing is known of it");
        others.note(7);
        assert!(others.may_have(7));
        others.remember(&Member { data: 8, ..member });
        assert!(!others.may_have(8) && others.may_have(7));
    }
}
