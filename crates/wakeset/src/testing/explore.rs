//! How a model runs under its checker, and how many schedules that takes.

extern crate std;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::Cell;
use std::sync::Once;

std::thread_local! {
    /// The schedules begun of the model that this thread runs, and the bound on preemptions, if
    /// there is one. The threads of a model are all this one thread.
    static BEGUN: Cell<(usize, Option<usize>)> = const { Cell::new((0, None)) };
}

/// `model`, whose schedules are counted from 0; a failure says in which it was.
fn counted(
    preemptions: Option<usize>,
    model: impl Fn() + Send + Sync + 'static,
) -> impl Fn() + Clone + Send + Sync + 'static {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        // In the hook, because a mutant may fail once more on the way out and end the process
        // there.
        std::panic::set_hook(Box::new(move |info| {
            say("failed");
            before(info);
        }));
    });
    BEGUN.set((0, preemptions));
    let model = Arc::new(model);
    move || {
        BEGUN.with(|begun| begun.set((begun.get().0 + 1, begun.get().1)));
        model();
    }
}

fn say(what: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("model");
    match BEGUN.get() {
        (schedules, Some(preemptions)) => {
            std::println!("{what} {name}: {schedules} within {preemptions}")
        }
        (schedules, None) => std::println!("{what} {name}: {schedules}"),
    }
}

/// Runs `model` in all its interleavings with at most `preemptions` preemptions;
/// `LOOM_MAX_PREEMPTIONS` overrides. A mutant gets the smaller bounds first, so that what it needs
/// is known.
#[cfg(loom)]
pub fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    let most = builder.preemption_bound.unwrap_or(preemptions);
    let model = Arc::new(model);
    for bound in if crate::testing::mutant::is_any() { 0..=most } else { most..=most } {
        builder.preemption_bound = Some(bound);
        let model = Arc::clone(&model);
        builder.check(counted(Some(bound), move || model()));
    }
    say("explored");
}

/// Schedules for each scenario and strategy.
#[cfg(shuttle)]
const SCHEDULES: usize = 30_000;
/// Priority changes in a PCT schedule: bugs that need at most so many ordered steps are found with
/// known probability.
#[cfg(shuttle)]
const DEPTHS: [usize; 2] = [3, 6];

/// Runs `scenario` in schedules that PCT chooses and in as many random ones; `SHUTTLE_RANDOM_SEED`
/// says which.
#[cfg(shuttle)]
pub fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    let scenario = counted(None, scenario);
    // PCT first: most mutants are caught within a few dozen of its schedules, and some never by
    // chance.
    for depth in DEPTHS {
        shuttle::check_pct(scenario.clone(), SCHEDULES / DEPTHS.len(), depth);
    }
    shuttle::check_random(scenario, SCHEDULES);
    say("explored");
}
