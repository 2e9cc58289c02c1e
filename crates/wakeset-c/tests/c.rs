//! The library as a C program gets it: installed by `install`, found by pkg-config, compiled
//! against with gcc and clang with warnings as errors.
//!
//! Where a program is missing the test says so and passes; with `WAKESET_REQUIRE_ALL=1` it fails.

#[path = "c/agreement.rs"]
mod agreement;
#[path = "c/manual.rs"]
mod manual;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a program may run before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

const C: [&str; 2] = ["gcc", "clang"];
const CPP: [&str; 2] = ["g++", "clang++"];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Whether a program can be run.
fn have(program: &str) -> bool {
    let found = match Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
    {
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

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a program that has to succeed.
fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}\n{}{}", text(&stdout), text(&stderr));
    text(&stdout)
}

/// The static library that cargo has built for this test.
fn archive() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let built = fs::read_dir(test.parent().expect("a directory")).expect("the build's directory");
    built
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
            name.starts_with("libwakeset_c-") && name.ends_with(".a")
        })
        .max_by_key(|path| {
            path.metadata().and_then(|metadata| metadata.modified()).expect("a time")
        })
        .expect("libwakeset_c.a")
}

/// Installs the library, once; `None` without a C compiler.
fn prefix() -> Option<&'static Path> {
    static PREFIX: OnceLock<Option<PathBuf>> = OnceLock::new();
    let install = || {
        let from = scratch("built");
        fs::create_dir_all(&from).expect("a directory");
        fs::copy(archive(), from.join("libwakeset_c.a")).expect("a copy");
        let prefix = scratch("prefix");
        let _ = fs::remove_dir_all(&prefix);
        let mut command = Command::new(here("install"));
        command
            .arg(format!("--prefix={}", prefix.display()))
            .arg(format!("--from={}", from.display()));
        have("cc").then(|| {
            output(&mut command);
            prefix
        })
    };
    PREFIX.get_or_init(install).as_deref()
}

/// What pkg-config says, or what it would say.
fn flags(prefix: &Path, which: &[&str]) -> Vec<String> {
    if !have("pkg-config") {
        let (include, lib) = (prefix.join("include"), prefix.join("lib"));
        return vec![
            format!("-I{}", include.display()),
            format!("-L{}", lib.display()),
            "-lwakeset".into(),
        ];
    }
    let mut command = Command::new("pkg-config");
    command.args(which).arg("wakeset").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    output(&mut command).split_whitespace().map(String::from).collect()
}

#[derive(Clone, Copy, PartialEq)]
enum Linked {
    Shared,
    Static,
}

/// Flags as a part of a file's name.
fn named(flags: &[&str]) -> String {
    flags.concat().chars().filter(|c| c.is_ascii_alphanumeric() || "-=_".contains(*c)).collect()
}

