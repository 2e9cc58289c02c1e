//! One link flag for the library; and where there is no library, says so in one line.

use std::env;

fn main() {
    let of_target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let target = ["ARCH", "POINTER_WIDTH", "OS", "ENV"].map(of_target);
    if target != ["x86_64", "64", "linux", "gnu"] {
        println!(
            "cargo::error=wakeset-preload replaces functions of glibc, with system calls and \
             registers of Linux on 64-bit x86-64: it cannot be built for {}-{} with {} pointers \
             and {}. The engine, the crate `wakeset`, does not need it.",
            target[0], target[2], target[1], target[3]
        );
    }
    // Our own calls of our hooks stay in the library: readv(2) of one buffer is our read(2), and
    // not that of a preload before ours, which libc's readv would not call either.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // What a wait runs through lies together.
    let layout = format!("{}/wait.ld", env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    println!("cargo:rustc-cdylib-link-arg=-T");
    println!("cargo:rustc-cdylib-link-arg={layout}");
    println!("cargo:rerun-if-changed=wait.ld");
    println!("cargo:rerun-if-changed=build.rs");
}
