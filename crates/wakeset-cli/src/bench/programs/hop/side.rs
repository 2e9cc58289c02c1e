//! What is compared.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::bench::measure::processor::{choose_processor, pin};
use crate::bench::options::Order;
use crate::failure::Failure;
use crate::run::SPIN_VARIABLE;

/// How a program is run.
#[derive(Clone, Debug, PartialEq)]
pub enum Side {
    /// On one processor
    OneCore,
    /// Left to the scheduler
    Plain,
    /// Under `wakeset run --spin` with this value, left to the scheduler
    Run(String),
}

impl Side {
    /// All sides; without an interposer if `spins` is empty.
    pub fn all(spins: &[String]) -> Vec<Self> {
        let mut sides = vec![Side::OneCore, Side::Plain];
        sides.extend(spins.iter().cloned().map(Side::Run));
        sides
    }

    pub fn name(&self) -> &'static str {
        match self {
            Side::OneCore => "one core",
            Side::Plain => "plain",
            Side::Run(_) => "wakeset run",
        }
    }

    /// What puts the interposer into a program on this side.
    pub fn preload(&self) -> Option<Order> {
        matches!(self, Side::Run(_)).then_some(Order::Auto)
    }

    /// Prepares a program for this side, but for the interposer.
    pub fn apply(&self, command: &mut Command) -> Result<(), Failure> {
        match self {
            Side::OneCore => {
                let processor = choose_processor()
                    .map_err(|e| Failure::own(format!("no processor to run on: {e}")))?;
                // SAFETY: one system call, which is async-signal-safe.
                unsafe { command.pre_exec(move || pin(processor)) };
            }
            Side::Plain => {}
            Side::Run(spin) => {
                command.env(SPIN_VARIABLE, spin);
            }
        }
        Ok(())
    }
}

/// Has the kernel end a program with SIGALRM that still runs after so many seconds.
pub fn end_after(command: &mut Command, seconds: u32) {
    let set_alarm = move || -> io::Result<()> {
        // SAFETY: a number.
        unsafe { libc::alarm(seconds) };
        Ok(())
    };
    // SAFETY: one system call, which is async-signal-safe.
    unsafe { command.pre_exec(set_alarm) };
}
