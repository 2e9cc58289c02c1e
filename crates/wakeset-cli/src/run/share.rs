//! `wakeset run --share`: makes the file that the program's processes count in, for others of the
//! same user to read while they run. This process then becomes the program as ever.

use std::fs;
use std::path::PathBuf;

use super::area;
use super::directory::Directory;
use super::snapshot::{self, Snapshot};

/// Makes the file. Returns what [`wakeset_fd::stats::area::AREA_VARIABLE`] says of it, and its
/// path; or why nothing is shared.
pub fn make() -> Result<(String, PathBuf), String> {
    let directory = Directory::make()?;
    remove_old(&directory);
    let (path, file) = directory
        .create()
        .map_err(|error| format!("no file in {}: {error}", directory.path.display()))?;
    match area::make_shared(&file, &path) {
        Ok(place) => Ok((place, path)),
        Err(error) => {
            let _ = fs::remove_file(&path);
            Err(error.to_string())
        }
    }
}

/// Removes the files of runs all of whose processes have ended. A run's own process has its number
/// from before the file exists, so a fresh one is never taken for old.
fn remove_old(directory: &Directory) {
    for (pid, path, file) in directory.runs() {
        // One that is refused is not ours to remove.
        let Ok(file) = file else { continue };
        if snapshot::is_process(pid) {
            continue;
        }
        let is_old = match Snapshot::of(pid, file) {
            // A process id of another name space says nothing here.
            Ok(mut run) => run.refresh().is_ok_and(|()| run.knows_processes && run.has_ended()),
            // Left by a run that was killed before it had begun, or by another version.
            Err(_) => true,
        };
        if is_old {
            let _ = fs::remove_file(path);
        }
    }
}
