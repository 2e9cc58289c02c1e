//! A slice of what `wakeset-differ run` does at length: every side agrees with the kernel on random
//! programs and on those that once differed, and a side with a bug does not.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;
use wakeset_differ::driver::{self, Extent, Pair, Setup};
use wakeset_differ::outcome;
use wakeset_differ::program::shrink::shrink;
use wakeset_differ::program::{At, Duplication, Focus, Op, Program, join};
use wakeset_differ::world::{Bug, Side};

fn setup() -> Setup {
    Setup::new(env!("CARGO_BIN_EXE_wakeset-differ").into()).unwrap()
}

/// Always the same programs, so that a failure stays.
fn agrees(side: Side) {
    let extent = Extent { operations: Some(40_000), time: None, jobs: 1 };
    let outcome = driver::run(&setup(), Pair::new(side), 1, extent).unwrap();
    assert!(outcome.diverging.is_empty(), "wakeset-differ run --side {} shrinks it", side.name());
    assert!(outcome.operations >= 40_000);
}

#[test]
fn the_rust_api_agrees() {
    agrees(Side::Api);
}

#[test]
fn the_c_library_agrees() {
    agrees(Side::Library);
}

#[test]
fn the_interposer_agrees() {
    agrees(Side::Interposed);
}

#[test]
fn the_interposer_agrees_beside_children() {
    let extent = Extent { operations: Some(30_000), time: None, jobs: 1 };
    let pair = Pair::about(Side::Interposed, Focus::Children);
    let outcome = driver::run(&setup(), pair, 1, extent).unwrap();
    assert!(outcome.diverging.is_empty(), "wakeset-differ run --focus children shrinks it");
    assert!(outcome.operations >= 30_000);
}

#[test]
fn every_ready_list_agrees() {
    for side in [Side::Engine, Side::EngineSpinLock, Side::EngineRwLock] {
        agrees(side);
    }
}

