//! select(2).

use super::*;

/// Bits beyond `FD_SETSIZE` would not fit.
type Bits = [u64; size_of::<fd_set>() / 8];

fn bits(numbers: &[RawFd]) -> Bits {
    let mut bits = [0; size_of::<fd_set>() / 8];
    for fd in numbers {
        bits[*fd as usize / 64] |= 1 << (fd % 64);
    }
    bits
}

/// pselect(2) of these sets: its result, and what it leaves in them.
fn select<B: Polls>(
    n: c_int,
    mut sets: [Bits; 3],
    limit: Option<Duration>,
    mask: Option<u64>,
) -> (Result<c_int, Errno>, [Bits; 3]) {
    let limit = limit.map(timespec_of);
    let places = sets.each_mut().map(|set| set.as_mut_ptr().cast());
    let result = {
        let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mask = mask.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: three sets, and a time and a mask or null.
        unsafe { B::pselect(n, places, limit, mask) }
    };
    (result, sets)
}

const NONE: &[RawFd] = &[];

/// One above these numbers.
fn above(numbers: &[RawFd]) -> c_int {
    numbers.iter().max().map_or(0, |most| most + 1)
}

fn sets(read: &[RawFd], write: &[RawFd], except: &[RawFd]) -> [Bits; 3] {
    [read, write, except].map(bits)
}

pub(super) fn a_select_leaves_what_is_ready<B: Polls>() {
    let (counter, (reader, writer)) = (Counter::<B>::new(0), pipe::<B>());
    let all @ [fd, reading, writing] =
        [counter.as_raw_fd(), reader.as_raw_fd(), writer.as_raw_fd()];
    let n = above(&all);
    let asked = sets(&[fd, reading], &[fd, writing], &[fd]);
    let told = select::<B>(n, asked, NOW, None);
    assert_eq!(told, (Ok(2), sets(NONE, &[fd, writing], NONE)));
    counter.write(1);
    let told = select::<B>(n, asked, LONG, None);
    assert_eq!(told, (Ok(3), sets(&[fd], &[fd, writing], NONE)));
    writer.write(b"x").unwrap();
    let told = select::<B>(n, asked, None, None);
    assert_eq!(told, (Ok(4), sets(&[fd, reading], &[fd, writing], NONE)));
    let one = bits(&[fd]);
    let mut read = one;
    let limit = timespec_of(MS);
    // SAFETY: one set, a time, and no mask.
    let result = unsafe {
        let places = [read.as_mut_ptr().cast(), ptr::null_mut(), ptr::null_mut()];
        B::pselect(n, places, &limit, ptr::null())
    };
    assert_eq!((result, read), (Ok(1), one));
}

pub(super) fn a_select_counts_bits<B: Polls>() {
    let counter = Counter::<B>::new(1);
    let fd = counter.as_raw_fd();
    let told = select::<B>(fd + 1, sets(&[fd], &[fd], &[fd]), NOW, None);
    assert_eq!(told, (Ok(2), sets(&[fd], &[fd], NONE)));
}

pub(super) fn a_select_passes_over_what_is_beyond<B: Polls>() {
    let counters = [Counter::<B>::new(1), Counter::<B>::new(1)];
    let numbers = counters.each_ref().map(|counter| counter.as_raw_fd());
    let (low, high) = (numbers[0].min(numbers[1]), numbers[0].max(numbers[1]));
    let (result, left) = select::<B>(high, sets(&[low, high], NONE, NONE), NOW, None);
    assert_eq!(result, Ok(1));
    assert_eq!(left[0][low as usize / 64] >> (low % 64) & 1, 1);
    if low / 64 == high / 64 {
        assert_eq!(left[0][low as usize / 64] >> (high % 64) & 1, 0, "its word is written");
    }
    assert_eq!(select::<B>(-1, sets(&[low], NONE, NONE), NOW, None).0, Err(EINVAL));
}

pub(super) fn a_select_refuses_closed_numbers<B: Polls>() {
    let counter = Counter::<B>::new(1);
    let fd = counter.as_raw_fd();
    // Other tests may get the number meanwhile, and close it again.
    let mut told = Vec::new();
    for _ in 0..100 {
        // A number that is in the table of the process's descriptors, and not open.
        let closed = {
            let other = Counter::<B>::new(0);
            other.as_raw_fd()
        };
        let asked = sets(&[fd, closed], NONE, NONE);
        told.push(select::<B>(above(&[fd, closed]), asked, LONG, None));
        if told.last() == Some(&(Err(EBADF), asked)) {
            return;
        }
    }
    panic!("{told:?}");
}

/// Of few numbers and of many, of which only those that this expects are ready.
pub(super) fn a_select_asks_the_kernel_of_the_rest<B: Polls>() {
    let idle: Vec<_> = (0..40).map(|_| kernels_pipe()).collect();
    for idle in [&idle[..0], &idle] {
        asks_the_kernel_of_the_rest::<B>(idle);
    }
}

