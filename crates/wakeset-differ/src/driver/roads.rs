//! The plugins and preloads of the sides that take every road: compiled from `c/`, once in a
//! driver.

use crate::world::Side;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const CALLS: &str = include_str!("../../c/calls.h");
const ROAD: &str = include_str!("../../c/road.c");
const WRAP: &str = include_str!("../../c/wrap.c");

/// A preload that wraps every call, and one that wraps what Wakeset lets pass.
const WRAP_ALL: &str = "wrap_all.so";
const WRAP_OPEN: &str = "wrap_open.so";

/// The libraries: a file, its source, and what is special about it.
const LIBRARIES: [(&str, &str, &str); 6] = [
    ("road_local.so", ROAD, "-Wl,-z,now"),
    ("road_now.so", ROAD, "-Wl,-z,now"),
    ("road_lazy.so", ROAD, "-Wl,-z,lazy"),
    ("road_space.so", ROAD, "-Wl,-z,now"),
    (WRAP_ALL, WRAP, "-DALL"),
    (WRAP_OPEN, WRAP, "-Wl,-z,now"),
];

/// The folder of the libraries, beside this executable.
///
/// # Errors
/// [`ErrorKind::NotFound`] if there is no C compiler; others if it fails.
pub fn folder(executable: &Path) -> io::Result<&'static Path> {
    static FOLDER: OnceLock<Result<PathBuf, (ErrorKind, String)>> = OnceLock::new();
    let build = || build(executable).map_err(|error| (error.kind(), error.to_string()));
    match FOLDER.get_or_init(build) {
        Ok(folder) => Ok(folder),
        Err((kind, why)) => Err(io::Error::new(*kind, why.as_str())),
    }
}

fn build(executable: &Path) -> io::Result<PathBuf> {
    let folder = executable.with_file_name("wakeset-differ-roads");
    std::fs::create_dir_all(&folder)?;
    for (name, source, flag) in LIBRARIES {
        // Another driver may be using the library of that name.
        let unfinished = folder.join(format!("{name}.{}", std::process::id()));
        compile(source, flag, &unfinished)?;
        std::fs::rename(unfinished, folder.join(name))?;
    }
    Ok(folder)
}

fn compile(source: &str, flag: &str, to: &Path) -> io::Result<()> {
    let mut compiler = Command::new("cc")
        .args(["-O2", "-U_FORTIFY_SOURCE", "-shared", "-fPIC", flag, "-o"])
        .arg(to)
        .args(["-x", "c", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = compiler.stdin.take() {
        stdin.write_all(source.replace("#include \"calls.h\"", CALLS).as_bytes())?;
    }
    let output = compiler.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("cc: {said}")))
}

/// `LD_PRELOAD` for a side, with the preload library `ours` in its place among the others.
pub(super) fn preloads(side: Side, folder: &Path, ours: &Path) -> OsString {
    let (all, open) = (folder.join(WRAP_ALL), folder.join(WRAP_OPEN));
    let list: &[&Path] = match side {
        Side::RoadsBefore => &[&all, ours],
        Side::RoadsBehind => &[ours, &open],
        Side::RoadsBeneath => &[ours, &all],
        Side::RoadsPlain => &[&all, &open],
        _ => &[ours],
    };
    let list: Vec<_> = list.iter().map(|path| path.as_os_str()).collect();
    list.join(OsStr::new(":"))
}
