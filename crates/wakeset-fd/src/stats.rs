//! The counts behind `wakeset run --stats`: one [`Page`] for each process image.
//!
//! A page is plain memory without pointers, so it can be a `static` (nobody reads it) or a file
//! mapped shared (the counts then outlive `_exit`, `exec` and `SIGKILL`). Whoever wants the
//! numbers reads the file's bytes with [`Summary::parse`].
//!
//! # Who writes what
//!
//! | part | written by | how |
//! |---|---|---|
//! | header: magic, version, pid, name | [`Page::start`], once | relaxed stores, `magic` last (release) |
//! | header: claimed | [`Page::claim_stripe`], [`Page::release_stripe`] | compare-exchange, fetch-and |
//! | stripes 0 … 61 | the one thread that claimed it | relaxed load and store: no locked instruction |
//! | stripe 62 | every thread that found none free | relaxed fetch-add |
//! | listeners | every thread: counts come with connections, not with events | relaxed fetch-add; `len` last (release) |
//!
//! Counting must cost next to nothing on the wake path, so a thread owns its stripe alone and the
//! reader does the adding up. The price: a signal handler that counts in the few
//! instructions between its thread's load and store loses its count. Nothing but the printed
//! numbers depends on it.
//!
//! Everything here is async-signal-safe and allocates nothing.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The environment variable that names the directory for the processes' pages.
///
/// Each process image makes one file `<pid>.<n>` of [`PAGE_BYTES`] there (`O_CREAT | O_EXCL |
/// O_NOFOLLOW`, mode 0600), maps it shared and calls [`Page::start`] on it. If the directory has
/// gone (the program outlived `wakeset run`), it counts in a `static` page, which nobody reads.
pub const DIR_VARIABLE: &str = "WAKESET_STATS_DIR";

/// What the first eight bytes of a started page hold: `WAKESET` and a zero byte, little-endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"WAKESET\0");

/// The layout's version: a reader refuses any other.
pub const VERSION: u32 = 3;

/// Stripes in a page, the shared one included.
pub const STRIPES: usize = 63;

/// The stripe that all threads share which found no other free.
pub const SHARED_STRIPE: usize = STRIPES - 1;

/// Words in a stripe: room for every [`Stat`], in whole cache lines.
const WORDS: usize = 32;

/// A page's size: the header takes as much as one stripe.
pub const PAGE_BYTES: usize = core::mem::size_of::<Page>();

const _: () = assert!(Stat::COUNT <= WORDS);
const _: () = assert!(core::mem::size_of::<Header>() == core::mem::size_of::<Stripe>());
const _: () = assert!(PAGE_BYTES == 4 * 4096 + LISTENERS * core::mem::size_of::<Listener>());

/// Listening sockets that a process counts for; the next ones are not counted.
pub const LISTENERS: usize = 16;

/// What is counted for each listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ListenerStat {
    /// Waits on it that took their turn.
    Waits,
    /// Connections accepted.
    Connections,
    /// Sleeps that ended because of it.
    Wakes,
    /// Those after which there was nothing to accept.
    SpuriousWakes,
}

/// One listening socket's counts.
#[repr(C, align(64))]
struct Listener {
    /// Its address as getsockname(2) gives it, in whole words.
    address: [AtomicU64; ADDRESS_BYTES / 8],
    /// How long the address is; 0: free; `TAKEN`: about to be filled in.
    len: AtomicU64,
    counts: [AtomicU64; 4],
    /// Bit n: the thread of stripe n has waited on it.
    waited: AtomicU64,
    /// The connections that the thread of each stripe has accepted.
    connections: [AtomicU64; STRIPES],
}

/// Room for any address of an internet or a unix socket.
pub const ADDRESS_BYTES: usize = 112;
const TAKEN: u64 = u64::MAX;

