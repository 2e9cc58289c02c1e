//! Several changes of an interest list in one call: the epoll_ctl_batch(2) that Linux never got.
//!
//! In order, each with its own result, as a loop of single calls would; but the scan lock is taken
//! once for all that need nothing wider. Adding a set, or anything to a set that is watched itself,
//! needs the nesting lock, which comes first: such a change is made by itself, between two holds.

use crate::error::Error;
use crate::events::Event;
use crate::set::base::set_core::SetCore;
use crate::set::changes::add::check_exclusive;
use crate::set::changes::changing::Changing;
use crate::set::description::Description;
use crate::set::event_poll::handle::EventPoll;

use crate::wake::source::Source;
use core::fmt;
use core::ptr;

/// Changes under one hold of the scan lock. Waits, and closes of what the set watches, are kept out
/// meanwhile: some ten microseconds.
const MOST_AT_ONCE: usize = 256;

/// What a batch does behind a change that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Goes on with the next change, as a loop that ignores errors.
    #[default]
    GoOn,
    /// Makes no further change.
    Stop,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Add(Event),
    Modify(Event),
    Remove,
}

/// One change of an interest list, for [`EventPoll::apply`], and what came of it.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    fd: i32,
    source: &'a (dyn Source + 'static),
    /// The source belongs to this engine.
    engine: &'a crate::set::engine::Engine,
    what: What,
    result: Option<Result<(), Error>>,
}

impl<'a> Change<'a> {
    fn new<S: Source + 'static>(fd: i32, source: &'a Description<S>, what: What) -> Self {
        Self { fd, source: &**source, engine: source.engine(), what, result: None }
    }

    /// As [`EventPoll::add`].
    pub fn add<S: Source + 'static>(fd: i32, source: &'a Description<S>, event: Event) -> Self {
        Self::new(fd, source, What::Add(event))
    }

    /// As [`EventPoll::modify`].
    pub fn modify<S: Source + 'static>(fd: i32, source: &'a Description<S>, event: Event) -> Self {
        Self::new(fd, source, What::Modify(event))
    }

    /// As [`EventPoll::remove`].
    pub fn remove<S: Source + 'static>(fd: i32, source: &'a Description<S>) -> Self {
        Self::new(fd, source, What::Remove)
    }

    /// What came of it; `None` if it has not been made: no batch has had it yet, or the batch
    /// stopped before.
    pub fn result(&self) -> Option<Result<(), Error>> {
        self.result
    }
}

impl fmt::Debug for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fd, what, result) = (&self.fd, &self.what, &self.result);
        f.debug_struct("Change")
            .field("fd", fd)
            .field("what", what)
            .field("result", result)
            .finish_non_exhaustive()
    }
}

