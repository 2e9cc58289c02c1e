//! What other threads do while one stands still.

use crate::patience::Patience;
use crate::trap::{LIMIT, Progress, Thread};
use crate::world::{A, B, B_DATA, World, add, counter};
use std::ops::Range;
use std::sync::Arc;
use std::thread::yield_now;
use wakeset::{Error, Event, EventPoll, Events, Source, Timeout};

/// The memory in which the locks are that an operation takes, given what the stopped thread holds.
type Locks = fn(&World, &[usize]) -> Vec<Range<usize>>;

pub struct Operation {
    pub name: &'static str,
    /// To be called in a thread of its own.
    pub run: fn(&Arc<World>) -> Result<(), String>,
    /// It waits for a thread that holds one of them.
    pub locks: Locks,
    pub closes_set: bool,
}

const fn operation(
    name: &'static str,
    locks: Locks,
    run: fn(&Arc<World>) -> Result<(), String>,
) -> Operation {
    Operation { name, run, locks, closes_set: false }
}

fn no_lock(_: &World, _: &[usize]) -> Vec<Range<usize>> {
    vec![]
}

fn of_set(world: &World, _: &[usize]) -> Vec<Range<usize>> {
    vec![world.in_set(), world.in_outer()]
}

/// An add to a set takes the nesting lock as well if a set watches it. The close of what was added
/// waits for a taker from the ring.
fn of_add(world: &World, held: &[usize]) -> Vec<Range<usize>> {
    let mut locks = of_set(world, held);
    locks.extend([world.in_nesting(), world.in_ring()]);
    locks
}

/// What puts a watch on a source or takes it off takes the lock of its wait queue too, for a few
/// instructions; and so does counting paths.
fn of_watch(world: &World, held: &[usize]) -> Vec<Range<usize>> {
    let mut locks = of_add(world, held);
    locks.extend([&world.a, &world.b].map(World::in_counter));
    locks
}

/// A close takes the scan locks of all sets that watch what is closed, one after the other.
fn of_close(world: &World, held: &[usize]) -> Vec<Range<usize>> {
    let mut locks = of_set(world, held);
    locks.extend([&world.a, &world.b, &world.c].map(World::in_counter));
    locks.push(world.in_ring());
    locks.extend(world.elsewhere(held));
    locks
}

fn expect(what: &str, holds: bool) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// Whether `holds` becomes true while other threads, none of which stands still, go on to their
/// end.
fn soon(what: &str, holds: impl Fn() -> bool) -> Result<(), String> {
    let mut patience = Patience::of(LIMIT);
    while !holds() {
        if patience.is_over() {
            return Err(what.into());
        }
        yield_now();
    }
    Ok(())
}

/// A new set in which a new counter is watched, written to and reported.
fn use_new_objects(world: &World) -> Result<(), String> {
    let set =
        EventPoll::with_ready_list(&world.engine, world.list).map_err(|error| error.to_string())?;
    let fresh = counter();
    add(&set, A, &fresh, Events::IN | Events::ET, 7);
    fresh.write(1).unwrap();
    let mut events = [Event::default(); 4];
    let n = set.wait(&mut events, Timeout::Now);
    fresh.wait_queue().close();
    expect(
        "a new set does not report a new counter, and it alone",
        n == Ok(1) && events[0].data == 7,
    )
}

