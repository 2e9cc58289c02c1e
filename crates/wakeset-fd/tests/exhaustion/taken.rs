//! The program takes a doorbell's number by dup2(2), of a set that cannot do without it, or while
//! the kernel grants no new watch.

use super::*;
use crate::backend::Streams;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wakeset::{Counter, CounterFlags, Description, Event, Events};
use wakeset_fd::{custom, descriptor};

const CUSTOM: u64 = 7;

/// A source without a number.
fn custom_source() -> Description<Counter> {
    Description::new(custom::engine().unwrap(), Counter::new(0, CounterFlags::NONBLOCK))
}

/// Two numbers of an empty pipe.
fn empty_pipe() -> [c_int; 2] {
    let mut ends = [0; 2];
    // SAFETY: a place for two numbers.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    ends
}

/// An empty file of the program's.
fn file() -> c_int {
    // SAFETY: a C string.
    unsafe { libc::memfd_create(c"file".as_ptr(), libc::MFD_CLOEXEC) }
}

/// A thread that waits in the set, asleep by now; what it is told. The child ends if it sleeps on.
fn sleeper(set: c_int) -> JoinHandle<Vec<u64>> {
    let sleeper = thread::spawn(move || {
        let mut events = [epoll_event { events: 0, u64: 0 }; 4];
        // SAFETY: room for four.
        let n = unsafe { Wakeset::epoll_wait(set, events.as_mut_ptr(), 4, -1) }.unwrap();
        events[..n as usize].iter().map(|event| event.u64).collect()
    });
    thread::sleep(Duration::from_millis(50));
    sleeper
}

/// A set that watches this pipe as well, and the number of its doorbell.
fn mix(s: &mut Script<Wakeset>, set: c_int, pipe: c_int) -> c_int {
    let before = open_numbers();
    s.add(set, pipe, EPOLLIN, 2);
    open_numbers().into_iter().find(|fd| !before.contains(fd)).expect("a doorbell")
}

/// What a sleeper is told when `wake` is called, and how long the file is.
fn woken(s: &mut Script<Wakeset>, sleeper: JoinHandle<Vec<u64>>, file: c_int, wake: impl Fn()) {
    wake();
    let told = sleeper.join().unwrap();
    // SAFETY: takes no pointer.
    let len = unsafe { libc::lseek(file, 0, libc::SEEK_END) };
    s.log += &format!("woken for {told:?}, {len} bytes in the file\n");
}

/// A regression test. The set kept the number, so that each ring went into the program's file, and
/// none reached the sleeper.
#[test]
fn a_fixed_set_keeps_its_doorbell_where_there_is_no_other_number() {
    let log = in_child(|| {
        let mut script = Script::<Wakeset>::new();
        let s = &mut script;
        let (set, source, pipe, file) = (s.set(), custom_source(), empty_pipe(), file());
        custom::add(set, &source, Event::new(Events::IN, CUSTOM)).unwrap();
        leave_numbers(1);
        let number = mix(s, set, pipe[0]);
        let wake = || source.write(1).unwrap();
        let first = sleeper(set);
        s.note("dup2", Wakeset::dup2(file, number));
        woken(s, first, file, wake);
        source.read().unwrap();
        // A number becomes free: standard input has been duplicated to fill the gaps.
        s.close(0);
        let second = sleeper(set);
        s.note("dup2", Wakeset::dup2(file, number));
        woken(s, second, file, wake);
        s.close(number);
        s.log.clone()
    });
    assert_eq!(
        log.unwrap(),
        "epoll_create1: done\n\
         epoll_ctl 1 0x1 2: done\n\
         dup2: Too many open files (os error 24)\n\
         woken for [7], 0 bytes in the file\n\
         close: done\n\
         dup2: done\n\
         woken for [7], 0 bytes in the file\n\
         close: done\n"
    );
}

