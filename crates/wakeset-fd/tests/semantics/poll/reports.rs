//! What a call says of each number.

use super::*;

pub(super) fn says_what_holds_and_was_asked_for<B: Polls>() {
    let counter = Counter::<B>::new(0);
    let fd = counter.as_raw_fd();
    assert_eq!(now::<B>(&[(fd, POLLIN)]), [0]);
    assert_eq!(now::<B>(&[(fd, POLLIN | POLLOUT)]), [POLLOUT]);
    counter.write(1);
    assert_eq!(now::<B>(&[(fd, POLLIN | POLLOUT)]), [POLLIN | POLLOUT]);
    assert_eq!(now::<B>(&[(fd, POLLIN)]), [POLLIN]);
    assert_eq!(now::<B>(&[(fd, POLLRDNORM | POLLPRI)]), [0], "an eventfd has POLLIN alone");
    assert_eq!(now::<B>(&[(fd, 0)]), [0]);
    let (reader, writer) = own_pipe::<B>();
    let all = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM;
    let both = [(reader.as_raw_fd(), all), (writer.as_raw_fd(), all)];
    assert_eq!(now::<B>(&both), [0, POLLOUT | POLLWRNORM]);
    writer.write(b"x").unwrap();
    assert_eq!(now::<B>(&both), [POLLIN | POLLRDNORM, POLLOUT | POLLWRNORM]);
    let (one, other) = own_pair::<B>(B::socketpair(libc::SOCK_CLOEXEC));
    one.write(b"x").unwrap();
    let pair = [(one.as_raw_fd(), all), (other.as_raw_fd(), all)];
    assert_eq!(now::<B>(&pair), [POLLOUT | POLLWRNORM, all]);
}

pub(super) fn passes_over_negative_numbers<B: Polls>() {
    let counter = Counter::<B>::new(1);
    let fd = counter.as_raw_fd();
    assert_eq!(now::<B>(&[(-1, POLLIN), (fd, POLLIN), (!fd, POLLIN)]), [0, POLLIN, 0]);
    assert_eq!(now::<B>(&[(i32::MIN, POLLIN), (fd, POLLIN)]), [0, POLLIN]);
    counter.read();
    let (result, told) = poll::<B>(&[(!fd, POLLOUT), (fd, POLLIN)], Some(MS));
    assert_eq!((result, told), (Ok(0), vec![0, 0]));
}

pub(super) fn takes_a_number_twice<B: Polls>() {
    let counter = Counter::<B>::new(0);
    let fd = counter.as_raw_fd();
    assert_eq!(now::<B>(&[(fd, POLLIN), (fd, POLLOUT), (fd, POLLOUT)]), [0, POLLOUT, POLLOUT]);
    let task = polling::<B>(&[(fd, POLLIN), (fd, POLLIN)], LONG);
    counter.write(1);
    assert_eq!(task.join(), (Ok(2), vec![POLLIN, POLLIN]));
}

pub(super) fn says_that_a_number_is_closed<B: Polls>() {
    let counter = Counter::<B>::new(0);
    let fd = counter.as_raw_fd();
    let free = crate::objects::far_number();
    assert_eq!(now::<B>(&[(fd, POLLIN), (free, POLLIN)]), [0, POLLNVAL]);
    let (result, told) = poll::<B>(&[(free, 0), (fd, POLLIN)], LONG);
    assert_eq!((result, told), (Ok(1), vec![POLLNVAL, 0]));
}

pub(super) fn says_that_an_end_is_hung_up<B: Polls>() {
    let (counter, (reader, writer)) = (Counter::<B>::new(0), own_pipe::<B>());
    let asked = [(counter.as_raw_fd(), POLLIN), (reader.as_raw_fd(), POLLIN)];
    let task = polling::<B>(&asked, LONG);
    drop(writer);
    assert_eq!(task.join(), (Ok(1), vec![0, POLLHUP]));
    let (reader, writer) = own_pipe::<B>();
    drop(reader);
    let asked = [(counter.as_raw_fd(), POLLIN), (writer.as_raw_fd(), 0)];
    assert_eq!(now::<B>(&asked), [0, POLLERR]);
}

