use super::super::super::{self as listeners, Choice};
use super::*;
use crate::set::{FdSet, doorbell};
use crate::sys::signal_guard::SignalGuard;
use crate::table::alone::alone;
use crate::table::{self, gate};
use core::time::Duration;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread::{self, JoinHandle};
use std::time::Instant;
use wakeset::{Event, Events};
extern crate std;

/// What its sleepers are woken by in the end.
const OTHER: u64 = 1;
const LISTENER: u64 = 2;

struct Fixture {
    epfd: c_int,
    set: &'static FdSet,
    other: UdpSocket,
    listener: TcpListener,
}

impl Fixture {
    fn new() -> Self {
        listeners::choose(Choice::Automatic, None);
        let epfd = crate::epoll_create1(0).expect("a number");
        let set = table::find::<FdSet>(epfd).expect("a set");
        let other = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        [other.as_raw_fd(), listener.as_raw_fd()].into_iter().for_each(listeners::forget);
        let this = Self { epfd, set, other, listener };
        this.change(EPOLL_CTL_ADD, this.other.as_raw_fd(), OTHER);
        this
    }

    /// One with a sleeper from before its listener.
    fn with_alarm() -> (Self, JoinHandle<u64>) {
        let fixture = Self::new();
        let sleeper = fixture.sleep();
        fixture.add_listener();
        (fixture, sleeper)
    }

    fn change(&self, op: c_int, fd: c_int, data: u64) {
        let event = epoll_event { events: EPOLLIN as u32, u64: data };
        // SAFETY: an event.
        unsafe { crate::epoll_ctl(self.epfd, op, fd, &raw const event) }.expect("a change");
    }

    /// A thread that sleeps in the set; what it is told.
    fn sleep(&self) -> JoinHandle<u64> {
        let (epfd, set) = (self.epfd, self.set);
        let before = set.set.has_remote_waiter();
        let sleeper = thread::spawn(move || {
            let mut event = epoll_event { events: 0, u64: 0 };
            // SAFETY: room for one event.
            let found = unsafe { crate::epoll_wait(epfd, &raw mut event, 1, -1) };
            assert_eq!(found, Ok(1));
            event.u64
        });
        until(|| before || set.set.has_remote_waiter());
        thread::sleep(Duration::from_millis(50));
        sleeper
    }

    /// The set's first listener, of which no thread is told.
    fn add_listener(&self) {
        let (fd, set) = (self.listener.as_raw_fd(), self.set);
        let event = epoll_event { events: EPOLLIN as u32, u64: LISTENER };
        let asked = Event::new(Events::IN, LISTENER);
        let joined = set.rotation.epoll_ctl(set, EPOLL_CTL_ADD, fd, &raw const event, asked);
        assert_eq!(joined, Ok(true));
        let _guard = SignalGuard::enter();
        let _migrating = gate::hold_migrations();
        assert!(set.rotation.set_alarm(set) && set.rotation.alarm.is_set());
    }

    fn timer(&self) -> c_int {
        self.set.rotation.alarm.number()
    }

    fn wake_sleeper(&self, sleeper: JoinHandle<u64>) {
        let own = self.other.local_addr().expect("bound");
        self.other.send_to(b"x", own).expect("sent");
        assert_eq!(sleeper.join().expect("it ends"), OTHER);
    }
}

fn until(holds: impl Fn() -> bool) {
    assert!((0..5_000).any(|_| {
        holds() || {
            thread::sleep(Duration::from_millis(1));
            false
        }
    }));
}

