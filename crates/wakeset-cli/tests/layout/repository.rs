//! The files of the repository, or of a fixture: paths from its root, and their text.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// The files that a check reads.
pub struct Files(BTreeMap<String, String>);

impl Files {
    /// What git tracks here, and what it would track: a new file counts before its first commit.
    pub fn of_repository() -> Self {
        // As cargo sets it for the run, so that the program can read another clone as well.
        let crate_folder = env::var("CARGO_MANIFEST_DIR").expect("run by cargo");
        let root = Path::new(&crate_folder).join("../..");
        let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let git = Command::new("git").current_dir(&root).args(arguments).output().expect("git");
        assert!(git.status.success(), "{}", String::from_utf8_lossy(&git.stderr));
        let names = String::from_utf8(git.stdout).expect("paths in UTF-8");
        let read = |path: &str| {
            // A tracked file may have been deleted, and a binary one has no lines.
            let text = fs::read_to_string(root.join(path)).ok()?;
            Some((path.to_string(), text))
        };
        let files: BTreeMap<_, _> = names.split_terminator('\0').filter_map(read).collect();
        assert!(files.len() > 100, "{} files", files.len());
        Self(files)
    }

    /// A fixture.
    pub fn of_texts<const N: usize>(texts: [(&str, &str); N]) -> Self {
        Self(texts.into_iter().map(|(path, text)| (path.into(), text.into())).collect())
    }

    /// The text of a file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// All files whose path begins like this, in alphabetical order.
    pub fn below(&self, prefix: &str) -> impl Iterator<Item = (&str, &str)> {
        let files = self.0.iter().filter(move |(path, _)| path.starts_with(prefix));
        files.map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The crates of the workspace that have sources, by folder.
    pub fn crates(&self) -> Vec<String> {
        let name = |(path, _): (&str, &str)| {
            let (name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
            rest.starts_with("src/").then(|| name.to_string())
        };
        let mut names: Vec<_> = self.below("crates/").filter_map(name).collect();
        names.dedup();
        names
    }
}
