//! Memory for the pointers of a program.

use crate::program::At;

const PAGE: usize = 4096;

/// Where call arguments are put that programs cannot choose the address of: offsets in the first
/// page, above everything that [`Memory::place`] gives out.
pub(super) const ARGUMENT: usize = 2048;
pub(super) const ARGUMENT_2: usize = 2304;
pub(super) const ARGUMENT_3: usize = 2560;
pub(super) const ARGUMENT_4: usize = 3072;

/// Four pages: one that can be read and written, one without access, one that can only be read, and
/// one without access.
#[derive(Debug)]
pub(super) struct Memory {
    base: usize,
}

impl Memory {
    /// `place`: which of several in one process. `shared`: forked children write to it, too.
    pub fn new(place: usize, shared: bool) -> Self {
        // Low enough that the largest buffer of events there may be still ends in user memory,
        // which the kernel checks before anything else. SAFETY: a fresh mapping, placed where
        // nothing is mapped.
        unsafe {
            let kind = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
            let all = 4 * PAGE;
            let base = libc::mmap(
                ((1_usize << 36) + 16 * place * PAGE) as *mut libc::c_void,
                all,
                libc::PROT_READ | libc::PROT_WRITE,
                kind | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(base, libc::MAP_FAILED, "no memory for the programs' buffers");
            for (page, access) in [(1, libc::PROT_NONE), (2, libc::PROT_READ), (3, libc::PROT_NONE)]
            {
                assert_eq!(libc::mprotect(base.byte_add(page * PAGE), PAGE, access), 0);
            }
            Self { base: base as usize }
        }
    }

    /// The address of the first byte.
    pub fn first(&self) -> usize {
        self.base
    }

    /// The address of a buffer. [`At::Before`] counts in units of `unit` bytes.
    pub fn place(&self, at: At, unit: usize) -> usize {
        match at {
            At::Good => self.base,
            At::Null => 0,
            At::Low => 8,
            At::High => 1 << 63,
            At::Forbidden => self.base + PAGE,
            At::ReadOnly => self.base + 2 * PAGE,
            At::Before(n) => self.base + PAGE - usize::from(n) * unit,
        }
    }

    /// Puts `value` where [`place`](Self::place) says, if it fits there, and returns that address.
    /// [`At::ReadOnly`] is taken for good: the page would do for a call that only reads, but then
    /// all programs would pass the same value.
    pub fn put_at<T: Copy>(&self, at: At, value: T) -> usize {
        match at {
            At::Good | At::ReadOnly => self.put(ARGUMENT, value),
            At::Before(_) if Self::is_readable::<T>(at) => {
                self.put(self.place(at, 1) - self.base, value)
            }
            _ => self.place(at, 1),
        }
    }

    /// Whether a `T` that [`put_at`](Self::put_at) has put can be read.
    pub fn is_readable<T>(at: At) -> bool {
        match at {
            At::Good | At::ReadOnly => true,
            At::Before(n) => usize::from(n) >= size_of::<T>(),
            _ => false,
        }
    }

    /// Puts a value at an offset of the first page, and returns its address.
    pub fn put<T: Copy>(&self, offset: usize, value: T) -> usize {
        debug_assert!((ARGUMENT..PAGE).contains(&offset));
        let address = self.base + offset;
        // SAFETY: the first page can be written, and belongs to this memory.
        unsafe { (address as *mut T).write_unaligned(value) };
        address
    }

    /// The value at an address of the first page. `T` must be a type of which any bits are a value.
    pub fn get<T: Copy>(&self, address: usize) -> T {
        debug_assert!((self.base..self.base + PAGE).contains(&address));
        // SAFETY: as above; every caller's `T` is made of numbers.
        unsafe { (address as *const T).read_unaligned() }
    }

    /// Fills the first `len` bytes of a buffer, which lie in the first page, with copies of
    /// `value`.
    pub fn fill(&self, address: usize, value: u64, len: u8) {
        debug_assert!((self.base..=self.base + PAGE - usize::from(len)).contains(&address));
        // SAFETY: the bytes are in the first page, and no more than there are in the array.
        unsafe {
            std::ptr::copy_nonoverlapping(
                [value; 32].as_ptr().cast(),
                address as *mut u8,
                len.into(),
            )
        };
    }

    /// The first `len` bytes of a buffer, which lie in the first page.
    pub fn bytes(&self, address: usize, len: usize) -> &[u8] {
        debug_assert!((self.base..=self.base + PAGE - len).contains(&address));
        // SAFETY: the bytes are in the first page, which nothing writes while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(address as *const u8, len) }
    }

    /// Puts an iovec(3type) of one piece at an offset, and `value` as the piece. Returns the
    /// addresses of both.
    pub fn put_vector<T: Copy>(&self, offset: usize, value: T) -> (usize, usize) {
        let piece = self.put(offset + 64, value);
        let vector = libc::iovec { iov_base: piece as *mut libc::c_void, iov_len: size_of::<T>() };
        (self.put(offset, vector), piece)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        unsafe { libc::munmap(self.base as *mut libc::c_void, 4 * PAGE) };
    }
}
