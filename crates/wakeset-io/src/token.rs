//! Tokens: by what a program knows a registration again.

/// A number of the program's choice that a registration has, and that each of its events carries.
///
/// Wakeset gives it no meaning: several registrations may have the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl From<usize> for Token {
    fn from(number: usize) -> Self {
        Self(number as u64)
    }
}
