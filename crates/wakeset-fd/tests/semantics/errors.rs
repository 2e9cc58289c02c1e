//! The error matrix of epoll_create1(2), epoll_ctl(2) and epoll_wait(2).

use crate::backend::{Backend, Errno};
use crate::objects::{Counter, ET, Fd, IN, LONG, OUT, Set, ctl, far_number, pipe, socket_pair};
use libc::{
    EBADF, EEXIST, EFAULT, EINVAL, ENOENT, EPERM, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD,
    epoll_event,
};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

on_both!(
    ebadf_for_a_closed_set,
    ebadf_for_a_closed_target,
    ebadf_for_numbers_that_never_were,
    einval_for_a_set_that_is_none,
    einval_for_an_unknown_operation,
    eexist_and_enoent,
    the_key_is_number_and_description,
    eperm_for_regular_files_and_directories,
    efault_for_no_event,
    a_removal_needs_no_event,
    epoll_create1_knows_one_flag,
    close_on_exec_is_set_when_asked_for,
    einval_for_room_for_no_events,
    einval_for_too_much_room,
    ebadf_and_einval_for_a_wait_elsewhere,
    efault_for_nowhere_to_report,
    efault_for_room_beyond_user_memory,
    what_could_not_be_reported_is_kept,
    what_sockets_could_not_report_is_kept,
    a_set_cannot_be_read_or_written,
    a_failed_call_changes_nothing,
);

/// All three operations on `fd`.
fn all_three<B: Backend>(set: RawFd, fd: RawFd) -> [Result<(), Errno>; 3] {
    [EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL].map(|op| ctl::<B>(set, op, fd, IN, 1))
}

/// The end of user memory, for a program that has not asked for more.
const USER_END: usize = (1 << 47) - 4096;

/// A number above every limit, which no descriptor of another test can have.
const NEVER: RawFd = 1_900_000_000;

/// Closes a descriptor and returns its number, which no other test gets in the meantime.
fn closed<B: Backend>(fd: Fd<B>) -> RawFd {
    let far = B::dup2(fd.as_raw_fd(), far_number()).unwrap();
    drop(fd);
    B::close(far).unwrap();
    far
}

fn ebadf_for_a_closed_set<B: Backend>() {
    let counter = Counter::<B>::new(0);
    let set = closed(Fd::<B>::own(B::epoll_create1(0).unwrap()));
    assert_eq!(all_three::<B>(set, counter.as_raw_fd()), [Err(EBADF); 3]);
    assert_eq!(B::close(set), Err(EBADF));
}

fn ebadf_for_a_closed_target<B: Backend>() {
    let set = Set::<B>::new();
    let target = closed(Fd::<B>::own(B::eventfd(0, 0).unwrap()));
    assert_eq!(all_three::<B>(set.as_raw_fd(), target), [Err(EBADF); 3]);
    let target = closed(Fd::<B>::own(B::epoll_create1(0).unwrap()));
    assert_eq!(all_three::<B>(set.as_raw_fd(), target), [Err(EBADF); 3]);
    let target = closed(pipe::<B>().0);
    assert_eq!(all_three::<B>(set.as_raw_fd(), target), [Err(EBADF); 3]);
}

fn ebadf_for_numbers_that_never_were<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
    for bad in [-1, -2, RawFd::MIN, NEVER, RawFd::MAX] {
        assert_eq!(all_three::<B>(set.as_raw_fd(), bad), [Err(EBADF); 3], "{bad}");
        assert_eq!(all_three::<B>(bad, counter.as_raw_fd()), [Err(EBADF); 3], "{bad}");
        assert_eq!(all_three::<B>(bad, bad), [Err(EBADF); 3], "{bad}");
        assert_eq!(B::close(bad), Err(EBADF), "{bad}");
        assert_eq!(B::dup(bad), Err(EBADF), "{bad}");
    }
}

