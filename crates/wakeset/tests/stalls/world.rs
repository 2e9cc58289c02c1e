//! What a stalled thread stands in: a set with two counters, and an account of what was written,
//! read and reported.

use crate::patience::Patience;
use crate::trap::{LIMIT, Thread};
use std::collections::HashMap;
use std::mem::size_of;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use wakeset::{
    Counter, CounterFlags, Engine, Error, Event, EventPoll, Events, ReadyList, SetCore, Source,
    Timeout,
};

/// The descriptor numbers of the watches.
pub const A: i32 = 5;
pub const B: i32 = 6;
const STOP: i32 = 7;
pub const C: i32 = 8;
/// The data of those whose data never changes. That of `A` counts up from 1.
pub const B_DATA: u64 = 1000;
pub const C_DATA: u64 = 1001;
const STOP_DATA: u64 = 1002;

/// The largest value a counter holds.
pub const FULL: u64 = u64::MAX - 1;

/// A counter that stays in place for late wakers, as a descriptor table keeps its slots.
pub type Shared = Arc<Counter>;

/// How often each piece of data was reported.
#[derive(Default)]
pub struct Reports {
    counts: Mutex<HashMap<u64, u64>>,
    changed: Condvar,
}

impl Reports {
    pub fn note(&self, data: u64) {
        *self.counts.lock().unwrap().entry(data).or_default() += 1;
        self.changed.notify_all();
    }

    pub fn of(&self, data: u64) -> u64 {
        self.counts.lock().unwrap().get(&data).copied().unwrap_or(0)
    }

    /// Of all the data that the watch on `A` ever had.
    pub fn of_a(&self) -> u64 {
        self.counts.lock().unwrap().iter().filter(|(data, _)| **data < B_DATA).map(|(_, n)| n).sum()
    }

    pub fn until(&self, data: u64, more_than: u64, limit: Duration) {
        let counts = self.counts.lock().unwrap();
        let few =
            |counts: &mut HashMap<u64, u64>| counts.get(&data).copied().unwrap_or(0) <= more_than;
        drop(self.changed.wait_timeout_while(counts, limit, few).unwrap());
    }
}

pub struct World {
    /// The ready list of its sets.
    pub list: ReadyList,
    pub engine: Engine,
    pub a: Shared,
    pub b: Shared,
    pub c: Shared,
    pub stop: Shared,
    pub set: Mutex<Option<Arc<EventPoll>>>,
    /// What the watch on `A` asks for.
    pub kind: Events,
    /// The data of the watch on `A`; `None` without one.
    pub data: Mutex<Option<u64>>,
    pub next_data: AtomicU64,
    pub reports: Reports,
    pub written: AtomicU64,
    pub read: AtomicU64,
    /// How many edges `A` has had: writes, reads where `OUT` is asked for, and changes of
    /// interest.
    pub edges: AtomicU64,
    /// Reports of the present data from before the last read.
    pub stale: AtomicU64,
    pub workers: Mutex<Vec<Thread>>,
    /// Threads that stand still or sleep till the end.
    pub extras: Mutex<Vec<Thread>>,
    /// A thread that stands still with a lock in its hands until another has come for it.
    pub holder: Mutex<Option<Thread>>,
    pub others: Mutex<Vec<EventPoll>>,
    pub outer: Mutex<Option<Arc<EventPoll>>>,
    /// What rings for a waiter that sleeps elsewhere.
    pub bell: (Mutex<bool>, Condvar),
    /// The nesting lock, where known.
    pub nesting: AtomicU64,
    /// A second thread stands still in a wake: what it has in its hands may be reported more than
    /// once.
    pub called_for: AtomicBool,
    pub closed_a: AtomicBool,
    pub closed_b: AtomicBool,
}

pub fn counter() -> Shared {
    Arc::new(Counter::new(0, CounterFlags::empty()))
}

/// # Panics
/// If the set refuses.
pub fn add<S: Source + 'static>(
    set: &EventPoll,
    fd: i32,
    source: &Arc<S>,
    events: Events,
    data: u64,
) {
    try_add(set, fd, source, events, data).unwrap();
}

