//! One round: objects, threads that use them as the plan says, and their history.

use crate::actor::{Actor, Numbers, Shared};
use crate::clock;
use crate::log::What;
use crate::log::{Log, Progress};
use crate::plan::{IN, Key, Kind, Plan, Role, STOP, Style};
use crate::roles::STOP_UNITS;
use crate::watchdog::{balance, describe, until, until_asleep};
use crate::world::World;
use libc::epoll_event;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// What a round came to.
pub struct Outcome {
    pub plan: Plan,
    pub log: Log,
    /// The last wait in each set, when all was still: an index into the log's calls.
    pub last_waits: Vec<usize>,
    /// What each source held at the end.
    pub left: Vec<u64>,
    /// For each event that is to wake one sleeper, the time it was begun and when all slept again.
    pub events: Vec<(u64, u64)>,
}

/// Marks a thread as done when it ends, also by a panic.
struct Done(Arc<Progress>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Release);
    }
}

/// Runs a round. An error describes one that hangs, and leaves its threads behind.
pub fn run<W: World>(plan: Plan, seed: u64) -> Result<Outcome, String> {
    let mut round = Round::<W>::begin(plan, seed);
    let events = round.wake_one_by_one()?;
    round.demand_that_actors_end()?;
    round.stop_readers()?;
    round.stop_servers()?;
    Ok(round.end(events))
}

fn is_server(role: &Role) -> bool {
    matches!(role, Role::Server { .. })
}

fn is_reader(role: &Role) -> bool {
    matches!(role, Role::Reader { .. })
}

fn is_done(thread: &Arc<Progress>) -> bool {
    thread.done.load(Ordering::Acquire)
}

/// A round that is going on.
struct Round<W> {
    shared: Arc<Shared>,
    main: Actor<W>,
    /// The round's own, and then one for each role.
    threads: Vec<Arc<Progress>>,
    handles: Vec<JoinHandle<Log>>,
}

impl<W: World> Round<W> {
    /// Makes the objects and their watches, and starts the threads.
    fn begin(plan: Plan, seed: u64) -> Self {
        let targets = plan.targets.len();
        let shared = Arc::new(Shared {
            numbers: (0..targets).map(|_| Numbers::none()).collect(),
            descriptions: AtomicU64::new(0),
            go: AtomicBool::new(false),
            plan,
        });
        let plan = &shared.plan;
        let own = Progress::new("the round".to_string(), targets);
        let mut main = Actor::<W>::new(&shared, 0, seed, &own);
        (0..targets).for_each(|target| main.open(target));
        for Key { set, target, .. } in plan.keys.clone() {
            let mode = match plan.style {
                // Exclusive, or no longer ready once reported.
                Style::OneWake if plan.sets > 1 => main.random.between(4, 5),
                Style::OneWake => main.random.of(&[1, 2, 3]),
                _ => main.mode(target),
            };
            main.control(What::Add, set, target, mode).expect("a new watch");
        }

        let mut threads = vec![own];
        let mut handles = Vec::new();
        for (i, &role) in plan.roles.iter().enumerate() {
            let progress = Progress::new(format!("{role:?}"), targets);
            threads.push(progress.clone());
            let shared = shared.clone();
            let body = move || {
                let mut actor = Actor::<W>::new(&shared, i as u32 + 1, seed, &progress);
                let _done = Done(progress);
                actor.run(role);
                std::mem::take(&mut actor.writer.log)
            };
            let thread = std::thread::Builder::new().stack_size(256 << 10);
            handles.push(thread.spawn(body).expect("a thread"));
        }
        shared.go.store(true, Ordering::Release);
        Round { shared, main, threads, handles }
    }

    /// The threads whose role is like this, with their roles.
    fn threads(
        &self,
        is_like: fn(&Role) -> bool,
    ) -> impl Iterator<Item = (&Role, &Arc<Progress>)> + Clone {
        let roles = self.shared.plan.roles.iter();
        roles.zip(&self.threads[1..]).filter(move |(role, _)| is_like(role))
    }

    /// Waits for something that has to happen; an error describes the round.
    fn demand(&mut self, what: &str, condition: impl Fn(&Self) -> bool) -> Result<(), String> {
        if until::<W>(|| condition(self)) {
            return Ok(());
        }
        Err(format!("{what}\n{}", describe(&self.shared, &self.threads, &mut self.main)))
    }

    fn demand_sleep(&mut self) -> Result<(), String> {
        self.demand("a server does not go to sleep", |round| {
            round.threads(is_server).all(|(_, thread)| until_asleep::<W>(thread))
        })
    }

