//! Programs of our own that a benchmark runs: this executable again, plain or with the interposer
//! preloaded.

use std::io;
use std::os::unix::process::ExitStatusExt;
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
    answer(&mut command(arguments, preload)?, &arguments.join(" "))
}

/// Runs any program to its end and reads the JSON that it prints. Failures call it by this name.
pub fn answer<T: DeserializeOwned>(command: &mut Command, name: &str) -> Result<T, Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::own(format!("{name}: {why}"));
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(|e| failed(&e))?;
    if output.status.signal() == Some(libc::SIGALRM) {
        return Err(failed(&"it did not end in time"));
    }
    if !output.status.success() {
        return Err(failed(&output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| failed(&e))
}

/// Whether a program can be started here and ends well. What it prints is lost.
pub fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// The result of a libc call, or the error that it left in errno.
pub fn checked(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
