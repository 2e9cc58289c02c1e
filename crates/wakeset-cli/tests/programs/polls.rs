//! Programs about poll(2) and select(2).

use super::compare::compare;
use super::compile::Build;

#[test]
fn polls() {
    compare("polls", Build::Plain, &[]);
}

#[test]
fn polls_fortified() {
    compare("polls", Build::Fortified, &[]);
}

/// A look for objects where none can be ended programs by SIGSEGV.
#[test]
fn unread() {
    compare("unread", Build::Plain, &[]);
}

/// Sets were read as far as the call had numbers, and memory was had for as many entries as an
/// array was said to have.
#[test]
fn beyond() {
    compare("beyond", Build::Plain, &[]);
}