fn asks_the_kernel_of_the_rest<B: Polls>(idle: &[[OwnedFd; 2]]) {
    let (counter, ends) = (Counter::<B>::new(0), kernels_pipe());
    let [reading, writing] = ends.each_ref().map(|end| end.as_raw_fd());
    let fd = counter.as_raw_fd();
    let mut all: Vec<_> = idle.iter().map(|[reader, _]| reader.as_raw_fd()).collect();
    all.extend([fd, reading, writing]);
    let n = above(&all);
    let asked = sets(&all[..all.len() - 1], &[fd, writing], &all);
    let told = select::<B>(n, asked, NOW, None);
    assert_eq!(told, (Ok(2), sets(NONE, &[fd, writing], NONE)));
    counter.write(1);
    let told = select::<B>(n, asked, NOW, None);
    assert_eq!(told, (Ok(3), sets(&[fd], &[fd, writing], NONE)));
    // SAFETY: one byte, to a pipe of this test's.
    assert_eq!(unsafe { libc::write(writing, [0_u8].as_ptr().cast(), 1) }, 1);
    let told = select::<B>(n, asked, NOW, None);
    assert_eq!(told, (Ok(4), sets(&[fd, reading], &[fd, writing], NONE)));
    let told = select::<B>(n, sets(&[reading], &[fd], &all), NOW, None);
    assert_eq!(told, (Ok(2), sets(&[reading], &[fd], NONE)));
}

/// Of bits beyond the last number the kernel clears those for which the process has a table, and
/// leaves the others alone.
pub(super) fn a_select_leaves_what_is_beyond_to_the_kernel<B: Polls>() {
    const N: c_int = 1000;
    const BEYOND: u64 = 0x5555 << 48;
    let counters: [_; 20] = std::array::from_fn(|_| Counter::<B>::new(1));
    let idle: [_; 20] = std::array::from_fn(|_| kernels_pipe());
    let readers = idle.each_ref().map(|[reader, _]| reader.as_raw_fd());
    let left = |asked: [Bits; 3]| {
        let mut sets = asked;
        let places = sets.each_mut().map(|set| set.as_mut_ptr().cast());
        let [read, write, except] = places;
        // SAFETY: three sets and a time.
        let told = unsafe {
            libc::pselect(N, read, write, except, &timespec_of(Duration::ZERO), ptr::null())
        };
        assert_eq!(told, 0);
        sets[0][N as usize / 64]
    };
    for others in [&readers[..], &[]] {
        let mut all = counters.each_ref().map(|counter| counter.as_raw_fd()).to_vec();
        all.extend(others);
        let mut asked = sets(&all, NONE, NONE);
        asked[0][N as usize / 64] |= BEYOND;
        let mut kernels = sets(others, NONE, NONE);
        kernels[0][N as usize / 64] |= BEYOND;
        // The table may grow meanwhile, with another test's numbers.
        let told = loop {
            let before = left(kernels);
            let told = select::<B>(N, asked, NOW, None);
            if left(kernels) == before {
                assert_eq!(told.1[0][N as usize / 64], before);
                break told.0;
            }
        };
        assert_eq!(told, Ok(20));
    }
}

pub(super) fn a_select_ends_with_a_write<B: Polls>() {
    let counter = Counter::<B>::new(0);
    let fd = counter.as_raw_fd();
    for limit in [None, LONG] {
        let task = Task::asleep(move || select::<B>(fd + 1, sets(&[fd], NONE, &[fd]), limit, None));
        counter.write(1);
        assert_eq!(task.join(), (Ok(1), sets(&[fd], NONE, NONE)));
        counter.read();
    }
}

pub(super) fn a_select_ends_with_the_kernels<B: Polls>() {
    let (counter, (reader, writer)) = (Counter::<B>::new(0), pipe::<B>());
    let both @ [fd, reading] = [counter.as_raw_fd(), reader.as_raw_fd()];
    let asked = sets(&both, NONE, NONE);
    let start = || Task::asleep(move || select::<B>(above(&both), asked, LONG, None));
    let task = start();
    writer.write(b"x").unwrap();
    assert_eq!(task.join(), (Ok(1), sets(&[reading], NONE, NONE)));
    reader.read(&mut [0; 8]).unwrap();
    let task = start();
    counter.write(1);
    assert_eq!(task.join(), (Ok(1), sets(&[fd], NONE, NONE)));
    counter.read();
    // An end of file counts as readable, and as nothing else.
    drop(writer);
    let told = select::<B>(above(&both), sets(&[fd, reading], NONE, &[reading]), LONG, None);
    assert_eq!(told, (Ok(1), sets(&[reading], NONE, NONE)));
    let told = select::<B>(above(&both), sets(&[fd], NONE, &[reading]), Some(MS), None);
    assert_eq!(told, (Ok(0), sets(NONE, NONE, NONE)));
}

pub(super) fn a_select_that_a_signal_ends_leaves_the_sets<B: Polls>() {
    signals::install();
    let counter = Counter::<B>::new(0);
    let fd = counter.as_raw_fd();
    let asked = sets(&[fd], NONE, &[fd]);
    for mask in [None, Some(0)] {
        let task = Task::asleep(move || select::<B>(fd + 1, asked, None, mask));
        assert_eq!(task.interrupt(signals::RESTARTING), (Err(EINTR), asked));
    }
}

pub(super) fn a_select_that_ends_by_time_empties_the_sets<B: Polls>() {
    let (counter, (reader, _writer)) = (Counter::<B>::new(0), pipe::<B>());
    let both = [counter.as_raw_fd(), reader.as_raw_fd()];
    for numbers in [&both[..1], &both] {
        for limit in [NOW, Some(5 * MS)] {
            let asked = sets(numbers, NONE, numbers);
            let told = select::<B>(above(&both), asked, limit, None);
            assert_eq!(told, (Ok(0), sets(NONE, NONE, NONE)));
        }
    }
}
