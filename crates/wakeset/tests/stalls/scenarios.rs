//! What a thread does that is stopped at each of its steps in turn.

use crate::trap::{Place, Progress, Thread};
use crate::world::{A, B, C, C_DATA, FULL, World, add, address, counter, is_exclusive, try_add};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use wakeset::{Error, Event, EventPoll, Events, Source, Timeout, WaitQueue};

type Do = fn(&Arc<World>);

pub struct Scenario {
    pub name: &'static str,
    /// What is there before the thread begins.
    pub prepare: Do,
    /// What it does.
    pub act: Do,
    /// What wakes it, if it sleeps; whether there was need for that.
    pub nudge: Option<fn(&World) -> bool>,
    /// It waits on the set, which must not be closed then: who waits in a closed set waits for
    /// ever, in Linux too.
    pub waits: bool,
    /// Costly: not with every kind of watch.
    pub large: bool,
}

const fn scenario(name: &'static str, prepare: Do, act: Do) -> Scenario {
    Scenario { name, prepare, act, nudge: None, waits: false, large: false }
}

fn nothing(_: &Arc<World>) {}

fn look(world: &Arc<World>) {
    world.wait(&world.set(), Timeout::Now);
}

fn write(world: &Arc<World>) {
    world.write_a(1);
}

/// Makes `C` ready, which is level-triggered and so remains until somebody has handled it.
fn nudge_by_c(world: &World) -> bool {
    world.c.value() == Some(0) && world.c.write(1).is_ok()
}

/// Leaves a thread stopped at `step` of a write to `A`.
fn stall_a_writer(world: &Arc<World>, step: &'static str) -> Thread {
    let other = Arc::clone(world);
    let writer = Thread::start(Some(Place { step, arrival: 1 }), move || {
        other.write_a(1);
    });
    assert_eq!(writer.until_stopped(), Progress::Stopped);
    writer
}

fn nest(world: &Arc<World>, events: Events) {
    let outer = Arc::new(EventPoll::with_ready_list(&world.engine, world.list).unwrap());
    add(&outer, 50, &world.set(), events, 1);
    *world.outer.lock().unwrap() = Some(outer);
}

fn watch_from_others(world: &Arc<World>, n: usize) {
    for i in 0..n {
        let other = EventPoll::with_ready_list(&world.engine, world.list).unwrap();
        let exclusive = if is_exclusive(i) { Events::EXCLUSIVE } else { Events::empty() };
        add(&other, A, &world.a, Events::IN | exclusive, 2000 + i as u64);
        world.others.lock().unwrap().push(other);
    }
}

/// Those who change a source: the wake path proper.
pub fn wakes() -> Vec<Scenario> {
    vec![
        scenario("a write", nothing, write),
        scenario("a write, and a waiter sleeps", World::start_worker, write),
        scenario("a write to an edge of which another writer is stopped", prepare_marked, write),
        scenario(
            "a write, and a waiter sleeps around the set",
            |world| {
                nest(world, Events::IN);
                world.start_worker();
            },
            write,
        ),
        scenario(
            "a write to what is on the list of a nested set",
            |world| {
                nest(world, Events::IN | Events::ET);
                world.write_a(1);
                let outer = world.outer.lock().unwrap().clone().unwrap();
                let _ = outer.wait(&mut [Event::default(); 4], Timeout::Now);
            },
            write,
        ),
        Scenario {
            large: true,
            ..scenario(
                "a write, and six more sets watch",
                |world| {
                    watch_from_others(world, 6);
                    world.start_worker();
                },
                write,
            )
        },
        Scenario {
            large: true,
            ..scenario(
                "a write, and forty more sets watch",
                |world| watch_from_others(world, 40),
                write,
            )
        },
        scenario(
            "a write, and a reader is blocked",
            |world| {
                let reader = Arc::clone(world);
                let reader = Thread::asleep(move || reader.read_a_blocking());
                world.extras.lock().unwrap().push(reader);
            },
            write,
        ),
        scenario(
            "a write, and a waiter sleeps elsewhere",
            |world| {
                world.install_bell();
                let waiter = Arc::clone(world);
                let waiter = Thread::asleep(move || waiter.sleep_elsewhere());
                world.extras.lock().unwrap().push(waiter);
            },
            write,
        ),
        scenario("a source that changes without a read-modify-write", nothing, |world| {
            world.write_a(1);
            world.edges.fetch_add(1, SeqCst);
            world.a.wait_queue().wake(Events::IN);
        }),
        scenario("a read", write, |world| world.read_a()),
        scenario(
            "a read, and a writer is blocked",
            |world| {
                assert!(world.write_a(FULL));
                let writer = Arc::clone(world);
                let writer = Thread::asleep(move || writer.write_a_blocking(1));
                world.extras.lock().unwrap().push(writer);
            },
            |world| world.read_a(),
        ),
    ]
}

fn prepare_marked(world: &Arc<World>) {
    world.start_worker();
    let writer = stall_a_writer(world, "marked");
    world.extras.lock().unwrap().push(writer);
    world.called_for.store(true, SeqCst);
}

