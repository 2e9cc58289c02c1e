//! Histories: threads act on shared sets and sources at random, each writes down what it did and
//! when, and what Linux guarantees is checked on what they wrote.
//!
//! The same rounds run on the kernel, where a rule that claims too much fails; on Wakeset by
//! number; on the engine's own types; and, under `wakeset run`, on the preload library, which then
//! answers for the kernel.
//!
//! | file | what |
//! |---|---|
//! | `plan` | what a round consists of |
//! | `round` | its beginning, its end, and what has to happen in between |
//! | `watchdog` | waits for that: no waiter sleeps while something is ready |
//! | `actor`, `roles` | a thread, the calls that it makes, and what it does |
//! | `log`, `clock` | the history |
//! | `check` | the rules |
//! | `wrong` | histories made up to break each rule |
//! | `world` | what answers the calls |
//! | `faulty` | a world with one thing wrong, which rounds have to notice |
//!
//! | variable | meaning |
//! |---|---|
//! | `WAKESET_HISTORIES_SECS` | seconds for each of the four, 1 if unset |
//! | `WAKESET_HISTORIES_SEED` | what the rounds' seeds are drawn from; the time if unset. Printed at the beginning |
//! | `WAKESET_HISTORIES_ROUNDS` | instead of seconds, so many rounds, all of the seed given, which a failure prints of its round |
//!
//! A seed fixes what the threads set out to do, not how they are scheduled: a failure may take many
//! repetitions to come back. `ci/histories` is the long form.

mod actor;
/// The calls are those of the tests of single statements.
#[path = "../../../wakeset-fd/tests/semantics/backend.rs"]
#[allow(dead_code, reason = "histories use some of the calls")]
mod backend;
mod check;
mod clock;
mod faulty;
mod log;
mod plan;
mod random;
mod roles;
mod round;
mod watchdog;
mod world;
mod wrong;

/// For [`backend`]: histories have no bad pointers.
mod faults {
    pub fn recover() {}
}

use backend::{Kernel, Wakeset};
use plan::Plan;
use random::Random;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use world::{Bare, World};

/// One test at a time: all of them use the descriptor numbers of this process.
static ALONE: Mutex<()> = Mutex::new(());

fn run_alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    let (digits, base) = value.strip_prefix("0x").map_or((value.as_str(), 10), |hex| (hex, 16));
    Some(
        u64::from_str_radix(digits, base).unwrap_or_else(|_| panic!("{name}={value} is no number")),
    )
}

/// How long waits spin, in turn: with the engine and by number in each round another one, under
/// `wakeset run --spin` in each third of the time.
const SPINS: [(Option<u32>, &str); 3] = [(None, "auto"), (Some(0), "off"), (Some(200), "200")];

fn histories<W: World>() {
    let _alone = run_alone();
    let time = Duration::from_secs(variable("WAKESET_HISTORIES_SECS").unwrap_or(1));
    let given = variable("WAKESET_HISTORIES_SEED");
    let by_clock = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
    let first = given.unwrap_or_else(by_clock);
    println!("{}: seed {first:#x}", W::NAME);
    let mut seeds = Random::new(first, 0);
    let repeat = variable("WAKESET_HISTORIES_ROUNDS");
    let begin = Instant::now();
    let (mut rounds, mut calls, mut reports) = (0u64, 0, 0);
    while repeat.map_or(begin.elapsed() < time, |n| rounds < n) {
        let seed = match (repeat, given) {
            (Some(_), Some(seed)) => seed,
            _ => seeds.next(),
        };
        // On the kernel's side, without effect.
        wakeset::set_spin_limit(SPINS[rounds as usize % SPINS.len()].0);
        let plan = Plan::draw::<W>(&mut Random::new(seed, 0));
        let shown = format!("seed {seed:#x} on {}, round {rounds}: {plan:?}", W::NAME);
        let outcome = match round::run::<W>(plan, seed) {
            Ok(outcome) => outcome,
            Err(hang) => panic!("{hang}{shown}"),
        };
        let violations = check::check(&outcome);
        for violation in &violations {
            eprintln!("broken: {}\n  {}", violation.rule, violation.text);
        }
        assert!(violations.is_empty(), "{shown}");
        rounds += 1;
        calls += outcome.log.calls.len();
        reports += outcome.log.reports.len();
    }
    println!(
        "{}: {rounds} rounds, {calls} calls, {reports} reports in {:.1} s, nothing broken",
        W::NAME,
        begin.elapsed().as_secs_f64()
    );
}

#[test]
fn kernel() {
    histories::<Kernel>();
}

#[test]
fn wakeset() {
    histories::<Wakeset>();
}

#[test]
fn engine() {
    histories::<Bare>();
}

#[test]
fn interposed() {
    let _alone = run_alone();
    let seconds = variable("WAKESET_HISTORIES_SECS").unwrap_or(1).div_ceil(SPINS.len() as u64);
    SPINS.iter().for_each(|(_, spin)| run_interposed(spin, seconds));
}

/// This very program once more, with the preload library in the kernel's place.
fn run_interposed(spin: &str, seconds: u64) {
    let own = std::env::current_exe().expect("our own path");
    let output = Command::new(env!("CARGO_BIN_EXE_wakeset"))
        .args(["run", "--spin", spin, "--"])
        .arg(own)
        .args(["--exact", "kernel", "--nocapture"])
        .env("WAKESET_HISTORIES_SECS", seconds.to_string())
        .env_remove("LD_PRELOAD")
        // Calls by instruction in it are those of the engine that it has as well.
        .env("WAKESET_INSTRUCTIONS", "ignore")
        .output()
        .expect("it starts");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "under `wakeset run --spin {spin}`, {}:\n{text}",
        output.status
    );
    let complaint = text.lines().find(|line| line.starts_with("wakeset: "));
    assert_eq!(complaint, None, "under `wakeset run`");
    let own_lines =
        text.lines().filter(|line| line.starts_with("kernel: ") || line.contains("... kernel: "));
    own_lines
        .for_each(|line| println!("interposed {}", line.trim_start_matches("test kernel ... ")));
}