pub(super) fn says_that_a_timer_has_expired<B: Polls>() {
    let timer = B::timer(MS);
    sleep(2 * MS);
    assert_eq!(now::<B>(&[(timer, POLLIN | POLLOUT)]), [POLLIN]);
    B::set_timer(timer, Duration::from_secs(1000));
    assert_eq!(now::<B>(&[(timer, POLLIN)]), [0]);
    B::close(timer).unwrap();
}

pub(super) fn says_that_a_set_is_ready<B: Polls>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
    let asked = [(set.as_raw_fd(), POLLIN | POLLRDNORM | POLLOUT)];
    assert_eq!(now::<B>(&asked), [0]);
    set.add(&counter, IN, 1);
    assert_eq!(now::<B>(&asked), [0]);
    counter.write(1);
    assert_eq!(now::<B>(&asked), [POLLIN | POLLRDNORM]);
    assert_eq!(set.ready(), [(1, IN)], "the poll took nothing");
    counter.read();
    assert_eq!(now::<B>(&asked), [0]);
}

pub(super) fn looks_at_both_halves_of_a_set<B: Polls>() {
    let (set, counter, (reader, writer)) = (Set::<B>::new(), Counter::<B>::new(0), pipe::<B>());
    set.add(&counter, IN, 1);
    set.add(&reader, IN, 2);
    let asked = [(set.as_raw_fd(), POLLIN), (counter.as_raw_fd(), POLLIN)];
    assert_eq!(now::<B>(&asked), [0, 0]);
    writer.write(b"x").unwrap();
    assert_eq!(now::<B>(&asked), [POLLIN, 0]);
    reader.read(&mut [0; 8]).unwrap();
    assert_eq!(now::<B>(&asked), [0, 0]);
    counter.write(1);
    assert_eq!(now::<B>(&asked), [POLLIN, POLLIN]);
}

pub(super) fn tells_of_objects_and_the_kernels_in_one_call<B: Polls>() {
    let (counter, (reader, writer)) = (Counter::<B>::new(0), pipe::<B>());
    let (fd, reading, writing) = (counter.as_raw_fd(), reader.as_raw_fd(), writer.as_raw_fd());
    let asked = [(reading, POLLIN), (fd, POLLIN), (writing, POLLOUT)];
    assert_eq!(now::<B>(&asked), [0, 0, POLLOUT]);
    assert_eq!(now::<B>(&asked[..2]), [0, 0]);
    writer.write(b"x").unwrap();
    assert_eq!(now::<B>(&asked), [POLLIN, 0, POLLOUT]);
    counter.write(1);
    assert_eq!(now::<B>(&asked), [POLLIN, POLLIN, POLLOUT]);
    assert_eq!(poll::<B>(&asked, LONG), (Ok(3), vec![POLLIN, POLLIN, POLLOUT]));
}

pub(super) fn takes_long_arrays<B: Polls>() {
    let counters: Vec<_> = (0..100).map(|_| Counter::<B>::new(0)).collect();
    let (reader, writer) = pipe::<B>();
    let mut asked: Vec<_> = counters.iter().map(|counter| (counter.as_raw_fd(), POLLIN)).collect();
    for kernels in [false, true] {
        if kernels {
            asked.push((reader.as_raw_fd(), POLLIN));
        }
        for i in [0, 50, 99] {
            let task = polling::<B>(&asked, LONG);
            counters[i].write(1);
            let (result, told) = task.join();
            assert_eq!(result, Ok(1));
            assert!(told.iter().enumerate().all(|(at, told)| (*told == POLLIN) == (at == i)));
            counters[i].read();
        }
    }
    writer.write(b"x").unwrap();
    let told = now::<B>(&asked);
    assert_eq!(told.iter().position(|told| *told != 0), Some(100));
}

/// The ends of a pipe that is the kernel's on both sides.
pub(super) fn kernels_pipe() -> [OwnedFd; 2] {
    let mut ends = [0; 2];
    // SAFETY: two numbers, which are this test's.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        ends.map(|end| OwnedFd::from_raw_fd(end))
    }
}

