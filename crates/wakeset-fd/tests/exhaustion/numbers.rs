//! Lack of descriptor numbers.

use super::*;

pub(super) fn open_numbers() -> Vec<c_int> {
    // SAFETY: F_GETFD takes no pointer.
    (0..2048).filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0).collect()
}

/// Each set with both halves has a doorbell. When the sets are closed, their doorbells serve the
/// next sets.
#[test]
fn doorbells_are_used_again() {
    let counts = in_child(|| {
        let pipe = pipe_with_a_byte();
        let mut counts = String::new();
        for _ in 0..4 {
            let mut s = Script::<Wakeset>::new();
            let sets: Vec<_> = (0..150).map(|_| s.set()).collect();
            let counter = s.counter(0);
            for &set in &sets {
                s.add(set, counter, EPOLLIN, 1);
                s.add(set, pipe[0], EPOLLIN, 2);
            }
            sets.iter().chain([&counter]).for_each(|&fd| s.close(fd));
            assert!(!s.log.contains("rror"), "{}", s.log);
            counts += &format!("{} ", open_numbers().len());
        }
        counts
    });
    let counts: Vec<usize> =
        counts.unwrap().split_whitespace().map(|count| count.parse().unwrap()).collect();
    assert!(counts[0] > 150, "there were none: {counts:?}");
    assert!(
        counts.iter().all(|count| *count == counts[0]),
        "numbers open after each round: {counts:?}"
    );
}

/// Lowers the limit so that `spare` more numbers may be opened, which are the next ones.
pub(super) fn leave_numbers(spare: usize) {
    let highest = open_numbers().last().copied().unwrap_or(0);
    // SAFETY: duplicates of the standard input, and a valid limit.
    unsafe {
        // Free numbers below are taken.
        while libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 0) < highest {}
        let last = open_numbers().last().copied().unwrap_or(0);
        let limit =
            libc::rlimit { rlim_cur: last as u64 + 1 + spare as u64, rlim_max: last as u64 + 100 };
        assert_eq!(
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit),
            0,
            "{}",
            std::io::Error::last_os_error()
        );
    }
}

/// With objects of every kind open, RLIMIT_NOFILE is lowered to what is in use and `spare` more;
/// then every call is tried.
pub(super) fn few_numbers<B: Backend>(spare: usize) -> String {
    let mut script = Script::<B>::new();
    let s = &mut script;
    let (set, mixed, other) = (s.set(), s.set(), s.set());
    let counters: Vec<c_int> = (0..6).map(|_| s.counter(0)).collect();
    let pipe = pipe_with_a_byte();
    for (i, &counter) in counters.iter().enumerate() {
        s.add(set, counter, EPOLLIN, i as u64);
        s.add(mixed, counter, EPOLLIN, i as u64);
    }
    leave_numbers(spare);
    let mut made: Vec<c_int> =
        (0..=spare).map(|i| if i % 2 == 0 { s.counter(1) } else { s.set() }).collect();
    made.retain(|fd| *fd >= 0);
    s.set();
    s.counter(0);
    s.dup(counters[0]);
    s.write(counters[0], 2);
    s.wait(set, 0);
    // There is no number for a doorbell.
    s.add(mixed, pipe[0], EPOLLIN, 100);
    s.wait(mixed, 0);
    s.write(counters[1], 1);
    s.wait(mixed, 0);
    s.add(other, pipe[0], EPOLLIN, 200);
    s.add(other, counters[2], EPOLLIN, 2);
    s.write(counters[2], 1);
    s.wait(other, 0);
    s.add(other, set, EPOLLIN, 3);
    s.wait(other, 0);
    // A waiter is woken.
    counters.iter().for_each(|&counter| s.read(counter));
    s.ctl(mixed, EPOLL_CTL_DEL, pipe[0], 0, 0);
    let writer = {
        let counter = counters[4];
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(30));
            let value = 1_u64;
            // SAFETY: 8 bytes of our own.
            unsafe { B::write(counter, (&raw const value).cast(), 8) }
        })
    };
    s.wait(mixed, 20_000);
    s.note("a late write", writer.join().unwrap());
    // A number becomes free, and can be used.
    s.close(counters[5]);
    let again = s.counter(9);
    s.add(set, again, EPOLLIN, 9);
    s.wait(set, 0);
    s.wait(mixed, 0);
    s.dup(again);
    s.close(again);
    s.dup(counters[0]);
    s.wait(set, 0);
    s.log.clone()
}

#[test]
fn no_numbers_left() {
    for spare in 0..5 {
        let kernel = in_child(|| few_numbers::<Kernel>(spare)).unwrap();
        assert!(kernel.contains("Too many open files"), "{kernel}");
        same(
            &format!("{spare} numbers left"),
            &kernel,
            in_child(|| report(few_numbers::<Wakeset>(spare))),
        );
    }
}

/// The program takes a doorbell's number by dup2(2), as it may, when there is no other number for
/// the doorbell.
pub(super) fn a_number_taken_over<B: Backend>(take_it: bool) -> String {
    let mut script = Script::<B>::new();
    let s = &mut script;
    let (set, counter, pipe) = (s.set(), s.counter(0), pipe_with_a_byte());
    leave_numbers(1);
    let before = open_numbers();
    s.add(set, counter, EPOLLIN, 1);
    s.add(set, pipe[0], EPOLLIN, 2);
    s.wait(set, 0);
    // In the kernel's run there is nothing at this number yet.
    let number = before.last().map_or(0, |last| *last + 1);
    assert_eq!(take_it, open_numbers().contains(&number), "whether there is a bell");
    let taken = rationed(|| B::dup2(pipe[0], number));
    s.note("dup2", taken);
    s.write(counter, 1);
    s.wait(set, 0);
    s.wait(set, 10);
    s.note("read", {
        let mut byte = 0_u8;
        // SAFETY: one byte of our own.
        unsafe { B::read(number, &raw mut byte, 1) }
    });
    s.wait(set, 0);
    s.close(number);
    s.close(number);
    s.wait(set, 0);
    s.log.clone()
}

#[test]
fn the_number_of_a_doorbell_is_the_programs() {
    let kernel = in_child(|| a_number_taken_over::<Kernel>(false)).unwrap();
    same("dup2 to a bell", &kernel, in_child(|| report(a_number_taken_over::<Wakeset>(true))));
}
