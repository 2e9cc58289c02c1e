//! Shows that the `wakeset::` half of the other tests is about Wakeset: the objects that they use
//! live in user space, and migrate only where they should. These tests run beside the others, in
//! the same process.

use crate::backend::{Backend, Errno, Kernel, KernelSigset, Streams, Wakeset};
use crate::objects::{Counter, ET, EXCLUSIVE, IN, ONESHOT, OUT, Set, ctl, own_pair, pipe};
use crate::task::Task;
use libc::{EBADF, EPERM, EPOLL_CTL_ADD, EPOLL_CTL_MOD, c_int, epoll_event, timespec};
use std::os::fd::AsRawFd;
use std::ptr;
use wakeset_fd::Verdict;
use wakeset_fd::descriptor::{is_hidden, is_in_process};
use wakeset_fd::duplicate::dup3;

fn here(object: &impl AsRawFd) -> bool {
    is_in_process(object.as_raw_fd())
}

#[test]
fn ordinary_use_stays_in_process() {
    let (outer, set) = (Set::<Wakeset>::new(), Set::new());
    let counters = [Counter::new(0), Counter::blocking(0)];
    outer.add(&set, IN, 0);
    set.add(&counters[0], IN | ET | EXCLUSIVE, 1);
    set.add(&counters[1], IN | ONESHOT, 2);
    let sleeper = outer.clone();
    let sleeper = Task::asleep(move || sleeper.wait(4, -1));
    counters.iter().for_each(|counter| counter.write(1));
    assert_eq!(sleeper.join(), Ok(vec![(0, IN)]));
    assert_eq!(set.ready().len(), 2);
    set.modify(&counters[1], IN, 3);
    assert_eq!(set.try_add(&counters[1], IN, 3), Err(libc::EEXIST));
    assert_eq!(set.try_add(&outer, IN, 3), Err(libc::ELOOP));
    assert_eq!(set.wait_masked(None, Some(0)), Ok(vec![(3, IN)]));
    assert!(here(&outer) && here(&set) && counters.iter().all(here));
}

#[test]
fn a_mixed_set_keeps_its_counters_in_process() {
    let (set, counter, (reader, writer)) = (Set::<Wakeset>::new(), Counter::new(0), pipe());
    set.add(&counter, IN, 1);
    set.add(&reader, IN, 2);
    counter.write(1);
    writer.write(b"x").unwrap();
    assert_eq!(set.ready().len(), 2);
    assert!(here(&set) && here(&counter) && !here(&reader));
}

#[test]
fn a_second_descriptor_leaves_the_object_in_process() {
    let (set, counter) = (Set::<Wakeset>::new(), Counter::new(0));
    set.add(&counter, IN, 1);
    let same = counter.dup();
    assert!(here(&counter) && here(&same) && here(&set));
    same.write(1);
    assert_eq!(set.ready(), [(1, IN)]);
    let same = set.dup();
    assert!(here(&set) && here(&same));
    assert_eq!(same.ready(), [(1, IN)]);
    // Both numbers at once.
    Wakeset::migrate(same.as_raw_fd());
    assert!(!here(&set) && !here(&same) && !here(&counter));
    assert_eq!(same.ready(), [(1, IN)]);
}

/// What cannot have several numbers moves.
#[test]
fn a_second_descriptor_of_a_pipe_moves_it_into_the_kernel() {
    let (reader, writer) = own_pair::<Wakeset>(Wakeset::pipe2(libc::O_NONBLOCK));
    assert!(here(&reader) && here(&writer));
    let same = reader.dup();
    assert!(!here(&reader) && !here(&writer) && !here(&same));
}

/// What is left in the pair, or not, when one end is closed.
#[test]
fn an_end_stays_when_the_other_one_is_closed() {
    let pairs = || {
        [Wakeset::pipe2(libc::O_NONBLOCK), Wakeset::socketpair(libc::SOCK_NONBLOCK)]
            .map(own_pair::<Wakeset>)
    };
    for (reader, writer) in pairs() {
        let set = Set::<Wakeset>::new();
        set.add(&reader, IN, 1);
        assert_eq!(writer.write(b"xy"), Ok(2));
        drop(writer);
        let mut bytes = [0; 9];
        assert_eq!(reader.read(&mut bytes), Ok(2));
        assert_eq!(reader.read(&mut bytes), Ok(0));
        assert_eq!(set.ready().len(), 1);
        assert!(here(&reader) && here(&set));
    }
    for (reader, writer) in pairs() {
        let set = Set::<Wakeset>::new();
        set.add(&writer, OUT, 1);
        drop(reader);
        assert_eq!(set.ready().len(), 1);
        assert_eq!(writer.write(b"x"), Err(libc::EPIPE));
        assert!(here(&writer) && here(&set));
    }
    // What was not read is the kernel's to judge.
    for (reader, writer) in pairs() {
        assert_eq!(writer.write(b"x"), Ok(1));
        drop(reader);
        assert!(!here(&writer));
    }
}

