use super::*;
use crate::kernel_half::listeners;
use crate::sys;
use crate::table::alone::alone;
use core::cell::Cell;
use core::ptr;
use core::time::Duration;
use libc::{EPOLL_CTL_ADD, EPOLLIN};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::vec::Vec;

extern crate std;

const NOTHING: epoll_event = epoll_event { events: 0, u64: 0 };

/// A set, and how often a wait was the program's own call.
struct Watched {
    epfd: c_int,
    calls: Cell<usize>,
    asleep: fn(&Watched),
    object: Cell<c_int>,
}

impl Watched {
    fn new() -> Self {
        let epfd = crate::epoll_create1(0).expect("a number");
        Self { epfd, calls: Cell::new(0), asleep: |_| {}, object: Cell::new(-1) }
    }

    fn add(&self, fd: c_int, data: u64) {
        // What it was in another test.
        listeners::forget(fd);
        let event = epoll_event { events: EPOLLIN as u32, u64: data };
        // SAFETY: an event.
        unsafe { crate::epoll_ctl(self.epfd, EPOLL_CTL_ADD, fd, &raw const event) }
            .expect("a watch");
    }

    /// The data of what a quiet wait reports; `None`: it is none.
    fn wait_quietly(&self, capacity: usize, limit: c_int) -> Option<Vec<u64>> {
        self.wait_in_one_way(false, capacity, limit)
    }

    /// The same of a thread that was told of a connection.
    fn wait_after_connection(&self, limit: c_int) -> Option<Vec<u64>> {
        self.wait_in_one_way(true, 8, limit)
    }

    fn wait_in_one_way(&self, minds: bool, capacity: usize, limit: c_int) -> Option<Vec<u64>> {
        let mut events = [NOTHING; 8];
        let place = events.as_mut_ptr();
        let call = |within| {
            self.calls.set(self.calls.get() + 1);
            (self.asleep)(self);
            sys::epoll_pwait(self.epfd, place, capacity as c_int, within, ptr::null(), 0)
                .unwrap_or(-1)
        };
        let (epfd, capacity) = (self.epfd, capacity as c_int);
        // SAFETY: it writes what it returns.
        let found = unsafe { epoll_wait_quietly(epfd, place, capacity, limit, minds, call) }?;
        let mut data: Vec<_> =
            events.iter().take(found.max(0) as usize).map(|event| event.u64).collect();
        data.sort_unstable();
        Some(data)
    }

    fn wait(&self, limit: c_int) -> usize {
        let mut events = [NOTHING; 8];
        // SAFETY: room for so many.
        unsafe { crate::epoll_wait(self.epfd, events.as_mut_ptr(), 8, limit) }.expect("a wait")
            as usize
    }

    fn set(&self) -> &'static FdSet {
        table::find(self.epfd).expect("a set")
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = crate::close(self.epfd);
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
    (client, listener.accept().expect("a connection").0)
}

fn write_to(object: c_int) {
    // SAFETY: eight bytes.
    unsafe { crate::write(object, ptr::from_ref(&1_u64).cast(), 8) }.expect("written");
}

fn read_from(object: c_int) {
    let mut value = 0_u64;
    // SAFETY: eight bytes.
    unsafe { crate::read(object, ptr::from_mut(&mut value).cast(), 8) }.expect("read");
}

/// A set of a worker that has not waited yet, with its listener and a connection.
fn with_listener() -> (Watched, TcpListener, TcpStream, TcpStream) {
    listeners::choose(listeners::Choice::Automatic, None);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (watched, (client, connection)) = (Watched::new(), pair());
    watched.add(listener.as_raw_fd(), 1);
    watched.add(connection.as_raw_fd(), 2);
    listeners::begin_in_silence(listeners::Choice::Automatic, None);
    (watched, listener, client, connection)
}

/// The set of a worker that is alone, calm.
fn calm() -> (Watched, TcpListener, TcpStream, TcpStream) {
    let found = with_listener();
    assert_eq!(found.0.wait(1) + found.0.wait(1), 0);
    assert!(found.0.set().rotation.is_calm());
    found
}

