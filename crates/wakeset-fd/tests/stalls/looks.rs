//! A check of a set (a wait with timeout 0) while a source migrates that the set watches, directly
//! or through other sets. The check must find what was written before it began. The migrating
//! thread ("mover"), the writer and the checking thread ("looker") are each stopped at every step
//! that they reach.

use crate::descriptors::{migrate, own_pipe};
use crate::trap::{Beside, Place, Progress, Thread, failures_wanted};
use crate::world::{ET, IN, add, epoll, eventfd, wait, write};
use libc::c_int;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use wakeset_fd as fd;

/// A source, and the sets around it.
#[derive(Clone, Copy)]
struct Shape {
    /// What the source is.
    of: Of,
    /// How many sets there are, each in the next one.
    depth: usize,
    way: Way,
    /// The events that the innermost set watches the source for.
    kind: u32,
    /// The events that each other set watches the one in it for.
    outer_kind: u32,
}

/// How long a thread may take to reach its place or its end. Nothing is demanded of one that takes
/// longer.
const PATIENCE: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Eventfd,
    Pipe,
    Timer,
}

impl Of {
    fn open(self) -> [c_int; 2] {
        match self {
            Self::Eventfd => [eventfd(); 2],
            Self::Pipe => own_pipe(),
            Self::Timer => {
                [fd::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK).unwrap(); 2]
            }
        }
    }

    /// Makes the source ready.
    fn write(self, writer: c_int) {
        if self != Self::Timer {
            return assert!(write(writer, 1));
        }
        let time = |nanoseconds| libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
        let long_ago = libc::itimerspec { it_interval: time(0), it_value: time(1) };
        let flags = libc::TFD_TIMER_ABSTIME;
        // SAFETY: a valid time; the old one is not asked for.
        unsafe { fd::timerfd_settime(writer, flags, &raw const long_ago, std::ptr::null_mut()) }
            .unwrap();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The source migrates.
    Plain,
    /// The source migrates; the innermost set also watches an empty pipe of the kernel's.
    Mixed,
    /// The source migrates; the innermost set has an event ring.
    Ringed,
    /// Every object migrates, as before a fork.
    Fork,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, depth, way, kind, outer_kind } = self;
        write!(
            f,
            "{of:?}, {way:?}, {depth} sets, the first for {kind:#x}, the others for {outer_kind:#x}"
        )
    }
}

impl Shape {
    fn go(self, source: c_int) {
        if self.way == Way::Fork {
            fd::fork::prepare().in_parent();
        } else {
            migrate(source).unwrap();
        }
    }
}

fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (of, kind) in [(Of::Eventfd, IN), (Of::Eventfd, IN | ET), (Of::Pipe, IN), (Of::Timer, IN)] {
        let shape = |depth, way, outer_kind| Shape { of, depth, way, kind, outer_kind };
        shapes.extend([
            shape(1, Way::Plain, IN),
            shape(1, Way::Mixed, IN),
            shape(1, Way::Ringed, IN),
            shape(2, Way::Plain, IN),
            shape(2, Way::Plain, IN | ET),
            shape(2, Way::Ringed, IN),
            shape(2, Way::Fork, IN),
            shape(3, Way::Plain, IN),
        ]);
    }
    shapes
}

struct Nest {
    shape: Shape,
    source: c_int,
    /// The descriptor that makes the source ready.
    writer: c_int,
    top: c_int,
    numbers: Vec<c_int>,
}

impl Nest {
    fn new(shape: Shape) -> Self {
        let [source, writer] = shape.of.open();
        let mut numbers = Vec::new();
        let (mut top, mut kind) = (source, shape.kind);
        for _ in 0..shape.depth {
            let set = epoll();
            add(set, top, kind, 1);
            numbers.push(set);
            (top, kind) = (set, shape.outer_kind);
        }
        if shape.way == Way::Ringed {
            assert!(fd::ring_setup(numbers[0], 8).unwrap());
        }
        if shape.way == Way::Mixed {
            let [reader, writer] = own_pipe();
            // It is the kernel's, so that the set has both halves.
            migrate(reader).unwrap();
            add(numbers[0], reader, IN, 2);
            numbers.extend([reader, writer]);
        }
        numbers.push(source);
        if writer != source {
            numbers.push(writer);
        }
        Self { shape, source, writer, top, numbers }
    }
}