/// The errors of calls on a number that is not open, also when other arguments are wrong.
fn said_of<B: Backend>(number: c_int, other: c_int) -> Vec<Result<(), Errno>> {
    let mut said = vec![
        B::close(number),
        B::dup(number).map(drop),
        B::dup2(number, other).map(drop),
        B::set_nonblocking(number, true),
        ctl::<B>(number, EPOLL_CTL_ADD, other, IN, 1),
        ctl::<B>(number, 7, other, IN, 1),
        ctl::<B>(other, EPOLL_CTL_ADD, number, IN, 1),
        ctl::<B>(-1, EPOLL_CTL_ADD, number, IN, 1),
    ];
    let mut events = [epoll_event { events: 0, u64: 0 }; 2];
    let (events, nowhere): (_, *const timespec) = (events.as_mut_ptr(), ptr::without_provenance(8));
    let no_time = timespec { tv_sec: 0, tv_nsec: -1 };
    let no_mask: *const KernelSigset = ptr::null();
    // SAFETY: what the calls ask for, or addresses that cannot be reached.
    unsafe {
        said.push(B::epoll_ctl(number, EPOLL_CTL_ADD, other, ptr::null_mut()));
        said.push(B::epoll_ctl(other, EPOLL_CTL_MOD, number, ptr::null_mut()));
        for room in [2, 0, -1, c_int::MAX] {
            said.push(B::epoll_wait(number, events, room, 0).map(drop));
        }
        said.push(B::epoll_wait(number, ptr::without_provenance_mut(1 << 63), 2, 0).map(drop));
        for limit in [ptr::null(), ptr::from_ref(&no_time), nowhere] {
            said.push(B::epoll_pwait2(number, events, 2, limit, no_mask).map(drop));
        }
    }
    said
}

#[test]
fn a_doorbell_looks_closed_whatever_else_is_wrong() {
    let (set, counter, (reader, _writer)) = (Set::<Wakeset>::new(), Counter::new(0), pipe());
    set.add(&counter, IN, 1);
    set.add(&reader, IN, 2);
    let plain = Counter::<Kernel>::new(0);
    let bell = (400..2000).find(|fd| is_hidden(*fd)).expect("the set has a doorbell");
    assert_eq!(
        said_of::<Wakeset>(bell, set.as_raw_fd()),
        said_of::<Kernel>(-1, Set::<Kernel>::new().as_raw_fd())
    );
    assert_eq!(
        said_of::<Wakeset>(bell, counter.as_raw_fd()),
        said_of::<Kernel>(-1, plain.as_raw_fd())
    );
    assert_eq!(said_of::<Wakeset>(bell, -1), said_of::<Kernel>(-1, -1));
    // dup3(2) checks its flags before its numbers; the kernel is to return the error.
    assert!(matches!(dup3(bell, 5, 1), Verdict::Kernel));
    assert!(matches!(dup3(bell, 5, 0), Verdict::Done(Err(_))));
    assert!(here(&set) && here(&counter), "what was refused migrated something");
}

/// When a set in a set migrates, the order of what is ready in it is lost. An ADD that the kernel
/// refuses does not cost that.
#[test]
fn an_add_that_fails_moves_nothing() {
    let (outer, inner, counter) =
        (Set::<Wakeset>::new(), Set::<Wakeset>::new(), Counter::<Wakeset>::new(0));
    outer.add(&inner, IN | ET, 1);
    inner.add(&counter, IN, 2);
    let (closed, directory) = (1000, std::fs::File::open("/").expect("/"));
    let errors = [(closed, EBADF), (directory.as_raw_fd(), EPERM)];
    for (fd, errno) in errors {
        assert_eq!(ctl::<Wakeset>(inner.as_raw_fd(), EPOLL_CTL_ADD, fd, IN, 3), Err(errno));
    }
    assert!(here(&outer) && here(&inner) && here(&counter));
    let (reader, _writer) = pipe();
    inner.add(&reader, IN, 4);
    assert!(!here(&inner), "the set around it hears of the pipe from the kernel");
}