#[test]
fn a_set_of_sockets_is_waited_for_by_the_programs_call() {
    let _alone = alone();
    let (watched, (mut client, mut connection)) = (Watched::new(), pair());
    watched.add(connection.as_raw_fd(), 2);
    assert_eq!(watched.wait_quietly(8, 1), Some(Vec::new()));
    client.write_all(b"x").expect("written");
    assert_eq!(watched.wait_quietly(8, -1), Some(std::vec![2]));
    assert_eq!(watched.calls.get(), 2);
    assert!(!watched.set().set.has_remote_waiter(), "it has left");
    connection.read_exact(&mut [0]).expect("read");
    let object = crate::eventfd(0, 0).expect("a number");
    watched.add(object, 3);
    assert_eq!(watched.wait_quietly(8, 0), Some(Vec::new()), "it is not ready");
    write_to(object);
    assert_eq!(watched.wait_quietly(8, -1), None);
    assert_eq!(watched.wait(-1), 1);
    let _ = crate::close(object);
}

/// What has become ready before the wait has been counted in rings no doorbell.
#[test]
fn what_is_ready_here_is_no_quiet_waits() {
    let _alone = alone();
    let (watched, _listener, ..) = calm();
    let object = crate::eventfd(1, 0).expect("a number");
    watched.add(object, 3);
    assert!(watched.set().rotation.is_calm());
    assert_eq!(watched.wait_quietly(8, -1), None);
    assert_eq!(watched.calls.get(), 0);
    assert_eq!(watched.wait(-1), 1);
    let _ = crate::close(object);
}

/// The doorbell's event is not the program's, and what it was rung for is.
#[test]
fn what_becomes_ready_meanwhile_is_reported() {
    let _alone = alone();
    let (mut watched, _listener, mut client, _connection) = calm();
    watched.asleep = |watched| {
        if watched.calls.get() == 1 {
            let object = crate::eventfd(1, 0).expect("a number");
            watched.add(object, object as u64 + 100);
        }
    };
    let found = watched.wait_quietly(8, 10_000).expect("it is quiet");
    assert!(matches!(found[..], [data] if data > 100), "{found:?}");
    client.write_all(b"x").expect("written");
    let _ = crate::close((found[0] - 100) as c_int);
    // It takes what is left of the object off the list.
    assert_eq!(watched.wait(-1), 1);
    watched.calls.set(1);
    assert_eq!(watched.wait_quietly(8, -1), Some(std::vec![2]));
    assert_eq!(watched.calls.get(), 2);
}

/// A thread that went to sleep without a listener is woken for the first one, and sleeps on.
#[test]
fn a_first_listener_ends_no_wait() {
    let _alone = alone();
    listeners::choose(listeners::Choice::Automatic, None);
    let (mut watched, (_client, connection)) = (Watched::new(), pair());
    watched.add(connection.as_raw_fd(), 2);
    watched.asleep = |watched| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        watched.add(listener.as_raw_fd(), 1);
        core::mem::forget(listener);
    };
    let begun = std::time::Instant::now();
    assert_eq!(watched.wait_quietly(8, 200), Some(Vec::new()));
    assert!(begun.elapsed().as_millis() >= 200, "{:?}", begun.elapsed());
    assert_eq!(watched.calls.get(), 1);
}

/// What woke a wait with a limit on the way began the limit anew.
#[test]
fn a_first_listener_lengthens_no_wait() {
    let _alone = alone();
    for quietly in [true, false] {
        listeners::choose(listeners::Choice::Automatic, None);
        let (watched, (_client, connection)) = (Watched::new(), pair());
        watched.add(connection.as_raw_fd(), 2);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (epfd, fd) = (watched.epfd, listener.as_raw_fd());
        listeners::forget(fd);
        let begun = std::time::Instant::now();
        let adds = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(500));
            let event = epoll_event { events: EPOLLIN as u32, u64: 1 };
            // SAFETY: an event.
            unsafe { crate::epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &raw const event) }
        });
        if quietly {
            assert_eq!(watched.wait_quietly(8, 800), Some(Vec::new()));
        } else {
            assert_eq!(watched.wait(800), 0);
        }
        let passed = begun.elapsed().as_millis();
        assert!((800..1_150).contains(&passed), "{passed}, quietly: {quietly}");
        assert_eq!(adds.join().expect("it ends"), Ok(()));
    }
}

