//! Benchmarks whose sides are processes of their own: this executable again, plain and under the
//! interposer.

mod child;
pub mod herd;
pub mod hop;
pub mod make;
pub mod selfpipe;
pub mod uffd;
