//! Sets that watch counters and the kernel's descriptors together.

mod fairness;
mod kernel_objects;
mod reports;
mod waiters;

use crate::backend::Backend;
use crate::objects::{
    Counter, ERR, ET, EXCLUSIVE, Fd, HUP, IN, LONG, ONESHOT, OUT, PRI, RDHUP, Report, Set, pipe,
    socket_pair,
};
use crate::task::{Task, ended};
use fairness::*;
use kernel_objects::*;
use libc::EINVAL;
use reports::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use waiters::*;

on_both!(
    both_kinds_are_reported,
    both_kinds_at_once,
    a_sleeper_is_woken_by_either,
    a_sleeper_with_a_limit_is_woken_by_either,
    a_first_pipe_may_come_while_somebody_sleeps,
    a_first_counter_may_come_while_somebody_sleeps,
    edges_of_both_kinds,
    oneshots_of_both_kinds,
    changes_of_both_kinds,
    a_change_hears_of_what_it_asks_for,
    removing_one_kind_leaves_the_other,
    room_for_one_at_a_time_serves_both,
    many_counters_do_not_starve_a_pipe,
    many_pipes_do_not_starve_a_counter,
    a_busy_edge_does_not_starve_a_pipe,
    hang_up_and_error_are_always_reported,
    sockets_report_as_ever,
    one_edge_of_either_kind_wakes_one_waiter,
    exclusive_pipes,
    one_of_three_exclusive_sets_is_woken,
    a_waiter_woken_by_a_socket_does_not_take_the_wake,
    a_mixed_set_in_a_set,
    a_set_of_pipes_only,
    traffic_of_both_kinds_is_complete,
    half_a_pipe_read_is_a_level_and_no_edge,
    the_write_end_of_a_pipe_has_edges_of_its_own,
    urgent_data_is_an_exceptional_condition,
    data_is_no_edge_of_a_watch_for_the_end,
    hang_up_leaves_what_was_sent,
    whatever_can_be_polled_can_be_watched,
    a_server_as_the_page_has_it,
    the_same_pipe_under_two_numbers,
);

/// A set with a counter (data 1) and a pipe's read end (data 2).
struct Mixed<B: Backend> {
    set: Set<B>,
    counter: Counter<B>,
    reader: Fd<B>,
    writer: Fd<B>,
}

fn mixed<B: Backend>(flags: u32) -> Mixed<B> {
    let (set, counter) = (Set::new(), Counter::new(0));
    let (reader, writer) = pipe();
    set.add(&counter, IN | flags, 1);
    set.add(&reader, IN | flags, 2);
    Mixed { set, counter, reader, writer }
}

impl<B: Backend> Mixed<B> {
    /// What is ready, sorted by data: across the two kinds no order is promised.
    #[track_caller]
    fn ready(&self) -> Vec<(u64, u32)> {
        let mut got = self.set.ready();
        got.sort_unstable();
        got
    }

    fn fill_pipe(&self) {
        assert_eq!(self.writer.write(b"x"), Ok(1));
    }

    fn drain_pipe(&self) {
        while self.reader.read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
    }
}
