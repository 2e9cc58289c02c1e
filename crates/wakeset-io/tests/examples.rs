//! The examples do what they say, and end.
#![allow(missing_docs)]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[path = "../examples/echo.rs"]
mod echo;
#[path = "../examples/executor.rs"]
mod executor;
#[path = "../examples/select.rs"]
mod select;
#[path = "../examples/simulator.rs"]
mod simulator;
#[path = "../examples/socket_table.rs"]
mod socket_table;

/// Runs an example, which has to end; only a failing one takes that long.
fn ends(example: fn() -> std::io::Result<()>) {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(example()));
    // An example that panics does not tell.
    told.recv_timeout(Duration::from_secs(60)).expect("it ends").expect("without an error");
}

#[test]
fn an_executor() {
    ends(executor::main);
}

/// The executor alone, above the tasks that show it.
#[test]
fn the_executor_has_150_lines_at_most() {
    let source = include_str!("../examples/executor.rs");
    let (executor, tasks) = source.split_once("\n/// Three tasks: ").expect("what shows it");
    assert!(executor.contains("\nfn run(") && tasks.contains("pub fn main("));
    assert!(executor.lines().count() <= 150, "{} lines", executor.lines().count());
}

#[test]
fn an_echo_server() {
    ends(echo::main);
}

#[test]
fn a_select_over_a_thousand_channels() {
    ends(select::main);
}

#[test]
fn the_clock_of_a_simulator() {
    ends(simulator::main);
}

#[test]
fn the_socket_table_of_a_stack() {
    ends(socket_table::main);
}
