//! The engine's stalled-thread test (`crates/wakeset/tests/stalls`) for objects by number: a thread stopped anywhere in a write, a
//! read or a ring stops no other, not even one that moves the very object into the kernel, and nothing is lost when it goes on.
//!
//! `RUSTFLAGS="--cfg wakeset_steps" cargo test -p wakeset-fd --test stalls`, or `ci/stalls`. Also: a thread stopped in a wait, a
//! move or a close keeps waiting only who needs a lock it holds, or the very object that it moves or closes.
#![cfg(wakeset_steps)]
#![allow(missing_docs)]

mod looks;
#[path = "../../../wakeset/tests/stalls/trap.rs"]
#[allow(dead_code, reason = "the engine's test uses more of it")]
mod trap;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::FromRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trap::{Beside, LIMIT, Place, Progress, Thread};
use wakeset_fd as fd;
use world::{B, C, ET, IN, ONESHOT, PIPE, World, add, epoll, eventfd, read, wait, write};

type Do = fn(&Arc<World>);

struct Scenario {
    name: &'static str,
    prepare: Do,
    act: Do,
    /// What wakes it, if it sleeps.
    nudge: Option<fn(&World)>,
    /// It changes a source and does nothing else, so nobody ever waits for it.
    wakes: bool,
    /// It moves the counters of the world.
    moves: bool,
}

const fn scenario(name: &'static str, prepare: Do, act: Do) -> Scenario {
    Scenario { name, prepare, act, nudge: None, wakes: false, moves: false }
}

const fn wake(name: &'static str, prepare: Do, act: Do) -> Scenario {
    Scenario { wakes: true, ..scenario(name, prepare, act) }
}

fn write_fast(number: libc::c_int, n: u64) -> bool {
    // SAFETY: eight bytes of our own.
    unsafe { fd::counter::write_fast(number, (&raw const n).cast(), 8) || write(number, n) }
}

fn read_fast(number: libc::c_int) -> Option<u64> {
    let mut n = 0_u64;
    // SAFETY: eight bytes of our own.
    if unsafe { fd::counter::read_fast(number, (&raw mut n).cast(), 8) } == 8 { Some(n) } else { read(number) }
}

fn pipe(world: &World) -> [libc::c_int; 2] {
    let mut ends = [0; 2];
    // SAFETY: room for two.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    world.more.lock().unwrap().extend(ends);
    ends
}

/// From now on the set has both halves.
fn mix(world: &World) {
    let [reader, _] = pipe(world);
    add(world.set, reader, IN, PIPE);
}

/// A move stands at a step, and goes on while somebody waits for it, or is stopped.
fn stop_a_move(world: &World, number: libc::c_int, step: &'static str) {
    let mover = Thread::start(Some(Place { step, arrival: 1 }), move || dup(number).unwrap());
    assert_eq!(mover.until_stopped(), Progress::Stopped);
    let releaser = Thread::start(None, move || {
        std::thread::sleep(Duration::from_millis(2));
        mover.release();
        mover.join().unwrap();
    });
    world.extras.lock().unwrap().push(releaser);
}

