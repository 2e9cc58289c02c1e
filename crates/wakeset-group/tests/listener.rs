//! Listener groups between processes, and the facts about the kernel that they rely on.

use std::ffi::c_int;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::time::{Duration, Instant};
use wakeset_group::listener::{Errno, Group, Numbers, Obstacle, Order, RESCUE, Sleeper, Wanted};

const WORKERS: usize = 4;

/// A listener of either kind, non-blocking, and a way to connect to it.
enum Door {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, UnixAddress),
}

impl Door {
    fn tcp() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        Door::Tcp(listener, address)
    }

    fn unix(name: &str) -> Self {
        let name = format!("wakeset-group-{name}-{}", std::process::id());
        let address = UnixAddress::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        listener.set_nonblocking(true).unwrap();
        Door::Unix(listener, address)
    }

    fn fd(&self) -> RawFd {
        match self {
            Door::Tcp(listener, _) => listener.as_raw_fd(),
            Door::Unix(listener, _) => listener.as_raw_fd(),
        }
    }

    /// Connects and reads one byte, the worker's number.
    fn ask(&self) -> Option<usize> {
        let mut byte = [0];
        let read = match self {
            Door::Tcp(_, address) => TcpStream::connect(address).unwrap().read(&mut byte),
            Door::Unix(_, address) => UnixStream::connect_addr(address).unwrap().read(&mut byte),
        };
        (read.unwrap() == 1).then(|| usize::from(byte[0]))
    }
}

