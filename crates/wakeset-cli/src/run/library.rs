//! Finds `libwakeset_preload.so` and puts it into LD_PRELOAD.

use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::failure::Failure;

/// The dynamic loader's variable, see ld.so(8).
pub const ENVIRONMENT: &str = "LD_PRELOAD";

const FILE_NAME: &str = "libwakeset_preload.so";

/// Where `make install` has put the library, if it has built this binary.
const LIBDIR: Option<&str> = option_env!("WAKESET_LIBDIR");

/// The interposer that belongs to this binary.
///
/// It is beside the binary, or in `deps` below it, where cargo puts it. The newer of the two is
/// taken, since `cargo build -p` of one crate refreshes only one of them. If there is neither, it
/// is in the prefix that it was installed to.
pub fn find() -> Result<PathBuf, Failure> {
    let executable = own_executable()?;
    let found = find_in(executable.parent().unwrap_or(Path::new("/")), LIBDIR)?;
    expressible(&found)?;
    // SAFETY: it cannot fail.
    let mut trusted = vec![0, unsafe { libc::geteuid() }];
    trusted.extend(executable.metadata().map(|file| file.uid()));
    match doubt(&found, &trusted) {
        Some(why) => Err(Failure::own(format!(
            "{} is refused, because {why}: the library is code that the program runs. Put it \
             where only root, you or the owner of wakeset can change it",
            found.display()
        ))),
        None => Ok(found),
    }
}

/// Which user beside the trusted ones may have put the library there, or may change or replace it.
/// A link can be replaced as well as the file that it names.
fn doubt(library: &Path, trusted: &[u32]) -> Option<String> {
    const OTHERS_WRITE: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let file = library.canonicalize().ok()?;
    let folders = [library.parent()?, file.parent()?];
    for path in [file.as_path()].into_iter().chain(folders) {
        let it = path.metadata().ok()?;
        if !trusted.contains(&it.uid()) {
            return Some(format!("{} belongs to user {}", path.display(), it.uid()));
        }
        // In a folder like /tmp users may make files, but replace only their own.
        if it.mode() & OTHERS_WRITE != 0 && !(it.is_dir() && it.mode() & STICKY != 0) {
            return Some(format!("every user may write to {}", path.display()));
        }
    }
    None
}

/// The library of a binary in `directory` that was built to be installed with `libdir`.
fn find_in(directory: &Path, libdir: Option<&str>) -> Result<PathBuf, Failure> {
    let built = [directory.join(FILE_NAME), directory.join("deps").join(FILE_NAME)];
    let age = |path: &Path| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    let newest =
        built.iter().filter_map(|path| Some((age(path)?, path))).max_by_key(|(age, _)| *age);
    if let Some((_, path)) = newest {
        return Ok(path.clone());
    }
    let near = ["../lib/wakeset", "../lib64/wakeset", "../lib/x86_64-linux-gnu/wakeset", "../lib"];
    let mut installed: Vec<_> = near.iter().map(|place| directory.join(place)).collect();
    installed.extend(libdir.map(PathBuf::from));
    if let Some(path) = installed.iter().find_map(|place| place.join(FILE_NAME).canonicalize().ok())
    {
        return Ok(path);
    }
    let looked =
        built.iter().filter_map(|path| path.parent()).chain(installed.iter().map(AsRef::as_ref));
    Err(Failure::own(missing(looked)))
}

/// Says where the library is not, and what to do.
fn missing<'a>(looked: impl Iterator<Item = &'a Path>) -> String {
    let places: String = looked.map(|place| format!("\n    {}", place.display())).collect();
    format!(
        "cannot find {FILE_NAME}, which was built together with this program. It is not in\
         {places}\n\
         `cargo install` leaves it behind: use `make install PREFIX=DIRECTORY` in Wakeset's \
         source, or copy the library beside the program."
    )
}

/// Whether a preload list can have this path.
pub fn expressible(library: &Path) -> Result<(), Failure> {
    if library.as_os_str().as_bytes().iter().any(|&b| separates(b)) {
        return Err(Failure::own(format!(
            "{} has a space or a colon in its path, which {ENVIRONMENT} cannot express: \
             move it elsewhere",
            library.display()
        )));
    }
    Ok(())
}

/// ld.so(8): the list's items are separated by spaces or colons, which cannot be quoted.
fn separates(byte: u8) -> bool {
    byte == b' ' || byte == b':'
}

fn items(list: &OsStr) -> impl Iterator<Item = &OsStr> {
    list.as_bytes().split(|&b| separates(b)).filter(|item| !item.is_empty()).map(OsStr::from_bytes)
}

/// Where our own executable is.
pub fn own_executable() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .or_else(|error| as_executed().ok_or(error))
        .map_err(|e| Failure::own(format!("cannot find Wakeset's own executable: {e}")))
}

/// The path that this process was executed by, which is known without /proc, too.
fn as_executed() -> Option<PathBuf> {
    // SAFETY: null, or a string that the kernel has put there, and that nobody writes to.
    let path = unsafe {
        let path = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
        (!path.is_null()).then(|| CStr::from_ptr(path))?
    };
    Path::new(OsStr::from_bytes(path.to_bytes())).canonicalize().ok()
}

fn is_ours(item: &OsStr) -> bool {
    Path::new(item).file_name() == Some(OsStr::new(FILE_NAME))
}

