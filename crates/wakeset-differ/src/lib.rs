//! Differential testing: the kernel and Wakeset run the same random program of epoll(7), eventfd(2)
//! and timerfd_create(2) calls, and every return value, errno and event is compared.
//!
//! Each room imports only from the rooms above it:
//!
//! | room | what it holds |
//! |---|---|
//! | [`model`] | what is known of a program's descriptors, and so what an outcome may not depend on |
//! | [`world`] | the sides: the kernel, and each way to call Wakeset |
//! | [`program`] | what a program is; how one is made from a seed or from a fuzzer's bytes; how one is shrunk |
//! | [`interpret`] | makes the calls of a program on one side and reports their outcomes |
//! | [`outcome`] | what becomes of outcomes: a digest, a table of what was covered, a trace, a regression test |
//! | [`driver`] | runs each side in a process of its own, compares them, and finds the program where they differ |
//!
//! Each side is a process of its own, started in the same way, so that descriptor numbers can be
//! compared too. Both sides make the same program from the same seed and fold the outcomes of a
//! block of programs into one word. The driver compares words, and looks at single programs only
//! where two words differ.

#![warn(missing_debug_implementations)]

pub mod driver;
pub mod interpret;
pub mod model;
pub mod outcome;
pub mod program;
pub mod world;