/// Defines [`Stat`] and [`NAMES`] from one list, so that they cannot disagree.
macro_rules! stats {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// What is counted. The discriminant is the word's place in a stripe.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Stat { $($(#[$doc])* $variant,)+ }

        impl Stat {
            /// Every count, in the order of the discriminants.
            pub const ALL: [Stat; [$($name),+].len()] = [$(Stat::$variant),+];
        }

        /// The name of each count as the printed JSON has it, by discriminant.
        pub const NAMES: [&str; Stat::COUNT] = [$($name),+];
    };
}

stats! {
    /// An eventfd was made and began in user space.
    CountersMade = "counters_made",
    /// An epoll set was made and began in user space.
    SetsMade = "sets_made",
    /// A timerfd was made and began in user space.
    TimersMade = "timers_made",
    /// A pipe or a pair of stream sockets was made and began in user space.
    PipesMade = "pipes_made",
    /// Moved into the kernel: fork would have shared it with a child.
    MovedFork = "fork",
    /// Moved: an exec kept it open (no close-on-exec).
    MovedExec = "exec",
    /// Moved: a spawned program inherits it.
    MovedSpawn = "spawn",
    /// Moved: passed to another process over a socket (SCM_RIGHTS).
    MovedPassedOver = "passed_over",
    /// Moved: the process set up an io_uring.
    MovedIoRing = "io_uring",
    /// Moved: the process set up asynchronous I/O (io_setup).
    MovedAio = "aio",
    /// Moved: reached through `syscall()` in a way that is not modelled.
    MovedSyscallFn = "syscall_function",
    /// Moved: given to a call that is not modelled.
    MovedUnmodelled = "unmodelled_call",
    /// Moved: a modelled call had an argument that is not modelled.
    MovedOddArgument = "odd_argument",
    /// Moved: the watched number was closed while a duplicate lives on.
    MovedDupClosed = "duplicate_closed",
    /// Moved: nested with a set that lives in the kernel.
    MovedNestedKernel = "nested_in_kernel",
    /// Moved: waited on with poll or select together with kernel descriptors.
    MovedPoll = "poll",
    /// Moved: a timerfd was read that had not expired, and blocks.
    MovedBlocking = "blocking_read",
    /// Moved: a table or a resource limit was reached.
    MovedLimit = "limit",
    /// Calls to the epoll_wait family.
    Waits = "waits",
    /// Those that entered the kernel neither to look nor to sleep.
    WaitsInProcess = "waits_in_process",
    /// Events handed to the program.
    Events = "events",
    /// Those that came from a set's kernel half.
    EventsFromKernel = "events_from_kernel",
    /// Sleeping threads that were woken.
    Wakes = "wakes",
    /// Those that found nothing to report and slept again.
    SpuriousWakes = "spurious_wakes",
    /// System calls the program asked for that were answered in user space.
    SyscallsAvoided = "syscalls_avoided",
    /// Counters, sets and pairs closed while they still lived in user space.
    Closed = "closed",
    /// Messages of userfaultfds that were read by threads that take turns.
    UffdMessages = "uffd_messages",
    /// Threads that were given the turn, or told of a message, while they slept.
    UffdWakes = "uffd_wakes",
    /// Those that were told of a message and found none.
    UffdSpuriousWakes = "uffd_spurious_wakes",
}

impl Stat {
    /// How many counts there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The counts of objects moved into the kernel, one for each reason.
    pub const MOVED: core::ops::RangeInclusive<usize> = Stat::MovedFork as usize..=Stat::MovedLimit as usize;
}

/// The first 256 bytes of a page.
#[repr(C, align(64))]
struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    pid: AtomicU32,
    /// Bit n: stripe n belongs to a thread. Bits from [`SHARED_STRIPE`] up are never used.
    claimed: AtomicU64,
    /// The process's short name as prctl(PR_GET_NAME) gives it, zero-padded, little-endian.
    name: [AtomicU64; 2],
    _reserved: [AtomicU64; WORDS - 5],
}

/// One thread's counts, on cache lines of its own.
#[repr(C, align(64))]
struct Stripe {
    words: [AtomicU64; WORDS],
}

