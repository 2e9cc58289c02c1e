//! Which of the runs that share their counts is meant.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::trouble;
use crate::failure::Failure;
use crate::run::{Directory, Snapshot, own_user, printable, runtime_directory_of};

/// The run that a process id or a name means; without either, the only one there is. Of a process
/// that is not the run's first it is that process with its descendants.
pub fn find(target: Option<&str>) -> Result<Snapshot, Failure> {
    let pid = target.and_then(|text| text.parse::<u32>().ok());
    // Only root can look into the directory of another user.
    let owner = pid.and_then(|pid| Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid()));
    let (own, owner) = (own_user(), owner.unwrap_or(own_user()));

    let mut refused = Vec::new();
    let mut found = if owner == own { Vec::new() } else { runs(own, None, &mut refused) };
    found.extend(runs(owner, pid.and_then(runtime_directory_of), &mut refused));
    found.retain(|run| is_meant(run, target, pid));
    refused.iter().for_each(|why| eprintln!("wakeset: {why}"));
    // A run within a run: the inner one is where the process counts.
    if let Some(pid) = pid
        && let Some(inner) = found.iter().position(|run| counts(run, pid))
    {
        let mut run = found.swap_remove(inner);
        run.root = (run.pid != pid).then_some(pid);
        run.refresh().map_err(|error| trouble(format!("the counts of {}: {error}", run.pid)))?;
        return Ok(run);
    }
    let which = || found.iter().map(|run| run.pid.to_string()).collect::<Vec<_>>().join(", ");
    match (found.len(), target) {
        (1, _) => found.pop().ok_or_else(|| trouble("no run")),
        (0, None) => {
            Err(trouble("no program shares its counts: start one by `wakeset run --share`"))
        }
        (0, Some(target)) => Err(trouble(format!(
            "{target} shares no counts: it must be started by `wakeset run --share`, or with \
             WAKESET_STATS=shared"
        ))),
        (_, _) => Err(trouble(format!("several runs, say which: {}", which()))),
    }
}

/// The runs of this user that go on.
pub fn own_runs() -> Vec<Snapshot> {
    runs(own_user(), None, &mut Vec::new())
}

/// The runs of a user that go on.
fn runs(user: u32, named: Option<PathBuf>, refused: &mut Vec<String>) -> Vec<Snapshot> {
    let mut found = Vec::new();
    for directory in Directory::of(user, named) {
        let directory = match directory {
            Ok(directory) => directory,
            Err(why) => {
                refused.push(why);
                continue;
            }
        };
        for (pid, path, file) in directory.runs() {
            let run = file.and_then(|file| {
                let refuse = |why| format!("{} is refused: {why}", path.display());
                let mut run = Snapshot::of(pid, file).map_err(refuse)?;
                run.refresh().map_err(|error| refuse(error.to_string()))?;
                Ok(run)
            });
            match run {
                Ok(run) if run.has_ended() => {}
                Ok(run) => found.push(run),
                Err(why) => refused.push(why),
            }
        }
    }
    found
}

fn is_meant(run: &Snapshot, target: Option<&str>, pid: Option<u32>) -> bool {
    match (target, pid) {
        (_, Some(pid)) => run.pid == pid || counts(run, pid),
        (None, None) => true,
        (Some(target), None) => {
            let mut names = run.images.iter().map(|image| image.summary.name());
            names.any(|name| printable(name) == target)
        }
    }
}

/// Whether the process counts in this run.
fn counts(run: &Snapshot, pid: u32) -> bool {
    run.images.iter().any(|image| image.summary.pid == pid)
}

/// The name of a process that is alive.
pub fn name(pid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(printable(name.trim_ascii_end()))
}
