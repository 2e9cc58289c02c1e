//! Programs in several threads of one worker at a time.
//!
//! Each thread runs programs on objects of its own, whose outcomes are compared as in one thread,
//! but for the numbers: which thread gets which is a matter of luck, and a number that one thread
//! has closed is soon another's. Between two programs it does something to the objects that all
//! threads share (`shared`).

use super::shared::Shared;
use super::{BLOCK_SECONDS, Job, Role, Word, in_role, prepare, program_of, set_watchdog};
use crate::interpret::{Interpreter, MOST_THREADS};
use crate::outcome::Digest;
use crate::program::Program;
use crate::world::World;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};

/// What is done to shared objects after each program.
const ACTS: u64 = 24;

/// What the threads of a worker have in common.
struct Crowd {
    role: Role,
    first: u64,
    blocks: u64,
    len: u64,
    threads: u32,
    shared: Shared,
    /// All threads are at the same place between two blocks.
    together: Barrier,
    /// The outcomes of a block, in the order of the threads.
    digests: Mutex<Vec<Digest>>,
    /// What has been done to shared objects in a block.
    acts: AtomicU64,
}

/// One of the threads.
struct Member<'a> {
    crowd: &'a Crowd,
    place: u32,
}

/// As [`run_blocks`](super::run_blocks), with the programs of a block shared out among `threads`
/// threads, and without coverage.
///
/// # Errors
/// If stdout is closed, or this is not a process of that side.
///
/// # Panics
/// If there are more than [`MOST_THREADS`].
pub fn run_threads(role: Role, first: u64, blocks: u64, len: u64, threads: u32) -> io::Result<()> {
    assert!(threads <= MOST_THREADS, "at most {MOST_THREADS} threads");
    prepare();
    let crowd = Crowd {
        role,
        first,
        blocks,
        len,
        threads,
        shared: Shared::new(threads, role.profile.focus),
        together: Barrier::new(threads as usize),
        digests: Mutex::new(vec![Digest::default(); threads as usize]),
        acts: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let members: Vec<_> = (0..threads)
            .map(|place| {
                let crowd = &crowd;
                scope.spawn(move || in_role(role, Member { crowd, place })?)
            })
            .collect();
        members.into_iter().try_for_each(|member| {
            member.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    })
}

impl Job<io::Result<()>> for Member<'_> {
    fn run<W: World>(self, alone: Interpreter<W>) -> io::Result<()> {
        let mut interpreter = alone.beside_others(self.place);
        for block in 0..self.crowd.blocks {
            if self.place == 0 {
                set_watchdog(BLOCK_SECONDS);
                if self.crowd.leaves(block) {
                    interpreter.world().open_name_space();
                }
                self.crowd.shared.make(interpreter.world());
            }
            if block == 1 {
                interpreter.world().end_quiet();
            }
            self.crowd.together.wait();
            self.block(&mut interpreter, block);
            self.crowd.together.wait();
            if self.place == 0 {
                let wrong = self.crowd.shared.end(interpreter.world());
                let complaint = interpreter.world().complaint().map(String::from);
                let wrong = wrong.or(complaint);
                self.crowd.say(block, wrong)?;
            }
        }
        Ok(())
    }
}

impl Member<'_> {
    fn block<W: World>(&self, interpreter: &mut Interpreter<W>, block: u64) {
        let Crowd { role, first, len, threads, shared, .. } = self.crowd;
        let mut digest = Digest::default();
        let mut program = Program::default();
        for i in (u64::from(self.place)..*len).step_by(*threads as usize) {
            let seed = first.wrapping_add(block * len + i);
            program_of(seed, role.profile, &mut program);
            interpreter.run(&program, &mut digest);
            let mut choices = fastrand::Rng::with_seed(seed ^ 0x5ba6_ed0b);
            for _ in 0..ACTS {
                shared.act(interpreter.world(), &mut choices);
            }
            let mut acts = ACTS;
            // As often as each of the others.
            if i / u64::from(*threads) < len / u64::from(*threads) {
                acts += shared.hand_on(interpreter.world(), self.place, &mut choices);
            }
            self.crowd.acts.fetch_add(acts, Ordering::Relaxed);
        }
        let mut digests = self.crowd.digests.lock().unwrap_or_else(PoisonError::into_inner);
        digests[self.place as usize] = digest;
    }
}

impl Crowd {
    /// Whether the worker's last block finds every object in the kernel, as after dlmopen(3): in
    /// one worker of four.
    fn leaves(&self, block: u64) -> bool {
        self.role.profile.focus.takes_roads()
            && block + 1 == self.blocks
            && fastrand::Rng::with_seed(self.first).u8(..) < 64
    }

    /// Writes the [`Word`] of a block.
    fn say(&self, block: u64, wrong: Option<String>) -> io::Result<()> {
        let digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        let mut word = Word { operations: self.acts.swap(0, Ordering::Relaxed), ..Word::default() };
        for digest in &*digests {
            word.digest = word.digest.rotate_left(9).wrapping_add(digest.word);
            word.operations += digest.operations;
            word.skipped += digest.skipped;
        }
        if let Some(wrong) = wrong {
            eprintln!("{}, block {block}: {wrong}", self.role.side.name());
            word.digest = !word.digest;
        }
        io::stdout().write_all(&word.to_bytes())?;
        io::stdout().flush()
    }
}
