//! One link flag for the library.

fn main() {
    // Our own calls of our hooks stay in the library: readv(2) of one buffer is our read(2), and
    // not that of a preload before ours, which libc's readv would not call either.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo:rerun-if-changed=build.rs");
}
