//! A bounded channel whose ends can be watched.
//!
//! One lock guards the messages and the counts of ends and of blocked threads. What a thread
//! changes under it, it publishes by letting the lock go; only then does it wake those that watch,
//! who take the lock in their poll. So the waker never holds what a set's poll waits for.

use crate::sources::Watch;
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
use std::iter;
use std::mem;
use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use wakeset::{Description, Engine, Error, Events, Source, WaitQueue, mutant};

struct State<T> {
    messages: VecDeque<T>,
    senders: usize,
    receivers: usize,
    blocked_senders: usize,
    blocked_receivers: usize,
}

struct Channel<T> {
    state: Mutex<State<T>>,
    capacity: usize,
    /// For blocked senders.
    room: Condvar,
    /// For blocked receivers.
    news: Condvar,
    /// The watches of the receiving end.
    read_queue: WaitQueue,
    /// Those of the sending end.
    write_queue: WaitQueue,
}

impl<T> Channel<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code of the program's runs under the lock, so a panic of its leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, for [`put`](Self::put).
    fn lock_to_put(&self) -> MutexGuard<'_, State<T>> {
        if mutant!("channel_wakes_readers_first") {
            self.read_queue.wake(Events::IN);
        }
        self.lock()
    }

    /// The lock, for [`take`](Self::take).
    fn lock_to_take(&self) -> MutexGuard<'_, State<T>> {
        if mutant!("channel_wakes_writers_first") {
            self.write_queue.wake(Events::OUT);
        }
        self.lock()
    }

    /// Puts a message in. There is room for it, and a receiver.
    fn put(&self, mut state: MutexGuard<'_, State<T>>, message: T) {
        state.messages.push_back(message);
        let blocked = state.blocked_receivers > 0;
        drop(state);
        if blocked && !mutant!("channel_send_without_notify") {
            self.news.notify_one();
        }
        if !mutant!("channel_wakes_readers_first") {
            self.read_queue.wake(Events::IN);
        }
    }

    /// Takes the oldest message out, if there is one, or gives the lock back.
    fn take<'a>(&self, mut state: MutexGuard<'a, State<T>>) -> Result<T, MutexGuard<'a, State<T>>> {
        let Some(message) = state.messages.pop_front() else { return Err(state) };
        let blocked = state.blocked_senders > 0;
        drop(state);
        if blocked && !mutant!("channel_receive_without_notify") {
            self.room.notify_one();
        }
        if !mutant!("channel_wakes_writers_first") {
            self.write_queue.wake(Events::OUT);
        }
        Ok(message)
    }
}

/// The receiving end as a source.
pub struct ReceivingSide<T>(Arc<Channel<T>>);

impl<T: Send> Source for ReceivingSide<T> {
    fn poll(&self) -> Events {
        let state = self.0.lock();
        let mut events = Events::empty();
        events.set(Events::IN, !state.messages.is_empty());
        events.set(Events::HUP, state.senders == 0);
        events
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.0.read_queue
    }
}

/// The sending end as a source.
pub struct SendingSide<T>(Arc<Channel<T>>);

impl<T: Send> Source for SendingSide<T> {
    fn poll(&self) -> Events {
        let state = self.0.lock();
        let mut events = Events::empty();
        events.set(Events::OUT, state.receivers == 0 || state.messages.len() < self.0.capacity);
        events.set(Events::ERR, state.receivers == 0);
        events
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.0.write_queue
    }
}

/// A channel of the engine's that holds up to `capacity` messages, which is not 0.
pub(crate) fn open<T: Send>(
    engine: &Engine,
    capacity: usize,
) -> Result<(Sender<T>, Receiver<T>), Error> {
    let channel = Arc::new(Channel {
        state: Mutex::new(State {
            messages: VecDeque::new(),
            senders: 1,
            receivers: 1,
            blocked_senders: 0,
            blocked_receivers: 0,
        }),
        capacity,
        room: Condvar::new(),
        news: Condvar::new(),
        read_queue: WaitQueue::new(),
        write_queue: WaitQueue::new(),
    });
    let sending = Description::try_new(engine, SendingSide(Arc::clone(&channel)))?;
    let receiving = Description::try_new(engine, ReceivingSide(channel))?;
    Ok((Sender { side: sending }, Receiver { side: receiving }))
}

/// The sending end of a [`channel`](crate::channel); clones are further senders.
///
/// In a set it is writable while there is room, and has an error (and is writable) once the last
/// receiver is gone: the readiness of a pipe's writing end, pipe(7). Every message that is taken
/// out is an edge.
///
/// Thread-safe. Not for signal handlers: it takes a lock.
pub struct Sender<T: Send> {
    side: Description<SendingSide<T>>,
}

impl<T: Send> Sender<T> {
    fn channel(&self) -> &Channel<T> {
        &self.side.0
    }

