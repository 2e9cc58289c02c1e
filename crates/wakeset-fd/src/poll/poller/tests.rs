use super::super::entries::NONE;
use super::*;
use libc::POLLIN;
use std::sync::mpsc;
use std::thread;
extern crate std;

#[test]
fn a_sleep_that_a_handler_has_ended_does_not_begin() {
    let (end, ended) = mpsc::channel();
    thread::spawn(move || {
        let frame = Frame::new(0);
        let bell = sys::eventfd(0, 0).unwrap();
        let all = [Cell::new(NONE), Cell::new(pollfd { fd: bell, events: POLLIN, revents: 0 })];
        frame.set_entries(Some(&all));
        frame.keep_awake();
        let place = all.as_ptr().cast_mut().cast();
        // SAFETY: two entries, and neither a limit nor a mask.
        let slept = unsafe { sys::waits::ppoll(place, 2, None, ptr::null()) };
        sys::close(bell).unwrap();
        end.send(slept).unwrap();
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(5)), Ok(Ok(1)), "it sleeps on");
}
