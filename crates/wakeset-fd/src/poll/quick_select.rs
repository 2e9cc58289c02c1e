//! A call of select(2) without time that names many numbers, a few of them plain objects': see
//! [`quick_look`](super::quick_look). The kernel is asked by select(2), about the program's sets
//! without the objects' numbers. Of few numbers it is asked sooner by poll(2), as
//! [`at_once`](super::at_once) does.

use super::kernels::count_numbers;
use super::quick_look::{count_look, plain_events};
use super::select::{BITS, numbers};
use crate::sys::process::is_foreign;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::{Errno, user, vforked, waits};
use crate::table::{self, low_numbers};
use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::fd_set;
use low_numbers::WORDS;

/// For so many numbers a poll(2) of them, made from the sets, takes no longer than a select(2).
const FEW: usize = 16;

/// The sets of a call.
type Sets = [[u64; WORDS]; 3];

/// Answers the call, if it is such a one. It is a part of its caller, because each function that
/// returns after a system call costs as much as some twenty instructions.
///
/// # Safety
/// As select(2).
#[inline(always)]
pub(super) unsafe fn quick_select(
    n: c_int,
    places: [*mut fd_set; 3],
) -> Option<Result<usize, Errno>> {
    let words = usize::try_from(n).ok()?.div_ceil(64);
    if words > WORDS || is_foreign() || vforked::may_exist() {
        return None;
    }
    // SAFETY: the caller's contract.
    if unsafe { count_numbers(n as usize, places.map(<*mut fd_set>::cast_const)) } <= FEW {
        return None;
    }
    let places = places.map(|place| place.cast::<u64>());
    let _guard = SignalGuard::enter();
    let mut sets: Sets = [[0; WORDS]; 3];
    // SAFETY: the caller's contract.
    unsafe { load(words, places, &mut sets) }?;
    let entries = table::words();
    // The kernel has numbers at least as high. Beyond its own last it does not look, nor write.
    let known = entries.len().div_ceil(64).min(words);
    let (asked, in_kernel) = take_objects_out(n as usize, known, entries, &mut sets)?;
    let mut found = 0;
    if in_kernel {
        let set_of = |i: usize| match places[i].is_null() {
            true => core::ptr::null_mut(),
            false => sets[i].as_mut_ptr(),
        };
        found = waits::select_now(n, [0, 1, 2].map(set_of)).ok()?;
    }
    for (i, word) in asked.iter().enumerate().take(known) {
        let [read, write, except] = *word;
        for fd in numbers(read | write | except, i) {
            let events = plain_events(entries, fd)?;
            for ((set, asked), bits) in sets.iter_mut().zip(word).zip(BITS) {
                let bit = 1 << (fd % 64);
                if asked & bit != 0 && events & bits != 0 {
                    set[i] |= bit;
                    found += 1;
                }
            }
        }
    }
    count_look(in_kernel);
    let is_told =
        places.iter().enumerate().filter(|(_, place)| !place.is_null()).all(|(k, place)| {
            (0..words).all(|i| {
                let word = sets[k][i];
                // SAFETY: the caller of select(2) gives the memory.
                i >= known && word == asked[i][k]
                    || unsafe { user::store_u64(place.wrapping_add(i), word) }
            })
        });
    Some(if is_told { Ok(found) } else { Err(Errno::EFAULT) })
}

/// Fills in the sets, also what their last words have beyond the last number. `None`: one of them
/// is not there.
///
/// # Safety
/// As select(2).
#[inline(always)]
unsafe fn load(words: usize, places: [*mut u64; 3], sets: &mut Sets) -> Option<()> {
    for (set, place) in sets.iter_mut().zip(places).filter(|(_, place)| !place.is_null()) {
        for (i, word) in set.iter_mut().enumerate().take(words) {
            // SAFETY: any bits are a word of a set.
            *word = unsafe { user::load(place.cast_const().wrapping_add(i)) }?;
        }
    }
    Some(())
}

/// Takes the numbers of objects out of the sets. Returns them, with what the sets ask for beyond
/// the first `known` words, and whether the kernel is to be asked: there are other numbers, or bits
/// beyond the last one, which it clears or leaves alone. `None`: there are no objects, or something
/// is named that is not to be answered here.
#[inline(always)]
fn take_objects_out(
    n: usize,
    known: usize,
    entries: &[AtomicUsize],
    sets: &mut Sets,
) -> Option<([[u64; 3]; WORDS], bool)> {
    let mut asked = [[0; 3]; WORDS];
    let (mut any, mut in_kernel) = (false, false);
    for (i, out) in asked.iter_mut().enumerate().take(n.div_ceil(64)) {
        let all = sets[0][i] | sets[1][i] | sets[2][i];
        let counted = if i == n / 64 { (1 << (n % 64)) - 1 } else { u64::MAX };
        let mut here = 0;
        for fd in numbers(all & counted & low_numbers::suspects(i), i) {
            let word = entries.get(fd as usize).map_or(0, |word| word.load(Ordering::Acquire));
            if !table::is_vacant_word(word) {
                table::plain_object(word)?;
                here |= 1 << (fd % 64);
            }
        }
        in_kernel |= all & !here != 0;
        any |= here != 0;
        for (out, set) in out.iter_mut().zip(sets.iter_mut()) {
            *out = if i < known { set[i] & here } else { set[i] };
            set[i] &= !here;
        }
    }
    any.then_some((asked, in_kernel))
}
