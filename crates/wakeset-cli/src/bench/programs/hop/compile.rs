//! Compiles what `bench hop` runs, in directories that go again.

use std::io;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::bench::programs::child::succeeds;
use crate::failure::Failure;

/// A directory with these files, by name and text.
pub fn scratch(files: &[(&str, &str)]) -> io::Result<TempDir> {
    let directory = tempfile::Builder::new().prefix("wakeset-hop-").tempdir()?;
    for (name, text) in files {
        let path = directory.path().join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, text)?;
    }
    Ok(directory)
}

/// Whether a source of this name can be compiled.
pub fn compiles(compiler: &str, options: &[&str], name: &str, source: &str) -> bool {
    scratch(&[(name, source)]).is_ok_and(|directory| {
        succeeds(Command::new(compiler).args(options).arg(name).current_dir(directory.path()))
    })
}

/// Compiles these files; where the result is.
pub fn compile(compiler: &mut Command, files: &[(&str, &str)]) -> Result<TempDir, Failure> {
    let mut compiled = || {
        let directory = scratch(files)?;
        let output = compiler.current_dir(directory.path()).stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(directory);
        }
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr)))
    };
    let name = files.first().map_or("", |(name, _)| name);
    compiled().map_err(|why| Failure::own(format!("cannot compile {name}: {why}")))
}

/// cargo for a package that is not ours: what cargo gave to our own build does not concern it.
pub fn cargo() -> Command {
    let mut command = Command::new("cargo");
    for variable in ["CARGO_TARGET_DIR", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        command.env_remove(variable);
    }
    command
}

/// What a C compiler has to be given for a library that pkg-config knows.
pub fn flags_of(library: &str) -> Result<Vec<String>, Failure> {
    let output = Command::new("pkg-config")
        .args(["--cflags", "--libs", library])
        .stdin(Stdio::null())
        .output()
        .map_err(|why| Failure::own(format!("pkg-config: {why}")))?;
    let flags = String::from_utf8_lossy(&output.stdout);
    Ok(flags.split_whitespace().map(String::from).collect())
}