pub fn try_add<S: Source + 'static>(
    set: &EventPoll,
    fd: i32,
    source: &Arc<S>,
    events: Events,
    data: u64,
) -> Result<(), Error> {
    let source: &dyn Source = &**source;
    // SAFETY: the world holds its sources until its sets are closed, and closes those that go
    // earlier.
    unsafe { set.add_source(fd, source, Event::new(events, data)) }
}

pub fn address<S>(source: &Arc<S>) -> *const () {
    Arc::as_ptr(source).cast()
}

impl World {
    pub fn new(list: ReadyList, kind: Events) -> Arc<Self> {
        let engine = Engine::new();
        let set = Arc::new(EventPoll::with_ready_list(&engine, list).unwrap());
        let (a, b, c, stop) = (counter(), counter(), counter(), counter());
        add(&set, A, &a, kind, 1);
        add(&set, B, &b, Events::IN, B_DATA);
        add(&set, STOP, &stop, Events::IN, STOP_DATA);
        let edge = u64::from(kind.contains(Events::OUT));
        Arc::new(Self {
            list,
            engine,
            a,
            b,
            c,
            stop,
            set: Mutex::new(Some(set)),
            kind,
            data: Mutex::new(Some(1)),
            next_data: AtomicU64::new(2),
            reports: Reports::default(),
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            edges: AtomicU64::new(edge),
            stale: AtomicU64::new(0),
            workers: Mutex::default(),
            extras: Mutex::default(),
            holder: Mutex::default(),
            others: Mutex::default(),
            outer: Mutex::default(),
            bell: Default::default(),
            nesting: AtomicU64::new(0),
            called_for: AtomicBool::new(false),
            closed_a: AtomicBool::new(false),
            closed_b: AtomicBool::new(false),
        })
    }

    /// # Panics
    /// If it has been closed.
    pub fn set(&self) -> Arc<EventPoll> {
        self.set.lock().unwrap().clone().expect("the set is open")
    }

    pub fn data(&self) -> Option<u64> {
        *self.data.lock().unwrap()
    }

    // Where the locks of these are.

    fn of_core(set: Option<&Arc<EventPoll>>) -> Range<usize> {
        let core = set.map_or(0, |set| std::ptr::from_ref(set.as_core()).addr());
        core..core + size_of::<SetCore>()
    }

    pub fn in_set(&self) -> Range<usize> {
        Self::of_core(self.set.lock().unwrap().as_ref())
    }

    pub fn in_outer(&self) -> Range<usize> {
        Self::of_core(self.outer.lock().unwrap().as_ref())
    }

    pub fn in_counter(counter: &Shared) -> Range<usize> {
        address(counter).addr()..address(counter).addr() + size_of::<Counter>()
    }

    /// The pins of the set's ring: a taker holds one.
    pub fn in_ring(&self) -> Range<usize> {
        let set = self.set.lock().unwrap();
        set.as_ref().and_then(|set| set.ring()).map_or(0..0, |ring| ring.pins())
    }

    pub fn in_nesting(&self) -> Range<usize> {
        let lock = self.nesting.load(SeqCst) as usize;
        lock..lock + usize::from(lock != 0)
    }

    /// Of `held`, the locks that are none of these: those of sets of its own that a thread has.
    pub fn elsewhere(&self, held: &[usize]) -> Vec<Range<usize>> {
        let counters = [&self.a, &self.b, &self.c, &self.stop].map(Self::in_counter);
        let known = [self.in_set(), self.in_outer(), self.in_nesting(), self.in_ring()];
        let known = |lock: &usize| counters.iter().chain(&known).any(|range| range.contains(lock));
        held.iter().filter(|lock| !known(lock)).map(|lock| *lock..*lock + 1).collect()
    }

    // What threads do.

    /// Adds to `A` if there is room; whether there was.
    pub fn write_a(&self, n: u64) -> bool {
        self.account_write(n, || self.a.try_write(n))
    }

    pub fn write_a_blocking(&self, n: u64) {
        self.account_write(n, || self.a.write(n));
    }