fn scenarios() -> Vec<Scenario> {
    vec![
        wake("a write", |_| {}, |world| world.write_a(write_fast)),
        wake("a write, and a waiter sleeps", World::start_worker, |world| world.write_a(write_fast)),
        wake(
            "a write, and a waiter sleeps in the kernel",
            |world| {
                mix(world);
                world.start_worker();
            },
            |world| world.write_a(write_fast),
        ),
        wake("the long way of a write", World::start_worker, |world| world.write_a(write)),
        wake("a read", |world| world.write_a(write), |world| world.read_a(read_fast)),
        wake(
            "a write to what is being moved",
            |world| {
                stop_a_move(world, world.a(), "move_sealed");
            },
            |world| world.write_a(write),
        ),
        Scenario {
            nudge: Some(|world| assert!(write(world.c, 1))),
            ..scenario(
                "a wait that sleeps in the kernel",
                |world| {
                    mix(world);
                    add(world.set, world.c, IN, C);
                },
                |world| world.work_until(C),
            )
        },
        Scenario {
            nudge: Some(|world| assert!(write(world.c, 1))),
            moves: true,
            ..scenario(
                "a wait in a set that moves",
                |world| {
                    add(world.set, world.c, IN, C);
                    stop_a_move(world, world.set, "move_watches_handed");
                },
                |world| world.work_until(C),
            )
        },
        scenario("a move of an eventfd", |_| {}, |world| dup(world.c).unwrap()),
        scenario(
            "a move of a set",
            |world| {
                // Watched from another one, so both move.
                let (set, outer) = (epoll(), epoll());
                add(set, world.c, IN, 1);
                add(outer, set, IN, 1);
                world.more.lock().unwrap().extend([set, outer]);
            },
            |world| {
                let set = world.more.lock().unwrap()[0];
                dup(set).unwrap();
            },
        ),
        Scenario {
            moves: true,
            ..scenario("a move of everything, as before a fork", |_| {}, |_| fd::fork::prepare().in_parent())
        },
        Scenario {
            moves: true,
            // What is closed meanwhile is not the number's any more.
            ..scenario("a move of what has been written", |world| world.write_a(write), |world| drop(dup(world.a())))
        },
        scenario(
            "a move of a pipe that is not empty",
            |world| {
                let ends = own_pipe();
                write_bytes(ends[1], b"x");
                add(world.set, ends[0], IN | ET, PIPE);
                world.more.lock().unwrap().extend(ends);
            },
            |world| {
                let reader = world.more.lock().unwrap()[0];
                dup(reader).unwrap();
            },
        ),
        scenario("the first kernel descriptor of a set", |_| {}, |world| mix(world)),
        scenario(
            "a close",
            |_| {},
            |world| {
                let number = eventfd();
                add(world.set, number, IN, 7);
                fd::close(number).unwrap();
            },
        ),
        scenario(
            "a wait of no time in both halves",
            |world| {
                mix(world);
                world.write_a(write);
            },
            |world| {
                world.wait(0);
                world.wait(0);
            },
        ),
    ]
}

struct Operation {
    name: &'static str,
    run: fn(&Arc<World>) -> Result<(), String>,
    /// It uses a counter and nothing else: it never waits for a thread but one that moves that counter. Others may wait for who
    /// moves or closes anything in the same set, or holds the set's lock.
    of_counter: bool,
}

const fn operation(name: &'static str, run: fn(&Arc<World>) -> Result<(), String>) -> Operation {
    Operation { name, run, of_counter: false }
}

const fn of_counter(name: &'static str, run: fn(&Arc<World>) -> Result<(), String>) -> Operation {
    Operation { of_counter: true, ..operation(name, run) }
}

/// Another descriptor of it, for a moment: it moves into the kernel.
fn dup(number: libc::c_int) -> Result<(), String> {
    let copy = fd::dup(number).map_err(|error| format!("{error:?}"))?;
    fd::close(copy).map_err(|error| format!("{error:?}"))
}

fn is_readable(number: libc::c_int) -> bool {
    let mut asked = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry of our own.
    unsafe { libc::poll(&raw mut asked, 1, 0) == 1 }
}

fn use_new_objects() -> Result<(), String> {
    let (set, number) = (epoll(), eventfd());
    add(set, number, IN | ET, 7);
    assert!(write(number, 1));
    let reported = wait(set, 0);
    fd::close(set).unwrap();
    fd::close(number).unwrap();
    if reported == [7] { Ok(()) } else { Err(format!("a new set reports {reported:?}")) }
}

