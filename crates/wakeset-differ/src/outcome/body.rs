//! A program as the body of a regression test, in the style of
//! `crates/wakeset-fd/tests/semantics/random.rs`, with the kernel's outcomes as what is expected.

use super::listing::{events, outcome};
use super::names::{bit_names, errno_name};
use super::{Step, Trace};
use crate::program::{At, Duplication, Op, SLOTS, Timeout, WaitCall};
use std::fmt::Write;

/// The source text of a test body with this name. What the helpers of the tests cannot say is a
/// comment in it.
pub fn body(name: &str, expected: &Trace) -> String {
    let mut text = format!("fn {name}<B: Backend>() {{\n");
    let mut writer = Writer::default();
    for step in &expected.steps {
        if let Some((value, beside)) = step.outcomes.first().copied() {
            // A `String` takes everything.
            let _ = writeln!(text, "    {}", writer.line(step, value, beside));
        }
    }
    let _ = writeln!(text, "    close_all::<B>(&[{}]);\n}}", writer.open.join(", "));
    text
}

/// The variable that stands for a slot.
fn variable(slot: u8) -> String {
    if slot < SLOTS { format!("fd{slot}") } else { "-1".to_string() }
}

/// An assertion about a call that returns a number.
fn expect(call: &str, value: isize) -> String {
    if value < 0 {
        format!("assert_eq!({call}, Err({}));", errno_name(-value as i32))
    } else {
        format!("assert_eq!({call}, Ok({value}));")
    }
}

/// An assertion about a call that returns nothing.
fn expect_unit(call: &str, value: isize) -> String {
    if value == 0 { format!("assert_eq!({call}, Ok(()));") } else { expect(call, value) }
}

#[derive(Default)]
struct Writer {
    /// The variables of descriptors that are open.
    open: Vec<String>,
}

impl Writer {
    /// The line for an operation whose first call gave `value`, and `beside` with it.
    fn line(&mut self, step: &Step, value: isize, beside: u64) -> String {
        match step.op {
            Op::Counter { slot, initial, flags } => {
                self.make(slot, value, &format!("B::eventfd({initial}, {flags:#o})"))
            }
            Op::Timer { slot, flags } => {
                let call = format!("B::timerfd_create(libc::CLOCK_MONOTONIC, {flags:#o})");
                self.make(slot, value, &call)
            }
            Op::Set { slot, flags } => {
                self.make(slot, value, &format!("B::epoll_create1({flags:#o})"))
            }
            Op::Pipe { slot, other } => self.make_pair("pipe", slot, other),
            Op::Sockets { slot, other } => self.make_pair("sockets", slot, other),
            Op::Close { slot } => {
                self.open.retain(|open| *open != variable(slot));
                expect_unit(&format!("B::close({})", variable(slot)), value)
            }
            Op::Duplicate { slot, to, how } => self.duplicate(slot, to, how, value),
            Op::Write { slot, value: written, len: 8, at: At::Good } => {
                expect(&format!("write::<B>({}, {written})", variable(slot)), value)
            }
            Op::Read { slot, len: 8, at: At::Good } if value == 8 => {
                format!("assert_eq!(read::<B>({}), Ok({beside}));", variable(slot))
            }
            Op::Read { slot, len: 8, at: At::Good } => {
                expect(&format!("read::<B>({})", variable(slot)), value)
            }
            Op::Ctl { set, op, target, events, at: At::Good, .. } => {
                let (set, target) = (variable(set), variable(target));
                let (op, bits) = (ctl_name(op), bit_names(events));
                let call = format!("ctl::<B>({set}, {op}, {target}, {bits}, {beside:#x})");
                expect_unit(&call, value)
            }
            Op::Wait {
                set,
                maxevents,
                timeout: Timeout::Zero | Timeout::Infinite,
                call: WaitCall::Wait,
                at: At::Good,
            } if value >= 0 => {
                let call = format!("wait::<B>({}, {maxevents})", variable(set));
                let call = if step.is_in_order() { call } else { format!("sorted({call})") };
                format!("assert_eq!({call}, {});", events(step))
            }
            Op::CloseAll => "// Close all that is open.".to_string(),
            other => format!("// {other:?} of {:?}: {}", step.numbers, outcome(step)),
        }
    }

    /// A call that makes a descriptor for a slot.
    fn make(&mut self, slot: u8, value: isize, call: &str) -> String {
        if value < 0 {
            return expect(call, value);
        }
        self.note_open(slot);
        format!("let fd{slot} = {call}.unwrap();")
    }

    fn make_pair(&mut self, function: &str, slot: u8, other: u8) -> String {
        self.note_open(other);
        self.note_open(slot);
        format!("let (fd{slot}, fd{other}) = {function}::<B>();")
    }

    fn duplicate(&mut self, slot: u8, to: u8, how: Duplication, value: isize) -> String {
        let old = variable(slot);
        let call = match how {
            Duplication::OntoSlot(onto) => format!("B::dup2({old}, {})", variable(onto)),
            Duplication::Onto(onto) => format!("B::dup2({old}, {onto})"),
            Duplication::Lowest => format!("B::dup({old})"),
            other => format!("/* {other:?} */ B::dup({old})"),
        };
        self.make(to, value, &call)
    }

    fn note_open(&mut self, slot: u8) {
        if !self.open.contains(&variable(slot)) {
            self.open.push(variable(slot));
        }
    }
}

fn ctl_name(op: i32) -> String {
    match op {
        libc::EPOLL_CTL_ADD => "EPOLL_CTL_ADD".to_string(),
        libc::EPOLL_CTL_MOD => "EPOLL_CTL_MOD".to_string(),
        libc::EPOLL_CTL_DEL => "EPOLL_CTL_DEL".to_string(),
        other => other.to_string(),
    }
}
