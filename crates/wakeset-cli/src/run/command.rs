//! The program that `wakeset run` becomes or starts.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use super::inspect;
use crate::failure::Failure;

/// A program with its arguments as execvp(3) takes them.
pub struct Command {
    arguments: Vec<CString>,
}

impl Command {
    pub fn new(words: &[OsString]) -> Result<Self, Failure> {
        let arguments = words
            .iter()
            .map(|word| CString::new(word.as_bytes()))
            .collect::<Result<_, _>>()
            .map_err(|_| Failure::own("an argument holds a zero byte"))?;
        Ok(Command { arguments })
    }

    /// Becomes the program. Returns only if that fails, with the reason.
    ///
    /// This is execvp(3) itself and not std's `exec`, which would empty the signal mask and reset
    /// SIGPIPE: the program must inherit exactly what this process did.
    pub fn exec(&self) -> io::Error {
        let mut pointers: Vec<_> = self.arguments.iter().map(|a| a.as_ptr()).collect();
        pointers.push(std::ptr::null());
        // SAFETY: both are zero-terminated, and the strings outlive the call.
        unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
        io::Error::last_os_error()
    }

    /// The shell's statuses: 127 when there is no such program, 126 when it cannot be run.
    pub fn failure(&self, error: io::Error) -> Failure {
        let missing = error.raw_os_error() == Some(libc::ENOENT);
        let program = self.arguments[0].to_string_lossy();
        let path = inspect::look_up(OsStr::from_bytes(self.arguments[0].as_bytes()));
        let message = match path {
            Some(path) if missing => {
                format!("cannot run {}: its interpreter does not exist", path.display())
            }
            _ if missing && program.contains('/') => format!("{program}: no such file"),
            _ if missing => format!("{program}: not found in PATH"),
            _ => format!("cannot run {program}: {error}"),
        };
        Failure { status: if missing { 127 } else { 126 }, message }
    }
}
