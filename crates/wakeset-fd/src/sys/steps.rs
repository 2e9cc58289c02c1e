//! Named points for the build with `cfg(wakeset_steps)`, as in the engine's `steps.rs`. In every
//! other build [`step!`] is nothing.

/// Reaches a step.
macro_rules! step {
    ($name:ident) => {
        #[cfg(wakeset_steps)]
        wakeset::steps::reach(wakeset::steps::Point::Step(stringify!($name)));
        // An unknown name does not compile.
        #[cfg(wakeset_steps)]
        let _ = $crate::sys::steps::name::$name;
    };
}

/// As in the engine, for what is not one of its locks but is waited for like one.
macro_rules! step_lock {
    ($change:ident, $what:expr) => {
        #[cfg(wakeset_steps)]
        wakeset::steps::reach(wakeset::steps::Point::$change(core::ptr::from_ref($what).addr()));
    };
}

/// A wait for one of these is over.
macro_rules! step_waited {
    () => {
        #[cfg(wakeset_steps)]
        wakeset::steps::reach(wakeset::steps::Point::Waited);
    };
}

pub(crate) use {step, step_lock, step_waited};

#[cfg(wakeset_steps)]
pub use list::*;

#[cfg(wakeset_steps)]
mod list {
    wakeset::steps! {
        // objects/counter.rs; from attempt_… on objects/migratable.rs
        write_before_moment write_in_moment write_moment_done write_moment_over read_before_moment
        read_in_moment attempt_before_section attempt_in_section attempt_sealed attempt_settled
        // objects/pipe
        pipe_before_carry
        // table
        entry_before_put use_counted object_ended use_before_end use_ended entry_vacated number_lost
        // table/duplicates.rs, calls/duplicate.rs
        one_number_closed number_duplicated
        // table/hidden.rs
        hidden_before_close
        // set/doorbell.rs
        doorbell_before_ring doorbell_rung doorbell_before_kernel doorbell_in_kernel doorbell_known
        // set/wait
        half_looked_at elsewhere_before_look elsewhere_before_sleep elsewhere_slept
        kernel_before_sleep kernel_slept
        // poll
        poll_found poll_before_watch poll_watched poll_looked poller_before_count poller_counted
        poller_before_sleep poller_slept poller_before_leave poller_left poller_before_wake
        poller_seq_changed poller_woken poller_before_release
        // migrate; move_values_written: objects/counter.rs
        gate_closed move_begun move_sealed move_values_written move_watches_handed
        move_counters_gone set_gone
    }
}