fn einval_for_a_set_that_is_none<B: Backend>() {
    let (counter, other) = (Counter::<B>::new(0), Counter::<B>::new(0));
    let (reader, _writer) = pipe::<B>();
    assert_eq!(all_three::<B>(counter.as_raw_fd(), other.as_raw_fd()), [Err(EINVAL); 3]);
    assert_eq!(all_three::<B>(counter.as_raw_fd(), counter.as_raw_fd()), [Err(EINVAL); 3]);
    assert_eq!(all_three::<B>(counter.as_raw_fd(), reader.as_raw_fd()), [Err(EINVAL); 3]);
    assert_eq!(all_three::<B>(reader.as_raw_fd(), counter.as_raw_fd()), [Err(EINVAL); 3]);
    assert_eq!(all_three::<B>(reader.as_raw_fd(), reader.as_raw_fd()), [Err(EINVAL); 3]);
    // A target that cannot be watched is noticed first.
    let file = File::open("/proc/self/exe").unwrap();
    assert_eq!(all_three::<B>(counter.as_raw_fd(), file.as_raw_fd()), [Err(EPERM); 3]);
}

fn einval_for_an_unknown_operation<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(1));
    set.add(&counter, IN, 1);
    for op in [0, 4, -1, 1000, i32::MIN] {
        assert_eq!(set.ctl(op, &counter, IN, 2), Err(EINVAL), "{op}");
        // The event is read before the operation is checked.
        // SAFETY: null is EFAULT.
        let null =
            unsafe { B::epoll_ctl(set.as_raw_fd(), op, counter.as_raw_fd(), ptr::null_mut()) };
        assert_eq!(null, Err(EFAULT), "{op}");
    }
    assert_eq!(set.ready(), [(1, IN)]);
}

fn eexist_and_enoent<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
    let (reader, _writer) = pipe::<B>();
    let inner = Set::<B>::new();
    for fd in [counter.as_raw_fd(), reader.as_raw_fd(), inner.as_raw_fd()] {
        assert_eq!(set.try_modify(&fd, IN, 1), Err(ENOENT));
        assert_eq!(set.try_remove(&fd), Err(ENOENT));
        set.add(&fd, IN, 1);
        assert_eq!(set.try_add(&fd, IN | ET, 1), Err(EEXIST));
        set.modify(&fd, IN, 1);
        set.remove(&fd);
        assert_eq!(set.try_remove(&fd), Err(ENOENT));
        assert_eq!(set.try_modify(&fd, IN, 1), Err(ENOENT));
    }
}

fn the_key_is_number_and_description<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
    let same = counter.dup();
    set.add(&counter, IN, 1);
    assert_eq!(set.try_modify(&same, IN, 2), Err(ENOENT));
    assert_eq!(set.try_remove(&same), Err(ENOENT));
    set.add(&same, OUT, 2);
    assert_eq!(set.try_add(&same, IN, 2), Err(EEXIST));
    assert_eq!(set.ready(), [(2, OUT)]);
    set.modify(&same, IN, 3);
    set.remove(&counter);
    counter.write(1);
    assert_eq!(set.ready(), [(3, IN)]);
}

fn eperm_for_regular_files_and_directories<B: Backend>() {
    let set = Set::<B>::new();
    for path in ["/proc/self/exe", "/"] {
        let file = File::open(path).unwrap();
        assert_eq!(all_three::<B>(set.as_raw_fd(), file.as_raw_fd()), [Err(EPERM); 3], "{path}");
    }
}

fn efault_for_no_event<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(1));
    let none = |set: RawFd, op, fd: RawFd, event: *mut epoll_event| {
        // SAFETY: addresses that cannot be reached are EFAULT.
        unsafe { B::epoll_ctl(set, op, fd, event) }
    };
    let unreachable = ptr::without_provenance_mut(usize::MAX - 4095);
    for nowhere in [ptr::null_mut(), ptr::without_provenance_mut(8), unreachable] {
        let (set, fd) = (set.as_raw_fd(), counter.as_raw_fd());
        assert_eq!(none(set, EPOLL_CTL_ADD, fd, nowhere), Err(EFAULT));
        assert_eq!(none(set, EPOLL_CTL_MOD, fd, nowhere), Err(EFAULT));
        // Before anything else is checked.
        assert_eq!(none(-1, EPOLL_CTL_ADD, -1, nowhere), Err(EFAULT));
        assert_eq!(none(fd, EPOLL_CTL_ADD, fd, nowhere), Err(EFAULT));
    }
    assert_eq!(set.try_remove(&counter), Err(ENOENT));
}

