//! Commands that README.md, CONTRIBUTING.md and docs/ show: the subcommand, the benchmark, the
//! flag, the package, the example and the script exist. What stands in capitals is for the reader
//! to fill in.

use super::markdown::{lines, pages, quoted};
use super::{is_promised, root};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// The help of a subcommand of `wakeset`, asked for once; `None` if there is no such thing.
#[derive(Default)]
struct Help(BTreeMap<Vec<String>, Option<String>>);

impl Help {
    fn of(&mut self, arguments: &[&str]) -> Option<&str> {
        let key: Vec<_> = arguments.iter().map(|word| word.to_string()).collect();
        let answer = self.0.entry(key).or_insert_with(|| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_wakeset"));
            let output = command.args(arguments).arg("--help").output().expect("wakeset runs");
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        });
        answer.as_deref()
    }
}

/// Whether the reader is to put something in its place.
fn is_placeholder(word: &str) -> bool {
    !word.chars().any(|c| c.is_ascii_lowercase())
}

/// What follows the name of the program: its subcommand, a benchmark, flags.
fn check_wakeset(words: &[&str], help: &mut Help) -> Result<(), String> {
    let Some(&subcommand) = words.first() else { return Ok(()) };
    if subcommand.starts_with('-') || is_placeholder(subcommand) || subcommand == "help" {
        return Ok(());
    }
    let mut arguments = vec![subcommand];
    let text = help.of(&arguments).ok_or(format!("no subcommand {subcommand}"))?.to_string();
    if let ("bench", Some(&name)) = (subcommand, words.get(1))
        && !is_placeholder(name)
    {
        // By word: a benchmark is a subcommand or a value, and stands in the help in either case.
        if !text.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == name) {
            return Err(format!("no benchmark {name}"));
        }
        arguments.push(name);
    }
    let text = help.of(&arguments).ok_or(format!("no {arguments:?}"))?;
    // What comes after `--` is another program's.
    for word in words.iter().take_while(|word| **word != "--").filter(|word| word.starts_with("--"))
    {
        let flag = word.trim_start_matches('[').trim_end_matches([']', ',', '.']);
        let flag = flag.split(['=', '[']).next().unwrap_or(flag);
        if flag != "--help" && !text.contains(flag) {
            return Err(format!("{arguments:?} has no {flag}"));
        }
    }
    Ok(())
}

/// A word's successor.
fn after<'a>(words: &[&'a str], word: &str) -> Option<&'a str> {
    words.iter().position(|w| *w == word).and_then(|i| words.get(i + 1)).copied()
}

fn check_cargo(words: &[&str], help: &mut Help) -> Result<(), String> {
    const KNOWN: [&str; 13] = [
        "build", "check", "run", "test", "bench", "fmt", "clippy", "doc", "install", "fuzz", "fix",
        "package", "audit",
    ];
    let mut words = words;
    while let Some(word) = words.first().filter(|word| word.starts_with(['+', '-'])) {
        words = &words[words.len().min(1)..];
        if *word == "--" {
            return Ok(());
        }
    }
    let Some(&subcommand) = words.first() else { return Ok(()) };
    if !KNOWN.contains(&subcommand) && !is_placeholder(subcommand) {
        return Err(format!("cargo has no {subcommand}"));
    }
    let package = after(words, "-p").filter(|name| !is_placeholder(name));
    if let Some(package) = package
        && !root().join("crates").join(package).join("Cargo.toml").exists()
    {
        return Err(format!("no package {package}"));
    }
    if let (Some(package), Some(example)) = (package, after(words, "--example")) {
        let file = root().join("crates").join(package).join(format!("examples/{example}.rs"));
        if !file.exists() {
            return Err(format!("no example {example}"));
        }
    }
    if subcommand == "run"
        && package.is_none_or(|package| package == "wakeset-cli")
        && let Some(i) = words.iter().position(|word| *word == "--")
    {
        return check_wakeset(&words[i + 1..], help);
    }
    Ok(())
}

/// One command, from the name of its program on.
fn check(command: &str, help: &mut Help) -> Result<(), String> {
    // A comment, or another command, ends it.
    let end = [" # ", " #", ";", " | ", " && "].iter().filter_map(|end| command.find(end)).min();
    let words: Vec<_> = command[..end.unwrap_or(command.len())].split_whitespace().collect();
    // `NAME=value`, `nice`, `chrt -r 1` and such may stand before it.
    let Some(i) = words.iter().position(|word| is_program(word)) else { return Ok(()) };
    let (program, rest) = (words[i], &words[i + 1..]);
    match program {
        "wakeset" | "target/release/wakeset" => check_wakeset(rest, help),
        "cargo" => check_cargo(rest, help),
        _ if root().join(program).exists() || is_promised(program) => Ok(()),
        _ => Err(format!("no {program}")),
    }
}

fn is_program(word: &str) -> bool {
    matches!(word, "wakeset" | "target/release/wakeset" | "cargo")
        || (word.starts_with("ci/") || word.starts_with(".ci/") || word.ends_with("/install"))
            && !word.contains('…')
}

/// Whether a page shows commands to type.
fn is_checked(page: &str) -> bool {
    matches!(page, "README.md" | "CONTRIBUTING.md") || page.starts_with("docs/")
}

#[test]
fn every_command_shown_exists() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    let mut help = Help::default();
    for path in pages(&root()) {
        let page =
            path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        let in_crate = page.starts_with("crates/") && page.ends_with("README.md");
        if !is_checked(&page) && !in_crate {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a page");
        for (number, line, code) in lines(&text) {
            let commands: Vec<&str> = match code {
                true => vec![line.trim().trim_start_matches("$ ")],
                // In prose a command is in backquotes, and begins with its program.
                false => quoted(line)
                    .filter(|words| words.split_whitespace().next().is_some_and(is_program))
                    .collect(),
            };
            for command in commands.into_iter().filter(|line| starts_command(line)) {
                count += 1;
                if let Err(error) = check(command, &mut help) {
                    wrong.push(format!("{page}:{number}: `{command}`: {error}"));
                }
            }
        }
    }
    assert!(count > 40, "only {count} commands");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether a line of code is a command of ours: its first word is a program, after variables and
/// what runs another program.
fn starts_command(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| {
        matches!(*word, "nice" | "time" | "chrt" | "-r" | "1") || word.contains('=')
    });
    words.next().is_some_and(is_program)
}

#[test]
fn a_command_that_is_not_there_is_found() {
    let help = &mut Help::default();
    for right in [
        "wakeset run --stats -- ls --no-such-flag",
        "wakeset bench stress --secs 1",
        "wakeset bench NAME",
        "cargo run --release -- demo  # a comment",
        "cargo run --release -p wakeset --example channel",
        "ci/mutants -w",
    ] {
        assert_eq!(check(right, help), Ok(()), "{right}");
    }
    for wrong in [
        "wakeset rum -- ls",
        "wakeset run --no-such-flag -- ls",
        "wakeset bench no-such-benchmark",
        "wakeset bench stress --no-such-flag",
        "cargo run -- no-such-subcommand",
        "cargo run -p no-such-package",
        "cargo run -p wakeset --example no-such-example",
        "ci/no-such-script",
    ] {
        assert!(check(wrong, help).is_err(), "{wrong}");
    }
}
