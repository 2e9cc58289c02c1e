use super::super::baton;
use super::super::{Choice, Order, choose};
use super::*;
use crate::table::alone::alone;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
extern crate std;

fn find_own(listeners: &[u64]) -> Option<Found> {
    let user = own_user().unwrap();
    Numbers::of(sys::getpid() as usize)?.find(user, listeners)
}

fn close(found: &Found) {
    let _ = sys::close(found.hints);
    let _ = sys::close(found.baton);
}

/// A program that another starts, and that has a listener of its own, is of no family.
#[test]
fn a_family_is_known_by_its_listener() {
    let _alone = alone();
    choose(Choice::Ordered(Order::Fifo), None);
    let bound = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (shared, own) = (bound(), bound());
    baton::share(shared.as_raw_fd());
    let [shared, own] = [shared, own].map(|it| inode(it.as_raw_fd()).unwrap());
    let found = find_own(&[own, shared]).expect("what is shared");
    assert_eq!(inode(found.baton), inode(baton::number()));
    close(&found);
    assert!(find_own(&[own]).is_none());
    let user = own_user().unwrap();
    let numbers = Numbers::of(sys::getpid() as usize).unwrap();
    assert!(numbers.find(user + 1, &[shared]).is_none(), "another user's");
    choose(Choice::Kernels, None);
}

/// A stat(2) of a file on a server that hangs does not return, so no other file is asked.
#[test]
fn only_what_is_named_as_ours_is_asked() {
    let _alone = alone();
    let numbers = Numbers::of(sys::getpid() as usize).unwrap();
    let named = |name: &core::ffi::CStr| refusable!(memfd_create, name.as_ptr(), libc::MFD_CLOEXEC);
    let (ours, other) = (named(c"wakeset-listeners").unwrap(), named(c"another").unwrap());
    let baton = make_baton().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(numbers.may_be_kept(ours) && numbers.may_be_kept(baton as usize));
    assert!(!numbers.may_be_kept(other) && !numbers.may_be_kept(listener.as_raw_fd() as usize));
    assert!(!numbers.may_be_kept(usize::MAX), "nothing");
    for made in [ours as c_int, other as c_int, baton] {
        let _ = sys::close(made);
    }
}

/// Any file of that size could be made shorter, which kills what has it mapped.
#[test]
fn a_file_that_may_shrink_is_not_taken() {
    let _alone = alone();
    let made = refusable!(memfd_create, c"test".as_ptr(), libc::MFD_CLOEXEC).unwrap() as c_int;
    assert!(refusable!(ftruncate, made, BYTES).is_ok() && refusable!(fchmod, made, MODE).is_ok());
    let user = own_user().unwrap();
    assert!(is_hints(&status_of(made).unwrap(), user));
    assert!(!is_sealed(made));
    let _ = sys::close(made);
}

/// The parent of this process is the one that the kernel names.
#[test]
fn a_parent_is_found() {
    let parent = parent_of(sys::getpid() as usize);
    assert_eq!(parent, refusable!(getppid).ok());
    assert_eq!(parent_of(usize::MAX), None);
}