/// It slept on for as long as nothing else woke it: it knew of no listener, and no other thread
/// looked.
#[test]
fn a_sleeper_that_knows_of_no_listener_finds_what_a_dead_worker_has_left() {
    let _alone = alone();
    let fixture = Fixture::new();
    let worker = sys::epoll_create1(libc::EPOLL_CLOEXEC).expect("a number");
    let exclusive = (EPOLLIN | libc::EPOLLEXCLUSIVE) as u32;
    let event = epoll_event { events: exclusive, u64: 0 };
    let fd = fixture.listener.as_raw_fd();
    sys::epoll_ctl(worker, EPOLL_CTL_ADD, fd, &raw const event).expect("a watch");
    let dies = thread::spawn(move || {
        let mut event = epoll_event { events: 0, u64: 0 };
        sys::epoll_pwait(worker, &raw mut event, 1, -1, ptr::null(), 0)
    });
    thread::sleep(Duration::from_millis(50));
    let sleeper = fixture.sleep();
    fixture.add_listener();
    let begun = Instant::now();
    let address = fixture.listener.local_addr().expect("bound");
    let _client = TcpStream::connect(address).expect("connected");
    assert_eq!(dies.join().expect("it ends"), Ok(1), "the first in the queue is woken");
    let is_late = || begun.elapsed() > Duration::from_secs(3);
    while !sleeper.is_finished() && !is_late() {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(!is_late(), "it sleeps without a limit");
    assert_eq!(sleeper.join().expect("it ends"), LISTENER);
    assert!(!fixture.set.rotation.alarm.is_set(), "nobody sleeps that may know of no listener");
    sys::close(worker).expect("closed");
    crate::close(fixture.epfd).expect("closed");
}

/// An alarm whose set had no listener any more, or no number, went off in the next one.
#[test]
fn an_alarm_ends_with_the_listeners_and_with_the_set() {
    let _alone = alone();
    let mut timer = -1;
    for closes in [false, true, false] {
        let (fixture, sleeper) = Fixture::with_alarm();
        assert!(timer < 0 || timer == fixture.timer(), "the slot has one");
        timer = fixture.timer();
        if closes {
            fixture.wake_sleeper(sleeper);
        } else {
            fixture.change(EPOLL_CTL_DEL, fixture.listener.as_raw_fd(), LISTENER);
            assert!(!fixture.set.rotation.alarm.is_set());
            fixture.wake_sleeper(sleeper);
        }
        crate::close(fixture.epfd).expect("closed");
        assert!(!fixture.set.rotation.alarm.is_set());
    }
    let mut left = PERIODS;
    sys::timerfd_gettime(timer, &raw mut left).expect("it is open");
    assert_eq!((left.it_value.tv_sec, left.it_value.tv_nsec), (0, 0), "it runs");
}

/// The program put a file of its own under the number, and the next look read from that.
#[test]
fn an_alarm_gives_its_number_to_the_program() {
    let _alone = alone();
    let (fixture, sleeper) = Fixture::with_alarm();
    let number = fixture.timer();
    let own = sys::eventfd(1, libc::EFD_CLOEXEC).expect("a number");
    doorbell::make_way(own, number).expect("there are others");
    assert!(fixture.timer() >= 0 && fixture.timer() != number);
    assert!(fixture.set.rotation.alarm.is_set());
    until(|| sys::poll_now(fixture.timer(), libc::POLLIN) == 0 && !sleeper.is_finished());
    until(|| !fixture.set.rotation.alarm.is_set());
    let mut count = 0_u64;
    assert_eq!(sys::read(number, (&raw mut count).cast(), 8), Ok(8));
    assert_eq!(count, 1, "the program's own");
    fixture.wake_sleeper(sleeper);
    [own, number].into_iter().for_each(|fd| sys::close(fd).expect("closed"));
    crate::close(fixture.epfd).expect("closed");
}

/// The thread that removed the last listener ended the alarm that another relied on, which had
/// added the next one meanwhile and found it set.
#[test]
fn an_alarm_stays_for_a_listener_that_another_thread_has_added() {
    let _alone = alone();
    let (fixture, sleeper) = Fixture::with_alarm();
    let rotation = &fixture.set.rotation;
    // As the thread that has just removed the last one sees it.
    rotation.any.store(false, Ordering::Relaxed);
    rotation.leave_baton_alone(fixture.set);
    assert!(rotation.alarm.is_set(), "there is a listener");
    fixture.wake_sleeper(sleeper);
    crate::close(fixture.epfd).expect("closed");
}

/// A thread that took the alarm ended it by a count from before it had the lock.
#[test]
fn who_sleeps_is_asked_when_no_listener_can_come() {
    let _alone = alone();
    let (fixture, sleeper) = Fixture::with_alarm();
    let rotation = &fixture.set.rotation;
    let is_whole = || (0..64).any(|fd| rotation.outline.leaves_out(1000 + fd, None).is_some());
    assert!(is_whole());
    rotation.take_alarm(fixture.set, || {
        assert!(!is_whole(), "it is asked with the lock held");
        true
    });
    assert!(rotation.alarm.is_set());
    fixture.wake_sleeper(sleeper);
    crate::close(fixture.epfd).expect("closed");
}

/// The alarm woke two threads, and both looked: an edge was told again at once.
#[test]
fn an_alarm_that_wakes_two_is_one_look() {
    let _alone = alone();
    let (fixture, sleeper) = Fixture::with_alarm();
    let rotation = &fixture.set.rotation;
    rotation.rescue_clock.forget();
    rotation.take_alarm(fixture.set, || true);
    let next = rotation.rescue_clock.next();
    assert!(next > wakeset::Deadline::now(), "the first looks");
    rotation.take_alarm(fixture.set, || true);
    assert_eq!(rotation.rescue_clock.next(), next, "the second has nothing to look for");
    fixture.wake_sleeper(sleeper);
    crate::close(fixture.epfd).expect("closed");
}

/// Runs `f` in a thread in which no timer can be made.
fn without_timers(errno: c_int, f: impl FnOnce() + Send) {
    let (load, equal, end) = (0x20, 0x15, 0x06);
    let say = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let refused = libc::SECCOMP_RET_ERRNO | errno as u32;
    let mut filter = [
        say(load, 0, 0),
        say(equal, 1, libc::SYS_timerfd_create as u32),
        say(end, 0, libc::SECCOMP_RET_ALLOW),
        say(end, 0, refused),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let address = &raw const program as usize;
    let filtered = move || {
        // SAFETY: for this thread alone; the program outlives the calls.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, address), 0);
        }
        f();
    };
    thread::scope(|scope| scope.spawn(filtered).join()).expect("it ends");
}

/// Where a filter refuses the timer there is no alarm, and each connection wakes a sleeper.
#[test]
fn a_refused_alarm_leaves_plain_watches() {
    let _alone = alone();
    for error in [libc::EPERM, libc::ENOSYS] {
        let fixture = Fixture::new();
        {
            let _guard = SignalGuard::enter();
            let _migrating = gate::hold_migrations();
            let _ = fixture.set.rotation.give_up_timer();
        }
        let sleeper = fixture.sleep();
        let listener = fixture.listener.as_raw_fd();
        without_timers(error, || fixture.change(EPOLL_CTL_ADD, listener, LISTENER));
        assert!(!fixture.set.rotation.any() && fixture.timer() < 0, "it is plain");
        let address = fixture.listener.local_addr().expect("bound");
        let _client = TcpStream::connect(address).expect("connected");
        until(|| sleeper.is_finished());
        assert_eq!(sleeper.join().expect("it ends"), LISTENER);
        crate::close(fixture.epfd).expect("closed");
    }
}

/// A wait that had seen its set open moved a watch to the end of the queue in the set that had the
/// number by then, with the data of the one that was closed.
#[test]
fn a_close_waits_until_no_watch_is_moved() {
    let _alone = alone();
    let fixture = Fixture::new();
    fixture.change(EPOLL_CTL_ADD, fixture.listener.as_raw_fd(), LISTENER);
    let Fixture { epfd, set, .. } = fixture;
    let closer = set.rotation.with_known(|_| {
        let closer = thread::spawn(move || crate::close(epfd).expect("closed"));
        until(|| set.state.is_closed());
        thread::sleep(Duration::from_millis(100));
        // SAFETY: asks for the flags.
        assert!(unsafe { libc::fcntl(epfd, libc::F_GETFD) } >= 0, "the number is anybody's");
        closer
    });
    closer.join().expect("it ends");
}
