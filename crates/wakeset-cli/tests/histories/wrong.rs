//! Histories written by hand, right ones and wrong ones: each rule is broken by one, and by nothing
//! that Linux may do.

use crate::check::check;
use crate::log::{Call, Log, Report, What};
use crate::plan::{ET, EXCLUSIVE, IN, Kind, ONESHOT, OUT, Plan, Role, Style, Target, Tempo};
use crate::round::Outcome;
use libc::c_int;

/// The two descriptors, which are targets 0 and 1: a set, and an eventfd.
const SET: c_int = 3;
const SOURCE: c_int = 4;
/// Data of the first arm of a watch, and of a second one; target 1 in set 0.
const FIRST: u64 = 1 << 32 | 1;
const SECOND: u64 = 2 << 32 | 1;

/// A history in the making: calls one after the other, 10 ns each and 10 ns apart.
struct History {
    outcome: Outcome,
    time: u64,
}

impl History {
    fn new() -> Self {
        let target = |kind| Target { kind, mortal: false };
        let plan = Plan {
            style: Style::Wild,
            targets: vec![target(Kind::Set), target(Kind::Counter)],
            sets: 1,
            keys: Vec::new(),
            roles: vec![Role::Anything; 4],
            calls: 0,
            tempo: Tempo::Tight,
            free: false,
            modes: 1,
        };
        let (log, left) = (Log::default(), vec![0; 2]);
        let mut history = Self {
            outcome: Outcome { plan, log, last_waits: Vec::new(), left, events: Vec::new() },
            time: 0,
        };
        history.open(SET, 0);
        history.open(SOURCE, 1);
        history
    }

    fn call(&mut self, what: What, fd: c_int, value: u64, result: Result<u64, c_int>) -> &mut Call {
        self.time += 10;
        let (start, end, none) = (self.time, self.time + 10, self.outcome.log.reports.len());
        self.time = end;
        let (target, flags, limit, reports) = (SOURCE, 0, 0, none..none);
        self.outcome.log.calls.push(Call {
            start,
            end,
            thread: 1,
            what,
            fd,
            target,
            flags,
            limit,
            value,
            result,
            reports,
        });
        self.outcome.log.calls.last_mut().unwrap()
    }

    fn open(&mut self, number: c_int, target: u64) {
        self.call(What::Open, 0, target, Ok(number as u64)).target = 0;
    }

    fn close(&mut self) {
        self.call(What::Close, SOURCE, 1, Ok(0)).target = 0;
    }

    fn arm(&mut self, what: What, flags: u32, data: u64) -> &mut Call {
        let call = self.call(what, SET, data, Ok(0));
        call.flags = flags;
        call
    }

    fn add(&mut self, flags: u32) {
        self.arm(What::Add, flags, FIRST);
    }

    fn remove(&mut self) {
        self.call(What::Remove, SET, 0, Ok(0));
    }

    fn write(&mut self, units: u64) {
        self.call(What::Write, SOURCE, 0, Ok(units)).target = SOURCE;
    }

    fn read(&mut self, result: Result<u64, c_int>) {
        self.call(What::Read, SOURCE, 0, result).target = 0;
    }

    fn wait(&mut self, reports: &[Report]) -> &mut Call {
        let from = self.outcome.log.reports.len();
        self.outcome.log.reports.extend(reports);
        let call = self.call(What::Wait, SET, 8, Ok(reports.len() as u64));
        call.target = 0;
        call.reports = from..from + reports.len();
        call
    }

    fn waits(&mut self, reports: &[Report]) {
        self.wait(reports);
    }

    /// As [`wait`](Self::wait), when all is still, with so many units in the source; they are read
    /// then, as a round does.
    fn end(&mut self, reports: &[Report], left: u64) {
        self.wait(reports);
        self.outcome.last_waits.push(self.outcome.log.calls.len() - 1);
        self.outcome.left[1] = left;
        if left > 0 {
            self.read(Ok(left));
        }
    }

    /// The rules it breaks.
    #[track_caller]
    fn breaks(&self, rules: &[&str]) {
        let broken = check(&self.outcome);
        let found: Vec<_> = broken.iter().map(|violation| violation.rule).collect();
        let texts: Vec<_> = broken.iter().map(|violation| &violation.text).collect();
        assert_eq!(found, rules, "{texts:#?}");
    }
}

const MISSES: &str = "a wait does not miss what is ready";
const LOST: &str = "no event is lost";
const ONCE: &str = "ONESHOT is reported once per arm";
const GONE: &str = "nothing is reported after DEL, MOD or close returned";
const ONE_WAKE: &str = "an exclusive wake is for one";

// ---- no event is lost ----

#[test]
fn level_triggered() {
    let run = |second: &[Report], rules: &[&str]| {
        let mut history = History::new();
        history.add(IN);
        history.wait(&[]);
        history.write(1);
        history.wait(&[(FIRST, IN)]);
        history.wait(second);
        history.read(Ok(1));
        history.end(&[], 0);
        history.breaks(rules);
    };
    run(&[(FIRST, IN)], &[]);
    run(&[], &[MISSES]);
}

