//! Programs of our own that a benchmark runs: this executable again, plain or with the interposer
//! preloaded.

use std::io;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;

use crate::bench::options::Order;
use crate::failure::Failure;
use crate::run::{
    INSTRUCTIONS_VARIABLE, ORDER_VARIABLE, OWN_INSTRUCTIONS, PRELOAD_VARIABLE, find_library,
    own_executable, with_ours,
};

/// This executable with these arguments, under the interposer if `preload` says in which order.
pub fn command(arguments: &[String], preload: Option<Order>) -> Result<Command, Failure> {
    let mut command = Command::new(own_executable()?);
    command.args(arguments);
    self::preload(&mut command, preload)?;
    if preload.is_some() {
        command.env(INSTRUCTIONS_VARIABLE, OWN_INSTRUCTIONS);
    }
    Ok(command)
}

/// Sets the environment that puts the interposer into a program, if that is asked for.
pub fn preload(command: &mut Command, preload: Option<Order>) -> Result<(), Failure> {
    if let Some(order) = preload {
        command
            .env(PRELOAD_VARIABLE, with_ours(std::env::var_os(PRELOAD_VARIABLE), &find_library()?));
        command.env(ORDER_VARIABLE, order.name());
    }
    Ok(())
}

/// Runs it to its end and reads the JSON that it prints.
pub fn run<T: DeserializeOwned>(
    arguments: &[String],
    preload: Option<Order>,
) -> Result<T, Failure> {
    let failed =
        |why: &dyn std::fmt::Display| Failure::own(format!("{}: {why}", arguments.join(" ")));
    let mut command = command(arguments, preload)?;
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(|e| failed(&e))?;
    if !output.status.success() {
        return Err(failed(&output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| failed(&e))
}

/// The result of a libc call, or the error that it left in errno.
pub fn checked(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