/// A listener's event ends the calm, and the program has it.
#[test]
fn a_listeners_event_is_noted() {
    let _alone = alone();
    let (watched, listener, mut client, _connection) = calm();
    client.write_all(b"x").expect("written");
    assert_eq!(watched.wait_quietly(8, -1), Some(std::vec![2]));
    assert!(watched.set().rotation.is_calm(), "it is another's");
    let _another = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    assert_eq!(watched.wait_quietly(8, -1), Some(std::vec![1, 2]));
    assert!(!watched.set().rotation.is_calm());
    assert_eq!(watched.wait_quietly(8, -1), None);
}

/// Beside another worker too: then a look without time is a general one, which may leave to it what
/// is there.
#[test]
fn a_worker_beside_others_waits_quietly() {
    let _alone = alone();
    let (watched, _listener, mut client, _connection) = with_listener();
    listeners::Share::new().note_sleep(0);
    assert_eq!(watched.wait(1) + watched.wait(1), 0);
    let rotation = &watched.set().rotation;
    assert!(rotation.is_calm() && !rotation.is_calm_alone());
    assert_eq!(watched.wait_quietly(8, 0), None);
    client.write_all(b"x").expect("written");
    assert_eq!(watched.wait_quietly(8, -1), Some(std::vec![2]));
    assert_eq!(watched.calls.get(), 1);
}

/// What a worker says in its sleep was left out, and others took what was its own; or it stayed so
/// while it was busy.
#[test]
fn a_quiet_wait_says_when_it_sleeps() {
    static ANOTHER: listeners::Share = listeners::Share::new();
    fn leaves(listener: c_int) -> bool {
        ANOTHER.leaves(listeners::baton::note_of(listeners::inode(listener)))
    }
    let _alone = alone();
    let (mut watched, listener, mut client, connection) = with_listener();
    listeners::begin_in_silence(listeners::Choice::Least, None);
    ANOTHER.note_sleep(0);
    listeners::held::note_accepted(connection.as_raw_fd(), ANOTHER.holder());
    assert_eq!(watched.wait(1) + watched.wait(1), 0);
    let (listener, rotation) = (listener.as_raw_fd(), &watched.set().rotation);
    assert!(rotation.is_calm() && !rotation.is_calm_alone());
    assert!(!leaves(listener), "it is busy");
    watched.object.set(listener);
    watched.asleep = |watched| assert!(leaves(watched.object.get()), "it sleeps");
    client.write_all(b"x").expect("written");
    assert_eq!(watched.wait_quietly(8, -1), Some(std::vec![2]));
    assert_eq!(watched.calls.get(), 1);
    assert!(!leaves(listener), "it is busy again");
    listeners::held::note_close(connection.as_raw_fd());
}

/// Each wait of a worker that gets a connection for each request was a general one.
#[test]
fn a_wait_after_a_connection_is_quiet() {
    let _alone = alone();
    let (watched, listener, mut client, connection) = with_listener();
    listeners::Share::new().note_sleep(0);
    assert_eq!(watched.wait(1) + watched.wait(1), 0);
    let rotation = &watched.set().rotation;
    for round in 1..40 {
        let new = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        assert_eq!(watched.wait_quietly(8, -1), Some(std::vec![1]));
        assert!(!rotation.is_calm(), "the listener is to be minded");
        drop((listener.accept().expect("a connection"), new));
        assert_eq!(watched.wait_after_connection(0), None, "it only looks");
        client.write_all(b"x").expect("written");
        assert_eq!(watched.wait_after_connection(-1), Some(std::vec![2]));
        assert!(rotation.is_calm());
        (&connection).read_exact(&mut [0]).expect("read");
        assert_eq!(watched.calls.get(), 2 * round);
    }
}

