//! Threads that can be stopped at a step, and calls that have to end in time.

use crate::patience::Patience;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, OnceLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wakeset::steps::{self, Point};

/// How long a call may take, where threads have processors ([`Patience`]), before it counts as kept
/// from going on. Only a failing test waits that long.
pub const LIMIT: Duration = Duration::from_secs(5);

/// After how many failures a test ends early. One shows that a mutant is noticed; without a mutant,
/// some more show what the failures have in common.
pub fn failures_wanted() -> usize {
    let is_mutant = std::env::var_os("WAKESET_MUTANT").is_some_and(|name| !name.is_empty());
    if is_mutant { 1 } else { 20 }
}

/// Where to stop: at the `arrival`th time (from 1 on) that the thread comes to `step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub step: &'static str,
    pub arrival: usize,
}

#[derive(Default)]
struct State {
    /// Each step the thread came to, in order.
    log: Vec<&'static str>,
    /// The locks it holds, by address.
    held: Vec<usize>,
    /// The lock it may sleep at.
    waits_for: Option<usize>,
    stopped: bool,
    released: bool,
    ended: bool,
}

impl State {
    fn is_stopped(&self) -> bool {
        self.stopped && !self.released
    }
}

struct Trap {
    place: Option<Place>,
    /// Where /proc says what the thread does.
    stat: OnceLock<PathBuf>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Trap {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Whether `what` came to hold before the limit.
    fn until(&self, what: impl Fn(&State) -> bool) -> bool {
        self.within(LIMIT, what)
    }

    fn within(&self, limit: Duration, what: impl Fn(&State) -> bool) -> bool {
        let mut patience = Patience::of(limit);
        loop {
            // After the last round once more.
            let is_over = patience.is_over();
            let wait = if is_over { Duration::ZERO } else { patience.rest() };
            let state = self.lock();
            let (state, _) =
                self.changed.wait_timeout_while(state, wait, |state| !what(state)).unwrap();
            if is_over || what(&state) {
                return what(&state);
            }
        }
    }

    /// Whether it sleeps at this moment, rather than runs or would if it had a processor.
    fn sleeps(&self) -> bool {
        self.says_proc() == Some('S')
    }

    /// `R` where it runs or would if it had a processor, `S` asleep.
    fn says_proc(&self) -> Option<char> {
        let stat = std::fs::read_to_string(self.stat.get()?).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    fn reach(&self, point: Point) {
        let mut state = self.lock();
        match point {
            Point::Waiting(lock) => {
                state.waits_for = Some(lock);
                drop(state);
                self.changed.notify_all();
            }
            Point::Waited => state.waits_for = None,
            Point::Locked(lock) => {
                state.waits_for = None;
                state.held.push(lock);
            }
            Point::Unlocked(lock) => state.held.retain(|held| *held != lock),
            Point::Step(step) => {
                state.log.push(step);
                let arrival = state.log.iter().filter(|one| **one == step).count();
                if self.place == Some(Place { step, arrival }) && !state.released {
                    state.stopped = true;
                    self.changed.notify_all();
                    // Not asleep: /proc must not show it as a thread that rests in a call.
                    while !state.released {
                        drop(state);
                        thread::yield_now();
                        state = self.lock();
                    }
                    return;
                }
                drop(state);
                self.changed.notify_all();
            }
        }
    }
}

/// All that there are; the dead are swept out now and then.
static TRAPS: Mutex<Vec<Weak<Trap>>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: RefCell<Option<Arc<Trap>>> = const { RefCell::new(None) };
}

fn reach(point: Point) {
    let own = OWN.with(|own| own.borrow().clone());
    if let Some(own) = own {
        own.reach(point);
    }
}

/// How far a thread has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Stopped,
    Asleep,
    Ended,
    /// None of them within the limit.
    Stuck,
}

/// Steps behind which a thread sleeps until another one wakes it.
const SLEEPS: [&str; 9] = [
    "sleep_before_futex",
    "block_before_sleep",
    "elsewhere_counted",
    // The descriptor layer's.
    "elsewhere_before_look",
    "elsewhere_before_sleep",
    "kernel_before_sleep",
    "poller_before_sleep",
    "lock_before_sleep",
    "lock_before_kernel",
];

/// What came of a call beside a stopped thread.
pub enum Beside {
    Ended(Result<(), String>),
    /// It waits for a lock that the stopped thread holds, or one that somebody holds who waits so.
    Waits(Thread),
}

impl Beside {
    /// Waits for its end, for which the stopped thread has to have gone on.
    #[allow(dead_code, reason = "the engine's test has no need of it")]
    pub fn join(self) -> Result<(), String> {
        match self {
            Self::Ended(done) => done,
            Self::Waits(late) => late.join(),
        }
    }
}

/// Both results as one, with what is wrong with either.
pub fn both<T>(one: Result<(), String>, other: Result<T, String>) -> Result<T, String> {
    match (one, other) {
        (Err(one), Err(other)) => Err(format!("{one}; {other}")),
        (one, other) => one.and(other),
    }
}

/// A thread whose steps are followed. Left to itself when dropped before its end.
pub struct Thread {
    trap: Arc<Trap>,
    thread: JoinHandle<Result<(), String>>,
}

/// Has steps reach the traps, and waiters sleep without a spin.
pub fn prepare() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // Which steps a waiter comes to must not depend on the clock.
        wakeset::set_spin_limit(Some(0));
        steps::set_hook(reach);
    });
}

