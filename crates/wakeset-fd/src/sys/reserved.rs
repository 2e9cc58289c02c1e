//! Arrays with an entry for each descriptor number, of which most programs use the first few.
//!
//! The kernel counts memory that is private and writable against `RLIMIT_DATA`, used or not: a
//! program does not start where the statics of its libraries are more than that. So such an array
//! is address space that the first write reserves, all zero and read-only, which is not counted;
//! and a piece of it becomes writable before something is written to it. Where the kernel refuses
//! that, there is no entry, and the object of that number is the kernel's.

use super::raw;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// As many numbers as such an array has entries for at most. Higher ones are left to the kernel.
pub const NUMBERS: usize = 1 << 20;
/// How many pieces become writable one by one.
pub const PIECES: usize = 256;

/// What may stand in such an array.
///
/// # Safety
/// All-zero bytes are a value, which any thread may share.
pub unsafe trait Entry: Sync + 'static {
    /// Makes it zero, if it is not: what is zero may only be read.
    fn clear(&self);
}

macro_rules! entries {
    ($($atomic:ty),*) => {$(
        // SAFETY: zero.
        unsafe impl Entry for $atomic {
            #[inline]
            fn clear(&self) {
                if self.load(Ordering::SeqCst) != 0 {
                    self.store(0, Ordering::SeqCst);
                }
            }
        }
    )*};
}
entries!(AtomicU8, AtomicU64, AtomicUsize);

/// Raises the end of the entries that are in use. Mostly it is high enough, and a look costs a
/// fraction of a locked instruction.
#[inline]
pub fn raise(end: &AtomicU32, to: u32) {
    if end.load(Ordering::Relaxed) < to {
        end.fetch_max(to, Ordering::Relaxed);
    }
}

/// `N` entries, all zero before the first write. Each piece is a number of whole pages.
#[derive(Debug)]
pub struct Reserved<T: Entry, const N: usize> {
    /// Null before the first write.
    base: AtomicPtr<T>,
    /// How many entries can be read; 0 before the first write. Stored after `base`.
    len: AtomicUsize,
    /// Which pieces can be written to.
    writable: [AtomicU64; PIECES / 64],
}

impl<T: Entry, const N: usize> Reserved<T, N> {
    /// In each piece.
    const ENTRIES: usize = N / PIECES;