/// A pipe that carries data migrates: two copies in user space would take longer than the kernel's
/// copies and a system call.
#[test]
fn a_long_write_moves_the_pipe() {
    let mut bytes = [0; 5000];
    for byte in [1, 2] {
        let (reader, writer) = own_pair::<Wakeset>(Wakeset::pipe2(libc::O_NONBLOCK));
        let set = Set::<Wakeset>::new();
        set.add(&reader, IN | ET, 1);
        assert_eq!(writer.write(&[1; 512]), Ok(512));
        assert!(here(&reader) && here(&writer));
        assert_eq!(set.ready().len(), 1);
        assert_eq!(writer.write(&[byte; 513]), Ok(513));
        assert!(!here(&reader) && !here(&writer) && here(&set));
        assert_eq!(set.ready().len(), 1);
        assert_eq!(reader.read(&mut bytes), Ok(1025));
        assert!(bytes[..512] == [1; 512] && bytes[512..1025] == [byte; 513]);
        assert_eq!(reader.read(&mut bytes), Err(libc::EAGAIN));
    }
}

#[test]
fn a_message_stays_in_process_as_long_as_it_counts_like_others() {
    let (one, other) = own_pair::<Wakeset>(Wakeset::socketpair(libc::SOCK_NONBLOCK));
    for len in [57, 192] {
        assert_eq!(one.write(&vec![1; len]), Ok(len));
    }
    assert!(here(&one) && here(&other));
    assert_eq!(one.write(&[1; 193]), Ok(193));
    assert!(!here(&one) && !here(&other));
}

#[test]
fn a_write_that_waits_for_room_stays_in_process() {
    let (reader, writer) = own_pair::<Wakeset>(Wakeset::pipe2(0));
    Wakeset::set_nonblocking(writer.as_raw_fd(), true).unwrap();
    while writer.write(b"x").is_ok() {}
    Wakeset::set_nonblocking(writer.as_raw_fd(), false).unwrap();
    let task = Task::asleep({
        let writer = writer.clone();
        move || writer.write(b"z")
    });
    let mut bytes = [0; 70_000];
    while bytes[0] != b'z' {
        reader.read(&mut bytes).unwrap();
    }
    assert_eq!(task.join(), Ok(1));
    assert!(here(&reader) && here(&writer));
}

#[test]
fn a_pair_stays_in_process_with_several_buffers() {
    for (i, pair) in [Wakeset::pipe2(0), Wakeset::socketpair(0)].into_iter().enumerate() {
        let (reader, writer) = own_pair::<Wakeset>(pair);
        let mut bytes = *b"abcdef";
        let part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: 6 };
        let parts = [part; 16];
        // SAFETY: zeros are a message of nothing; the memory is our own.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (parts.as_ptr().cast_mut(), parts.len());
            let (reading, writing) = (reader.as_raw_fd(), writer.as_raw_fd());
            assert_eq!(Wakeset::writev(writing, parts.as_ptr(), 16), Ok(96));
            assert_eq!(Wakeset::readv(reading, parts.as_ptr(), 16), Ok(96));
            if i == 1 {
                assert_eq!(Wakeset::sendmsg(writing, &message, 0), Ok(96));
                assert_eq!(Wakeset::recvmsg(reading, &mut message, 0), Ok(96));
            }
        }
        assert!(here(&reader) && here(&writer));
    }
}

#[test]
fn a_pair_stays_in_process_when_it_is_shut_down() {
    for how in [libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_RDWR] {
        let (one, other) = own_pair::<Wakeset>(Wakeset::socketpair(libc::SOCK_NONBLOCK));
        assert_eq!(one.write(b"x"), Ok(1));
        assert_eq!(Wakeset::shutdown(one.as_raw_fd(), how), Ok(()));
        assert_eq!(other.read(&mut [0; 9]), Ok(1));
        assert!(here(&one) && here(&other));
        assert_eq!(Wakeset::shutdown(one.as_raw_fd(), 3), Err(libc::EINVAL));
        assert!(here(&one) && here(&other));
    }
    let (reader, writer) = own_pair::<Wakeset>(Wakeset::pipe2(0));
    assert_eq!(Wakeset::shutdown(reader.as_raw_fd(), 0), Err(libc::ENOTSOCK));
    assert!(here(&reader) && here(&writer));
}

