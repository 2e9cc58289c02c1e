//! Pipes: pipe(7) and pipe(2).

mod blocking;
mod bytes;
mod calls;
mod closed;
mod ends;
mod migration;
mod reports;

use crate::backend::{Kernel, Streams, Wakeset};
use crate::objects::{
    ERR, ET, EXCLUSIVE, Fd, HUP, IN, ONESHOT, OUT, Pipe, RDNORM, Set, WRNORM, own_pair,
};
use crate::signals;
use crate::task::{Task, ended};
use blocking::*;
use bytes::*;
use calls::*;
use closed::*;
use ends::*;
use libc::{EAGAIN, EBADF, EFAULT, EINTR, EINVAL, EPIPE, O_NONBLOCK, c_int};
use migration::*;
use reports::*;
use std::os::fd::AsRawFd;
use std::ptr;

on_both!(
    bytes_come_out_in_order,
    an_empty_one_would_block,
    holds_65536_bytes_written_one_by_one,
    a_small_one_is_full_early,
    writable_means_a_free_page,
    a_short_write_goes_on_in_the_last_page_or_begins_another,
    a_long_write_takes_what_there_is_room_for,
    writes_up_to_pipe_buf_are_in_one_piece,
    each_write_is_an_edge,
    only_a_read_of_a_full_one_is_an_edge_to_the_writer,
    reports_what_it_was_asked_for,
    one_of_two_exclusive_sets_is_woken,
    a_oneshot_watch_reports_once,
    fionread_says_how_much_is_there,
    each_end_is_for_one_direction,
    unknown_flags_are_refused,
    the_last_writer_leaves_what_it_wrote_and_an_end,
    a_hang_up_reaches_a_watch,
    without_a_reader_a_write_fails,
    an_error_reaches_the_writers_watch,
    without_a_reader_an_empty_one_is_broken,
    a_watch_that_comes_late_is_told_of_the_end,
    what_is_left_at_an_end_moves_with_it,
    the_number_of_a_closed_end_is_another_pipes,
    writable_without_a_reader_means_a_free_page,
    a_blocked_read_waits_for_a_write,
    a_blocked_read_ends_with_the_last_writer,
    a_blocked_write_waits_for_a_read,
    one_page_lets_one_writer_go,
    a_signal_interrupts_a_write,
    a_restarting_signal_does_not_end_a_write,
    a_blocked_write_ends_with_the_last_reader,
    writers_that_wait_lose_nothing,
    a_write_goes_on_after_its_number_is_closed,
    one_write_lets_one_reader_go,
    a_read_ends_with_both_ends,
    a_read_goes_on_after_its_number_is_closed,
    a_read_goes_on_when_its_number_is_another_file,
    an_eventfds_read_leaves_the_next_file_alone,
    a_signal_interrupts_a_read,
    a_restarting_signal_does_not,
    nonblocking_can_be_turned_on_and_off,
    nothing_to_read_or_write_is_nothing,
    bad_addresses_are_efault,
    what_cannot_be_stored_stays,
    a_duplicate_is_the_same_pipe,
    a_move_keeps_how_pages_are_filled,
    a_waiter_hears_of_a_write_after_a_move,
    nothing_is_lost_between_threads,
    nothing_is_lost_while_it_moves,
    numbers_are_used_again,
);

fn pipe<B: Streams>(flags: c_int) -> Pipe<B> {
    own_pair(B::pipe2(flags | libc::O_CLOEXEC))
}

fn nonblocking<B: Streams>() -> Pipe<B> {
    pipe(O_NONBLOCK)
}

/// A read of up to `most` bytes.
fn read<B: Streams>(fd: &Fd<B>, most: usize) -> Result<Vec<u8>, c_int> {
    let mut bytes = vec![0; most];
    let n = fd.read(&mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Writes `len` bytes at a time until a write would block; returns the number of writes.
fn fill<B: Streams>(writer: &Fd<B>, len: usize) -> usize {
    let bytes = vec![7; len];
    let mut written = 0;
    loop {
        match writer.write(&bytes) {
            Ok(n) => written += n,
            Err(error) => {
                assert_eq!(error, EAGAIN);
                return written;
            }
        }
    }
}

/// A random walk on both worlds at once, which have to give the same results.
#[test]
fn both_worlds_agree() {
    let mut generator = fastrand::Rng::with_seed(1);
    let mut random = move |n: usize| generator.usize(..n);
    struct World<B: Streams> {
        set: Set<B>,
        reader: Fd<B>,
        writer: Fd<B>,
        same: Option<Fd<B>>,
    }
    impl<B: Streams> World<B> {
        fn new(events: u32) -> Self {
            let (set, (reader, writer)) = (Set::new(), nonblocking());
            set.add(&reader, IN | events, 1);
            set.add(&writer, OUT | events, 2);
            Self { set, reader, writer, same: None }
        }

        fn step(&mut self, what: usize, len: usize, byte: u8) -> String {
            match what {
                0..10 => format!("{:?}", self.writer.write(&vec![byte; len])),
                10..12 => {
                    let bytes: Vec<u8> = (0..len).map(|i| byte.wrapping_add(i as u8)).collect();
                    format!("{:?}", self.writer.write(&bytes))
                }
                12..18 => format!("{:?}", read(&self.reader, len)),
                18 => format!("{:?}", read(&self.reader, 100_000)),
                19 => format!("{:?}", B::bytes_in(self.reader.as_raw_fd())),
                20 => {
                    self.same = Some(self.writer.dup());
                    String::new()
                }
                _ => {
                    let mut ready = self.set.ready();
                    ready.sort_unstable();
                    format!("{ready:?}")
                }
            }
        }
    }
    for round in 0..300 {
        // An edge may be reported twice when it migrates; then the round is over.
        let (events, moves) = if round % 2 == 0 { (ET, 0) } else { (0, round % 4 / 2) };
        let (mut kernel, mut wakeset) =
            (World::<Kernel>::new(events), World::<Wakeset>::new(events));
        let sizes: &[usize] = [
            &[1, 1, 1, 1, 2, 7][..],
            &[8, 64, 512],
            &[1, 100, 512, 511],
            &[8, 64, 512, 4096],
            &[1, 8, 100, 1000, 3000, 5000],
            &[1, 4095, 4096, 2],
        ][random(6)];
        let mut told = Vec::new();
        for _ in 0..random(600) {
            let (len, byte) = (sizes[random(sizes.len())], random(2) as u8);
            let what = match random(26) {
                20 if moves == 0 || random(20) != 0 => 21,
                what => what,
            };
            let [one, other] = [kernel.step(what, len, byte), wakeset.step(what, len, byte)];
            told.push((what, len, byte));
            assert_eq!(one, other, "round {round}: {told:?}");
            if events == ET && !wakeset_fd::descriptor::is_in_process(wakeset.reader.as_raw_fd()) {
                break;
            }
        }
    }
}
