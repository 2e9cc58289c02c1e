#![no_main]
//! Fuzzes the functions of the crate `wakeset-fd`.

use wakeset_differ::program::Profile;
use wakeset_differ::world::Api;
use wakeset_fuzz::Sides;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    wakeset_fuzz::with(Profile::EVERYTHING, Api::new, |sides: &mut Sides<_>| sides.compare(bytes));
});
