//! The set: tokens, modes, both halves, what ends a registration, and what cannot be.
#![allow(missing_docs)]

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use wakeset::{Description, Timer, TimerFlags, TimerSpec};
use wakeset_io::{
    Events, Interest, Nested, Notifier, Poll, Ready, Receiver, Registered, Registration, Sender,
    SetReadiness, Token, Watch, channel,
};

/// Only a failing test waits that long.
const LIMIT: Duration = Duration::from_secs(20);

/// The events of one wait, by token.
fn waited(poll: &Poll, limit: Duration) -> Vec<(u64, Ready)> {
    let mut events = Events::with_capacity(8);
    poll.wait(&mut events, Some(limit)).unwrap();
    let mut found: Vec<_> = events.iter().map(|event| (event.token().0, event.ready())).collect();
    found.sort_by_key(|(token, _)| *token);
    found
}

fn look(poll: &Poll) -> Vec<(u64, Ready)> {
    waited(poll, Duration::ZERO)
}

#[test]
fn sockets_and_sources_are_in_one_set() {
    let poll = Poll::new().unwrap();
    let (mut there, here) = UnixStream::pair().unwrap();
    let (sender, receiver) = channel::<u32>(2).unwrap();
    let notifier = Notifier::new().unwrap();
    let mut here = poll.register_fd(here, Token(1), Interest::READABLE).unwrap().into_inner();
    let _here = poll.register_fd(&here, Token(1), Interest::READABLE).unwrap();
    let _receiver = poll.register(&receiver, Token(2), Interest::READABLE).unwrap();
    let _notifier = poll.register(&notifier, Token(3), Interest::READABLE).unwrap();
    assert_eq!(look(&poll), []);
    there.write_all(b"x").unwrap();
    sender.try_send(5).unwrap();
    notifier.notify();
    let readable = Ready::READABLE;
    let mut found = waited(&poll, LIMIT);
    found
        .extend(look(&poll).into_iter().filter(|event| !found.contains(event)).collect::<Vec<_>>());
    found.sort_by_key(|(token, _)| *token);
    assert_eq!(found, [(1, readable), (2, readable), (3, readable)]);
    assert_eq!((receiver.try_recv(), notifier.take(), notifier.take()), (Ok(5), 1, 0));
    drop(_here);
    here.read_exact(&mut [0]).unwrap();
    assert_eq!(look(&poll), []);
}

#[test]
fn a_sleeper_is_woken_from_both_worlds() {
    let poll = Arc::new(Poll::new().unwrap());
    let (mut there, here) = UnixStream::pair().unwrap();
    let notifier = Notifier::new().unwrap();
    let _notifier = poll.register(&notifier, Token(1), Interest::READABLE.edge()).unwrap();
    let _here = poll.register_fd(here, Token(2), Interest::READABLE.edge()).unwrap();
    for round in 0..20 {
        let waiter = thread::spawn({
            let poll = Arc::clone(&poll);
            move || waited(&poll, LIMIT)
        });
        // Only so that it sleeps in half of the rounds.
        thread::sleep(Duration::from_micros(200 * (round % 2)));
        let expected = if round % 3 == 0 {
            notifier.notify();
            1
        } else {
            there.write_all(b"x").unwrap();
            2
        };
        assert_eq!(waiter.join().unwrap(), [(expected, Ready::READABLE)]);
    }
}

#[test]
fn modes_are_those_of_epoll() {
    let poll = Poll::new().unwrap();
    let (registration, set_readiness) = Registration::new().unwrap();
    let both = Interest::READABLE | Interest::WRITABLE;
    let level = poll.register(&registration, Token(1), both).unwrap();
    set_readiness.set_readiness(Ready::READABLE | Ready::PRIORITY);
    assert_eq!(look(&poll), [(1, Ready::READABLE)]);
    assert_eq!(look(&poll), [(1, Ready::READABLE)], "a level stays");
    level.modify(Token(2), both.edge()).unwrap();
    assert_eq!(look(&poll), [(2, Ready::READABLE)]);
    assert_eq!(look(&poll), [], "an edge is reported once");
    set_readiness.set_readiness(Ready::READABLE | Ready::WRITABLE);
    assert_eq!(look(&poll), [(2, Ready::READABLE | Ready::WRITABLE)]);
    level.modify(Token(3), both.one_shot()).unwrap();
    assert_eq!(look(&poll), [(3, Ready::READABLE | Ready::WRITABLE)]);
    set_readiness.set_readiness(Ready::READABLE);
    assert_eq!(look(&poll), [], "disarmed");
    level.modify(Token(3), both.one_shot()).unwrap();
    assert_eq!(look(&poll), [(3, Ready::READABLE)]);
    // Always reported.
    level.modify(Token(4), Interest::NONE).unwrap();
    set_readiness.set_readiness(Ready::READABLE | Ready::HANGUP);
    assert_eq!(look(&poll), [(4, Ready::HANGUP)]);
    set_readiness.set_readiness(Ready::NONE);
    assert_eq!((look(&poll), set_readiness.readiness()), (vec![], Ready::NONE));
}

