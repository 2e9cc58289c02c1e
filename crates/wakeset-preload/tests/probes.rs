//! The probes of the library: each is a `nop` with a note that tracers read, with the arguments
//! that docs/probes.md says, and the scripts in `tools/` use no others.
//!
//! | variable | meaning |
//! |---|---|
//! | `WAKESET_REQUIRE_ALL=1` | a missing `readelf` is a failure, not a reason to skip. `bpftrace`, and the right to use it, may be missing all the same |

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// The library that these tests were built beside.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test's path");
    test.with_file_name("libwakeset_preload.so")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What `readelf` says of the library; `None`, with a word about it, where there is none.
fn readelf(flags: &[&str]) -> Option<String> {
    match Command::new("readelf").args(flags).arg(library()).output() {
        Ok(output) => {
            assert!(output.status.success());
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let required = std::env::var_os("WAKESET_REQUIRE_ALL").is_some_and(|v| v == "1");
            assert!(!required, "readelf is missing, and WAKESET_REQUIRE_ALL is set");
            eprintln!("skipped: readelf is missing");
            None
        }
        Err(error) => panic!("readelf: {error}"),
    }
}

/// A place in the code where a probe is.
struct Site {
    name: String,
    address: u64,
    arguments: Vec<String>,
}

/// Every place of every probe.
fn sites() -> Option<Vec<Site>> {
    let notes = readelf(&["-nW"])?;
    let mut sites = Vec::new();
    for note in notes.split("Provider: ").skip(1) {
        let after = |key: &str| {
            let line = note.lines().find_map(|line| line.trim().strip_prefix(key));
            line.unwrap_or_else(|| panic!("no {key} in {note}")).trim()
        };
        assert_eq!(note.lines().next(), Some("wakeset"));
        let location = after("Location: 0x").split(',').next().expect("an address");
        sites.push(Site {
            name: after("Name: ").into(),
            address: u64::from_str_radix(location, 16).expect("an address"),
            arguments: after("Arguments: ").split(' ').map(String::from).collect(),
        });
    }
    Some(sites)
}

/// The rows of docs/probes.md: each probe's name, and the sizes of its arguments.
fn documented() -> BTreeMap<String, Vec<String>> {
    let page = fs::read_to_string(root().join("docs/probes.md")).expect("the page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    rows.map(|(name, rest)| {
        let arguments = rest.split(" | ").next().expect("the arguments");
        let sizes = arguments.split(", ").map(|argument| {
            let kind = argument.rsplit_once(": ").expect("NAME: KIND").1;
            String::from(match kind {
                "u64" => "8",
                "u32" => "4",
                "i32" => "-4",
                _ => panic!("{kind} of {argument}"),
            })
        });
        (name.to_string(), sizes.collect())
    })
    .collect()
}

/// What is at an address, in one of the sections of code.
fn nop_at(file: &[u8], sections: &str, address: u64) -> u8 {
    let number = |word: &str| u64::from_str_radix(word, 16).expect("a number");
    let offset = sections.lines().find_map(|line| {
        let (_, section) = line.split_once("] .text")?;
        let words: Vec<_> = section.split_whitespace().collect();
        // The rest of the section's name may be the first of them.
        let kind = words.iter().position(|word| *word == "PROGBITS").expect("code");
        let [start, offset, size] = [1, 2, 3].map(|i| number(words[kind + i]));
        (start..start + size).contains(&address).then(|| address - start + offset)
    });
    file[offset.unwrap_or_else(|| panic!("{address:x} is no code")) as usize]
}

#[test]
fn each_probe_is_a_nop_with_the_documented_arguments() {
    let (Some(sites), Some(sections)) = (sites(), readelf(&["-SW"])) else { return };
    let documented = documented();
    let file = fs::read(library()).expect("the library");
    for Site { name, address, arguments } in &sites {
        assert_eq!(nop_at(&file, &sections, *address), 0x90, "{name} at {address:x}");
        let sizes: Vec<_> = arguments
            .iter()
            .map(|argument| {
                let (size, place) = argument.split_once('@').expect("SIZE@PLACE");
                assert!(place.starts_with(['%', '$']), "{name}: {argument} takes memory");
                size.to_string()
            })
            .collect();
        assert_eq!(Some(&sizes), documented.get(name), "{name}");
    }
    let found: BTreeSet<_> = sites.iter().map(|site| &site.name).collect();
    assert_eq!(found, documented.keys().collect::<BTreeSet<_>>());
    // The notes are not loaded with the library.
    let note = sections.lines().find(|line| line.contains(".note.stapsdt")).expect("the notes");
    assert!(!note.split_whitespace().any(|word| word == "A"), "{note}");
}