/// All counts of one process image: [`PAGE_BYTES`] of atomics, valid when all zero.
#[allow(missing_debug_implementations, reason = "what it holds is what `summary` says")]
#[repr(C, align(64))]
pub struct Page {
    header: Header,
    stripes: [Stripe; STRIPES],
    listeners: [Listener; LISTENERS],
}

impl Page {
    /// An unstarted page, for a `static`. It lies in `.bss` and costs no memory until touched.
    pub const fn zeroed() -> Self {
        Page {
            header: Header {
                magic: AtomicU64::new(0),
                version: AtomicU32::new(0),
                pid: AtomicU32::new(0),
                claimed: AtomicU64::new(0),
                name: [const { AtomicU64::new(0) }; 2],
                _reserved: [const { AtomicU64::new(0) }; WORDS - 5],
            },
            stripes: [const { Stripe { words: [const { AtomicU64::new(0) }; WORDS] } }; STRIPES],
            listeners: [const {
                Listener {
                    address: [const { AtomicU64::new(0) }; ADDRESS_BYTES / 8],
                    len: AtomicU64::new(0),
                    counts: [const { AtomicU64::new(0) }; 4],
                    waited: AtomicU64::new(0),
                    connections: [const { AtomicU64::new(0) }; STRIPES],
                }
            }; LISTENERS],
        }
    }

    /// The page at `ptr`, a shared mapping say.
    ///
    /// # Safety
    /// `ptr` is aligned to 64 bytes (a mapping is), and [`PAGE_BYTES`] from it are mapped
    /// readable and writable, hold zeros or an earlier page, and stay mapped for `'a`. Everyone
    /// else touches them only with atomic operations, the reader of a mapped file excepted.
    pub unsafe fn page_at<'a>(ptr: *const u8) -> &'a Page {
        // SAFETY: the caller vouches for alignment, extent and lifetime; any bit pattern is a
        // valid page, since it holds nothing but integers.
        unsafe { &*ptr.cast::<Page>() }
    }

    /// Marks the page as in use by process `pid`; until then a reader ignores it.
    ///
    /// `name` is cut at 15 bytes. Call it once, before other threads count.
    pub fn start(&self, pid: u32, name: &[u8]) {
        let mut padded = [0u8; 16];
        for (to, from) in padded[..15].iter_mut().zip(name) {
            *to = *from;
        }
        let (low, high) = padded.split_at(8);
        for (word, half) in self.header.name.iter().zip([low, high]) {
            let mut bytes = [0u8; 8];
            bytes.copy_from_slice(half);
            word.store(u64::from_le_bytes(bytes), Relaxed);
        }
        self.header.version.store(VERSION, Relaxed);
        self.header.pid.store(pid, Relaxed);
        self.header.magic.store(MAGIC, Release);
    }

    /// Gives the calling thread a stripe: one of its own, or [`SHARED_STRIPE`] if none is free.
    ///
    /// The number belongs to this page: after fork the child has a page of its own and claims
    /// again. Wait-free but for other threads that claim at the same moment.
    pub fn claim_stripe(&self) -> usize {
        const OWNABLE: u64 = (1 << SHARED_STRIPE) - 1;
        let mut claimed = self.header.claimed.load(Relaxed);
        loop {
            let free = !claimed & OWNABLE;
            if free == 0 {
                return SHARED_STRIPE;
            }
            let bit = free & free.wrapping_neg();
            // Acquire pairs with the release in `release_stripe`: the new owner's plain loads
            // see the last counts of the old one.
            match self.header.claimed.compare_exchange_weak(claimed, claimed | bit, Acquire, Relaxed) {
                Ok(_) => return bit.trailing_zeros() as usize,
                Err(now) => claimed = now,
            }
        }
    }

    /// Gives a stripe back at thread exit; its counts stay. The shared stripe may be given too.
    pub fn release_stripe(&self, stripe: usize) {
        if stripe < SHARED_STRIPE {
            self.header.claimed.fetch_and(!(1 << stripe), AcqRel);
        }
    }

