//! What is published: each crate is packed without a warning, with its licences and its page, and
//! with nothing that a user of the crate has no use for; every file that names a version of Rust
//! names the same; and what the crates depend on may be linked into them, and asks for no newer
//! Rust.

use std::process::Command;

use serde_json::Value;

use super::support::scratch;
use super::{root, text};

const CRATES: [&str; 7] = [
    "wakeset",
    "wakeset-fd",
    "wakeset-io",
    "wakeset-group",
    "wakeset-preload",
    "wakeset-c",
    "wakeset-cli",
];

#[test]
fn a_package_has_what_it_needs() {
    for name in CRATES {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["package", "--list", "--offline", "--allow-dirty", "-p", name]);
        let output = cargo.current_dir(root()).output().expect("cargo runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("warning"), "{name}: {said}");
        let list = String::from_utf8(output.stdout).expect("paths");
        let files: Vec<_> = list.lines().collect();
        for needed in ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(files.contains(&needed), "{name} has no {needed}");
        }
        let known = ["src/", "tests/", "benches/", "examples/"];
        let own: &[&str] = match name {
            // Modules that the sources have in builds with models.
            "wakeset-fd" => &["testing/"],
            "wakeset-preload" => &["build.rs", "wait.ld"],
            "wakeset-c" => {
                &["include/", "man/", "cmake/", "install", "wakeset.map", "wakeset.pc.in"]
            }
            "wakeset-cli" => &["build.rs", "man/"],
            _ => &[],
        };
        let made = [".cargo_vcs_info.json", "Cargo.lock", "Cargo.toml.orig"];
        let is_known = |file: &&str| {
            known.iter().chain(own).any(|start| file.starts_with(start))
                || made.contains(file)
                || ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"].contains(file)
        };
        let stray: Vec<_> = files.iter().filter(|file| !is_known(file)).collect();
        assert!(stray.is_empty(), "{name}: {stray:?}");
        let manifest = text(&format!("crates/{name}/Cargo.toml"));
        for field in ["description = \"", "keywords = ", "categories = ", "rust-version.workspace"]
        {
            assert!(manifest.contains(field), "{name} has no {field}");
        }
    }
}

/// All of them are packed, with the versions that they ask of each other. What is packed is not
/// built here: crates.io does not have those that others depend on, and all of them take minutes.
#[test]
fn every_crate_is_packed_without_a_warning() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["package", "--workspace", "--exclude", "wakeset-differ", "--no-verify"]);
    cargo.args(["--offline", "--allow-dirty", "--target-dir"]).arg(scratch("documents-package"));
    let output = cargo.current_dir(root()).output().expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning"), "{said}");
    let packed = said.lines().filter(|line| line.trim_start().starts_with("Packaged ")).count();
    assert_eq!(packed, CRATES.len(), "{said}");
}

#[test]
fn one_version_of_rust_everywhere() {
    let manifest = text("Cargo.toml");
    let (_, version) = manifest.split_once("rust-version = \"").expect("a version");
    let version = version.split('"').next().expect("its end");
    for (file, words) in [
        ("rust-toolchain.toml", format!("channel = \"{version}.0\"")),
        ("README.md", format!("Rust {version},")),
        ("CONTRIBUTING.md", format!("Rust {version},")),
        ("docs/limits.md", format!("Rust {version},")),
        ("packaging/oci/Containerfile", format!("FROM rust:{version}-")),
    ] {
        assert!(text(file).contains(&words), "{file} does not say {words}");
    }
}

/// Licences under which a crate may be linked into binaries that are MIT or Apache-2.0.
const PERMISSIVE: [&str; 10] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether one of the choices that an SPDX expression leaves is permissive, in each of its parts.
fn is_permissive(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    expression.split(" AND ").all(|part| {
        let mut choices = part.trim_matches(['(', ')']).split(" OR ");
        choices.any(|choice| PERMISSIVE.contains(&choice.trim()))
    })
}

#[test]
fn dependencies_have_fitting_licences_and_versions_of_rust() {
    assert!(is_permissive("(MIT OR GPL-3.0) AND Unicode-3.0") && is_permissive("MIT/Apache-2.0"));
    assert!(!is_permissive("GPL-3.0") && !is_permissive("MIT AND LGPL-2.1"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--locked", "--offline", "--format-version=1"]);
    cargo.args(["--filter-platform=x86_64-unknown-linux-gnu"]).current_dir(root());
    let output = cargo.output().expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let (own, others): (Vec<_>, Vec<_>) = packages.iter().partition(|it| it["source"].is_null());
    let version = |package: &Value| -> Option<Vec<u32>> {
        let words = package["rust_version"].as_str()?.split('.').chain(["0", "0"]).take(3);
        Some(words.map(|word| word.parse().expect("a number")).collect())
    };
    let ours = version(own[0]).expect("our version of Rust");
    assert!(own.len() > CRATES.len() && others.len() > 20);
    for package in others {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or("none"));
        assert!(is_permissive(licence), "{name}: {licence}");
        assert!(version(package).is_none_or(|needed| needed <= ours), "{name} needs a newer Rust");
    }
}
