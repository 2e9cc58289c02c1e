//! Whether the library gets into a program, and what that calls.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::imports::{self, File};
use super::{Check, Level};
use crate::run::{binary_of, look_up, obstacle};

/// What was found.
pub struct Found {
    pub checks: Vec<Check>,
    /// Whether it calls something that Wakeset answers.
    pub helps: bool,
}

/// Calls that Wakeset answers in process, or for which it chooses the worker, by what they are for.
const ANSWERED: [(&str, &[&str]); 6] = [
    ("eventfds", &["eventfd"]),
    ("timers", &["timerfd_create"]),
    ("pipes", &["pipe", "pipe2"]),
    ("socket pairs", &["socketpair"]),
    ("epoll sets", &["epoll_create", "epoll_create1"]),
    ("listeners", &["accept", "accept4"]),
];

/// What sends every object to the kernel when it is called, and with what it is avoided.
const LEAVING: [(&str, &[&str]); 2] = [
    ("cancels threads", &["pthread_cancel"]),
    ("uses POSIX AIO", &["aio_read", "aio_write", "aio_read64", "aio_write64"]),
];

pub fn look(program: &OsStr) -> Result<Found, String> {
    let shown = Path::new(program).display();
    let path = look_up(program).ok_or(format!("{shown}: no such program"))?;
    let mut checks = vec![];
    if let Some(obstacle) = obstacle(&path) {
        let level = if obstacle.is_served() { Level::Note } else { Level::Bad };
        let check = Check::new(level, "program", obstacle.to_string());
        checks.push(match level {
            Level::Bad => check.means(
                "It runs unchanged. Build it for the machine's C library, dynamically linked and \
                 without privileges, to have it served.",
            ),
            _ => check,
        });
        if level == Level::Bad {
            return Ok(Found { checks, helps: false });
        }
    }
    let Some(binary) = binary_of(&path) else {
        checks.push(
            Check::new(Level::Note, "program", format!("{} cannot be read", path.display()))
                .means("What it calls is not known."),
        );
        return Ok(Found { checks, helps: false });
    };
    checks.push(Check::new(Level::Good, "program", format!("{} is dynamic", binary.display())));
    let (files, more) = files(&binary);
    if let Some(why) = more {
        checks.push(
            Check::new(Level::Note, "libraries", why)
                .means("Only the program's own file was looked at."),
        );
    }
    checks.extend(runtimes(&files));
    checks.extend(by_instruction(&files));
    let helps = calls(&files, &mut checks);
    Ok(Found { checks, helps })
}

/// The program's file and those of its libraries but libc's, and why there may be more.
fn files(binary: &Path) -> (Vec<(PathBuf, File)>, Option<String>) {
    let (libraries, why) = match imports::libraries(binary) {
        Ok(libraries) => (libraries, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let others = libraries.into_iter().filter(|path| !is_libc(path));
    let paths = std::iter::once(binary.to_path_buf()).chain(others);
    let read = paths.filter_map(|path| Some((path.clone(), File::read(&path)?)));
    (read.collect(), why)
}

/// Libc calls itself, not by names that could be replaced; and the loader.
fn is_libc(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    ["libc.so", "libpthread.so", "librt.so", "ld-linux", "libm.so", "libdl.so"]
        .iter()
        .any(|libc| name.starts_with(libc))
}

/// Runtimes that want something, or pass libc.
fn runtimes(files: &[(PathBuf, File)]) -> Vec<Check> {
    let mut checks = Vec::new();
    let imported = |symbol: &str| files.iter().any(|(_, file)| file.imports.contains(symbol));
    let defined = |symbol: &str| files.iter().any(|(_, file)| file.exports.contains(symbol));
    if imported("__asan_init") || defined("__asan_init") {
        checks.push(
            Check::new(Level::Bad, "sanitizer", "it is built with AddressSanitizer").means(
                "It refuses to start under plain `wakeset run`. Preload its runtime first, by \
                 hand: LD_PRELOAD=\"$(gcc -print-file-name=libasan.so) \
                 …/libwakeset_preload.so\". With a runtime linked statically it cannot be run \
                 with Wakeset.",
            ),
        );
    }
    if imported("__tsan_init") || defined("__tsan_init") {
        let check = Check::new(Level::Note, "sanitizer", "it is built with ThreadSanitizer");
        checks.push(check.means("Its reports do not know Wakeset's ordering."));
    }
    if files.first().is_some_and(|(_, file)| file.is_go) {
        checks.push(
            Check::new(Level::Bad, "runtime", "its Go runtime makes system calls without libc")
                .means("Its objects are the kernel's, those of its C code too."),
        );
    }
    checks
}

/// Names of functions that are listed of one file.
const MOST_NAMES: usize = 5;

/// Says which files make system calls past libc. The Go runtime is not told twice.
fn by_instruction(files: &[(PathBuf, File)]) -> Vec<Check> {
    let caught = files.iter().filter(|(_, file)| file.instructions.count > 0 && !file.is_go);
    let check = |(path, file): &(PathBuf, File)| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let functions = &file.instructions.functions;
        let mut names: Vec<_> = functions.iter().take(MOST_NAMES).cloned().collect();
        if functions.len() > MOST_NAMES {
            names.push(format!("{} more functions", functions.len() - MOST_NAMES));
        }
        let places =
            if names.is_empty() { "functions without names".into() } else { names.join(", ") };
        let what = format!("{name}: {} in {places}", file.instructions.count);
        Check::new(Level::Note, "by instruction", what).means(
            "These system calls pass libc. Where the kernel can report them they are answered all \
             the same, each some 4 µs later, and every other call some 40 ns; else, and with \
             `--instructions kernel`, the program's objects are the kernel's.",
        )
    };
    caught.map(check).collect()
}

/// Says what is called by which file. Returns whether something of it is answered.
fn calls(files: &[(PathBuf, File)], checks: &mut Vec<Check>) -> bool {
    let callers = |names: &[&str]| -> BTreeSet<String> {
        let calls = |file: &File| names.iter().any(|name| file.imports.contains(*name));
        let callers = files.iter().filter(|(_, file)| calls(file));
        callers.filter_map(|(path, _)| Some(path.file_name()?.to_string_lossy().into())).collect()
    };
    let list = |callers: BTreeSet<String>| callers.into_iter().collect::<Vec<_>>().join(", ");
    let mut helps = false;
    for (what, names) in ANSWERED {
        let callers = callers(names);
        if !callers.is_empty() {
            helps = true;
            checks.push(Check::new(Level::Good, "calls", format!("{what}: {}", list(callers))));
        }
    }
    if !helps {
        checks.push(Check::new(Level::Note, "calls", "none that Wakeset answers").means(
            "Wakeset has nothing to do for it, unless it loads modules later, as interpreters do: \
             `wakeset run --stats` counts what it really does.",
        ));
    }
    for (what, names) in LEAVING {
        let callers = callers(names);
        if !callers.is_empty() {
            let check = Check::new(Level::Note, "calls", format!("{what}: {}", list(callers)));
            checks.push(check.means(
                "When it does, every object goes to the kernel and stays there: \
                 `wakeset run --stats` says whether it did.",
            ));
        }
    }
    helps
}
