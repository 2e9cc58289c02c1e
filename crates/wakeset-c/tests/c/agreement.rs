//! The header, the map and the code agree, and so do their versions.

use super::{flags, have, here, output, prefix};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The header without its comments, white space made one blank.
fn header() -> String {
    let mut header = fs::read_to_string(here("include/wakeset.h")).expect("the header");
    while let Some(begin) = header.find("/*") {
        let end = header[begin..].find("*/").expect("the comment's end") + begin + 2;
        header.replace_range(begin..end, " ");
    }
    let lines = header.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// What a type of the header is called in the code.
fn rust_type(c: &str) -> String {
    if c == "..." {
        return "c_long".into();
    }
    let words: Vec<&str> = c.split_whitespace().filter(|word| *word != "struct").collect();
    let (constant, words) = match words.split_first() {
        Some((&"const", rest)) => (true, rest),
        _ => (false, &words[..]),
    };
    let stars = words.last().map_or(0, |word| word.len() - word.trim_start_matches('*').len());
    let pointer = stars > 0;
    let base: Vec<&str> = words.iter().copied().take_while(|word| !word.starts_with('*')).collect();
    // A parameter's name stands last, unless the star is on it.
    let base = if pointer || base.len() == 1 { &base[..] } else { &base[..base.len() - 1] };
    let name = match base {
        ["int"] => "c_int",
        ["unsigned", "int"] => "c_uint",
        ["unsigned", "long"] => "c_ulong",
        ["unsigned"] => panic!("{c}: say which"),
        ["void"] if pointer => "c_void",
        ["void"] => "",
        ["eventfd_t"] => "u64",
        ["uint32_t"] => "u32",
        ["ws_source"] => "Source",
        ["ws_source_ops"] => "SourceOps",
        ["ws_listener_waiter"] => "ListenerWaiter",
        ["ws_fault_pool"] => "FaultPool",
        ["ws_lease"] => "Lease",
        ["ws_lease_holders"] => "LeaseHolders",
        ["ws_ring_writer"] => "SharedWriter",
        ["ws_ring_reader"] => "SharedReader",
        ["ws_epoll_ctl_cmd"] => "Command",
        ["uffd_msg"] => "Message",
        [other] => other,
        _ => panic!("{c}"),
    };
    match (pointer, constant) {
        (true, true) => format!("*const {name}"),
        (true, false) => format!("{}{name}", "*mut ".repeat(stars)),
        (false, _) => name.to_owned(),
    }
}

type Signatures = BTreeMap<String, (Vec<String>, String)>;

/// The functions the header declares, in the types of the code.
fn declared() -> Signatures {
    let header = header();
    let mut found = Signatures::new();
    for statement in header.split([';', '{', '}']) {
        let Some((before, arguments)) = statement.split_once('(') else { continue };
        let Some(at) = before.rfind("ws_") else { continue };
        let (result, name) = before.split_at(at);
        if !before.ends_with(name) || result.contains("typedef") {
            continue;
        }
        let arguments = arguments.trim().trim_end_matches(')');
        let arguments = match arguments {
            "void" => Vec::new(),
            arguments => arguments.split(',').map(|argument| rust_type(argument.trim())).collect(),
        };
        found.insert(name.to_owned(), (arguments, rust_type(&format!("{} ", result.trim()))));
    }
    found
}

/// The files of a folder and of the folders in it.
fn files_below(folder: PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources");
    entries
        .flat_map(|entry| {
            let path = entry.expect("an entry").path();
            if path.is_dir() { files_below(path) } else { vec![path] }
        })
        .collect()
}

/// The functions the code exports.
fn exported() -> Signatures {
    let mut found = Signatures::new();
    for file in files_below(here("src")) {
        let source = fs::read_to_string(file).expect("a source");
        for part in source.split("#[unsafe(no_mangle)]").skip(1) {
            let end = part.find('{').expect("a body");
            let signature = part[..end].split_whitespace().collect::<Vec<_>>().join(" ");
            let (_, signature) = signature.split_once("fn ").expect("a function");
            let (name, rest) = signature.split_once('(').expect("arguments");
            let (arguments, result) = rest.rsplit_once(')').expect("their end");
            let arguments = arguments
                .split(',')
                .filter_map(|argument| Some(argument.split_once(": ")?.1.to_owned()));
            let result = result.trim().strip_prefix("-> ").unwrap_or("").to_owned();
            found.insert(name.to_owned(), (arguments.collect(), result));
        }
    }
    found
}

/// What const means to C the code does not always say: a handle that is only looked at.
fn without_handles((arguments, result): &(Vec<String>, String)) -> (Vec<String>, String) {
    let handle = |name: &String| {
        let handles = ["Source", "FaultPool", "ListenerWaiter"];
        name.strip_prefix("*const ")
            .filter(|rest| handles.contains(rest))
            .map_or(name.clone(), |rest| format!("*mut {rest}"))
    };
    (arguments.iter().map(handle).collect(), handle(result))
}

#[test]
fn the_header_declares_what_the_code_exports() {
    let (declared, exported) = (declared(), exported());
    let names = |signatures: &Signatures| signatures.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&declared), names(&exported));
    assert!(declared.len() > 30, "{declared:?}");
    for (name, signature) in &declared {
        assert_eq!(without_handles(signature), without_handles(&exported[name]), "{name}");
    }
}

