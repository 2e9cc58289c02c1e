//! A worker of `bench herd` as a process of its own, seen from the benchmark.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Stdio};

use super::side::Side;
use super::worker::Served;
use crate::bench::options::Order;
use crate::bench::programs::child;
use crate::failure::Failure;

/// A worker process. Killed when dropped before its end.
pub struct Worker {
    child: Child,
    output: BufReader<ChildStdout>,
    ended: bool,
}

impl Worker {
    /// Returns when it is about to wait.
    pub fn start(side: Side, listener: &OwnedFd) -> Result<Self, Failure> {
        let fd = listener.as_raw_fd();
        let order = side.order.unwrap_or(Order::Fifo);
        let arguments =
            ["__herd", side.way.name(), order.name(), &fd.to_string()].map(String::from);
        let mut command = child::command(&arguments, side.preload.then_some(order))?;
        // SAFETY: fcntl is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                child::checked(libc::fcntl(fd, libc::F_SETFD, 0).into()).map(drop)
            });
        }
        let failed = |e: std::io::Error| Failure::own(format!("a worker: {e}"));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let output = child.stdout.take().ok_or_else(|| Failure::own("a worker has no output"))?;
        let mut worker = Worker { child, output: BufReader::new(output), ended: false };
        let mut line = String::new();
        worker.output.read_line(&mut line).map_err(failed)?;
        if line.trim() != "ready" {
            return Err(Failure::own(format!("a worker said {line:?}")));
        }
        Ok(worker)
    }

    /// Ends it by the end of its input, which it watches beside the listener.
    pub fn end(mut self) -> Result<Served, Failure> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        let read = self.output.read_to_string(&mut text);
        let status = self.child.wait();
        self.ended = true;
        match (read, status) {
            (Ok(_), Ok(status)) if status.success() => serde_json::from_str(&text)
                .map_err(|e| Failure::own(format!("a worker said {text:?}: {e}"))),
            (read, status) => {
                Err(Failure::own(format!("a worker ended with {status:?}, {read:?}")))
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
