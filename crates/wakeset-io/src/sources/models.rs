//! Models of the sources: what changes is seen by a set that watches, or by a thread that blocks.

use crate::ready::Ready;
use crate::sources::Watch;
use crate::sources::channel::{self, Receiver, Sender};
use crate::sources::registration::Registration;
use loom::thread;
use std::sync::mpsc::TryRecvError;
use wakeset::{Engine, Event, EventPoll, Events, Timeout, explore};

fn open(engine: &Engine, capacity: usize) -> (Sender<u32>, Receiver<u32>) {
    channel::open(engine, capacity).unwrap()
}

fn watching<W: Watch>(engine: &Engine, it: &W, events: Events) -> EventPoll {
    let set = EventPoll::new(engine).unwrap();
    set.add(1, it.source(), Event::new(events, 1)).unwrap();
    set
}

/// The next event's bits.
fn wait(set: &EventPoll) -> Events {
    let mut events = [Event::default()];
    assert_eq!(set.wait(&mut events, Timeout::Never).unwrap(), 1);
    events[0].events
}

#[test]
fn a_message_is_reported() {
    explore(3, || {
        let engine = Engine::new();
        let (sender, receiver) = open(&engine, 1);
        let set = watching(&engine, &receiver, Events::IN | Events::ET);
        let other = sender.clone();
        let sending = thread::spawn(move || other.try_send(7).unwrap());
        assert_eq!(wait(&set), Events::IN);
        assert_eq!(receiver.try_recv(), Ok(7));
        sending.join().unwrap();
        drop(sender);
    });
}

#[test]
fn room_is_reported() {
    explore(3, || {
        let engine = Engine::new();
        let (sender, receiver) = open(&engine, 1);
        sender.try_send(1).unwrap();
        let set = watching(&engine, &sender, Events::OUT | Events::ET);
        let other = receiver.clone();
        let receiving = thread::spawn(move || assert_eq!(other.try_recv(), Ok(1)));
        assert_eq!(wait(&set), Events::OUT);
        sender.try_send(2).unwrap();
        receiving.join().unwrap();
        drop(receiver);
    });
}

#[test]
fn the_last_sender_is_missed() {
    explore(3, || {
        let engine = Engine::new();
        let (sender, receiver) = open(&engine, 1);
        let set = watching(&engine, &receiver, Events::IN);
        let other = sender.clone();
        let dropping = thread::spawn(move || drop(other));
        drop(sender);
        assert_eq!(wait(&set), Events::HUP);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
        dropping.join().unwrap();
    });
}

#[test]
fn the_last_receiver_is_missed() {
    explore(3, || {
        let engine = Engine::new();
        let (sender, receiver) = open(&engine, 1);
        sender.try_send(1).unwrap();
        let set = watching(&engine, &sender, Events::OUT);
        let dropping = thread::spawn(move || drop(receiver));
        assert_eq!(wait(&set), Events::OUT | Events::ERR);
        assert!(sender.try_send(2).is_err());
        dropping.join().unwrap();
    });
}

#[test]
fn blocked_threads_are_woken() {
    explore(3, || {
        let engine = Engine::new();
        let (sender, receiver) = open(&engine, 1);
        let sending = thread::spawn(move || {
            sender.send(1).unwrap();
            sender.send(2).unwrap();
        });
        assert_eq!([receiver.recv(), receiver.recv()], [Ok(1), Ok(2)]);
        sending.join().unwrap();
        assert!(receiver.recv().is_err());
    });
}

#[test]
fn a_readiness_is_reported() {
    explore(3, || {
        let engine = Engine::new();
        let (registration, set_readiness) = Registration::open(&engine).unwrap();
        let set = watching(&engine, &registration, Events::IN | Events::ET);
        let setting = thread::spawn(move || set_readiness.set_readiness(Ready::READABLE));
        assert_eq!(wait(&set), Events::IN);
        setting.join().unwrap();
    });
}
