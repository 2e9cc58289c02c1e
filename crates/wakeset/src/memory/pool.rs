//! Type-stable memory: what was once a `T` stays a `T` until the engine itself goes.
//!
//! A waker may hold the address of a watch or a set long after it was closed (it may be stopped by
//! a debugger in between), and takes no lock and pins no epoch that would tell us. So the memory is
//! never returned while the engine lives; it is only used again for another `T`, and the watch's
//! generation tells its uses apart.
//!
//! Giving back is lock-free (a push onto a stack). Taking out is guarded by a try-lock, so that
//! there is only one taker at a time and the stack has no ABA problem. No thread waits for a
//! taker, which may be stopped: there are several stacks, and a taker that finds one busy or empty
//! tries the next. If it finds nothing in any of them, it makes fresh memory. An element that is
//! given back goes to a stack that its address chooses. So free elements are spread over all
//! stacks, whichever threads give and take, and the pool stops growing at a few elements for each
//! thread beyond those in use.

use crate::error::Error;
use crate::sync::lock::ScanLock;
use crate::sync::thread_id;
use crate::sync::{AtomicPtr, Ordering};
use crate::testing::steps::step;
use alloc::alloc::{Layout, alloc, dealloc};
use core::ptr;

/// What can live in a [`Pool`].
pub(crate) trait Pooled: Sized {
    /// A new element, which is free.
    fn vacant() -> Self;
    /// The link of the free list. While an element is in use, its owner may use the link as it
    /// likes.
    fn link(&self) -> &AtomicPtr<Self>;
}

/// The header of a block of memory, which `len` elements follow.
struct Chunk<T> {
    next: *mut Chunk<T>,
    len: usize,
}

impl<T> Chunk<T> {
    fn layout(len: usize) -> Option<(Layout, usize)> {
        let (layout, first) = Layout::new::<Self>().extend(Layout::array::<T>(len).ok()?).ok()?;
        Some((layout.pad_to_align(), first))
    }
}

/// How many stacks a pool has. If as many threads are stopped in the middle of a take, all others
/// get fresh memory. The models need only one, because the stacks do not touch each other.
const STACKS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 8 };

/// A stack of free elements, in a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Stack<T> {
    free: AtomicPtr<T>,
    taker: ScanLock<()>,
}

/// A pool of type-stable `T`s.
#[derive(Debug)]
pub(crate) struct Pool<T: Pooled> {
    stacks: [Stack<T>; STACKS],
    chunks: AtomicPtr<Chunk<T>>,
}

impl<T: Pooled> Stack<T> {
    /// Takes out up to `want` elements. `None` if there are none, or if another thread is taking.
    fn take(&self, want: usize) -> Option<*mut T> {
        let only_taker = self.taker.try_lock();
        if only_taker.is_none() && !mutant!("two_takers") {
            return None;
        }
        let mut first = self.free.load(ordering!(Acquire, "free_list_read_relaxed"));
        while !first.is_null() {
            let mut last = first;
            for _ in 1..want {
                // SAFETY: `first` and what is linked after it is free and in the pool: pushes only
                // add before it, and we are the only taker.
                let next = unsafe { &*last }.link().load(Ordering::Relaxed);
                if next.is_null() {
                    break;
                }
                last = next;
            }
            // SAFETY: as above.
            let last_link = unsafe { &*last }.link();
            let rest = last_link.load(Ordering::Relaxed);
            step!(take_free_before);
            match self.free.compare_exchange(
                first,
                rest,
                Ordering::Acquire,
                ordering!(Acquire, "free_list_retry_relaxed"),
            ) {
                Ok(_) => {
                    step!(take_free_done);
                    last_link.store(ptr::null_mut(), Ordering::Relaxed);
                    return Some(first);
                }
                Err(pushed) => first = pushed,
            }
        }
        None
    }
}

