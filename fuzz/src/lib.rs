//! Compares the kernel with a side of Wakeset on programs that are made from a fuzzer's bytes.
//!
//! Wakeset runs in the fuzzer's process, where the fuzzer sees its coverage. The kernel's side runs
//! in a child, where Wakeset's own descriptors do not take numbers. The two talk over a pair of
//! pipes: a request is a byte that says what is asked, a length, and the fuzzer's bytes; a reply
//! has the same form.

use std::any::Any;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use wakeset_differ::interpret::Interpreter;
use wakeset_differ::outcome::{Digest, Trace, listing};
use wakeset_differ::program::choices::Bytes;
use wakeset_differ::program::generate::generate;
use wakeset_differ::program::{Profile, Program};
use wakeset_differ::world::{Kernel, World};

/// The lowest of the four numbers of the pipes to the child: out of the programs' way, and the same
/// in both processes.
const PIPES: libc::c_int = 385;

/// A request for the digest of a program's outcomes.
const DIGEST: u8 = 0;
/// A request for their trace.
const TRACE: u8 = 1;

/// A side of Wakeset in this process, and the kernel's in a child.
#[derive(Debug)]
pub struct Sides<W> {
    profile: Profile,
    here: Interpreter<W>,
    to: File,
    from: File,
}

/// Moves a descriptor to one of the pipes' numbers.
fn move_up(file: impl IntoRawFd) -> File {
    // SAFETY: a descriptor of our own, and its duplicate.
    unsafe {
        let file = File::from_raw_fd(file.into_raw_fd());
        let high = libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, PIPES);
        assert!((PIPES..PIPES + 4).contains(&high), "the pipes' numbers are taken: {high}");
        File::from_raw_fd(high)
    }
}

fn program_of(bytes: &[u8], profile: Profile) -> Program {
    let mut program = Program::default();
    generate(&mut Bytes(bytes), profile, &mut program);
    program
}

fn read_request(from: &mut File) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    from.read_exact(&mut head)?;
    let mut body = vec![0; u64::from_ne_bytes(head[1..].try_into().unwrap()) as usize];
    from.read_exact(&mut body)?;
    Ok((head[0], body))
}

fn write_request(to: &mut File, kind: u8, body: &[u8]) -> io::Result<()> {
    to.write_all(&[kind])?;
    to.write_all(&(body.len() as u64).to_ne_bytes())?;
    to.write_all(body)
}

/// The child's loop. It ends when the pipe is closed.
fn serve(profile: Profile, mut from: File, mut to: File) -> io::Result<()> {
    let mut kernel = Interpreter::new(Kernel, profile);
    loop {
        let (kind, bytes) = read_request(&mut from)?;
        let program = program_of(&bytes, profile);
        if kind == TRACE {
            let mut trace = Trace::default();
            kernel.run(&program, &mut trace);
            write_request(&mut to, kind, &serde_json::to_vec(&trace)?)?;
        } else {
            let mut digest = Digest::default();
            kernel.run(&program, &mut digest);
            write_request(&mut to, kind, &digest.word.to_ne_bytes())?;
        }
    }
}

impl<W: World> Sides<W> {
    fn new(profile: Profile, new: impl FnOnce() -> W) -> io::Result<Self> {
        // Inherited descriptors would take numbers of the programs. libFuzzer keeps nothing open
        // between inputs. SAFETY: no memory is involved, and nothing here owns a descriptor yet.
        unsafe {
            libc::close_range(3, libc::c_uint::MAX, 0);
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        }
        let ((request_out, request_in), (reply_out, reply_in)) = (io::pipe()?, io::pipe()?);
        let (request_out, request_in) = (move_up(request_out), move_up(request_in));
        let (reply_out, reply_in) = (move_up(reply_out), move_up(reply_in));
        // SAFETY: the child goes on with its own copy of everything; no other thread held a lock.
        if unsafe { libc::fork() } == 0 {
            // Both processes keep all four descriptors open, so that the programs' numbers are the
            // same. SAFETY: no memory is involved.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let _ = serve(profile, request_out, reply_in);
            // SAFETY: the child must not run what the parent has registered for its exit.
            unsafe { libc::_exit(0) };
        }
        std::mem::forget((request_out, reply_in));
        let here = Interpreter::new(new(), profile);
        Ok(Self { profile, here, to: request_in, from: reply_out })
    }

    fn ask(&mut self, kind: u8, bytes: &[u8]) -> Vec<u8> {
        write_request(&mut self.to, kind, bytes).expect("the kernel's side has ended");
        read_request(&mut self.from).expect("the kernel's side has ended").1
    }

    /// Runs the program of these bytes on both sides.
    ///
    /// # Panics
    /// If the sides differ, or the child has ended.
    pub fn compare(&mut self, bytes: &[u8]) {
        let program = program_of(bytes, self.profile);
        let mut digest = Digest::default();
        self.here.run(&program, &mut digest);
        if self.ask(DIGEST, bytes) == digest.word.to_ne_bytes() {
            return;
        }
        let expected: Trace = serde_json::from_slice(&self.ask(TRACE, bytes)).expect("a trace");
        let mut got = Trace::default();
        self.here.run(&program, &mut got);
        let listing = listing(&expected, &Ok(got), "Wakeset");
        panic!(
            "the sides differ\n{listing}\n{}",
            serde_json::to_string(&program).unwrap_or_default()
        );
    }
}

/// Calls `f` with the sides of this process, which the first call makes.
///
/// # Panics
/// If they cannot be made, or a call before had a side of another type.
pub fn with<W: World + 'static>(
    profile: Profile,
    new: impl FnOnce() -> W,
    f: impl FnOnce(&mut Sides<W>),
) {
    thread_local! {
        static SIDES: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
    }
    SIDES.with_borrow_mut(|sides| {
        let sides =
            sides.get_or_insert_with(|| Box::new(Sides::new(profile, new).expect("two sides")));
        f(sides.downcast_mut().expect("one kind of sides in a process"));
    });
}
