//! Closes of hidden numbers beside the program's calls, on the real kernel. The steps between them
//! are in the models (`hidden_claims`).

use super::*;
use crate::sys::verdict::Verdict::Done;
use crate::table::Entry;
use crate::table::alone::alone;
use crate::{fork, migrate};
use libc::{EFD_CLOEXEC, EFD_NONBLOCK};
extern crate std;
use core::ptr;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::thread;
use std::time::{Duration, Instant};

fn eventfd() -> c_int {
    sys::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK).unwrap()
}

fn hidden_eventfd() -> c_int {
    let _guard = SignalGuard::enter();
    let _migrating = migrate::hold_migrations();
    hide(eventfd())
}

fn is_open(fd: c_int) -> bool {
    sys::fcntl(fd, libc::F_GETFD, 0).is_ok()
}

fn is_hidden(fd: c_int) -> bool {
    matches!(table::peek(fd), Entry::Doorbell)
}

/// Runs `call` beside a thread that has claimed a number, and closes that in the end.
fn beside_a_close<T: Send>(fd: c_int, call: impl FnOnce() -> T + Send) -> T {
    let guard = SignalGuard::enter();
    let claim = claim(fd).expect("it is hidden");
    thread::scope(|scope| {
        let calling = scope.spawn(call);
        thread::sleep(Duration::from_millis(50));
        assert!(!calling.is_finished(), "a call by the number does not wait for its close");
        claim.close();
        drop(guard);
        calling.join().unwrap()
    })
}

/// The program's file was closed by the thread that had found the number hidden.
#[test]
fn a_dup2_waits_for_a_close() {
    let _alone = alone();
    let (file, number) = (eventfd(), hidden_eventfd());
    beside_a_close(number, || {
        let verdict = crate::duplicate::dup2(file, number);
        assert!(matches!(verdict, crate::Verdict::Kernel));
        assert_eq!(sys::raw!(dup2, file, number), Ok(number as usize));
    });
    assert!(is_open(number) && !is_hidden(number));
    [file, number].into_iter().for_each(|fd| crate::close(fd).unwrap());
}

/// So was one that got the number after such a close of the program's.
#[test]
fn a_close_by_the_program_waits_for_ours() {
    let _alone = alone();
    let number = hidden_eventfd();
    assert_eq!(beside_a_close(number, || crate::close(number)), Err(sys::Errno::EBADF));
    let number = hidden_eventfd();
    let bits = number as core::ffi::c_uint;
    let verdict = beside_a_close(number, || crate::descriptor::close_range(bits, bits, 0));
    assert!(matches!(verdict, crate::Verdict::Kernel));
    assert!(!is_open(number) && !is_hidden(number));
}

/// What gives a number to the program has a duplicate, which is nobody's if the owner has closed
/// what it had.
#[test]
fn a_duplicate_of_what_is_closed_meanwhile_is_closed() {
    let _alone = alone();
    let number = AtomicI32::new(hidden_eventfd());
    let fd = number.load(Ordering::SeqCst);
    let _guard = SignalGuard::enter();
    let migrating = migrate::hold_migrations();
    let copy = duplicate_by(fd, duplicate).inspect(|copy| table::put_doorbell(*copy));
    assert!(close_in(&number, -1));
    give(fd, copy, || panic!("nothing is hidden there"));
    drop(migrating);
    let copy = copy.unwrap();
    assert!(![fd, copy].into_iter().any(|fd| is_open(fd) || is_hidden(fd)));
}

/// Runs `call` with a number that one of ours has, which is not hidden yet.
fn beside_a_birth<T: Send>(call: impl FnOnce(c_int) -> T + Send) -> (c_int, T) {
    let birth = Birth::begin();
    let low = eventfd();
    let number = duplicate(low).expect("a number");
    let result = thread::scope(|scope| {
        let calling = scope.spawn(|| call(number));
        thread::sleep(Duration::from_millis(50));
        assert!(!calling.is_finished(), "a call by the number does not wait until it is hidden");
        table::put_doorbell(number);
        table::spare_doorbell(number);
        sys::close(low).unwrap();
        drop(birth);
        calling.join().unwrap()
    });
    (number, result)
}

/// The program's file replaced ours, and was used and closed in its place.
#[test]
fn a_dup2_waits_for_a_birth() {
    let _alone = alone();
    let file = eventfd();
    let call = |number| sys::raw!(dup2, file, number).unwrap() as c_int;
    let onto = |number| crate::duplicate::onto(file, number, 0, || call(number));
    let (number, result) = beside_a_birth(onto);
    assert_eq!(result, number);
    assert!(is_open(number) && !is_hidden(number));
    [file, number].into_iter().for_each(|fd| crate::close(fd).unwrap());
}

