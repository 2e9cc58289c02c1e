//! The counter itself: eventfd(2) with its reads and writes, blocking and not.

use crate::backend::Backend;
use crate::objects::{Counter, Fd, IN, LARGEST, OUT, Set};
use crate::signals;
use crate::task::{Task, ended};
use libc::{EAGAIN, EBADF, EFAULT, EFD_NONBLOCK, EFD_SEMAPHORE, EINTR, EINVAL};
use std::os::fd::AsRawFd;
use std::ptr;

on_both!(
    a_read_takes_all,
    a_semaphore_read_takes_one,
    starts_at_its_initial_value,
    unknown_flags_are_refused,
    an_empty_one_would_block,
    holds_up_to_two_to_the_64_less_two,
    a_write_of_nothing_always_fits,
    two_to_the_64_less_one_is_no_number,
    short_buffers_are_refused,
    a_short_buffer_outside_user_memory_is_efault,
    a_longer_read_is_fine,
    a_read_into_more_than_user_memory_takes_nothing,
    values_are_in_native_byte_order,
    bad_addresses_are_efault,
    a_read_into_nowhere_takes_the_value_all_the_same,
    a_duplicate_is_the_same_counter,
    closed_is_ebadf,
    nonblocking_can_be_turned_on_and_off,
    a_blocking_read_waits_for_a_write,
    a_blocking_write_waits_for_room,
    one_write_lets_one_reader_go,
    a_semaphore_lets_as_many_readers_go_as_were_written,
    a_signal_interrupts_a_read,
    a_signal_interrupts_a_write,
    a_restarting_signal_does_not,
    nothing_is_lost_between_many_threads,
    a_semaphore_gives_each_unit_once,
);

fn a_read_takes_all<B: Backend>() {
    let counter = Counter::<B>::new(0);
    counter.write(3);
    counter.write(4);
    assert_eq!(counter.read(), 7);
    assert_eq!(counter.try_read(), Err(EAGAIN));
}

fn a_semaphore_read_takes_one<B: Backend>() {
    let counter = Counter::<B>::with_flags(1, EFD_NONBLOCK | EFD_SEMAPHORE);
    counter.write(2);
    for _ in 0..3 {
        assert_eq!(counter.read(), 1);
    }
    assert_eq!(counter.try_read(), Err(EAGAIN));
}

fn starts_at_its_initial_value<B: Backend>() {
    for initial in [1, 42, u32::MAX] {
        assert_eq!(Counter::<B>::new(initial).read(), u64::from(initial));
    }
}

fn unknown_flags_are_refused<B: Backend>() {
    for flags in [2, 4, -1, libc::O_APPEND, EFD_NONBLOCK | 2] {
        assert_eq!(B::eventfd(0, flags), Err(EINVAL), "{flags:#x}");
    }
}

fn an_empty_one_would_block<B: Backend>() {
    let counter = Counter::<B>::new(0);
    assert_eq!(counter.try_read(), Err(EAGAIN));
    counter.write(0);
    assert_eq!(counter.try_read(), Err(EAGAIN));
}

fn holds_up_to_two_to_the_64_less_two<B: Backend>() {
    let counter = Counter::<B>::new(0);
    counter.write(LARGEST);
    assert_eq!(counter.try_write(1), Err(EAGAIN));
    assert_eq!(counter.try_write(LARGEST), Err(EAGAIN));
    assert_eq!(counter.read(), LARGEST);
    counter.write(2);
    assert_eq!(counter.try_write(LARGEST - 1), Err(EAGAIN));
    counter.write(LARGEST - 2);
    assert_eq!(counter.read(), LARGEST);
}

fn a_write_of_nothing_always_fits<B: Backend>() {
    let counter = Counter::<B>::new(0);
    counter.write(LARGEST);
    counter.write(0);
    assert_eq!(counter.read(), LARGEST);
}