#[test]
fn edge_triggered() {
    let run = |second: &[Report], rules: &[&str]| {
        let mut history = History::new();
        history.add(IN | ET);
        history.write(1);
        history.wait(&[(FIRST, IN)]);
        // Nothing new, and then something.
        history.wait(&[]);
        history.write(1);
        history.wait(second);
        history.read(Ok(2));
        history.end(&[], 0);
        history.breaks(rules);
    };
    run(&[(FIRST, IN)], &[]);
    run(&[], &[MISSES]);
}

#[test]
fn a_second_arm() {
    let run = |second: &[Report], rules: &[&str]| {
        let mut history = History::new();
        history.add(IN | ONESHOT);
        history.write(1);
        history.wait(&[(FIRST, IN)]);
        history.wait(&[]);
        history.arm(What::Modify, IN | ONESHOT, SECOND);
        history.wait(second);
        history.read(Ok(1));
        history.end(&[], 0);
        history.breaks(rules);
    };
    run(&[(SECOND, IN)], &[]);
    run(&[], &[MISSES]);
}

#[test]
fn a_set_in_a_set() {
    const INNER: c_int = 5;
    let run = |flags, last: &[Report], rules: &[&str]| {
        let mut history = History::new();
        history.outcome.plan.targets.push(Target { kind: Kind::Set, mortal: true });
        history.outcome.left.push(0);
        history.open(INNER, 2);
        let inner = history.arm(What::Add, IN, 1 << 32 | 0x0201);
        inner.fd = INNER;
        let outer = history.arm(What::Add, flags, 1 << 32 | 2);
        outer.target = INNER;
        history.write(1);
        history.end(last, 1);
        history.breaks(rules);
    };
    const READABLE: Report = (1 << 32 | 2, IN);
    run(IN, &[READABLE], &[]);
    run(IN, &[], &[MISSES]);
    // A set is never anything but readable.
    run(OUT, &[], &[]);
    run(0, &[], &[]);
}

#[test]
fn a_wait_that_a_read_overlaps() {
    // It may have come first, or not: both are right.
    for reports in [&[][..], &[(FIRST, IN)]] {
        let mut history = History::new();
        history.add(IN);
        history.write(1);
        history.read(Ok(1));
        let read = history.outcome.log.calls.last().unwrap().clone();
        let wait = history.wait(reports);
        (wait.start, wait.end) = (read.start + 1, read.end + 1);
        history.end(&[], 0);
        history.breaks(&[]);
    }
}

#[test]
fn the_last_wait() {
    let run = |flags, taken: bool, last: &[Report], rules: &[&str]| {
        let mut history = History::new();
        history.add(flags);
        history.write(1);
        if taken {
            history.wait(&[(FIRST, IN)]);
        }
        history.end(last, 1);
        history.breaks(rules);
    };
    run(IN, true, &[(FIRST, IN)], &[]);
    run(IN, true, &[], &[MISSES, LOST]);
    run(IN | ET, true, &[], &[]);
    run(IN | ET, false, &[], &[MISSES, LOST]);
    run(IN | ONESHOT, true, &[], &[]);
    run(IN | ONESHOT, false, &[], &[MISSES, LOST]);
    // An exclusive watch may have been passed over.
    run(IN | EXCLUSIVE, false, &[], &[]);
    run(IN | OUT, true, &[(FIRST, IN | OUT)], &[]);
    run(IN | OUT, true, &[(FIRST, IN)], &["what is reported holds"]);
}

// ---- ONESHOT ----

#[test]
fn oneshot() {
    let mut history = History::new();
    history.add(IN | ONESHOT);
    history.write(1);
    history.wait(&[(FIRST, IN)]);
    history.arm(What::Modify, IN | ONESHOT, SECOND);
    history.wait(&[(SECOND, IN)]);
    history.breaks(&["every unit is read once"]);
    history.read(Ok(1));
    history.breaks(&[]);
    history.wait(&[(SECOND, IN)]);
    history.breaks(&["what is reported holds", ONCE]);
}

#[test]
fn oneshot_with_two_waiters() {
    let mut history = History::new();
    history.add(IN | ONESHOT);
    history.write(1);
    history.wait(&[(FIRST, IN)]);
    let first = history.outcome.log.calls.last().unwrap().clone();
    let second = history.wait(&[(FIRST, IN)]);
    (second.thread, second.start, second.end) = (2, first.start, first.end);
    history.read(Ok(1));
    history.breaks(&[ONCE]);
}

// ---- one wake ----

#[test]
fn exclusive() {
    for (woken, right) in [(0, false), (1, true), (2, false), (4, false)] {
        let mut history = History::new();
        history.outcome.plan.style = Style::OneWake;
        history.add(IN | ET | EXCLUSIVE);
        let start = history.time;
        history.write(1);
        for thread in 0..woken {
            // The first has the report; what the other threads come back with does not matter.
            let reports = if thread == 0 { &[(FIRST, IN)][..] } else { &[] };
            history.wait(reports).thread = thread + 1;
        }
        history.read(Ok(1));
        let end = history.time + 5;
        history.outcome.events.push((start, end));
        history.breaks(if right { &[] } else { &[ONE_WAKE] });
    }
}