/// Ours was closed, and what was made next had the number.
#[test]
fn a_close_waits_for_a_birth() {
    let _alone = alone();
    let (number, result) = beside_a_birth(crate::close);
    assert_eq!(result, Err(sys::Errno::EBADF));
    assert!(is_open(number) && is_hidden(number) && close(number));
}

/// What is hidden is no file that the program could have put elsewhere, and a call that fails takes
/// no number.
#[test]
fn a_dup2_that_fails_takes_no_hidden_number() {
    let _alone = alone();
    let (file, number) = (eventfd(), hidden_eventfd());
    let onto = |old, new, flags| crate::duplicate::onto(old, new, flags, || -2);
    assert_eq!(onto(number, file, 0), -1);
    assert_eq!(onto(number, file, libc::O_NONBLOCK), -2, "EINVAL, before it is looked up");
    assert_eq!(crate::duplicate::dup3(number, number, 0), Done(Err(sys::Errno::EINVAL)));
    for (old, flags) in [(-1, 0), (file, libc::O_NONBLOCK), (number, 0)] {
        assert!(onto(old, number, flags) < 0 && is_open(number) && is_hidden(number));
    }
    sys::close(file).unwrap();
    assert!(close(number));
}

/// No thread comes back that is counted.
#[test]
fn what_does_not_come_back_is_not_waited_for_for_ever() {
    let _alone = alone();
    let began = Instant::now();
    let taking = births::Taking::begin();
    drop(Birth::begin());
    drop(taking);
    let birth = Birth::begin();
    drop(births::Taking::begin());
    drop(birth);
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// A connected pair of TCP sockets, the first of which lingers when it is closed: it has sent more
/// than the other has room for.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    let linger = libc::linger { l_onoff: 1, l_linger: 60 };
    let (option, len) = (ptr::from_ref(&linger).cast(), size_of_val(&linger) as u32);
    // SAFETY: an option of that length.
    let set = unsafe {
        libc::setsockopt(sender.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, option, len)
    };
    assert_eq!(set, 0);
    sender.set_nonblocking(true).unwrap();
    while sender.write(&[0; 1 << 16]).is_ok() {}
    (sender, receiver)
}

/// Each birth waited 10 ms for the same dup2(2), with the migrations lock held.
#[test]
fn a_slow_dup2_is_waited_for_once() {
    let _alone = alone();
    let (file, (sender, receiver)) = (eventfd(), lingering());
    let number = sender.into_raw_fd();
    let onto = || {
        let call = || sys::raw!(dup2, file, number).unwrap() as c_int;
        crate::duplicate::onto(file, number, 0, call)
    };
    thread::scope(|scope| {
        let slow = scope.spawn(onto);
        // Until the kernel closes what was there.
        while sys::socket_option(number, libc::SO_TYPE).is_ok() {
            thread::yield_now();
        }
        let began = Instant::now();
        for _ in 0..500 {
            drop(Birth::begin());
        }
        let took = began.elapsed();
        assert!(!slow.is_finished(), "it was not slow");
        drop(receiver);
        assert_eq!(slow.join().unwrap(), number);
        assert!(took < Duration::from_secs(2), "births take {took:?}");
    });
    [file, number].into_iter().for_each(|fd| crate::close(fd).unwrap());
}

/// A birth waits for a dup2(2) that takes long, and each one within it did so anew.
#[test]
fn what_is_made_is_one_birth() {
    let _alone = alone();
    let before = births::BEGUN.get();
    assert!(close(make(|| Some(eventfd())).expect("a number")));
    assert_eq!(births::BEGUN.get() - before, 1);
}

/// A child would have a copy of it that its table does not know of.
#[test]
fn nothing_hidden_is_closed_within_a_fork() {
    let _alone = alone();
    let number = hidden_eventfd();
    let forking = fork::prepare();
    assert!(close(number));
    assert!(is_open(number) && is_hidden(number));
    assert_eq!(crate::close(number), Err(sys::Errno::EBADF));
    forking.in_parent();
    assert!(!is_open(number) && !is_hidden(number));
}

/// The fork was over before the closing thread had said that it left something to it, and then that
/// thread closed the program's file.
#[test]
fn a_close_left_to_a_fork_that_is_over_is_not_met_by_a_dup2() {
    let _alone = alone();
    let (file, number) = (eventfd(), hidden_eventfd());
    let _guard = SignalGuard::enter();
    // As that thread leaves it, which stops before it looks whether the fork is over.
    claim(number).expect("it is hidden").end_as(LEFT);
    assert!(matches!(crate::duplicate::dup2(file, number), crate::Verdict::Kernel));
    assert_eq!(sys::raw!(dup2, file, number), Ok(number as usize));
    // It goes on.
    CLAIMS.close_left(table::word_of(number).unwrap(), || _ = sys::close(number));
    assert!(is_open(number) && !is_hidden(number));
    [file, number].into_iter().for_each(|fd| crate::close(fd).unwrap());
}
