//! What the kernel half is told of a spin: how long it may poll network devices.
//!
//! A program of its own, because the limit of the spin is the process's.

use libc::{EPOLL_CTL_ADD, c_int, epoll_event};
use wakeset_fd::{epoll_create1, epoll_ctl, epoll_wait};

const NO_EVENT: epoll_event = epoll_event { events: 0, u64: 0 };
/// ioctl_eventpoll(2).
const EPIOCSPARAMS: libc::Ioctl = 0x4008_8a01;
const EPIOCGPARAMS: libc::Ioctl = 0x8008_8a02_u32 as libc::Ioctl;

/// A set with a socket; `None` where the kernel has no such parameters.
fn set_with_socket() -> Option<c_int> {
    let set = epoll_create1(libc::EPOLL_CLOEXEC).unwrap();
    // SAFETY: numbers only.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0) };
    let event = epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: the event is there.
    unsafe { epoll_ctl(set, EPOLL_CTL_ADD, socket, &raw const event) }.unwrap();
    told(set).map(|_| set)
}

/// How long (µs) waits poll devices.
fn told(set: c_int) -> Option<u32> {
    let mut params = [0_u32; 2];
    // SAFETY: room for the parameters.
    (unsafe { libc::ioctl(set, EPIOCGPARAMS, params.as_mut_ptr()) } == 0).then_some(params[0])
}

fn wait(set: c_int) {
    // SAFETY: room for one.
    assert_eq!(unsafe { epoll_wait(set, [NO_EVENT].as_mut_ptr(), 1, 1) }.unwrap(), 0);
}

#[test]
fn devices_are_polled_for_as_long_as_waits_spin() {
    let Some(set) = set_with_socket() else {
        eprintln!("not tested: before Linux 6.9");
        return;
    };
    wait(set);
    assert_eq!(told(set), Some(0), "nothing was asked for");
    // A spin needs a second processor.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for micros in [50, 70] {
        wakeset::set_spin_limit(Some(micros));
        wait(set);
        assert_eq!(told(set), Some(if processors > 1 { micros } else { 0 }));
    }
    let own = [7_u32, 0];
    // SAFETY: parameters.
    assert_eq!(unsafe { libc::ioctl(set, EPIOCSPARAMS, own.as_ptr()) }, 0);
    wakeset::set_spin_limit(Some(90));
    wait(set);
    assert_eq!(told(set), Some(7), "what the program has set stays");
}
