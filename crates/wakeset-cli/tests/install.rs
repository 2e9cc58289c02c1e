//! `make install` into a scratch directory: what it installs can be used from there, and `make
//! uninstall` leaves nothing of it.
//!
//! Where a program is missing the test says so and passes; with `WAKESET_REQUIRE_ALL=1` it fails.

#[path = "support/built.rs"]
mod built;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use built::artefacts;
use support::{have, output, scratch};

const PREFIX: &str = "/opt/wakeset";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder with what `make` would have built.
fn from() -> &'static Path {
    static FROM: OnceLock<PathBuf> = OnceLock::new();
    FROM.get_or_init(|| {
        let folder = scratch("install-from");
        for (file, name) in artefacts() {
            fs::copy(file, folder.join(name)).expect("a copy");
        }
        folder
    })
}

/// `make TARGET` with a scratch DESTDIR.
fn make(target: &str, destdir: &Path, more: &[&str]) {
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(root()).arg(target).args(more);
    make.arg(format!("PREFIX={PREFIX}")).arg(format!("DESTDIR={}", destdir.display()));
    output(make.arg(format!("FROM={}", from().display())));
}

fn have_tools() -> bool {
    ["make", "bash", "cc", "objcopy", "gzip"].iter().all(|tool| have(tool))
}

/// What is below a folder, and what a link leads to.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Option<PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(tree(&path));
        }
        found.insert(path.clone(), fs::read_link(&path).ok());
    }
    found
}

/// Compiles one of the repository's C programs.
fn compile(source: &str, to: &Path, flags: &[String]) {
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-pthread", "-o"]).arg(to).arg(root().join(source)).args(flags);
    output(&mut cc);
}

/// Runs a program under the installed `wakeset run`, and returns what its processes counted.
fn counts(wakeset: &Path, program: &Path, arguments: &[&str]) -> serde_json::Value {
    let file = program.with_extension("json");
    let mut run = Command::new(wakeset);
    run.arg("run").arg(format!("--stats-file={}", file.display())).arg("--").arg(program);
    output(run.args(arguments).env_remove("LD_PRELOAD"));
    serde_json::from_str(&fs::read_to_string(file).expect("counts")).expect("JSON")
}

#[test]
fn everything_goes_and_nothing_else() {
    if !have_tools() {
        return;
    }
    let destdir = scratch("install-leaves-nothing");
    let shared = destdir.join("opt/wakeset/share/man/man1");
    fs::create_dir_all(&shared).expect("a folder");
    fs::write(shared.join("other.1"), "of another package").expect("a file");
    let before = tree(&destdir);
    make("install", &destdir, &[]);
    // Once more, as an upgrade does.
    make("install-debug", &destdir, &[]);
    let installed = tree(&destdir);
    let prefix = destdir.join("opt/wakeset");
    for file in [
        "bin/wakeset",
        "lib/wakeset/libwakeset_preload.so",
        "lib/libwakeset.a",
        "lib/pkgconfig/wakeset.pc",
        "lib/cmake/wakeset/wakeset-config.cmake",
        "lib/cmake/wakeset/wakeset-config-version.cmake",
        "lib/debug/opt/wakeset/bin/wakeset.debug",
        "include/wakeset.h",
        "include/wakeset/epoll.h",
        "include/wakeset/wakeset.hpp",
        "share/man/man1/wakeset.1.gz",
        "share/wakeset/metrics/wakeset-dashboard.json",
        "share/wakeset/metrics/wakeset-rules.yml",
        "share/man/man1/wakeset-run.1.gz",
        "share/man/man3/ws_epoll_wait.3.gz",
        "share/man/man7/wakeset.7.gz",
        "share/bash-completion/completions/wakeset",
        "share/zsh/site-functions/_wakeset",
        "share/fish/vendor_completions.d/wakeset.fish",
    ] {
        assert!(installed.contains_key(&prefix.join(file)), "{file} is missing");
    }
    let leads = |file: &str| installed[&prefix.join(file)].clone().expect("a link");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(leads("lib/libwakeset.so"), Path::new("libwakeset.so.0"));
    assert_eq!(leads("lib/libwakeset.so.0"), PathBuf::from(format!("libwakeset.so.{version}")));
    // Another package's file, which has come since.
    fs::write(prefix.join("share/fish/other"), "").expect("a file");
    make("uninstall", &destdir, &[]);
    fs::remove_file(prefix.join("share/fish/other")).expect("it was left alone");
    fs::remove_dir(prefix.join("share/fish")).expect("only its folder is left");
    assert_eq!(tree(&destdir), before);
}

