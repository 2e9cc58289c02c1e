//! What one program uses: each has a random part of all calls, kinds of objects and flags, so that
//! what it uses meets often. A program of everything at once finds less (swarm testing).

use crate::program::choices::Choices;
use crate::program::{Calls, Focus, Profile};
use libc::{EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLWAKEUP};

/// The calls, in the order of [`Style::weights`].
#[derive(Clone, Copy)]
pub(super) enum Call {
    Write,
    Read,
    Wait,
    Ctl,
    Make,
    Close,
    Duplicate,
    Nonblocking,
    Poll,
    Vector,
    Pieces,
    Waiting,
    Splice,
    Shutdown,
    Fork,
    SetTimer,
    Ring,
    NearTimer,
    Reuse,
}

const CALLS: [Call; 19] = [
    Call::Write,
    Call::Read,
    Call::Wait,
    Call::Ctl,
    Call::Make,
    Call::Close,
    Call::Duplicate,
    Call::Nonblocking,
    Call::Poll,
    Call::Vector,
    Call::Pieces,
    Call::Waiting,
    Call::Splice,
    Call::Shutdown,
    Call::Fork,
    Call::SetTimer,
    Call::Ring,
    Call::NearTimer,
    Call::Reuse,
];

type Weights = [u32; CALLS.len()];

/// What a program uses.
pub(super) struct Style {
    pub profile: Profile,
    weights: Weights,
    total: u32,
    /// Event masks to choose from.
    pub masks: [u32; 4],
    /// One in this many arguments is odd; 0 for none.
    pub odd: u32,
    /// Sets watch sets.
    pub sets: bool,
    pub timers: bool,
    /// More sets and more timers than other programs have, and more sets in sets.
    pub nested_timers: bool,
    /// Forked children live for a while and make calls.
    pub children: bool,
    pub rings: bool,
    /// Calls are made by every road, and numbers are used again.
    pub roads: bool,
    /// Pipes, sockets and directories.
    pub kernel: bool,
    /// Waits with a `maxevents` of 1 to 4.
    pub small_buffers: bool,
    /// Waits with a limit above 0.
    pub sleeps: bool,
}

impl Style {
    pub fn choose(choices: &mut impl Choices, profile: Profile) -> Self {
        let everything = profile.calls == Calls::Everything;
        let nested_timers = profile.focus == Focus::NestedTimers;
        let roads = profile.focus.takes_roads();
        let children = profile.focus == Focus::Children;
        let swarm = choices.bits();
        let has = |bit: u32| swarm & 1 << bit != 0;
        let mut weights = weights(everything, swarm);
        if nested_timers {
            weights[Call::Write as usize] = 10;
            weights[Call::SetTimer as usize] = 24;
            // Each takes half a millisecond.
            weights[Call::NearTimer as usize] = u32::from(swarm >> 50 & 3 == 0);
        }
        if roads {
            weights[Call::Reuse as usize] = 1;
            weights[Call::Ring as usize] = 0;
        }
        if children {
            with_children(&mut weights);
        }
        Self {
            profile,
            weights,
            total: weights.iter().sum(),
            masks: masks(choices),
            odd: if has(10) { 12 } else { 0 },
            sets: has(11) || nested_timers,
            timers: has(13) && has(14) || nested_timers,
            nested_timers,
            rings: has(15) && !roads && !children,
            children,
            roads,
            kernel: everything && has(2),
            small_buffers: has(12),
            sleeps: swarm >> 40 & 0x1ff == 0,
        }
    }

    /// A call, each as often as its weight says.
    pub fn call(&self, choices: &mut impl Choices) -> Call {
        let mut at = choices.below(self.total);
        for (weight, call) in self.weights.iter().zip(CALLS) {
            if at < *weight {
                return call;
            }
            at -= weight;
        }
        Call::Write
    }
}

/// What programs do whose children live: they close and duplicate, and leave alone what takes a
/// second thread or a clock.
fn with_children(weights: &mut Weights) {
    weights[Call::Close as usize] = 5;
    weights[Call::Make as usize] = 5;
    weights[Call::Duplicate as usize] = 3;
    weights[Call::Poll as usize] = 3;
    for call in [Call::Ring, Call::Waiting, Call::NearTimer] {
        weights[call as usize] = 0;
    }
}

fn weights(everything: bool, swarm: u64) -> Weights {
    let has = |bit: u32| swarm & 1 << bit != 0;
    // Calls that make objects migrate.
    let migrations = everything && has(0) && has(1);
    let mut weights = [24, 14, 30, 30, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut set = |used: bool, call: Call, weight: u32| {
        if used {
            weights[call as usize] = weight;
        }
    };
    set(has(13) && has(14), Call::SetTimer, 16);
    set(has(15), Call::Ring, 1);
    set(has(3), Call::Make, 5);
    set(has(3), Call::Close, 5);
    set(has(4), Call::Wait, 12);
    set(!everything && has(0) || migrations && has(5), Call::Duplicate, 3);
    set(has(6), Call::Nonblocking, 2);
    set(migrations && has(7), Call::Poll, 2);
    set(migrations && has(8), Call::Vector, 2);
    set(everything && has(2) && has(16), Call::Pieces, 6);
    // Each takes as long as some hundred others.
    set(everything && has(2) && swarm >> 52 & 7 == 0, Call::Waiting, 4);
    set(migrations && has(9), Call::Splice, 1);
    set(everything && has(2), Call::Shutdown, 1);
    set(migrations && swarm >> 32 & 0x1f == 0, Call::Fork, 1);
    weights
}

fn masks(choices: &mut impl Choices) -> [u32; 4] {
    let flags = [
        0,
        0,
        EPOLLET,
        EPOLLONESHOT,
        EPOLLEXCLUSIVE,
        EPOLLWAKEUP,
        EPOLLET | EPOLLONESHOT,
        EPOLLEXCLUSIVE | EPOLLET,
    ];
    let basic = [EPOLLIN, EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT];
    std::array::from_fn(|_| (choices.one_of(&flags) | choices.one_of(&basic)) as u32)
}
