//! Leases and `retire`, by descriptor.

use libc::{EPOLL_CTL_ADD, c_int, epoll_event};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use wakeset::Timeout;
use wakeset_fd::lease::{Lease, Removal, retire};
use wakeset_fd::migrate::release;
use wakeset_fd::{Errno, close, epoll_create1, epoll_ctl, epoll_wait, eventfd};

const IN: u32 = libc::EPOLLIN as u32;
const ONESHOT: u32 = IN | libc::EPOLLONESHOT as u32;
const NO_EVENT: epoll_event = epoll_event { events: 0, u64: 0 };

fn counter() -> c_int {
    eventfd(1, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC).unwrap()
}

fn add(set: c_int, fd: c_int, events: u32, data: u64) {
    let event = epoll_event { events, u64: data };
    // SAFETY: the event is there.
    unsafe { epoll_ctl(set, EPOLL_CTL_ADD, fd, &raw const event) }.unwrap();
}

fn set_with(events: u32) -> (c_int, c_int) {
    let (set, fd) = (epoll_create1(libc::EPOLL_CLOEXEC).unwrap(), counter());
    add(set, fd, events, 7);
    (set, fd)
}

fn take(lease: &mut Lease) -> Result<c_int, Errno> {
    let mut events = [NO_EVENT; 4];
    // SAFETY: room for four.
    unsafe { lease.wait(events.as_mut_ptr(), 4, 0) }
}

fn take_without_hand(set: c_int) -> c_int {
    // SAFETY: room for one.
    unsafe { epoll_wait(set, [NO_EVENT].as_mut_ptr(), 1, 0) }.unwrap()
}

#[test]
fn it_is_in_hand_until_the_hand_comes_back() {
    for events in [IN, ONESHOT, IN | libc::EPOLLET as u32] {
        let (set, fd) = set_with(events);
        let mut leases = [Lease::new(set).unwrap(), Lease::new(set).unwrap()];
        assert_eq!(take(&mut leases[0]), Ok(1));
        let told = retire(set, fd).unwrap();
        let Removal::InUse(holders) = told else { panic!("{told:?}") };
        assert!(!holders.wait(Timeout::After(Duration::from_millis(2))));
        assert_eq!(take(&mut leases[1]), Ok(0));
        assert_eq!(take(&mut leases[0]), Ok(0), "comes back");
        assert!(holders.have_released() && holders.wait(Timeout::Never));
        assert!(matches!(retire(set, fd), Err(Errno::ENOENT)));
        drop(leases);
        close(set).unwrap();
        close(fd).unwrap();
    }
}

#[test]
fn the_own_hand_does_not_count_and_arming_gives_back() {
    let (set, fd) = set_with(ONESHOT);
    let mut lease = Lease::new(set).unwrap();
    assert_eq!(take(&mut lease), Ok(1));
    assert!(matches!(lease.retire(fd), Ok(Removal::Idle)));
    add(set, fd, ONESHOT, 8);
    assert_eq!(take(&mut lease), Ok(1));
    lease.modify(fd, &epoll_event { events: ONESHOT, u64: 9 }).unwrap();
    assert!(matches!(retire(set, fd), Ok(Removal::Idle)));
    assert_eq!(lease.modify(fd, &epoll_event { events: ONESHOT, u64: 9 }), Err(Errno::ENOENT));
    drop(lease);
    close(set).unwrap();
    close(fd).unwrap();
}

#[test]
fn without_a_hand_only_one_shots_are_known() {
    let (set, fd) = set_with(ONESHOT);
    assert_eq!(take_without_hand(set), 1);
    assert!(matches!(retire(set, fd), Ok(Removal::Disarmed)));
    add(set, fd, ONESHOT, 7);
    assert!(matches!(retire(set, fd), Ok(Removal::Idle)));
    add(set, fd, IN, 7);
    assert!(matches!(retire(set, fd), Ok(Removal::Unknown)));
    close(set).unwrap();
    close(fd).unwrap();
}

#[test]
fn of_what_is_the_kernels_nothing_is_known() {
    let (set, fd) = set_with(IN);
    let mut lease = Lease::new(set).unwrap();
    // The counter moves into the kernel, and its watch with it.
    release(fd).unwrap();
    assert_eq!(take(&mut lease), Ok(1));
    assert!(matches!(retire(set, fd), Ok(Removal::Unknown)));
    drop(lease);
    release(set).unwrap();
    assert!(matches!(Lease::new(set), Err(Errno::EOPNOTSUPP)));
    assert!(matches!(Lease::new(fd), Err(Errno::EOPNOTSUPP)));
    assert!(matches!(Lease::new(-1), Err(Errno::EBADF)));
    [set, fd].iter().for_each(|fd| close(*fd).unwrap());
}

/// The number is used again at once, by a counter that other data stands for.
#[test]
fn nothing_is_used_after_it_was_freed() {
    let set = epoll_create1(libc::EPOLL_CLOEXEC).unwrap();
    let (freed, over, met) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut lease = Lease::new(set).unwrap();
                let mut events = [NO_EVENT; 2];
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: room for two.
                    let n = unsafe { lease.wait(events.as_mut_ptr(), 2, 1) }.unwrap();
                    for event in &events[..n as usize] {
                        let data = event.u64;
                        for _ in 0..5 {
                            assert!(data > freed.load(Ordering::Relaxed), "{data} was freed");
                            std::thread::yield_now();
                        }
                    }
                }
            });
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for data in 1..=2000 {
                let fd = counter();
                add(set, fd, [IN, ONESHOT, IN | libc::EPOLLET as u32][data as usize % 3], data);
                for _ in 0..data % 20 {
                    std::thread::yield_now();
                }
                match retire(set, fd).unwrap() {
                    Removal::Idle => {}
                    Removal::InUse(holders) => {
                        met.fetch_add(1, Ordering::Relaxed);
                        assert!(holders.wait(Timeout::Never));
                    }
                    told => panic!("{told:?}"),
                }
                freed.store(data, Ordering::Relaxed);
                close(fd).unwrap();
            }
        }));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(met.into_inner() > 0, "nothing met");
    close(set).unwrap();
}