/// Wherever it stands, and around the lengths at which an answer takes another way.
pub(super) fn tells_of_an_object_among_many_of_the_kernels<B: Polls>() {
    let (counter, ends) = (Counter::<B>::new(0), kernels_pipe());
    let [reading, writing] = ends.each_ref().map(|end| end.as_raw_fd());
    for n in [3, 24, 25, 100, 128, 129, 200] {
        for at in [0, n / 2, n - 1] {
            let mut asked: Vec<_> = [(reading, POLLIN), (-1, POLLIN), (writing, POLLOUT | POLLIN)]
                .into_iter()
                .cycle()
                .take(n)
                .collect();
            asked[at] = (counter.as_raw_fd(), POLLIN | POLLPRI);
            let mut told: Vec<_> =
                asked.iter().map(|(fd, _)| if *fd == writing { POLLOUT } else { 0 }).collect();
            let writers = told.iter().filter(|told| **told != 0).count() as c_int;
            assert_eq!(poll::<B>(&asked, NOW), (Ok(writers), told.clone()), "{n}, {at}");
            counter.write(1);
            told[at] = POLLIN;
            assert_eq!(poll::<B>(&asked, NOW), (Ok(writers + 1), told), "{n}, {at}");
            counter.read();
        }
    }
}

pub(super) fn refuses_more_than_there_may_be<B: Polls>() {
    let counter = Counter::<B>::new(1);
    let mut entries =
        vec![pollfd { fd: counter.as_raw_fd(), events: POLLIN, revents: 0 }; 2_000_000];
    let limit = timespec_of(MS);
    // SAFETY: so many entries, a time, and no mask.
    let result =
        unsafe { B::ppoll(entries.as_mut_ptr(), entries.len() as nfds_t, &limit, ptr::null()) };
    assert_eq!(result, Err(EINVAL));
}

pub(super) fn takes_as_many_as_there_may_be<B: Polls>() {
    let (counter, (reader, _writer)) = (Counter::<B>::new(0), pipe::<B>());
    let mut most = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: memory for the limits.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut most) }, 0);
    if most.rlim_cur > 2_000_000 {
        return;
    }
    let mut asked = vec![(-1, POLLIN); most.rlim_cur as usize];
    asked[0].0 = counter.as_raw_fd();
    asked[1].0 = reader.as_raw_fd();
    assert_eq!(poll::<B>(&asked, Some(5 * MS)).0, Ok(0));
}

pub(super) fn needs_its_memory<B: Polls>() {
    let counter = Counter::<B>::new(1);
    // SAFETY: the last entry lies in no memory, which leads to EFAULT.
    unsafe {
        let page = 4096;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let pages = libc::mmap(ptr::null_mut(), 2 * page, access, kind, -1, 0);
        assert_eq!(libc::mprotect(pages.byte_add(page), page, libc::PROT_NONE), 0);
        let last = pages.byte_add(page).cast::<pollfd>().sub(1);
        last.write(pollfd { fd: counter.as_raw_fd(), events: POLLIN, revents: 0 });
        let limit = timespec_of(MS);
        assert_eq!(B::ppoll(last, 1, &limit, ptr::null()), Ok(1));
        assert_eq!(B::ppoll(last, 2, &limit, ptr::null()), Err(EFAULT));
        assert_eq!(libc::mprotect(pages, page, libc::PROT_READ), 0);
        assert_eq!(B::ppoll(last, 1, &limit, ptr::null()), Err(EFAULT));
        libc::munmap(pages, 2 * page);
    }
}

/// What is written before the memory that is not there is reached stays written.
pub(super) fn tells_what_it_has_memory_for<B: Polls>() {
    let (counter, ends) = (Counter::<B>::new(1), kernels_pipe());
    let [reading, writing] = ends.each_ref().map(|end| end.as_raw_fd());
    // SAFETY: four entries around the end of a page, after which nothing can be written.
    unsafe {
        let page = 4096;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let pages = libc::mmap(ptr::null_mut(), 2 * page, access, kind, -1, 0);
        let first = pages.byte_add(page).cast::<pollfd>().sub(2);
        for (i, fd) in [counter.as_raw_fd(), writing, reading, writing].into_iter().enumerate() {
            let events = if fd == writing { POLLOUT } else { POLLIN };
            first.add(i).write(pollfd { fd, events, revents: -1 });
        }
        assert_eq!(libc::mprotect(pages.byte_add(page), page, libc::PROT_READ), 0);
        let limit = timespec_of(Duration::ZERO);
        assert_eq!(B::ppoll(first, 4, &limit, ptr::null()), Err(EFAULT));
        let told = [0, 1, 2, 3].map(|i| first.add(i).read().revents);
        assert_eq!(told, [POLLIN, POLLOUT, -1, -1]);
        libc::munmap(pages, 2 * page);
    }
}
