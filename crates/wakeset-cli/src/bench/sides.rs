//! What a benchmark compares: [`backend`] says what a workload needs of an epoll, [`kernel`] and
//! [`engine`] are the two that have it.

pub mod backend;
pub mod engine;
pub mod kernel;