    /// Adds `n` to a count. `stripe` is what [`Page::claim_stripe`] gave this thread; a number
    /// out of range counts in the shared stripe.
    #[inline]
    pub fn bump(&self, stripe: usize, stat: Stat, n: u64) {
        match self.stripes.get(stripe) {
            Some(own) if stripe != SHARED_STRIPE => {
                let word = &own.words[stat as usize];
                word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
            }
            _ => {
                self.stripes[SHARED_STRIPE].words[stat as usize].fetch_add(n, Relaxed);
            }
        }
    }

    /// The place of the listening socket with this address, a new one if need be; `None` if there is no room.
    pub fn place_of_listener(&self, address: &[u8]) -> Option<usize> {
        let mut padded = [0_u8; ADDRESS_BYTES];
        padded.get_mut(..address.len())?.copy_from_slice(address);
        let words = || padded.chunks_exact(8).map(|chunk| u64::from_ne_bytes(chunk.try_into().unwrap_or_default()));
        self.listeners.iter().position(|listener| {
            match listener.len.compare_exchange(0, TAKEN, Acquire, Acquire) {
                Ok(_) => {
                    for (place, word) in listener.address.iter().zip(words()) {
                        place.store(word, Relaxed);
                    }
                    listener.len.store(address.len() as u64, Release);
                    true
                }
                // One that is being filled in may be the same: then it is there twice, and the reader adds up.
                Err(len) => {
                    len == address.len() as u64
                        && listener.address.iter().zip(words()).all(|(place, word)| place.load(Relaxed) == word)
                }
            }
        })
    }

    /// Adds one to a count of the listening socket at `place`. `stripe` is as for [`bump`](Self::bump): it says whose connection or wait
    /// this is.
    pub fn bump_listener(&self, place: usize, stripe: usize, stat: ListenerStat) {
        let Some(listener) = self.listeners.get(place) else { return };
        listener.counts[stat as usize].fetch_add(1, Relaxed);
        let stripe = stripe.min(SHARED_STRIPE);
        match stat {
            ListenerStat::Waits => _ = listener.waited.fetch_or(1 << stripe, Relaxed),
            ListenerStat::Connections => _ = listener.connections[stripe].fetch_add(1, Relaxed),
            ListenerStat::Wakes | ListenerStat::SpuriousWakes => {}
        }
    }

    /// The counts as they stand. Threads may go on counting meanwhile.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary { pid: self.header.pid.load(Relaxed), ..Summary::default() };
        for (bytes, word) in summary.name.chunks_exact_mut(8).zip(&self.header.name) {
            bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        for stripe in &self.stripes {
            for (value, word) in summary.values.iter_mut().zip(&stripe.words) {
                *value = value.wrapping_add(word.load(Relaxed));
            }
        }
        summary
    }
}

/// A listening socket's counts in one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSummary {
    address: [u8; ADDRESS_BYTES],
    len: usize,
    counts: [u64; 4],
    waited: u64,
    connections: [u64; STRIPES],
}

impl ListenerSummary {
    /// Reads those of a page from the bytes of its file; [`Summary::parse`] says whether it is one.
    pub fn parse(bytes: &[u8]) -> impl Iterator<Item = ListenerSummary> {
        use core::mem::{offset_of, size_of};
        (0..LISTENERS).filter_map(move |i| {
            let start = offset_of!(Page, listeners) + i * size_of::<Listener>();
            let word = |at: usize| -> Option<u64> {
                let eight = bytes.get(start + at..start + at + 8)?;
                Some(u64::from_ne_bytes(eight.try_into().ok()?))
            };
            let len = usize::try_from(word(offset_of!(Listener, len))?).ok()?;
            if !(1..=ADDRESS_BYTES).contains(&len) {
                return None;
            }
            let at = start + offset_of!(Listener, address);
            let waited = word(offset_of!(Listener, waited))?;
            let (address, connections) = ([0; ADDRESS_BYTES], [0; STRIPES]);
            let mut summary = ListenerSummary { address, len, counts: [0; 4], waited, connections };
            summary.address.copy_from_slice(bytes.get(at..at + ADDRESS_BYTES)?);
            for (i, count) in summary.counts.iter_mut().enumerate() {
                *count = word(offset_of!(Listener, counts) + 8 * i)?;
            }
            for (i, count) in summary.connections.iter_mut().enumerate() {
                *count = word(offset_of!(Listener, connections) + 8 * i)?;
            }
            Some(summary)
        })
    }