fn join<'a>(items: impl Iterator<Item = &'a OsStr>) -> OsString {
    let items: Vec<&[u8]> = items.map(OsStrExt::as_bytes).collect();
    OsString::from_vec(items.join(&b':'))
}

/// The list with `library` last, next to libc; the program's own entries keep their order. What
/// they wrap and pass on reaches it as it would reach libc: OpenJDK's libjsig, for one, must see
/// the handlers that are registered before anything else does. An interposer of ours that is there
/// already is replaced.
pub fn with_ours(list: Option<OsString>, library: &Path) -> OsString {
    let rest = list.unwrap_or_default();
    let rest = items(&rest).filter(|item| !is_ours(item));
    join(rest.chain(std::iter::once(library.as_os_str())))
}

/// The list without the interposer, `None` if nothing is left.
pub fn without_ours(list: Option<OsString>) -> Option<OsString> {
    let list = list?;
    let rest = join(items(&list).filter(|item| !is_ours(item)));
    (!rest.is_empty()).then_some(rest)
}

/// Whether this process was itself started by `wakeset run`.
pub fn is_preloaded() -> bool {
    std::env::var_os(ENVIRONMENT).is_some_and(|list| items(&list).any(is_ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this test's own, with these empty files.
    fn tree(name: &str, files: &[&str]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("wakeset-{}-{name}", std::process::id()));
        for file in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, "").expect("a file");
        }
        root
    }

    #[test]
    fn an_installed_library_is_found() {
        for (i, place) in [
            "bin",
            "bin/deps",
            "lib/wakeset",
            "lib64/wakeset",
            "lib",
            "lib/x86_64-linux-gnu/wakeset",
        ]
        .into_iter()
        .enumerate()
        {
            let file = format!("{place}/{FILE_NAME}");
            let root = tree(&format!("found-{i}"), &["bin/wakeset", &file]);
            let found = find_in(&root.join("bin"), None).expect(place);
            assert_eq!(found, root.join(file).canonicalize().expect("a path"));
            std::fs::remove_dir_all(root).expect("the folder goes");
        }
        let root = tree("libdir", &["bin/wakeset", &format!("odd/{FILE_NAME}")]);
        let libdir = root.join("odd");
        let found = find_in(&root.join("bin"), libdir.to_str()).expect("the libdir");
        assert_eq!(found, libdir.join(FILE_NAME).canonicalize().expect("a path"));
        std::fs::remove_dir_all(root).expect("the folder goes");
    }

    #[test]
    fn a_library_that_others_may_change_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let root = tree("doubt", &[&format!("real/{FILE_NAME}"), "linked/placeholder"]);
        let (folder, library) = (root.join("real"), root.join("real").join(FILE_NAME));
        let link = root.join("linked").join(FILE_NAME);
        std::os::unix::fs::symlink(&library, &link).expect("a link");
        let own = library.metadata().expect("a file").uid();
        let with_mode = |path: &Path, mode: u32, of: &Path| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("ours");
            doubt(of, &[own])
        };

        let why = doubt(&library, &[own + 1]).expect("another user's");
        assert!(why.contains(&format!("belongs to user {own}")), "{why}");
        assert_eq!(doubt(&library, &[own + 1, own]), None);
        assert_eq!(with_mode(&folder, 0o775, &library), None, "its group is trusted");
        assert_eq!(with_mode(&folder, 0o1777, &library), None, "others cannot replace it there");
        assert!(with_mode(&folder, 0o777, &library).is_some(), "others can replace it");
        assert!(doubt(&link, &[own]).is_some(), "and where a link goes to it, too");
        assert_eq!(with_mode(&folder, 0o755, &link), None);
        assert!(with_mode(&root.join("linked"), 0o777, &link).is_some(), "or replace the link");
        assert!(with_mode(&library, 0o757, &library).is_some(), "others can write into it");
        std::fs::remove_dir_all(root).expect("the folder goes");
    }

    #[test]
    fn a_missing_library_is_explained() {
        let root = tree("missing", &["bin/wakeset"]);
        let failure = find_in(&root.join("bin"), Some("/no/such/libdir")).expect_err("no library");
        for part in
            ["bin\n", "bin/deps\n", "/../lib/wakeset\n", "/no/such/libdir\n", "make install"]
        {
            assert!(failure.message.contains(part), "{part}: {}", failure.message);
        }
        std::fs::remove_dir_all(root).expect("the folder goes");
    }

    #[test]
    fn ours_comes_last_and_once() {
        let ours = Path::new("/opt/lib/wakeset/libwakeset_preload.so");
        let with = |list: &str| {
            let list = with_ours(Some(list.into()), ours);
            list.into_string().expect("ASCII")
        };
        assert_eq!(with(""), "/opt/lib/wakeset/libwakeset_preload.so");
        assert_eq!(
            with("libjemalloc.so /old/libwakeset_preload.so::/b.so"),
            "libjemalloc.so:/b.so:/opt/lib/wakeset/libwakeset_preload.so"
        );
        assert_eq!(without_ours(Some("/x/libwakeset_preload.so".into())), None);
        assert_eq!(
            without_ours(Some("/x/libwakeset_preload.so:/b.so".into())),
            Some("/b.so".into())
        );
    }
}
