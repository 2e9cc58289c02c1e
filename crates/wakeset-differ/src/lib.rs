//! Differential testing: one random program of epoll(7) and eventfd(2) calls, run by the kernel and by Wakeset, and every
//! return value, errno and event compared.
//!
//! > seed, or a fuzzer's bytes ([`choices`]) → program ([`generate`](mod@generate)) → calls ([`interpret`](mod@interpret)) of one side
//! > ([`world`]) → outcomes ([`trace`]) → compared ([`compare`]) → shrunk ([`shrink`](mod@shrink)) → a test ([`regression`])
//!
//! Each side is a process of its own (`worker`), started in the same way, so that descriptor numbers are compared too. Both make the same
//! program from the same seed and fold the outcomes of a block of programs into one word; the driver compares words, and looks at
//! single programs only where two differ.
//!
//! What an outcome may not depend on, because SEMANTICS.md lists it as a known difference, [`model`] knows.

#![warn(missing_debug_implementations)]

pub mod choices;
pub mod compare;
pub mod generate;
pub mod interpret;
pub mod model;
pub mod program;
pub mod regression;
pub mod shrink;
pub mod trace;
pub mod worker;
pub mod world;