fn operations() -> Vec<Operation> {
    vec![
        of_counter("write to another source", |world| {
            assert!(write(world.b, 1));
            Ok(())
        }),
        of_counter("write to the same source", |world| {
            world.write_a(write_fast);
            Ok(())
        }),
        of_counter("read of the same source", |world| {
            world.read_a(read);
            Ok(())
        }),
        operation("wait of no time", |world| {
            world.wait(0);
            Ok(())
        }),
        operation("write to another source, and the wait that hears of it", |world| {
            let before = world.of(B);
            assert!(write(world.b, 1));
            world.hear(B, before)
        }),
        operation("a wait that sleeps, a write to another source that wakes it", |world| {
            world.start_worker();
            let before = world.of(B);
            assert!(write(world.b, 1));
            world.hear(B, before)
        }),
        operation("change of interest of the same watch", |world| {
            world.modify_a();
            Ok(())
        }),
        operation("removal of the same watch", |world| {
            world.remove_a();
            Ok(())
        }),
        operation("removal of the same watch, and add again", |world| {
            world.remove_a();
            world.add_a();
            Ok(())
        }),
        operation("removal, add, write, and the wait that hears of it", |world| {
            world.remove_a();
            world.add_a();
            let data = world.data();
            world.write_a(write);
            world.hear(data, 0)
        }),
        operation("add of the same source elsewhere", |world| {
            let set = epoll();
            add(set, world.a(), IN, 1);
            fd::close(set).map_err(|error| format!("{error:?}"))
        }),
        operation("add of a kernel descriptor", |world| {
            mix(world);
            Ok(())
        }),
        operation("close of the same source, and another under its number", |world| {
            world.close_a();
            Ok(())
        }),
        operation("close of another source of the set", |world| {
            let number = eventfd();
            add(world.set, number, IN, 7);
            fd::close(number).map_err(|error| format!("{error:?}"))
        }),
        operation("close of a set that watches the same source", |world| {
            let set = epoll();
            add(set, world.a(), IN | ET, 1);
            let kernel = epoll();
            add(set, kernel, IN, 2);
            fd::close(set).unwrap();
            fd::close(kernel).map_err(|error| format!("{error:?}"))
        }),
        operation("new sets and sources", |_| (0..4).try_for_each(|_| use_new_objects())),
        operation("move of another source", |world| dup(world.b)),
        operation("move of the same source", |world| dup(world.a())),
        operation("move of the set", |world| dup(world.set)),
        operation("move of everything, as before a fork", |_| {
            fd::fork::prepare().in_parent();
            Ok(())
        }),
        operation("move of the same source, write, and the wait that hears of it", |world| {
            dup(world.a())?;
            if world.kind & ONESHOT != 0 {
                world.modify_a();
            }
            let data = world.data();
            let before = world.of(data);
            world.write_a(write);
            let number = world.a();
            // Who works on the set may have read it before this write, and reads now what it was told of then. The number is the
            // kernel's, so poll(2) says so.
            world.hear_unless(data, if world.kind & ONESHOT != 0 { 0 } else { before }, || !is_readable(number))
        }),
    ]
}

/// A scenario under way.
struct Course {
    world: Arc<World>,
    thread: Thread,
}

impl Course {
    fn start(scenario: &Scenario, kind: u32, place: Option<Place>) -> Self {
        let world = World::new(kind);
        (scenario.prepare)(&world);
        let (act, acting) = (scenario.act, Arc::clone(&world));
        let thread = Thread::start(place, move || act(&acting));
        Self { world, thread }
    }