    /// Nothing is reserved yet.
    #[allow(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> Self {
        const { assert!((N / PIECES * size_of::<T>()).is_multiple_of(4096)) };
        Self {
            base: AtomicPtr::new(ptr::null_mut()),
            len: AtomicUsize::new(0),
            writable: [const { AtomicU64::new(0) }; PIECES / 64],
        }
    }

    /// An entry to be read, or to be written to if it is not zero. `None`: it is zero.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<&'static T> {
        // Acquire: the base was stored before.
        if index >= self.len.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: there are so many entries, all zero at first, and they are never unmapped.
        Some(unsafe { &*self.base.load(Ordering::Relaxed).add(index) })
    }

    /// An entry that has been [asked for](Self::place) to be written to, or one beside it.
    pub fn writable(&self, index: usize) -> Option<&'static T> {
        let entry = self.get(index)?;
        let piece = index / Self::ENTRIES;
        let word = self.writable.get(piece / 64)?.load(Ordering::Acquire);
        (word >> (piece % 64) & 1 == 1).then_some(entry)
    }

    /// Makes an entry zero, if there is one. Needs no memory.
    #[inline]
    pub fn clear(&self, index: usize) {
        if let Some(entry) = self.get(index) {
            entry.clear();
        }
    }

    /// The first `n` entries, to be read.
    ///
    /// # Safety
    /// `n` is 0, or an entry with an index not below `n - 1` has been [got](Self::get) before, in
    /// this thread or in one of which this thread has heard since.
    #[inline(always)]
    pub unsafe fn first(&self, n: usize) -> &'static [T] {
        if n == 0 {
            return &[];
        }
        // SAFETY: as for `get`: there are so many, and who has seen that has seen the base.
        unsafe { core::slice::from_raw_parts(self.base.load(Ordering::Relaxed), n) }
    }

    /// All entries, to be read.
    #[inline(always)]
    pub fn all(&self) -> &'static [T] {
        // Acquire: the base was stored before.
        let len = self.len.load(Ordering::Acquire);
        // SAFETY: there are so many.
        unsafe { self.first(len) }
    }

    /// An entry to be written to. `None`: there is no such entry, or no memory for it.
    pub fn place(&self, index: usize) -> Option<&'static T> {
        let entry = self.get(index).or_else(|| self.get_reserved(index))?;
        let piece = index / Self::ENTRIES;
        let (word, bit) = (self.writable.get(piece / 64)?, 1 << (piece % 64));
        if word.load(Ordering::Acquire) & bit == 0 {
            self.unlock(piece)?;
            word.fetch_or(bit, Ordering::Release);
        }
        Some(entry)
    }

    /// An entry for which nothing was reserved.
    #[cold]
    fn get_reserved(&self, index: usize) -> Option<&'static T> {
        if self.len.load(Ordering::Acquire) == 0 && index < N {
            self.reserve();
        }
        self.get(index)
    }

    /// Makes a piece writable. Several threads may be here for the same one.
    #[cold]
    fn unlock(&self, piece: usize) -> Option<()> {
        let first: *const T = self.get(piece * Self::ENTRIES)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        raw!(mprotect, first, Self::ENTRIES * size_of::<T>(), access).ok().map(drop)
    }

    /// Reserves the address space, or a part of it where that is scarce. Of several threads one
    /// does; the others may find nothing yet, and leave what they make to the kernel.
    #[cold]
    fn reserve(&self) {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let reserve = |len: usize| {
            let bytes = len * size_of::<T>();
            let start = raw!(mmap, 0, bytes, libc::PROT_READ, kind, -1_isize, 0).ok()?;
            Some((start as *mut T, len))
        };
        let parts = [N, N / 16, Self::ENTRIES];
        let Some((start, len)) = parts.into_iter().find_map(reserve) else { return };
        let null = ptr::null_mut();
        match self.base.compare_exchange(null, start, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => {
                #[cfg(test)]
                tests::note_root(start.cast(), len * size_of::<T>());
                self.len.store(len, Ordering::Release);
            }
            Err(_) => _ = raw!(munmap, start, len * size_of::<T>()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells LeakSanitizer, where the tests run with it, that this memory refers to what is used.
    pub(super) fn note_root(start: *mut core::ffi::c_void, bytes: usize) {
        type Register = unsafe extern "C" fn(*const core::ffi::c_void, usize);
        // SAFETY: a C string; the function of that name and type.
        unsafe {
            let found = libc::dlsym(libc::RTLD_DEFAULT, c"__lsan_register_root_region".as_ptr());
            if !found.is_null() {
                core::mem::transmute::<*mut core::ffi::c_void, Register>(found)(start, bytes);
            }
        }
    }
    extern crate std;

    #[test]
    fn an_entry_can_be_written_after_it_was_asked_for() {
        static ARRAY: Reserved<AtomicUsize, NUMBERS> = Reserved::new();
        assert!(ARRAY.get(0).is_none(), "nothing is reserved");
        for index in [5, NUMBERS - 1, NUMBERS / 2] {
            ARRAY.place(index).unwrap().store(index, Ordering::SeqCst);
        }
        let found = |index| ARRAY.get(index).unwrap().load(Ordering::SeqCst);
        assert_eq!([5, NUMBERS - 1, 6].map(found), [5, NUMBERS - 1, 0]);
        // In a piece that cannot be written to.
        assert_eq!(found(NUMBERS / 4), 0);
        assert!(ARRAY.place(NUMBERS).is_none() && ARRAY.get(NUMBERS).is_none());
        [5, 6, NUMBERS / 4, NUMBERS].into_iter().for_each(|index| ARRAY.clear(index));
        assert_eq!([5, NUMBERS - 1].map(found), [0, NUMBERS - 1]);
    }

    /// What the kernel counts against RLIMIT_DATA.
    #[test]
    fn only_what_is_written_to_is_counted() {
        static ARRAY: Reserved<AtomicUsize, NUMBERS> = Reserved::new();
        let writable_bytes = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let start = ARRAY.base.load(Ordering::SeqCst).addr();
            let end = start + NUMBERS * size_of::<usize>();
            let of_line = |line: &str| {
                let (range, access) = line.split_once(' ')?;
                let (from, to) = range.split_once('-')?;
                let hex = |text| usize::from_str_radix(text, 16).ok();
                let (from, to) = (hex(from)?.max(start), hex(to)?.min(end));
                (access.starts_with("rw") && from < to).then(|| to - from)
            };
            maps.lines().filter_map(of_line).sum::<usize>()
        };
        assert!(ARRAY.writable(3).is_none());
        ARRAY.place(3).unwrap();
        assert!(ARRAY.writable(3).is_some() && ARRAY.writable(NUMBERS - 1).is_none());
        assert_eq!(writable_bytes(), NUMBERS / PIECES * size_of::<usize>());
        ARRAY.place(4).unwrap();
        assert_eq!(writable_bytes(), NUMBERS / PIECES * size_of::<usize>());
        ARRAY.place(NUMBERS - 1).unwrap();
        assert_eq!(writable_bytes(), 2 * (NUMBERS / PIECES) * size_of::<usize>());
    }
}
