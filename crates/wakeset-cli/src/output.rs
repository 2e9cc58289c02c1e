//! What the subcommands print on standard output.

use std::io::{self, ErrorKind, Write as _};

use crate::failure::Failure;

/// Prints a text in one piece. Returns whether anybody still reads: one that has read enough is no
/// error, so what is printed again and again ends then, with the status that it has so far.
/// `status` is that of any other failure.
///
/// Where SIGPIPE has its default action, as in a shell's pipeline, the signal has ended this
/// process before that.
pub fn print(text: &str, status: i32) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure { status, message: format!("writing to stdout: {error}") }),
    }
}
