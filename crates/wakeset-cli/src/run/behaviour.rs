//! What the preload library is told by the environment, and the flags that say it.

use std::ffi::OsString;

use wakeset::LONGEST_SPIN;

use super::{
    INSTRUCTIONS_VARIABLE, MOST_VARIABLE, ORDER_VARIABLE, SPIN_VARIABLE, VERBOSE_VARIABLE,
};

/// The flags of `run`, and of whatever else prepares an environment for a program.
#[derive(clap::Args)]
pub struct Behaviour {
    /// Which of several threads or processes that wait on a listening socket is woken for a
    /// connection
    #[arg(long, value_name = "ORDER", value_enum, default_value_t = Order::Auto)]
    order: Order,
    /// A worker with N or more open connections leaves new ones to an idle worker that has fewer
    /// than N; if there is none, it takes them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    max_connections: Option<u32>,
    /// How long a thread looks for what it waits for before it sleeps: `auto`, as long as that
    /// saves processor time, and about as long as this machine takes to wake a thread at most, 30
    /// to 100 microseconds; `off`; or so many microseconds in each wait, on sockets too
    #[arg(long, value_name = "SPIN", default_value = "auto", value_parser = spin)]
    spin: String,
    /// Say on stderr which library or call made Wakeset leave objects to the kernel
    #[arg(long)]
    verbose: bool,
    /// What happens to a program that makes system calls by instruction, past libc
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Instructions::Catch)]
    instructions: Instructions,
}

impl Behaviour {
    /// The variables that say so, and their values.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![
            (ORDER_VARIABLE, self.order.name().into()),
            (SPIN_VARIABLE, self.spin.clone().into()),
        ];
        if let Some(most) = self.max_connections {
            variables.push((MOST_VARIABLE, most.to_string().into()));
        }
        if self.leaves_instructions() {
            variables.push((INSTRUCTIONS_VARIABLE, "kernel".into()));
        }
        if self.verbose {
            variables.push((VERBOSE_VARIABLE, "1".into()));
        }
        variables
    }

    /// The same for a program that is started here.
    pub fn variables_here(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = self.variables();
        if let Some(off) = spin_here(&self.spin) {
            variables.retain(|(name, _)| *name != SPIN_VARIABLE);
            variables.push(off);
        }
        variables
    }

    /// Whether a program that makes system calls by instruction is left to the kernel.
    pub fn leaves_instructions(&self) -> bool {
        self.instructions == Instructions::Kernel
    }
}

/// The variable that turns `auto` off for a program that is started here, if it has to be: where a
/// control group grants one processor or less (`cpu.max`), a spin would take the time that its
/// waker needs.
pub fn spin_here(spin: &str) -> Option<(&'static str, OsString)> {
    let granted = std::thread::available_parallelism();
    let one = spin == "auto" && granted.is_ok_and(|processors| processors.get() == 1);
    one.then(|| (SPIN_VARIABLE, "off".into()))
}

/// Reads what `--spin` takes.
pub fn spin(value: &str) -> Result<String, String> {
    match value.parse::<u32>() {
        Ok(micros) if micros <= LONGEST_SPIN => Ok(micros.to_string()),
        Err(_) if value == "auto" || value == "off" => Ok(value.to_string()),
        _ => Err(format!("neither auto nor off nor microseconds up to {LONGEST_SPIN}")),
    }
}

/// The orders of `--order`.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Order {
    /// As turns while a worker closes its connections before it waits again, as fifo while it keeps
    /// them open; one that keeps more than an idle one leaves it the next, while they are not short
    Auto,
    /// The one with the fewest open connections; of several, the one that has been idle longest
    Least,
    /// The one that has been idle longest
    Fifo,
    /// The same one for 32 connections, then the one that has been idle longest
    Turns,
    /// The idle one that is first in the queue
    Lifo,
    /// Whichever the kernel wakes for the program's own calls
    Kernel,
}

impl Order {
    /// Its name in the variable.
    fn name(self) -> &'static str {
        match self {
            Order::Auto => "auto",
            Order::Least => "least",
            Order::Fifo => "fifo",
            Order::Turns => "turns",
            Order::Lifo => "lifo",
            Order::Kernel => "kernel",
        }
    }
}

/// What `--instructions` says.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Instructions {
    /// The kernel reports such calls, which makes each system call of the program slower
    Catch,
    /// All its objects are the kernel's
    Kernel,
}
