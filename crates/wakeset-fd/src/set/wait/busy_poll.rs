//! Busy polling of network devices, in a program that has been told how long its waits spin: the
//! kernel polls the devices of the kernel half's sockets while a wait looks there (`EPIOCSPARAMS`
//! of ioctl_eventpoll(2), Linux 6.9), where they and their drivers can be polled.

use crate::set::FdSet;
use crate::sys::own_calls::{EPIOCGPARAMS, EPIOCSPARAMS};
use crate::sys::refusable::refusable;
use core::sync::atomic::Ordering;

/// `struct epoll_params`.
#[repr(C)]
#[derive(Default)]
struct Params {
    micros: u32,
    budget: u16,
    prefer: u8,
    padding: u8,
}

/// Before a spin of the kernel half: says how long, unless that was said before, or the program has
/// set something itself. Refused, or before Linux 6.9: nothing.
pub(super) fn tell(set: &FdSet) {
    let Some(limit) = wakeset::spin_limit() else { return };
    let micros = u32::try_from(limit.as_micros()).unwrap_or(u32::MAX);
    let before = set.busy_poll.swap(micros, Ordering::Relaxed);
    if before == micros {
        return;
    }
    let mut params = Params::default();
    if refusable!(ioctl, set.fd(), EPIOCGPARAMS, &raw mut params).is_ok() && params.micros == before
    {
        params.micros = micros;
        let _ = refusable!(ioctl, set.fd(), EPIOCSPARAMS, &raw const params);
    }
}
