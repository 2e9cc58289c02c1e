//! What the thread does that is stopped at each of its steps.

use crate::descriptors::{
    far_duplicate, migrate, mix, own_pipe, read_fast, write_bytes, write_fast,
};
use crate::polls;
use crate::trap::{Place, Progress, Thread};
use crate::world::{C, ET, IN, PIPE, World, add, epoll, eventfd, write};
use std::sync::Arc;
use std::time::Duration;
use wakeset_fd as fd;

pub type Do = fn(&Arc<World>);

pub struct Scenario {
    pub name: &'static str,
    pub prepare: Do,
    pub act: Do,
    /// What wakes it, if it sleeps.
    pub nudge: Option<fn(&World)>,
    /// It changes a source and does nothing else, so nobody ever waits for it.
    pub wakes: bool,
    /// It moves the counters of the world.
    pub moves: bool,
    /// How long its thread, and each beside it, spins before it sleeps (µs).
    pub spin: u32,
}

const fn scenario(name: &'static str, prepare: Do, act: Do) -> Scenario {
    Scenario { name, prepare, act, nudge: None, wakes: false, moves: false, spin: 0 }
}

const fn wake(name: &'static str, prepare: Do, act: Do) -> Scenario {
    Scenario { wakes: true, ..scenario(name, prepare, act) }
}

/// A move stands at a step, and goes on while somebody waits for it, or is stopped.
fn stop_a_move(world: &World, number: libc::c_int, step: &'static str) {
    let mover = Thread::start(Some(Place { step, arrival: 1 }), move || migrate(number).unwrap());
    assert_eq!(mover.until_stopped(), Progress::Stopped);
    let releaser = Thread::start(None, move || {
        std::thread::sleep(Duration::from_millis(2));
        mover.release();
        mover.join().unwrap();
    });
    world.extras.lock().unwrap().push(releaser);
}

/// All of them, and once more those that sleep, with a spin before it.
pub fn scenarios() -> Vec<Scenario> {
    let sleeping = once().into_iter().filter(|scenario| scenario.nudge.is_some());
    let spinning = sleeping.map(|scenario| Scenario { spin: 200, ..scenario });
    once().into_iter().chain(spinning).collect()
}

fn once() -> Vec<Scenario> {
    vec![
        wake("a write", |_| {}, |world| world.write_a(write_fast)),
        wake("a write, and a waiter sleeps", World::start_worker, |world| {
            world.write_a(write_fast)
        }),
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
            "a write to what is migrating",
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
        wake("a write, and a thread sleeps in poll(2)", polls::start_poll_of_source, |world| {
            world.write_a(write_fast)
        }),
        wake(
            "a write, and a thread sleeps in poll(2) in the kernel",
            polls::start_poll_of_both,
            |world| world.write_a(write_fast),
        ),
        Scenario {
            nudge: Some(polls::nudge_poll_of_source),
            ..scenario("a poll of the source", |_| {}, |world| polls::poll_source(world))
        },
        Scenario {
            nudge: Some(polls::nudge_poll_of_source),
            ..scenario(
                "a poll of the source and of a pipe of the kernel's",
                polls::open_pipe,
                |world| polls::poll_both(world),
            )
        },
        Scenario {
            nudge: Some(polls::nudge_poll_of_set),
            ..scenario("a poll of the set", |_| {}, |world| polls::poll_set(world))
        },
        scenario("a move of an eventfd", |_| {}, |world| migrate(world.c).unwrap()),
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
                migrate(set).unwrap();
            },
        ),
        Scenario {
            moves: true,
            ..scenario(
                "a move of everything, as before a fork",
                |_| {},
                |_| fd::fork::prepare().in_parent(),
            )
        },
        Scenario {
            moves: true,
            // What is closed meanwhile is not the number's any more.
            ..scenario(
                "a move of what has been written",
                |world| world.write_a(write),
                |world| drop(migrate(world.a())),
            )
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
                migrate(reader).unwrap();
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
            "a duplicate, and the close of one number after the other",
            |_| {},
            |world| {
                let number = eventfd();
                add(world.set, number, IN, 7);
                let copy = far_duplicate(number);
                fd::close(number).unwrap();
                assert!(write(copy, 1));
                fd::close(copy).unwrap();
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
