//! How the C sources are compiled, and programs run.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The library that these tests were built beside.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test's path");
    test.with_file_name("libwakeset_preload.so")
}

/// Runs a tool to its end. `None`, with a word about it, if there is no such tool.
pub fn run_tool(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let required = std::env::var_os("WAKESET_REQUIRE_ALL").is_some_and(|v| v == "1");
            assert!(!required, "{command:?} is missing, and WAKESET_REQUIRE_ALL is set");
            eprintln!("skipped: {command:?} is missing");
            None
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// Where what these tests make goes; `name` keeps tests that run at the same time apart.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("loader");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder.join(name)
}

/// Compiles a source of `tests/c/loader/`. `None` where there is no compiler.
pub fn compile(source: &str, flags: &[&str], to: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/loader");
    // Another test may be running the program of that name, and another process of this test may
    // be compiling it.
    let mine = format!("{to}.{}.{:?}", std::process::id(), std::thread::current().id());
    let (made, unfinished) = (scratch(to), scratch(&mine));
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-U_FORTIFY_SOURCE", "-o"]);
    let output = run_tool(compiler.arg(&unfinished).arg(folder.join(source)).args(flags))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("-ltsan") || said.contains("libtsan") {
        eprintln!("skipped: libtsan is missing");
        return None;
    }
    assert!(output.status.success(), "cc: {said}");
    std::fs::rename(&unfinished, &made).expect("the result");
    Some(made)
}

/// Compiles a source to a shared library.
pub fn shared(source: &str, flags: &[&str], to: &str) -> Option<PathBuf> {
    let flags: Vec<_> = ["-shared", "-fPIC"].iter().chain(flags).copied().collect();
    compile(source, &flags, &format!("{to}.so"))
}

/// The programs look at the kernel's objects by system call instructions, which are not to be seen.
pub fn unseen(command: &mut Command) -> &mut Command {
    command.env("WAKESET_INSTRUCTIONS", "ignore")
}

/// Runs a program to its end; what it printed.
pub fn run(command: &mut Command) -> String {
    let output = unseen(command).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}:\n{text}{said}", output.status);
    text
}