    /// Returns when the thread is stopped or at its end, having woken it if need be.
    fn until_stopped(&self, scenario: &Scenario) -> Progress {
        let end = Instant::now() + LIMIT;
        if let Some(nudge) = scenario.nudge {
            // In a set that has moved it sleeps in a plain system call, and comes to no step before.
            let patience = Duration::from_millis(20);
            while !matches!(self.thread.at_rest_within(patience), Progress::Stopped | Progress::Ended)
                && Instant::now() < end
            {
                nudge(&self.world);
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        self.thread.until_stopped()
    }
}

/// The steps a scenario's thread comes to, with how often.
fn record(scenario: &Scenario, kind: u32) -> BTreeMap<&'static str, usize> {
    let course = Course::start(scenario, kind, None);
    assert_eq!(course.until_stopped(scenario), Progress::Ended, "{}", scenario.name);
    let mut counts = BTreeMap::new();
    for step in course.thread.log() {
        *counts.entry(step).or_default() += 1;
    }
    course.thread.join().unwrap();
    course.world.check().unwrap_or_else(|error| panic!("{}, without a stop: {error}", scenario.name));
    counts
}

/// Whether the operation waited for the stopped thread; `None` if that did not come to the place.
fn attempt(scenario: &Scenario, kind: u32, place: Place, operation: &Operation) -> Option<Result<bool, String>> {
    let course = Course::start(scenario, kind, Some(place));
    match course.until_stopped(scenario) {
        Progress::Stopped => {}
        Progress::Ended => return None,
        progress => return Some(Err(format!("did not come there: {progress:?}"))),
    }
    let (run, other) = (operation.run, Arc::clone(&course.world));
    let beside = course.thread.beside(move || run(&other).unwrap());
    course.thread.release();
    if course.until_stopped(scenario) == Progress::Stuck {
        return Some(Err("the stopped thread does not go on".into()));
    }
    let gone_on = course.thread.join().map_err(|error| format!("the stopped thread: {error}"));
    let (waited, done) = match beside {
        Beside::Ended(done) => (false, done),
        Beside::Waits(late) => (true, late.join()),
    };
    if waited && (scenario.wakes || operation.of_counter && !scenario.moves) {
        return Some(Err("waits for the stopped thread".into()));
    }
    Some(done.and(gone_on).and_then(|()| course.world.check()).map(|()| waited))
}

/// A fork closes the gate and moves what is in the table. What a stopped thread puts there only then must move as well, when that thread
/// goes on, be the fork over or not: the child has the kernel's object and none of the state.
fn what_is_made_during_a_fork_moves() {
    let make: [(fn() -> Vec<libc::c_int>, usize); 5] = [
        (|| vec![eventfd()], 1),
        (|| vec![epoll()], 1),
        (|| vec![fd::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC).unwrap()], 1),
        (|| own_pipe().to_vec(), 1),
        (|| own_pipe().to_vec(), 2),
    ];
    for ((make, arrival), is_over) in make.into_iter().flat_map(|make| [(make, false), (make, true)]) {
        let (tell, made) = std::sync::mpsc::channel();
        let place = Place { step: "entry_before_put", arrival };
        let maker = Thread::start(Some(place), move || tell.send(make()).unwrap());
        assert_eq!(maker.until_stopped(), Progress::Stopped);
        let fork = fd::fork::prepare();
        if is_over {
            fork.in_parent();
            maker.release();
        } else {
            maker.release();
            // It waits for the fork, as it should, or is through by now.
            std::thread::sleep(Duration::from_millis(10));
            fork.in_parent();
        }
        maker.join().unwrap();
        let numbers = made.recv().unwrap();
        let moved = !numbers.iter().any(|number| fd::descriptor::is_in_process(*number));
        numbers.into_iter().for_each(|number| fd::close(number).unwrap());
        assert!(moved, "stopped at entry_before_put: what was made during a fork stays in the process");
    }
}

fn read_all(number: libc::c_int) -> Vec<u8> {
    let mut bytes = [0; 64];
    // SAFETY: room for so many.
    let n = unsafe { fd::read(number, bytes.as_mut_ptr(), bytes.len()) }.unwrap();
    bytes[..n].to_vec()
}

fn write_bytes(number: libc::c_int, bytes: &[u8]) {
    // SAFETY: bytes of that length.
    assert_eq!(unsafe { fd::write(number, bytes.as_ptr(), bytes.len()) }, Ok(bytes.len()));
}

fn own_pipe() -> [libc::c_int; 2] {
    let mut ends = [0; 2];
    // SAFETY: room for two.
    unsafe { fd::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) }.unwrap();
    ends
}

/// What is in a pipe goes before what is written while the pipe moves: that waits until the kernel has it.
fn what_is_written_during_a_move_comes_behind() {
    for written in [&b"a"[..], b"abc"] {
        let [reader, writer] = own_pipe();
        write_bytes(writer, written);
        let place = Place { step: "pipe_before_carry", arrival: 1 };
        let mover = Thread::start(Some(place), move || dup(reader).unwrap());
        assert_eq!(mover.until_stopped(), Progress::Stopped);
        let late = match mover.beside(move || write_bytes(writer, b"z")) {
            Beside::Waits(late) => late,
            Beside::Ended(_) => panic!("stopped at pipe_before_carry: a write does not wait"),
        };
        mover.release();
        mover.join().unwrap();
        late.join().unwrap();
        assert_eq!(read_all(reader), [written, b"z"].concat(), "stopped at pipe_before_carry");
        fd::close(reader).unwrap();
        fd::close(writer).unwrap();
    }
}

