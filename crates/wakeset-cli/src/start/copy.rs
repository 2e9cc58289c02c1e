//! `wakeset copy-library`: puts the preload library where programs of another root directory find
//! it, as an init container does for the other containers of its pod.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{expressible, find_library};
use crate::failure::{Failure, OWN_FAILURE};
use crate::output::print;

/// How many names for the unfinished copy are tried.
const TRIES: u32 = 16;

/// What `wakeset copy-library` takes.
#[derive(clap::Args)]
#[command(after_help = "\
The copy takes its place at once: a program that starts meanwhile has the old library or the new \
one, and one that runs keeps the one that it has mapped.

Exit status: 0, or 125 if the library is not there or cannot be written.

Environment: no variable is read.

Examples:
  wakeset copy-library /wakeset")]
pub struct CopyOptions {
    /// The directory to copy it into, which has to be there
    #[arg(value_name = "DIRECTORY", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,
}

/// Copies the library, and says what to set.
pub fn copy_library(options: &CopyOptions) -> Result<(), Failure> {
    let library = find_library()?;
    let fail =
        |e: io::Error| Failure::own(format!("cannot copy to {}: {e}", options.directory.display()));
    // What a program is told must not depend on the directory in which it starts.
    let directory = options.directory.canonicalize().map_err(fail)?;
    let to = directory.join(library.file_name().unwrap_or_default());
    expressible(&to)?;
    replace(&library, &to).map_err(fail)?;
    let to = to.display();
    let said = format!(
        "{to}\n\
         Programs that find it there, and are started with LD_PRELOAD={to}, run on Wakeset.\n\
         `wakeset env --library {to}` prints this for shells, containers and pods.\n"
    );
    print(&said, OWN_FAILURE).map(drop)
}

/// Puts a copy in the place of a file that may be in use.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let (mut file, unfinished) = create_beside(to)?;
    let written = io::copy(&mut source, &mut file)
        // Whatever the umask says: other users' programs load it.
        .and_then(|_| file.set_permissions(Permissions::from_mode(0o755)))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&unfinished, to));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// A new file in the same directory. Its name is drawn at random, because process ids are the same
/// in many containers.
fn create_beside(to: &Path) -> io::Result<(File, PathBuf)> {
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..TRIES {
        let path = to.with_extension(format!("so.{:016x}", fastrand::u64(..)));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}
