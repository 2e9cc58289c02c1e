//! What the build script says of a target that the library cannot be built for.

use std::path::Path;
use std::process::Command;

#[test]
fn another_target_is_refused_in_one_line() {
    let script = Path::new(env!("CARGO_TARGET_TMPDIR")).join("build-script");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let mut compile = Command::new(rustc);
    compile.args(["--edition=2024", "-o"]).arg(&script).arg(source);
    assert!(compile.status().expect("rustc runs").success());
    let errors = |arch: &str, width: &str, os: &str, libc: &str| {
        let mut run = Command::new(&script);
        run.env("CARGO_CFG_TARGET_ARCH", arch).env("CARGO_CFG_TARGET_POINTER_WIDTH", width);
        run.env("CARGO_CFG_TARGET_OS", os).env("CARGO_CFG_TARGET_ENV", libc);
        let said = run.output().expect("it runs").stdout;
        let said = String::from_utf8(said).expect("text");
        let errors = said.lines().filter(|line| line.starts_with("cargo::error="));
        errors.map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(errors("x86_64", "64", "linux", "gnu"), [""; 0]);
    for [arch, width, os, libc] in [
        ["aarch64", "64", "linux", "gnu"],
        ["x86_64", "32", "linux", "gnu"],
        ["x86_64", "64", "linux", "musl"],
        ["x86_64", "64", "freebsd", ""],
    ] {
        let errors = errors(arch, width, os, libc);
        assert_eq!(errors.len(), 1, "{arch}: {errors:?}");
        assert!(errors[0].contains(&format!("{arch}-{os}")), "{errors:?}");
    }
}
