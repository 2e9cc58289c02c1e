//! seccomp(2), and prctl(2) in so far as it is the same: filters that the program installs.

use super::instruction;
use super::leave::leave_to_kernel;
use crate::process::filter;
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicBool, Ordering};
use wakeset_fd::{deputy, listeners, migrate, notice};

/// Before prctl(2).
pub(super) fn before_prctl(option: c_int, mode: usize, program: usize) {
    if option == libc::PR_SET_SECCOMP {
        before_mode(mode as c_uint == libc::SECCOMP_MODE_STRICT, program);
    } else {
        instruction::before_prctl(option);
    }
}

/// Before seccomp(2).
pub(super) fn before_seccomp(operation: c_uint, program: usize) {
    match operation {
        libc::SECCOMP_SET_MODE_STRICT => before_mode(true, 0),
        libc::SECCOMP_SET_MODE_FILTER => before_mode(false, program),
        _ => {}
    }
}

/// Migrates everything for good if the process could not live with our calls afterwards.
fn before_mode(strict: bool, program: usize) {
    if !strict && program == 0 {
        // No filter (EFAULT): libseccomp asks so which flags the kernel has.
        return;
    }
    instruction::before_filter();
    deputy::refuse();
    listeners::stay_apart();
    if migrate::is_for_good() {
        return;
    }
    // SAFETY: what the program gives to the kernel.
    let obstacle = unsafe { filter::first_obstacle(filter::at(program)) };
    if !strict && obstacle.is_none() {
        return;
    }
    leave_to_kernel();
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        let call = obstacle.filter(|_| !strict).map_or("most calls", |call| call.name());
        notice::say(format_args!(
            "a filter of the program's does not let Wakeset make {call}: every object is the \
             kernel's from here on"
        ));
    }
}
