//! Sets in sets: a set is readable while something in it is ready.

mod limits;
mod reports;

use crate::backend::Backend;
use crate::objects::{
    Counter, Descriptor, ET, Fd, IN, LONG, ONESHOT, OUT, RDNORM, Set, WRNORM, pipe,
    raise_descriptor_limit,
};
use crate::task::Task;
use libc::{EEXIST, EINVAL, ELOOP, ENOENT};
use limits::*;
use reports::*;

on_both!(
    a_set_is_readable_while_something_in_it_is_ready,
    a_set_is_never_writable,
    looking_at_the_outer_set_takes_nothing_from_the_inner_one,
    what_is_drained_meanwhile_is_not_reported,
    an_outer_edge_for_every_write,
    an_inner_edge_taken_by_somebody_else_is_gone,
    an_outer_oneshot_reports_once,
    an_add_below_reaches_the_top,
    a_modify_below_reaches_the_top,
    a_ready_set_can_be_added,
    three_levels_down_level_triggered,
    three_levels_down_edge_triggered,
    three_levels_down_in_every_mixture,
    a_sleeper_at_the_top_is_woken,
    the_same_source_on_two_levels,
    one_set_in_two_outer_sets,
    of_two_sets_the_newest_watch_is_told_first,
    a_removed_inner_set_is_silent,
    a_kernel_descriptor_below,
    a_set_does_not_watch_itself,
    a_circle_is_refused,
    a_refused_set_is_not_watched,
    five_deep_and_no_deeper_from_below,
    five_deep_and_no_deeper_from_above,
    five_deep_and_no_deeper_in_the_middle,
    adding_a_nested_set_twice_exists,
    any_number_of_sets_may_watch_a_source,
    five_hundred_paths_of_one_step,
    a_hundred_paths_of_two_steps,
    fifty_paths_of_three_steps,
    ten_paths_of_four_steps,
    paths_branch,
    a_leaf_that_comes_later_counts_too,
    a_path_that_is_gone_makes_room,
);
