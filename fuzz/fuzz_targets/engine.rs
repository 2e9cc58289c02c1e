#![no_main]
//! The crate `wakeset` alone.

use wakeset_differ::generate::Profile;
use wakeset_differ::world::Rust;
use wakeset_fuzz::Sides;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    wakeset_fuzz::with(Profile::Engine, Rust::<wakeset::LockFree>::new, |sides: &mut Sides<_>| sides.compare(bytes));
});
