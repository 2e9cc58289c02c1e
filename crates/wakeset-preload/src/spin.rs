//! How long threads look for what they wait for before they sleep: what `wakeset run --spin` has
//! put into the environment.

use crate::environment;
use wakeset::{LONGEST_SPIN, set_spin_limit};

/// Before main: `off`, a number of microseconds, or `auto`, as is anything else.
pub(crate) fn start() {
    let Some(value) = environment::get(c"WAKESET_SPIN") else { return };
    match value.to_bytes() {
        b"off" => set_spin_limit(Some(0)),
        value => {
            let micros = str::from_utf8(value).ok().and_then(|value| value.parse().ok());
            set_spin_limit(micros.filter(|micros| *micros <= LONGEST_SPIN));
        }
    }
}