#[test]
fn each_function_is_described() {
    let header = fs::read_to_string(here("include/wakeset.h")).expect("the header");
    let mut described = "";
    for line in header.lines() {
        if line.contains("*/") {
            described = "yes";
        } else if line.is_empty() {
            described = "";
        } else if line.contains(" ws_")
            && line.contains('(')
            && !line.starts_with(" *")
            && !line.starts_with("/*")
        {
            assert_eq!(described, "yes", "{line}");
        }
    }
}

#[test]
fn the_map_names_what_the_header_declares() {
    let map = fs::read_to_string(here("wakeset.map")).expect("the map");
    let mut named = BTreeMap::new();
    let mut version = "";
    for line in map.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_suffix(" {") {
            version = name;
        } else if let Some(name) = line.strip_suffix(';').filter(|name| name.starts_with("ws_")) {
            named.insert(name.to_owned(), version.to_owned());
        }
    }
    assert_eq!(named.keys().collect::<Vec<_>>(), declared().keys().collect::<Vec<_>>());

    let Some(prefix) = prefix() else { return };
    if !have("readelf") {
        return;
    }
    let symbols = output(
        Command::new("readelf")
            .args(["--dyn-syms", "--wide"])
            .arg(prefix.join("lib/libwakeset.so")),
    );
    let mut exported = BTreeMap::new();
    for line in symbols.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, _, _, "FUNC", "GLOBAL" | "WEAK", _, section, name] = words[..]
            && section != "UND"
        {
            let (name, version) = name.split_once("@@").unwrap_or((name, "none"));
            exported.insert(name.to_owned(), version.to_owned());
        }
    }
    assert_eq!(exported, named);
    let dynamic = output(
        Command::new("readelf").args(["--dynamic", "--wide"]).arg(prefix.join("lib/libwakeset.so")),
    );
    assert!(dynamic.contains("[libwakeset.so.0]") && dynamic.contains("NODELETE"), "{dynamic}");
}

#[test]
fn one_version_everywhere() {
    let header = fs::read_to_string(here("include/wakeset.h")).expect("the header");
    let part = |name: &str| {
        let line = header
            .lines()
            .find_map(|line| line.strip_prefix(&format!("#define WAKESET_VERSION_{name} ")));
        line.expect("a version").to_owned()
    };
    assert_eq!([part("MAJOR"), part("MINOR"), part("PATCH")].join("."), env!("CARGO_PKG_VERSION"));
    let Some(prefix) = prefix() else { return };
    if have("pkg-config") {
        assert_eq!(flags(prefix, &["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    }
}
