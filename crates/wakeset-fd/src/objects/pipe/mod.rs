//! Pipes and pairs of stream sockets by descriptor number: the way in which an event loop wakes
//! itself.
//!
//! A pair lives here as long as each end that is open has one number, and what is in it is what
//! Linux would hold in the same way ([`wakeset::Pipe`]). When one end is closed, the other one
//! stays, and has its end of file or its hang-up here (`close`); so does one whose sockets are shut
//! down (`shutdown`). All else is the kernel's: `EPIPE` and `SIGPIPE` are Linux's own.
//!
//! Each end has a slot under its number. The pair is in the slot of the first end. A call that
//! comes late, with an end of a pair that is no more, has the number of that pair's generation, and
//! the pair's word tells it so.

mod buffers;
mod capacity;
mod carrier;
mod close;
mod create;
mod home;
mod io;
mod message;
mod shutdown;

pub(crate) use self::close::{give_up_all_kept, give_up_kept, were_kept};
pub use self::create::{pipe2, socketpair};
pub(crate) use self::home::{come_home, numbers_away};
pub use self::io::{
    bytes_in, count_kernel_send, is_end, is_end_for_buffers, is_end_for_bytes, read_fast, recv,
    send, write_fast,
};
pub(crate) use self::io::{read, write};
pub use self::message::{readv, recvmsg, sendmsg, writev};
pub use self::shutdown::shutdown;

use self::buffers::Buffers;
use self::carrier::Carrier;
use crate::objects::migratable::Migratable;
use crate::objects::residence::{Residence, Whereabouts};
use crate::sys;
use crate::sys::user;
use crate::table::kept::KeptFile;
use crate::table::{self, Slot, SlotHead};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use wakeset::{Error, Events, Pipe, PipeState, Source, WaitQueue, mutated};

/// One end.
///
/// A pipe's end 0 reads from pipe 0 of the pair, to which end 1 writes. A socket's end reads from
/// the pipe of its index and writes to the other one.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct FdPipe {
    head: SlotHead,
    /// [`SECOND`], [`SOCKET`], [`NONBLOCK`], and what `shutdown` keeps there. Written before
    /// `binding`, and read after it.
    mode: AtomicU32,
    /// Its number is about to be closed: nobody may use it any more.
    closing: AtomicBool,
    /// The pair: the address of the slot that holds it, and its generation.
    binding: AtomicU64,
    /// For reads that sleep in this end when its number is closed; for what this end has written
    /// and the other one has not read when its number is closed.
    kept: KeptFile,
    /// The address of the other end, if that was closed while this one was open: its slot is in
    /// use as long as this one. 0: none.
    closed_other: AtomicUsize,
    queue: WaitQueue,
    /// In use if this is the first end.
    pair: Pair,
}

/// What both ends share.
#[derive(Debug)]
struct Pair {
    residence: Residence,
    /// The addresses of both ends.
    ends: [AtomicUsize; 2],
    pipes: [Pipe; 2],
}

/// It is end 1.
const SECOND: u32 = 1;
const SOCKET: u32 = 2;
const NONBLOCK: u32 = 4;

/// Slots are 64-byte aligned and user addresses are below 2^48: 42 bits, and 22 for the generation.
const GENERATION_BITS: u32 = 22;

/// A pair, in one of its generations.
#[derive(Clone, Copy)]
struct Bound {
    pair: &'static Pair,
    generation: u32,
    mode: u32,
}

// SAFETY: `repr(C)` with the head first.
unsafe impl Slot for FdPipe {
    const KIND: usize = table::PIPE;

    fn allocate(head: SlotHead) -> Option<&'static Self> {
        sys::memory::leak(Self {
            head,
            mode: AtomicU32::new(0),
            closing: AtomicBool::new(false),
            binding: AtomicU64::new(0),
            kept: KeptFile::none(),
            closed_other: AtomicUsize::new(0),
            queue: WaitQueue::new(),
            pair: Pair {
                residence: Residence::nowhere(),
                ends: [const { AtomicUsize::new(0) }; 2],
                pipes: [Pipe::new(), Pipe::new()],
            },
        })
    }
}

impl FdPipe {
    #[inline(always)]
    fn bound(&self) -> Option<Bound> {
        let binding = self.binding.load(Ordering::Acquire);
        let address = (binding >> GENERATION_BITS << 6) as usize;
        // SAFETY: what `bind` stored leads to a slot of this kind, which is never freed.
        let holder = unsafe { (address as *const Self).as_ref() }?;
        let generation = binding as u32 & ((1 << GENERATION_BITS) - 1);
        Some(Bound { pair: &holder.pair, generation, mode: self.mode.load(Ordering::Acquire) })
    }