impl Drop for Nest {
    fn drop(&mut self) {
        self.numbers.drain(..).for_each(|number| fd::close(number).unwrap());
    }
}

/// The places that a thread reaches in `act`.
fn places(shape: Shape, prepare: fn(&Nest), act: fn(&Nest)) -> Vec<Place> {
    let nest = Nest::new(shape);
    prepare(&nest);
    let (tell, told) = channel();
    let thread = Thread::start(None, move || {
        act(&nest);
        tell.send(nest).unwrap();
    });
    drop(told.recv().unwrap());
    let places = numbered(thread.log());
    thread.join().unwrap();
    places
}

/// The steps as places: each with the number of its arrivals so far.
pub fn numbered(steps: Vec<&'static str>) -> Vec<Place> {
    let mut arrivals = BTreeMap::new();
    let mut number = |step| {
        let arrival = arrivals.entry(step).or_insert(0);
        *arrival += 1;
        Place { step, arrival: *arrival }
    };
    steps.into_iter().map(&mut number).collect()
}

fn move_it(nest: &Nest) {
    nest.shape.go(nest.source);
}

fn write_it(nest: &Nest) {
    nest.shape.of.write(nest.writer);
}

fn look(nest: &Nest) {
    // Twice, so that each half of the set is checked first once.
    drop(wait(nest.top, 0));
    drop(wait(nest.top, 0));
}

/// Checks the set once, or twice if it has only levels, which a check does not use up. Each check
/// must find something, and none may report the same watch twice.
fn looks(shape: Shape, top: c_int) -> Result<(), String> {
    let sure = if (shape.kind | shape.outer_kind) & ET == 0 { 2 } else { 1 };
    (1..=sure).try_for_each(|n| match wait(top, 0)[..] {
        [] => Err(format!("look {n} finds nothing")),
        [_] => Ok(()),
        ref more => Err(format!("look {n} finds one watch {} times", more.len())),
    })
}

/// The checks while `stopped` is stopped; if they wait for it, they end after it has gone on.
fn look_beside(shape: Shape, nest: &Nest, stopped: &Thread) -> Result<(), String> {
    let top = nest.top;
    match stopped.beside(move || looks(shape, top).unwrap()) {
        Beside::Ended(looked) => looked,
        Beside::Waits(late) => {
            stopped.release();
            late.join()
        }
    }
}

fn stopped(place: Place, act: impl FnOnce() + Send + 'static) -> Option<Thread> {
    let thread = Thread::start(Some(place), act);
    match thread.until_stopped() {
        Progress::Stopped => Some(thread),
        progress => {
            assert_eq!(progress, Progress::Ended);
            thread.join().unwrap();
            None
        }
    }
}

/// The mover is stopped. A check finds what was written before it began or while it was stopped.
fn beside_a_mover(shape: Shape, before: bool, place: Place) -> Result<(), String> {
    let nest = Nest::new(shape);
    if before {
        write_it(&nest);
    }
    let (source, writer) = (nest.source, nest.writer);
    let Some(mover) = stopped(place, move || shape.go(source)) else { return Ok(()) };
    let mut looked = Ok(());
    let written = match before {
        true => Beside::Ended(Ok(())),
        false => mover.beside(move || shape.of.write(writer)),
    };
    match written {
        Beside::Ended(written) => {
            written.unwrap();
            looked = look_beside(shape, &nest, &mover);
        }
        Beside::Waits(writer) => {
            mover.release();
            writer.join().unwrap();
            if shape.kind & ET == 0 {
                looked = looks(shape, nest.top);
            }
        }
    }
    mover.release();
    mover.join()?;
    looked
}