#[test]
fn an_exclusive_registration_is_one_of_many() {
    let sets = [Poll::new().unwrap(), Poll::new().unwrap()];
    let notifier = Notifier::new().unwrap();
    let exclusive = Interest::READABLE.exclusive();
    let registered =
        sets.each_ref().map(|set| set.register(&notifier, Token(1), exclusive).unwrap());
    let error = registered[0].modify(Token(1), Interest::READABLE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    thread::scope(|scope| {
        let waiters = sets.each_ref().map(|set| scope.spawn(|| waited(set, LIMIT)));
        thread::sleep(Duration::from_millis(20));
        notifier.notify();
        // At least one of them; both would find it if both looked.
        while waiters.iter().all(|waiter| !waiter.is_finished()) {
            thread::yield_now();
        }
        // And the other one is let go.
        notifier.notify();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), [(1, Ready::READABLE)]);
        }
    });
}

#[test]
fn nothing_is_registered_twice() {
    let (poll, other) = (Poll::new().unwrap(), Poll::new().unwrap());
    let notifier = Notifier::new().unwrap();
    let (here, _there) = UnixStream::pair().unwrap();
    let first = poll.register(&notifier, Token(1), Interest::READABLE).unwrap();
    let second = poll.register(&notifier.clone(), Token(2), Interest::READABLE);
    assert_eq!(second.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let number = poll.register_fd(&here, Token(3), Interest::READABLE).unwrap();
    let again = poll.register_fd(here.as_fd(), Token(4), Interest::READABLE);
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    // In another set it is another registration.
    let _there = other.register(&notifier, Token(5), Interest::READABLE).unwrap();
    drop((first, number));
    let _first = poll.register(&notifier, Token(1), Interest::READABLE).unwrap();
    let _number = poll.register_fd(&here, Token(3), Interest::READABLE).unwrap();
    // Both ends of a channel are two things.
    let (sender, receiver) = channel::<()>(1).unwrap();
    let _sender = poll.register(&sender, Token(6), Interest::WRITABLE).unwrap();
    let _receiver = poll.register(&receiver, Token(7), Interest::READABLE).unwrap();
    assert_eq!(look(&poll), [(6, Ready::WRITABLE)]);
}

#[test]
fn what_epoll_refuses_is_refused() {
    let poll = Poll::new().unwrap();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let refused = poll.register_fd(file, Token(1), Interest::READABLE).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    let notifier = Notifier::new().unwrap();
    let odd = (Interest::READABLE | Interest::READ_CLOSED).exclusive();
    let refused = poll.register(&notifier, Token(1), odd).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    let stranger = Description::new(
        &wakeset::Engine::new(),
        wakeset::Counter::new(0, wakeset::CounterFlags::NONBLOCK),
    );
    let refused = poll.register(&stranger, Token(1), Interest::READABLE).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
    assert_eq!(channel::<()>(0).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_registration_ends_with_its_handle_its_source_or_its_set() {
    let poll = Poll::new().unwrap();
    let (registration, set_readiness) = Registration::new().unwrap();
    let handle = poll.register(&registration, Token(1), Interest::READABLE).unwrap();
    set_readiness.set_readiness(Ready::READABLE);
    assert_eq!(look(&poll).len(), 1);
    drop(registration);
    assert_eq!(look(&poll), []);
    let gone = handle.modify(Token(1), Interest::READABLE).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    set_readiness.set_readiness(Ready::WRITABLE);

    let notifier = Notifier::new().unwrap();
    let handle = poll.register(&notifier, Token(2), Interest::READABLE).unwrap();
    let clone = notifier.clone();
    drop(notifier);
    clone.notify();
    assert_eq!(look(&poll), [(2, Ready::READABLE)]);
    drop(poll);
    let gone = handle.modify(Token(2), Interest::READABLE).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(libc::EBADF));
    drop(handle);
    clone.notify();
    assert_eq!(clone.take(), 2);
}

#[test]
fn a_set_gives_its_number_back() {
    let numbers = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let notifier = Notifier::new().unwrap();
    // Other tests make numbers meanwhile.
    let (before, rounds) = (numbers(), 2000);
    for _ in 0..rounds {
        let poll = Poll::new().unwrap();
        let _registered = poll.register(&notifier, Token(1), Interest::READABLE).unwrap();
    }
    assert!(numbers() < before + rounds / 2);
}

#[test]
fn time_is_up_when_it_is() {
    let poll = Poll::new().unwrap();
    let mut events = Events::with_capacity(0);
    assert_eq!(events.capacity(), 1);
    for limit in [Duration::from_millis(20), Duration::from_micros(20_300)] {
        let begin = Instant::now();
        poll.wait(&mut events, Some(limit)).unwrap();
        assert!(events.is_empty() && begin.elapsed() >= limit);
    }
}

#[test]
fn a_timer_of_the_engine_is_waited_for_but_not_by_another_loop() {
    let poll = Poll::new().unwrap();
    let engine = wakeset_io::engine().unwrap();
    let timer = Description::new(engine, Timer::new(TimerFlags::NONBLOCK));
    let _timer = poll.register(&timer, Token(1), Interest::READABLE).unwrap();
    let soon = TimerSpec { value: Duration::from_millis(5), interval: Duration::ZERO };
    timer.set(soon).unwrap();
    assert_eq!(waited(&poll, LIMIT), [(1, Ready::READABLE)]);
    let refused = poll.into_nested().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    let nested = Poll::new().unwrap().into_nested().unwrap();
    let refused = nested.register(&timer, Token(1), Interest::READABLE).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}

/// A look that may spin finds what comes while it spins, from memory and from a socket. It may end
/// before, where the thread loses its processor.
#[test]
fn a_look_that_spins_finds_what_comes_meanwhile() {
    if thread::available_parallelism().map_or(1, |count| count.get()) == 1 {
        return;
    }
    let set = Poll::new().unwrap();
    let (mut there, here) = UnixStream::pair().unwrap();
    let _here = set.register_fd(here, Token(1), Interest::READABLE.edge()).unwrap();
    let notifier = Notifier::new().unwrap();
    let _notifier = set.register(&notifier, Token(0), Interest::READABLE.edge()).unwrap();
    let set = set.into_nested().unwrap();
    let (begin, begun) = std::sync::mpsc::channel();
    // Nothing spins on its waker's processor, where both may stay if others are busy.
    let all = allowed();
    let (one, others) = split(&all);
    wakeset::set_spin_limit(Some(wakeset::LONGEST_SPIN));
    thread::scope(|scope| {
        scope.spawn(move || {
            allow(&one);
            for round in begun {
                thread::sleep(Duration::from_millis(2));
                match round {
                    0 => notifier.notify(),
                    _ => there.write_all(b"x").unwrap(),
                }
            }
        });
        let mut events = Events::with_capacity(8);
        let mut found_late = [0; 2];
        let end = Instant::now() + LIMIT;
        for round in [0, 1].into_iter().cycle() {
            assert!(Instant::now() < end, "{found_late:?}");
            allow(&others);
            allow(&all);
            begin.send(round).unwrap();
            let mut looked = Instant::now();
            while {
                set.wait_spinning(&mut events).unwrap();
                events.is_empty()
            } {
                assert!(looked < end, "{found_late:?}");
                looked = Instant::now();
            }
            assert!(events.iter().all(|event| event.token() == Token(round)), "{events:?}");
            found_late[round as usize] += u32::from(looked.elapsed() > Duration::from_micros(200));
            if found_late[0] >= 5 && found_late[1] >= 5 {
                break;
            }
        }
        drop(begin);
    });
    wakeset::set_spin_limit(None);
}

/// The processors that the calling thread may use.
fn allowed() -> libc::cpu_set_t {
    // SAFETY: it is all integers, and the kernel writes a set of that size.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&all), &raw mut all), 0);
        all
    }
}

fn allow(processors: &libc::cpu_set_t) {
    // SAFETY: the kernel reads a set of that size.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size_of_val(processors), processors) }, 0);
}

/// One of these processors, and the others.
fn split(all: &libc::cpu_set_t) -> (libc::cpu_set_t, libc::cpu_set_t) {
    // SAFETY: these are integers, and each number is one of a processor.
    unsafe {
        let (mut one, mut others): (libc::cpu_set_t, _) = (std::mem::zeroed(), *all);
        let first = (0..libc::CPU_SETSIZE as usize).find(|&number| libc::CPU_ISSET(number, all));
        let first = first.expect("a processor");
        libc::CPU_SET(first, &mut one);
        libc::CPU_CLR(first, &mut others);
        (one, others)
    }
}

#[test]
fn a_set_goes_into_a_set() {
    let inner = Poll::new().unwrap();
    let notifier = Notifier::new().unwrap();
    let _notifier = inner.register(&notifier, Token(1), Interest::READABLE).unwrap();
    let (outer, inner) = (Poll::new().unwrap(), inner.into_nested().unwrap());
    let inner = outer.register_fd(inner, Token(2), Interest::READABLE).unwrap();
    assert_eq!(look(&outer), []);
    notifier.notify();
    assert_eq!(waited(&outer, LIMIT), [(2, Ready::READABLE)]);
    assert_eq!(look(&inner), [(1, Ready::READABLE)]);
    notifier.take();
    assert_eq!(look(&inner), []);
    assert_eq!(look(&outer), []);
}

#[test]
fn everything_may_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Poll>();
    shared::<Nested>();
    shared::<Events>();
    shared::<Registered<UnixStream>>();
    shared::<Registered>();
    shared::<Sender<Box<dyn Send>>>();
    shared::<Receiver<Box<dyn Send>>>();
    shared::<Notifier>();
    shared::<Registration>();
    shared::<SetReadiness>();
    shared::<wakeset_io::tokio::AsyncPoll>();
    shared::<wakeset_io::async_io::AsyncPoll>();
    shared::<wakeset_io::tokio::EventStream>();
    fn watched<W: Watch>() {}
    watched::<Sender<u8>>();
    watched::<Description<Timer>>();
}