fn a_removal_needs_no_event<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(1));
    let remove = |event| {
        // SAFETY: a removal does not look at the event.
        unsafe { B::epoll_ctl(set.as_raw_fd(), EPOLL_CTL_DEL, counter.as_raw_fd(), event) }
    };
    for event in [ptr::null_mut(), ptr::without_provenance_mut(8)] {
        set.add(&counter, IN, 1);
        assert_eq!(remove(event), Ok(()));
        assert_eq!(remove(event), Err(ENOENT));
    }
}

fn epoll_create1_knows_one_flag<B: Backend>() {
    for flags in [1, -1, libc::O_NONBLOCK, libc::EPOLL_CLOEXEC | 1] {
        assert_eq!(B::epoll_create1(flags), Err(EINVAL), "{flags:#x}");
    }
}

fn close_on_exec_is_set_when_asked_for<B: Backend>() {
    let flags_of = |fd: &Fd<B>| {
        // SAFETY: takes no pointer.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) }
    };
    let own = |fd: Result<RawFd, Errno>| Fd::<B>::own(fd.unwrap());
    assert_eq!(flags_of(&own(B::epoll_create1(0))), 0);
    assert_eq!(flags_of(&own(B::epoll_create1(libc::EPOLL_CLOEXEC))), libc::FD_CLOEXEC);
    assert_eq!(flags_of(&own(B::eventfd(0, 0))), 0);
    assert_eq!(flags_of(&own(B::eventfd(0, libc::EFD_CLOEXEC))), libc::FD_CLOEXEC);
    let cloexec = own(B::eventfd(0, libc::EFD_CLOEXEC));
    assert_eq!(flags_of(&cloexec.dup()), 0);
}

fn wait_into<B: Backend>(
    set: RawFd,
    events: *mut epoll_event,
    max: i32,
    timeout: i32,
) -> Result<i32, Errno> {
    // SAFETY: the tests pass room for `max` events, or an address that cannot be reached.
    unsafe { B::epoll_wait(set, events, max, timeout) }
}

fn einval_for_room_for_no_events<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(1));
    let mut event = epoll_event { events: 0, u64: 0 };
    for timeout in [0, LONG, -1] {
        for max in [0, -1, i32::MIN] {
            assert_eq!(wait_into::<B>(set.as_raw_fd(), &mut event, max, timeout), Err(EINVAL));
        }
    }
    set.add(&counter, IN, 1);
    assert_eq!(wait_into::<B>(set.as_raw_fd(), &mut event, 0, 0), Err(EINVAL));
    assert_eq!(wait_into::<B>(set.as_raw_fd(), ptr::null_mut(), 0, 0), Err(EINVAL));
}

fn einval_for_too_much_room<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(1));
    set.add(&counter, IN, 1);
    let mut event = epoll_event { events: 0, u64: 0 };
    let most = i32::MAX / size_of::<epoll_event>() as i32;
    assert_eq!(wait_into::<B>(set.as_raw_fd(), &mut event, most + 1, 0), Err(EINVAL));
    assert_eq!(wait_into::<B>(set.as_raw_fd(), &mut event, i32::MAX, 0), Err(EINVAL));
    // One watch never reports more than one event, however large the buffer is said to be.
    assert_eq!(wait_into::<B>(set.as_raw_fd(), &mut event, most, 0), Ok(1));
}

fn ebadf_and_einval_for_a_wait_elsewhere<B: Backend>() {
    let counter = Counter::<B>::new(1);
    let (reader, _writer) = pipe::<B>();
    let mut event = epoll_event { events: 0, u64: 0 };
    let closed = closed(Fd::<B>::own(B::epoll_create1(0).unwrap()));
    for bad in [-1, NEVER, closed] {
        assert_eq!(wait_into::<B>(bad, &mut event, 1, 0), Err(EBADF));
        assert_eq!(wait_into::<B>(bad, &mut event, 1, -1), Err(EBADF));
    }
    assert_eq!(wait_into::<B>(counter.as_raw_fd(), &mut event, 1, 0), Err(EINVAL));
    assert_eq!(wait_into::<B>(reader.as_raw_fd(), &mut event, 1, -1), Err(EINVAL));
}

