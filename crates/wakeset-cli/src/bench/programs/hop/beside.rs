//! Programs that never wait, beside those that are measured.

use std::process::{Child, Command, Stdio};

use super::side::end_after;
use crate::failure::Failure;

/// Such programs, which end with this, or with an alarm if this cannot end them.
pub struct Beside(Vec<Child>);

impl Beside {
    /// Starts so many, for so many seconds at most.
    pub fn start(count: u32, seconds: u32) -> Result<Self, Failure> {
        let mut started = Beside(Vec::new());
        for _ in 0..count {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            end_after(&mut command, seconds);
            let child = command.spawn();
            started.0.push(child.map_err(|e| Failure::own(format!("/bin/sh: {e}")))?);
        }
        Ok(started)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Not yet waited for, so the pid is its own.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
