extern crate std;
use super::*;
use crate::sync::adaptive_spin::{AdaptiveSpin, MOST, spin};
use core::time::Duration;

const MILLI: u64 = 1_000_000;

/// A process that loses so much at a time, each 8 ms, and gains so much in between (ns).
struct Process {
    busy: Busy,
    now: u64,
    loss: u64,
    gains: (u32, i32),
}

impl Process {
    fn new(loss: u64, gains: (u32, i32)) -> Self {
        Self { busy: Busy::new(0), now: 1_000 * MILLI, loss, gains }
    }

    /// 8 ms pass. Whether a rest begins.
    fn run(&mut self) -> bool {
        self.now += 8 * MILLI;
        (0..self.gains.0).for_each(|_| self.busy.gain(self.gains.1));
        self.busy.note_spin();
        self.busy.lose_by_spins(self.loss, self.now)
    }

    fn rests(&self) -> bool {
        self.busy.rests(|| self.now)
    }

    /// After how many losses a rest begins.
    fn losses(&mut self) -> usize {
        1 + (0..100).take_while(|_| !self.run()).count()
    }

    /// How long it rests from now on (ms).
    fn rest(&mut self) -> u64 {
        let begin = self.now;
        while self.rests() {
            self.now += MILLI;
        }
        (self.now - begin) / MILLI
    }
}

/// Two threads that answer each other at once beside two busy loops: 1,700 times in 8 ms.
#[test]
fn losses_that_gains_pay_for_end_no_spins() {
    let mut pair = Process::new(2_800_000, (1_700, 8_000));
    assert!((0..10_000).all(|_| !pair.run()));
}

/// As those of a chain are, whose spins take about as long as sleeps.
#[test]
fn losses_beyond_gains_end_spins_for_a_while() {
    let mut chain = Process::new(2_800_000, (50, 2_000));
    chain.busy.set_account(FULL);
    assert!((10..14).contains(&chain.losses()));
    assert!(chain.rests());
    assert_eq!(chain.rest(), REST / MILLI);
    assert!(chain.losses() <= 3, "it begins anew");
}

/// Or a machine that becomes busy is noticed the later the longer it was free.
#[test]
fn gains_are_not_kept_without_end() {
    let mut process = Process::new(2_500_000, (0, 0));
    (0..1_000_000).for_each(|_| process.busy.gain(20_000));
    assert!(process.losses() < 14);
}

#[test]
fn a_full_account_is_not_written() {
    let busy = Busy::new(0);
    busy.set_account(FULL + 1);
    busy.gain(10_000);
    assert_eq!(busy.account(), FULL + 1);
}

/// A spin that took longer than a sleep costs is no loss of the processor.
#[test]
fn what_costs_is_no_gain() {
    let busy = Busy::new(0);
    busy.gain(-10_000);
    assert_eq!(busy.account(), 0);
}

/// A stop of the process, or another program now and then.
#[test]
fn time_forgives_and_gives_nothing() {
    let mut process = Process::new(400_000, (0, 0));
    assert!((0..10_000).all(|_| !process.run()));
    process.now += 3_600_000 * MILLI;
    process.busy.lose(3_600_000 * MILLI, process.now);
    assert!(!process.rests());
    process.loss = 2_800_000;
    assert!(process.losses() <= 3);
}

/// Threads that were woken late just then.
#[test]
fn losses_in_a_rest_do_not_lengthen_it() {
    let mut process = Process::new(2_800_000, (0, 0));
    process.losses();
    assert!((0..8).all(|_| !process.run()));
    assert_eq!(process.rest(), REST / MILLI - 64);
}

#[test]
fn rests_double_until_the_machine_was_free() {
    let mut process = Process::new(2_800_000, (0, 0));
    let mut rests = [0; 7];
    for rest in &mut rests {
        process.losses();
        *rest = process.rest();
    }
    assert_eq!(rests, [250, 500, 1_000, 2_000, 4_000, 4_000, 4_000]);
    process.now += MOST_REST / 8;
    process.losses();
    assert_eq!(process.rest(), 4_000, "for half a second only");
    process.now += MOST_REST / 4;
    process.losses();
    assert_eq!(process.rest(), REST / MILLI);
}

#[test]
fn a_short_delay_is_no_loss() {
    let mut process = Process::new(LOSS, (0, 0));
    process.loss = LOSS;
    assert!((0..100).all(|_| !process.run()));
    assert_eq!(process.busy.account(), 0);
}

#[test]
fn a_loss_counts_once_threads_have_spun() {
    let process = Process::new(2_500_000, (0, 0));
    let lose = |i: u64| process.busy.lose_by_spins(2_500_000, process.now + i * 8 * MILLI);
    assert!((0..100).all(|i| !lose(i)));
    assert_eq!(process.busy.account(), 0);
    process.busy.note_spin();
    lose(100);
    let once = process.busy.account();
    lose(101);
    assert!(once < 0 && process.busy.account() == once);
}

#[test]
fn a_grace_is_given_after_each_rest() {
    let mut process = Process::new(2_500_000, (0, 0));
    process.busy = Busy::new(GRACE);
    for _ in 0..3 {
        assert!((6..9).contains(&process.losses()));
        process.rest();
    }
}

/// Whether that is a loss of the process. Other tests may begin to spin at any moment.
fn is_lost(event: impl Fn()) -> bool {
    (0..1_000).any(|_| {
        BUSY.note_spin();
        event();
        BUSY.spun.load(Ordering::Relaxed) == 0
    })
}

/// Losses beside spins were none of theirs, and the spins went on.
#[test]
fn a_spin_is_noted_as_it_begins() {
    let (memory, busy) = (AdaptiveSpin::new(), Busy::new(0));
    (0..64).for_each(|_| memory.remember(Some(500), spin::AUTO_LIMIT));
    let is_noted = || busy.spun.load(Ordering::Relaxed) != 0;
    assert!(!is_noted());
    // As many as there are processors may spin at a time, and other tests do.
    let begins = (0..1_000).any(|_| {
        let begun = memory.begin_unless(&busy, u64::MAX).is_some();
        if !begun {
            pause();
        }
        begun
    });
    assert!(begins || !spin::has_processors(), "it never spins");
    assert_eq!(is_noted(), begins);
    busy.spun.store(0, Ordering::Relaxed);
    busy.begin_rest(now());
    assert!(memory.begin_unless(&busy, u64::MAX).is_none() && !is_noted(), "it rests");
}

fn pause() {
    std::thread::sleep(Duration::from_nanos(2 * LOSS));
}

#[test]
fn losses_are_noticed_in_spins_yields_and_wakes() {
    let memory = AdaptiveSpin::new();
    assert!(!is_lost(|| ()));
    assert!(is_lost(|| {
        memory.woken_at.store((now() - 2 * LOSS) as u32, Ordering::Relaxed);
        memory.learn_latency(now() - 3 * LOSS, 3 * LOSS);
    }));
    let yielded = || {
        pause();
        true
    };
    assert!(is_lost(|| {
        memory.credit.store(MOST, Ordering::Relaxed);
        assert_eq!(memory.yield_unless(&Busy::new(0), true, yielded, || 1), 1);
    }));
    (0..64).for_each(|_| memory.remember(Some(500), spin::AUTO_LIMIT));
    let begin = || memory.begin_unless(&BUSY, u64::MAX);
    if begin().is_some() {
        assert!(is_lost(|| {
            let Some(mut spin) = begin() else { return };
            pause();
            while spin.goes_on(u64::MAX) {}
        }));
    }
}