#[test]
fn nothing_installed_has_line_tables() {
    if !have_tools() || !have("readelf") {
        return;
    }
    let destdir = scratch("install-bare");
    make("install-debug", &destdir, &[]);
    let prefix = destdir.join("opt/wakeset");
    let has_lines = |file: PathBuf| {
        output(Command::new("readelf").args(["-S", "-W"]).arg(file)).contains(".debug_line")
    };
    assert!(has_lines(from().join("wakeset")), "the test's own program has none: it shows nothing");
    for (file, debug) in [
        ("bin/wakeset", "bin/wakeset"),
        ("lib/wakeset/libwakeset_preload.so", "lib/wakeset/libwakeset_preload.so"),
        ("lib/libwakeset.so", "lib/libwakeset.so.0.1.0"),
    ] {
        assert!(!has_lines(prefix.join(file)), "{file} has line tables");
        let debug = format!("lib/debug{PREFIX}/{debug}.debug");
        assert!(has_lines(prefix.join(&debug)), "{debug} has none");
    }
    assert!(!has_lines(prefix.join("lib/libwakeset.a")), "libwakeset.a has line tables");
}

#[test]
fn a_program_is_run_from_there() {
    if !have_tools() {
        return;
    }
    // Debian's folder for libraries, too.
    for (name, libdir) in [("lib", "lib"), ("multiarch", "lib/x86_64-linux-gnu")] {
        let destdir = scratch(&format!("install-run-{name}"));
        make("install", &destdir, &[&format!("LIBDIR={PREFIX}/{libdir}")]);
        let program = destdir.join("stress");
        compile("crates/wakeset-cli/tests/c/stress.c", &program, &[]);
        let wakeset = destdir.join("opt/wakeset/bin/wakeset");
        let counts = counts(&wakeset, &program, &["2", "1000"]);
        assert_eq!(counts["total"]["kept"], 3, "two eventfds and a set: {counts}");
        // Without its library it says so, and does not run the program without a word.
        let library = format!("opt/wakeset/{libdir}/wakeset/libwakeset_preload.so");
        fs::remove_file(destdir.join(library)).expect("the library");
        let mut run = Command::new(&wakeset);
        let said = run.args(["run", "--"]).arg(&program).output().expect("wakeset runs");
        let text = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(125), "{text}");
        assert!(text.contains(libdir) && text.contains("make install"), "{text}");
    }
}

#[test]
fn a_c_program_is_built_by_pkg_config() {
    if !have_tools() || !have("pkg-config") {
        return;
    }
    let destdir = scratch("install-pkg-config");
    make("install", &destdir, &[]);
    let lib = destdir.join("opt/wakeset/lib");
    let flags = output(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "wakeset"])
            .env("PKG_CONFIG_LIBDIR", lib.join("pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", &destdir),
    );
    let flags: Vec<_> = flags.split_whitespace().map(str::to_string).collect();
    let program = destdir.join("echo");
    compile("crates/wakeset-c/examples/c/echo.c", &program, &flags);
    let said = output(Command::new(&program).env("LD_LIBRARY_PATH", &lib));
    assert_eq!(said, "echoed 1000 of 1000 lines\n");
}

#[test]
fn a_c_program_is_built_by_cmake() {
    if !have_tools() || !have("cmake") {
        return;
    }
    let destdir = scratch("install-cmake");
    make("install", &destdir, &[]);
    let project = destdir.join("project");
    fs::create_dir(&project).expect("a folder");
    let source = root().join("crates/wakeset-c/examples/c/echo.c");
    let text = format!(
        "cmake_minimum_required(VERSION 3.13)\n\
         project(try C)\n\
         find_package(Threads REQUIRED)\n\
         find_package(wakeset 0.1 REQUIRED CONFIG)\n\
         foreach(kind wakeset static)\n\
             add_executable(echo-${{kind}} {source})\n\
             target_link_libraries(echo-${{kind}} wakeset::${{kind}} Threads::Threads)\n\
         endforeach()\n\
         find_package(wakeset 1.0 QUIET CONFIG)\n\
         if(wakeset_FOUND)\n\
             message(FATAL_ERROR \"a newer version than there is was found\")\n\
         endif()\n",
        source = source.display()
    );
    fs::write(project.join("CMakeLists.txt"), text).expect("a file");
    let build = project.join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&project).arg("-B").arg(&build);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", destdir.join("opt/wakeset").display()));
    output(&mut configure);
    output(Command::new("cmake").arg("--build").arg(&build));
    for program in ["echo-wakeset", "echo-static"] {
        assert_eq!(output(&mut Command::new(build.join(program))), "echoed 1000 of 1000 lines\n");
    }
}
