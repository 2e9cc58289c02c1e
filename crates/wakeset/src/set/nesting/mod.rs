//! Sets in sets: no circles, not too deep, not too many ways from a source to a waiter.
//!
//! Only an add that puts a set into a set, or anything into a set that another set watches, comes
//! here. It holds the engine's nesting lock throughout, so the graph of sets gains no edge while it
//! is looked at; it may lose some, which only makes the check too strict for that moment, as in
//! Linux.
//!
//! The lock is the engine's, because whether an edge closes a circle, or is one way too many from a
//! source, depends on edges anywhere, and two adds in different places can each be right and
//! together wrong. It is held for a time linear in what it is about: each set below and each
//! above is looked at once, with its watches and those on it, and so is each source below. Nothing
//! is done once for each *way*, of which there may be millions: sets without a source in them count
//! in no path limit.

pub(in crate::set) mod checks;
pub(in crate::set) mod seen;
