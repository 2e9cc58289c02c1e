//! The manual and the completions are in step with the program: what `--help` names is in them, and
//! nothing else is. `examples`: what both show to be typed runs.

#[path = "pages/examples.rs"]
mod examples;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use support::{WAKESET, have, output, scratch};

/// A command: the words after `wakeset`.
type Words = Vec<String>;

/// What `--help` says of a command.
fn help(words: &[String]) -> String {
    output(Command::new(WAKESET).args(words).arg("--help"))
}

/// The long flags that a list describes: those with which a line begins, after a short one or none.
fn flags(list: &str) -> BTreeSet<String> {
    let flag = |line: &str| {
        let line = line.trim_start();
        let long = match line.split_once(", ") {
            Some((short, long)) if short.len() == 2 && short.starts_with('-') => long,
            _ => line,
        };
        let end = long.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let long = &long[..end.unwrap_or(long.len())];
        (long.len() > 2 && long.starts_with("--")).then(|| long.to_string())
    };
    list.lines().filter_map(flag).collect()
}

/// The flags that a help describes.
fn described(help: &str) -> BTreeSet<String> {
    let found = flags(help.split_once("\nOptions:\n").map_or("", |(_, rest)| rest));
    assert!(found.contains("--help"), "{help}");
    found
}

/// The subcommands that a help lists.
fn listed(help: &str) -> Vec<String> {
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let (list, _) = list.split_once("\n\n").unwrap_or((list, ""));
    let entry = |line: &str| {
        let name = line.strip_prefix("  ")?;
        let name = name.split(' ').next().filter(|name| !name.is_empty())?;
        Some(name.to_string())
    };
    list.lines().filter_map(entry).filter(|name| name != "help").collect()
}

/// All commands with their helps.
fn commands() -> BTreeMap<Words, String> {
    let mut found = BTreeMap::new();
    let mut left: Vec<Words> = vec![Vec::new()];
    while let Some(words) = left.pop() {
        let help = help(&words);
        left.extend(listed(&help).into_iter().map(|name| [&words[..], &[name]].concat()));
        found.insert(words, help);
    }
    assert!(found.len() > 15, "{:?}", found.keys());
    found
}

/// The pages in a folder by name, with escapes resolved.
fn pages(folder: &Path) -> BTreeMap<String, String> {
    output(Command::new(WAKESET).arg("man").arg(folder));
    let mut found = BTreeMap::new();
    for section in ["man1", "man7"] {
        for entry in fs::read_dir(folder.join(section)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let text = fs::read_to_string(path).expect("a page");
            let text = ["\\fB", "\\fI", "\\fR"].iter().fold(text, |text, it| text.replace(it, ""));
            let text = text.replace("\\-", "-").replace("\"EXIT STATUS\"", "EXIT STATUS");
            found.insert(name, text);
        }
    }
    found
}

#[test]
fn every_command_has_a_page_with_its_flags() {
    let pages = pages(&scratch("pages-man"));
    let commands = commands();
    let mut names: BTreeSet<_> = ["wakeset.7".to_string()].into();
    for (words, help) in &commands {
        let name = format!("{}.1", [&["wakeset".to_string()], &words[..]].concat().join("-"));
        let page = pages.get(&name).unwrap_or_else(|| panic!("no {name}"));
        let section = |heading: &str| {
            let (_, rest) = page.split_once(&format!(".SH {heading}\n")).unwrap_or(("", ""));
            rest.split("\n.SH ").next().unwrap_or("").to_string()
        };
        assert_eq!(flags(&section("OPTIONS")), described(help), "{name}");
        for subcommand in listed(help) {
            let own = format!("{}-{subcommand}(1)", name.trim_end_matches(".1"));
            assert!(section("SUBCOMMANDS").contains(&own), "{name} does not name {own}");
        }
        for (words, heading) in [
            ("Exit status: ", "EXIT STATUS"),
            ("Environment: ", "ENVIRONMENT"),
            ("Examples:\n", "EXAMPLES"),
        ] {
            assert_eq!(help.contains(words), !section(heading).is_empty(), "{name}: {heading}");
        }
        names.insert(name);
    }
    assert_eq!(pages.into_keys().collect::<BTreeSet<_>>(), names);
}

