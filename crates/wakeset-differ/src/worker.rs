//! A worker: one side in a process of its own, which a driver starts with [`ARGUMENT`] and reads from.

use crate::generate::{Profile, generate};
use crate::interpret::{Interpreter, Sink};
use crate::program::Program;
use crate::trace::{Census, Digest, Trace};
use crate::world::{Api, Bug, Interposed, Kernel, Library, Rust, Side, World, Wrong, is_preloaded};
use std::io::{self, Read, Write};

/// The first argument of a process that is to be a worker.
pub const ARGUMENT: &str = "worker";

/// Programs whose outcomes go into one word.
pub const BLOCK: u64 = 256;

/// Seconds a block may take, also on a busy machine. Whoever takes longer is killed by SIGALRM.
const BLOCK_SECONDS: u32 = 30;
/// The same for a single program.
const PROGRAM_SECONDS: u32 = 5;

/// What one block came to, as it is sent: 8 bytes each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// The outcomes.
    pub digest: u64,
    /// How many.
    pub operations: u64,
    /// Calls not made.
    pub skipped: u64,
}

impl Word {
    /// Bytes of one.
    pub const LEN: usize = 24;

    fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (place, value) in bytes.chunks_exact_mut(8).zip([self.digest, self.operations, self.skipped]) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    /// From what was sent.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let word = |i: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[8 * i + byte]));
        Self { digest: word(0), operations: word(1), skipped: word(2) }
    }
}

/// The program of a seed.
pub fn program_of(seed: u64, profile: Profile, program: &mut Program) {
    generate(&mut fastrand::Rng::with_seed(seed), profile, program);
}

/// The profile of programs for a side.
pub fn profile_of(side: Side) -> Profile {
    match side {
        Side::Engine | Side::EngineSpinLock | Side::EngineRwLock => Profile::Engine,
        Side::Kernel | Side::Api | Side::Library | Side::Interposed => Profile::Everything,
    }
}

fn watchdog(seconds: u32) {
    // SAFETY: no pointer is passed.
    unsafe { libc::alarm(seconds) };
}

/// The process as every worker finds it, whoever started it.
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
    /// Who answers.
    pub side: Side,
    /// What programs it runs.
    pub profile: Profile,
    /// What is wrong with it, if anything is meant to be.
    pub bug: Option<Bug>,
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
        Side::Engine => with_bug(Rust::<wakeset::LockFree>::new(), role, job),
        Side::EngineSpinLock => with_bug(Rust::<wakeset::SpinLock>::new(), role, job),
        Side::EngineRwLock => with_bug(Rust::<wakeset::RwLock>::new(), role, job),
        Side::Interposed if !is_preloaded() => {
            return Err(io::Error::other("the preload library is not in this process"));
        }
        Side::Interposed => with_bug(Interposed::default(), role, job),
    })
}

/// Something to do on any side.
trait Job<R> {
    fn run<W: World>(self, interpreter: Interpreter<W>) -> R;
}

/// Runs the programs of `blocks` blocks of `len` programs each, seeds from `first` on, and writes a [`Word`] for each; then, if `counts`, the coverage.
///
/// # Errors
/// If nobody reads, or this is not a process of that side.
pub fn run_blocks(role: Role, first: u64, blocks: u64, len: u64, counts: bool) -> io::Result<()> {
    struct Blocks {
        profile: Profile,
        first: u64,
        blocks: u64,
        len: u64,
        counts: bool,
    }
    impl Blocks {
        fn block<W: World>(&self, interpreter: &mut Interpreter<W>, block: u64, sink: &mut impl Sink) {
            let mut program = Program::default();
            for i in 0..self.len {
                program_of(self.first.wrapping_add(block * self.len + i), self.profile, &mut program);
                interpreter.run(&program, sink);
            }
        }
    }
    impl Job<io::Result<()>> for Blocks {
        fn run<W: World>(self, mut interpreter: Interpreter<W>) -> io::Result<()> {
            let mut census = Census::default();
            for block in 0..self.blocks {
                watchdog(BLOCK_SECONDS);
                let digest = if self.counts {
                    census.digest = Digest::default();
                    self.block(&mut interpreter, block, &mut census);
                    census.digest
                } else {
                    let mut digest = Digest::default();
                    self.block(&mut interpreter, block, &mut digest);
                    digest
                };
                let word = Word { digest: digest.word, operations: digest.operations, skipped: digest.skipped };
                io::stdout().write_all(&word.to_bytes())?;
                io::stdout().flush()?;
            }
            watchdog(0);
            if self.counts {
                serde_json::to_writer(io::stdout(), &census.coverage())?;
            }
            Ok(())
        }
    }
    prepare();
    in_role(role, Blocks { profile: role.profile, first, blocks, len, counts })?
}

/// Reads programs from stdin, as JSON, runs them one after the other, and writes the trace of the last one, or of all of them as one.
///
/// # Errors
/// If stdin is no list of programs, or this is not a process of that side.
pub fn run_given(role: Role) -> io::Result<()> {
    struct Given(Vec<Program>);
    impl Job<io::Result<()>> for Given {
        fn run<W: World>(self, mut interpreter: Interpreter<W>) -> io::Result<()> {
            watchdog(PROGRAM_SECONDS);
            let mut trace = Trace::default();
            for program in &self.0 {
                interpreter.run(program, &mut trace);
            }
            watchdog(0);
            serde_json::to_writer(io::stdout(), &trace)?;
            Ok(())
        }
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let programs = serde_json::from_str(&text)?;
    prepare();
    in_role(role, Given(programs))?
}
