//! A simulator's clock: time that passes only when the program says so, as a source in a set.
//!
//! ```text
//! cargo run -p wakeset-io --example simulator
//! ```
//!
//! Code that waits for alarms through a set runs unchanged by simulated time: an hour of traffic
//! takes milliseconds, and the same every time. The clock is a source that the engine does not
//! know: two functions, and a wake after each change ([`Source`]).

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use wakeset::{Description, Source, WaitQueue};
use wakeset_io::{Events, Interest, Poll, Token, Watch};

/// When an alarm is due that is not set.
const NEVER: u64 = u64::MAX;

/// An alarm as a source: readable from the time that it is due.
struct Due {
    clock: Arc<AtomicU64>,
    at: AtomicU64,
    queue: WaitQueue,
}

impl Source for Due {
    fn poll(&self) -> wakeset::Events {
        let is_due = self.at.load(Ordering::SeqCst) <= self.clock.load(Ordering::SeqCst);
        if is_due { wakeset::Events::IN } else { wakeset::Events::empty() }
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.queue
    }
}

/// The clock, in nanoseconds, and the alarms that are set, by time.
#[derive(Default)]
struct Clock {
    now: Arc<AtomicU64>,
    alarms: Mutex<BTreeSet<(u64, usize)>>,
    all: Mutex<Vec<Weak<Description<Due>>>>,
}

struct Alarm {
    clock: Arc<Clock>,
    place: usize,
    due: Arc<Description<Due>>,
}

impl Watch for Alarm {
    type Source = Due;
    fn source(&self) -> &Description<Due> {
        &self.due
    }
}

impl Clock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.now.load(Ordering::SeqCst))
    }

    fn alarm(self: &Arc<Self>) -> io::Result<Alarm> {
        let (clock, at) = (Arc::clone(&self.now), AtomicU64::new(NEVER));
        let due = Due { clock, at, queue: WaitQueue::new() };
        let due = Arc::new(Description::new(wakeset_io::engine()?, due));
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::downgrade(&due));
        Ok(Alarm { clock: Arc::clone(self), place: all.len() - 1, due })
    }

    /// Lets time pass up to the next alarm; `false` if there is none.
    fn advance(&self) -> bool {
        let next = self.alarms.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
        let Some((at, place)) = next else { return false };
        // The change first, then the wake.
        self.now.fetch_max(at, Ordering::SeqCst);
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(due) = all.get(place).and_then(Weak::upgrade) {
            due.wait_queue().wake(wakeset::Events::IN);
        }
        true
    }
}

impl Alarm {
    /// Sets it; the clock must not be waited for by another thread meanwhile.
    fn set(&self, from_now: Duration) {
        let at = (self.clock.now() + from_now).as_nanos() as u64;
        let mut alarms = self.clock.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        alarms.remove(&(self.due.at.swap(at, Ordering::SeqCst), self.place));
        alarms.insert((at, self.place));
    }

    fn clear(&self) {
        self.due.at.store(NEVER, Ordering::SeqCst);
    }
}

/// A customer comes every 90 s or so and is served for 60 s or so, for ten hours.
///
/// # Errors
/// `OutOfMemory`.
pub fn main() -> io::Result<()> {
    const ARRIVAL: Token = Token(0);
    const SERVED: Token = Token(1);
    const CLOSING: Token = Token(2);
    let (clock, poll) = (Arc::new(Clock::default()), Poll::new()?);
    let (arrival, served, closing) = (clock.alarm()?, clock.alarm()?, clock.alarm()?);
    let _handles = [(&arrival, ARRIVAL), (&served, SERVED), (&closing, CLOSING)]
        .map(|(alarm, token)| poll.register(alarm, token, Interest::READABLE));

    // The same every time.
    let mut random = 1_u32;
    let mut about = |seconds: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Duration::from_secs(u64::from(seconds / 2 + (random >> 8) % seconds))
    };
    arrival.set(about(90));
    closing.set(Duration::from_secs(36_000));
    let (mut queue, mut longest, mut customers, mut is_open) = (0, 0, 0, true);
    let mut events = Events::with_capacity(4);
    while is_open || queue > 0 {
        poll.wait(&mut events, Some(Duration::ZERO))?;
        if events.is_empty() {
            // Nothing is left to do at this time: on to the next.
            assert!(clock.advance(), "an alarm is set while the shop is open");
        }
        for event in &events {
            match event.token() {
                ARRIVAL => {
                    arrival.clear();
                    if is_open {
                        (queue, customers) = (queue + 1, customers + 1);
                        longest = longest.max(queue);
                        arrival.set(about(90));
                        if queue == 1 {
                            served.set(about(60));
                        }
                    }
                }
                SERVED => {
                    served.clear();
                    queue -= 1;
                    if queue > 0 {
                        served.set(about(60));
                    }
                }
                _ => {
                    closing.clear();
                    is_open = false;
                }
            }
        }
    }
    assert!(clock.now() >= Duration::from_secs(36_000) && customers > 300);
    let hours = clock.now().as_secs_f64() / 3600.0;
    println!("{customers} customers in {hours:.1} h of simulated time, at most {longest} in line");
    Ok(())
}