impl EventPoll {
    /// Makes several changes, in order, each as the single call would; how many succeeded. Each
    /// [`Change`] has its own result afterwards. When it returns all are in force: what a
    /// removal removed is reported by no wait that begins later.
    ///
    /// It is no transaction: what was changed stays so if a later change fails, and other threads
    /// may see a part of it. Waiters are woken when several changes are made: one, and by it
    /// the next if it leaves something over.
    ///
    /// ```
    /// use wakeset::{
    ///     Change, Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events,
    ///     OnError,
    /// };
    ///
    /// let engine = Engine::new();
    /// let set = EventPoll::new(&engine)?;
    /// let counter = |_| Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK));
    /// let counters = [1, 2, 3].map(counter);
    /// let mut changes: Vec<_> = (0..)
    ///     .zip(&counters)
    ///     .map(|(fd, counter)| Change::add(fd, counter, Event::new(Events::IN, fd as u64)))
    ///     .collect();
    /// changes.push(Change::remove(7, &counters[0]));
    /// assert_eq!(set.apply(&mut changes, OnError::GoOn), 3);
    /// assert_eq!(changes[3].result(), Some(Err(Error::NotWatched)));
    /// # Ok::<(), Error>(())
    /// ```
    #[doc(alias = "epoll_ctl_batch")]
    #[inline]
    pub fn apply(&self, changes: &mut [Change<'_>], on_error: OnError) -> usize {
        let mut succeeded = 0;
        let mut held: Option<Changes<'_>> = None;
        for i in 0..changes.len() {
            let change = &mut changes[i];
            let core = self.as_core();
            if held.as_ref().is_some_and(|held| {
                held.made == MOST_AT_ONCE || !held.takes(change.source, change.what)
            }) {
                end(&mut held);
            }
            let result = if !change.engine.is(self.engine()) {
                // As the single calls: only an add asks whose it is, the others find no such watch.
                Err(if matches!(change.what, What::Add(_)) {
                    Error::Closed
                } else {
                    Error::NotWatched
                })
            } else if held.is_some() || takes(core, change.source, change.what) {
                let held = held.get_or_insert_with(|| Changes::begin(core));
                // SAFETY: a description closes its source's queue before the source goes.
                unsafe { held.make(change.fd, change.source, change.what) }
            } else {
                let (fd, source) = (change.fd, ptr::from_ref(change.source));
                match change.what {
                    // SAFETY: as above.
                    What::Add(event) => unsafe { self.add_source(fd, source, event) },
                    What::Modify(event) => self.modify_source(fd, source.cast(), event),
                    What::Remove => self.remove_source(fd, source.cast()),
                }
            };
            change.result = Some(result);
            succeeded += usize::from(result.is_ok());
            if result.is_err() && on_error == OnError::Stop {
                for later in &mut changes[i + 1..] {
                    later.result = None;
                }
                break;
            }
        }
        end(&mut held);
        succeeded
    }
}

fn end(held: &mut Option<Changes<'_>>) {
    if let Some(held) = held.take() {
        held.end();
    }
}

/// Whether the scan lock of `set` is all that this change needs.
fn takes(set: &SetCore, source: &dyn Source, what: What) -> bool {
    !matches!(what, What::Add(_)) || source.as_set().is_none() && !set.wake.queue.may_have_watches()
}

/// A hold of the scan lock for changes; see [`EventPoll::begin_changes`].
#[doc(hidden)]
#[derive(Debug)]
#[must_use = "waiters are told by `end`"]
pub struct Changes<'a> {
    set: &'a SetCore,
    changing: Changing<'a>,
    made: usize,
}

impl<'a> Changes<'a> {
    pub(crate) fn begin(set: &'a SetCore) -> Self {
        Self { set, changing: set.begin_changes(), made: 0 }
    }

    fn takes(&self, source: &dyn Source, what: What) -> bool {
        takes(self.set, source, what)
    }

    /// Whether `source` can be added without a lock wider than this one.
    pub fn may_add(&self, source: &dyn Source) -> bool {
        self.made < MOST_AT_ONCE && self.takes(source, What::Add(Event::default()))
    }

    /// Whether it has been long enough.
    pub fn is_over(&self) -> bool {
        self.made >= MOST_AT_ONCE
    }

    unsafe fn make(&mut self, fd: i32, source: *const dyn Source, what: What) -> Result<(), Error> {
        match what {
            // SAFETY: the caller's contract.
            What::Add(event) => unsafe { self.add_source(fd, source, event) },
            What::Modify(event) => self.modify_source(fd, source.cast(), event),
            What::Remove => self.remove_source(fd, source.cast()),
        }
    }

    /// As [`EventPoll::add_source`], of what [`may_add`](Self::may_add) allows.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn add_source(
        &mut self,
        fd: i32,
        source: *const dyn Source,
        event: Event,
    ) -> Result<(), Error> {
        self.made += 1;
        check_exclusive(event, false)?;
        // SAFETY: the caller's contract.
        unsafe { self.changing.add(fd, source, event, || Ok(())) }
    }

    /// As [`EventPoll::modify_source`].
    ///
    /// # Errors
    /// As there.
    pub fn modify_source(&mut self, fd: i32, source: *const (), event: Event) -> Result<(), Error> {
        self.made += 1;
        if event.events.contains(crate::events::Events::EXCLUSIVE) {
            return Err(Error::Invalid);
        }
        self.changing.modify(fd, source, event)
    }

    /// As [`EventPoll::remove_source`].
    ///
    /// # Errors
    /// As there.
    pub fn remove_source(&mut self, fd: i32, source: *const ()) -> Result<(), Error> {
        self.made += 1;
        self.changing.remove(fd, source)
    }

    /// Ends the hold, and tells the waiters.
    pub fn end(self) {
        self.changing.end();
    }
}
