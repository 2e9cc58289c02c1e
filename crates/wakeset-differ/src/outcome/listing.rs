//! The traces of two sides, set side by side.

use super::names::{bit_names, errno_name};
use super::{Step, Trace};
use crate::program::Op;
use std::fmt::{self, Write};

fn result(value: isize) -> String {
    if value < 0 { errno_name(-value as i32) } else { value.to_string() }
}

/// A wait's events, as a Rust expression.
pub(super) fn events(step: &Step) -> String {
    let list: Vec<_> = step
        .events
        .iter()
        .map(|(data, bits)| format!("({data:#x}, {})", bit_names(*bits)))
        .collect();
    format!("[{}]", list.join(", "))
}

/// What an operation's calls gave, in words.
pub(super) fn outcome(step: &Step) -> String {
    if step.outcomes.is_empty() {
        return "not made".to_string();
    }
    let calls: Vec<_> = step
        .outcomes
        .iter()
        .map(|(value, beside)| match (&step.op, beside) {
            (Op::Ctl { .. }, _) | (_, 0) => result(*value),
            _ => format!("{} with {beside:#x}", result(*value)),
        })
        .collect();
    let calls = calls.join(", ");
    if step.events.is_empty() { calls } else { format!("{calls} {}", events(step)) }
}

/// Each operation with the numbers that its slots stood for, what the kernel said (`expected`), and
/// what `side` said where that differs. `got` is an error if the side's worker has ended.
pub fn listing(expected: &Trace, got: &Result<Trace, String>, side: &str) -> String {
    let mut text = String::new();
    // A `String` takes everything.
    let _ = write_listing(&mut text, expected, got, side);
    text
}

fn write_listing(
    text: &mut String,
    expected: &Trace,
    got: &Result<Trace, String>,
    side: &str,
) -> fmt::Result {
    for (i, step) in expected.steps.iter().enumerate() {
        writeln!(text, "{i:>4} {:?} {:?}: {}", step.op, step.numbers, outcome(step))?;
        match got.as_ref().map(|trace| trace.steps.get(i)) {
            Ok(Some(other)) if other != step => {
                writeln!(text, "     {side} says: {}", outcome(other))?;
            }
            Ok(None) => writeln!(text, "     {side} says nothing")?,
            _ => {}
        }
    }
    match got {
        Ok(got) if got.closed != expected.closed => {
            let (expected, got) = (&expected.closed, &got.closed);
            writeln!(text, "     closed: {expected:?}\n     {side} says: {got:?}")
        }
        Ok(_) => Ok(()),
        Err(error) => writeln!(text, "     {side} ended: {error}"),
    }
}
