//! A divergence as text: the program call by call with both outcomes, and as a body for `crates/wakeset-fd/tests/semantics`, with
//! the kernel's outcomes as what is expected.

use crate::program::{At, Duplication, Op, Patience, WaitCall};
use crate::trace::{Step, Trace, bit_names, errno_name};
use std::fmt::Write;

fn result(value: isize) -> String {
    if value < 0 { errno_name(-value as i32) } else { value.to_string() }
}

fn events(step: &Step) -> String {
    let list: Vec<_> = step.events.iter().map(|(data, bits)| format!("({data:#x}, {})", bit_names(*bits))).collect();
    format!("[{}]", list.join(", "))
}

fn outcome(step: &Step) -> String {
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

/// Each operation, with the numbers its slots stood for and what both sides say.
pub fn listing(expected: &Trace, got: &Result<Trace, String>, side: &str) -> String {
    let mut text = String::new();
    for (i, step) in expected.steps.iter().enumerate() {
        let _ = writeln!(text, "{i:>4} {:?} {:?}: {}", step.op, step.numbers, outcome(step));
        match got.as_ref().map(|trace| trace.steps.get(i)) {
            Ok(Some(other)) if other != step => {
                let _ = writeln!(text, "     {side} says: {}", outcome(other));
            }
            Ok(None) => {
                let _ = writeln!(text, "     {side} says nothing");
            }
            _ => {}
        }
    }
    match got {
        Ok(got) if got.closed != expected.closed => {
            let _ = writeln!(text, "     closed: {:?}\n     {side} says: {:?}", expected.closed, got.closed);
        }
        _ => {}
    }
    if let Err(error) = got {
        let _ = writeln!(text, "     {side} ended: {error}");
    }
    text
}

/// A body in the style of `crates/wakeset-fd/tests/semantics/random.rs`.
pub fn body(name: &str, expected: &Trace) -> String {
    let mut text = format!("fn {name}<B: Backend>() {{\n");
    let mut made = Vec::new();
    for step in &expected.steps {
        let Some((value, beside)) = step.outcomes.first().copied() else { continue };
        let variable = |slot: u8| if slot < crate::program::SLOTS { format!("fd{slot}") } else { "-1".to_string() };
        let expect = |call: String| {
            if value < 0 {
                format!("assert_eq!({call}, Err({}));", errno_name(-value as i32))
            } else {
                format!("assert_eq!({call}, Ok({value}));")
            }
        };
        let mut make = |slot: u8, call: String| {
            if value < 0 {
                return expect(call);
            }
            if !made.contains(&variable(slot)) {
                made.push(variable(slot));
            }
            format!("let fd{slot} = {call}.unwrap();")
        };
        let line = match step.op {
            Op::Counter { slot, initial, flags } => make(slot, format!("B::eventfd({initial}, {flags:#o})")),
            Op::Timer { slot, flags } => make(slot, format!("B::timerfd_create(libc::CLOCK_MONOTONIC, {flags:#o})")),
            Op::Set { slot, flags } => make(slot, format!("B::epoll_create1({flags:#o})")),
            Op::Pipe { slot, other } => {
                make(other, String::new());
                make(slot, String::new());
                format!("let (fd{slot}, fd{other}) = pipe::<B>();")
            }
            Op::Sockets { slot, other } => {
                make(other, String::new());
                make(slot, String::new());
                format!("let (fd{slot}, fd{other}) = sockets::<B>();")
            }
            Op::Close { slot } => {
                made.retain(|open| *open != variable(slot));
                let call = format!("B::close({})", variable(slot));
                if value == 0 { format!("assert_eq!({call}, Ok(()));") } else { expect(call) }
            }
            Op::Duplicate { slot, to, how } => {
                let old = variable(slot);
                match how {
                    Duplication::OntoSlot(onto) => make(to, format!("B::dup2({old}, {})", variable(onto))),
                    Duplication::Onto(onto) => make(to, format!("B::dup2({old}, {onto})")),
                    Duplication::Lowest => make(to, format!("B::dup({old})")),
                    other => make(to, format!("/* {other:?} */ B::dup({old})")),
                }
            }
            Op::Write { slot, value: written, len: 8, at: At::Good } => {
                expect(format!("write::<B>({}, {written})", variable(slot)))
            }
            Op::Read { slot, len: 8, at: At::Good } if value == 8 => {
                format!("assert_eq!(read::<B>({}), Ok({beside}));", variable(slot))
            }
            Op::Read { slot, len: 8, at: At::Good } => expect(format!("read::<B>({})", variable(slot))),
            Op::Ctl { set, op, target, events, at: At::Good, .. } => {
                let op = match op {
                    libc::EPOLL_CTL_ADD => "EPOLL_CTL_ADD".to_string(),
                    libc::EPOLL_CTL_MOD => "EPOLL_CTL_MOD".to_string(),
                    libc::EPOLL_CTL_DEL => "EPOLL_CTL_DEL".to_string(),
                    other => other.to_string(),
                };
                let (set, target) = (variable(set), variable(target));
                let call = format!("ctl::<B>({set}, {op}, {target}, {}, {beside:#x})", bit_names(events));
                if value == 0 { format!("assert_eq!({call}, Ok(()));") } else { expect(call) }
            }
            Op::Wait {
                set,
                room,
                patience: Patience::None | Patience::ForEver,
                call: WaitCall::Wait,
                at: At::Good,
            } if value >= 0 => {
                let call = format!("wait::<B>({}, {room})", variable(set));
                match step.order {
                    Some(1 | 2) => format!("assert_eq!(sorted({call}), {});", events(step)),
                    _ => format!("assert_eq!({call}, {});", events(step)),
                }
            }
            Op::CloseAll => "// Close all that is open.".to_string(),
            other => format!("// {other:?} of {:?}: {}", step.numbers, outcome(step)),
        };
        let _ = writeln!(text, "    {line}");
    }
    let _ = writeln!(text, "    close_all::<B>(&[{}]);\n}}", made.join(", "));
    text
}