/// A worker whose quiet wait a listener ended took what was another's.
#[test]
fn a_quiet_wait_leaves_a_connection_to_another() {
    static ANOTHER: listeners::Share = listeners::Share::new();
    let _alone = alone();
    let (watched, listener, _client, connection) = with_listener();
    listeners::begin_in_silence(listeners::Choice::Least, None);
    // The first waiter of a process counts as the process, which holds what all of it hold.
    watched.set().rotation.share().counted_as();
    ANOTHER.note_sleep(listeners::baton::note_of(listeners::inode(listener.as_raw_fd())));
    assert_eq!(watched.wait(1) + watched.wait(1), 0);
    let rotation = &watched.set().rotation;
    assert!(rotation.is_calm() && rotation.takes(), "it holds nothing");
    listeners::held::note_accepted(connection.as_raw_fd(), rotation.share().holder());
    let _new = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let begun = std::time::Instant::now();
    assert_eq!(watched.wait_quietly(8, -1), Some(std::vec![1]));
    assert!(begun.elapsed().as_millis() >= 15, "for as long as a step back lasts");
    listeners::held::note_close(connection.as_raw_fd());
}

/// A set that was calm because no other worker was there knows of none that has come since.
#[test]
fn a_worker_that_was_alone_and_holds_some_leaves_it_to_the_general_wait() {
    let _alone = alone();
    let (watched, listener, _client, connection) = with_listener();
    listeners::begin_in_silence(listeners::Choice::Least, None);
    assert_eq!(watched.wait(1) + watched.wait(1), 0);
    let rotation = &watched.set().rotation;
    assert!(rotation.is_calm_alone() && rotation.takes(), "it holds nothing");
    listeners::held::note_accepted(connection.as_raw_fd(), rotation.share().holder());
    assert!(rotation.is_calm_alone() && !rotation.takes());
    let _new = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    assert_eq!(watched.wait_quietly(8, -1), Some(std::vec![1]), "by the general wait");
    listeners::held::note_close(connection.as_raw_fd());
}

/// The kernel says what is wrong with a call.
#[test]
fn errors_are_the_kernels() {
    let _alone = alone();
    let (watched, (_client, connection)) = (Watched::new(), pair());
    watched.add(connection.as_raw_fd(), 2);
    let call = |_| {
        // SAFETY: this thread's errno.
        unsafe { *libc::__errno_location() = libc::EINTR };
        -1
    };
    // SAFETY: nothing is written.
    let found = unsafe { epoll_wait_quietly(watched.epfd, ptr::null_mut(), 8, -1, false, call) };
    assert_eq!(found, Some(-1));
    // SAFETY: this thread's errno.
    assert_eq!(unsafe { *libc::__errno_location() }, libc::EINTR);
}

/// A wait with a limit that is longer than the time to the next look sleeps twice.
#[test]
fn a_limit_lasts_beyond_a_look_at_the_listeners() {
    let _alone = alone();
    let (watched, _listener, ..) = calm();
    let begun = std::time::Instant::now();
    assert_eq!(watched.wait_quietly(8, 1_300), Some(Vec::new()));
    let passed = begun.elapsed().as_millis();
    assert!((1_300..1_800).contains(&passed), "{passed}");
    assert_eq!(watched.calls.get(), 1);
}

/// The exact time was read for each wait of a server whose set has an object in process.
#[test]
fn a_long_limit_is_reckoned_from_the_last_tick() {
    let _alone = alone();
    let (watched, (_client, connection)) = (Watched::new(), pair());
    let object = crate::eventfd(0, 0).expect("a number");
    watched.add(connection.as_raw_fd(), 2);
    watched.add(object, object as u64);
    assert_eq!(watched.wait(0), 0);
    let quiet = |limit| Quiet::of(watched.set(), limit, None).expect("it is quiet");
    let rest = |limit: c_int| {
        let began = Deadline::from_nanos(Deadline::now().as_nanos() - 50_000_000);
        Quiet { began: Some(began), ..quiet(limit) }.rest(1)
    };
    assert!(quiet(LONG - 1).is_exact && rest(LONG - 1) < LONG - 50);
    for limit in [LONG, c_int::MAX] {
        assert!(!quiet(limit).is_exact);
        // The machine may pause in between.
        assert!((limit - 10_000..=limit - 30).contains(&rest(limit)), "{}", limit - rest(limit));
    }
    assert!(!quiet(-1).is_exact && rest(-1) == -1);
    let _ = crate::close(object);
}

