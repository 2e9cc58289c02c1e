//! What the locks around a ready list cost, and what it is worth to have none: by throughput in
//! [`policies`], by the latency of a real-time thread in [`inversion`].

pub mod inversion;
pub mod policies;
mod realtime;