/// What a change of a set may say: others may have closed the set or the source meanwhile.
fn fits(result: Result<(), Error>) -> bool {
    matches!(result, Ok(()) | Err(Error::Closed | Error::NotWatched))
}

/// The other side: harvests, changes of the interest list, closes. These hold locks at times; wakes
/// must go on.
pub fn changes() -> Vec<Scenario> {
    vec![
        scenario(
            "a wait of no time",
            |world| {
                // One that holds, and one that does not any more.
                world.b.write(1).unwrap();
                world.b.try_read().unwrap();
                world.write_a(1);
            },
            look,
        ),
        Scenario {
            nudge: Some(nudge_by_c),
            waits: true,
            ..scenario(
                "a wait that sleeps",
                |world| add(&world.set(), C, &world.c, Events::IN, C_DATA),
                |world| world.work_until_c(),
            )
        },
        scenario(
            "a wait after a call for attention",
            |world| {
                let writer = stall_a_writer(world, "marked");
                world.extras.lock().unwrap().push(writer);
                world.called_for.store(true, SeqCst);
                world.write_a(1);
            },
            look,
        ),
        scenario(
            "a wait that finds a dead watch",
            |world| {
                let writer = stall_a_writer(world, "marked");
                world.remove_a();
                // Before the dead one is pushed: what makes something ready collects what has been.
                world.add_a();
                writer.release();
                writer.join().unwrap();
            },
            look,
        ),
        scenario(
            "a look at a set that is ready no more, from around it",
            |world| {
                nest(world, Events::IN);
                world.b.write(1).unwrap();
                world.b.try_read().unwrap();
            },
            |world| {
                let outer = world.outer.lock().unwrap().clone().unwrap();
                let _ = outer.wait(&mut [Event::default(); 4], Timeout::Now);
            },
        ),
        Scenario {
            // Others may read what was meant for this one.
            nudge: Some(|world| world.a.value() == Some(0) && world.write_a(1)),
            ..scenario("a read that blocks", nothing, |world| world.read_a_blocking())
        },
        Scenario {
            nudge: Some(nudge_by_c),
            waits: true,
            ..scenario(
                "a wait that sleeps elsewhere",
                |world| {
                    world.install_bell();
                    add(&world.set(), C, &world.c, Events::IN, C_DATA);
                },
                |world| world.sleep_elsewhere(),
            )
        },
        scenario(
            "an add",
            |world| world.c.write(1).unwrap(),
            |world| {
                let set = world.set();
                let added = try_add(&set, C, &world.c, Events::IN, C_DATA);
                let removed = set.remove_source(C, address(&world.c));
                assert!(fits(added) && fits(removed));
            },
        ),
        scenario(
            "a change of interest",
            |world| {
                world.c.write(1).unwrap();
                add(&world.set(), C, &world.c, Events::OUT | Events::ET, C_DATA);
            },
            |world| {
                let set = world.set();
                let modified =
                    set.modify_source(C, address(&world.c), Event::new(Events::IN, C_DATA));
                let removed = set.remove_source(C, address(&world.c));
                assert!(fits(modified) && fits(removed));
            },
        ),
        scenario(
            "the close of a source",
            |world| {
                world.c.write(1).unwrap();
                add(&world.set(), C, &world.c, Events::IN, C_DATA);
            },
            |world| world.c.wait_queue().close(),
        ),
        scenario(
            "the life of a set",
            |world| {
                // So that the pool has something to give.
                let earlier = EventPoll::new(&world.engine).unwrap();
                add(&earlier, B, &world.b, Events::IN, 1);
            },
            |world| {
                let fresh = counter();
                let source = counter();
                {
                    let sets = [(); 2].map(|()| EventPoll::new(&world.engine).unwrap());
                    for set in &sets {
                        assert!(fits(try_add(set, A, &world.a, Events::IN, 1)));
                        add(set, C, &fresh, Events::IN, 2);
                    }
                    fresh.write(1).unwrap();
                    assert_eq!(sets[0].wait(&mut [Event::default(); 1], Timeout::Now), Ok(1));
                    let _ = try_add(&sets[1], B, &source, Events::IN, 3);
                    source.wait_queue().close();
                }
                fresh.wait_queue().close();
            },
        ),
        scenario("a set into a set, and out", find_nesting_lock, |world| {
            let set = world.set();
            let outer = Arc::new(EventPoll::new(&world.engine).unwrap());
            assert!(fits(try_add(&outer, 50, &set, Events::IN, 1)));
            // Or it would last as long as this thread.
            drop(set);
        }),
    ]
}

