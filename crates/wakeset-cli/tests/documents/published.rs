//! What is published: each crate's package has its licences and its page, and nothing that a user
//! of the crate has no use for; and every file that names a version of Rust names the same.

use std::process::Command;

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
            "wakeset-preload" => &["build.rs"],
            "wakeset-c" => {
                &["include/", "man/", "cmake/", "install", "wakeset.map", "wakeset.pc.in"]
            }
            "wakeset-cli" => &["man/"],
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
