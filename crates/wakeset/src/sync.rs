//! The one place that names atomics, cells, locks and futexes, so that the same code runs on the
//! real machine, under loom (every interleaving of a small model) and under shuttle (random schedules of
//! a large one).
//!
//! Memory ordering, once for the whole engine: a *publish-then-check* pair (store mine, read
//! yours, on both sides) needs a total order over both sides' store and load. Both sides use a `SeqCst`
//! read-modify-write followed by a `SeqCst` load, which C++20 orders, and [`fence_after_rmw`] between the two for the
//! model checkers (loom treats `SeqCst` accesses as `AcqRel`) and for loads that are not ours to choose
//! (the ones in a user's `Source::poll`).

/// For counts of handles, which the models take for granted, as they do `Arc`'s, and for plain notes that a lock guards.
pub(crate) use core::sync::atomic::AtomicUsize as UnmodelledUsize;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub(crate) use seen::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Orders what stands before it against what stands after it, given that a read-modify-write
/// stands directly before it.
///
/// On x86-64 every `LOCK`-prefixed instruction is a full barrier already (Intel SDM vol. 3, 9.2.3.9), so only the
/// compiler is held back; an `mfence` here would cost the wake path a third of its time.
#[inline(always)]
pub(crate) fn fence_after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle)))))]
    fence(Ordering::SeqCst);
}

/// Orders everything before it against everything after it.
#[inline(always)]
pub(crate) fn full_fence() {
    fence(Ordering::SeqCst);
}

/// How a sleep on a [`Futex`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(any(loom, shuttle), allow(dead_code, reason = "there the clock and signals do not exist"))]
pub(crate) enum Slept {
    /// Woken, or the word had changed before the sleep began.
    Woken,
    /// The deadline has passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// Loom's atomics, with no access hidden from it.
///
/// Loom tries another order where two accesses race, and remembers only the last access of each atomic: if a thread loads and
/// then compares and swaps, its own load hides an earlier load of another thread, and the order in which the swap comes
/// first is never tried (0.7.2). So each access here first touches a companion, by a relaxed read-modify-write: any two of them race.
/// They order nothing in memory but what fences on both sides of them order.
#[cfg(loom)]
#[allow(missing_docs, reason = "what loom says of them")]
pub mod seen {
    pub use loom::sync::atomic::{Ordering, fence};

    macro_rules! seen {
        ($name:ident $(<$t:ident>)?, $value:ty, { $($method:ident($($argument:ident: $type:ty),*) -> $result:ty;)* }) => {
            pub struct $name $(<$t>)? {
                value: loom::sync::atomic::$name $(<$t>)?,
                seen: loom::sync::atomic::AtomicUsize,
            }

            impl $(<$t>)? core::fmt::Debug for $name $(<$t>)? {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    self.value.fmt(f)
                }
            }

            impl $(<$t>)? $name $(<$t>)? {
                pub fn new(value: $value) -> Self {
                    Self { value: loom::sync::atomic::$name::new(value), seen: loom::sync::atomic::AtomicUsize::new(0) }
                }

                $(
                    #[allow(dead_code, reason = "one set of methods for all")]
                    pub fn $method(&self, $($argument: $type),*) -> $result {
                        self.seen.fetch_add(0, Ordering::Relaxed);
                        self.value.$method($($argument),*)
                    }
                )*
            }
        };
    }
    macro_rules! seen_integer {
        ($name:ident, $int:ty) => {
            seen!($name, $int, {
                load(order: Ordering) -> $int;
                store(value: $int, order: Ordering) -> ();
                swap(value: $int, order: Ordering) -> $int;
                compare_exchange(old: $int, new: $int, success: Ordering, failure: Ordering) -> Result<$int, $int>;
                compare_exchange_weak(old: $int, new: $int, success: Ordering, failure: Ordering) -> Result<$int, $int>;
                fetch_add(value: $int, order: Ordering) -> $int;
                fetch_sub(value: $int, order: Ordering) -> $int;
                fetch_and(value: $int, order: Ordering) -> $int;
                fetch_or(value: $int, order: Ordering) -> $int;
                fetch_update(set: Ordering, fetch: Ordering, f: impl FnMut($int) -> Option<$int>) -> Result<$int, $int>;
            });
        };
    }
    seen_integer!(AtomicU32, u32);
    seen_integer!(AtomicU64, u64);
    seen_integer!(AtomicUsize, usize);
    seen!(AtomicBool, bool, {
        load(order: Ordering) -> bool;
        store(value: bool, order: Ordering) -> ();
        swap(value: bool, order: Ordering) -> bool;
    });
    seen_integer!(AtomicI32, i32);
    seen!(AtomicPtr<T>, *mut T, {
        load(order: Ordering) -> *mut T;
        store(value: *mut T, order: Ordering) -> ();
        swap(value: *mut T, order: Ordering) -> *mut T;
        compare_exchange(old: *mut T, new: *mut T, success: Ordering, failure: Ordering) -> Result<*mut T, *mut T>;
    });
}

