//! Models of a hidden number: one thread closes what is hidden there, while another gives the
//! number to the program, closes it for the program, or forks; and of one that is being made. The
//! kernel's table of numbers is played, and so is a dup2(2) of the program, in the steps of
//! `set::doorbell::renumber`.

use crate::sys::{self, births_exclusion::Exclusion};
use crate::table::hidden_claims::{CLAIMED, Claims, DOORBELL, LEFT, SPARE_DOORBELL, TAG, VACANT};
use core::ffi::c_int;
use loom::sync::{Mutex, MutexGuard};
use loom::thread::{JoinHandle, spawn};
use std::sync::Arc;
use wakeset::explore;
use wakeset::model_atomics::{AtomicI32, AtomicUsize, Ordering::SeqCst};

/// The hidden number, and the one that takes its place.
const NUMBER: c_int = 0;
const NEXT: c_int = 1;
const NONE: c_int = -1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Ours,
    Programs,
}

struct World {
    claims: Claims,
    exclusion: Exclusion,
    entries: [AtomicUsize; 2],
    /// Where the owner of what is hidden has its number.
    field: AtomicI32,
    files: Mutex<[Option<File>; 2]>,
}

fn is_copy() -> bool {
    false
}

impl World {
    fn new() -> Arc<Self> {
        Self::with(DOORBELL, NUMBER, Some(File::Ours))
    }

    /// One in which nothing is hidden yet.
    fn empty() -> Arc<Self> {
        Self::with(0, NONE, None)
    }

    fn with(tag: usize, number: c_int, file: Option<File>) -> Arc<Self> {
        Arc::new(Self {
            claims: Claims::new(),
            exclusion: Exclusion::new(),
            entries: [AtomicUsize::new(tag), AtomicUsize::new(0)],
            field: AtomicI32::new(number),
            files: Mutex::new([file, None]),
        })
    }

    /// Makes a descriptor of ours under the lowest number that is free, and hides it.
    fn make(&self) -> c_int {
        self.exclusion.begin_birth();
        let mut files = self.files();
        let fd = files.iter().position(Option::is_none).unwrap();
        files[fd] = Some(File::Ours);
        drop(files);
        self.entries[fd].store(DOORBELL, SeqCst);
        self.field.store(fd as c_int, SeqCst);
        self.exclusion.end_birth();
        fd as c_int
    }

    /// A dup2(2) of the program that has found the number free.
    fn take_free_number(&self) {
        loop {
            let generation = self.exclusion.begin_taking(&is_copy);
            let hidden = self.is_hidden(NUMBER);
            if !hidden {
                let file = self.files()[NUMBER as usize].replace(File::Programs);
                assert_ne!(file, Some(File::Ours), "what is being made is lost");
            }
            self.exclusion.end_taking(generation);
            if !hidden {
                return;
            }
            self.make_way();
        }
    }

    fn entry(&self, fd: c_int) -> &AtomicUsize {
        &self.entries[fd as usize]
    }

    fn files(&self) -> MutexGuard<'_, [Option<File>; 2]> {
        self.files.lock().unwrap()
    }

    /// close(2) of a number of ours.
    fn close_ours(&self, fd: c_int) {
        let file = self.files()[fd as usize].take();
        assert_eq!(file, Some(File::Ours), "{fd} is not ours, and is closed");
    }

    /// As `table::hidden::close_in`.
    fn close(&self) {
        let entry = |fd| Some(self.entry(fd));
        if let Some(fd) = self.claims.take(&self.field, NONE, entry, is_copy) {
            self.claims.close(self.entry(fd), || self.close_ours(fd));
        }
    }

    /// Whether a number is hidden, once no claim on it is left to be settled.
    fn is_hidden(&self, fd: c_int) -> bool {
        loop {
            match self.entry(fd).load(SeqCst) & TAG {
                CLAIMED => self.claims.wait(self.entry(fd), &is_copy),
                tag => return is_hidden(tag),
            }
        }
    }

    /// A dup2(2) of the program onto the number.
    fn take_number(&self) {
        if self.is_hidden(NUMBER) {
            self.make_way();
        }
        let file = self.files()[NUMBER as usize].replace(File::Programs);
        assert_ne!(file, Some(File::Ours), "what is hidden is lost");
    }

    fn make_way(&self) {
        let entry = self.entry(NUMBER);
        let copy = self.claims.claim(entry, is_copy).map(|tag| {
            let mut files = self.files();
            assert_eq!(files[NUMBER as usize], Some(File::Ours));
            files[NEXT as usize] = Some(File::Ours);
            drop(files);
            self.claims.settle(entry, tag);
        });
        if copy.is_some() {
            self.entry(NEXT).store(DOORBELL, SeqCst);
            let _ = self.field.compare_exchange(NUMBER, NEXT, SeqCst, SeqCst);
        }
        if self.claims.claim(entry, is_copy).is_some() {
            self.files()[NUMBER as usize] = Some(File::Programs);
            self.claims.settle(entry, VACANT);
        } else if copy.is_some() {
            assert!(self.claims.claim(self.entry(NEXT), is_copy).is_some());
            self.claims.close(self.entry(NEXT), || self.close_ours(NEXT));
        }
    }

    /// What has been closed is neither open nor hidden.
    fn assert_closed(&self, files: [Option<File>; 2]) {
        assert_eq!(*self.files(), files);
        assert!([NUMBER, NEXT].iter().all(|fd| !self.is_hidden(*fd)));
        assert_eq!(self.field.load(SeqCst), NONE);
    }
}

