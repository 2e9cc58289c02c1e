//! Finds `libwakeset_preload.so` and puts it into LD_PRELOAD.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::failure::Failure;

/// The dynamic loader's variable, see ld.so(8).
pub const ENVIRONMENT: &str = "LD_PRELOAD";

const FILE_NAME: &str = "libwakeset_preload.so";

/// The interposer that belongs to this binary.
///
/// It is beside the binary, or in `deps` below it, where cargo puts it. The newer of the two is
/// taken, since `cargo build -p` of one crate refreshes only one of them. If there is neither, it
/// is in the prefix that it was installed to.
pub fn find() -> Result<PathBuf, Failure> {
    let executable = own_executable()?;
    let directory = executable.parent().unwrap_or(Path::new("/"));
    let built = [directory.join(FILE_NAME), directory.join("deps").join(FILE_NAME)];
    let installed = directory.join("../lib/wakeset").join(FILE_NAME);
    let age = |path: &Path| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    let newest =
        built.iter().filter_map(|path| Some((age(path)?, path))).max_by_key(|(age, _)| *age);
    let found = match newest {
        Some((_, path)) => path.clone(),
        None => installed.canonicalize().map_err(|_| {
            Failure::own(format!(
                "cannot find {FILE_NAME}: it is neither in {} nor in {}",
                directory.display(),
                installed.display()
            ))
        })?,
    };
    if found.as_os_str().as_bytes().iter().any(|&b| separates(b)) {
        return Err(Failure::own(format!(
            "{} has a space or a colon in its path, which {ENVIRONMENT} cannot express: \
             move it elsewhere",
            found.display()
        )));
    }
    Ok(found)
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
        .map_err(|e| Failure::own(format!("cannot find Wakeset's own executable: {e}")))
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