/// Other sets can do without.
#[test]
fn a_fixed_set_gets_another_sets_number() {
    let log = in_child(|| {
        let mut script = Script::<Wakeset>::new();
        let s = &mut script;
        let (set, source, other, counter) = (s.set(), custom_source(), s.set(), s.counter(0));
        let (pipe, file) = (empty_pipe(), file());
        custom::add(set, &source, Event::new(Events::IN, CUSTOM)).unwrap();
        s.add(other, counter, EPOLLIN, 1);
        leave_numbers(2);
        let number = mix(s, set, pipe[0]);
        mix(s, other, pipe[0]);
        let sleepers = [sleeper(set), sleeper(other)];
        s.note("dup2", Wakeset::dup2(file, number));
        let [first, second] = sleepers;
        woken(s, first, file, || source.write(1).unwrap());
        s.write(counter, 1);
        woken(s, second, file, || {});
        s.log += &format!("in process: {}\n", descriptor::is_in_process(counter));
        s.log.clone()
    });
    let log = log.unwrap();
    assert_eq!(
        log.split_once("dup2").unwrap().1,
        ": done\n\
         woken for [7], 0 bytes in the file\n\
         write 1: done\n\
         woken for [1], 0 bytes in the file\n\
         in process: false\n"
    );
}

/// From now on epoll_ctl(2) asks whether it is refused (ENOSPC), by its operation and number.
fn refuse_watches(mut is_refused: impl FnMut(c_int, c_int) -> bool + Send + 'static) {
    let (listener, number) = mpsc::channel();
    // It has no filter itself.
    thread::spawn(move || {
        let listener: c_int = number.recv().unwrap();
        loop {
            // SAFETY: zeros are valid, and what the kernel wants to be given; a place for each.
            unsafe {
                let mut call: libc::seccomp_notif = std::mem::zeroed();
                let mut answer: libc::seccomp_notif_resp = std::mem::zeroed();
                if libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) != 0 {
                    continue;
                }
                answer.id = call.id;
                match is_refused(call.data.args[1] as c_int, call.data.args[2] as c_int) {
                    true => answer.error = -libc::ENOSPC,
                    false => answer.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
                }
                libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer);
            }
        }
    });
    let (load, equal, end) = (0x20, 0x15, 0x06);
    let mut program = [
        libc::sock_filter { code: load, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: equal, jt: 0, jf: 1, k: libc::SYS_epoll_ctl as u32 },
        libc::sock_filter { code: end, jt: 0, jf: 0, k: libc::SECCOMP_RET_USER_NOTIF },
        libc::sock_filter { code: end, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: for this thread alone, and those that it begins; the program outlives the call.
    let made = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    assert!(made >= 0, "{}", std::io::Error::last_os_error());
    listener.send(made as c_int).unwrap();
}

/// The doorbell of a set gets another number at max_user_watches: for good, or until a watch is
/// removed.
fn taken_at_the_limit_of_watches(is_fixed: bool, for_good: bool) -> String {
    let mut script = Script::<Wakeset>::new();
    let s = &mut script;
    let (set, source, counter) = (s.set(), custom_source(), s.counter(0));
    let (pipe, file) = (empty_pipe(), file());
    if is_fixed {
        custom::add(set, &source, Event::new(Events::IN, CUSTOM)).unwrap();
    } else {
        s.add(set, counter, EPOLLIN, CUSTOM);
    }
    let number = mix(s, set, pipe[0]);
    let mut has_room = false;
    refuse_watches(move |op, fd| {
        has_room |= op == EPOLL_CTL_DEL && !for_good;
        // What migrates is not in question.
        op == EPOLL_CTL_ADD && fd != counter && !has_room
    });
    let sleeper = sleeper(set);
    s.log.clear();
    s.note("dup2", Wakeset::dup2(file, number));
    if is_fixed {
        woken(s, sleeper, file, || source.write(1).unwrap());
    } else {
        s.write(counter, 1);
        woken(s, sleeper, file, || {});
    }
    s.log += &format!("in process: {}\n", descriptor::is_in_process(counter));
    s.close(number);
    s.close(set);
    s.log.clone()
}

const TAKEN: &str = "dup2: done\nwoken for [7], 0 bytes in the file\nin process: true\n\
                     close: done\nclose: done\n";

/// A regression test. The new watch was refused, and the old one removed all the same.
#[test]
fn a_doorbell_keeps_a_watch_at_the_limit_of_watches() {
    let as_wakes = |log: &str| log.replacen("dup2: done\n", "dup2: done\nwrite 1: done\n", 1);
    let found = in_child(|| taken_at_the_limit_of_watches(false, false));
    assert_eq!(found.unwrap(), as_wakes(TAKEN), "the old watch makes room");
    let found = in_child(|| taken_at_the_limit_of_watches(false, true));
    assert_eq!(found.unwrap(), as_wakes(TAKEN).replace("true", "false"), "the set migrates");
}

/// A fixed set does not migrate, and keeps the old watch.
#[test]
fn a_fixed_set_keeps_its_watch_at_the_limit_of_watches() {
    for for_good in [false, true] {
        let found = in_child(|| taken_at_the_limit_of_watches(true, for_good));
        assert_eq!(found.unwrap(), TAKEN, "for good: {for_good}");
    }
}

/// An end of a pipe that still has to be read when the other end is closed. Returns its number, and
/// the hidden one under which the other end's file is kept.
fn half_of_a_pipe() -> [c_int; 2] {
    let [reader, writer] = Wakeset::pipe2(libc::O_NONBLOCK | libc::O_CLOEXEC).unwrap();
    // SAFETY: the buffer has three bytes.
    assert_eq!(unsafe { Wakeset::write(writer, b"xyz".as_ptr(), 3) }, Ok(3));
    let before = open_numbers();
    Wakeset::close(writer).unwrap();
    let kept = open_numbers().into_iter().find(|fd| !before.contains(fd)).expect("a kept file");
    [reader, kept]
}

/// What is read from it: all that there is, and the end.
fn read_half(s: &mut Script<Wakeset>, reader: c_int) {
    let mut bytes = [0; 9];
    for _ in 0..2 {
        // SAFETY: the buffer is `bytes`.
        let read = unsafe { Wakeset::read(reader, bytes.as_mut_ptr(), bytes.len()) };
        s.log += &format!("{:?}\n", read.map(|n| String::from_utf8_lossy(&bytes[..n])));
    }
}

/// What a closed end has left is carried into the kernel before its file loses the number.
#[test]
fn a_kept_file_gives_up_its_number() {
    for takes_it in [true, false] {
        let log = in_child(move || {
            let mut script = Script::<Wakeset>::new();
            let s = &mut script;
            let file = file();
            let [reader, kept] = half_of_a_pipe();
            leave_numbers(0);
            if takes_it {
                s.note("dup2", Wakeset::dup2(file, kept));
            } else {
                s.note("dup", Wakeset::dup(0));
                s.log += &format!("room: {}\n", wakeset_fd::doorbell::make_room());
                s.note("dup", Wakeset::dup(0));
            }
            s.log += &format!("in process: {}\n", descriptor::is_in_process(reader));
            read_half(s, reader);
            // SAFETY: takes no pointer.
            let len = unsafe { libc::lseek(file, 0, libc::SEEK_END) };
            s.log += &format!("{len} bytes in the file\n");
            s.log.clone()
        });
        let began = match takes_it {
            true => "dup2: done\n",
            false => "dup: Too many open files (os error 24)\nroom: true\ndup: done\n",
        };
        let ended = "in process: false\nOk(\"xyz\")\nOk(\"\")\n0 bytes in the file\n";
        assert_eq!(log.unwrap(), [began, ended].concat());
    }
}
