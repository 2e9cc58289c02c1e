//! How long threads look for what they wait for before they sleep: what `WAKESET_SPIN` says.

use crate::environment;
use wakeset::{LONGEST_SPIN, set_spin_limit};

/// Before main: `off`, a number of microseconds, or `auto`, as is anything else.
pub(crate) fn start() {
    let Some(value) = environment::setting(c"WAKESET_SPIN") else { return };
    let micros = value.to_str().ok().and_then(|value| value.parse().ok());
    match (value.to_bytes(), micros) {
        (b"auto", _) => {}
        (b"off", _) => set_spin_limit(Some(0)),
        (_, Some(micros)) if micros <= LONGEST_SPIN => set_spin_limit(Some(micros)),
        _ => environment::unknown(c"WAKESET_SPIN=", value, "the spin is auto"),
    }
}