    /// Counts it before it is seen, and takes that back if nothing comes of it.
    fn account_write(&self, n: u64, write: impl FnOnce() -> Result<(), Error>) -> bool {
        self.edges.fetch_add(1, SeqCst);
        self.written.fetch_add(n, SeqCst);
        let done = write().is_ok();
        if !done {
            self.written.fetch_sub(n, SeqCst);
        }
        done
    }

    /// Reads what is there without blocking.
    pub fn read_a(&self) {
        self.account_read(|| self.a.try_read().ok());
    }

    pub fn read_a_blocking(&self) {
        self.account_read(|| self.a.read().ok());
    }

    fn account_read(&self, read: impl FnOnce() -> Option<u64>) {
        let data = self.data();
        let seen = data.map_or(0, |data| self.reports.of(data));
        if self.kind.contains(Events::OUT) {
            self.edges.fetch_add(1, SeqCst);
        }
        if let Some(n) = read() {
            self.read.fetch_add(n, SeqCst);
            if self.data() == data {
                self.stale.fetch_max(seen, SeqCst);
            }
        }
    }

    /// One wait, noted.
    pub fn wait(&self, set: &EventPoll, timeout: Timeout) -> usize {
        let mut events = [Event::default(); 16];
        let n = set.wait(&mut events, timeout).unwrap();
        for event in &events[..n] {
            self.reports.note(event.data);
        }
        n
    }

    /// One look at the set's ring, made if there is none, noted.
    pub fn take(&self, set: &EventPoll, room: usize) -> usize {
        let mut events = vec![Event::default(); room];
        let n = set.make_ring(4).unwrap().take(&mut events);
        for event in &events[..n] {
            self.reports.note(event.data);
        }
        n
    }