fn two_to_the_64_less_one_is_no_number<B: Backend>() {
    let counter = Counter::<B>::new(0);
    assert_eq!(counter.try_write(u64::MAX), Err(EINVAL));
    counter.write(LARGEST);
    assert_eq!(counter.try_write(u64::MAX), Err(EINVAL));
    // On a blocking eventfd too.
    assert_eq!(Counter::<B>::blocking(1).try_write(u64::MAX), Err(EINVAL));
}

fn short_buffers_are_refused<B: Backend>() {
    let counter = Counter::<B>::new(1);
    for len in 0..8 {
        assert_eq!(counter.fd().read(&mut [0; 8][..len]), Err(EINVAL), "{len}");
        assert_eq!(counter.fd().write(&[0; 8][..len]), Err(EINVAL), "{len}");
    }
    assert_eq!(counter.read(), 1);
    // Also when the read would have blocked.
    assert_eq!(counter.fd().read(&mut [0; 7]), Err(EINVAL));
    assert_eq!(Counter::<B>::blocking(0).fd().read(&mut [0; 7]), Err(EINVAL));
}

fn a_short_buffer_outside_user_memory_is_efault<B: Backend>() {
    let counter = Counter::<B>::new(1);
    let fd = counter.as_raw_fd();
    for (address, errno) in [(1 << 63, EFAULT), (0, EINVAL)] {
        let nowhere = ptr::without_provenance_mut::<u8>(address);
        // SAFETY: addresses that cannot be reached, and less than a counter takes.
        let got = unsafe { [B::read(fd, nowhere, 7), B::write(fd, nowhere, 7)] };
        assert_eq!(got, [Err(errno); 2], "{address:#x}");
    }
    assert_eq!(counter.read(), 1);
}

fn a_longer_read_is_fine<B: Backend>() {
    let counter = Counter::<B>::new(5);
    let mut buffer = [0xaa; 16];
    assert_eq!(counter.fd().read(&mut buffer), Ok(8));
    assert_eq!(buffer[..8], 5u64.to_ne_bytes());
    assert_eq!(buffer[8..], [0xaa; 8]);
}

fn a_read_into_more_than_user_memory_takes_nothing<B: Backend>() {
    for flags in [EFD_NONBLOCK, EFD_NONBLOCK | EFD_SEMAPHORE] {
        let counter = Counter::<B>::with_flags(5, flags);
        let mut value = 0u64;
        for len in [1 << 47, 1 << 62, i64::MAX as usize, usize::MAX] {
            // SAFETY: of a read no more than 8 bytes are used, and this one is refused.
            let read = unsafe { B::read(counter.as_raw_fd(), (&raw mut value).cast(), len) };
            assert_eq!(read, Err(EFAULT), "{len:#x}");
            // SAFETY: the same.
            let written = unsafe { B::write(counter.as_raw_fd(), (&raw const value).cast(), len) };
            assert_eq!(written, Err(EFAULT), "{len:#x}");
        }
        // A buffer in user memory, however large, makes it an ordinary read.
        // SAFETY: no more than 8 bytes are used.
        let read = unsafe { B::read(counter.as_raw_fd(), (&raw mut value).cast(), 1 << 30) };
        assert_eq!(read, Ok(8));
        assert_eq!(value, if flags & EFD_SEMAPHORE != 0 { 1 } else { 5 });
    }
}

fn values_are_in_native_byte_order<B: Backend>() {
    let counter = Counter::<B>::new(0);
    assert_eq!(counter.fd().write(&0x0102_0304_0506_0708u64.to_ne_bytes()), Ok(8));
    assert_eq!(counter.read(), 0x0102_0304_0506_0708);
}

