#![no_main]
//! Fuzzes the crate `wakeset` alone.

use wakeset_differ::program::Profile;
use wakeset_differ::world::BareEngine;
use wakeset_fuzz::Sides;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    wakeset_fuzz::with(Profile::ENGINE, BareEngine::lock_free, |sides: &mut Sides<_>| {
        sides.compare(bytes)
    });
});
