//! What an ELF file takes from others and gives to them, and which libraries it loads.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::instructions::{self, Instructions};
use object::read::elf::{ElfFile64, FileHeader};
use object::{NativeEndian, Object, ObjectSection, ObjectSymbol, elf};

/// What one file says.
#[derive(Default)]
pub struct File {
    /// The functions that it calls in others.
    pub imports: BTreeSet<String>,
    pub exports: BTreeSet<String>,
    /// Whether Go's compiler made it.
    pub is_go: bool,
    /// What calls the kernel past libc.
    pub instructions: Instructions,
}

/// A file that is larger is not read.
const MOST_BYTES: u64 = 1 << 30;

impl File {
    /// `None` for what cannot be read, or is no ELF file of this machine's word size.
    pub fn read(path: &Path) -> Option<Self> {
        if path.metadata().ok()?.len() > MOST_BYTES {
            return None;
        }
        let bytes = fs::read(path).ok()?;
        elf::FileHeader64::<NativeEndian>::parse(&*bytes).ok()?;
        let read = ElfFile64::<NativeEndian>::parse(&*bytes).ok()?;
        let mut file = File::default();
        for symbol in read.dynamic_symbols() {
            let Ok(name) = symbol.name() else { continue };
            let to = if symbol.is_undefined() { &mut file.imports } else { &mut file.exports };
            to.insert(name.to_string());
        }
        // A sanitizer's runtime that is linked statically is not among the dynamic symbols.
        let own = read.symbols().filter(|symbol| symbol.is_definition());
        let runtimes = own.filter_map(|symbol| symbol.name().ok());
        file.exports.extend(runtimes.filter(|name| name.ends_with("san_init")).map(str::to_string));
        file.is_go = read
            .sections()
            .any(|section| matches!(section.name(), Ok(".go.buildinfo" | ".note.go.buildid")));
        file.instructions = instructions::find(&read);
        Some(file)
    }
}

/// The libraries that the dynamic loader would load with a program. It is asked, and runs nothing
/// of the program's.
pub fn libraries(binary: &Path) -> Result<Vec<PathBuf>, String> {
    let loader = crate::run::own_loader().ok_or("this machine's loader is not known")?;
    // Libraries may be found relative to where the file really is ($ORIGIN).
    let binary = binary.canonicalize().map_err(|error| error.to_string())?;
    let output = Command::new(&loader)
        .arg("--list")
        .arg(&binary)
        .env_remove("LD_PRELOAD")
        .env_remove("LD_AUDIT")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", loader.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("it failed");
        return Err(format!("the loader lists no libraries: {said}"));
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// From lines as `libz.so.1 => /lib/libz.so.1 (0x00007f0000000000)`.
fn parse(text: &str) -> Vec<PathBuf> {
    let paths = text.lines().filter_map(|line| {
        let path = line.split_once(" => ").map_or(line, |(_, path)| path).trim();
        let path = path.rsplit_once(" (0x").map_or(path, |(path, _)| path);
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    paths.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_is_understood() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibm.so.6 => /lib/libm.so.6 (0x00007f00)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f01)\n\tlibx.so => not found\n";
        assert_eq!(
            parse(text),
            [PathBuf::from("/lib/libm.so.6"), PathBuf::from("/lib64/ld-linux-x86-64.so.2")]
        );
    }

    #[test]
    fn this_test_imports_from_libc() {
        let own = std::env::current_exe().expect("our own path");
        let file = File::read(&own).expect("an ELF file");
        assert!(file.imports.contains("epoll_create1") && !file.is_go);
        let libraries = libraries(&own).expect("the loader's list");
        assert!(libraries.iter().any(|path| path.ends_with("libc.so.6")), "{libraries:?}");
    }
}
