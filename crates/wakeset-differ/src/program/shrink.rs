//! Makes a program on which the sides differ smaller, as long as they still differ.

use crate::program::{
    At, BATCH, Command, Duplication, Ending, Lens, Op, Program, Road, Time, Timeout, WaitCall,
};

/// The smallest variant of `program` that `differs`: operations are removed, and the rest is made
/// plainer, until no single step makes it smaller.
pub fn shrink(mut program: Program, mut differs: impl FnMut(&Program) -> bool) -> Program {
    loop {
        let before = program.clone();
        remove(&mut program, &mut differs);
        simplify(&mut program, &mut differs);
        if program == before {
            return program;
        }
    }
}

/// Removes operations from the end on: halves, quarters, and so on down to single ones.
fn remove(program: &mut Program, differs: &mut impl FnMut(&Program) -> bool) {
    let mut chunk = program.ops.len().div_ceil(2).max(1);
    loop {
        let mut end = program.ops.len();
        while end > 0 {
            let start = end.saturating_sub(chunk);
            let mut candidate = program.clone();
            candidate.ops.drain(start..end);
            if differs(&candidate) {
                *program = candidate;
            }
            end = start.min(program.ops.len());
        }
        if chunk == 1 {
            return;
        }
        chunk /= 2;
    }
}

fn simplify(program: &mut Program, differs: &mut impl FnMut(&Program) -> bool) {
    let mut attempt = |program: &mut Program, change: &dyn Fn(&mut Program)| {
        let mut candidate = program.clone();
        change(&mut candidate);
        let better = candidate != *program && differs(&candidate);
        if better {
            *program = candidate;
        }
        better
    };
    attempt(program, &|program| program.by_number = false);
    for i in 0..program.ops.len() {
        for plainer in plainer(program.ops[i]) {
            // The forms after this one are less plain.
            if plainer == program.ops[i] || attempt(program, &|program| program.ops[i] = plainer) {
                break;
            }
        }
        if let Op::Ctl { events, .. } = program.ops[i] {
            for bit in (0..32).filter(|bit| events & 1 << bit != 0) {
                attempt(program, &|program| {
                    if let Op::Ctl { events, .. } = &mut program.ops[i] {
                        *events &= !(1 << bit);
                    }
                });
            }
        }
    }
}

/// Plainer forms of an operation, the plainest first.
fn plainer(op: Op) -> Vec<Op> {
    let (good, none) = (At::Good, Timeout::Zero);
    match op {
        Op::Counter { slot, initial, .. } => vec![
            Op::Counter { slot, initial: 0, flags: libc::EFD_NONBLOCK },
            Op::Counter { slot, initial: 1, flags: libc::EFD_NONBLOCK },
            Op::Counter { slot, initial, flags: libc::EFD_NONBLOCK },
        ],
        Op::Timer { slot, .. } => vec![Op::Timer { slot, flags: libc::TFD_NONBLOCK }],
        Op::SetTimer { slot, time, .. } => {
            vec![
                Op::SetTimer { slot, time: Time::Past, at: good },
                Op::SetTimer { slot, time, at: good },
            ]
        }
        Op::Set { slot, .. } => vec![Op::Set { slot, flags: 0 }],
        Op::Sockets { slot, other } => vec![Op::Pipe { slot, other }],
        Op::Duplicate { slot, to, .. } => {
            vec![Op::Duplicate { slot, to, how: Duplication::Lowest }]
        }
        Op::Write { slot, value, len, .. } => vec![
            Op::Write { slot, value: 1, len: 8, at: good },
            Op::Write { slot, value, len: 8, at: good },
            Op::Write { slot, value, len, at: good },
        ],
        Op::Read { slot, len, .. } => {
            vec![Op::Read { slot, len: 8, at: good }, Op::Read { slot, len, at: good }]
        }
        Op::WritePieces { .. } | Op::ReadPieces { .. } => plainer_pieces(op),
        Op::Ctl { set, op, target, events, data, .. } => {
            vec![
                Op::Ctl { set, op, target, events, data: 0, at: good },
                Op::Ctl { set, op, target, events, data, at: good },
            ]
        }
        Op::Batch { set, stop, commands } => plainer_batches(set, stop, commands),
        Op::Ring { set, polls, .. } => [false, polls]
            .into_iter()
            .flat_map(|polls| [1, 32].map(|entries| Op::Ring { set, entries, polls }))
            .collect(),
        Op::Wait { set, maxevents, timeout, call, at } => vec![
            Op::Wait { set, maxevents: 64, timeout: none, call: WaitCall::Wait, at: good },
            Op::Wait { set, maxevents, timeout: none, call: WaitCall::Wait, at: good },
            Op::Wait { set, maxevents: 64, timeout, call, at: good },
            Op::Wait { set, maxevents: 64, timeout: none, call, at },
            Op::Wait { set, maxevents, timeout, call: WaitCall::Wait, at },
            Op::Wait { set, maxevents, timeout, call, at: good },
        ],
        Op::Poll { slots, .. } => vec![Op::Poll { slots: [slots[0]; 2], events: 1 }],
        Op::Take { .. } => vec![Op::Take { road: Road::Name }, Op::Take { road: Road::Libc }],
        Op::Reuse { slot, roads } => (0..5)
            .map(|plain| {
                let name = |i| if plain == 0 || plain == i + 1 { Road::Name } else { roads[i] };
                Op::Reuse { slot, roads: std::array::from_fn(name) }
            })
            .collect(),
        Op::Nonblocking { slot, on, .. } => vec![Op::Nonblocking { slot, on, ioctl: false }],
        _ => plainer_waiting(op),
    }
}