fn bad_addresses_are_efault<B: Backend>() {
    let counter = Counter::<B>::new(0);
    let fd = counter.as_raw_fd();
    let kernels = ptr::without_provenance_mut(usize::MAX - 4095);
    for nowhere in [ptr::null_mut(), ptr::without_provenance_mut(8), kernels] {
        // SAFETY: addresses that cannot be reached are EFAULT.
        let written = unsafe { B::write(fd, nowhere, 8) };
        assert_eq!(written, Err(EFAULT));
    }
    assert_eq!(counter.try_read(), Err(EAGAIN));
    // SAFETY: as above.
    assert_eq!(unsafe { B::write(fd, ptr::null(), 4) }, Err(EINVAL), "the length comes first");
    // SAFETY: as above.
    assert_eq!(unsafe { B::read(fd, ptr::null_mut(), 8) }, Err(EAGAIN), "nothing to put there");
    counter.write(1);
    // SAFETY: as above.
    assert_eq!(unsafe { B::read(fd, kernels, 8) }, Err(EFAULT), "refused before anything is taken");
    assert_eq!(counter.read(), 1);
}

fn a_read_into_nowhere_takes_the_value_all_the_same<B: Backend>() {
    let (counter, set) = (Counter::<B>::new(3), Set::<B>::new());
    set.add(&counter, IN, 1);
    // SAFETY: null is EFAULT.
    assert_eq!(unsafe { B::read(counter.as_raw_fd(), ptr::null_mut(), 8) }, Err(EFAULT));
    assert_eq!(counter.try_read(), Err(EAGAIN));
    assert_eq!(set.ready(), []);
}

fn a_duplicate_is_the_same_counter<B: Backend>() {
    let counter = Counter::<B>::new(0);
    let same = counter.dup();
    counter.write(2);
    same.write(3);
    assert_eq!(same.read(), 5);
    assert_eq!(counter.try_read(), Err(EAGAIN));
    drop(counter);
    same.write(1);
    assert_eq!(same.read(), 1);
}

fn closed_is_ebadf<B: Backend>() {
    for bad in [-1, 1_900_000_000] {
        let mut buffer = [0; 8];
        // SAFETY: buffers of 8 bytes.
        unsafe {
            assert_eq!(B::read(bad, buffer.as_mut_ptr(), 8), Err(EBADF));
            assert_eq!(B::write(bad, buffer.as_ptr(), 8), Err(EBADF));
            assert_eq!(B::read(bad, buffer.as_mut_ptr(), 0), Err(EBADF));
        }
    }
}

fn nonblocking_can_be_turned_on_and_off<B: Backend>() {
    let counter = Counter::<B>::blocking(0);
    let same = counter.dup();
    B::set_nonblocking(counter.as_raw_fd(), true).unwrap();
    assert_eq!(same.try_read(), Err(EAGAIN), "the flag is the description's");
    B::set_nonblocking(same.as_raw_fd(), false).unwrap();
    let reader = counter.clone();
    let task = Task::asleep(move || reader.try_read());
    counter.write(1);
    assert_eq!(task.join(), Ok(1));
}

fn a_blocking_read_waits_for_a_write<B: Backend>() {
    let counter = Counter::<B>::blocking(0);
    let reader = counter.clone();
    let task = Task::asleep(move || reader.try_read());
    counter.write(0);
    counter.write(5);
    assert_eq!(task.join(), Ok(5));
}

fn a_blocking_write_waits_for_room<B: Backend>() {
    let counter = Counter::<B>::blocking(0);
    counter.write(LARGEST);
    let writer = counter.clone();
    let task = Task::asleep(move || writer.try_write(2));
    assert_eq!(counter.read(), LARGEST);
    assert_eq!(task.join(), Ok(()));
    assert_eq!(counter.read(), 2);
}

fn readers<B: Backend>(counter: &Counter<B>, n: usize) -> Vec<Task<u64>> {
    let start = || {
        let counter = counter.clone();
        Task::asleep(move || counter.read())
    };
    (0..n).map(|_| start()).collect()
}