#[test]
fn pipes_and_sockets_stay_in_process_in_ordinary_use() {
    let set = Set::<Wakeset>::new();
    let (reader, writer) = own_pair::<Wakeset>(Wakeset::pipe2(libc::O_NONBLOCK));
    let (one, other) = own_pair::<Wakeset>(Wakeset::socketpair(libc::SOCK_NONBLOCK));
    set.add(&reader, IN | ET, 1);
    set.add(&one, IN, 2);
    set.add(&writer, OUT | ONESHOT, 3);
    let all = || [&reader, &writer, &one, &other].into_iter().all(here) && here(&set);
    let mut bytes = [0; 5000];
    for message in [&b"x"[..], b"x", b"several", &[7; 512]] {
        assert_eq!(writer.write(message), Ok(message.len()));
        assert_eq!(other.write(&message[..message.len().min(50)]), Ok(message.len().min(50)));
        assert_eq!(set.ready().len(), 3);
        set.modify(&writer, OUT | ONESHOT, 3);
        assert_eq!(reader.read(&mut bytes), Ok(message.len()));
        assert_eq!(reader.read(&mut bytes), Err(libc::EAGAIN));
        assert_eq!(one.read(&mut bytes), Ok(message.len().min(50)));
        assert!(all());
    }
    // Full, for calls that do not block.
    while writer.write(b"x").is_ok() {}
    while one.write(b"x").is_ok() {}
    assert!(all());
    assert_eq!(Wakeset::bytes_in(reader.as_raw_fd()), Ok(65536));
    drop(other);
    assert!(!here(&one) && here(&reader) && here(&set));
}

#[test]
fn a_ring_is_for_sets_and_has_a_size() {
    let (set, counter, (reader, _writer)) =
        (Set::<Wakeset>::new(), Counter::<Wakeset>::new(0), pipe::<Wakeset>());
    let setup = |fd: &dyn AsRawFd, entries| {
        wakeset_fd::ring_setup(fd.as_raw_fd(), entries).map_err(|e| e.into_raw())
    };
    assert_eq!(setup(&set, 0), Err(libc::EINVAL));
    assert_eq!(setup(&set, (1 << 20) + 1), Err(libc::EINVAL));
    assert_eq!(setup(&counter, 8), Err(libc::EINVAL));
    assert_eq!(wakeset_fd::ring_setup(1 << 19, 8).map_err(|e| e.into_raw()), Err(EBADF));
    assert_eq!(setup(&reader, 8), Ok(false));
    assert_eq!(setup(&set, 8), Ok(true));
}

/// A number used again has no ring until it is given one, of the size then asked for: as many
/// events as that come in one wait.
#[test]
fn a_ring_ends_with_its_set() {
    for entries in [2, 16, 4] {
        let set = Set::<Wakeset>::new();
        let counters: Vec<_> = (0..20).map(|i| (i, Counter::new(1))).collect();
        for (i, counter) in &counters {
            set.add(counter, IN, *i);
        }
        assert_eq!(set.wait(100, 0).map(|events| events.len()), Ok(20));
        assert_eq!(wakeset_fd::ring_setup(set.as_raw_fd(), entries), Ok(true));
        assert_eq!(set.wait(100, 0).map(|events| events.len()), Ok(entries));
    }
}

#[test]
fn a_set_with_a_ring_moves_with_what_is_in_it() {
    let (set, counters) = (Set::<Wakeset>::new(), [(); 3].map(|()| Counter::new(0)));
    assert_eq!(wakeset_fd::ring_setup(set.as_raw_fd(), 8), Ok(true));
    for (i, counter) in counters.iter().enumerate() {
        set.add(counter, IN | ET, i as u64);
        counter.write(1);
    }
    assert_eq!(set.wait(1, 0), Ok(vec![(0, IN)]));
    Wakeset::migrate(set.as_raw_fd());
    assert!(!here(&set));
    let mut rest = set.wait(8, 0).expect("the kernel's events");
    rest.sort_unstable();
    assert!(rest.ends_with(&[(1, IN), (2, IN)]), "{rest:?}");
}