fn accept(listener: RawFd) -> Option<OwnedFd> {
    // SAFETY: no address is asked for; the descriptor is new.
    unsafe {
        let fd =
            libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}

/// Child processes, killed when dropped.
struct Children(Vec<libc::pid_t>);

impl Drop for Children {
    fn drop(&mut self) {
        for pid in &self.0 {
            // SAFETY: our own children.
            unsafe {
                libc::kill(*pid, libc::SIGKILL);
                libc::waitpid(*pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// Runs `body` in a child, with the child's number. It makes system calls only: other threads of
/// the parent may have held any lock.
fn fork_children(count: usize, mut body: impl FnMut(usize)) -> Children {
    let children = (0..count).map(|number| {
        // SAFETY: see above.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            body(number);
            // SAFETY: nothing of the parent's is flushed.
            unsafe { libc::_exit(0) };
        }
        assert!(pid > 0);
        pid
    });
    Children(children.collect())
}

/// Answers connections with the worker's number.
fn serve(group: Group, listener: RawFd, number: usize) {
    let mut waiter = group.waiter();
    loop {
        if waiter.wait(None) == Ok(true)
            && let Some(connection) = accept(listener)
        {
            let byte = [number as u8];
            // SAFETY: one byte.
            unsafe { libc::write(connection.as_raw_fd(), byte.as_ptr().cast(), 1) };
        }
    }
}

/// How many of `questions` each worker answered.
fn spread(door: &Door, order: Order, questions: usize) -> [usize; WORKERS] {
    let group = Group::new(door.fd(), order).unwrap();
    let _children = fork_children(WORKERS, |number| serve(group, door.fd(), number));
    // All workers are asleep, or soon will be.
    std::thread::sleep(Duration::from_millis(200));
    let mut answered = [0; WORKERS];
    for _ in 0..questions {
        answered[door.ask().expect("an answer")] += 1;
        // The worker that answered goes back to sleep.
        std::thread::sleep(Duration::from_millis(2));
    }
    answered
}

#[test]
fn fifo_is_even_between_processes() {
    for door in [Door::tcp(), Door::unix("fifo")] {
        let answered = spread(&door, Order::Fifo, 200);
        let (least, most) = (answered.iter().min().unwrap(), answered.iter().max().unwrap());
        assert!(*most as f64 <= 1.25 * *least as f64, "{answered:?}");
    }
}

#[test]
fn lifo_is_as_uneven_as_can_be() {
    for door in [Door::tcp(), Door::unix("lifo")] {
        let answered = spread(&door, Order::Lifo, 100);
        // One worker does nearly all; another one only when the first is not back yet.
        assert!(*answered.iter().max().unwrap() >= 75, "{answered:?}");
    }
}

#[test]
fn a_turn_is_the_same_workers_and_turns_are_even() {
    for door in [Door::tcp(), Door::unix("turns")] {
        // Within one turn the work is as in lifo, over all turns as in fifo.
        let answered = spread(&door, Order::Turns, Order::TURN as usize);
        assert!(*answered.iter().max().unwrap() * 4 >= Order::TURN as usize * 3, "{answered:?}");
        let answered = spread(&door, Order::Turns, answered.len() * Order::TURN as usize);
        let (least, most) = (answered.iter().min().unwrap(), answered.iter().max().unwrap());
        assert!(*most as f64 <= 1.25 * *least as f64, "{answered:?}");
    }
}

#[test]
fn a_killed_worker_strands_nothing() {
    let door = Door::tcp();
    let group = Group::new(door.fd(), Order::Fifo).unwrap();
    let mut pipe = [0; 2];
    // SAFETY: room for both ends.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let children = fork_children(2, |number| {
        let mut waiter = group.waiter();
        while waiter.wait(None) != Ok(true) {}
        let byte = [number as u8];
        // SAFETY: one byte.
        unsafe { libc::write(pipe[1], byte.as_ptr().cast(), 1) };
        if number == 0 {
            // This worker takes the wake and hangs, until it is killed.
            loop {
                // SAFETY: no memory is involved.
                unsafe { libc::pause() };
            }
        }
        serve(group, door.fd(), number);
    });
    std::thread::sleep(Duration::from_millis(200));
    let mut hung = false;
    for _ in 0..3 {
        let began = Instant::now();
        let Door::Tcp(_, address) = &door else { unreachable!() };
        let mut client = TcpStream::connect(address).unwrap();
        let mut byte = [9];
        // The first worker of the queue is woken; if it is the one that hangs, the other one comes
        // within a second.
        let answer = client.read(&mut byte).unwrap();
        let waited = began.elapsed();
        hung |= waited > Duration::from_millis(100);
        if answer == 1 {
            assert_eq!(byte, [1]);
        }
        assert!(waited < RESCUE + Duration::from_secs(1), "{waited:?}");
        client.flush().unwrap();
    }
    // Either worker may have been first in the queue, but the second connection wakes the other.
    let _ = hung;
    drop(children);
    for end in pipe {
        // SAFETY: our own.
        unsafe { libc::close(end) };
    }
}

#[test]
fn a_waiter_keeps_its_time_and_knows_its_listener() {
    let door = Door::tcp();
    let group = Group::new(door.fd(), Order::Fifo).unwrap();
    let mut waiter = group.waiter();
    let began = Instant::now();
    assert_eq!(waiter.wait(Some(Duration::from_millis(30))), Ok(false));
    assert!(began.elapsed() >= Duration::from_millis(30));
    assert_eq!(waiter.wait(Some(Duration::ZERO)), Ok(false));
    let Door::Tcp(_, address) = &door else { unreachable!() };
    let _client = TcpStream::connect(address).unwrap();
    assert_eq!(waiter.wait(None), Ok(true));
    assert_eq!(waiter.wait(Some(Duration::ZERO)), Ok(true), "until it is taken");
    assert!(accept(door.fd()).is_some());
    assert_eq!(waiter.wait(Some(Duration::from_millis(5))), Ok(false));
    let (one, _other) = UnixStream::pair().unwrap();
    assert_eq!(Group::new(one.as_raw_fd(), Order::Fifo), Err(Errno::EINVAL));
    assert_eq!(Group::new(-1, Order::Fifo), Err(Errno::EBADF));
}

#[test]
fn others_end_a_wait_as_well() {
    let door = Door::tcp();
    let mut waiter = Group::new(door.fd(), Order::Fifo).unwrap().waiter();
    let (mut near, far) = UnixStream::pair().unwrap();
    let limit = Some(Duration::from_secs(10));
    let entry = |fd, events| libc::pollfd { fd, events, revents: 0x40 };
    for _ in 0..3 {
        let mut others = [entry(far.as_raw_fd(), libc::POLLIN), entry(-1, libc::POLLIN)];
        assert_eq!(waiter.wait_beside(&mut others, Some(Duration::from_millis(5))), Ok(false));
        assert_eq!(others.map(|other| other.revents), [0, 0]);
        near.write_all(b"x").unwrap();
        assert_eq!(waiter.wait_beside(&mut others, limit), Ok(false));
        assert_eq!(others.map(|other| other.revents), [libc::POLLIN, 0]);
        let Door::Tcp(_, address) = &door else { unreachable!() };
        let client = TcpStream::connect(address).unwrap();
        // Also for writing: the same number, with more events asked for.
        let mut both = [entry(far.as_raw_fd(), libc::POLLIN | libc::POLLOUT)];
        assert_eq!(waiter.wait_beside(&mut both, limit), Ok(true));
        assert!(accept(door.fd()).is_some());
        assert_eq!(waiter.wait_beside(&mut both, limit), Ok(false));
        assert_eq!(both.map(|other| other.revents), [libc::POLLIN | libc::POLLOUT]);
        (&far).read_exact(&mut [0]).unwrap();
        drop(client);
    }
    assert_eq!(waiter.wait(Some(Duration::from_millis(5))), Ok(false), "left out of this one");
    let refused = |waiter: &mut wakeset_group::listener::Waiter, fd| {
        waiter.wait_beside(&mut [entry(fd, libc::POLLIN)], limit)
    };
    assert_eq!(refused(&mut waiter, door.fd()), Err(Errno::EINVAL), "the listener itself");
    assert_eq!(refused(&mut waiter, 999_999), Err(Errno::EBADF));
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert_eq!(refused(&mut waiter, file.as_raw_fd()), Err(Errno::EPERM));
    assert_eq!(
        waiter.wait(Some(Duration::from_millis(5))),
        Ok(false),
        "and nothing is the worse for it"
    );
}

/// The kernel wakes no other waiter for a connection whose waiter does nothing. The timer that
/// every waiter has makes another one poll the listener.
#[test]
fn a_connection_that_nobody_takes_is_found_in_time() {
    let door = Door::tcp();
    let wanted = [Wanted { fd: door.fd(), events: libc::EPOLLIN as u32, listener: true }];
    let group = Group::new(door.fd(), Order::Fifo).unwrap();
    for order in [Order::Fifo, Order::Lifo] {
        let mut first = Sleeper::new();
        // SAFETY: no memory is involved.
        let set = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
        first.adopt(set.as_raw_fd());
        first.prepare(&wanted, order, Numbers::Unknown).unwrap();
        let mut waiter = group.waiter();
        std::thread::scope(|threads| {
            // This waiter is woken, and does nothing about it.
            let set = set.as_raw_fd();
            threads.spawn(move || {
                let mut event = [libc::epoll_event { events: 0, u64: 0 }];
                // SAFETY: room for one.
                unsafe { libc::epoll_wait(set, event.as_mut_ptr(), 1, 10_000) }
            });
            std::thread::sleep(Duration::from_millis(100));
            let other =
                threads.spawn(|| (waiter.wait(Some(Duration::from_secs(10))), Instant::now()));
            std::thread::sleep(Duration::from_millis(100));
            let Door::Tcp(_, address) = &door else { unreachable!() };
            let began = Instant::now();
            let _client = TcpStream::connect(address).unwrap();
            let (told, at) = other.join().unwrap();
            assert_eq!(told, Ok(true));
            assert!(at - began < RESCUE + Duration::from_millis(900), "{:?}", at - began);
            assert!(accept(door.fd()).is_some());
        });
    }
}

#[test]
fn a_forked_child_waits_on_its_own() {
    let door = Door::unix("fork");
    let group = Group::new(door.fd(), Order::Fifo).unwrap();
    let mut waiter = group.waiter();
    assert_eq!(waiter.wait(Some(Duration::ZERO)), Ok(false));
    let child = fork_children(1, |_| {
        while waiter.wait(None) != Ok(true) {}
        let connection = accept(door.fd());
        let byte = [7_u8];
        // SAFETY: one byte.
        unsafe {
            libc::write(
                connection.as_ref().map_or(-1, |fd| fd.as_raw_fd()),
                byte.as_ptr().cast(),
                1,
            )
        };
    });
    assert_eq!(door.ask(), Some(7));
    drop(child);
    assert_eq!(
        waiter.wait(Some(Duration::ZERO)),
        Ok(false),
        "the parent's set is the parent's still"
    );
}

// Facts about the kernel.

fn epoll_ctl(set: RawFd, op: i32, fd: RawFd, events: i32) -> i32 {
    let mut event = libc::epoll_event { events: events as u32, u64: 0 };
    // SAFETY: a valid event.
    match unsafe { libc::epoll_ctl(set, op, fd, &raw mut event) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap(),
    }
}

/// How `Sleeper::prepare` finds out whether a number still stands for the file that is watched.
#[test]
fn a_modification_tells_whether_an_exclusive_watch_is_still_of_this_file() {
    let (door, other) = (Door::tcp(), Door::tcp());
    // SAFETY: no memory is involved.
    let set = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(0)) };
    let set = set.as_raw_fd();
    // SAFETY: as above.
    let number = unsafe { OwnedFd::from_raw_fd(libc::dup(door.fd())) };
    let number = number.as_raw_fd();
    assert_eq!(
        epoll_ctl(set, libc::EPOLL_CTL_ADD, number, libc::EPOLLIN | libc::EPOLLEXCLUSIVE),
        0
    );
    assert_eq!(epoll_ctl(set, libc::EPOLL_CTL_MOD, number, libc::EPOLLIN), libc::EINVAL);
    // SAFETY: no memory is involved.
    unsafe { libc::dup2(other.fd(), number) };
    assert_eq!(epoll_ctl(set, libc::EPOLL_CTL_MOD, number, libc::EPOLLIN), libc::ENOENT);
}

/// A set in which no thread sleeps is passed over, and still has its event.
#[test]
fn the_busy_are_passed_over() {
    let door = Door::tcp();
    let wanted = [Wanted { fd: door.fd(), events: libc::EPOLLIN as u32, listener: true }];
    let mut busy = Sleeper::new();
    // SAFETY: no memory is involved.
    let set = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
    busy.adopt(set.as_raw_fd());
    busy.prepare(&wanted, Order::Fifo, Numbers::Unknown).unwrap();
    let group = Group::new(door.fd(), Order::Fifo).unwrap();
    let idle = std::thread::spawn(move || group.waiter().wait(Some(Duration::from_millis(900))));
    std::thread::sleep(Duration::from_millis(100));
    let Door::Tcp(_, address) = &door else { unreachable!() };
    let _client = TcpStream::connect(address).unwrap();
    assert_eq!(idle.join().unwrap(), Ok(true));
    let mut event = [libc::epoll_event { events: 0, u64: 0 }];
    // SAFETY: room for one.
    assert_eq!(unsafe { libc::epoll_wait(set.as_raw_fd(), event.as_mut_ptr(), 1, 0) }, 1);
    assert!(busy.sort(&event).listener);
}

/// What its thread had found by itself, because another was woken for it, the set did not know of:
/// it slept beside the next connection that was left there.
#[test]
fn a_sleeper_finds_what_it_was_not_woken_for() {
    let door = Door::tcp();
    let Door::Tcp(_, address) = &door else { unreachable!() };
    // SAFETY: no memory is involved.
    let set = || unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
    let (first, set) = (set(), set());
    let listener = [Wanted { fd: door.fd(), events: libc::EPOLLIN as u32, listener: true }];
    let mut event = [libc::epoll_event { events: 0, u64: 0 }];
    let mut wait = |set: &OwnedFd, limit: c_int| {
        // SAFETY: room for one.
        unsafe { libc::epoll_wait(set.as_raw_fd(), event.as_mut_ptr(), 1, limit) }
    };
    let [mut woken, mut sleeper] =
        [(&first, Sleeper::new()), (&set, Sleeper::new())].map(|(set, mut sleeper)| {
            sleeper.adopt(set.as_raw_fd());
            assert_eq!(sleeper.prepare(&listener, Order::Lifo, Numbers::Unknown), Ok(()));
            sleeper
        });
    let client = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            TcpStream::connect(address).unwrap()
        });
        assert_eq!(wait(&first, 5000), 1);
        client.join().unwrap()
    });
    woken.note_report(door.fd());
    sleeper.note_report(door.fd());
    assert_eq!(sleeper.prepare(&listener, Order::Lifo, Numbers::Unknown), Ok(()));
    assert_eq!(wait(&set, 0), 0, "the first was woken alone");
    sleeper.note_unknown(door.fd());
    for _ in 0..2 {
        assert_eq!(sleeper.prepare(&listener, Order::Lifo, Numbers::Unknown), Ok(()));
        assert_eq!(wait(&set, 0), 1, "it is there until it is accepted");
    }
    drop(client);
}