    /// Makes this an end of the pair in `holder`. Its wait queue is still closed.
    fn bind(&self, holder: &'static Self, generation: u32, mode: u32) {
        // Whoever has the binding has what is stored before it.
        self.mode.store(mode, Ordering::Relaxed);
        self.closing.store(false, Ordering::Relaxed);
        let address = ptr::from_ref(holder).expose_provenance() as u64;
        self.binding
            .store(address >> 6 << GENERATION_BITS | u64::from(generation), Ordering::Release);
    }

    /// What both pipes hold, as far as this end has to do with them; `None`: the pair is no more.
    fn states(&self) -> Option<(Bound, [Option<PipeState>; 2])> {
        let bound = self.bound()?;
        let state = |pipe: Option<&'static Pipe>| match pipe {
            None => Some(None),
            Some(pipe) => pipe.state(bound.generation).map(Some),
        };
        Some((bound, [state(bound.inward())?, state(bound.outward())?]))
    }
}

impl Migratable for FdPipe {
    const POLLED: i16 = libc::POLLIN
        | libc::POLLRDNORM
        | libc::POLLOUT
        | libc::POLLWRNORM
        | libc::POLLWRBAND
        | libc::POLLRDHUP;

    fn slot_head(&self) -> &SlotHead {
        &self.head
    }

    /// The pair's.
    fn residence(&self) -> Option<&Residence> {
        let bound = self.bound()?;
        bound.state(0)?;
        Some(&bound.pair.residence)
    }

    fn poll_here(&self) -> Option<Events> {
        let (bound, states) = self.states()?;
        let sealed = states.into_iter().flatten().all(|state| state.sealed);
        (!sealed).then(|| bound.events_of(states))
    }

    fn poll_carried(&self) -> Events {
        self.states().map_or(Events::empty(), |(bound, states)| bound.events_of(states))
    }

    /// Takes everything out of the pair, once for both ends, and puts it into the kernel's. The
    /// caller holds the migrations lock.
    fn seal_words(&self) {
        let Some(bound) = self.bound() else { return };
        for (index, pipe) in bound.pair.pipes.iter().enumerate() {
            let (Some(reader), Some(writer)) = (bound.end(index), bound.end(1 - index)) else {
                continue;
            };
            let start = bound.state(index).map_or(0, |state| state.offset);
            let ends = [reader, writer];
            // SAFETY: a migration holds that lock, and the carrier before this one is gone.
            let mut carrier = unsafe { Carrier::new(bound.is_socket(), ends, start as usize) };
            pipe.seal(bound.generation, |piece| carrier.carry(piece));
            if !mutated!("pipe_carries_whole_pages") {
                carrier.flush();
            }
        }
        bound.shut_in_kernel();
        // Of an end that was closed the kernel hears now that it is.
        if let Some(other) = self.closed_other() {
            other.kept.let_go();
        }
    }

    fn wake_blocked(&self) -> usize {
        self.bound().map_or(0, |bound| bound.pair.pipes.iter().map(Pipe::wake_sealed).sum())
    }

    /// Nothing: a number is closed by [`close`](FdPipe::close), or once the pair has migrated.
    fn end_here(&self) {}

    fn release_others(&self) {
        self.release_closed_other();
    }

    /// A call that comes to an end that was closed here, or sleeps in it no longer, finds another
    /// file under the number, or none.
    fn is_kept_when_closed(&self) -> bool {
        self.residence().is_some_and(|residence| residence.now() == Whereabouts::InKernel)
    }

    /// What the other end is told of the close is the kernel's to say.
    fn begins_close_in_kernel(&self) -> bool {
        self.closing.store(true, Ordering::SeqCst);
        true
    }

    fn is_closed(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    fn change_nonblocking(&self, nonblocking: bool) {
        if nonblocking {
            self.mode.fetch_or(NONBLOCK, Ordering::SeqCst);
        } else {
            self.mode.fetch_and(!NONBLOCK, Ordering::SeqCst);
        }
    }

    fn type_of_file(&self) -> u32 {
        match self.bound() {
            Some(bound) if bound.is_socket() => libc::S_IFSOCK,
            _ => libc::S_IFIFO,
        }
    }

    /// Also if the pair is no more.
    fn is_sealed(&self) -> bool {
        self.bound().is_none_or(|bound| bound.state(0).is_none_or(|state| state.sealed))
    }

    fn kept_file(&self) -> Option<&KeptFile> {
        Some(&self.kept)
    }

    /// The other end of the pair: both migrate, or neither.
    fn other_end(&self) -> Option<&'static SlotHead> {
        let bound = self.bound()?;
        bound.state(0)?;
        bound.end(1 - bound.index()).map(|end| &end.head)
    }
}

impl Bound {
    #[inline(always)]
    fn index(self) -> usize {
        (self.mode & SECOND) as usize
    }

    #[inline(always)]
    fn is_socket(self) -> bool {
        self.mode & SOCKET != 0
    }

    fn may_block(self) -> bool {
        self.mode & NONBLOCK == 0
    }