/// Waits that are woken in the process learn whether to spin, and a quiet one does not.
#[test]
fn a_set_that_is_woken_here_is_not_quiet_for_a_while() {
    let _alone = alone();
    let (mut watched, (_client, connection)) = (Watched::new(), pair());
    let object = crate::eventfd(0, 0).expect("a number");
    watched.add(connection.as_raw_fd(), 2);
    watched.add(object, object as u64);
    assert_eq!(watched.wait(0), 0);
    watched.asleep = |watched| write_to(watched.object.get());
    watched.object.set(object);
    assert_eq!(watched.wait_quietly(8, -1), Some(std::vec![object as u64]));
    read_from(object);
    assert_eq!(watched.wait(0), 0);
    watched.asleep = |_| {};
    for _ in 0..AFTER_RING {
        assert_eq!(watched.wait_quietly(8, 0), None);
    }
    assert_eq!(watched.wait_quietly(8, 0), Some(Vec::new()));
    let _ = crate::close(object);
}

/// A doorbell that was made during the sleep was reported to the program.
#[test]
fn what_has_come_and_gone_is_not_reported() {
    let _alone = alone();
    let (mut watched, (_client, connection)) = (Watched::new(), pair());
    watched.add(connection.as_raw_fd(), 2);
    watched.asleep = |watched| {
        let object = crate::eventfd(1, 0).expect("a number");
        watched.add(object, 3);
        doorbell::ring_of(watched.set());
        let _ = crate::close(object);
        // Takes what is left of it off the list.
        watched.set().set.harvest(8, |_| true);
    };
    assert_eq!(watched.wait_quietly(8, 100), Some(Vec::new()));
    assert_eq!(watched.calls.get(), 1);
}

/// A full buffer says nothing about what is in process: the next wait is a quiet one, too.
#[test]
fn a_full_buffer_is_no_ring() {
    let _alone = alone();
    let (watched, (mut client, connection)) = (Watched::new(), pair());
    let object = crate::eventfd(0, 0).expect("a number");
    watched.add(connection.as_raw_fd(), 2);
    watched.add(object, 3);
    assert_eq!(watched.wait(0), 0);
    client.write_all(b"x").expect("written");
    for _ in 0..3 {
        assert_eq!(watched.wait_quietly(1, -1), Some(std::vec![2]));
    }
    write_to(object);
    assert_eq!(watched.wait_quietly(1, -1), None);
    let _ = crate::close(object);
}

std::thread_local! {
    static HANDLED: Cell<u32> = const { Cell::new(0) };
}

/// A sleep whose limit is not the wait's may find nothing, and a handler run as it returns: the
/// program's own call would have been interrupted.
#[test]
fn a_handler_at_the_end_of_a_sleep_ends_the_wait() {
    let _alone = alone();
    handled::set_counts(|| HANDLED.get(), || 0);
    let (watched, _listener, ..) = calm();
    let mut events = [NOTHING; 8];
    let call = |within| {
        assert!((1..10_000).contains(&within), "the listeners are looked at before");
        HANDLED.set(HANDLED.get() + 1);
        0
    };
    // SAFETY: nothing is written.
    let found =
        unsafe { epoll_wait_quietly(watched.epfd, events.as_mut_ptr(), 8, 10_000, false, call) };
    assert_eq!(found, Some(-1));
    // SAFETY: this thread's errno.
    assert_eq!(unsafe { *libc::__errno_location() }, libc::EINTR);
}
