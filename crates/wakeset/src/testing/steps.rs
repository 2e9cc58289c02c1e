//! Named points of the wake path and of what runs against it, for the build with
//! `cfg(wakeset_steps)`, in which a test stops a thread at any of them (`tests/stalls`). In every
//! other build [`step!`] is nothing.
//!
//! A step stands before and after each atomic action that others can see, and is named after the
//! one it stands behind (or, with `_before_`, in front of).

/// Reaches a step.
macro_rules! step {
    ($name:ident) => {
        #[cfg(wakeset_steps)]
        $crate::testing::steps::reach($crate::testing::steps::Point::Step(stringify!($name)));
        // An unknown name does not compile.
        #[cfg(wakeset_steps)]
        let _ = $crate::testing::steps::name::$name;
    };
}

/// A lock is waited for, has been taken, has been given back: what a thread that is stopped now
/// keeps from other threads, and from which.
macro_rules! step_lock {
    ($change:ident, $lock:expr) => {
        #[cfg(wakeset_steps)]
        $crate::testing::steps::reach($crate::testing::steps::Point::$change(
            core::ptr::from_ref($lock).addr(),
        ));
    };
}

pub(crate) use {step, step_lock};

#[cfg(wakeset_steps)]
pub use hook::*;

#[cfg(wakeset_steps)]
mod hook {
    use core::sync::atomic::{AtomicUsize, Ordering};

    /// What a thread has come to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Point {
        /// A named step.
        Step(&'static str),
        /// It may sleep until the lock at this address, or what stands for one, comes free.
        Waiting(usize),
        /// It need not, after all.
        Waited,
        /// It holds that lock from here on.
        Locked(usize),
        /// It has given it back, and has woken who slept there.
        Unlocked(usize),
    }

    /// A `fn(Point)` as an address, 0 for none.
    static HOOK: AtomicUsize = AtomicUsize::new(0);

    /// Calls `hook` at every point from now on, in the thread that reaches it.
    pub fn set_hook(hook: fn(Point)) {
        HOOK.store(hook as *const () as usize, Ordering::SeqCst);
    }

    /// Calls the hook.
    pub fn reach(point: Point) {
        let hook = HOOK.load(Ordering::SeqCst);
        if hook != 0 {
            // SAFETY: only `set_hook` stores here, and it stores a `fn(Point)`.
            let hook: fn(Point) =
                unsafe { core::mem::transmute::<*const (), fn(Point)>(hook as *const ()) };
            hook(point);
        }
    }

    /// The list of a crate's steps, by number and by name.
    #[macro_export]
    #[doc(hidden)]
    macro_rules! steps {
        ($($name:ident)*) => {
            /// Every step there is.
            pub const ALL: &[&str] = &[$(stringify!($name)),*];
            #[allow(
                non_upper_case_globals,
                missing_docs,
                reason = "named as in the code that reaches them"
            )]
            pub mod name {
                $(pub const $name: () = ();)*
            }
        };
    }

    steps! {
        // sources/counter.rs
        count_before_write count_written count_before_read count_read
        // sync/blocked.rs
        blocked_before_turn blocked_turned blocked_woken block_counted block_looked
        block_before_sleep block_over
        // sources/pipe
        pipe_before_write pipe_before_push pipe_written pipe_before_read pipe_before_take pipe_read
        pipe_sealed pipe_before_close pipe_closed
        // wake/wait_queue.rs, wake/slots.rs
        queue_before_fence queue_before_slot queue_slot_read queue_before_tell queue_told
        many_before_tell many_told many_before_exclusive stamp_read walk_before_slot
        walk_segment_read attach_stamped attached detach_before_slot detached
        // wake/path.rs
        wake_before_look wake_looked mark_before marked pushed attention_needed listed_before listed
        kicked outer_told
        // wake/locked_list.rs
        locked_before_mark locked_marked locked_pushed locked_released
        // wake/ready_list.rs
        push_before push_linked push_done attention_before attention_called take_before taken
        // wake/waiters.rs
        kick_before_look kick_looked kick_before_turn kick_turned kick_futex_woken
        sleep_before_count sleep_counted sleep_before_futex sleep_before_leave sleep_left
        spin_before_count spin_counted spin_before_leave spin_left
        elsewhere_before elsewhere_counted elsewhere_before_leave elsewhere_left ring_before_look
        ring_before ring_done
        // memory/pool.rs
        take_free_before take_free_done give_before give_linked given grow_before_push grown
        // sync/lock.rs
        lock_before_take lock_after_contention lock_before_sleep lock_slept lock_before_kernel
        release_before released turnstile_woken release_before_kernel kernel_released
        // set/harvest
        hint_before hinted chain_reversed bury_before buried end_before_hint end_hinted end_unlocked
        end_kicked sweep_before_poll unqueue_before unqueued report_before reported
        poll_unqueue_before poll_unqueued
        // set/changes, set/base/mark.rs (the last)
        add_before_state add_state_stored add_before_interest
        modify_before_state modified close_before_queue closed_queue close_before_forget closed
        retire_before retired change_before_poll change_polled change_hinted change_marked
        change_unlocked change_kicked remark_before
        // set/ring
        section_entered slot_read slot_taken head_moved shot_polled ring_unqueued refill_begun
        refill_unqueued slot_written slot_published recall_begun change_in_ring
    }
}