    /// Its address as getsockname(2) gives it.
    pub fn address(&self) -> &[u8] {
        self.address.get(..self.len).unwrap_or_default()
    }

    /// One count.
    pub fn get(&self, stat: ListenerStat) -> u64 {
        self.counts[stat as usize]
    }

    /// The threads that have waited on it or accepted from it: the stripe of each, and its connections. Threads that share a stripe, at a time
    /// or one after the other, are one.
    pub fn threads(&self) -> impl Iterator<Item = (usize, u64)> {
        let threads = self.connections.iter().copied().enumerate();
        threads.filter(|(stripe, connections)| *connections > 0 || self.waited >> stripe & 1 != 0)
    }
}

/// The sum of a page's stripes, or of several pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The process the page belonged to; 0 for a total.
    pub pid: u32,
    name: [u8; 16],
    values: [u64; Stat::COUNT],
}

impl Summary {
    /// Reads a page from the bytes of its file, which need not be aligned.
    ///
    /// `None` if they are too few, or the page was never started, or has another version.
    pub fn parse(bytes: &[u8]) -> Option<Summary> {
        use core::mem::offset_of;

        let word = |at: usize| -> Option<u64> {
            let eight = bytes.get(at..at + 8)?;
            Some(u64::from_ne_bytes(eight.try_into().ok()?))
        };
        let half = |at: usize| -> Option<u32> {
            let four = bytes.get(at..at + 4)?;
            Some(u32::from_ne_bytes(four.try_into().ok()?))
        };
        if bytes.len() < PAGE_BYTES
            || word(offset_of!(Page, header.magic))? != MAGIC
            || half(offset_of!(Page, header.version))? != VERSION
        {
            return None;
        }
        let mut summary = Summary { pid: half(offset_of!(Page, header.pid))?, ..Summary::default() };
        let name = offset_of!(Page, header.name);
        for (i, part) in summary.name.chunks_exact_mut(8).enumerate() {
            part.copy_from_slice(&word(name + 8 * i)?.to_le_bytes());
        }
        for stripe in 0..STRIPES {
            let start = offset_of!(Page, stripes) + stripe * core::mem::size_of::<Stripe>();
            for (i, value) in summary.values.iter_mut().enumerate() {
                *value = value.wrapping_add(word(start + 8 * i)?);
            }
        }
        Some(summary)
    }

    /// The process's short name, without the padding.
    pub fn name(&self) -> &[u8] {
        let end = self.name.iter().position(|&b| b == 0);
        &self.name[..end.unwrap_or(self.name.len())]
    }

    /// One count.
    pub fn get(&self, stat: Stat) -> u64 {
        self.values[stat as usize]
    }

    /// All counts, in the order of [`NAMES`].
    pub fn values(&self) -> &[u64; Stat::COUNT] {
        &self.values
    }

    /// Adds another page's counts to these; the process and name stay as they are.
    pub fn add(&mut self, other: &Summary) {
        for (value, more) in self.values.iter_mut().zip(&other.values) {
            *value = value.wrapping_add(*more);
        }
    }

    /// Objects made: counters, sets, and pairs.
    pub fn made(&self) -> u64 {
        [Stat::CountersMade, Stat::TimersMade, Stat::SetsMade, Stat::PipesMade]
            .iter()
            .fold(0, |made, stat| made.wrapping_add(self.get(*stat)))
    }

    /// Objects that moved into the kernel, for whatever reason.
    pub fn moved(&self) -> u64 {
        self.values[Stat::MOVED].iter().sum()
    }

    /// Objects that never left user space, those closed since included.
    pub fn kept(&self) -> u64 {
        self.made().saturating_sub(self.moved())
    }