impl<T: Pooled> Pool<T> {
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        let mut place = core::mem::MaybeUninit::uninit();
        // SAFETY: all of it is written.
        unsafe {
            Self::write_new(place.as_mut_ptr());
            place.assume_init()
        }
    }

    /// Writes one that has nothing, stack by stack.
    ///
    /// # Safety
    /// There is memory for one.
    pub(crate) unsafe fn write_new(place: *mut Self) {
        // A field that is not written is missing here.
        let _ = |Self { stacks: _, chunks: _ }: &Self| ();
        // SAFETY: the caller's contract.
        unsafe {
            let stacks = (&raw mut (*place).stacks).cast::<Stack<T>>();
            for index in 0..STACKS {
                let free = AtomicPtr::new(ptr::null_mut());
                stacks.add(index).write(Stack { free, taker: ScanLock::new(()) });
            }
            (&raw mut (*place).chunks).write(AtomicPtr::new(ptr::null_mut()));
        }
    }

    /// Takes out between one and `want` free elements, linked through [`Pooled::link`] and ended by
    /// null.
    ///
    /// # Errors
    /// [`Error::NoMemory`] when none is free and no memory can be had.
    pub(crate) fn take(&self, want: usize) -> Result<*mut T, Error> {
        // Threads begin at different stacks, so that they seldom meet.
        let begin = if STACKS == 1 { 0 } else { thread_id::current() as usize };
        let taken = (0..STACKS).find_map(|i| self.stacks[(begin + i) % STACKS].take(want));
        taken.map_or_else(|| self.grow(want), Ok)
    }

    /// Gives back the elements from `first` to `last`, which must be linked in that order.
    ///
    /// # Safety
    /// They come from this pool and are linked, and no other thread uses their links.
    pub(crate) unsafe fn give(&self, first: *mut T, last: *mut T) {
        let free = &self.stacks[first.addr() / size_of::<T>().max(1) % STACKS].free;
        let mut head = free.load(Ordering::Relaxed);
        loop {
            step!(give_before);
            // SAFETY: the caller owns `last`.
            unsafe { &*last }.link().store(head, Ordering::Relaxed);
            step!(give_linked);
            // Release: the taker's Acquire load sees the links and whatever the owners wrote.
            match free.compare_exchange(
                head,
                first,
                ordering!(Release, "give_relaxed"),
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        step!(given);
    }

    /// How many elements the pool has made, free or in use.
    #[cfg(any(test, loom, shuttle))]
    fn all(&self) -> usize {
        let (mut all, mut chunk) = (0, self.chunks.load(Ordering::Acquire));
        while !chunk.is_null() {
            // SAFETY: every chunk on the list was written by `grow`.
            (all, chunk) = unsafe { (all + (*chunk).len, (*chunk).next) };
        }
        all
    }

    /// How many elements are in use. For models, when no other thread uses the pool.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn out(&self) -> usize {
        let mut out = self.all();
        for stack in &self.stacks {
            let mut thing = stack.free.load(Ordering::Acquire);
            while !thing.is_null() {
                // SAFETY: on the free list.
                (out, thing) = (out - 1, unsafe { &*thing }.link().load(Ordering::Relaxed));
            }
        }
        out
    }

    fn grow(&self, len: usize) -> Result<*mut T, Error> {
        let (layout, offset) = Chunk::<T>::layout(len).ok_or(Error::NoMemory)?;
        // SAFETY: the layout holds a header and is not empty.
        let chunk = unsafe { alloc(layout) }.cast::<Chunk<T>>();
        if chunk.is_null() {
            return Err(Error::NoMemory);
        }
        // SAFETY: `offset` is where the layout places the first element.
        let first = unsafe { chunk.byte_add(offset) }.cast::<T>();
        for i in 0..len {
            // SAFETY: the layout has room for `len` elements from `first` on.
            unsafe {
                let thing = first.add(i);
                thing.write(T::vacant());
                let next = if i + 1 < len { first.add(i + 1) } else { ptr::null_mut() };
                (*thing).link().store(next, Ordering::Relaxed);
            }
        }
        let mut head = self.chunks.load(Ordering::Relaxed);
        loop {
            // SAFETY: the chunk is ours until it is pushed.
            unsafe { chunk.write(Chunk { next: head, len }) };
            step!(grow_before_push);
            match self.chunks.compare_exchange(head, chunk, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        step!(grown);
        Ok(first)
    }
}

impl<T: Pooled> Drop for Pool<T> {
    fn drop(&mut self) {
        let mut chunk = self.chunks.load(Ordering::Acquire);
        while !chunk.is_null() {
            // SAFETY: every chunk on the list was written by `grow`, and nobody uses the pool any
            // more.
            unsafe {
                let Chunk { next, len } = chunk.read();
                let Some((layout, offset)) = Chunk::<T>::layout(len) else { return };
                let first = chunk.byte_add(offset).cast::<T>();
                for i in 0..len {
                    ptr::drop_in_place(first.add(i));
                }
                dealloc(chunk.cast(), layout);
                chunk = next;
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

#[cfg(all(test, loom))]
mod models;
