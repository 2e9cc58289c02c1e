//! What runs under loom: the double of the futex, and the models.

mod futex;
mod leadership;
#[cfg(test)]
mod models;

pub(crate) use futex::Futex;
