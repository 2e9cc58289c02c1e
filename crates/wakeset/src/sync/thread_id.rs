//! The running thread's number, as gettid(2) gives it, without a system call: a lock's word has to
//! name its holder before the kernel can lend that one priority (futex(2), "Priority-inheritance
//! futexes"). The process's number comes with it.

pub(crate) use real::{current, known, process};

#[cfg(target_arch = "x86_64")]
mod real {
    use crate::sync::{AtomicU32, Ordering};
    use core::ptr;
    use core::sync::atomic::AtomicBool;
    use rustix::mm::{Advice, madvise};
    use syscalls::{Sysno, syscall};

    // What the thread has learnt: its number in the low half, its process's, inverted, in the high
    // half; 0 before.
    core::arch::global_asm!(
        ".section .tbss.wakeset_thread_id,\"awT\",@nobits",
        ".balign 8",
        ".hidden wakeset_thread_id",
        ".globl wakeset_thread_id",
        ".type wakeset_thread_id,@object",
        ".size wakeset_thread_id,8",
        "wakeset_thread_id:",
        ".zero 8",
        ".previous",
    );

    /// Initial-exec, so one load and never a call that may allocate: locks are taken inside memory
    /// allocators and signal handlers.
    #[inline(always)]
    fn learnt() -> u64 {
        let learnt: u64;
        // SAFETY: the word is this thread's own.
        unsafe {
            core::arch::asm!(
                "mov {place}, qword ptr [rip + wakeset_thread_id@GOTTPOFF]",
                "mov {learnt}, qword ptr fs:[{place}]",
                place = out(reg) _,
                learnt = out(reg) learnt,
                options(nostack, preserves_flags),
            );
        }
        learnt
    }

    fn set_learnt(learnt: u64) {
        // SAFETY: the word is this thread's own.
        unsafe {
            core::arch::asm!(
                "mov {place}, qword ptr [rip + wakeset_thread_id@GOTTPOFF]",
                "mov qword ptr fs:[{place}], {learnt}",
                place = out(reg) _,
                learnt = in(reg) learnt,
                options(nostack, preserves_flags),
            );
        }
    }

    /// A page that a fork wipes (`MADV_WIPEONFORK`), so that what the forking thread has learnt is
    /// void in the child.
    #[repr(C, align(4096))]
    struct Page {
        /// The process's number; 0 before anything was learnt, and after a fork.
        process: AtomicU32,
        /// How often a thread has asked for its number while this page said nothing.
        asked: AtomicU32,
        _rest: [u32; 1022],
    }

    static PAGE: Page =
        Page { process: AtomicU32::new(0), asked: AtomicU32::new(0), _rest: [0; 1022] };

    /// The running thread's number; never 0.
    #[inline(always)]
    pub(crate) fn current() -> u32 {
        known().unwrap_or_else(|| learn(false))
    }

    /// The same, if the thread has learnt it: there is no system call.
    #[inline(always)]
    pub(crate) fn known() -> Option<u32> {
        let learnt = learnt();
        // The upper half is inverted, so that a thread that has learnt nothing does not match a
        // page that says nothing.
        let is_known = (learnt >> 32) as u32 == !PAGE.process.load(Ordering::Relaxed);
        is_known.then_some(learnt as u32)
    }

    /// The process's number, as getpid(2) gives it, without a system call; a child of vfork(2) gets
    /// its parent's.
    #[inline]
    pub(crate) fn process() -> u32 {
        match PAGE.process.load(Ordering::Relaxed) {
            0 => ask_process(),
            process => process,
        }
    }

    #[cold]
    fn ask_process() -> u32 {
        let _ = learn(true);
        match PAGE.process.load(Ordering::Relaxed) {
            0 => getpid().unwrap_or(MADE_UP),
            process => process,
        }
    }

    /// The page is a mapping of its own from the advice on, which each fork copies; so a process
    /// that takes a lock now and then, and has nothing of ours, goes without. So often the kernel
    /// is asked, which costs less than the advice and its forks.
    const ASKED_AT_MOST: u32 = 16;
    /// Whether the advice has been given, by this process or one that it was forked from.
    static IS_ADVISED: AtomicBool = AtomicBool::new(false);

    /// Asks the kernel, and notes the answer if `now` or if that has been asked for often.
    #[cold]
    fn learn(now: bool) -> u32 {
        let thread = gettid();
        let mut process = PAGE.process.load(Ordering::Relaxed);
        let is_often = || PAGE.asked.fetch_add(1, Ordering::Relaxed) >= ASKED_AT_MOST;
        let worth_it = || now || IS_ADVISED.load(Ordering::Relaxed) || is_often();
        if process == 0 && worth_it() && is_wiped_on_fork() {
            process = getpid().unwrap_or_else(made_up);
            PAGE.process.store(process, Ordering::Relaxed);
        }
        // What the page says stays: a child of vfork(2) has it from its parent, whose page it is.
        if process != 0 {
            set_learnt(u64::from(!process) << 32 | u64::from(thread));
        }
        thread
    }

    /// Above all numbers that the kernel gives to threads, and in what a lock's word has room for.
    const MADE_UP: u32 = 1 << 28;
    static NEXT: AtomicU32 = AtomicU32::new(MADE_UP);

    /// The thread's number. Where a filter refuses gettid(2), one that no other thread has; it is
    /// kept only where something can be learnt.
    fn gettid() -> u32 {
        // SAFETY: has no arguments.
        match unsafe { syscall!(Sysno::gettid) } {
            Ok(thread) => thread as u32,
            Err(_) => made_up(),
        }
    }

    /// The process's number; `None` where a filter refuses getpid(2). A child that learns another
    /// number than its parent has is as good.
    fn getpid() -> Option<u32> {
        // SAFETY: has no arguments.
        unsafe { syscall!(Sysno::getpid) }.ok().map(|process| process as u32)
    }

    #[cold]
    fn made_up() -> u32 {
        MADE_UP | NEXT.fetch_add(1, Ordering::Relaxed) & (MADE_UP - 1)
    }

    /// Asks for it. Where it is refused, nothing is learnt and every call asks the kernel.
    fn is_wiped_on_fork() -> bool {
        let page = ptr::from_ref(&PAGE).cast_mut().cast();
        // SAFETY: the page is ours whole, and the advice leaves it as it is.
        let advised = unsafe { madvise(page, size_of::<Page>(), Advice::LinuxWipeOnFork) }.is_ok();
        if advised {
            IS_ADVISED.store(true, Ordering::Relaxed);
        }
        advised
    }

    #[cfg(test)]
    mod tests {
        extern crate std;

        #[test]
        fn each_thread_has_its_own() {
            let kernels = || rustix::thread::gettid().as_raw_pid() as u32;
            let check = move || {
                for _ in 0..super::ASKED_AT_MOST + 3 {
                    assert_eq!(super::current(), kernels());
                }
            };
            check();
            assert_eq!(super::process(), std::process::id());
            assert_ne!(
                super::PAGE.process.load(super::Ordering::Relaxed),
                0,
                "the page cannot be wiped on fork here"
            );
            for other in [(); 4].map(|()| std::thread::spawn(check)) {
                other.join().unwrap();
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod real {
    /// The running thread's number; never 0.
    pub(crate) fn current() -> u32 {
        rustix::thread::gettid().as_raw_pid() as u32
    }

    /// The same, where that takes no system call: not here.
    pub(crate) fn known() -> Option<u32> {
        None
    }

    /// The process's number.
    pub(crate) fn process() -> u32 {
        rustix::process::getpid().as_raw_pid() as u32
    }
}