/// The writer is stopped, then the mover, and the writer goes on. Once the writer has ended, a
/// check finds what it has written.
fn behind_a_writer(shape: Shape, place: Place, place_of_mover: Place) -> Result<(), String> {
    let nest = Nest::new(shape);
    let (source, writer) = (nest.source, nest.writer);
    let Some(writer) = stopped(place, move || shape.of.write(writer)) else { return Ok(()) };
    let mover = Thread::start(Some(place_of_mover), move || shape.go(source));
    // The mover may wait for the writer, and the writer for the mover.
    let stands = mover.at_rest_within(PATIENCE) == Progress::Stopped;
    writer.release();
    let through = writer.ends_within(PATIENCE);
    let looked = if stands && through { look_beside(shape, &nest, &mover) } else { Ok(()) };
    mover.release();
    mover.join()?;
    writer.join()?;
    looked
}

/// The looker is stopped, and the source migrates, or every object.
fn a_looker(shape: Shape, place: Place) -> Result<(), String> {
    let nest = Nest::new(shape);
    write_it(&nest);
    let (source, top) = (nest.source, nest.top);
    let Some(looker) = stopped(place, move || looks(shape, top).unwrap()) else { return Ok(()) };
    let moved = looker.beside(move || shape.go(source));
    looker.release();
    let looked = looker.join();
    moved.join()?;
    looked
}

/// The same for a check on behalf of another process:
/// [`Writer::pump`](fd::shared_ring::Writer::pump).
fn a_pump(place: Option<Place>) -> Result<Vec<&'static str>, String> {
    let (set, counter) = (epoll(), eventfd());
    add(set, counter, IN, 1);
    let mut writer = fd::shared_ring::Writer::new(set, 8).unwrap();
    assert!(write(counter, 1));
    let pump =
        Thread::start(place, move || assert_eq!(writer.pump(), Ok(1), "the pump finds nothing"));
    if pump.until_stopped() == Progress::Stopped {
        let moved = pump.beside(move || migrate(counter).unwrap());
        pump.release();
        moved.join()?;
    }
    let came_to = pump.log();
    pump.join()?;
    [set, counter].into_iter().for_each(|number| fd::close(number).unwrap());
    Ok(came_to)
}

pub fn a_pump_beside_a_move_finds_what_was_written() {
    for place in numbered(a_pump(None).unwrap()) {
        a_pump(Some(place)).unwrap_or_else(|error| panic!("a pump stopped at {place:?}: {error}"));
    }
}

pub fn a_look_beside_a_move_finds_what_was_written() {
    let mut failures = Vec::new();
    let mut courses = 0;
    let began = Instant::now();
    for shape in shapes() {
        let mut course = |what: &str, at: String, result: Result<(), String>| {
            courses += 1;
            if let Err(error) = result {
                failures.push(format!("{shape}: {what} stopped at {at}: {error}"));
                println!("{}", failures.last().unwrap());
                assert!(
                    failures.len() < failures_wanted(),
                    "{courses} courses, too many failures:\n{}",
                    failures.join("\n")
                );
            }
        };
        let moves = places(shape, write_it, move_it);
        for &place in &moves {
            for before in [true, false] {
                let what = if before { "a mover of what was written," } else { "a mover" };
                course(what, format!("{place:?}"), beside_a_mover(shape, before, place));
            }
        }
        for place in places(shape, |_| {}, write_it) {
            for &place_of_mover in moves.iter().filter(|place| place.arrival <= 2) {
                let at = format!("{place:?} and the mover at {place_of_mover:?}");
                course("a writer", at, behind_a_writer(shape, place, place_of_mover));
            }
        }
        for place in places(shape, write_it, look) {
            course("a looker", format!("{place:?}"), a_looker(shape, place));
        }
    }
    println!("a look beside a move: {courses} courses, {:.1?}", began.elapsed());
    assert!(
        failures.is_empty(),
        "of {courses} courses, {}:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
