//! The system call instructions in a piece of code.
//!
//! The two bytes of `syscall` also occur inside other instructions. Where the unwind table says
//! where the function around them begins, its instructions are counted off. Without that, and where
//! one of them is not known, the bytes are taken for the instruction unless what is around them
//! shows that they are not. What is taken for a system call and is none costs time only.
//!
//! `sysenter` does not come back to 64-bit code, and `int 0x80` cannot pass a 64-bit pointer: no
//! 64-bit program makes its calls so, and neither is looked for.

use super::Range;
use super::frames::Frames;
use super::length::{Instruction, length};
use core::arch::x86_64::{
    _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
};

const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Whether there may be a system call instruction among `len` bytes from `first` of a piece of code
/// of which no unwind table is known.
pub(crate) fn has_call(code: &[u8], first: usize, len: usize) -> bool {
    let mut from = first;
    while let Some(at) = code.get(from..).and_then(find).map(|at| from + at) {
        if at >= first + len {
            break;
        }
        if is_plausible(code, at) {
            return true;
        }
        from = at + 1;
    }
    false
}

/// Whether there is a system call instruction in an object's code.
pub(super) fn has_instruction(code: &[u8], frames: Option<Frames>) -> bool {
    let mut counting = Counting { function: Range::NONE, next: 0 };
    let mut from = 0;
    while let Some(at) = code.get(from..).and_then(find).map(|at| from + at) {
        if counting.is_instruction(code, at, frames) {
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

/// How far the instructions of a function have been counted off.
struct Counting {
    function: Range,
    /// Where the first instruction begins that has not been.
    next: usize,
}

impl Counting {
    /// Whether an instruction begins at the two bytes, as far as can be found out. Called with
    /// rising places.
    fn is_instruction(&mut self, code: &[u8], at: usize, frames: Option<Frames>) -> bool {
        let base = code.as_ptr().addr();
        if !self.function.contains(base + at) {
            let function = frames.and_then(|frames| frames.function_of(base + at));
            let Some(function) = function.filter(|function| function.start >= base) else {
                return is_plausible(code, at);
            };
            *self = Self { function, next: function.start - base };
        }
        while self.next < at {
            match code.get(self.next..).and_then(length) {
                Some(length) => self.next += length,
                None => return is_plausible(code, at),
            }
        }
        self.next == at
    }
}

/// Whether an instruction may begin at the two bytes, judged by what is around them.
///
/// - What begins in the bytes before leads to where it does begin. Of the true instructions that
///   begin [`FAR`] to [`NEAR`] bytes before, at least [`FEW`] lead here, unless they are longer
///   than 10 bytes on the average; and nearly all wrong beginnings fall in with them within a few
///   instructions. (Before the 1,069 system calls of a Debian system 21 to 49 of 49 lead here.) So
///   where fewer do, the two bytes are inside an instruction.
/// - A call that returns goes on with the next instructions, as far as a jump or a call. Where one
///   of them is none that a program can execute, these are data. (One that does not return ends the
///   thread, or is a return from a signal: neither is about an object.)
fn is_plausible(code: &[u8], at: usize) -> bool {
    let leads_here = |from: &usize| {
        let mut next = *from;
        while next < at {
            match code.get(next..).map(Instruction::of) {
                Some(Instruction::Known { length, .. }) => next += length,
                // Where that leads is not known.
                Some(Instruction::Unknown) => return true,
                Some(Instruction::Never) | None => return false,
            }
        }
        next == at
    };
    let Some(far) = at.checked_sub(FAR) else { return true };
    (far..=at - NEAR).filter(leads_here).take(FEW).count() >= FEW && goes_on(code, at + 2)
}

const FAR: usize = 64;
const NEAR: usize = 16;
const FEW: usize = 5;

/// Whether the instructions from here to the next jump or call are such as a program can execute.
fn goes_on(code: &[u8], from: usize) -> bool {
    let mut next = from;
    loop {
        match code.get(next..).map(Instruction::of) {
            Some(Instruction::Never) => return false,
            Some(Instruction::Known { length, goes_on: true }) => next += length,
            Some(Instruction::Known { .. } | Instruction::Unknown) | None => return true,
        }
    }
}
