//! The modules of one crate, and which file imports which.

use crate::repository::Files;
use crate::source::{Named, Source};
use std::collections::{BTreeMap, BTreeSet};

/// One file names something that another one defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    pub from: String,
    pub to: String,
    /// The first line that does.
    pub line: usize,
}

/// A crate as one of its roots (`lib.rs`, `main.rs`, a file in `bin/`) declares it.
struct Crate {
    /// Files by module path.
    files: BTreeMap<Vec<String>, String>,
    sources: BTreeMap<String, (Vec<String>, Source)>,
}

/// The folder `src/` of a crate, with a slash at its end.
pub fn folder_of(name: &str) -> String {
    format!("crates/{name}/src/")
}

/// What the files of a crate import from each other, each pair once.
///
/// # Errors
/// A file that cannot be read as Rust.
pub fn imports(files: &Files, name: &str) -> Result<Vec<Import>, String> {
    let folder = folder_of(name);
    let roots = files.below(&folder).map(|(path, _)| path).filter(|path| is_root(&folder, path));
    let mut found = BTreeMap::new();
    for root in roots {
        for import in Crate::read(files, root)?.imports() {
            let line = found.entry((import.from, import.to)).or_insert(import.line);
            *line = import.line.min(*line);
        }
    }
    let import = |((from, to), line)| Import { from, to, line };
    Ok(found.into_iter().map(import).collect())
}

/// Whether a file stands above all rooms.
pub fn is_root(folder: &str, path: &str) -> bool {
    let rest = path.strip_prefix(folder).unwrap_or(path);
    matches!(rest, "lib.rs" | "main.rs") || rest.starts_with("bin/")
}

impl Crate {
    fn read(files: &Files, root: &str) -> Result<Self, String> {
        let mut it = Self { files: BTreeMap::new(), sources: BTreeMap::new() };
        it.read_module(files, root, Vec::new())?;
        Ok(it)
    }

    fn read_module(
        &mut self,
        files: &Files,
        path: &str,
        module: Vec<String>,
    ) -> Result<(), String> {
        let Some(text) = files.text(path) else { return Ok(()) };
        let source = Source::parse(text).map_err(|error| format!("{path}: {error}"))?;
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        // Where the files of the modules are that it declares.
        let below = match file {
            "mod.rs" => folder.to_string(),
            _ if module.is_empty() => folder.to_string(),
            _ => path.trim_end_matches(".rs").to_string(),
        };
        self.files.insert(module.clone(), path.to_string());
        let inside = |inner: &[String]| [module.as_slice(), inner].concat();
        for inline in &source.inline {
            self.files.insert(inside(inline), path.to_string());
        }
        for declared in &source.modules {
            let parts =
                [std::slice::from_ref(&below), declared.module.as_slice()].concat().join("/");
            let places = match &declared.path {
                Some(place) => vec![format!("{folder}/{place}")],
                None => vec![
                    format!("{parts}/{}.rs", declared.name),
                    format!("{parts}/{}/mod.rs", declared.name),
                ],
            };
            let module = [inside(&declared.module), vec![declared.name.clone()]].concat();
            if let Some(place) = places.iter().find(|place| files.text(place).is_some()) {
                self.read_module(files, place, module)?;
            }
        }
        self.sources.insert(path.to_string(), (module, source));
        Ok(())
    }

    fn imports(&self) -> BTreeSet<Import> {
        let mut imports = BTreeSet::new();
        for (from, (module, source)) in &self.sources {
            let uses = source.uses.iter().map(|it| (&it.named, it.name == "*"));
            for (named, is_glob) in uses.chain(source.paths.iter().map(|path| (path, false))) {
                let place = [module.as_slice(), &named.module].concat();
                let Some(segments) = self.absolute(&place, &named.segments) else { continue };
                let to = match is_glob {
                    true => self.files.get(&self.module_of(&segments)).cloned(),
                    false => self.file_of(&segments, 0),
                };
                if let Some(to) = to.filter(|to| to != from) {
                    imports.insert(Import { from: from.clone(), to, line: named.line });
                }
            }
        }
        imports
    }

    /// The segments from the root of the crate on, if the path leads into this crate.
    fn absolute(&self, place: &[String], segments: &[String]) -> Option<Vec<String>> {
        let mut place = place.to_vec();
        let mut rest = segments;
        match segments.first()?.as_str() {
            "crate" => {
                place.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    place.pop();
                    rest = &rest[1..];
                }
            }
            // A module declared here; all else is another crate, or has been imported by `use`.
            first => {
                place.push(first.to_string());
                let is_module = self.files.contains_key(&place);
                place.pop();
                if !is_module {
                    return None;
                }
            }
        }
        place.extend_from_slice(rest);
        Some(place)
    }

    /// The longest beginning of a path that is a module.
    fn module_of(&self, segments: &[String]) -> Vec<String> {
        let lengths = (0..=segments.len()).rev();
        let known = |length: usize| self.files.contains_key(&segments[..length]);
        let length = lengths.into_iter().find(|length| known(*length)).unwrap_or(0);
        segments[..length].to_vec()
    }

    /// The file that defines what the path leads to; names that a module only passes on
    /// (`pub use`) are followed.
    fn file_of(&self, segments: &[String], steps: usize) -> Option<String> {
        let module = self.module_of(segments);
        let file = self.files.get(&module)?;
        let Some(name) = segments.get(module.len()).filter(|_| steps < 8) else {
            return Some(file.clone());
        };
        let (outer, source) = self.sources.get(file)?;
        let inner = &module[outer.len().min(module.len())..];
        if source.defined.contains(&(inner.to_vec(), name.clone())) || source.macros.contains(name)
        {
            return Some(file.clone());
        }
        let here = |named: &&Named| named.module == inner;
        let follow = |named: &Named, rest: &[String]| {
            let path = [&named.segments, rest].concat();
            let path = self.absolute(&module, &path)?;
            (path != segments).then(|| self.file_of(&path, steps + 1)).flatten()
        };
        let mut uses = source.uses.iter().filter(|it| here(&&it.named));
        if let Some(it) = uses.clone().find(|it| it.name == *name) {
            return follow(&it.named, &segments[module.len() + 1..]).or(Some(file.clone()));
        }
        let globbed = uses.by_ref().filter(|it| it.name == "*").find_map(|it| {
            let target = follow(&it.named, &segments[module.len()..])?;
            (self.defines(&target, name)).then_some(target)
        });
        let exported = || self.sources.iter().find(|(_, (_, it))| it.macros.contains(name));
        globbed.or_else(|| Some(exported()?.0.clone())).or(Some(file.clone()))
    }

    fn defines(&self, file: &str, name: &str) -> bool {
        self.sources.get(file).is_some_and(|(_, source)| {
            source.defined.iter().any(|(_, it)| it == name) || source.macros.contains(name)
        })
    }
}
