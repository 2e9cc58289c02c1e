//! Which descriptors and data the members of a set have, for a change of another watch: it is the
//! kernel's call, and takes no lock. A server changes one watch or more for each connection.
//!
//! | a thread that changes another watch | the holder of the lock |
//! |---|---|
//! | leaves a bit of the watch's data | begins a version |
//! | looks for its descriptor and its data in the outline of a whole version | looks for the bits of its members' data |
//! | goes to the kernel, unless it has found one or the version is another by now | ends the version, with an outline of the members |
//! | before that, if a member with this data was there before: notes that with what is remembered of it, and looks at the version again | in a version of its own: believes what is remembered |
//!
//! So of two watches that come to have the same data at a time, one is known to the other. Under
//! loom this file runs as it is.

use super::Member;
use crate::sys::sync::{
    AtomicI32, AtomicU32, AtomicU64, Ordering, after_publishing, array_of, const_fn, fence, mutant,
};
use core::ffi::c_int;
use wakeset::mutated;

/// Members in an outline; a set that has had more has none.
const MOST: usize = 2;

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Outline {
    /// Odd while the lock is held by a thread that may change the members.
    version: AtomicU32,
    /// -1 for none.
    fds: [AtomicI32; MOST],
    data: [AtomicU64; MOST],
}

impl Outline {
    const_fn! {
        /// Of no members.
        pub(super) const fn none() -> Self {
            Self {
                version: AtomicU32::new(0),
                fds: array_of![AtomicI32::new(-1); MOST],
                data: array_of![AtomicU64::new(0); MOST],
            }
        }
    }

    /// The members may change from here on. The caller holds the lock.
    pub(super) fn begin_version(&self) {
        if self.version.load(Ordering::Relaxed).is_multiple_of(2) {
            self.version.fetch_add(1, Ordering::SeqCst);
            // Before any bit of the data of others is looked at.
            if !mutant!("outline_without_fence") {
                fence(Ordering::SeqCst);
            }
        }
    }

    /// The members are these. The caller holds the lock.
    pub(super) fn end_version(&self, members: &[Member]) {
        let mut known = members.iter().filter(|member| member.is_some());
        for (fd, data) in self.fds.iter().zip(&self.data) {
            let member = known.next();
            fd.store(member.map_or(-1, |member| member.fd), Ordering::Relaxed);
            data.store(member.map_or(0, |member| member.data), Ordering::Relaxed);
        }
        if known.next().is_none() {
            self.version.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The version in which no member has this descriptor, nor this data if there is any. The
    /// caller has just left the bit of the data, which is a read-modify-write.
    #[inline(always)]
    pub(super) fn leaves_out(&self, fd: c_int, data: Option<u64>) -> Option<u32> {
        after_publishing(mutant!("data_without_fence"));
        let version = self.version.load(Ordering::SeqCst);
        let has_fd = self.fds.iter().any(|known| known.load(Ordering::Acquire) == fd);
        let has_data = self.fds.iter().zip(&self.data).any(|(fd, known)| {
            let known = known.load(Ordering::Acquire);
            fd.load(Ordering::Acquire) >= 0 && data == Some(known)
        });
        let is_left_out = version.is_multiple_of(2)
            && !has_fd
            && (!has_data || mutated!("same_data_is_left_out"))
            && (self.is_still(version) || mutant!("outline_without_second_look"));
        is_left_out.then_some(version)
    }

    /// The version, odd while it may not be whole.
    #[inline(always)]
    pub(super) fn version(&self) -> u32 {
        self.version.load(Ordering::SeqCst)
    }

    /// Whether the members are still those of this version.
    #[inline(always)]
    pub(super) fn is_still(&self, version: u32) -> bool {
        self.version.load(Ordering::SeqCst) == version
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn leaves_out(outline: &Outline, fd: c_int, data: Option<u64>) -> bool {
        outline.leaves_out(fd, data).is_some()
    }

    const MEMBER: Member = Member { fd: 3, data: 7, ..Member::NONE };

    #[test]
    fn an_outline_has_its_members() {
        let outline = Outline::none();
        assert!(leaves_out(&outline, 3, Some(0)), "no member has any data");
        outline.begin_version();
        assert!(!leaves_out(&outline, 3, None), "they change");
        outline.end_version(&[Member::NONE, MEMBER]);
        assert!(!leaves_out(&outline, 3, None) && leaves_out(&outline, 4, None));
        assert!(!leaves_out(&outline, 4, Some(7)), "its events are taken for the listener's");
        assert!(leaves_out(&outline, 4, Some(8)));
    }

    #[test]
    fn too_many_members_have_no_outline() {
        let outline = Outline::none();
        outline.begin_version();
        outline.end_version(&[MEMBER; 3]);
        assert!(!leaves_out(&outline, 4, None));
        outline.begin_version();
        outline.end_version(&[MEMBER]);
        assert!(leaves_out(&outline, 4, None));
    }
}