// ---- after DEL, MOD and close ----

#[test]
fn after_a_removal() {
    let mut history = History::new();
    history.add(IN);
    history.write(1);
    history.remove();
    let remove = history.outcome.log.calls.last().unwrap().clone();
    // One that was on its way when DEL began may bring what it held.
    let held = history.wait(&[(FIRST, IN)]);
    held.start = remove.start - 1;
    history.end(&[], 1);
    history.breaks(&[]);
    history.wait(&[(FIRST, IN)]);
    history.breaks(&[GONE, "what is reported holds"]);
}

#[test]
fn after_a_change() {
    let mut history = History::new();
    history.add(IN);
    history.write(1);
    history.arm(What::Modify, IN, SECOND);
    history.wait(&[(FIRST, IN)]);
    history.end(&[(SECOND, IN)], 1);
    // And what it should have reported instead is not known to be missed: it reported something.
    history.breaks(&[GONE]);
}

#[test]
fn after_a_close() {
    for late in [false, true] {
        let mut history = History::new();
        history.outcome.plan.targets[1].mortal = true;
        history.add(IN);
        history.write(1);
        history.close();
        let close = history.outcome.log.calls.last().unwrap().clone();
        let wait = history.wait(&[(FIRST, IN)]);
        if !late {
            wait.start = close.start + 1;
        }
        history.breaks(if late { &[GONE] } else { &[] });
    }
}

#[test]
fn a_number_that_is_used_again() {
    for data in [FIRST, SECOND] {
        let mut history = History::new();
        history.outcome.plan.targets[1].mortal = true;
        history.add(IN);
        history.write(1);
        history.close();
        history.open(SOURCE, 1);
        history.arm(What::Add, IN, SECOND);
        history.write(1);
        history.wait(&[(data, IN)]);
        history.breaks(if data == FIRST { &[GONE] } else { &[] });
    }
}

// ---- what is reported ----

#[test]
fn what_a_wait_returns() {
    let run = |change: &dyn Fn(&mut History), rules: &[&str]| {
        let mut history = History::new();
        history.add(IN);
        history.write(1);
        change(&mut history);
        history.read(Ok(1));
        history.breaks(rules);
    };
    run(&|history| history.waits(&[(FIRST, IN)]), &[]);
    run(&|history| history.waits(&[(FIRST, IN), (FIRST, IN)]), &["one wait reports a watch once"]);
    run(&|history| history.waits(&[(FIRST, IN | OUT)]), &["only what was asked for is reported"]);
    run(&|history| history.waits(&[(FIRST, 0)]), &["only what was asked for is reported"]);
    run(&|history| history.waits(&[(SECOND, IN)]), &["what is reported was asked for"]);
    let full = "a wait fills its buffer at most, and does not fail";
    run(&|history| history.wait(&[(FIRST, IN)]).value = 0, &[full]);
    run(&|history| history.wait(&[]).result = Err(libc::EBADF), &[full]);
}

#[test]
fn what_holds() {
    let mut history = History::new();
    history.add(IN);
    history.write(1);
    history.read(Ok(1));
    history.wait(&[(FIRST, IN)]);
    history.breaks(&["what is reported holds"]);
}

#[test]
fn before_an_add() {
    let mut history = History::new();
    history.wait(&[(FIRST, IN)]);
    history.add(IN);
    history.write(1);
    history.read(Ok(1));
    history.breaks(&["nothing is reported from before an ADD or MOD", "what is reported holds"]);
}

#[test]
fn an_edge_again_and_again() {
    for (times, right) in [(3, true), (4, false)] {
        let mut history = History::new();
        history.add(IN | ET);
        history.write(1);
        (0..times).for_each(|_| history.waits(&[(FIRST, IN)]));
        history.read(Ok(1));
        history.breaks(if right { &[] } else { &["an edge is not reported again and again"] });
    }
}

#[test]
fn a_wait_that_is_over_early() {
    for (time, right) in [(999_999, false), (1_000_000, true)] {
        let mut history = History::new();
        history.add(IN);
        let wait = history.wait(&[]);
        (wait.limit, wait.end) = (1, wait.start + time);
        history.breaks(if right { &[] } else { &["a wait is not over early"] });
    }
}

// ---- what is read ----

#[test]
fn what_is_read() {
    let run = |results: &[Result<u64, c_int>], rules: &[&str]| {
        let mut history = History::new();
        history.write(2);
        results.iter().for_each(|&result| history.read(result));
        history.breaks(rules);
    };
    run(&[Ok(2), Err(libc::EAGAIN)], &[]);
    run(&[Err(libc::EAGAIN), Ok(2)], &["a read finds what was written"]);
    run(&[Ok(1)], &["every unit is read once"]);
    run(
        &[Ok(2), Ok(1)],
        &["a unit is read once, and after it was written", "every unit is read once"],
    );
    run(&[Err(libc::EBADF), Ok(2)], &["a read of an open descriptor does not fail"]);
}
