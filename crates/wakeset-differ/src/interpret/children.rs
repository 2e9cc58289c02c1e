//! Forked children that live for a while and make calls, one process at a time.
//!
//! A child does what it is told through a page that it shares with the parent, without a descriptor
//! and without a call of libc's, so that nothing of it concerns Wakeset. The arguments of its calls
//! are in memory that both share. The parent knows what every process has, and sleeps while a child
//! makes a call.

use super::Interpreter;
use crate::program::{CHILDREN, Ending, Op, SLOTS};
use crate::world::{Sysno, World};
use libc::{c_int, c_void, pid_t, timespec};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicIsize, AtomicU32, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use syscalls::syscall;

/// What the state of a [`Channel`] is.
const IDLE: u32 = 0;
const CALL: u32 = 1;
const EXIT: u32 = 2;
const EXEC: u32 = 3;

/// How often a process that waits looks whether the other one is still there.
const LOOK: timespec = timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// How often it looks before it sleeps.
const SPINS: u32 = 300;
/// The result of a call by a child that has ended instead.
const ENDED: isize = -9999;

/// The page by which a child is told what to do. The child leaves the state [`IDLE`] when it has
/// done it.
struct Channel {
    state: AtomicU32,
    number: AtomicI32,
    arguments: [AtomicUsize; 6],
    result: AtomicIsize,
}

impl Channel {
    /// Waits until the state is, or is not, idle. Returns the state, or `None` if `gone` says that
    /// nobody would change it.
    fn wait(&self, idle: bool, mut gone: impl FnMut() -> bool) -> Option<u32> {
        for turn in 0.. {
            let state = self.state.load(Ordering::SeqCst);
            if (state == IDLE) == idle {
                return Some(state);
            }
            if turn < SPINS {
                std::hint::spin_loop();
                continue;
            }
            let (word, look) = (self.state.as_ptr(), LOOK);
            // SAFETY: the word and the time are there. Raw: not what programs call.
            let slept =
                unsafe { syscall!(Sysno::futex, word, libc::FUTEX_WAIT, state, &raw const look) };
            if slept.is_err() && gone() {
                return None;
            }
        }
        None
    }

    fn set(&self, state: u32) {
        self.state.store(state, Ordering::SeqCst);
        // SAFETY: as above. If there is nobody to wake, there is nothing to say about it.
        let _ = unsafe { syscall!(Sysno::futex, self.state.as_ptr(), libc::FUTEX_WAKE, 1) };
    }
}

/// The children of an interpreter, and what the process has besides.
pub(super) struct Children {
    channels: &'static [Channel; CHILDREN as usize],
    pids: [pid_t; CHILDREN as usize],
    /// The slots of the processes whose turn it is not.
    slots: [[c_int; SLOTS as usize]; 1 + CHILDREN as usize],
    thread: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl std::fmt::Debug for Children {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Children").field("pids", &self.pids).finish_non_exhaustive()
    }
}

