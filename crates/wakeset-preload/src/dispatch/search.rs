//! The system call instructions in a piece of code.
//!
//! The two bytes of `syscall` also occur inside other instructions. Where the unwind table says
//! where the function around them begins, its instructions are counted off; without that, and where
//! one of them is not known, the bytes are taken for the instruction. So nothing is overlooked, and
//! what is taken for a system call and is none costs time only.
//!
//! `sysenter` does not come back to 64-bit code, and `int 0x80` cannot pass a 64-bit pointer: no
//! 64-bit program makes its calls so, and neither is looked for.

use super::frames::Frames;
use super::length::length;
use core::arch::x86_64::{
    _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
};

const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Whether there is a system call instruction in a piece of code that can be read.
pub(crate) fn has_instruction(code: &[u8], frames: Option<Frames>) -> bool {
    let mut from = 0;
    while let Some(at) = code.get(from..).and_then(find).map(|at| from + at) {
        if is_instruction(code, at, frames) {
            return true;
        }
        from = at + 1;
    }
    false
}

/// The first place of the two bytes.
fn find(code: &[u8]) -> Option<usize> {
    const STEP: usize = 16;
    let mut at = 0;
    while at + STEP < code.len() {
        let here = code.as_ptr().wrapping_add(at);
        // SAFETY: 17 bytes of the slice, and instructions that every x86-64 has.
        let places = unsafe {
            let first = _mm_cmpeq_epi8(_mm_loadu_si128(here.cast()), _mm_set1_epi8(0x0f));
            let second = _mm_loadu_si128(here.wrapping_add(1).cast());
            let second = _mm_cmpeq_epi8(second, _mm_set1_epi8(0x05));
            _mm_movemask_epi8(_mm_and_si128(first, second))
        };
        if places != 0 {
            return Some(at + places.trailing_zeros() as usize);
        }
        at += STEP;
    }
    code.get(at..)?.windows(2).position(|pair| pair == SYSCALL).map(|place| at + place)
}

/// Whether an instruction begins at the two bytes, as far as can be found out.
fn is_instruction(code: &[u8], at: usize, frames: Option<Frames>) -> bool {
    let base = code.as_ptr().addr();
    let function = frames.and_then(|frames| frames.function_of(base + at));
    let Some(function) = function.filter(|function| function.start >= base) else { return true };
    let mut next = function.start - base;
    while next < at {
        match code.get(next..).and_then(length) {
            Some(length) => next += length,
            None => return true,
        }
    }
    next == at
}