/// A number whose close waits for a move is the kernel's to everybody else, and can be added to the set that still watches it. The move then finds the
/// kernel half watching it, which is no loss.
fn an_add_beside_a_close_is_no_loss() {
    let (set, number) = (epoll(), eventfd());
    // Both halves: otherwise the add would wait for the move.
    let [reader, writer] = own_pipe();
    dup(reader).unwrap();
    add(set, reader, IN, 0);
    add(set, number, IN, 1);
    let place = Place { step: "move_sealed", arrival: 1 };
    let mover = Thread::start(Some(place), move || dup(number).unwrap());
    assert_eq!(mover.until_stopped(), Progress::Stopped);
    let closer = match mover.beside(move || fd::close(number).unwrap()) {
        Beside::Waits(closer) => closer,
        Beside::Ended(_) => panic!("stopped at move_sealed: a close does not wait"),
    };
    add(set, number, IN, 2);
    let said = said_on_stderr(|| {
        mover.release();
        mover.join().unwrap();
    });
    closer.join().unwrap();
    [set, reader, writer].into_iter().for_each(|number| fd::close(number).unwrap());
    assert_eq!(said, "", "stopped at move_sealed: an add beside a close");
}

/// What is written to standard error meanwhile.
fn said_on_stderr(act: impl FnOnce()) -> String {
    let mut ends = [0; 2];
    // SAFETY: room for two; numbers of our own.
    let own = unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let own = libc::dup(2);
        libc::dup2(ends[1], 2);
        own
    };
    act();
    // SAFETY: as before; nobody else has the writing end.
    let mut reader = unsafe {
        libc::dup2(own, 2);
        libc::close(own);
        libc::close(ends[1]);
        std::fs::File::from_raw_fd(ends[0])
    };
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn a_thread_stopped_at_any_step_stops_no_other_and_loses_nothing() {
    // Not a test of its own: descriptor numbers are the whole process's.
    what_is_made_during_a_fork_moves();
    what_is_written_during_a_move_comes_behind();
    an_add_beside_a_close_is_no_loss();
    looks::a_pump_beside_a_move_finds_what_was_written();
    looks::a_look_beside_a_move_finds_what_was_written();
    let operations = operations();
    let mut stopped_at = BTreeSet::new();
    let mut failures = Vec::new();
    let mut waiting = BTreeMap::<_, BTreeSet<_>>::new();
    let mut courses = 0;
    for scenario in scenarios() {
        let began = Instant::now();
        let kinds: &[u32] = if scenario.wakes { &[IN, IN | ET, IN | ONESHOT] } else { &[IN | ET] };
        for &kind in kinds {
            for (step, n) in record(&scenario, kind) {
                for arrival in 1..=n.min(2) {
                    let place = Place { step, arrival };
                    for operation in &operations {
                        let Some(result) = attempt(&scenario, kind, place, operation) else { continue };
                        stopped_at.insert(step);
                        courses += 1;
                        match result {
                            Ok(false) => {}
                            Ok(true) => drop(waiting.entry(operation.name).or_default().insert(step)),
                            Err(error) => {
                                let at = format!("{}, {kind:#x}, stopped at {step} ({arrival})", scenario.name);
                                failures.push(format!("{at}: {}: {error}", operation.name));
                                println!("{}", failures.last().unwrap());
                            }
                        }
                        assert!(failures.len() < 20, "{courses} courses, too many failures:\n{}", failures.join("\n"));
                    }
                }
            }
        }
        println!("{}: {courses} courses so far, {:.1?}", scenario.name, began.elapsed());
    }
    println!("{courses} courses, stopped at {} steps", stopped_at.len());
    for (operation, steps) in &waiting {
        println!("{operation} waits at {} steps", steps.len());
    }
    assert!(failures.is_empty(), "of {courses} courses:\n{}", failures.join("\n"));
    let unreached: Vec<_> = fd::steps::ALL.iter().filter(|step| !stopped_at.contains(*step)).collect();
    assert!(unreached.is_empty(), "unreached steps: {unreached:?}");
}