impl Thread {
    /// Runs `f`, stopping at `place`.
    pub fn start(place: Option<Place>, f: impl FnOnce() + Send + 'static) -> Self {
        prepare();
        let trap = Arc::new(Trap {
            place,
            stat: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let mut traps = TRAPS.lock().unwrap();
        if traps.len() == traps.capacity() {
            traps.retain(|trap| trap.strong_count() > 0);
        }
        traps.push(Arc::downgrade(&trap));
        drop(traps);
        let own = Arc::clone(&trap);
        let thread = thread::spawn(move || {
            if let Ok(own_directory) = std::fs::read_link("/proc/thread-self") {
                let _ = own.stat.set(PathBuf::from("/proc").join(own_directory).join("stat"));
            }
            OWN.with(|slot| *slot.borrow_mut() = Some(Arc::clone(&own)));
            let result = catch_unwind(AssertUnwindSafe(f));
            own.change(|state| state.ended = true);
            result.map_err(|panic| match panic.downcast::<String>() {
                Ok(text) => *text,
                Err(panic) => panic
                    .downcast_ref::<&str>()
                    .map_or_else(|| "panicked".into(), ToString::to_string),
            })
        });
        Self { trap, thread }
    }

    /// Starts `f` and returns when it is about to sleep, or has ended.
    pub fn asleep(f: impl FnOnce() + Send + 'static) -> Self {
        let thread = Self::start(None, f);
        thread.until_at_rest();
        thread
    }

    /// Waits until it is stopped, about to sleep, or at its end.
    pub fn until_at_rest(&self) -> Progress {
        self.at_rest_within(LIMIT)
    }

    /// The same, for so long at most.
    pub fn at_rest_within(&self, limit: Duration) -> Progress {
        let asleep = |state: &State| state.log.last().is_some_and(|step| SLEEPS.contains(step));
        if !self.trap.within(limit, |state| state.is_stopped() || state.ended || asleep(state)) {
            return Progress::Stuck;
        }
        match &*self.trap.lock() {
            state if state.is_stopped() => Progress::Stopped,
            state if state.ended => Progress::Ended,
            _ => Progress::Asleep,
        }
    }

    /// Waits until it is stopped or at its end.
    pub fn until_stopped(&self) -> Progress {
        if !self.trap.until(|state| state.is_stopped() || state.ended) {
            return Progress::Stuck;
        }
        if self.trap.lock().is_stopped() { Progress::Stopped } else { Progress::Ended }
    }

    /// Whether it comes to its end within `limit`.
    pub fn ends_within(&self, limit: Duration) -> bool {
        self.trap.within(limit, |state| state.ended)
    }

    /// Lets it go on.
    pub fn release(&self) {
        self.trap.change(|state| state.released = true);
    }

    /// The locks it holds.
    pub fn held(&self) -> Vec<usize> {
        self.trap.lock().held.clone()
    }

    /// The steps it has come to, in order.
    pub fn log(&self) -> Vec<&'static str> {
        self.trap.lock().log.clone()
    }

    /// Makes a call while this thread stands still. It has to end in time, unless it comes to wait
    /// for a lock that is kept from it.
    pub fn beside(&self, call: impl FnOnce() + Send + 'static) -> Beside {
        // How often to look whether a call that lasts waits for such a lock, and how often it is
        // seen asleep until it is enough that somebody waits for one: the call may need
        // that thread.
        const LOOK: Duration = Duration::from_millis(1);
        const NEEDED: u32 = 20;
        let other = Self::start(None, call);
        let held = self.held();
        if held.is_empty() {
            return Beside::Ended(other.join());
        }
        let mut patience = Patience::of(LIMIT);
        let mut asleep = 0;
        while !patience.is_over() {
            let waits = |state: &State| state.waits_for.is_some_and(|lock| held.contains(&lock));
            let state = other.trap.lock();
            let (state, _) = other
                .trap
                .changed
                .wait_timeout_while(state, LOOK, |state| !state.ended && !waits(state))
                .unwrap();
            if state.ended {
                break;
            }
            let waits = waits(&state);
            drop(state);
            let (others, its_own) = self.kept_waiting(&other);
            asleep += u32::from(others && other.trap.sleeps());
            if waits || its_own || asleep == NEEDED {
                return Beside::Waits(other);
            }
        }
        Beside::Ended(other.join())
    }

    /// Whether any thread waits for this one, directly or for another that does, and whether
    /// `other` does.
    fn kept_waiting(&self, other: &Self) -> (bool, bool) {
        let mut held = self.held();
        let mut waiting: Vec<_> = TRAPS.lock().unwrap().iter().filter_map(Weak::upgrade).collect();
        let (mut any, mut its_own) = (false, false);
        loop {
            let kept =
                |trap: &Arc<Trap>| trap.lock().waits_for.is_some_and(|lock| held.contains(&lock));
            let Some(i) = waiting.iter().position(kept) else { return (any, its_own) };
            let trap = waiting.swap_remove(i);
            any = true;
            its_own |= Arc::ptr_eq(&trap, &other.trap);
            held.extend(&trap.lock().held);
        }
    }

    /// Waits for its end. (An error leaves it running.)
    pub fn join(self) -> Result<(), String> {
        if !self.trap.until(|state| state.ended) {
            let state = self.trap.says_proc();
            return Err(format!(
                "did not end; it was last seen at {:?}, in state {state:?}",
                self.log().last()
            ));
        }
        self.thread.join().unwrap()
    }
}
