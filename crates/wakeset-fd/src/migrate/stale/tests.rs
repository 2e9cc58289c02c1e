//! Numbers that are closed unseen, and are a file's when their objects migrate.

use crate::migrate;
use crate::stats::Stat;
use crate::sys;
use crate::table::{self, alone::alone};
use core::ffi::c_int;
use libc::{EPOLL_CTL_ADD, EPOLLIN, epoll_event};

/// Puts an empty file under the number of an object, as instructions of the program's would.
fn replace(fd: c_int) {
    let file = sys::raw!(memfd_create, c"file".as_ptr(), 0).unwrap() as c_int;
    sys::dup_to(file, fd).unwrap();
    sys::close(file).unwrap();
}

/// The bytes in that file, which is closed.
fn end(fd: c_int) -> usize {
    let len = sys::raw!(lseek, fd, 0, libc::SEEK_END).unwrap();
    sys::close(fd).unwrap();
    len
}

fn migrates(fd: c_int) -> bool {
    migrate::fd(fd, Stat::MigratedUnmodelled) && !table::get(fd).is_object()
}

#[test]
fn a_state_is_not_written_to_the_file_that_has_its_number() {
    let _alone = alone();
    let counter = crate::eventfd(3, libc::EFD_NONBLOCK).unwrap();
    replace(counter);
    assert!(migrates(counter));
    assert_eq!(end(counter), 0);
    let mut ends = [0; 2];
    // SAFETY: room for two, and two bytes of ours.
    unsafe {
        crate::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK).unwrap();
        crate::write(ends[1], b"xy".as_ptr(), 2).unwrap();
    }
    replace(ends[1]);
    assert!(migrates(ends[1]) && !table::get(ends[0]).is_object());
    assert_eq!(end(ends[1]), 0);
    let mut bytes = [0; 4];
    assert_eq!(sys::read(ends[0], bytes.as_mut_ptr(), 4), Ok(2), "what was on its way");
    sys::close(ends[0]).unwrap();
}

/// The next socket pair under the number would be watched with the old one's data.
#[test]
fn a_watch_is_not_put_on_the_file_that_has_its_number() {
    let _alone = alone();
    let (set, counter) = (crate::epoll_create1(0).unwrap(), crate::eventfd(0, 0).unwrap());
    let event = epoll_event { events: EPOLLIN as u32, u64: 7 };
    // SAFETY: a valid event.
    unsafe { crate::epoll_ctl(set, EPOLL_CTL_ADD, counter, &raw const event) }.unwrap();
    let pipe = {
        let mut ends = [0; 2];
        sys::raw!(pipe2, ends.as_mut_ptr(), 0).unwrap();
        ends
    };
    sys::dup_to(pipe[0], counter).unwrap();
    sys::write(pipe[1], b"x".as_ptr(), 1).unwrap();
    assert!(migrates(counter));
    let mut found = [event];
    // SAFETY: room for one.
    assert_eq!(unsafe { crate::epoll_wait(set, found.as_mut_ptr(), 1, 0) }, Ok(0));
    [pipe[0], pipe[1], counter].into_iter().for_each(|fd| sys::close(fd).unwrap());
    crate::close(set).unwrap();
}

/// It asked for the type of each file, which is most of what the close of an unused pipe cost.
#[test]
fn what_has_nothing_ends_without_a_question() {
    let _alone = alone();
    let mut ends = [0; 2];
    // SAFETY: room for two.
    unsafe { crate::pipe2(ends.as_mut_ptr(), 0) }.unwrap();
    let counter = crate::eventfd(0, 0).unwrap();
    for fd in [ends[0], counter] {
        let table::Entry::Object(head) = table::get(fd) else { panic!("{fd} is the kernel's") };
        assert!(migrates(fd));
        assert!(head.links.ask_once(), "it has asked");
    }
    [ends[0], ends[1], counter].into_iter().for_each(|fd| sys::close(fd).unwrap());
}
