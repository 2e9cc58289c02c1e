//! The kernel and a Wakeset side on programs made from a fuzzer's bytes. Wakeset runs in the fuzzer's process, where its coverage
//! is seen; the kernel's side in a child, where Wakeset's own descriptors are not in the way.

use std::any::Any;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use wakeset_differ::choices::Bytes;
use wakeset_differ::generate::{Profile, generate};
use wakeset_differ::interpret::Interpreter;
use wakeset_differ::program::Program;
use wakeset_differ::regression;
use wakeset_differ::trace::{Digest, Trace};
use wakeset_differ::world::{Kernel, World};

/// Numbers from here on are the pipes' to the child: out of the programs' way, and the same in both processes.
const PIPES: libc::c_int = 385;

/// What is asked of the child.
const DIGEST: u8 = 0;
const TRACE: u8 = 1;

/// A Wakeset side here, the kernel's in a child.
#[derive(Debug)]
pub struct Sides<W> {
    profile: Profile,
    here: Interpreter<W>,
    to: File,
    from: File,
}

fn up(file: impl IntoRawFd) -> File {
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

/// The child, until nobody asks any more.
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
        // What this process has inherited is in the way of the programs' numbers. libFuzzer keeps nothing open between inputs.
        // SAFETY: no memory is involved, and nothing here owns a descriptor yet.
        unsafe {
            libc::close_range(3, libc::c_uint::MAX, 0);
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        }
        let ((request_out, request_in), (reply_out, reply_in)) = (io::pipe()?, io::pipe()?);
        let [request_out, request_in, reply_out, reply_in] =
            [up(request_out), up(request_in), up(reply_out), up(reply_in)];
        // SAFETY: the child goes on with its own copies of everything, and no other thread had a lock.
        if unsafe { libc::fork() } == 0 {
            // SAFETY: numbers of our own that `File`s here never close; both processes have all four open, or the programs'
            // numbers would differ.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let _ = serve(profile, request_out, reply_in);
            // SAFETY: nothing of the parent's is to be run at its exit.
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

    /// Runs the program that these bytes make on both sides. Panics if they differ.
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
        let listing = regression::listing(&expected, &Ok(got), "Wakeset");
        panic!("the sides differ\n{listing}\n{}", serde_json::to_string(&program).unwrap_or_default());
    }
}

/// Calls `f` with the process's sides, which are made when they are first wanted.
pub fn with<W: World + 'static>(profile: Profile, new: impl FnOnce() -> W, f: impl FnOnce(&mut Sides<W>)) {
    thread_local! {
        static SIDES: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
    }
    SIDES.with_borrow_mut(|sides| {
        let sides = sides.get_or_insert_with(|| Box::new(Sides::new(profile, new).expect("two sides")));
        f(sides.downcast_mut().expect("one kind of sides in a process"));
    });
}
