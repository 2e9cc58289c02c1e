//! Where a caught call is made in the instruction's place: with every register, the stack and the
//! signal mask as they were, so that even a clone(2) onto another stack or a return from a signal
//! handler is what it would have been.
//!
//! A site is a system call instruction of ours and a jump to where the program's would have gone
//! on. `syscall` leaves the address after itself in `rcx`, so `rcx` is free for that jump, and ends
//! up as after the program's own instruction. Each place in the program has a site of its own,
//! which needs no word of the thread and is never changed once it is made.

use core::sync::atomic::{AtomicUsize, Ordering};

const SITES: usize = 256;
/// The bytes of a site, and the distance of the words that sites read.
const STRIDE: usize = 16;

#[repr(C, align(16))]
struct Word(AtomicUsize, usize);

/// Where each site goes on; 0 for a free one.
static RETURNS: [Word; SITES] = [const { Word(AtomicUsize::new(0), 0) }; SITES];

core::arch::global_asm!(
    ".pushsection .text.wakeset_sites,\"ax\",@progbits",
    ".hidden wakeset_sites",
    ".globl wakeset_sites",
    ".balign 16",
    "wakeset_sites:",
    ".set wakeset_site, 0",
    ".rept {sites}",
    "syscall",
    // mov rcx, [rip + the word of this site]; jmp rcx
    ".byte 0x48, 0x8b, 0x0d",
    ".long {returns} + wakeset_site - . - 4",
    ".byte 0xff, 0xe1",
    ".balign 16",
    ".set wakeset_site, wakeset_site + 16",
    ".endr",
    ".popsection",
    sites = const SITES,
    returns = sym RETURNS,
);

unsafe extern "C" {
    static wakeset_sites: u8;
}

/// The site whose call goes on at this address. `None` if all are others'.
pub(crate) fn site_of(goes_on: usize) -> Option<usize> {
    let first = goes_on >> 1;
    let index = (0..SITES).map(|i| (first + i) % SITES).find(|index| {
        let Some(Word(word, _)) = RETURNS.get(*index) else { return false };
        match word.compare_exchange(0, goes_on, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            Err(taken) => taken == goes_on,
        }
    })?;
    Some((&raw const wakeset_sites).addr() + STRIDE * index)
}
