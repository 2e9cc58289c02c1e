//! Which addresses pass: the kernel lets one range of addresses pass, or all but one.

use super::Look;
use syscalls::{Sysno, syscall};

/// Addresses from `start` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Range {
    pub(crate) const NONE: Self = Self { start: 0, end: 0 };

    pub(crate) fn len(self) -> usize {
        self.end.saturating_sub(self.start)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub(crate) fn contains(self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The smallest range around both.
    pub(crate) fn around(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// Maps what is free in a range, without access: nothing that comes later is to lie between ours.
/// The loader has unmapped things of its own there, and the kernel fills such gaps first.
pub(super) fn fill(range: Range) {
    const PAGE: usize = 4096;
    let (start, len) = (range.start, range.len());
    // SAFETY: changes nothing; fails if a page is free.
    if len == 0 || unsafe { syscall!(Sysno::msync, start, len, libc::MS_ASYNC) }.is_ok() {
        return;
    }
    let kind =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: takes only what is free. An old kernel takes the address for a wish.
    let mapped = unsafe { syscall!(Sysno::mmap, start, len, libc::PROT_NONE, kind, -1_isize, 0) };
    if mapped.is_err() && len > PAGE {
        let middle = start + (len / PAGE / 2) * PAGE;
        fill(Range { start, end: middle });
        fill(Range { start: middle, end: range.end });
    }
}

/// The calls that raise SIGSYS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// All that do not come from here: our library, libc, and what else fits.
    AllBut(Range),
    /// Those that come from here, where the program's instructions are. Linux has it since 6.17.
    Only(Range),
}

impl Shape {
    /// The best one for what a look has found, or `None` if our calls and the program's cannot be
    /// told apart by one range.
    ///
    /// `AllBut` is the better one: it also sees what comes later. It costs nothing but for the
    /// loader and the vDSO, where these are not in the range.
    pub(crate) fn of(look: &Look) -> Option<Self> {
        let is_clean = |range: Range| !look.foreign().any(|foreign| foreign.overlaps(range));
        let mut passes = look.own.around(look.libc);
        if !look.own.is_empty() && !look.libc.is_empty() && is_clean(passes) {
            for range in [look.loader, look.vdso] {
                if is_clean(passes.around(range)) {
                    passes = passes.around(range);
                }
            }
            return Some(Self::AllBut(passes));
        }
        let caught = look.foreign().fold(Range::NONE, Range::around);
        let trusted = [look.own, look.libc, look.loader];
        let is_apart = look.is_complete && !trusted.into_iter().any(|range| range.overlaps(caught));
        is_apart.then_some(Self::Only(caught))
    }

    /// Whether calls from all of these addresses are caught.
    pub(crate) fn catches(self, code: Range) -> bool {
        match self {
            Self::AllBut(range) => !range.overlaps(code),
            Self::Only(range) => range.start <= code.start && code.end <= range.end,
        }
    }
}