/// Plainer bytes, fewer reads, and a second thread that sleeps; a plainer end of a child.
fn plainer_waiting(op: Op) -> Vec<Op> {
    if let Op::End { child, .. } = op {
        return vec![Op::End { child, how: Ending::Exit }];
    }
    let Op::WriteWaiting { slot, value, len, .. } = op else { return Vec::new() };
    vec![
        Op::WriteWaiting { slot, value: 1, len: 255, late: true },
        Op::WriteWaiting { slot, value, len, late: true },
    ]
}

/// Fewer and shorter buffers, and no message.
fn plainer_pieces(op: Op) -> Vec<Op> {
    let (is_message, all) = match op {
        Op::WritePieces { lens, message, .. } | Op::ReadPieces { lens, message, .. } => {
            (message, lens)
        }
        _ => return Vec::new(),
    };
    let forms = [false, is_message]
        .into_iter()
        .flat_map(|message| [[0, 0, 0, 8], [4, 0, 0, 4], all].map(|lens: Lens| (lens, message)));
    let with = |(lens, message)| match op {
        Op::WritePieces { slot, value, .. } => {
            vec![
                Op::WritePieces { slot, value: 1, lens, message },
                Op::WritePieces { slot, value, lens, message },
            ]
        }
        Op::ReadPieces { slot, .. } => vec![Op::ReadPieces { slot, lens, message }],
        _ => Vec::new(),
    };
    forms.flat_map(with).collect()
}

/// One command without a batch; the batch without its stop; fewer different commands in it.
fn plainer_batches(set: u8, stop: bool, commands: [Command; BATCH]) -> Vec<Op> {
    let single = |Command { op, target, events, data }| Op::Ctl {
        set,
        op,
        target,
        events,
        data,
        at: At::Good,
    };
    let alone = commands.iter().map(|command| single(*command));
    let fewer = (1..BATCH).map(|i| {
        let mut commands = commands;
        commands[i] = commands[i - 1];
        Op::Batch { set, stop, commands }
    });
    alone.chain([Op::Batch { set, stop: false, commands }]).chain(fewer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_left() {
        let filler = Op::Write { slot: 3, value: 7, len: 8, at: At::Good };
        let mut ops = vec![filler; 100];
        ops[20] = Op::Close { slot: 1 };
        ops[70] = Op::Counter { slot: 2, initial: 9, flags: 5 };
        let program = Program { by_number: true, ops };
        let needed = |program: &Program| {
            let close = program.ops.iter().position(|op| matches!(op, Op::Close { slot: 1 }));
            let counter = program.ops.iter().position(|op| matches!(op, Op::Counter { .. }));
            close.zip(counter).is_some_and(|(close, counter)| close < counter)
        };
        let small = shrink(program, needed);
        let counter = Op::Counter { slot: 2, initial: 0, flags: libc::EFD_NONBLOCK };
        assert_eq!(small, Program { by_number: false, ops: vec![Op::Close { slot: 1 }, counter] });
    }
}