/// Those who take from the ring, or change what is in it.
pub fn takes() -> Vec<Scenario> {
    fn fill(world: &Arc<World>) {
        // One that holds, one that does not any more, and one that stays.
        world.b.write(1).unwrap();
        world.b.try_read().unwrap();
        world.write_a(1);
        add(&world.set(), C, &world.c, Events::IN, C_DATA);
        world.c.write(1).unwrap();
        world.set().make_ring(4).unwrap();
    }
    /// The ring has the watch on `A`.
    fn fill_with_a(world: &Arc<World>) {
        let set = world.set();
        world.c.write(1).unwrap();
        add(&set, C, &world.c, Events::IN | Events::ET, C_DATA);
        world.write_a(1);
        assert_eq!(world.take(&set, 1), 1);
        assert_eq!(world.reports.of(C_DATA), 1);
    }
    /// The ring has the watch on `C`.
    fn fill_with_c(world: &Arc<World>) {
        let set = world.set();
        world.write_a(1);
        world.c.write(1).unwrap();
        add(&set, C, &world.c, Events::IN, C_DATA);
        assert_eq!(world.take(&set, 1), 1);
        assert_eq!(world.reports.of(C_DATA), 0);
    }
    vec![
        scenario("a take from the ring", fill, |world| {
            world.take(&world.set(), 4);
        }),
        scenario("a take from what is in the ring", fill_with_a, |world| {
            world.take(&world.set(), 1);
        }),
        scenario("a take of what has gone", fill_with_a, |world| {
            let set = world.set();
            world.read_a();
            world.take(&set, 4);
        }),
        scenario("a wait that finds events in the ring", fill_with_a, look),
        scenario("a change of interest in the ring", fill_with_c, |world| {
            let set = world.set();
            let modified = set.modify_source(
                C,
                address(&world.c),
                Event::new(Events::IN | Events::ET, C_DATA),
            );
            let removed = set.remove_source(C, address(&world.c));
            assert!(fits(modified) && fits(removed));
        }),
    ]
}

/// Waiters and readers that spin before they sleep, where they have been told to.
pub fn spins() -> Vec<Scenario> {
    let all = changes();
    let spinning = ["a wait that sleeps", "a wait that sleeps elsewhere", "a read that blocks"];
    let mut spins: Vec<_> =
        all.into_iter().filter(|scenario| spinning.contains(&scenario.name)).collect();
    assert_eq!(spins.len(), spinning.len());
    spins.push(Scenario {
        nudge: Some(nudge_by_c),
        waits: true,
        ..scenario(
            "a wait in a set around it that sleeps",
            |world| {
                add(&world.set(), C, &world.c, Events::IN, C_DATA);
                nest(world, Events::IN);
            },
            |world| world.work_around_until_c(),
        )
    });
    spins
}

/// A source that is looked at under a set's scan lock, and meanwhile brings another thread to that
/// lock.
struct Popular {
    queue: WaitQueue,
    world: Weak<World>,
    set: Arc<EventPoll>,
    came: AtomicBool,
}

impl Source for Popular {
    fn poll(&self) -> Events {
        if !self.came.swap(true, SeqCst) {
            let world = self.world.upgrade().unwrap();
            let (other, set) = (Arc::clone(&world), Arc::clone(&self.set));
            let waiter = Thread::asleep(move || {
                other.wait(&set, Timeout::Now);
            });
            world.extras.lock().unwrap().push(waiter);
        }
        Events::empty()
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.queue
    }
}

/// Both sides of a lock for which somebody sleeps.
pub fn locks() -> Vec<Scenario> {
    vec![
        Scenario {
            nudge: Some(World::let_holder_go),
            ..scenario(
                "a wait while another one has the lock",
                |world| {
                    world.write_a(1);
                    let other = Arc::clone(world);
                    let place = Place { step: "hint_before", arrival: 1 };
                    let holder = Thread::start(Some(place), move || {
                        other.wait(&other.set(), Timeout::Now);
                    });
                    assert_eq!(holder.until_stopped(), Progress::Stopped);
                    *world.holder.lock().unwrap() = Some(holder);
                },
                look,
            )
        },
        scenario(
            "an add while another one comes for the lock",
            // So that the other has something to look for.
            |world| world.b.write(1).unwrap(),
            |world| {
                let set = world.set();
                let source = Arc::new(Popular {
                    queue: WaitQueue::new(),
                    world: Arc::downgrade(world),
                    set: Arc::clone(&set),
                    came: AtomicBool::new(false),
                });
                assert!(fits(try_add(&set, 40, &source, Events::IN, 1040)));
                assert!(fits(set.remove_source(40, address(&source))));
                source.queue.close();
            },
        ),
    ]
}

/// The lock that a thread takes first which puts a set into a set.
fn find_nesting_lock(world: &Arc<World>) {
    let other = Arc::clone(world);
    let sets = [(); 2].map(|()| Arc::new(EventPoll::new(&world.engine).unwrap()));
    let adder = {
        let [outer, inner] = sets.clone();
        Thread::start(Some(Place { step: "add_before_state", arrival: 1 }), move || {
            let _world = other;
            add(&outer, 50, &inner, Events::IN, 1);
        })
    };
    assert_eq!(adder.until_stopped(), Progress::Stopped);
    world.nesting.store(adder.held()[0] as u64, SeqCst);
    adder.release();
    adder.join().unwrap();
}