/// Compiles a file to a program; `None` without this compiler or without any.
fn compile(compiler: &str, source: &Path, extra: &[&str], linked: Linked) -> Option<PathBuf> {
    let prefix = prefix()?;
    if !have(compiler) {
        return None;
    }
    let stem = source.file_stem().and_then(|name| name.to_str()).expect("a name");
    let of_examples = source.ancestors().any(|path| path.ends_with("examples"));
    let name = format!("{}{}", if of_examples { "example-" } else { "" }, stem);
    // Tests run at the same time: each way to compile it has a name of its own.
    let suffix = if linked == Linked::Static { "-static" } else { "" };
    let program =
        scratch(&format!("{name}-{}{suffix}{}", compiler.replace('+', "x"), named(extra)));
    let standard = if compiler.ends_with('+') { "-std=c++11" } else { "-std=c11" };
    let mut command = Command::new(compiler);
    command.args([standard, "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program);
    command.args(extra).arg(source);
    match linked {
        Linked::Shared => {
            command.args(flags(prefix, &["--cflags", "--libs"]));
            command.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
        }
        Linked::Static => {
            command
                .args(flags(prefix, &["--cflags"]))
                .arg(prefix.join("lib/libwakeset.a"))
                .args(["-ldl", "-lm"]);
        }
    }
    output(&mut command);
    Some(program)
}

fn wait(mut child: Child, what: &str) -> Output {
    let end = Instant::now() + PATIENCE;
    while child.try_wait().expect("a child").is_none() {
        if Instant::now() > end {
            child.kill().expect("a child");
            let output = child.wait_with_output().expect("its output");
            panic!("{what} does not end\n{}{}", text(&output.stdout), text(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("its output")
}

/// Runs a program that has to succeed; what it prints.
fn run(command: &mut Command) -> String {
    let what = format!("{command:?}");
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a program");
    let output = wait(child, &what);
    assert!(
        output.status.success(),
        "{what}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Compiles an example with both compilers, and once against the static library; runs each. `check`
/// sees what it prints.
fn example(name: &str, check: impl Fn(&str)) {
    let source = here("examples/c").join(name).with_extension("c");
    for compiler in C {
        if let Some(program) = compile(compiler, &source, &["-pedantic"], Linked::Shared) {
            check(&run(&mut Command::new(program)));
        }
    }
    if let Some(program) = compile(C[0], &source, &[], Linked::Static) {
        check(&run(&mut Command::new(program)));
    }
}

#[test]
fn example_echo() {
    example("echo", |said| assert_eq!(said, "echoed 1000 of 1000 lines\n"));
}

#[test]
fn example_threads() {
    example("threads", |said| assert_eq!(said, "consumed 400000 units of 4 producers\n"));
}

#[test]
fn example_source() {
    example("source", |said| assert_eq!(said, "closed after 200000 items\nafter it: 0 events\n"));
}

#[test]
fn example_shared() {
    example("shared", |said| assert_eq!(said, "100000 units seen in another process\n"));
}

#[test]
fn example_prefork() {
    example("prefork", |said| assert!(said.starts_with("fifo: 400 connections:"), "{said}"));
    let source = here("examples/c/prefork.c");
    let Some(program) = compile("gcc", &source, &[], Linked::Shared) else { return };
    for order in ["lifo", "kernel"] {
        let said = run(Command::new(&program).arg(order));
        assert!(said.starts_with(&format!("{order}: 400 connections:")), "{said}");
    }
}

/// Compiles a test with both compilers and runs it.
fn both(name: &str) {
    for compiler in C {
        let source = here("tests/c").join(name).with_extension("c");
        if let Some(program) = compile(compiler, &source, &["-pedantic"], Linked::Shared) {
            run(&mut Command::new(program));
        }
    }
}

#[test]
fn sources_of_the_program() {
    both("source");
}

#[test]
fn what_linux_does_not_have() {
    both("extensions");
}

#[test]
fn rings() {
    both("rings");
}

#[test]
fn without_a_number_for_a_doorbell() {
    both("limits");
}

/// No access to memory that is not there or not filled in, and nothing lost for good.
#[test]
fn valgrind_has_nothing_to_say() {
    if !have("valgrind") {
        return;
    }
    for (name, arguments) in [("source", &["2"][..]), ("pollfd", &["20"]), ("cancel", &[])] {
        let Some(program) = compile(
            "gcc",
            &here("tests/c").join(name).with_extension("c"),
            &["-g"],
            Linked::Shared,
        ) else {
            return;
        };
        let mut command = Command::new("valgrind");
        command.args([
            "-q",
            "--error-exitcode=9",
            "--child-silent-after-fork=yes",
            "--leak-check=full",
        ]);
        // A forked child forgets what it cannot use.
        let leaks = if name == "source" { "none" } else { "definite" };
        command.args(["--show-leak-kinds=definite", &format!("--errors-for-leak-kinds={leaks}")]);
        run(command.arg(program).args(arguments));
    }
}

#[test]
fn a_set_in_any_loop_misses_nothing() {
    both("pollfd");
}

#[test]
fn signal_handlers_may_signal() {
    both("signals");
}

#[test]
fn a_cancelled_thread_ends() {
    both("cancel");
}

#[test]
fn a_fault_pool_serves_each_fault_once() {
    for compiler in C {
        if let Some(program) =
            compile(compiler, &here("tests/c/faults.c"), &["-pedantic"], Linked::Shared)
        {
            let said = run(&mut Command::new(program));
            assert!(
                said.starts_with("served") || said.starts_with("skipped: userfaultfd"),
                "{said}"
            );
            let required =
                std::env::var_os("WAKESET_REQUIRE_ALL").is_some_and(|value| value == "1");
            assert!(!required || said.starts_with("served"), "{said}");
        }
    }
}

#[test]
fn headers_are_c_plus_plus() {
    for compiler in CPP {
        if let Some(program) =
            compile(compiler, &here("tests/c/plus.cc"), &["-pedantic"], Linked::Shared)
        {
            assert_eq!(run(&mut Command::new(program)), "C++: ok\n");
        }
    }
}

#[test]
fn owners_in_c_plus_plus_close_what_they_own() {
    // Ported source has the kernel's names for Wakeset's functions above this header.
    let kinds: [&[&str]; 4] =
        [&[], &["-DPORTED"], &["-DPORTED", "-DWAKESET_NO_IO_NAMES"], &["-DPORTED", "-std=c++20"]];
    for (compiler, kind) in CPP.iter().flat_map(|compiler| kinds.map(|kind| (compiler, kind))) {
        let flags = [&["-pedantic"], kind].concat();
        let source = here("tests/c/owned.cc");
        if let Some(program) = compile(compiler, &source, &flags, Linked::Shared) {
            assert_eq!(run(&mut Command::new(program)), "C++ owners: ok\n", "{kind:?}");
        }
    }
}

/// A program that uses `<sys/epoll.h>`, and the same with `<wakeset/epoll.h>` in its place: the
/// same output. They state what they expect, so that what the second is held against is known to be
/// right.
fn same_as_kernel(name: &str, flags: &[&str]) {
    let source = here("../wakeset-cli/tests/c").join(name).with_extension("c");
    let plain = scratch(&format!("{name}-kernel{}", named(flags)));
    // The header wants it defined first, as the programs do for themselves.
    let with = [&["-D_GNU_SOURCE=", "-include", "wakeset/epoll.h"], flags].concat();
    let Some(program) = compile("gcc", &source, &with, Linked::Shared) else { return };
    output(
        Command::new("gcc").args(["-O2", "-pthread", "-o"]).arg(&plain).args(flags).arg(&source),
    );
    assert_eq!(run(&mut Command::new(program)), run(&mut Command::new(&plain)));
}

macro_rules! same_as_kernel {
    ($($name:ident),+) => {$(
        #[test]
        fn $name() {
            super::same_as_kernel(stringify!($name), &["-U_FORTIFY_SOURCE"]);
        }
    )+};
}

/// Of the interposer's programs those that say what holds for any way to the same objects. The
/// others are about calls that only an interposer sees: exec, raw system calls, bad pointers,
/// handlers that make any call.
mod switched {
    same_as_kernel!(close, closed, doorbells, eventfd, mixed, moves, semantics, threads, timeouts);

    #[test]
    fn fortified() {
        for name in ["eventfd", "semantics"] {
            super::same_as_kernel(name, &["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]);
        }
    }
}

#[test]
fn asyncio_reads_a_set() {
    let Some(prefix) = prefix() else { return };
    if have("python3") {
        let said = run(Command::new("python3")
            .arg(here("tests/python/loop.py"))
            .arg(prefix.join("lib/libwakeset.so")));
        assert_eq!(said, "2000 units\n2000 units\n");
    }
}