/// The scripts, with their text without comments.
fn scripts() -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(root().join("tools")).expect("the scripts").flatten();
    let scripts = entries.map(|entry| entry.path()).map(|path| {
        let text = fs::read_to_string(&path).expect("a script");
        let code = text.split("*/").nth(1).expect("a comment at the top").to_string();
        (path, code)
    });
    scripts.collect()
}

#[test]
fn the_scripts_use_probes_that_exist() {
    let documented = documented();
    let scripts = scripts();
    assert!(scripts.len() >= 3);
    for (path, code) in scripts {
        let blocks: Vec<_> = code.split("usdt:$1:wakeset:").skip(1).collect();
        assert!(!blocks.is_empty(), "{}", path.display());
        for block in blocks {
            let name = block.lines().next().expect("a name");
            let arguments = documented.get(name).unwrap_or_else(|| panic!("no probe {name}"));
            for used in block.split("arg").skip(1) {
                let Some(index) = used.chars().next().and_then(|digit| digit.to_digit(10)) else {
                    continue;
                };
                let (path, index) = (path.display(), index as usize);
                assert!(index < arguments.len(), "{path}: {name} has no arg{index}");
            }
        }
    }
}

/// Why nothing may be traced here: `bpftrace` is missing, or may not do it. Many machines let
/// nobody, and in a container root neither.
fn obstacle(library: &str) -> Option<String> {
    let program = format!("usdt:{library}:wakeset:kick {{ }} BEGIN {{ exit(); }}");
    let mut command = Command::new("bpftrace");
    match command.args(["-e", &program]).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().into()),
        Err(error) => Some(format!("bpftrace: {error}")),
    }
}

/// Compiles the program that reaches every probe; `None`, with a word about it, without a compiler.
fn program() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probes");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/probes.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
    match compiler.arg(&program).arg(source).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(program)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let required = std::env::var_os("WAKESET_REQUIRE_ALL").is_some_and(|v| v == "1");
            assert!(!required, "cc is missing, and WAKESET_REQUIRE_ALL is set");
            eprintln!("skipped: cc is missing");
            None
        }
        Err(error) => panic!("cc: {error}"),
    }
}

/// What the library's probes tell the scripts, where that can be tried: each script runs until it
/// has something to print.
#[test]
fn the_scripts_run_where_programs_may_be_traced() {
    for (path, code) in scripts() {
        // What is not cleared at the end is what the script is about.
        let words = code.split(|c: char| !c.is_alphanumeric() && !"_@".contains(c));
        let mut maps = words.filter(|word| word.starts_with('@'));
        let result = maps.find(|map| !code.contains(&format!("clear({map})"))).expect("a map");
        let name = path.file_name().expect("a name").to_str().expect("UTF-8");
        if !tells(name, &code, result) {
            return;
        }
    }
}

/// A thread that serves a userfaultfd has its turn, and gives it up.
#[test]
fn a_turn_at_a_userfaultfd_is_told() {
    if fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").is_err() {
        eprintln!("skipped: this kernel has no userfaultfd");
        return;
    }
    for turn in [5, 6] {
        let code = format!("usdt:$1:wakeset:turn /arg1 == {turn}/ {{ @faults[arg1] = count(); }}");
        tells(&format!("turn-{turn}.bt"), &code, "@faults");
    }
}

/// Runs a script until it can print its map `result`. Returns whether programs may be traced here,
/// with a word if they may not.
fn tells(name: &str, code: &str, result: &str) -> bool {
    let library = library();
    if let Some(why) = obstacle(library.to_str().expect("UTF-8")) {
        eprintln!("skipped: nothing may be traced here: {why}");
        return false;
    }
    let Some(program) = program() else { return false };
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (script, output) = (scratch.join(name), scratch.join(format!("{name}.out")));
    let soon = format!("{code}\ninterval:ms:100 {{ print({result}); }}\n");
    fs::write(&script, soon).expect("a file");
    let mut tracer = Command::new("bpftrace")
        .args(["-B", "line"])
        .arg(&script)
        .arg(&library)
        .stdin(Stdio::null())
        .stdout(File::create(&output).expect("a file"))
        .stderr(Stdio::null())
        .spawn()
        .expect("it was there before");
    let line = format!("{result}[");
    let has_result = || {
        let said = fs::read_to_string(&output).expect("the output");
        said.contains(&line) || said.contains(&format!("{result}:"))
    };
    // Nothing says when the probes are in place, so the program runs until they are.
    let mut rounds = 0;
    while !has_result() && rounds < 300 {
        let status = Command::new(&program).env("LD_PRELOAD", &library).status();
        assert!(status.expect("it starts").success());
        std::thread::sleep(Duration::from_millis(20));
        rounds += 1;
    }
    let _ = tracer.kill();
    let _ = tracer.wait();
    let said = fs::read_to_string(&output).expect("the output");
    assert!(has_result(), "{name}: nothing in {rounds} rounds:\n{said}");
    true
}
