//! Which worker the next connection goes to by what the workers hold: `--order auto` and `least`,
//! and `--max-connections`.

use super::compile::{Build, compile, scratch};
use super::run::{Runner, TIME_LIMIT, run};

/// Runs a program in this order, which knows what it expects.
fn succeeds(name: &str, order: &str) {
    let Some(program) = compile(name, Build::Plain, name) else { return };
    let file = scratch(&format!("{name}.json"));
    let outcome = run(&program, &[], Runner::Ordered(order, &file), TIME_LIMIT);
    println!("{}", outcome.stdout);
    outcome.expect_success(name);
}

/// Without a count of what workers hold, connections that stay open would go to one worker 32 at a
/// time, or those that are closed to a colder one each time.
#[test]
fn a_worker_keeps_its_place_while_it_holds_nothing() {
    succeeds("keeping", "auto");
}

/// A worker that counted for ever what it had sent to another process would get no more.
#[test]
fn a_worker_that_passes_connections_on_holds_nothing() {
    succeeds("passing", "least");
}

/// A poll(2) that left a connection until its time was up said 0, and had what was there before in
/// `revents`: its program took the listener for ready.
#[test]
fn a_poll_that_leaves_a_connection_says_of_nothing_that_it_is_ready() {
    succeeds("left", "least");
}

fn show(order: &str, what: &str, most: Option<&str>) {
    let name = format!("shares_{what}_{order}_{}", most.unwrap_or("any"));
    let Some(program) = compile("shares", Build::Plain, &name) else { return };
    let file = scratch(&format!("{name}.json"));
    // In these a worker that blocks in accept(2) stays in the kernel's queue.
    let waits = (order == "auto" && most.is_none() || what == "burst").then_some("waits");
    let arguments: Vec<_> = [Some(what), most, waits].into_iter().flatten().collect();
    let runner = match most {
        Some(most) => Runner::Limited(order, most),
        None => Runner::Ordered(order, &file),
    };
    let outcome = run(&program, &arguments, runner, 3 * TIME_LIMIT);
    println!("{order}:\n{}", outcome.stdout);
    assert!(
        outcome.status.success(),
        "{order}, {what}, {}:\n{}{}",
        outcome.status,
        outcome.unexpected(),
        outcome.stderr
    );
}

/// Each worker looked at what it held itself: once connections had come and gone, the numbers that
/// were open differed by a dozen.
#[test]
fn workers_hold_the_same_in_the_order_least() {
    show("least", "even", None);
}

/// The same, as far as the credit goes: a worker in accept(2) stays in the kernel's queue.
#[test]
fn workers_hold_the_same_in_the_automatic_order() {
    show("auto", "even", None);
}

/// Workers that were executed knew nothing of each other, and took whatever they were woken for.
#[test]
fn workers_that_were_executed_hold_the_same() {
    for order in ["auto", "least"] {
        show(order, "executed", None);
    }
}

/// A slot that its worker has left behind would make the others wait for it each time.
#[test]
fn a_worker_that_is_gone_does_not_weigh_on_the_rest() {
    show("least", "gone", None);
}

/// What is shared may be written by any process of the group.
#[test]
fn rubbish_in_what_is_shared_costs_evenness_and_nothing_else() {
    for order in ["auto", "least"] {
        show(order, "rubbish", None);
    }
}

/// The first of several workers that were woken accepted until there was nothing left.
#[test]
fn a_worker_that_accepts_all_leaves_the_rest_to_others() {
    for order in ["auto", "least"] {
        show(order, "burst", None);
    }
}

/// A worker whose timer was due took any connection that it saw, whatever it held; it was taken for
/// busy while it was, and where that ended a wait in which it had stepped back, the first that was
/// asked had the connection.
#[test]
fn workers_with_timers_hold_the_same() {
    for order in ["auto", "least"] {
        show(order, "ticks", None);
    }
}

/// In each order; the first worker of the queue would take all in lifo.
#[test]
fn a_full_worker_takes_none_while_another_is_free() {
    for order in ["auto", "least", "fifo", "turns", "lifo"] {
        show(order, "most", Some("5"));
    }
}