#[test]
fn every_help_says_its_exit_status_and_environment_and_has_examples() {
    for (words, help) in commands() {
        for needed in ["\nExit status: ", "\nEnvironment: ", "\nExamples:\n  "] {
            assert!(help.contains(needed), "{words:?}: {needed:?}\n{help}");
        }
    }
}

#[test]
fn every_shell_completes_every_command_and_flag() {
    let commands = commands();
    for shell in ["bash", "zsh", "fish"] {
        let script = output(Command::new(WAKESET).args(["completions", shell]));
        let mut words = script.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let hidden = words.find(|word| ["__stress", "__uffd", "__herd"].contains(word));
        assert_eq!(hidden, None, "{shell} completes a hidden command");
        for (words, help) in &commands {
            let own = words.last().map_or("wakeset", |word| word.as_str());
            assert!(script.contains(own), "{shell} does not know {own}");
            for flag in described(help) {
                let spelt = match shell {
                    "fish" => format!("-l {}", flag.trim_start_matches('-')),
                    _ => flag,
                };
                assert!(script.contains(&spelt), "{shell}: {words:?} has no {spelt}");
            }
        }
    }
}

/// bash itself completes a subcommand and a flag.
#[test]
fn bash_completes() {
    if !have("bash") {
        return;
    }
    let script = output(Command::new(WAKESET).args(["completions", "bash"]));
    let complete = |words: &[&str]| {
        let last = words.len() - 1;
        let line = format!(
            "{script}\nCOMP_WORDS=({}); COMP_CWORD={last}\n_wakeset wakeset '{}' '{}'\n\
             echo \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words[last],
            words[last - 1]
        );
        output(Command::new("bash").args(["--norc", "-c", &line])).trim().to_string()
    };
    assert_eq!(complete(&["wakeset", "sys"]), "systemd");
    assert_eq!(complete(&["wakeset", "run", "--ord"]), "--order");
    assert_eq!(complete(&["wakeset", "run", "--order", "li"]), "lifo");
}

/// wakeset(7) has every variable that the sources read, and no other.
#[test]
fn every_variable_is_described() {
    const FOR_TESTS: [&str; 2] = ["WAKESET_ALLOCATIONS", "WAKESET_MUTANT"];
    let mut read = BTreeSet::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in ["wakeset", "wakeset-fd", "wakeset-group", "wakeset-preload", "wakeset-cli"] {
        variables(&crates.join(name).join("src"), &mut read);
    }
    let page = &pages(&scratch("pages-variables"))["wakeset.7"];
    let (_, section) = page.split_once("\n.SH ENVIRONMENT\n").expect("a section");
    let (section, _) = section.split_once("\n.SH ").expect("another section");
    let entries = section.split("\n.TP\n.B ").skip(1);
    let entries = entries.map(|entry| entry.lines().next().expect("a name").to_string());
    let mut described: BTreeSet<_> = entries.collect();
    for of_others in ["LD_PRELOAD", "XDG_RUNTIME_DIR"] {
        assert!(described.remove(of_others), "{of_others}");
    }
    read.retain(|name| !FOR_TESTS.contains(&name.as_str()));
    assert_eq!(described, read);
}

/// The names that stand between quotes, or before an equals sign, in the sources of a folder.
fn variables(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            variables(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source");
        for part in text.split("\"WAKESET_").skip(1) {
            let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
            let end = part.find(|c: char| !is_part(c)).unwrap_or(part.len());
            if part[end..].starts_with('"') {
                found.insert(format!("WAKESET_{}", &part[..end]));
            }
        }
    }
}

#[test]
fn mandoc_finds_nothing_to_mend() {
    if !have("mandoc") {
        return;
    }
    let folder = scratch("pages-lint");
    for name in pages(&folder).into_keys() {
        let section = name.rsplit('.').next().expect("a section").to_string();
        let page = folder.join(format!("man{section}")).join(&name);
        let lint = Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).arg(&page).output();
        let lint = lint.expect("mandoc runs");
        let said = String::from_utf8_lossy(&lint.stdout).into_owned();
        assert!(lint.status.success() && said.is_empty(), "{name}:\n{said}");
    }
}