    /// The pipe that this end reads from.
    #[inline(always)]
    fn inward(self) -> Option<&'static Pipe> {
        (self.is_socket() || self.index() == 0).then(|| &self.pair.pipes[self.index()])
    }

    /// The pipe that this end writes to.
    #[inline(always)]
    fn outward(self) -> Option<&'static Pipe> {
        (self.is_socket() || self.index() == 1).then(|| &self.pair.pipes[1 - self.index()])
    }

    fn state(self, index: usize) -> Option<PipeState> {
        self.pair.pipes[index].state(self.generation)
    }

    fn end(self, index: usize) -> Option<&'static FdPipe> {
        // SAFETY: 0 or what `adopt` stored, the address of a slot of this kind, which is never
        // freed.
        unsafe { (self.pair.ends[index].load(Ordering::SeqCst) as *const FdPipe).as_ref() }
    }

    /// Tells the watches of the other end.
    #[inline(always)]
    fn tell_other(self, events: Events) {
        if let Some(other) = self.end(1 - self.index()) {
            other.queue.wake_published(events);
        }
    }

    /// What a write tells.
    #[inline(always)]
    fn written(self) {
        let both = Events::IN.union(Events::RDNORM);
        self.tell_other(if self.is_socket() {
            both.union(Events::PRI).union(Events::RDBAND)
        } else {
            both
        });
    }

    /// What a read tells that has made room.
    fn made_room(self) {
        self.tell_other(self.writable());
    }

    fn writable(self) -> Events {
        let both = Events::OUT.union(Events::WRNORM);
        if self.is_socket() { both.union(Events::WRBAND) } else { both }
    }

    /// What holds of an end with these states of the pipes that it reads from and writes to.
    fn events_of(self, [inward, outward]: [Option<PipeState>; 2]) -> Events {
        let mut events = Events::empty();
        let is_over = inward.is_some_and(|state| state.writer_closed);
        let is_unread = outward.is_some_and(|state| state.reader_closed);
        if self.is_socket() {
            events.set(Events::IN | Events::RDNORM | Events::RDHUP, is_over);
            events.set(Events::HUP, is_over && is_unread);
        } else {
            events.set(Events::HUP, is_over);
            events.set(Events::ERR, is_unread);
        }
        let has_bytes = |state: PipeState| state.len != 0;
        events |= flags(Events::IN | Events::RDNORM, inward.is_some_and(has_bytes));
        let has_room = |state: PipeState| state.writable || mutated!("pipe_is_always_writable");
        events |= flags(self.writable(), outward.is_some_and(has_room));
        events
    }

    fn write(self, bytes: &[u8]) -> Result<(), Error> {
        // Whose end is not for that is told by the kernel.
        let pipe = self.outward().ok_or(Error::Unfit)?;
        pipe.try_write(self.generation, bytes)?;
        self.written();
        Ok(())
    }

    /// # Safety
    /// `buffer` is the caller's to give, for `len` bytes.
    #[inline(always)]
    unsafe fn read(self, buffer: *mut u8, len: usize) -> Result<usize, Error> {
        let mut target = buffer;
        // SAFETY: the caller's contract.
        let touch = |most| unsafe { user::touch(buffer, most) };
        self.read_by(len, touch, |part| {
            // SAFETY: the caller's contract; no more than `len` bytes come.
            let stored = unsafe { user::store_bytes(target, part) };
            target = target.wrapping_add(part.len());
            stored
        })
    }

    /// A read into several buffers.
    ///
    /// # Safety
    /// They are the caller's to give.
    unsafe fn read_into(self, buffers: Buffers<'_>) -> Result<usize, Error> {
        let mut offset = 0;
        // SAFETY: the caller's contract.
        let touch = |most| unsafe { buffers.touch(most) };
        self.read_by(buffers.len(), touch, |part| {
            // SAFETY: the caller's contract.
            let stored = unsafe { buffers.store(offset, part) };
            offset += part.len();
            stored
        })
    }

    /// A read of up to `len` bytes, which `store` takes one after the other; `touch` says whether
    /// it will take so many.
    #[inline(always)]
    fn read_by(
        self,
        len: usize,
        touch: impl FnOnce(usize) -> bool,
        store: impl FnMut(&[u8]) -> bool,
    ) -> Result<usize, Error> {
        let pipe = self.inward().ok_or(Error::Unfit)?;
        let there = pipe.state(self.generation).map_or(0, |state| state.len as usize);
        // Bytes for which there is no memory stay: first make sure that there is some.
        let most = if there == 0 { len } else { len.min(there) };
        if there != 0 && !touch(most) {
            return Err(Error::Unfit);
        }
        let taken = pipe.try_read(self.generation, most, store)?;
        if taken.made_room && !mutated!("pipe_room_is_not_told") {
            self.made_room();
        }
        Ok(taken.n)
    }
}

/// `events` if they hold.
fn flags(events: Events, hold: bool) -> Events {
    if hold { events } else { Events::empty() }
}

impl Source for FdPipe {
    fn poll(&self) -> Events {
        self.poll_anywhere()
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.queue
    }
}