    /// Makes sure that `data` is reported once more than `before`, to a taker from the ring or to
    /// another thread.
    pub fn take_until(&self, data: u64, before: u64) -> Result<(), String> {
        let mut patience = Patience::of(LIMIT);
        while self.reports.of(data) <= before {
            if patience.is_over() {
                return Err(format!("{data} was not taken"));
            }
            if self.take(&self.set(), 4) == 0 {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// What a thread of an event loop does with the set until it is told `last`.
    fn work(&self, set: &EventPoll, inner: Option<&EventPoll>, last: u64) {
        loop {
            let mut events = [Event::default(); 16];
            let mut n = set.wait(&mut events, Timeout::Never).unwrap();
            if let Some(inner) = inner {
                n = inner.wait(&mut events, Timeout::Now).unwrap();
            }
            let mut stop = false;
            for event in &events[..n] {
                self.reports.note(event.data);
                stop |= event.data == last;
                match event.data {
                    STOP_DATA => {}
                    B_DATA => drop(self.b.try_read()),
                    C_DATA => drop(self.c.try_read()),
                    _ => self.read_a(),
                }
            }
            if stop {
                return;
            }
        }
    }

    /// Starts a thread that waits on the set (with an outer one: on that) and handles events; it
    /// sleeps when this returns.
    pub fn start_worker(self: &Arc<Self>) {
        let world = Arc::clone(self);
        let set = self.set();
        let outer = self.outer.lock().unwrap().clone();
        let worker = Thread::asleep(move || match outer {
            Some(outer) => world.work(&outer, Some(&set), STOP_DATA),
            None => world.work(&set, None, STOP_DATA),
        });
        self.workers.lock().unwrap().push(worker);
    }

    /// Handles events until there is one of `C`.
    pub fn work_until_c(&self) {
        self.work(&self.set(), None, C_DATA);
    }

    /// The same in the set around this one.
    pub fn work_around_until_c(&self) {
        let outer = self.outer.lock().unwrap().clone().unwrap();
        self.work(&outer, Some(&self.set()), C_DATA);
    }

    pub fn stop_workers(&self) -> Result<(), String> {
        let workers = std::mem::take(&mut *self.workers.lock().unwrap());
        if workers.is_empty() {
            return Ok(());
        }
        self.stop.write(1).unwrap();
        for worker in workers {
            worker.join().map_err(|error| format!("a waiter: {error}"))?;
        }
        self.stop.try_read().unwrap();
        Ok(())
    }

    /// Makes sure that `A` is reported with `data` once more than `before`, unless somebody reads
    /// it empty.
    pub fn hear_a(&self, data: u64, before: u64) -> Result<(), String> {
        self.hear_unless(data, before, || self.a.value() == Some(0))
    }

    /// Makes sure that `data` is reported once more than `before`, to whomever.
    pub fn hear(&self, data: u64, before: u64) -> Result<(), String> {
        self.hear_unless(data, before, || false)
    }

    fn hear_unless(
        &self,
        data: u64,
        before: u64,
        needless: impl Fn() -> bool,
    ) -> Result<(), String> {
        // Others may be faster than this thread, and it sleeps then.
        const LOOK: Duration = Duration::from_millis(20);
        let mut patience = Patience::of(LIMIT);
        while self.reports.of(data) <= before && !needless() {
            if patience.is_over() {
                return Err(format!("{data} was not reported"));
            }
            if self.workers.lock().unwrap().is_empty() {
                self.wait(&self.set(), Timeout::After(LOOK));
            } else {
                self.reports.until(data, before, LOOK);
            }
        }
        Ok(())
    }

    // A waiter that sleeps in a call of its own.

    pub fn install_bell(&self) {
        let ring = |world: usize| {
            // SAFETY: the thread that rings is one of this world, and holds it.
            let world = unsafe { &*(world as *const Self) };
            world.ring();
        };
        self.set().set_doorbell(Some((ring, std::ptr::from_ref(self).addr())));
    }

    pub fn ring(&self) {
        *self.bell.0.lock().unwrap() = true;
        self.bell.1.notify_all();
    }

    pub fn sleep_elsewhere(&self) {
        let set = self.set();
        set.enter_remote();
        if !set.may_be_ready() {
            drop(self.bell.1.wait_while(self.bell.0.lock().unwrap(), |rung| !*rung).unwrap());
        }
        set.leave_remote();
        self.wait(&set, Timeout::Now);
    }

    // Changes of the watch on `A`, and of what there is.

    fn new_data(&self) -> u64 {
        self.next_data.fetch_add(1, SeqCst)
    }

    fn armed_with(&self, data: Option<u64>) {
        *self.data.lock().unwrap() = data;
        self.stale.store(0, SeqCst);
    }

    pub fn modify_a(&self) -> Result<(), Error> {
        let data = self.new_data();
        self.edges.fetch_add(1, SeqCst);
        self.set().modify_source(A, address(&self.a), Event::new(self.kind, data))?;
        self.armed_with(Some(data));
        Ok(())
    }

    pub fn remove_a(&self) {
        self.set().remove_source(A, address(&self.a)).unwrap();
        self.armed_with(None);
    }

    pub fn add_a(&self) {
        let data = self.new_data();
        self.edges.fetch_add(1, SeqCst);
        add(&self.set(), A, &self.a, self.kind, data);
        self.armed_with(Some(data));
    }

    pub fn close_a(&self) {
        self.a.wait_queue().close();
        self.closed_a.store(true, SeqCst);
        self.armed_with(None);
    }

    pub fn close_b(&self) {
        self.b.wait_queue().close();
        self.closed_b.store(true, SeqCst);
    }

    pub fn close_set(&self) -> Result<(), String> {
        self.stop_workers()?;
        let set = self.set.lock().unwrap().take().expect("the set is open");
        set.close();
        self.armed_with(None);
        Ok(())
    }

    /// Lets the holder go on to its end; whether there was one.
    pub fn let_holder_go(&self) -> bool {
        let Some(holder) = self.holder.lock().unwrap().take() else { return false };
        holder.release();
        holder.join().unwrap();
        true
    }

    // At the end.

    pub fn is_level(&self) -> bool {
        !self.kind.intersects(Events::ET | Events::ONESHOT)
    }
}

/// Whether the `i`th of the other sets watches exclusively.
pub fn is_exclusive(i: usize) -> bool {
    i % 3 == 1
}

impl Drop for World {
    fn drop(&mut self) {
        // Sources go after the sets that watch them.
        for source in [&self.a, &self.b, &self.c, &self.stop] {
            source.wait_queue().close();
        }
    }
}
