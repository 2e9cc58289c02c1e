//! Removals that tell, by number.

use libc::{EPOLL_CTL_ADD, c_int, epoll_event};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use wakeset::Timeout;
use wakeset_fd::hand::{Hand, Told, remove_telling};
use wakeset_fd::{Errno, close, dup, epoll_create1, epoll_ctl, epoll_wait, eventfd};

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

fn take(hand: &mut Hand) -> Result<c_int, Errno> {
    let mut events = [NO_EVENT; 4];
    // SAFETY: room for four.
    unsafe { hand.wait(events.as_mut_ptr(), 4, 0) }
}

fn take_without_hand(set: c_int) -> c_int {
    // SAFETY: room for one.
    unsafe { epoll_wait(set, [NO_EVENT].as_mut_ptr(), 1, 0) }.unwrap()
}

#[test]
fn it_is_in_hand_until_the_hand_comes_back() {
    for events in [IN, ONESHOT, IN | libc::EPOLLET as u32] {
        let (set, fd) = set_with(events);
        let mut hands = [Hand::new(set).unwrap(), Hand::new(set).unwrap()];
        assert_eq!(take(&mut hands[0]), Ok(1));
        let told = remove_telling(set, fd).unwrap();
        let Told::InHand(holders) = told else { panic!("{told:?}") };
        assert!(!holders.wait(Timeout::After(Duration::from_millis(2))));
        assert_eq!(take(&mut hands[1]), Ok(0));
        assert_eq!(take(&mut hands[0]), Ok(0), "comes back");
        assert!(holders.are_done() && holders.wait(Timeout::Never));
        assert!(matches!(remove_telling(set, fd), Err(Errno::ENOENT)));
        drop(hands);
        close(set).unwrap();
        close(fd).unwrap();
    }
}

#[test]
fn the_own_hand_does_not_count_and_arming_gives_back() {
    let (set, fd) = set_with(ONESHOT);
    let mut hand = Hand::new(set).unwrap();
    assert_eq!(take(&mut hand), Ok(1));
    assert!(matches!(hand.remove_telling(fd), Ok(Told::Free)));
    add(set, fd, ONESHOT, 8);
    assert_eq!(take(&mut hand), Ok(1));
    hand.modify(fd, &epoll_event { events: ONESHOT, u64: 9 }).unwrap();
    assert!(matches!(remove_telling(set, fd), Ok(Told::Free)));
    assert_eq!(hand.modify(fd, &epoll_event { events: ONESHOT, u64: 9 }), Err(Errno::ENOENT));
    drop(hand);
    close(set).unwrap();
    close(fd).unwrap();
}

#[test]
fn without_a_hand_only_one_shots_are_known() {
    let (set, fd) = set_with(ONESHOT);
    assert_eq!(take_without_hand(set), 1);
    assert!(matches!(remove_telling(set, fd), Ok(Told::Disarmed)));
    add(set, fd, ONESHOT, 7);
    assert!(matches!(remove_telling(set, fd), Ok(Told::Free)));
    add(set, fd, IN, 7);
    assert!(matches!(remove_telling(set, fd), Ok(Told::Unknown)));
    close(set).unwrap();
    close(fd).unwrap();
}

#[test]
fn of_what_is_the_kernels_nothing_is_known() {
    let (set, fd) = set_with(IN);
    let mut hand = Hand::new(set).unwrap();
    // A second descriptor moves the counter into the kernel, and its watch with it.
    let second = dup(fd).unwrap();
    assert_eq!(take(&mut hand), Ok(1));
    assert!(matches!(remove_telling(set, fd), Ok(Told::Unknown)));
    drop(hand);
    let set_in_kernel = dup(set).unwrap();
    assert!(matches!(Hand::new(set_in_kernel), Err(Errno::EOPNOTSUPP)));
    assert!(matches!(Hand::new(second), Err(Errno::EOPNOTSUPP)));
    assert!(matches!(Hand::new(-1), Err(Errno::EBADF)));
    [set, set_in_kernel, fd, second].iter().for_each(|fd| close(*fd).unwrap());
}

/// The number is used again at once, by a counter that other data stands for.
#[test]
fn nothing_is_used_after_it_was_freed() {
    let set = epoll_create1(libc::EPOLL_CLOEXEC).unwrap();
    let (freed, over, met) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut hand = Hand::new(set).unwrap();
                let mut events = [NO_EVENT; 2];
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: room for two.
                    let n = unsafe { hand.wait(events.as_mut_ptr(), 2, 1) }.unwrap();
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
                match remove_telling(set, fd).unwrap() {
                    Told::Free => {}
                    Told::InHand(holders) => {
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