    /// In a round about exclusive wakes: writes when all servers sleep, and waits until all sleep
    /// again. Returns the times of the events.
    fn wake_one_by_one(&mut self) -> Result<Vec<(u64, u64)>, String> {
        let mut events = Vec::new();
        if self.shared.plan.style != Style::OneWake {
            return Ok(events);
        }
        let source = self.shared.plan.sets;
        for _ in 0..self.shared.plan.calls {
            self.demand_sleep()?;
            let start = clock::before();
            let _ = self.main.write(source, 1);
            self.demand("all sleep and the source is ready", |round| {
                balance(&round.threads, source) == 0
            })?;
            self.demand_sleep()?;
            events.push((start, clock::after()));
        }
        Ok(events)
    }

    /// Every thread but the servers and the readers comes to its end, and then the servers get
    /// everything without further help.
    fn demand_that_actors_end(&mut self) -> Result<(), String> {
        self.demand("a thread does not come to its end", |round| {
            let is_actor = |role: &Role| !is_server(role) && !is_reader(role);
            round.threads(is_actor).all(|(_, thread)| is_done(thread))
        })?;
        if self.shared.plan.style != Style::Served {
            return Ok(());
        }
        self.demand("waiters sleep while something is ready", |round| {
            let targets = &round.shared.plan.targets;
            let stays =
                |target: &usize| targets[*target].kind != Kind::Set && !targets[*target].mortal;
            let mut stay = (0..targets.len()).filter(stays);
            stay.all(|target| balance(&round.threads, target) == 0)
        })
    }

    /// Ends the readers, one after the other, because one of them takes all that is there.
    fn stop_readers(&mut self) -> Result<(), String> {
        let left =
            |round: &Self| round.threads(is_reader).filter(|(_, thread)| !is_done(thread)).count();
        for role in self.shared.plan.roles.clone() {
            if let Role::Reader { target } = role {
                let before = left(self);
                self.main.write(target, STOP_UNITS).expect("a counter that is not full");
                self.demand("a blocked reader does not see what is written", |round| {
                    left(round) < before
                })?;
            }
        }
        Ok(())
    }

    /// Ends the servers by something that stays ready.
    fn stop_servers(&mut self) -> Result<(), String> {
        if self.threads(is_server).next().is_none() {
            return Ok(());
        }
        let stop = W::eventfd(1, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC).expect("a descriptor");
        for set in 0..self.shared.plan.sets {
            let mut event = epoll_event { events: IN, u64: STOP };
            let number = self.main.number(set);
            // SAFETY: a valid event.
            unsafe { W::epoll_ctl(number, libc::EPOLL_CTL_ADD, stop, &raw mut event) }
                .expect("a new watch");
        }
        self.demand("a server does not see what stays ready", |round| {
            round.threads(is_server).all(|(_, thread)| is_done(thread))
        })?;
        for set in 0..self.shared.plan.sets {
            let number = self.main.number(set);
            // SAFETY: a removal needs no event.
            unsafe { W::epoll_ctl(number, libc::EPOLL_CTL_DEL, stop, std::ptr::null_mut()) }
                .expect("its watch");
        }
        W::close(stop).expect("our own descriptor");
        Ok(())
    }

    /// Joins the threads, takes what is left, and closes everything.
    fn end(mut self, events: Vec<(u64, u64)>) -> Outcome {
        let mut log = Log::default();
        for handle in std::mem::take(&mut self.handles) {
            match handle.join() {
                Ok(other) => log.append(other),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let mut last_waits = self.wait_last();
        let left = self.read_what_is_left();
        for numbers in &self.shared.numbers {
            let (number, write_number) = numbers.load();
            W::close(number).expect("our own descriptor");
            if write_number != number {
                W::close(write_number).expect("our own descriptor");
            }
        }
        W::end_round();
        let offset = log.calls.len();
        log.append(std::mem::take(&mut self.main.writer.log));
        last_waits.iter_mut().for_each(|call| *call += offset);
        Outcome { plan: self.shared.plan.clone(), log, last_waits, left, events }
    }

    /// All is still. What is ready now must be reported now; outer sets first, whose waits take
    /// nothing from inner ones. Returns the waits as indexes into the log.
    fn wait_last(&mut self) -> Vec<usize> {
        let wait = |set| {
            self.main.wait(set, 64, 0).expect("a set");
            self.main.writer.log.calls.len() - 1
        };
        (0..self.shared.plan.sets).map(wait).collect()
    }

    /// Empties the sources. Returns what each held.
    fn read_what_is_left(&mut self) -> Vec<u64> {
        let shared = self.shared.clone();
        let mut left = vec![0; shared.plan.targets.len()];
        for (target, left) in left.iter_mut().enumerate() {
            match shared.plan.targets[target].kind {
                Kind::Set => continue,
                Kind::Blocking => {
                    let number = self.main.number(target);
                    W::set_nonblocking(number, true).expect("our own descriptor");
                }
                _ => {}
            }
            while let Ok(units) = self.main.read(target) {
                *left += units;
            }
        }
        left
    }
}