fn one_write_lets_one_reader_go<B: Backend>() {
    let counter = Counter::<B>::blocking(0);
    let mut tasks = readers(&counter, 3);
    for left in [2, 1, 0] {
        counter.write(7);
        assert_eq!(ended(&tasks, 1), 1);
        let gone = tasks.iter().position(Task::has_ended).unwrap();
        assert_eq!(tasks.swap_remove(gone).join(), 7);
        assert_eq!(tasks.len(), left);
    }
}

fn a_semaphore_lets_as_many_readers_go_as_were_written<B: Backend>() {
    let counter = Counter::<B>::with_flags(0, EFD_SEMAPHORE);
    let tasks = readers(&counter, 4);
    counter.write(3);
    assert_eq!(ended(&tasks, 3), 3);
    counter.write(1);
    for task in tasks {
        assert_eq!(task.join(), 1);
    }
}

fn a_signal_interrupts_a_read<B: Backend>() {
    signals::install();
    let counter = Counter::<B>::blocking(0);
    let reader = counter.clone();
    let task = Task::start(move || reader.try_read());
    assert_eq!(task.interrupt(signals::PLAIN), Err(EINTR));
    counter.write(1);
    assert_eq!(counter.read(), 1);
}

fn a_signal_interrupts_a_write<B: Backend>() {
    signals::install();
    let counter = Counter::<B>::blocking(0);
    counter.write(LARGEST);
    let writer = counter.clone();
    let task = Task::start(move || writer.try_write(1));
    assert_eq!(task.interrupt(signals::PLAIN), Err(EINTR));
    assert_eq!(counter.read(), LARGEST);
}

fn a_restarting_signal_does_not<B: Backend>() {
    signals::install();
    let counter = Counter::<B>::blocking(0);
    let reader = counter.clone();
    let task = Task::asleep(move || (reader.try_read(), signals::handled()));
    for _ in 0..20 {
        task.signal(signals::RESTARTING);
        task.until_asleep();
    }
    counter.write(1);
    let (read, handled) = task.join();
    assert_eq!(read, Ok(1));
    assert!(handled > 0);
}

fn nothing_is_lost_between_many_threads<B: Backend>() {
    const WRITES: u64 = 20_000;
    let counter = Counter::<B>::blocking(0);
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let counter = counter.clone();
            Task::start(move || (0..WRITES).for_each(|_| counter.write(3)))
        })
        .collect();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let counter = counter.clone();
            Task::start(move || {
                let mut sum = 0;
                loop {
                    match counter.read() {
                        LAST_WORD.. => return sum,
                        n => sum += n,
                    }
                }
            })
        })
        .collect();
    writers.into_iter().for_each(Task::join);
    // Waits until the counter is empty, so that no reader takes a sum together with the last word.
    let set = Set::<B>::new();
    set.add(&counter, IN | OUT, 0);
    while set.ready() != [(0, OUT)] {
        std::thread::yield_now();
    }
    let mut sum = 0;
    for reader in readers {
        while !reader.has_ended() {
            if set.ready() == [(0, OUT)] {
                counter.write(LAST_WORD);
            }
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        sum += reader.join();
    }
    assert_eq!(sum, 4 * 3 * WRITES);
}

/// The value that tells the readers to end.
const LAST_WORD: u64 = 1 << 40;

fn a_semaphore_gives_each_unit_once<B: Backend>() {
    const UNITS: usize = 3_000;
    let counter = Counter::<B>::with_flags(0, EFD_SEMAPHORE);
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let counter = counter.clone();
            Task::start(move || (0..UNITS).map(|_| counter.read()).sum::<u64>())
        })
        .collect();
    let writer = counter.clone();
    let writer = Task::start(move || (0..UNITS).for_each(|_| writer.write(3)));
    writer.join();
    for reader in readers {
        assert_eq!(reader.join(), UNITS as u64);
    }
    assert_eq!(B::set_nonblocking(Fd::<B>::as_raw_fd(counter.fd()), true), Ok(()));
    assert_eq!(counter.try_read(), Err(EAGAIN));
}
