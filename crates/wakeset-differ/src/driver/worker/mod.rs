//! A worker: one side in a process of its own, which a driver starts with [`ARGUMENT`] and reads
//! from.

mod shared;
mod threads;

use crate::interpret::{Interpreter, Sink};
use crate::outcome::{Census, Digest, Trace};
use crate::program::generate::generate;
use crate::program::{Calls, Profile, Program};
use crate::world::{
    Api, BareEngine, Bug, Interposed, Kernel, Library, Roads, Side, World, Wrong, is_preloaded,
};
use std::io::{self, Read, Write};
pub use threads::run_threads;
use wakeset::ReadyList;

/// The first argument of a process that is to be a worker.
pub const ARGUMENT: &str = "worker";

/// Programs whose outcomes go into one word.
pub const BLOCK: u64 = 256;

/// The longest time for a block in seconds, also on a busy machine: then SIGALRM ends the worker.
const BLOCK_SECONDS: u32 = 30;
/// The same for programs that were given.
const PROGRAM_SECONDS: u32 = 5;

/// The outcomes of one block, as they are sent: three words of 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// All outcomes in one word.
    pub digest: u64,
    /// How many there are.
    pub operations: u64,
    /// How many calls were not made.
    pub skipped: u64,
}

impl Word {
    /// The length of one in bytes.
    pub const LEN: usize = 24;

    fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let words = [self.digest, self.operations, self.skipped];
        for (chunk, value) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    /// What was sent as these bytes.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let word = |i: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[8 * i + byte]));
        Self { digest: word(0), operations: word(1), skipped: word(2) }
    }
}

impl From<Digest> for Word {
    fn from(digest: Digest) -> Self {
        Self { digest: digest.word, operations: digest.operations, skipped: digest.skipped }
    }
}

/// Replaces `program` by the one of this seed.
pub fn program_of(seed: u64, profile: Profile, program: &mut Program) {
    generate(&mut fastrand::Rng::with_seed(seed), profile, program);
}

/// What the programs for a side may use.
pub fn calls_of(side: Side) -> Calls {
    match side {
        Side::Engine | Side::EngineSpinLock | Side::EngineRwLock => Calls::Engine,
        _ => Calls::Everything,
    }
}

fn set_watchdog(seconds: u32) {
    // SAFETY: no pointer is passed.
    unsafe { libc::alarm(seconds) };
}

/// Makes the process the same for every worker, whatever started it.
fn prepare() {
    // SAFETY: no memory is involved; nothing of this process needs a descriptor above 2.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
}

/// What a worker is.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// The side.
    pub side: Side,
    /// What its programs may use.
    pub profile: Profile,
    /// The bug that is put into the side, if any.
    pub bug: Option<Bug>,
}

/// Something to do on any side.
trait Job<R> {
    fn run<W: World>(self, interpreter: Interpreter<W>) -> R;
}

/// Runs `job` with an interpreter for that role.
fn in_role<R>(role: Role, job: impl Job<R>) -> io::Result<R> {
    fn with_bug<R, W: World>(world: W, role: Role, job: impl Job<R>) -> R {
        match role.bug {
            Some(bug) => job.run(Interpreter::new(Wrong::new(world, bug), role.profile)),
            None => job.run(Interpreter::new(world, role.profile)),
        }
    }
    Ok(match role.side {
        Side::Kernel => with_bug(Kernel, role, job),
        Side::Api => with_bug(Api::new(), role, job),
        Side::Library => with_bug(Library::new(), role, job),
        Side::Engine => with_bug(BareEngine::lock_free(), role, job),
        Side::EngineSpinLock => with_bug(BareEngine::new(ReadyList::Spinlock), role, job),
        Side::EngineRwLock => with_bug(BareEngine::new(ReadyList::Rwlock), role, job),
        Side::RoadsPlain => with_bug(Roads::default(), role, job),
        Side::RoadsBehind if is_preloaded() => with_bug(Roads::before_another(), role, job),
        Side::RoadsInstruction if is_preloaded() => with_bug(Roads::with_instructions(), role, job),
        Side::Interposed if is_preloaded() => with_bug(Interposed::default(), role, job),
        Side::Roads | Side::RoadsBefore | Side::RoadsBeneath if is_preloaded() => {
            with_bug(Roads::default(), role, job)
        }
        _ => return Err(io::Error::other("the preload library is not in this process")),
    })
}

/// Blocks of programs to run.
struct Blocks {
    profile: Profile,
    first: u64,
    blocks: u64,
    len: u64,
    counts: bool,
}

impl Blocks {
    fn block<W: World>(&self, on: &mut Interpreter<W>, block: u64, sink: &mut (impl Sink + Clone)) {
        let mut program = Program::default();
        for i in 0..self.len {
            let seed = self.first.wrapping_add(block * self.len + i);
            program_of(seed, self.profile, &mut program);
            on.run(&program, sink);
        }
    }
}

impl Job<io::Result<()>> for Blocks {
    fn run<W: World>(self, mut interpreter: Interpreter<W>) -> io::Result<()> {
        let mut census = Census::default();
        for block in 0..self.blocks {
            set_watchdog(BLOCK_SECONDS);
            let digest = if self.counts {
                census.digest = Digest::default();
                self.block(&mut interpreter, block, &mut census);
                census.digest
            } else {
                let mut digest = Digest::default();
                self.block(&mut interpreter, block, &mut digest);
                digest
            };
            let mut word = Word::from(digest);
            if let Some(complaint) = interpreter.world().complaint() {
                eprintln!("block {block}: {complaint}");
                word.digest = !word.digest;
            }
            io::stdout().write_all(&word.to_bytes())?;
            io::stdout().flush()?;
        }
        set_watchdog(0);
        if self.counts {
            serde_json::to_writer(io::stdout(), &census.coverage())?;
        }
        Ok(())
    }
}

/// Runs the programs of `blocks` blocks of `len` programs each, of the seeds from `first` on, and
/// writes a [`Word`] for each block to stdout; then, if `counts`, the coverage.
///
/// # Errors
/// If stdout is closed, or this is not a process of that side.
pub fn run_blocks(role: Role, first: u64, blocks: u64, len: u64, counts: bool) -> io::Result<()> {
    prepare();
    in_role(role, Blocks { profile: role.profile, first, blocks, len, counts })?
}

/// Programs that were given, to run one after the other.
struct Given(Vec<Program>);

impl Job<io::Result<()>> for Given {
    fn run<W: World>(self, mut interpreter: Interpreter<W>) -> io::Result<()> {
        set_watchdog(PROGRAM_SECONDS);
        let mut trace = Trace::default();
        for program in &self.0 {
            interpreter.run(program, &mut trace);
        }
        set_watchdog(0);
        serde_json::to_writer(io::stdout(), &trace)?;
        Ok(())
    }
}

/// Reads programs as JSON from stdin, runs them one after the other, and writes the trace of all of
/// them to stdout.
///
/// # Errors
/// If stdin is no list of programs, or this is not a process of that side.
pub fn run_given(role: Role) -> io::Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let programs = serde_json::from_str(&text)?;
    prepare();
    in_role(role, Given(programs))?
}