pub fn operations() -> Vec<Operation> {
    vec![
        operation("write to the same source", no_lock, |world| {
            world.write_a(1);
            Ok(())
        }),
        operation("write to another source of the set", no_lock, |world| {
            world.b.write(1).map_err(|error| error.to_string())
        }),
        operation("read of the same source", no_lock, |world| {
            world.read_a();
            Ok(())
        }),
        operation("new sets and sources", no_lock, |world| {
            (0..4).try_for_each(|_| use_new_objects(world))
        }),
        operation(
            "add of the same source elsewhere",
            |world, _| vec![World::in_counter(&world.a)],
            |world| {
                let set = EventPoll::with_ready_list(&world.engine, world.list)
                    .map_err(|error| error.to_string())?;
                add(&set, A, &world.a, Events::IN, 7);
                // A value written after the add may be seen before its wake, while its writer is on
                // the way there; one that was there before the add is found by the add itself.
                soon("a new watch does not report what holds", || {
                    let n = set.wait(&mut [Event::default(); 4], Timeout::Now).unwrap();
                    n == 1 || world.a.value() == Some(0)
                })
            },
        ),
        operation("wait of no time", of_set, |world| {
            world.wait(&world.set(), Timeout::Now);
            Ok(())
        }),
        operation("write, and the wait that hears of it", of_set, |world| {
            let armed = !world.kind.contains(Events::ONESHOT);
            if !armed {
                world.modify_a().map_err(|error| error.to_string())?;
            }
            let data = world.data().unwrap();
            let before = world.reports.of(data);
            match world.write_a(1) {
                true => world.hear_a(data, if armed { before } else { 0 }),
                // Full, and so it stays until somebody reads.
                false => Ok(()),
            }
        }),
        operation("write to another source, and the wait that hears of it", of_set, |world| {
            let before = world.reports.of(B_DATA);
            world.b.write(1).unwrap();
            world.hear(B_DATA, before)
        }),
        operation(
            "write to another source, and the take from the ring that hears of it",
            of_set,
            |world| {
                let before = world.reports.of(B_DATA);
                world.b.write(1).unwrap();
                world.take_until(B_DATA, before)
            },
        ),
        operation("a wait that sleeps, a write to another source that wakes it", of_set, |world| {
            world.start_worker();
            let before = world.reports.of(B_DATA);
            world.b.write(1).unwrap();
            world.hear(B_DATA, before)
        }),
        operation("add of another source", of_add, |world| {
            let fresh = counter();
            fresh.write(1).unwrap();
            let set = world.set();
            add(&set, 30, &fresh, Events::IN | Events::ET, 1030);
            let heard = world.hear(1030, 0);
            fresh.wait_queue().close();
            heard
        }),
        operation("change of interest of the same watch", of_set, |world| match world.modify_a() {
            Ok(()) if world.kind.contains(Events::IN) => world.hear_a(world.data().unwrap(), 0),
            Ok(()) => Ok(()),
            Err(Error::Invalid) if world.kind.contains(Events::EXCLUSIVE) => Ok(()),
            Err(error) => Err(error.to_string()),
        }),
        operation("removal of the same watch", of_watch, |world| {
            world.remove_a();
            Ok(())
        }),
        operation("removal of the same watch, and add again", of_watch, |world| {
            world.remove_a();
            world.add_a();
            Ok(())
        }),
        operation("removal, add, write, and the wait that hears of it", of_watch, |world| {
            world.remove_a();
            world.add_a();
            let data = world.data().unwrap();
            match world.write_a(1) {
                true => world.hear_a(data, 0),
                false => Ok(()),
            }
        }),
        operation("removal and add of another watch", of_watch, |world| {
            let set = world.set();
            set.remove_source(B, Arc::as_ptr(&world.b).cast())
                .map_err(|error| error.to_string())?;
            add(&set, B, &world.b, Events::IN, B_DATA);
            Ok(())
        }),
        operation("close of the same source", of_close, |world| {
            world.close_a();
            Ok(())
        }),
        operation("close of another source of the set", of_close, |world| {
            world.close_b();
            Ok(())
        }),
        Operation {
            closes_set: true,
            ..operation("close of the set, new sets in its memory", of_close, |world| {
                world.close_set()?;
                (0..4).try_for_each(|_| use_new_objects(world))
            })
        },
        operation("wait on a set around it", of_watch, |world| {
            let outer = Arc::new(EventPoll::with_ready_list(&world.engine, world.list).unwrap());
            let set = world.set();
            add(&outer, 60, &set, Events::IN, 1);
            world.b.write(1).unwrap();
            soon("a set around it says nothing", || {
                let n = outer.wait(&mut [Event::default(); 4], Timeout::Now).unwrap();
                // A worker on the set may have been faster.
                n == 1 || world.reports.of(B_DATA) > 0 || world.b.value() == Some(0)
            })
        }),
        operation("a read that blocks, and a write", no_lock, |world| {
            let reader = Arc::clone(world);
            let reader = Thread::start(None, move || reader.read_a_blocking());
            // Others may read too, and be faster: another write, until it is this one's turn.
            while reader.until_at_rest() == Progress::Asleep {
                world.write_a(1);
                yield_now();
            }
            reader.join()
        }),
    ]
}
