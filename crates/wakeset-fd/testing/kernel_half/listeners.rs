//! Listeners that are there or not, with nothing to do for them but for their alarm, which is what
//! it is in every build: a set that has any is calm.

#[path = "../../src/kernel_half/listeners/rotation/calm/state.rs"]
pub(crate) mod calm;
#[path = "../../src/kernel_half/listeners/rotation/leftover.rs"]
pub(crate) mod leftover;
pub(crate) mod members;
pub(crate) mod rotation;

use core::ffi::c_int;
use core::time::Duration;

pub(crate) mod baton {
    use core::ffi::c_int;

    pub(crate) type Notes = u128;

    pub(crate) fn pass() {}

    pub(crate) fn number() -> c_int {
        -1
    }

    pub(crate) fn make(_: c_int) {}
}

pub(crate) fn order() -> Option<()> {
    None
}

pub(crate) fn is_listener(_: c_int) -> bool {
    false
}

/// Until the listeners are looked at.
const RESCUE: Duration = Duration::from_secs(1);

pub(crate) mod family {
    pub(crate) fn is_apart() -> bool {
        false
    }
}
