//! Migrations stopped at one chosen step, each beside one call that meets them there.

use crate::descriptors::{migrate, own_pipe, read_all, write_bytes};
use crate::trap::{Beside, Place, Progress, Thread};
use crate::world::{IN, add, epoll, eventfd};
use std::io::Read;
use std::os::fd::FromRawFd;
use std::time::Duration;
use wakeset_fd as fd;

/// A fork closes the gate and moves what is in the table. What a stopped thread puts there only
/// then must move as well, when that thread goes on, be the fork over or not: the child has the
/// kernel's object and none of the state.
pub fn what_is_made_during_a_fork_moves() {
    let make: [(fn() -> Vec<libc::c_int>, usize); 5] = [
        (|| vec![eventfd()], 1),
        (|| vec![epoll()], 1),
        (|| vec![fd::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC).unwrap()], 1),
        (|| own_pipe().to_vec(), 1),
        (|| own_pipe().to_vec(), 2),
    ];
    for ((make, arrival), is_over) in
        make.into_iter().flat_map(|make| [(make, false), (make, true)])
    {
        let (tell, made) = std::sync::mpsc::channel();
        let place = Place { step: "entry_before_put", arrival };
        let maker = Thread::start(Some(place), move || tell.send(make()).unwrap());
        assert_eq!(maker.until_stopped(), Progress::Stopped);
        let fork = fd::fork::prepare();
        if is_over {
            fork.in_parent();
            maker.release();
        } else {
            maker.release();
            // It waits for the fork, as it should, or is through by now.
            std::thread::sleep(Duration::from_millis(10));
            fork.in_parent();
        }
        maker.join().unwrap();
        let numbers = made.recv().unwrap();
        let moved = !numbers.iter().any(|number| fd::descriptor::is_in_process(*number));
        numbers.into_iter().for_each(|number| fd::close(number).unwrap());
        assert!(
            moved,
            "stopped at entry_before_put: what was made during a fork stays in the process"
        );
    }
}

/// What is in a pipe goes before what is written while the pipe moves: that waits until the kernel
/// has it.
pub fn what_is_written_during_a_move_comes_behind() {
    for written in [&b"a"[..], b"abc"] {
        let [reader, writer] = own_pipe();
        write_bytes(writer, written);
        let place = Place { step: "pipe_before_carry", arrival: 1 };
        let mover = Thread::start(Some(place), move || migrate(reader).unwrap());
        assert_eq!(mover.until_stopped(), Progress::Stopped);
        let late = match mover.beside(move || write_bytes(writer, b"z")) {
            Beside::Waits(late) => late,
            Beside::Ended(_) => panic!("stopped at pipe_before_carry: a write does not wait"),
        };
        mover.release();
        mover.join().unwrap();
        late.join().unwrap();
        assert_eq!(read_all(reader), [written, b"z"].concat(), "stopped at pipe_before_carry");
        fd::close(reader).unwrap();
        fd::close(writer).unwrap();
    }
}

/// A number whose close waits for a move is the kernel's to everybody else, and can be added to the
/// set that still watches it. The move then finds the kernel half watching it, which is no loss.
pub fn an_add_beside_a_close_is_no_loss() {
    let (set, number) = (epoll(), eventfd());
    // Both halves: otherwise the add would wait for the move.
    let [reader, writer] = own_pipe();
    migrate(reader).unwrap();
    add(set, reader, IN, 0);
    add(set, number, IN, 1);
    let place = Place { step: "move_sealed", arrival: 1 };
    // The close may come before the duplication itself, which then finds no such number.
    let mover = Thread::start(Some(place), move || drop(migrate(number)));
    assert_eq!(mover.until_stopped(), Progress::Stopped);
    let closer = match mover.beside(move || fd::close(number).unwrap()) {
        Beside::Waits(closer) => closer,
        Beside::Ended(_) => panic!("stopped at move_sealed: a close does not wait"),
    };
    add(set, number, IN, 2);
    let said = said_on_stderr(|| {
        mover.release();
        mover.join().unwrap();
    });
    closer.join().unwrap();
    [set, reader, writer].into_iter().for_each(|number| fd::close(number).unwrap());
    assert_eq!(said, "", "stopped at move_sealed: an add beside a close");
}

/// What is written to standard error meanwhile.
fn said_on_stderr(act: impl FnOnce()) -> String {
    let mut ends = [0; 2];
    // SAFETY: room for two; numbers of our own.
    let own = unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let own = libc::dup(2);
        libc::dup2(ends[1], 2);
        own
    };
    act();
    // SAFETY: as before; nobody else has the writing end.
    let mut reader = unsafe {
        libc::dup2(own, 2);
        libc::close(own);
        libc::close(ends[1]);
        std::fs::File::from_raw_fd(ends[0])
    };
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    said
}
