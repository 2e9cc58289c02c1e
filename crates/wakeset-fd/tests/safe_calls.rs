//! The calls on sets that take no pointers, and sets that are made of an epoll.
#![allow(missing_docs)]

use libc::{EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLIN, c_int};
use std::time::{Duration, Instant};
use wakeset_fd::{self as fd, Errno, descriptor, set};

const NOW: Option<Duration> = Some(Duration::ZERO);

fn event(data: u64) -> libc::epoll_event {
    libc::epoll_event { events: EPOLLIN as u32, u64: data }
}

fn waited(epfd: c_int, limit: Option<Duration>) -> Result<Vec<u64>, Errno> {
    let mut events = [event(0); 4];
    let found = set::wait(epfd, &mut events, limit)?;
    Ok(events[..found].iter().map(|event| event.u64).collect())
}

#[test]
fn change_and_wait_do_what_the_calls_do() {
    let epfd = fd::epoll_create1(EPOLL_CLOEXEC).unwrap();
    let counter = fd::eventfd(0, libc::EFD_NONBLOCK).unwrap();
    set::change(epfd, EPOLL_CTL_ADD, counter, event(1)).unwrap();
    assert_eq!(set::change(epfd, EPOLL_CTL_ADD, counter, event(1)), Err(Errno::EEXIST));
    assert_eq!(waited(epfd, NOW), Ok(vec![]));
    let one = 1_u64.to_ne_bytes();
    // SAFETY: eight bytes.
    unsafe { fd::write(counter, one.as_ptr(), one.len()) }.unwrap();
    set::change(epfd, EPOLL_CTL_MOD, counter, event(2)).unwrap();
    assert_eq!(waited(epfd, None), Ok(vec![2]));
    assert_eq!(waited(epfd, Some(Duration::MAX)), Ok(vec![2]));
    set::change(epfd, EPOLL_CTL_DEL, counter, event(0)).unwrap();
    assert_eq!(set::change(epfd, EPOLL_CTL_DEL, counter, event(0)), Err(Errno::ENOENT));
    for limit in [Duration::from_millis(3), Duration::from_nanos(2_500_001)] {
        let begin = Instant::now();
        assert_eq!(waited(epfd, Some(limit)), Ok(vec![]));
        assert!(begin.elapsed() >= limit);
    }
    assert_eq!(set::wait(epfd, &mut [], NOW), Err(Errno::EINVAL));
    assert_eq!(waited(-1, NOW), Err(Errno::EBADF));
    fd::close(counter).unwrap();
    fd::close(epfd).unwrap();
}

#[test]
fn an_epoll_becomes_a_set() {
    // SAFETY: a system call without pointers.
    let epfd = unsafe { libc::epoll_create1(EPOLL_CLOEXEC) };
    assert!(!descriptor::is_in_process(epfd));
    set::adopt(epfd).unwrap();
    assert!(descriptor::is_in_process(epfd));
    let counter = fd::eventfd(1, libc::EFD_NONBLOCK).unwrap();
    set::change(epfd, EPOLL_CTL_ADD, counter, event(1)).unwrap();
    assert_eq!(waited(epfd, NOW), Ok(vec![1]));
    assert!(descriptor::is_in_process(counter));
    assert_eq!(set::adopt(counter), Err(Errno::EINVAL));
    assert_eq!(set::adopt(-1), Err(Errno::EBADF));
    fd::close(epfd).unwrap();
    fd::close(counter).unwrap();
}
