//! How a driver starts the process of a side.

use super::{roads, worker};
use crate::outcome::Trace;
use crate::program::{Calls, Profile, Program};
use crate::world::{self, Bug, Side};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

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
        Ok(Self { executable, preload, bug: None })
    }

    pub(super) fn command(
        &self,
        side: Side,
        profile: Profile,
        arguments: &[String],
    ) -> io::Result<Command> {
        let mut command = Command::new(&self.executable);
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
    /// get that far.
    ///
    /// # Errors
    /// If the worker could not be started.
    pub fn trace(
        &self,
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
        if let Some(mut stdin) = child.stdin.take() {
            // If the worker has ended already, its status says so.
            let _ = stdin.write_all(&text);
        }
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(serde_json::from_slice(&output.stdout).map_err(|error| error.to_string()));
        }
        let how = ending(output.status);
        let complaint = String::from_utf8_lossy(&output.stderr);
        Ok(Err(format!("{how}: {}", complaint.lines().next().unwrap_or(""))))
    }
}

fn ending(status: ExitStatus) -> String {
    match status.signal() {
        Some(libc::SIGALRM) => "a call did not return".to_string(),
        Some(signal) => format!("signal {signal}"),
        None => format!("{status}"),
    }
}