/// Whether the sides that take every road can be built. Without a C compiler they are left out,
/// unless `WAKESET_REQUIRE_ALL=1` says that this is a failure.
fn has_roads() -> bool {
    match driver::roads_folder(Path::new(env!("CARGO_BIN_EXE_wakeset-differ"))) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let required = std::env::var_os("WAKESET_REQUIRE_ALL").is_some_and(|v| v == "1");
            assert!(!required, "cc is missing, and WAKESET_REQUIRE_ALL is set");
            eprintln!("skipped: cc is missing");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_road_agrees() {
    for side in Side::ROADS.into_iter().filter(|_| has_roads()) {
        agrees(side);
    }
}

/// The same in several threads of a worker, with the programs in which an edge was once taken for
/// one that a migration takes back, though other threads ran.
#[test]
fn every_road_agrees_in_threads() {
    // Two blocks for a worker, because the second begins what the first has kept from.
    let extent = Extent { operations: Some(80_000), time: None, jobs: 1 };
    for side in Side::ROADS.into_iter().filter(|_| has_roads()) {
        let pair = Pair::new(side).in_threads(4);
        let outcome = driver::run(&setup(), pair, 0xa833_bdcd_b6d1_beb1, extent).unwrap();
        assert!(outcome.diverging.is_empty(), "{} differs in threads", side.name());
    }
}

/// The kernel's outcomes on one path and the other are the same: nothing depends on when a program
/// runs, or on what ran before.
#[test]
fn the_kernel_agrees_with_itself() {
    agrees(Side::Kernel);
}

#[test]
fn every_bug_is_found() {
    for (name, bug) in Bug::NAMES {
        let setup = Setup { bug: Some(bug), slack: Duration::from_secs(2), ..setup() };
        let extent = Extent { operations: Some(200_000), time: None, jobs: 1 };
        let side = bug.side_for(Side::Engine);
        if side.takes_roads() && !has_roads() {
            continue;
        }
        let outcome = driver::run(&setup, Pair::new(side), 1, extent).unwrap();
        assert!(
            !outcome.diverging.is_empty(),
            "{name} is not found in {} operations",
            outcome.operations
        );
    }
}

#[test]
fn a_divergence_is_found_again_and_shrunk() {
    let setup = Setup { bug: Some(Bug::AddTwice), ..setup() };
    let pair = Pair::new(Side::Engine);
    let extent = Extent { operations: Some(40_000), time: None, jobs: 1 };
    // One whose program shrinks as far as it can: the shrinker stops where no single step makes it
    // smaller.
    let outcome = driver::run(&setup, pair, 2, extent).unwrap();
    assert_eq!(outcome.diverging[0].endless, None);
    let programs = driver::find(&setup, pair, outcome.diverging[0]).unwrap().programs;
    assert_eq!(programs.len(), 1);
    let differs =
        |program: &Program| driver::differs(&setup, pair, std::slice::from_ref(program)).unwrap();
    let small = shrink(join(&programs), differs);
    // A set, a counter, and ADD twice.
    assert_eq!(small.ops.len(), 4, "{small:?}");
    let small = std::slice::from_ref(&small);
    let expected = setup.trace(Side::Kernel, pair.profile, small).unwrap().unwrap();
    let got = setup.trace(pair.side, pair.profile, small).unwrap();
    let listing = outcome::listing(&expected, &got, "engine");
    assert!(listing.contains("EEXIST\n     engine says: 0\n"), "{listing}");
    let body = outcome::body("added_twice", &expected);
    assert!(body.starts_with("fn added_twice<B: Backend>() {\n    let fd"), "{body}");
    assert!(body.contains("Ok(()));\n    assert_eq!(ctl::<B>(fd"), "{body}");
    assert!(body.contains(", Err(EEXIST));\n    close_all::<B>(&[fd"), "{body}");
}

/// A side that neither goes on nor listens to its watchdog, and whose child would hold its pipe, is
/// ended, found out, and its program shrunk.
#[test]
fn a_side_that_does_not_end_is_found_out() {
    let slack = Duration::from_millis(500);
    let setup = Setup { bug: Some(Bug::WaitNeverEnds), slack, ..setup() };
    let pair = Pair::new(Side::Engine);
    let extent = Extent { operations: Some(40_000), time: None, jobs: 1 };
    let outcome = driver::run(&setup, pair, 1, extent).unwrap();
    assert_eq!(outcome.diverging[0].endless, Some(Side::Engine));
    let found = driver::find(&setup, pair, outcome.diverging[0]).unwrap();
    assert_eq!(found.programs.len(), 1);
    let small = driver::smallest(&setup, pair, &found.programs).unwrap();
    // A set, two counters, two ADD, a wait, at most.
    assert!(small.ops.len() <= 6, "{small:?}");
    let small = std::slice::from_ref(&small);
    let got = setup.trace(pair.side, pair.profile, small);
    assert!(got.unwrap().is_err_and(|how| how == "a call did not return"));
}

/// Whether the engine alone offers the call.
fn is_for_the_engine(op: &Op) -> bool {
    match op {
        Op::Counter { .. } | Op::Timer { .. } | Op::Set { .. } | Op::Close { .. } => true,
        Op::SetTimer { at, .. }
        | Op::Write { at, .. }
        | Op::Read { at, .. }
        | Op::Ctl { at, .. }
        | Op::Wait { at, .. } => *at == At::Good,
        Op::Ring { polls, .. } => !polls,
        Op::Duplicate { how, .. } => *how == Duplication::Lowest,
        Op::Expiry { .. } => true,
        _ => false,
    }
}

/// Programs that made a side differ before the bug was mended, in `tests/found`, as `wakeset-differ
/// run` prints them.
#[test]
fn what_was_found_once_stays_mended() {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/found");
    let mut n = 0;
    for entry in std::fs::read_dir(found).unwrap() {
        let path = entry.unwrap().path();
        let program: Program =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let engine = [Side::Engine, Side::EngineSpinLock, Side::EngineRwLock];
        let engine = engine.into_iter().filter(|_| program.ops.iter().all(is_for_the_engine));
        let roads = Side::ROADS.into_iter().filter(|_| has_roads());
        let all = [Side::Api, Side::Library, Side::Interposed].into_iter().chain(roads);
        for side in all.chain(engine) {
            let programs = std::slice::from_ref(&program);
            assert!(
                !driver::differs(&setup(), Pair::new(side), programs).unwrap(),
                "{path:?}, {}",
                side.name()
            );
        }
        n += 1;
    }
    assert!(n > 0, "there are none");
}
