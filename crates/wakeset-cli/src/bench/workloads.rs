//! Workloads that are written once and run on the kernel and on the engine, and two that compare
//! calls which only Wakeset has with what a program does without them: [`batch`] and
//! [`ring::sockets`].

pub mod batch;
pub mod close;
pub mod ctl;
pub mod nest;
pub mod pingpong;
pub mod ring;
pub mod stress;
pub mod timer;
pub mod wait;
