//! Probes (USDT) that perf(1), bpftrace(8), SystemTap and gdb find by name in a running program.
//! docs/probes.md has the list, with their arguments.
//!
//! A probe is a `nop`, and an entry in the section `.note.stapsdt` of the object, which is not
//! loaded: where the `nop` is, what the probe is called, and in which register each argument is. A
//! tracer that is interested puts a breakpoint there; until then the `nop` is all that is executed.
//! So a probe may be anywhere in the wake path: it takes no lock, makes no call and touches no
//! memory.
//!
//! ```text
//!    4 bytes   the length of the name below, 8
//!    4 bytes   the length of what is below the name
//!    4 bytes   3
//!    "stapsdt"
//!    8 bytes   the address of the nop
//!    8 bytes   the address of the section .stapsdt.base as linked; where it is elsewhere in the
//!              file, that was prelinked, and the address above is corrected by the difference
//!    8 bytes   0: there is no counter of those who look
//!    "wakeset", the probe's name, and its arguments: for each the size (negative: signed), @ and
//!              the register, or $ and the number
//! ```

/// A probe: `probe!(name, KIND value, …)`, with the kind `u64`, `u32` or `i32` of each argument.
/// A value that is in a register anyway costs nothing, and neither does a number after a `;`, which
/// is the last argument and stands in the note itself.
#[doc(hidden)]
#[macro_export]
macro_rules! probe {
    ($name:ident, $first:ident $value:expr $(, $kind:ident $more:expr)* $(; $number:literal)?) => {
        #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
        // SAFETY: a nop; the rest is in sections that the program does not load.
        unsafe {
            ::core::arch::asm!(
                // Once in each object. A note goes with the function that it is about, when the
                // linker leaves that out ("o"); for that it needs a symbol, each one its own, and
                // a label like 990 is none.
                ".ifndef .Lwakeset_probes",
                ".set .Lwakeset_probes, 0",
                ".macro wakeset_probe number",
                ".Lwakeset_probe\\number: nop",
                ".pushsection .note.stapsdt, \"o\", \"note\", .Lwakeset_probe\\number",
                ".balign 4",
                ".4byte 992f - 991f, 994f - 993f, 3",
                ".endm",
                ".endif",
                ".set .Lwakeset_probes, .Lwakeset_probes + 1",
                ".altmacro",
                "990: wakeset_probe %.Lwakeset_probes",
                ".noaltmacro",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte _.stapsdt.base",
                ".8byte 0",
                ".asciz \"wakeset\"",
                concat!(".asciz \"", stringify!($name), "\""),
                concat!(
                    ".asciz \"",
                    $crate::probe_argument!($first),
                    $(" ", $crate::probe_argument!($kind),)*
                    $(" 4@$", stringify!($number),)?
                    "\""
                ),
                "994: .balign 4",
                ".popsection",
                // Once in each object, whichever of its parts comes first.
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                in(reg) $value as $first,
                $(in(reg) $more as $kind,)*
                options(att_syntax, nomem, nostack, preserves_flags),
            );
        }
    };
}

/// How an argument is written in a probe's note: its size, and its register.
#[doc(hidden)]
#[macro_export]
macro_rules! probe_argument {
    (u64) => {
        "8@{}"
    };
    (u32) => {
        "4@{:e}"
    };
    (i32) => {
        "-4@{:e}"
    };
}