impl Children {
    /// None yet.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn new() -> Self {
        let len = size_of::<[Channel; CHILDREN as usize]>();
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED, "no memory for the children");
        Self {
            // SAFETY: zeros are channels, and they stay there.
            channels: unsafe { &*memory.cast() },
            pids: [0; CHILDREN as usize],
            slots: [[0; SLOTS as usize]; 1 + CHILDREN as usize],
            thread: None,
        }
    }

    fn start_thread(&mut self) {
        if self.thread.is_none() {
            let over = Arc::new(AtomicBool::new(false));
            let theirs = Arc::clone(&over);
            let sleep = move || {
                while !theirs.load(Ordering::SeqCst) {
                    thread::park();
                }
            };
            self.thread = Some((over, thread::spawn(sleep)));
        }
    }

    fn end_thread(&mut self) {
        if let Some((over, thread)) = self.thread.take() {
            over.store(true, Ordering::SeqCst);
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Whether a child has ended, which leaves it to be waited for.
fn has_ended(pid: pid_t) -> bool {
    // SAFETY: zeros are such a structure, and there is memory for it.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_PID, pid as libc::id_t, &raw mut info, how) != 0 || info.si_signo != 0
    }
}

/// Does what the channel says until it says that this process ends.
fn serve<W: World>(world: &mut W, channel: &Channel, parent: pid_t) -> ! {
    // SAFETY: numbers only.
    let is_orphan = || unsafe { libc::getppid() } != parent;
    // SAFETY: as above.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // It may have ended before that.
    if is_orphan() {
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    loop {
        match channel.wait(false, is_orphan) {
            Some(CALL) => {
                let number = channel.number.load(Ordering::SeqCst) as usize;
                let arguments =
                    std::array::from_fn(|i| channel.arguments[i].load(Ordering::SeqCst));
                let result = match Sysno::new(number) {
                    // SAFETY: the parent's arguments, in memory that both have at one address.
                    Some(number) => unsafe { world.call(number, arguments) },
                    None => ENDED,
                };
                channel.result.store(result, Ordering::SeqCst);
                channel.set(IDLE);
            }
            Some(EXEC) => {
                let program = c"/bin/true".as_ptr();
                // SAFETY: the strings are there.
                unsafe {
                    libc::execv(program, [program, std::ptr::null()].as_ptr());
                    libc::_exit(1)
                }
            }
            // SAFETY: a number only.
            _ => unsafe { libc::_exit(0) },
        }
    }
}

impl<W: World> Interpreter<W> {
    /// The parent forks a child. `None` if it is not its turn, or there is such a child.
    pub(super) fn fork_child(&mut self, child: u8) -> Option<isize> {
        let children = self.children.as_mut()?;
        if self.model.turn() != 0 || self.model.has_child(child) {
            return None;
        }
        let place = usize::from(child.checked_sub(1)?);
        let channel = children.channels.get(place)?;
        channel.state.store(IDLE, Ordering::SeqCst);
        // SAFETY: a number only.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child makes calls that are allowed after fork(2), and allocates nothing.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            serve(&mut self.world, channel, parent);
        }
        if pid < 0 {
            return Some(-1);
        }
        children.pids[place] = pid;
        children.slots[usize::from(child)] = self.slots;
        self.model.forked(child);
        Some(0)
    }

    /// A call by the child whose turn it is.
    pub(super) fn call_in_child(&mut self, number: Sysno, arguments: [usize; 6]) -> isize {
        let place = usize::from(self.model.turn()) - 1;
        let Some(children) = &self.children else { return ENDED };
        let (channel, pid) = (&children.channels[place], children.pids[place]);
        channel.number.store(number.id(), Ordering::SeqCst);
        for (place, argument) in channel.arguments.iter().zip(arguments) {
            place.store(argument, Ordering::SeqCst);
        }
        channel.set(CALL);
        match channel.wait(true, || has_ended(pid)) {
            Some(_) => channel.result.load(Ordering::SeqCst),
            None => ENDED,
        }
    }

    /// A child ends. `None` if there is no such child.
    pub(super) fn end_child(&mut self, child: u8, how: Ending) -> Option<isize> {
        if !self.model.has_child(child) {
            return None;
        }
        self.change_turn(0);
        let place = usize::from(child) - 1;
        let children = self.children.as_ref()?;
        let (channel, pid) = (&children.channels[place], children.pids[place]);
        let mut status = 0;
        // SAFETY: the child is this process's, and there is memory for its status.
        let waited = unsafe {
            match how {
                Ending::Exit => channel.set(EXIT),
                Ending::Exec => channel.set(EXEC),
                Ending::Killed => {
                    libc::kill(pid, libc::SIGKILL);
                }
            }
            libc::waitpid(pid, &raw mut status, 0)
        };
        self.model.ended(child);
        Some(if waited == pid { status as isize } else { ENDED })
    }

    /// Another process's turn, a second thread, or a pause.
    pub(super) fn change(&mut self, op: &Op) -> Option<()> {
        match *op {
            Op::Turn { child } => {
                self.children.as_ref()?;
                self.change_turn(if self.model.has_child(child) { child } else { 0 });
            }
            Op::Thread => self.children.as_mut()?.start_thread(),
            Op::Pause { millis } => thread::sleep(Duration::from_millis(millis.into())),
            _ => {}
        }
        Some(())
    }

    fn change_turn(&mut self, to: u8) {
        let from = self.model.turn();
        let Some(children) = self.children.as_mut().filter(|_| to != from) else { return };
        children.slots[usize::from(from)] = self.slots;
        self.slots = children.slots[usize::from(to)];
        self.model.change_turn(to);
    }

    /// Ends all children, and the second thread.
    pub(super) fn end_children(&mut self) {
        while let Some(child) = self.model.living_child() {
            self.end_child(child, Ending::Exit);
        }
        if let Some(children) = &mut self.children {
            children.end_thread();
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end_thread();
        let memory: *const [Channel; CHILDREN as usize] = self.channels;
        // SAFETY: mapped by `new`, and nothing else keeps it.
        unsafe { libc::munmap(memory.cast_mut().cast::<c_void>(), size_of_val(self.channels)) };
    }
}
