//! What the tests of pages, environments and the installation share.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program as cargo has built it.
pub const WAKESET: &str = env!("CARGO_BIN_EXE_wakeset");

/// An empty folder of this test's own.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Whether a program can be run; where it cannot, says so, or fails where nothing may be skipped.
pub fn have(program: &str) -> bool {
    let probe = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let found = match probe {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => panic!("{program}: {error}"),
    };
    let required = std::env::var_os("WAKESET_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(found || !required, "{program} is missing, and WAKESET_REQUIRE_ALL is set");
    if !found {
        eprintln!("skipped: {program} is missing");
    }
    found
}

/// What a program that has to succeed prints on stdout.
pub fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [stdout, stderr] = [stdout, stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout
}
