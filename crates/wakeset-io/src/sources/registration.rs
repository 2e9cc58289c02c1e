//! Readiness that the program itself keeps: what mio had until 0.6 as `Registration` and
//! `SetReadiness`.

use crate::ready::Ready;
use crate::sources::Watch;
use crate::sync::{AtomicU32, Ordering};
use std::sync::Arc;
use wakeset::{Description, Engine, Error, Events, Source, WaitQueue, mutant};

#[derive(Debug)]
struct Shared {
    /// The bits of [`Events`] that hold.
    ready: AtomicU32,
    queue: WaitQueue,
}

/// Readiness that is set by hand, as a source.
#[derive(Debug)]
pub struct UserReadiness(Arc<Shared>);

impl Source for UserReadiness {
    fn poll(&self) -> Events {
        // SeqCst: pairs with the change in `set_readiness`.
        Events::from_bits_retain(self.0.ready.load(Ordering::SeqCst))
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.0.queue
    }
}

/// Something whose readiness a [`SetReadiness`] sets: the end that is put into sets. When it is
/// dropped its registrations end.
///
/// For queues, protocols and user-space network stacks that know by themselves what can be read and
/// written.
#[derive(Debug)]
pub struct Registration {
    source: Description<UserReadiness>,
}

impl Registration {
    pub(crate) fn open(engine: &Engine) -> Result<(Self, SetReadiness), Error> {
        let shared = Arc::new(Shared { ready: AtomicU32::new(0), queue: WaitQueue::new() });
        let set_readiness = SetReadiness { shared: Arc::clone(&shared) };
        let source = Description::try_new(engine, UserReadiness(shared))?;
        Ok((Self { source }, set_readiness))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.source.wait_queue().close();
    }
}

impl Watch for Registration {
    type Source = UserReadiness;
    fn source(&self) -> &Description<UserReadiness> {
        &self.source
    }
}

/// Sets the readiness of a [`Registration`]; clones set the same.
///
/// Thread-safe. Both functions are async-signal-safe, take no lock and allocate nothing.
#[derive(Clone, Debug)]
pub struct SetReadiness {
    shared: Arc<Shared>,
}

impl SetReadiness {
    /// Makes `ready` what holds from now on, instead of what held before. If that is anything, it
    /// is an edge, also where it held before.
    ///
    /// Without a registration it is kept for the next one.
    pub fn set_readiness(&self, ready: Ready) {
        if mutant!("readiness_wakes_first") {
            self.shared.queue.wake(ready.events());
        }
        self.shared.ready.store(ready.events().bits(), Ordering::SeqCst);
        if !ready.is_empty() && !mutant!("readiness_wakes_first") {
            self.shared.queue.wake(ready.events());
        }
    }

    /// What was set last.
    pub fn readiness(&self) -> Ready {
        Ready::of(Events::from_bits_retain(self.shared.ready.load(Ordering::SeqCst)))
    }
}
