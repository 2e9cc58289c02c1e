//! Which data the members of a rotation and other watches have: as in every build.

#[path = "../../../src/kernel_half/listeners/rotation/others.rs"]
mod others;
#[path = "../../../src/kernel_half/listeners/rotation/outline.rs"]
mod outline;

use core::ffi::c_int;
use loom::sync::Mutex;
use others::Others;
use outline::Outline;

/// What these files know of a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) fd: c_int,
    pub(crate) data: u64,
    pub(crate) is_ambiguous: bool,
    pub(crate) inode: Option<u64>,
}

impl Member {
    pub(crate) const NONE: Self = Self { fd: -1, data: 0, is_ambiguous: false, inode: None };

    pub(crate) fn is_some(&self) -> bool {
        self.fd >= 0
    }
}

/// The part of a rotation that has to do with them, as `ctl` changes it.
#[derive(Debug)]
pub(crate) struct Members {
    members: Mutex<[Member; 2]>,
    others: Others,
    outline: Outline,
}

impl Members {
    pub(crate) fn none() -> Self {
        let members = Mutex::new([Member::NONE; 2]);
        Self { members, others: Others::none(), outline: Outline::none() }
    }

    fn with(&self, change: impl FnOnce(&mut [Member; 2])) {
        let mut members = self.members.lock().unwrap();
        self.outline.begin_version();
        change(&mut members);
        self.outline.end_version(&members[..]);
    }

    /// A listener joins, in this place.
    pub(crate) fn add(&self, place: usize, fd: c_int, data: u64) {
        self.with(|members| {
            members[place] = Member { fd, data, is_ambiguous: false, inode: None };
            self.others.mark_same(members, fd, data);
        });
    }

    pub(crate) fn remove(&self, place: usize) {
        self.with(|members| {
            self.others.remember(&members[place]);
            members[place] = Member::NONE;
        });
    }

    /// A watch that is no listener's has this data.
    pub(crate) fn add_other(&self, fd: c_int, data: u64) {
        if !self.others.are_apart(&self.outline, fd, Some(data)) {
            self.with(|members| self.others.mark_same(members, fd, data));
        }
    }

    pub(crate) fn is_ambiguous(&self, place: usize) -> bool {
        self.members.lock().unwrap()[place].is_ambiguous
    }
}