    /// Sends without blocking.
    ///
    /// # Errors
    /// [`TrySendError::Full`], [`TrySendError::Disconnected`] if there is no receiver; both give
    /// the message back.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let state = self.channel().lock_to_put();
        if state.receivers == 0 {
            return Err(TrySendError::Disconnected(message));
        }
        if state.messages.len() >= self.channel().capacity {
            return Err(TrySendError::Full(message));
        }
        self.channel().put(state, message);
        Ok(())
    }

    /// Sends, and blocks the thread until there is room.
    ///
    /// # Errors
    /// [`SendError`] if there is no receiver, or none any more; it gives the message back.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let channel = self.channel();
        let mut state = channel.lock_to_put();
        while state.receivers > 0 {
            if state.messages.len() < channel.capacity {
                channel.put(state, message);
                return Ok(());
            }
            state.blocked_senders += 1;
            state = channel.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.blocked_senders -= 1;
        }
        Err(SendError(message))
    }
}

impl<T: Send> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.channel().lock().senders += 1;
        Self { side: self.side.clone() }
    }
}

impl<T: Send> Drop for Sender<T> {
    fn drop(&mut self) {
        let channel = self.channel();
        let mut state = channel.lock();
        state.senders -= 1;
        if state.senders > 0 {
            return;
        }
        drop(state);
        channel.write_queue.close();
        channel.news.notify_all();
        if !mutant!("channel_hangs_up_in_silence") {
            channel.read_queue.wake(Events::HUP);
        }
    }
}

impl<T: Send + 'static> Watch for Sender<T> {
    type Source = SendingSide<T>;
    fn source(&self) -> &Description<Self::Source> {
        &self.side
    }
}

/// The receiving end of a [`channel`](crate::channel); clones take from the same messages.
///
/// In a set it is readable while there is a message, and hangs up once the last sender is gone,
/// whose messages can still be received: the readiness of a pipe's reading end, pipe(7). Every
/// message is an edge.
///
/// Thread-safe. Not for signal handlers: it takes a lock.
pub struct Receiver<T: Send> {
    side: Description<ReceivingSide<T>>,
}

impl<T: Send> Receiver<T> {
    fn channel(&self) -> &Channel<T> {
        &self.side.0
    }

    /// Receives without blocking.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`]; [`TryRecvError::Disconnected`] if it is empty and there is no
    /// sender.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.channel().take(self.channel().lock_to_take()).map_err(|state| match state.senders {
            0 => TryRecvError::Disconnected,
            _ => TryRecvError::Empty,
        })
    }

    /// The messages that are there, and those that come meanwhile; it ends when there is none.
    pub fn try_iter(&self) -> impl Iterator<Item = T> {
        iter::from_fn(|| self.try_recv().ok())
    }

    /// Receives, and blocks the thread until there is a message.
    ///
    /// # Errors
    /// [`RecvError`] if it is empty and there is no sender, or none any more.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_until(None).map_err(|_| RecvError)
    }

    /// Receives, and blocks the thread for at most `limit`.
    ///
    /// # Errors
    /// [`RecvTimeoutError::Timeout`]; [`RecvTimeoutError::Disconnected`] as for
    /// [`recv`](Self::recv).
    pub fn recv_timeout(&self, limit: Duration) -> Result<T, RecvTimeoutError> {
        // A time that no clock reaches is no limit.
        self.recv_until(Instant::now().checked_add(limit))
    }

    fn recv_until(&self, end: Option<Instant>) -> Result<T, RecvTimeoutError> {
        let channel = self.channel();
        let mut state = channel.lock_to_take();
        loop {
            state = match channel.take(state) {
                Ok(message) => return Ok(message),
                Err(state) if state.senders == 0 => return Err(RecvTimeoutError::Disconnected),
                Err(state) => state,
            };
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(RecvTimeoutError::Timeout);
            }
            state.blocked_receivers += 1;
            state = match left {
                None => channel.news.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let slept = channel.news.wait_timeout(state, left);
                    slept.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.blocked_receivers -= 1;
        }
    }
}

impl<T: Send> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.channel().lock().receivers += 1;
        Self { side: self.side.clone() }
    }
}

impl<T: Send> Drop for Receiver<T> {
    fn drop(&mut self) {
        let channel = self.channel();
        let mut state = channel.lock();
        state.receivers -= 1;
        if state.receivers > 0 {
            return;
        }
        let messages = mem::take(&mut state.messages);
        drop(state);
        // Without the lock: dropping a message runs code of the program's.
        drop(messages);
        channel.read_queue.close();
        channel.room.notify_all();
        if !mutant!("channel_breaks_in_silence") {
            channel.write_queue.wake(Events::OUT | Events::ERR);
        }
    }
}

impl<T: Send + 'static> Watch for Receiver<T> {
    type Source = ReceivingSide<T>;
    fn source(&self) -> &Description<Self::Source> {
        &self.side
    }
}

impl<T> fmt::Debug for ReceivingSide<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivingSide").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for SendingSide<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendingSide").finish_non_exhaustive()
    }
}

impl<T: Send> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T: Send> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
