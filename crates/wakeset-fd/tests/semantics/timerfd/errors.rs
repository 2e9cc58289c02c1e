//! Arguments, descriptors and addresses that are refused.

use super::*;

pub(super) fn unknown_arguments_are_refused<B: Backend>() {
    for clock in
        [libc::CLOCK_PROCESS_CPUTIME_ID, libc::CLOCK_MONOTONIC_RAW, libc::CLOCK_TAI, -1, 99]
    {
        assert_eq!(B::timerfd_create(clock, 0), Err(EINVAL));
    }
    assert_eq!(B::timerfd_create(CLOCK_MONOTONIC, 1), Err(EINVAL));
    let timer = Timer::<B>::new();
    timer.set(HOUR, 3 * MS);
    assert_eq!(timer.try_set(4, MS, NONE), Err(EINVAL));
    assert_eq!(timer.try_set(-1, MS, NONE), Err(EINVAL));
    let (good, mut old) = (time(MS), spec(NONE, NONE));
    for wrong in [(0, -1), (0, 1_000_000_000), (-1, 0), (i64::MIN, 0)] {
        let wrong = timespec { tv_sec: wrong.0, tv_nsec: wrong.1 };
        for new in [
            itimerspec { it_value: wrong, it_interval: good },
            itimerspec { it_value: good, it_interval: wrong },
        ] {
            // SAFETY: valid places.
            let set = unsafe { B::timerfd_settime(timer.fd(), 0, &raw const new, &raw mut old) };
            assert_eq!(set, Err(EINVAL));
        }
    }
    assert!(timer.get().0 > MS, "as it was");
}

pub(super) fn wrong_descriptors_are_refused<B: Backend>() {
    let counter = Counter::<B>::new(0);
    let set = Set::<B>::new();
    let (reader, _writer) = pipe::<B>();
    let new = spec(MS, NONE);
    let mut old = spec(NONE, NONE);
    let mut calls = |fd: RawFd| {
        // SAFETY: valid places.
        unsafe {
            [
                B::timerfd_settime(fd, 0, &raw const new, &raw mut old),
                B::timerfd_gettime(fd, &raw mut old),
                B::timerfd_gettime(fd, ptr::null_mut()),
            ]
        }
    };
    for fd in [counter.as_raw_fd(), set.as_raw_fd(), reader.as_raw_fd()] {
        assert_eq!(calls(fd), [Err(EINVAL); 3]);
    }
    for fd in [-1, 1 << 30] {
        assert_eq!(calls(fd), [Err(EBADF); 3]);
    }
    let timer = Timer::<B>::new();
    // SAFETY: no event is needed to be refused; the set is no set.
    let add = unsafe {
        B::epoll_ctl(
            timer.fd(),
            libc::EPOLL_CTL_ADD,
            counter.as_raw_fd(),
            &mut libc::epoll_event { events: IN, u64: 0 },
        )
    };
    assert_eq!(add, Err(EINVAL));
}

pub(super) fn bad_addresses_are_efault<B: Backend>() {
    let timer = Timer::<B>::new();
    timer.set(HOUR, NONE);
    let fd = timer.fd();
    for bad in [0, 8, 1 << 46, usize::MAX - 7, 1 << 63] {
        let bad = ptr::without_provenance_mut(bad);
        // SAFETY: bad addresses are what is asked about.
        unsafe {
            assert_eq!(B::timerfd_settime(fd, 0, bad, ptr::null_mut()), Err(EFAULT));
            assert_eq!(
                B::timerfd_settime(fd, 99, bad, ptr::null_mut()),
                Err(EFAULT),
                "before the flags"
            );
            assert_eq!(B::timerfd_gettime(fd, bad), Err(EFAULT));
            assert_eq!(
                B::timerfd_settime(-1, 0, bad, ptr::null_mut()),
                Err(EFAULT),
                "before the number"
            );
        }
    }
    assert!(timer.get().0 > MS, "as it was");
    timer.set_at(MS, NONE);
    sleep(MS);
    // SAFETY: as above.
    let read = unsafe { B::read(fd, ptr::without_provenance_mut(1 << 46), 8) };
    assert_eq!(read, Err(EFAULT));
    assert_eq!(timer.try_read(), Err(EAGAIN), "read all the same");
}

/// Half of the number is stored where the rest of the buffer is inaccessible. An eventfd does not
/// do this, and neither does Linux before 6.10.
pub(super) fn a_read_gives_what_there_is_room_for<B: Backend>() {
    let timer = Timer::<B>::new();
    let len = 8192;
    // SAFETY: fresh memory, of which the second page is taken away.
    let pages = unsafe {
        let none = ptr::null_mut();
        let pages = libc::mmap(
            none,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(pages, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(pages.byte_add(4096), 4096, libc::PROT_NONE), 0);
        pages.cast::<u8>()
    };
    timer.set_at(MS, NONE);
    sleep(5 * MS);
    // SAFETY: two bytes are there, and the rest is what is asked about.
    let read = unsafe { B::read(timer.fd(), pages.add(4094), 8) };
    assert!(matches!(read, Ok(2) | Err(EFAULT)), "{read:?}");
    assert_eq!(timer.try_read(), Err(EAGAIN));
    // SAFETY: mapped above.
    unsafe { libc::munmap(pages.cast(), len) };
}

pub(super) fn what_was_set_is_set_though_the_old_value_has_no_place<B: Backend>() {
    let timer = Timer::<B>::new();
    let new = spec(HOUR, MS);
    // SAFETY: a bad address is what is asked about.
    let set = unsafe {
        B::timerfd_settime(timer.fd(), 0, &raw const new, ptr::without_provenance_mut(8))
    };
    assert_eq!(set, Err(EFAULT));
    let (left, interval) = timer.get();
    assert!(left > HOUR / 2 && interval == MS);
}

pub(super) fn short_buffers_are_refused<B: Backend>() {
    let timer = Timer::<B>::new();
    timer.set_at(MS, NONE);
    sleep(MS);
    for len in [0, 1, 7] {
        assert_eq!(timer.0.read(&mut vec![0; len]), Err(EINVAL));
    }
    let mut long = [0xff; 16];
    assert_eq!(timer.0.read(&mut long), Ok(8));
    assert_eq!((long[0], long[8]), (1, 0xff));
}

pub(super) fn a_write_is_refused<B: Backend>() {
    let timer = Timer::<B>::new();
    assert_eq!(timer.0.write(&[1; 8]), Err(EINVAL));
}