fn efault_for_nowhere_to_report<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
    set.add(&counter, IN, 1);
    // An address in the kernel's half is refused at once; a hole only when there is an event to
    // store.
    let kernels = ptr::without_provenance_mut(usize::MAX - 4095);
    assert_eq!(wait_into::<B>(set.as_raw_fd(), kernels, 4, 0), Err(EFAULT));
    assert_eq!(wait_into::<B>(set.as_raw_fd(), ptr::null_mut(), 4, 0), Ok(0));
    counter.write(1);
    assert_eq!(wait_into::<B>(set.as_raw_fd(), kernels, 4, 0), Err(EFAULT));
    assert_eq!(wait_into::<B>(set.as_raw_fd(), ptr::null_mut(), 4, 0), Err(EFAULT));
}

/// The whole buffer has to lie in user memory, also the part that no event would be stored in.
fn efault_for_room_beyond_user_memory<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
    set.add(&counter, IN, 1);
    let mut event = epoll_event { events: 0, u64: 0 };
    let place = &raw mut event;
    let left = (USER_END - place.addr()) / size_of::<epoll_event>();
    // Near the end of user memory, where the kernel puts the stack of the first thread.
    let last = ptr::without_provenance_mut(USER_END - size_of::<epoll_event>());
    for timeout in [0, LONG] {
        assert_eq!(wait_into::<B>(set.as_raw_fd(), last, 2, timeout), Err(EFAULT));
        assert_eq!(
            wait_into::<B>(set.as_raw_fd(), last, i32::MAX, timeout),
            Err(EINVAL),
            "the number comes first"
        );
        assert_eq!(
            wait_into::<B>(counter.as_raw_fd(), last, 2, timeout),
            Err(EFAULT),
            "before the set is looked at"
        );
        assert_eq!(wait_into::<B>(-1, last, 2, timeout), Err(EBADF), "after the number is");
        if left < i32::MAX as usize / size_of::<epoll_event>() {
            assert_eq!(
                wait_into::<B>(set.as_raw_fd(), place, left as i32 + 1, timeout),
                Err(EFAULT)
            );
        }
    }
    counter.write(1);
    assert_eq!(set.ready(), [(1, IN)]);
}

fn what_could_not_be_reported_is_kept<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(1));
    set.add(&counter, IN | ET, 1);
    assert_eq!(wait_into::<B>(set.as_raw_fd(), ptr::null_mut(), 4, 0), Err(EFAULT));
    assert_eq!(set.ready(), [(1, IN)]);
    assert_eq!(set.ready(), []);
}

fn what_sockets_could_not_report_is_kept<B: Backend>() {
    let (set, (one, two)) = (Set::<B>::new(), socket_pair::<B>());
    set.add(&one, OUT | ET, 1);
    set.add(&two, OUT | ET, 2);
    assert_eq!(wait_into::<B>(set.as_raw_fd(), ptr::null_mut(), 4, 0), Err(EFAULT));
    let mut found = set.ready();
    found.sort_unstable();
    assert_eq!(found, [(1, OUT), (2, OUT)]);
    assert_eq!(set.ready(), []);
}

fn a_set_cannot_be_read_or_written<B: Backend>() {
    let set = Fd::<B>::own(B::epoll_create1(0).unwrap());
    assert_eq!(set.read(&mut [0; 8]), Err(EINVAL));
    assert_eq!(set.write(&[0; 8]), Err(EINVAL));
}

fn a_failed_call_changes_nothing<B: Backend>() {
    let (set, counter, other) = (Set::<B>::new(), Counter::<B>::new(1), Counter::<B>::new(1));
    set.add(&counter, IN | ET, 1);
    assert_eq!(set.try_add(&counter, OUT, 2), Err(EEXIST));
    assert_eq!(set.try_modify(&other, OUT, 3), Err(ENOENT));
    assert_eq!(set.ready(), [(1, IN)]);
    assert_eq!(set.try_add(&counter, OUT, 2), Err(EEXIST));
    assert_eq!(set.ready(), []);
}
