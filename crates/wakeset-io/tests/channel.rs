//! The channel: order, capacity, blocking, and what holds when an end is gone.
#![allow(missing_docs)]

use std::collections::BTreeSet;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError, TrySendError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use wakeset_io::{Events, Interest, Poll, Ready, Token, channel};

fn look(poll: &Poll) -> Vec<(u64, Ready)> {
    let mut events = Events::with_capacity(8);
    poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
    events.iter().map(|event| (event.token().0, event.ready())).collect()
}

#[test]
fn holds_its_capacity_in_order() {
    let (sender, receiver) = channel(2).unwrap();
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    assert_eq!((sender.try_send(1), sender.try_send(2)), (Ok(()), Ok(())));
    assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [1, 2]);
    let timeout = receiver.recv_timeout(Duration::from_millis(1));
    assert_eq!(timeout, Err(RecvTimeoutError::Timeout));
}

#[test]
fn ends_as_a_pipe_does() {
    let poll = Poll::new().unwrap();
    let (sender, receiver) = channel(1).unwrap();
    let _sending = poll.register(&sender, Token(1), Interest::WRITABLE).unwrap();
    assert_eq!(look(&poll), [(1, Ready::WRITABLE)]);
    sender.try_send(1).unwrap();
    assert_eq!(look(&poll), []);
    drop(receiver.clone());
    assert_eq!(look(&poll), []);
    drop(receiver);
    assert_eq!(look(&poll), [(1, Ready::WRITABLE | Ready::ERROR)]);
    assert_eq!(sender.try_send(2), Err(TrySendError::Disconnected(2)));
    assert_eq!(sender.send(2).unwrap_err().0, 2);
    drop(sender);
    assert_eq!(look(&poll), [], "closed");

    let (sender, receiver) = channel(1).unwrap();
    let _receiving = poll.register(&receiver, Token(2), Interest::READABLE).unwrap();
    sender.send(1).unwrap();
    drop((sender.clone(), sender));
    assert_eq!(look(&poll), [(2, Ready::READABLE | Ready::HANGUP)]);
    assert_eq!(receiver.recv(), Ok(1));
    assert_eq!(look(&poll), [(2, Ready::HANGUP)]);
    assert!(receiver.recv().is_err());
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    drop(receiver);
    assert_eq!(look(&poll), [], "closed");
}

#[test]
fn every_message_is_an_edge() {
    let poll = Poll::new().unwrap();
    let (sender, receiver) = channel(4).unwrap();
    let _receiving = poll.register(&receiver, Token(1), Interest::READABLE.edge()).unwrap();
    for number in 0..3 {
        sender.try_send(number).unwrap();
        assert_eq!(look(&poll), [(1, Ready::READABLE)]);
        assert_eq!(look(&poll), []);
    }
}

#[test]
fn the_last_receiver_drops_what_is_left() {
    let (sender, receiver) = channel(4).unwrap();
    let message = Arc::new(());
    sender.try_send(Arc::clone(&message)).unwrap();
    drop(receiver);
    assert_eq!(Arc::strong_count(&message), 1);
}

/// A message whose drop uses the channel that it is in.
#[test]
fn a_message_may_use_its_channel_while_it_is_dropped() {
    struct Talker(Mutex<Option<wakeset_io::Sender<Talker>>>);
    impl Drop for Talker {
        fn drop(&mut self) {
            if let Some(sender) = self.0.lock().unwrap().take() {
                assert!(sender.try_send(Talker(Mutex::new(None))).is_err());
            }
        }
    }
    let (sender, receiver) = channel(2).unwrap();
    sender.try_send(Talker(Mutex::new(Some(sender.clone())))).ok().unwrap();
    drop(receiver);
}

#[test]
fn threads_of_both_kinds_block_and_end() {
    const EACH: u32 = 2000;
    let (sender, receiver) = channel(3).unwrap();
    let received = thread::scope(|scope| {
        for thread in 0..3 {
            let sender = sender.clone();
            scope.spawn(move || {
                (0..EACH).for_each(|number| sender.send(thread * EACH + number).unwrap());
            });
        }
        drop(sender);
        let receivers: Vec<_> = (0..3)
            .map(|_| {
                let receiver = receiver.clone();
                scope.spawn(move || {
                    let mut found = Vec::new();
                    while let Ok(number) = receiver.recv() {
                        found.push(number);
                    }
                    found
                })
            })
            .collect();
        receivers.into_iter().flat_map(|it| it.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(received.len(), 3 * EACH as usize);
    assert_eq!(received.into_iter().collect::<BTreeSet<_>>().len(), 3 * EACH as usize);
}
