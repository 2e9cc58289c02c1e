//! How a driver starts the process of a side.

use super::{limit, roads, worker};
use crate::outcome::Trace;
use crate::program::{Calls, Profile, Program};
use crate::world::{self, Bug, Side};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

const PRELOAD: &str = "libwakeset_preload.so";

/// How workers are started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// A program that runs a worker when its first argument is [`worker::ARGUMENT`].
    pub executable: PathBuf,
    /// The library of the interposed side.
    pub preload: Option<PathBuf>,
    /// A bug to put into Wakeset's side, to show that it is found.
    pub bug: Option<Bug>,
    /// How much longer Wakeset's side may take for a block than twenty times what the kernel's
    /// takes. One that takes longer does not end.
    pub slack: Duration,
}

impl Setup {
    /// A setup with `executable` and the preload library that cargo has built beside it.
    ///
    /// # Errors
    /// If there is no such executable.
    pub fn new(executable: PathBuf) -> io::Result<Self> {
        let executable = executable.canonicalize()?;
        let places = executable
            .ancestors()
            .skip(1)
            .take(2)
            .flat_map(|dir| [dir.join(PRELOAD), dir.join("deps").join(PRELOAD)]);
        // The newer one: cargo refreshes either, depending on what it was asked to build.
        let preload = places
            .filter(|path| path.is_file())
            .max_by_key(|path| path.metadata().and_then(|it| it.modified()).ok());
        Ok(Self { executable, preload, bug: None, slack: Duration::from_secs(30) })
    }

    pub(super) fn command(
        &self,
        side: Side,
        profile: Profile,
        arguments: &[String],
    ) -> io::Result<Command> {
        let mut command = Command::new(&self.executable);
        // A group of its own, so that its children can be ended with it.
        command.process_group(0);
        command.args([worker::ARGUMENT, "--side", side.name()]).args(arguments);
        if profile.calls == Calls::Engine {
            command.arg("--engine-programs");
        }
        command.args(["--focus", profile.focus.name()]);
        if let Some(bug) = self.bug.filter(|_| side != Side::Kernel) {
            command.args(["--bug", bug.name()]);
        }
        command.env_remove("LD_PRELOAD");
        if side == Side::RoadsInstruction {
            command.env_remove("WAKESET_INSTRUCTIONS");
        } else {
            // A worker makes such calls for itself, and only closes by them what programs make.
            command.env("WAKESET_INSTRUCTIONS", "ignore");
        }
        if side == Side::Interposed {
            command.env("LD_PRELOAD", OsString::from(self.library()?));
        }
        if side.takes_roads() {
            let folder = roads::folder(&self.executable)?;
            command.env(world::FOLDER, folder);
            command.env("LD_PRELOAD", roads::preloads(side, folder, self.library()?));
        }
        Ok(command)
    }

    fn library(&self) -> io::Result<&Path> {
        let missing = || io::Error::other(format!("{PRELOAD} is not built"));
        self.preload.as_deref().ok_or_else(missing)
    }

    /// The trace of some programs on a side, or a text that says how the worker ended if it did not
    /// get that far. It is ended if it does not end.
    ///
    /// # Errors
    /// If the worker could not be started.
    pub fn trace(
        &self,
        side: Side,
        profile: Profile,
        programs: &[Program],
    ) -> io::Result<Result<Trace, String>> {
        self.trace_within(limit::TRACE, side, profile, programs)
    }

    /// The same, for a worker that may take so long.
    pub(super) fn trace_within(
        &self,
        most: Duration,
        side: Side,
        profile: Profile,
        programs: &[Program],
    ) -> io::Result<Result<Trace, String>> {
        let mut child = self
            .command(side, profile, &["--given".to_string()])?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let text = serde_json::to_vec(programs)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut stdin), Some(mut stdout), Some(mut stderr)) = pipes else {
            return Err(io::Error::other("no pipe"));
        };
        let (mut trace, mut complaint) = (Vec::new(), Vec::new());
        let (read, is_late) = limit::within(most, &child, || {
            // If the worker has ended already, its status says so.
            let _ = stdin.write_all(&text);
            drop(stdin);
            thread::scope(|scope| {
                // It would not get on if it had said more than the pipe takes.
                scope.spawn(|| stderr.read_to_end(&mut complaint));
                stdout.read_to_end(&mut trace)
            })
        });
        let status = child.wait()?;
        read?;
        if is_late {
            return Ok(Err(ENDLESS.to_string()));
        }
        if status.success() {
            return Ok(serde_json::from_slice(&trace).map_err(|error| error.to_string()));
        }
        let complaint = String::from_utf8_lossy(&complaint);
        Ok(Err(format!("{}: {}", ending(status), complaint.lines().next().unwrap_or(""))))
    }
}

const ENDLESS: &str = "a call did not return";

/// Whether a worker has ended itself because it was not done in time.
pub(super) fn is_watchdog(status: ExitStatus) -> bool {
    status.signal() == Some(libc::SIGALRM)
}

fn ending(status: ExitStatus) -> String {
    match status.signal() {
        Some(libc::SIGALRM) => ENDLESS.to_string(),
        Some(signal) => format!("signal {signal}"),
        None => format!("{status}"),
    }
}