/// Two words that change together, for a state that one does not hold. Lock-free on every machine that has the instruction, which
/// is all with 64-bit x86 since 2006; elsewhere the crate takes a lock for its length.
#[cfg(not(any(loom, shuttle)))]
#[derive(Debug)]
pub(crate) struct AtomicPair(portable_atomic::AtomicU128);

#[cfg(not(any(loom, shuttle)))]
impl AtomicPair {
    pub(crate) const fn new((low, high): (u64, u64)) -> Self {
        // `u128::from` is not const.
        Self(portable_atomic::AtomicU128::new((high as u128) << 64 | low as u128))
    }

    fn join((low, high): (u64, u64)) -> u128 {
        u128::from(high) << 64 | u128::from(low)
    }

    fn split(both: u128) -> (u64, u64) {
        (both as u64, (both >> 64) as u64)
    }

    #[inline]
    pub(crate) fn load(&self) -> (u64, u64) {
        Self::split(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn store(&self, pair: (u64, u64)) {
        self.0.store(Self::join(pair), Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn compare_exchange(&self, old: (u64, u64), new: (u64, u64)) -> Result<(), (u64, u64)> {
        let exchanged = self.0.compare_exchange(Self::join(old), Self::join(new), Ordering::SeqCst, Ordering::SeqCst);
        exchanged.map(drop).map_err(Self::split)
    }
}

/// The same for the model checkers, which have no such atomic: a lock, so no load returns a stale pair.
#[cfg(any(loom, shuttle))]
#[derive(Debug)]
pub(crate) struct AtomicPair {
    pair: models_lock::Mutex<(u64, u64)>,
}

#[cfg(loom)]
use loom::sync as models_lock;
#[cfg(shuttle)]
use shuttle::sync as models_lock;

#[cfg(any(loom, shuttle))]
impl AtomicPair {
    pub(crate) fn new(pair: (u64, u64)) -> Self {
        Self { pair: models_lock::Mutex::new(pair) }
    }

    pub(crate) fn load(&self) -> (u64, u64) {
        *self.pair.lock().unwrap()
    }

    pub(crate) fn store(&self, pair: (u64, u64)) {
        *self.pair.lock().unwrap() = pair;
    }

    pub(crate) fn compare_exchange(&self, old: (u64, u64), new: (u64, u64)) -> Result<(), (u64, u64)> {
        let mut pair = self.pair.lock().unwrap();
        if *pair != old {
            return Err(*pair);
        }
        *pair = new;
        Ok(())
    }
}

pub(crate) use futex::{Futex, LockWord, SharedFutex};

#[cfg(not(any(loom, shuttle)))]
mod futex {
    use super::{AtomicU32, AtomicU64, Ordering, Slept};
    use crate::time::{Deadline, Timeout};
    use core::num::NonZeroU32;
    use core::time::Duration;
    use rustix::io::Errno;
    use rustix::thread::futex::{self, Flags};
    use syscalls::{Sysno, syscall};

    /// How long a thread sleeps on one word that would have to sleep on two.
    const MOMENT: Duration = Duration::from_millis(2);

    /// A 32-bit word that threads sleep on until somebody changes it and wakes them: futex(2).
    #[derive(Debug)]
    pub(crate) struct Futex(AtomicU32);

    impl Futex {
        pub(crate) const fn new(value: u32) -> Self {
            Self(AtomicU32::new(value))
        }

        #[inline]
        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.0
        }

        /// Sleeps while the word is `expected`, at most until `deadline`, in the wake classes `classes`.
        ///
        /// Always with a time limit: FUTEX_WAIT without one restarts by itself after a handler with
        /// SA_RESTART, and epoll_wait(2) must fail with EINTR then.
        pub(crate) fn sleep(&self, expected: u32, deadline: Option<Deadline>, classes: NonZeroU32) -> Slept {
            let limit = deadline.unwrap_or(Deadline::FAR).to_timespec();
            match futex::wait_bitset(&self.0, Flags::PRIVATE, expected, Some(&limit), classes) {
                Err(Errno::TIMEDOUT) => Slept::TimedOut,
                Err(Errno::INTR) => Slept::Interrupted,
                // EAGAIN: the word had changed. Anything else cannot happen for a valid word; a
                // caller that loops on its own condition is right either way.
                Ok(()) | Err(_) => Slept::Woken,
            }
        }

        /// Like `sleep` with no deadline, but a handler with SA_RESTART resumes the sleep, as it does for read(2).
        pub(crate) fn sleep_restarting(&self, expected: u32, classes: NonZeroU32) -> Slept {
            match futex::wait_bitset(&self.0, Flags::PRIVATE, expected, None, classes) {
                Err(Errno::INTR) => Slept::Interrupted,
                Ok(()) | Err(_) => Slept::Woken,
            }
        }

        /// Wakes up to `n` of the threads that sleep in one of `classes`; how many it woke.
        pub(crate) fn wake(&self, n: u32, classes: NonZeroU32) -> usize {
            futex::wake_bitset(&self.0, Flags::PRIVATE, n, classes).unwrap_or(0)
        }

        /// Sleeps while this word is `expected` and the other one, which is in memory shared with other processes, is `of_other`:
        /// futex_waitv(2). Where that is not to be had, for a moment at most.
        pub(crate) fn sleep_on_both(
            &self,
            expected: u32,
            other: &AtomicU32,
            of_other: u32,
            deadline: Option<Deadline>,
        ) -> Slept {
            const SIZE_U32: u32 = 2;
            const PRIVATE: u32 = 128;
            /// `struct futex_waitv`.
            #[repr(C)]
            struct Waiter {
                value: u64,
                address: u64,
                flags: u32,
                reserved: u32,
            }
            let waiter = |word: &AtomicU32, value: u32, flags| Waiter {
                value: value.into(),
                address: word.as_ptr().expose_provenance() as u64,
                flags: SIZE_U32 | flags,
                reserved: 0,
            };
            let waiters = [waiter(&self.0, expected, PRIVATE), waiter(other, of_other, 0)];
            let limit = deadline.unwrap_or(Deadline::FAR).to_timespec();
            // SAFETY: two initialised waiters on words that outlive the call, and a time, which is CLOCK_MONOTONIC's (1).
            match unsafe { syscall!(Sysno::futex_waitv, waiters.as_ptr(), 2, 0, &raw const limit, 1) } {
                Err(syscalls::Errno::ETIMEDOUT) => Slept::TimedOut,
                Err(syscalls::Errno::EINTR) => Slept::Interrupted,
                Err(syscalls::Errno::ENOSYS | syscalls::Errno::EPERM) => {
                    let moment = Deadline::of(Timeout::After(MOMENT));
                    let limit = deadline.map_or(moment, |deadline| moment.map(|moment| moment.min(deadline)));
                    self.sleep(expected, limit, NonZeroU32::MAX)
                }
                // EAGAIN: one of them had changed.
                Ok(_) | Err(_) => Slept::Woken,
            }
        }
    }

    /// A word in memory shared with other processes, on which the other side of that memory sleeps until it changes.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct SharedFutex(AtomicU32);

    impl SharedFutex {
        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.0
        }

        /// Sleeps while the word is `expected`, at most until `deadline`.
        pub(crate) fn sleep(&self, expected: u32, deadline: Option<Deadline>) -> Slept {
            let limit = deadline.unwrap_or(Deadline::FAR).to_timespec();
            match futex::wait_bitset(&self.0, Flags::empty(), expected, Some(&limit), NonZeroU32::MAX) {
                Err(Errno::TIMEDOUT) => Slept::TimedOut,
                Err(Errno::INTR) => Slept::Interrupted,
                Ok(()) | Err(_) => Slept::Woken,
            }
        }

        /// Wakes who sleeps on it.
        pub(crate) fn wake(&self) {
            let _ = futex::wake(&self.0, Flags::empty(), 1);
        }
    }

    /// A lock's word. The low half names the holder as FUTEX_LOCK_PI has it, the high half is the turnstile, where
    /// FUTEX_WAIT sleeps; the kernel sees each as a futex, we change them only together.
    #[derive(Debug)]
    pub(crate) struct LockWord(AtomicU64);

    impl LockWord {
        pub(crate) const fn new(value: u64) -> Self {
            Self(AtomicU64::new(value))
        }

        #[inline]
        pub(crate) fn word(&self) -> &AtomicU64 {
            &self.0
        }

        /// For the kernel only.
        fn half(&self, upper: bool) -> &AtomicU32 {
            let second = upper == cfg!(target_endian = "little");
            // SAFETY: one of the two aligned halves of a word that lives as long as `self`.
            unsafe { &*self.0.as_ptr().cast::<AtomicU32>().add(usize::from(second)) }
        }

        /// Sleeps until the kernel has made the lock the calling thread's; whether it has. Handlers run meanwhile.
        pub(crate) fn lock_in_kernel(&self, _me: u32) -> bool {
            loop {
                match futex::lock_pi(self.half(false), Flags::PRIVATE, None) {
                    Ok(()) => return true,
                    // The holder is just ending, or a handler has run.
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    // No such call here, or a holder that is gone: what is left is to wait.
                    Err(_) => return false,
                }
            }
        }

        /// Hands the lock to the kernel's sleeper of highest priority; frees it if there is none.
        pub(crate) fn unlock_in_kernel(&self) {
            if futex::unlock_pi(self.half(false), Flags::PRIVATE).is_err() {
                // A forked child that gives back what its parent took: the sleepers are the parent's.
                self.0.fetch_and(!0xffff_ffff, Ordering::Release);
            }
        }

        /// Sleeps while the upper half is 1.
        pub(crate) fn sleep_at_turnstile(&self) {
            let _ = futex::wait(self.half(true), Flags::PRIVATE, 1, None);
        }

        pub(crate) fn wake_at_turnstile(&self) {
            let _ = futex::wake(self.half(true), Flags::PRIVATE, 1);
        }
    }
}

/// Which threads sleep on a lock so that its holder inherits their priority.
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod inheritance {
    use super::{AtomicU32, Ordering};
    use syscalls::{Sysno, syscall};

    /// Nobody so far.
    const UNUSED: u32 = 0;
    /// A thread under a real-time policy has waited for a lock: every thread.
    const IN_USE: u32 = 1;
    /// None, ever.
    const OFF: u32 = 2;

    static STATE: AtomicU32 = AtomicU32::new(UNUSED);

    pub(crate) fn enable(enabled: bool) {
        STATE.store(if enabled { UNUSED } else { OFF }, Ordering::Relaxed);
    }

    /// As if a thread under a real-time policy had waited, or none.
    #[cfg(wakeset_steps)]
    pub(crate) fn set_in_use(in_use: bool) {
        STATE.store(if in_use { IN_USE } else { UNUSED }, Ordering::Relaxed);
    }

    /// Whether the calling thread is to sleep that way.
    pub(crate) fn wanted() -> bool {
        match STATE.load(Ordering::Relaxed) {
            UNUSED if is_real_time() => {
                let _ = STATE.compare_exchange(UNUSED, IN_USE, Ordering::Relaxed, Ordering::Relaxed);
                true
            }
            state => state == IN_USE,
        }
    }

    /// sched_getscheduler(2): SCHED_FIFO, SCHED_RR or SCHED_DEADLINE, whatever a forked child would get.
    fn is_real_time() -> bool {
        const RESET_ON_FORK: usize = 0x4000_0000;
        // SAFETY: asks for the calling thread's policy and takes no pointer.
        let policy = unsafe { syscall!(Sysno::sched_getscheduler, 0) };
        matches!(policy.map(|policy| policy & !RESET_ON_FORK), Ok(1 | 2 | 6))
    }
}

#[cfg(any(loom, shuttle))]
mod futex {
    use super::{AtomicU32, AtomicU64, Ordering, Slept};
    use crate::time::Deadline;
    use alloc::collections::VecDeque;
    use core::num::NonZeroU32;
    #[cfg(loom)]
    use loom::sync::{Condvar, Mutex};
    #[cfg(shuttle)]
    use shuttle::sync::{Condvar, Mutex};

    /// futex(2) for the model checkers: compare and sleep under a lock. A deadline is reached at once, or never, and signals never
    /// come, so a lost wake-up is a deadlock, which both checkers report.
    #[derive(Debug)]
    pub(crate) struct Futex {
        word: AtomicU32,
        /// How many sleep and have not been chosen by a wake yet, by class.
        sleeping: Mutex<[u32; 2]>,
        woken: [Condvar; 2],
    }

    /// The engine uses one class for everybody or tells readers (1) from writers (2), never both on one word.
    fn index(classes: NonZeroU32) -> usize {
        usize::from(classes.get() == 2)
    }

    impl Futex {
        pub(crate) fn new(value: u32) -> Self {
            let woken = [Condvar::new(), Condvar::new()];
            Self { word: AtomicU32::new(value), sleeping: Mutex::new([0; 2]), woken }
        }

        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.word
        }

        pub(crate) fn sleep(&self, expected: u32, deadline: Option<Deadline>, classes: NonZeroU32) -> Slept {
            let mut sleeping = self.sleeping.lock().unwrap();
            if self.word.load(Ordering::SeqCst) == expected {
                if deadline.is_some_and(crate::time::model::pass) {
                    return Slept::TimedOut;
                }
                sleeping[index(classes)] += 1;
                drop(self.woken[index(classes)].wait(sleeping).unwrap());
            }
            Slept::Woken
        }

        pub(crate) fn sleep_restarting(&self, expected: u32, classes: NonZeroU32) -> Slept {
            self.sleep(expected, None, classes)
        }

        pub(crate) fn wake(&self, n: u32, classes: NonZeroU32) -> usize {
            let mut sleeping = self.sleeping.lock().unwrap();
            let chosen = n.min(sleeping[index(classes)]);
            sleeping[index(classes)] -= chosen;
            for _ in 0..chosen {
                self.woken[index(classes)].notify_one();
            }
            chosen as usize
        }
    }

    /// The same for two sides that are threads of the model.
    #[derive(Debug)]
    pub(crate) struct SharedFutex(Futex);

    impl SharedFutex {
        pub(crate) fn new(value: u32) -> Self {
            Self(Futex::new(value))
        }

        pub(crate) fn word(&self) -> &AtomicU32 {
            self.0.word()
        }

        pub(crate) fn sleep(&self, expected: u32, deadline: Option<Deadline>) -> Slept {
            self.0.sleep(expected, deadline, NonZeroU32::MAX)
        }

        pub(crate) fn wake(&self) {
            self.0.wake(1, NonZeroU32::MAX);
        }
    }

    /// A lock's word, with the kernel's part of FUTEX_LOCK_PI played under a lock. All threads are of one priority here.
    #[derive(Debug)]
    pub(crate) struct LockWord {
        word: AtomicU64,
        kernel: Mutex<Kernel>,
        handed_on: Condvar,
        turned: Condvar,
    }

    #[derive(Debug, Default)]
    struct Kernel {
        waiting: VecDeque<u32>,
        /// Threads that sleep at the turnstile and have not been chosen by a wake yet.
        asleep: u32,
    }

    const HOLDER: u64 = 0x3fff_ffff;
    const WAITERS: u64 = 0x8000_0000;
    const LOW: u64 = 0xffff_ffff;

    impl LockWord {
        pub(crate) fn new(value: u64) -> Self {
            let kernel = Mutex::new(Kernel::default());
            Self { word: AtomicU64::new(value), kernel, handed_on: Condvar::new(), turned: Condvar::new() }
        }

        pub(crate) fn word(&self) -> &AtomicU64 {
            &self.word
        }

        fn change_low(&self, change: impl Fn(u64) -> u64) -> u64 {
            let set = |word: u64| Some(word & !LOW | change(word & LOW));
            self.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, set).unwrap() & LOW
        }

        pub(crate) fn lock_in_kernel(&self, me: u32) -> bool {
            let me = u64::from(me);
            let mut kernel = self.kernel.lock().unwrap();
            if self.change_low(|low| if low == 0 { me } else { low | WAITERS }) == 0 {
                return true;
            }
            kernel.waiting.push_back(me as u32);
            while self.word.load(Ordering::SeqCst) & HOLDER != me {
                kernel = self.handed_on.wait(kernel).unwrap();
            }
            true
        }

        pub(crate) fn unlock_in_kernel(&self) {
            let mut kernel = self.kernel.lock().unwrap();
            // Whoever is handed the lock gets it marked, even if nobody waits behind it.
            let next = kernel.waiting.pop_front().map_or(0, |next| u64::from(next) | WAITERS);
            self.change_low(|_| next);
            self.handed_on.notify_all();
        }

        pub(crate) fn sleep_at_turnstile(&self) {
            let mut kernel = self.kernel.lock().unwrap();
            if self.word.load(Ordering::SeqCst) >> 32 == 1 {
                kernel.asleep += 1;
                drop(self.turned.wait(kernel).unwrap());
            }
        }

        pub(crate) fn wake_at_turnstile(&self) {
            let mut kernel = self.kernel.lock().unwrap();
            if kernel.asleep > 0 {
                kernel.asleep -= 1;
                self.turned.notify_one();
            }
        }
    }
}

/// Which threads sleep on a lock so that its holder inherits their priority: those of which a model says so.
#[cfg(any(loom, shuttle))]
pub(crate) mod inheritance {
    extern crate std;
    use core::cell::Cell;
    #[cfg(loom)]
    use loom::thread_local;
    #[cfg(shuttle)]
    use shuttle::thread_local;

    thread_local! {
        static WANTED: Cell<bool> = Cell::new(false);
    }

    pub(crate) fn enable(enabled: bool) {
        WANTED.with(|wanted| wanted.set(enabled));
    }

    pub(crate) fn wanted() -> bool {
        WANTED.with(Cell::get)
    }
}