    /// Objects that live in user space still: made, neither moved nor closed.
    pub fn open(&self) -> u64 {
        self.kept().saturating_sub(self.get(Stat::Closed))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    static PAGE: Page = Page::zeroed();

    /// The bytes a shared mapping's file would hold.
    fn bytes_of(page: &Page) -> &[u8] {
        // SAFETY: a page is PAGE_BYTES of initialised integers, and no test thread writes to
        // this one while the slice lives.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(page).cast(), PAGE_BYTES) }
    }

    #[test]
    fn counts_survive_the_way_through_a_file() {
        let page = Page::zeroed();
        assert_eq!(Summary::parse(bytes_of(&page)), None, "not started");
        page.start(42, b"a name longer than fifteen");
        let mine = page.claim_stripe();
        page.bump(mine, Stat::CountersMade, 5);
        page.bump(mine, Stat::MovedPoll, 2);
        page.bump(SHARED_STRIPE, Stat::SetsMade, 1);
        page.bump(usize::MAX, Stat::Closed, 3);
        let read = Summary::parse(bytes_of(&page)).expect("a started page");
        assert_eq!(read, page.summary());
        assert_eq!((read.pid, read.name()), (42, &b"a name longer t"[..]));
        assert_eq!((read.made(), read.moved(), read.kept(), read.open()), (6, 2, 4, 1));
        assert_eq!(Summary::parse(&bytes_of(&page)[1..]), None);
    }

    #[test]
    fn listeners_have_a_place_each() {
        let page = Page::zeroed();
        let address = |i: u8| [i; 16];
        for i in 1..=LISTENERS as u8 {
            assert_eq!(page.place_of_listener(&address(i)), Some(usize::from(i) - 1));
        }
        assert_eq!(page.place_of_listener(&address(3)), Some(2));
        assert_eq!(page.place_of_listener(&address(99)), None);
        assert_eq!(page.place_of_listener(&[0; ADDRESS_BYTES + 1]), None);
        page.bump_listener(2, 0, ListenerStat::Wakes);
        page.bump_listener(LISTENERS, 0, ListenerStat::Wakes);
        page.bump_listener(4, 5, ListenerStat::Waits);
        page.bump_listener(4, 7, ListenerStat::Connections);
        page.bump_listener(4, SHARED_STRIPE, ListenerStat::Connections);
        page.bump_listener(4, usize::MAX, ListenerStat::Connections);
        page.bump_listener(4, SHARED_STRIPE, ListenerStat::Waits);
        let read: std::vec::Vec<_> = ListenerSummary::parse(bytes_of(&page)).collect();
        assert_eq!(read.len(), LISTENERS);
        assert_eq!(read[2].address(), address(3));
        assert_eq!(read.iter().map(|listener| listener.get(ListenerStat::Wakes)).sum::<u64>(), 1);
        assert_eq!(read[2].get(ListenerStat::Wakes), 1);
        assert_eq!(read[2].threads().count(), 0);
        assert_eq!(read[4].threads().collect::<std::vec::Vec<_>>(), [(5, 0), (7, 1), (SHARED_STRIPE, 2)]);
    }

    #[test]
    fn stripes_are_reused_and_the_last_is_shared() {
        let page = Page::zeroed();
        for expected in 0..SHARED_STRIPE {
            assert_eq!(page.claim_stripe(), expected);
        }
        assert_eq!(page.claim_stripe(), SHARED_STRIPE);
        page.release_stripe(SHARED_STRIPE);
        assert_eq!(page.claim_stripe(), SHARED_STRIPE);
        page.release_stripe(17);
        assert_eq!(page.claim_stripe(), 17);
    }

    #[test]
    fn no_count_is_lost_between_threads() {
        let threads = STRIPES + 8;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let stripe = PAGE.claim_stripe();
                    for _ in 0..1000 {
                        PAGE.bump(stripe, Stat::Events, 1);
                    }
                    PAGE.release_stripe(stripe);
                });
            }
        });
        assert_eq!(PAGE.summary().get(Stat::Events), threads as u64 * 1000);
    }
}