#[test]
fn a_sleeper_notices_what_has_become_of_a_number() {
    let (door, other) = (Door::tcp(), Door::unix("number"));
    // SAFETY: no memory is involved.
    let (set, number) = unsafe {
        (
            OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)),
            OwnedFd::from_raw_fd(libc::dup(door.fd())),
        )
    };
    let fd = number.as_raw_fd();
    let mut sleeper = Sleeper::new();
    sleeper.adopt(set.as_raw_fd());
    let listener = [Wanted { fd, events: libc::EPOLLIN as u32, listener: true }];
    assert_eq!(sleeper.prepare(&listener, Order::Fifo, Numbers::Unknown), Ok(()));
    assert_eq!(sleeper.prepare(&listener, Order::Fifo, Numbers::Unknown), Ok(()));
    sleeper.note_report(fd);
    assert_eq!(sleeper.prepare(&listener, Order::Fifo, Numbers::Unknown), Ok(()));
    // SAFETY: no memory is involved.
    unsafe { libc::dup2(other.fd(), fd) };
    assert_eq!(sleeper.prepare(&listener, Order::Fifo, Numbers::Unknown), Err(Obstacle::Stale));
    // SAFETY: no memory is involved.
    let fresh = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
    sleeper.adopt(fresh.as_raw_fd());
    assert_eq!(sleeper.prepare(&listener, Order::Fifo, Numbers::Unknown), Ok(()));
    let (one, _two) = UnixStream::pair().unwrap();
    let stream = [Wanted { fd: one.as_raw_fd(), events: libc::EPOLLIN as u32, listener: true }];
    assert_eq!(
        sleeper.prepare(&stream, Order::Fifo, Numbers::Unknown),
        Err(Obstacle::Refused(Errno::EINVAL)),
        "it does not listen"
    );
}
