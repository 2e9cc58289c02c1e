//! Seccomp filters that the program installs: what one does to the calls that we make of our own
//! accord (docs/system-calls.md has them all).
//!
//! A filter's author knows the calls that the program makes, and nothing of ours. So the filter is
//! looked through before the kernel gets it. If it would end the process at one of our calls, or
//! refuse one without which objects cannot migrate, everything migrates for good first, and none of
//! them is made any more. A filter that was there before the program has been tried by `wakeset
//! run`.
//!
//! The look is an interpretation of the filter for each call, with what is known of its arguments;
//! a jump that depends on something else goes both ways.

use core::ptr;
use libc::{sock_filter, sock_fprog};
use syscalls::Sysno;
use wakeset_fd::own_calls::{OWN_CALLS, OwnCall};
use wakeset_fd::user;

/// What a filter does to a call, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// It is made.
    Granted,
    /// It fails, or is answered by somebody else.
    Refused,
    /// It ends the thread or the process, or this cannot be told.
    Deadly,
}

/// The first of our calls that we could not live without under this filter.
///
/// # Safety
/// `program` is what a program gives to the kernel: a `struct sock_fprog`, if the memory is there.
pub(crate) unsafe fn first_obstacle(program: *const sock_fprog) -> Option<Sysno> {
    // SAFETY: any bits are a program's length and place.
    let program: sock_fprog = unsafe { user::load(program) }?;
    let filter = Filter { first: program.filter, len: program.len.into() };
    let fits = |own: &&OwnCall| {
        let worst = if own.essential { Answer::Granted } else { Answer::Refused };
        filter.answer_to(own.number, own.second) <= worst
    };
    OWN_CALLS.iter().find(|own| !fits(own)).map(|own| own.number)
}

/// A filter in the program's memory.
struct Filter {
    first: *const sock_filter,
    len: usize,
}

/// Where an interpretation is: `None` is a value that is not known.
#[derive(Clone, Copy)]
struct State {
    at: usize,
    accumulator: Option<u32>,
    index: Option<u32>,
}

/// Jumps that went both ways, on one path.
const DEEPEST: usize = 64;
/// Instructions for one call. The longest filter has 4096, and few of them depend on what is not
/// known.
const MOST_STEPS: usize = 1 << 16;

/// `AUDIT_ARCH_X86_64`.
const ARCHITECTURE: u32 = 0xc000_003e;

impl Filter {
    /// The worst answer to a call.
    fn answer_to(&self, number: Sysno, second: Option<u32>) -> Answer {
        let mut others = [None; DEEPEST];
        let mut waiting = 0;
        let mut worst = Answer::Granted;
        let mut state = State { at: 0, accumulator: Some(0), index: Some(0) };
        for _ in 0..MOST_STEPS {
            // SAFETY: any bits are an instruction.
            let found = (state.at < self.len)
                .then(|| unsafe { user::load(self.first.wrapping_add(state.at)) })
                .flatten();
            // The kernel takes no filter that runs out, or out of memory.
            let Some(instruction) = found else { return Answer::Deadly };
            state.at += 1;
            match step(&mut state, &instruction, number as u32, second) {
                Step::On => continue,
                Step::Both(other) => {
                    let Some(place) = others.get_mut(waiting) else { return Answer::Deadly };
                    *place = Some(State { at: state.at + other, ..state });
                    state.at += usize::from(instruction.jt);
                    waiting += 1;
                    continue;
                }
                Step::End(answer) => worst = worst.max(answer),
            }
            let next = waiting.checked_sub(1).and_then(|last| others.get(last).copied().flatten());
            match next {
                Some(next) if worst < Answer::Deadly => state = next,
                _ => return worst,
            }
            waiting -= 1;
        }
        Answer::Deadly
    }
}

/// What an instruction leads to.
enum Step {
    /// The next one.
    On,
    /// Its true branch, or its false branch, which is so far on.
    Both(usize),
    End(Answer),
}

/// One instruction of classic BPF, as seccomp(2) has it: 32 bits, and loads from `struct
/// seccomp_data` by absolute offsets.
fn step(state: &mut State, instruction: &sock_filter, number: u32, second: Option<u32>) -> Step {
    let &sock_filter { code, jt, jf, k } = instruction;
    let operand = if code & 0x08 == 0 { Some(k) } else { state.index };
    match code {
        // ld [k], ld #k, ldx #k, tax, txa
        0x20 => state.accumulator = data(k, number, second),
        0x00 => state.accumulator = Some(k),
        0x01 => state.index = Some(k),
        0x07 => state.index = state.accumulator,
        0x87 => state.accumulator = state.index,
        // ld len, ldx len
        0x80 | 0x81 => {
            let size = size_of::<libc::seccomp_data>() as u32;
            *(if code == 0x80 { &mut state.accumulator } else { &mut state.index }) = Some(size);
        }
        // What was stored is not followed.
        0x60 => state.accumulator = None,
        0x61 => state.index = None,
        0x02 | 0x03 => {}
        // ret #k, ret a
        0x06 => return Step::End(answer_of(k)),
        0x16 => return Step::End(state.accumulator.map_or(Answer::Deadly, answer_of)),
        // ja
        0x05 => state.at = state.at.saturating_add(k as usize),
        0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => {
            let Some((left, right)) = state.accumulator.zip(operand) else {
                return Step::Both(jf.into());
            };
            let holds = match code & 0xf0 {
                0x10 => left == right,
                0x20 => left > right,
                0x30 => left >= right,
                _ => left & right != 0,
            };
            state.at += usize::from(if holds { jt } else { jf });
        }
        _ if code & 0x07 == 0x04 => {
            state.accumulator =
                state.accumulator.and_then(|value| compute(code & 0xf0, value, operand));
        }
        // The kernel takes none of these.
        _ => return Step::End(Answer::Deadly),
    }
    Step::On
}

/// What is known of `struct seccomp_data` at an offset.
fn data(offset: u32, number: u32, second: Option<u32>) -> Option<u32> {
    match offset {
        0 => Some(number),
        4 => Some(ARCHITECTURE),
        24 => second,
        28 => second.map(|_| 0),
        _ => None,
    }
}

fn compute(operation: u16, value: u32, operand: Option<u32>) -> Option<u32> {
    if operation == 0x80 {
        return Some(value.wrapping_neg());
    }
    let operand = operand?;
    Some(match operation {
        0x00 => value.wrapping_add(operand),
        0x10 => value.wrapping_sub(operand),
        0x20 => value.wrapping_mul(operand),
        0x30 => value.checked_div(operand)?,
        0x40 => value | operand,
        0x50 => value & operand,
        0x60 => value.checked_shl(operand)?,
        0x70 => value.checked_shr(operand)?,
        0xa0 => value ^ operand,
        _ => return None,
    })
}

fn answer_of(result: u32) -> Answer {
    match result & 0xffff_0000 {
        libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG => Answer::Granted,
        libc::SECCOMP_RET_ERRNO => match (result & 0xffff) as i32 {
            libc::EPERM | libc::EACCES | libc::ENOSYS => Answer::Refused,
            // What the call itself may say, of a shortage.
            _ => Answer::Granted,
        },
        // A handler, tracer or supervisor may make it in another way, or not.
        libc::SECCOMP_RET_TRAP | libc::SECCOMP_RET_TRACE | libc::SECCOMP_RET_USER_NOTIF => {
            Answer::Refused
        }
        _ => Answer::Deadly,
    }
}

/// The place of a filter, as a call names it.
pub(crate) fn at(address: usize) -> *const sock_fprog {
    ptr::with_exposed_provenance(address)
}
