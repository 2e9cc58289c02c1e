//! How the C programs are compiled.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a program is compiled.
#[derive(Clone, Copy, PartialEq)]
pub enum Build {
    Plain,
    /// Calls the checking variants in libc (`__read_chk`, `__poll_chk` and so on) where it can.
    Fortified,
    /// With all its symbols bound before it starts.
    Now,
    /// With AddressSanitizer, where the compiler has it.
    Sanitized,
}

/// Where programs and their output go; `name` keeps tests that run at the same time apart.
pub fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A reason to skip, unless nothing may be skipped.
pub fn missing(what: &str) -> Option<PathBuf> {
    let required = std::env::var_os("WAKESET_REQUIRE_ALL").is_some_and(|v| v == "1");
    assert!(!required, "{what} is missing, and WAKESET_REQUIRE_ALL is set");
    eprintln!("skipped: {what} is missing");
    None
}

/// Compiles `c/SOURCE.c`. `None`, with a word about it, where there is no compiler.
pub fn compile(source: &str, build: Build, to: &str) -> Option<PathBuf> {
    compile_with(source, build, to, &[])
}

/// Where `c/SOURCE.c` is.
pub fn source_of(source: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source).with_extension("c")
}

/// The same, linked with these libraries.
pub fn compile_with(source: &str, build: Build, to: &str, libraries: &[&Path]) -> Option<PathBuf> {
    let program = scratch(to);
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-U_FORTIFY_SOURCE"]);
    match build {
        Build::Plain => _ = compiler.arg("-Wl,-z,lazy"),
        Build::Now => _ = compiler.arg("-Wl,-z,now"),
        Build::Fortified => _ = compiler.arg("-D_FORTIFY_SOURCE=2"),
        Build::Sanitized => _ = compiler.arg("-fsanitize=address"),
    }
    compiler.arg("-pthread").arg("-o").arg(&program).arg(source_of(source)).args(libraries);
    match compiler.output() {
        Ok(output) => {
            let complaints = String::from_utf8_lossy(&output.stderr);
            if build == Build::Sanitized && complaints.contains("-lasan") {
                return missing("libasan");
            }
            assert!(output.status.success(), "cc {source}.c:\n{complaints}");
            Some(program)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => missing("cc"),
        Err(error) => panic!("cc: {error}"),
    }
}

/// Compiles `c/SOURCE.c` to an object that a program can load.
pub fn compile_shared(source: &str, to: &str) -> Option<PathBuf> {
    let object = scratch(to);
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
    compiler.arg(&object).arg(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source).with_extension("c"),
    );
    match compiler.output() {
        Ok(output) => {
            let complaints = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "cc {source}.c:\n{complaints}");
            Some(object)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => missing("cc"),
        Err(error) => panic!("cc: {error}"),
    }
}
