//! The memory of a read or write: one buffer, or several.

use crate::sys::user;
use crate::sys::{self, Errno};
use core::ffi::c_int;
use libc::iovec;
use wakeset::mutated;

/// As many buffers are looked at here.
const MOST: usize = 16;
/// The longest read or write: what is longer the kernel shortens.
const LONGEST: usize = 0x7fff_f000;

/// The caller's buffers, all of them in user memory, as far as their addresses tell.
#[derive(Clone, Copy)]
pub(super) struct Buffers<'a> {
    vectors: &'a [iovec],
    len: usize,
}

/// [`Buffers`] of one buffer.
pub(super) fn one(buffer: *mut u8, len: usize) -> [iovec; 1] {
    [iovec { iov_base: buffer.cast(), iov_len: len }]
}

/// The buffers of readv(2) and its kin, from the caller's memory: an array whose first so many are
/// there. `None`: they are left to the kernel.
pub(super) fn load(vectors: *const iovec, n: usize) -> Option<([iovec; MOST], usize)> {
    let mut loaded = [iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; MOST];
    for (i, place) in loaded.get_mut(..n)?.iter_mut().enumerate() {
        // SAFETY: any bits are an iovec.
        *place = unsafe { user::load(vectors.wrapping_add(i)) }?;
    }
    Some((loaded, n))
}

impl<'a> Buffers<'a> {
    /// `None`: an address or a length is the kernel's to judge.
    pub(super) fn of(vectors: &'a [iovec]) -> Option<Self> {
        let mut len = 0_usize;
        for vector in vectors.iter().filter(|vector| vector.iov_len != 0) {
            len = len.checked_add(vector.iov_len).filter(|len| *len <= LONGEST)?;
            if !sys::is_plausible(vector.iov_base, vector.iov_len) {
                return None;
            }
        }
        Some(Self { vectors, len })
    }

    pub(super) fn len(self) -> usize {
        self.len
    }

    fn parts(self) -> impl Iterator<Item = (*mut u8, usize)> {
        self.vectors.iter().map(|vector| (vector.iov_base.cast(), vector.iov_len))
    }

    /// Fills `bytes`, which are as many as there are in the buffers. `false`: some are not there.
    ///
    /// # Safety
    /// The buffers are the caller's to give.
    pub(super) unsafe fn load(self, bytes: &mut [u8]) -> bool {
        let mut rest = bytes;
        self.parts().all(|(start, len)| {
            let Some((part, after)) = core::mem::take(&mut rest).split_at_mut_checked(len) else {
                return false;
            };
            rest = after;
            // SAFETY: the caller's contract.
            part.is_empty() || unsafe { user::load_bytes(start, part) }
        })
    }

    /// Whether `len` bytes can be stored in them.
    ///
    /// # Safety
    /// As [`load`](Self::load).
    pub(super) unsafe fn touch(self, len: usize) -> bool {
        let mut left = len;
        self.parts().all(|(start, len)| {
            let part = len.min(left);
            left -= part;
            // SAFETY: the caller's contract.
            unsafe { user::touch(start, part) }
        })
    }

    /// Stores `bytes` after the first `offset` ones. `false`: some cannot be stored.
    ///
    /// # Safety
    /// As [`load`](Self::load).
    pub(super) unsafe fn store(self, offset: usize, bytes: &[u8]) -> bool {
        let mut skip = if mutated!("vectors_begin_anew") { 0 } else { offset };
        let mut rest = bytes;
        self.parts().all(|(start, len)| {
            let begin = skip.min(len);
            skip -= begin;
            let (part, after) = rest.split_at(rest.len().min(len - begin));
            rest = after;
            // SAFETY: the caller's contract.
            part.is_empty() || unsafe { user::store_bytes(start.wrapping_add(begin), part) }
        })
    }

    /// readv(2) of another number.
    pub(super) fn read(self, number: c_int) -> Result<usize, Errno> {
        sys::raw!(readv, number, self.vectors.as_ptr(), self.vectors.len())
    }

    /// writev(2) to another number.
    pub(super) fn write(self, number: c_int) -> Result<usize, Errno> {
        sys::raw!(writev, number, self.vectors.as_ptr(), self.vectors.len())
    }
}