fn is_hidden(tag: usize) -> bool {
    [DOORBELL, SPARE_DOORBELL, LEFT].contains(&tag)
}

fn run(world: &Arc<World>, act: impl FnOnce(&World) + 'static) -> JoinHandle<()> {
    let world = Arc::clone(world);
    spawn(move || act(&world))
}

/// Catches a close of the file that the program has put there meanwhile, a duplicate that nobody
/// closes, and a thread that waits for a claim which has been settled.
#[test]
fn a_number_is_closed_and_given_away_at_once() {
    explore(3, || {
        let world = World::new();
        let closing = run(&world, World::close);
        world.take_number();
        closing.join().unwrap();
        world.assert_closed([Some(File::Programs), None]);
    });
}

/// Catches a close of the program's that closes what is hidden, after which the number is another
/// thread's, and that one's file is closed.
#[test]
fn a_number_is_closed_that_the_program_closes() {
    explore(3, || {
        let world = World::new();
        let closing = run(&world, World::close);
        let opening = run(&world, |world| {
            let opens = world.files()[NUMBER as usize].is_none();
            if opens {
                world.files()[NUMBER as usize].get_or_insert(File::Programs);
                assert!(!world.is_hidden(NUMBER), "a file of the program's is hidden");
            }
        });
        if !world.is_hidden(NUMBER) {
            let file = world.files()[NUMBER as usize].take();
            assert_ne!(file, Some(File::Ours), "the program closes what is hidden");
        }
        closing.join().unwrap();
        opening.join().unwrap();
    });
}

/// Catches a child that has what its table does not say, or closes what is not ours; and what is
/// left to a fork that is over.
#[test]
fn a_number_is_closed_beside_a_fork() {
    explore(3, || {
        let world = World::new();
        let closing = run(&world, World::close);
        world.claims.begin_fork();
        // The kernel copies the numbers, and then the memory.
        let files = *world.files();
        let tag = world.entry(NUMBER).load(SeqCst) & TAG;
        let closes = is_hidden(tag) || tag == CLAIMED;
        assert_eq!(closes, files[NUMBER as usize].is_some(), "the child finds {tag}");
        if world.claims.end_fork() {
            let close = || world.close_ours(NUMBER);
            world.claims.close_left(world.entry(NUMBER), close);
        }
        closing.join().unwrap();
        world.assert_closed([None, None]);
    });
}

/// Catches a file of the program's that replaces what is being made, and a thread that waits for
/// what has been made, or for a dup2(2) that has been.
#[test]
fn a_number_is_born_and_taken_at_once() {
    explore(3, || {
        let world = World::empty();
        let making = run(&world, |world| _ = world.make());
        world.take_free_number();
        making.join().unwrap();
        assert_eq!(*world.files(), [Some(File::Programs), Some(File::Ours)]);
        assert!(!world.is_hidden(NUMBER) && world.is_hidden(NEXT));
        assert_eq!(world.field.load(SeqCst), NEXT);
    });
}

/// The same, where what has been made is closed again.
#[test]
fn a_number_is_born_and_closed_while_it_is_taken() {
    explore(3, || {
        let world = World::empty();
        let making = run(&world, |world| {
            world.make();
            world.close();
        });
        world.take_free_number();
        making.join().unwrap();
        world.assert_closed([Some(File::Programs), None]);
    });
}

/// Catches a birth that waits for a dup2(2) that another has waited for in vain, one that waits for
/// none that has come since, and a count that is not right once the slow one has come back.
#[test]
fn a_number_is_born_beside_a_slow_dup2() {
    explore(3, || {
        let world = World::empty();
        // The kernel has put its file there long ago.
        let slow = world.exclusion.begin_taking(&is_copy);
        let making = run(&world, |world| {
            sys::let_time_pass();
            world.exclusion.begin_birth();
            world.exclusion.end_birth();
            world.make();
        });
        // Until then it would be one that is slow as well.
        sys::wait_until_time_passes();
        world.take_free_number();
        making.join().unwrap();
        assert_eq!(*world.files(), [Some(File::Programs), Some(File::Ours)]);
        world.exclusion.end_taking(slow);
        world.exclusion.begin_birth();
        world.exclusion.end_birth();
    });
}
