//! Where the program brings its own definitions of functions of libc (`src/glibc.rs`), and what it
//! is linked with for them.

use std::env;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(older_glibc)");
    println!("cargo::rerun-if-changed=build.rs");
    let of_target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let target = ["ARCH", "POINTER_WIDTH", "OS", "ENV"].map(of_target);
    if target != ["x86_64", "64", "linux", "gnu"] || flags.contains("sanitizer") {
        return;
    }
    println!("cargo::rustc-cfg=older_glibc");
    // Old glibcs have the functions of threads and of the loader there, newer ones an empty
    // library.
    for word in ["--no-as-needed", "-l:libpthread.so.0", "-l:libdl.so.2", "--as-needed"] {
        println!("cargo::rustc-link-arg-bins=-Wl,{word}");
    }
}
