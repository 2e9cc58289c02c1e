//! A counter that moves elsewhere while it is written to and watched, as a descriptor table moves
//! one into the kernel. The mover and the operations here take the steps that `wakeset-fd` takes,
//! in that order.

use super::*;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use wakeset::WaitQueue;

const HERE: u32 = 0;
const MOVING: u32 = 1;
const THERE: u32 = 2;

/// The counter's other home, with one watch.
#[derive(Default)]
struct There {
    value: u64,
    watched: bool,
    edge: bool,
}

impl There {
    fn add(&mut self, n: u64) {
        self.value += n;
        self.edge |= self.watched;
    }
}

struct Biased {
    counter: Counter,
    place: AtomicU32,
    carried: AtomicU64,
    there: Mutex<There>,
}

impl Source for Biased {
    fn poll(&self) -> Events {
        if self.counter.value().is_some() {
            return self.counter.poll();
        }
        let value = match self.place.load(SeqCst) {
            MOVING => self.carried.load(SeqCst),
            _ => self.there.lock().unwrap().value,
        };
        if value != 0 { Events::IN } else { Events::empty() }
    }

    fn wait_queue(&self) -> &WaitQueue {
        self.counter.wait_queue()
    }
}

impl Biased {
    fn write(&self, n: u64) {
        if self.counter.try_write(n).is_err() {
            while self.place.load(SeqCst) == MOVING {
                thread::yield_now();
            }
            self.there.lock().unwrap().add(n);
        }
    }

    fn move_there(&self) {
        self.wait_queue().refuse_watches();
        self.place.store(MOVING, SeqCst);
        self.counter.seal_with(|value| self.carried.store(value, SeqCst)).unwrap();
        self.counter.wake_sealed();
        let carried = self.carried.load(SeqCst);
        self.there.lock().unwrap().add(carried);
        self.wait_queue().detach_watches(|_| {
            let mut there = self.there.lock().unwrap();
            there.watched = true;
            there.edge |= there.value != 0;
        });
        self.place.store(THERE, SeqCst);
    }
}

struct Scene {
    set: EventPoll,
    source: Description<Biased>,
}

fn scene(value: u64, events: Events) -> Arc<Scene> {
    let engine = Engine::new();
    let set = EventPoll::new(&engine).unwrap();
    let source = Description::new(
        &engine,
        Biased {
            counter: Counter::new(value, CounterFlags::NONBLOCK),
            place: AtomicU32::new(HERE),
            carried: AtomicU64::new(0),
            there: Mutex::default(),
        },
    );
    set.add(1, &source, Event::new(events, 1)).unwrap();
    Arc::new(Scene { set, source })
}

/// Catches a count or an edge that is in neither home when a write meets the move.
#[test]
fn a_write_is_counted_and_reported_once_moved() {
    explore(3, || {
        let scene = scene(0, Events::IN | Events::ET);
        let writer = run(&scene, |scene| scene.source.write(1));
        scene.source.move_there();
        writer.join().unwrap();
        let there = scene.source.there.lock().unwrap();
        assert_eq!((there.value, there.edge), (1, true));
    });
}

/// Catches a ready watch that neither home shows for a moment, to one who does not wait.
#[test]
fn a_ready_watch_shows_while_it_moves() {
    explore(3, || {
        let scene = scene(1, Events::IN);
        let mover = run(&scene, |scene| scene.source.move_there());
        if take(&scene.set).is_none() {
            let there = scene.source.there.lock().unwrap();
            assert!(there.watched && there.edge, "in neither home");
        }
        mover.join().unwrap();
    });
}

/// Catches a life that begins while something of the last one is still around: a write that reaches
/// the next object of the number is one that object reports.
#[test]
fn the_next_life_begins_empty_and_reports() {
    explore(3, || {
        let world = World::new();
        let counter = Arc::new(Counter::new(0, CounterFlags::NONBLOCK));
        let late = run(&counter, |counter| counter.try_write(1).is_ok());
        let first = counter.seal().unwrap();
        counter.wait_queue().close();
        counter.unseal(0, CounterFlags::NONBLOCK);
        let source: *const dyn Source = &*counter;
        // SAFETY: the queue is closed below, before the counter goes.
        unsafe { world.set.add_source(1, source, Event::new(Events::IN | Events::ET, 1)) }.unwrap();
        let written = late.join().unwrap();
        let now = counter.value().unwrap();
        assert_eq!(first + now, u64::from(written));
        assert_eq!(world.take(), (now != 0).then_some(1));
        counter.wait_queue().close();
    });
}
