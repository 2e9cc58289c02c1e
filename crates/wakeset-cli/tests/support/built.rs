//! What cargo has built beside this test, in one folder, as `make` leaves it in `target/release`.

use std::fs;
use std::path::{Path, PathBuf};

use super::support::WAKESET;

/// The newest file in cargo's folders whose name begins and ends like this.
fn built(begin: &str, end: &str) -> PathBuf {
    let beside = Path::new(WAKESET).parent().expect("a folder");
    let files = [beside.to_path_buf(), beside.join("deps")];
    let files = files.iter().flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    files
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
            name.starts_with(begin) && name.ends_with(end)
        })
        .max_by_key(|path| path.metadata().and_then(|it| it.modified()).expect("a time"))
        .unwrap_or_else(|| panic!("no {begin}{end}"))
}

/// The program, the preload library and the C library, each with what it is called there.
pub fn artefacts() -> [(PathBuf, &'static str); 3] {
    [
        (PathBuf::from(WAKESET), "wakeset"),
        (built("libwakeset_preload", ".so"), "libwakeset_preload.so"),
        (built("libwakeset_c", ".a"), "libwakeset_c.a"),
    ]
}
