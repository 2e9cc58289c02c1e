//! Skews: the workers of one listener have very different shares of processor time.
//!
//! The time during the looks is taken if the workers did enough in it, and else that since each
//! of them started, by its age.

use super::super::listeners;
use super::super::look::Look;
use super::{Finding, list};

/// The half of the workers that did least has less than this part of its fair share.
const UNEVEN: f64 = 0.2;
/// Processor time of all workers in seconds, and how often they stopped running, during the looks;
/// below that it may be chance.
const ENOUGH_NOW: (f64, u64) = (0.05, 50);
/// The same since they started.
const ENOUGH_EVER: (f64, u64) = (1.0, 1000);

/// What one worker did.
struct Worker {
    pid: i32,
    busy: f64,
    /// By what `busy` is divided to compare workers of different age.
    time: f64,
    switches: u64,
}

pub fn find(looks: &[Look], seconds: f64) -> Vec<Finding> {
    let (Some(first), Some(last)) = (looks.first(), looks.last()) else { return Vec::new() };
    let mut findings: Vec<Finding> = Vec::new();
    for listener in listeners::of(looks).values() {
        let pids = listener.workers();
        if pids.len() < 2 || findings.iter().any(|finding| finding.pids == pids) {
            continue;
        }
        let now = workers(pids.iter().copied(), Some(first), last);
        let ever = workers(pids.iter().copied(), None, last);
        let (workers, when) = match (is_enough(&now, ENOUGH_NOW), is_enough(&ever, ENOUGH_EVER)) {
            (true, _) => (now, format!("in {seconds:.1} s")),
            (false, true) => (ever, "since they started, by age".to_string()),
            (false, false) => continue,
        };
        if let Some(shares) = uneven(workers) {
            let shares = shares.iter().map(|(pid, share)| format!("{pid} {:.0} %", share * 100.0));
            findings.push(Finding {
                kind: "skew",
                what: format!(
                    "{}: its {} workers have very uneven shares of processor time {when}: {}.",
                    listener.socket.describe(),
                    pids.len(),
                    list(shares)
                ),
                remedy: "Linux may wake the same worker first each time. `wakeset run -- SERVER` \
                         takes turns; SO_REUSEPORT with a listener per worker spreads connections \
                         by hash. If the connections differ in cost or stay open, look at what \
                         each worker serves first."
                    .to_string(),
                pids,
            });
        }
    }
    findings
}

/// What each worker did since the earlier look, or since it started.
fn workers(pids: impl Iterator<Item = i32>, from: Option<&Look>, to: &Look) -> Vec<Worker> {
    let switches = |look: &Look, pid| {
        look.process(pid).map_or(0, |it| it.threads.iter().map(|thread| thread.switches).sum())
    };
    let worker = |pid| {
        let process = to.process(pid)?;
        let (mut busy, mut count, mut time) =
            (process.busy, switches(to, pid), process.age.max(1.0));
        if let Some(from) = from {
            busy -= from.process(pid)?.busy;
            count = u64::saturating_sub(count, switches(from, pid));
            time = 1.0;
        }
        Some(Worker { pid, busy, time, switches: count })
    };
    pids.filter_map(worker).collect()
}

fn is_enough(workers: &[Worker], (busy, switches): (f64, u64)) -> bool {
    workers.iter().map(|it| it.busy).sum::<f64>() >= busy
        && workers.iter().map(|it| it.switches).sum::<u64>() >= switches
}

/// The shares, the largest first, if they are uneven.
fn uneven(workers: Vec<Worker>) -> Option<Vec<(i32, f64)>> {
    let mut shares: Vec<_> = workers.iter().map(|it| (it.pid, it.busy / it.time)).collect();
    let total: f64 = shares.iter().map(|it| it.1).sum();
    if shares.len() < 2 || total <= 0.0 {
        return None;
    }
    shares.iter_mut().for_each(|share| share.1 /= total);
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let least = shares.len() / 2;
    let part: f64 = shares.iter().rev().take(least).map(|it| it.1).sum();
    let fair = least as f64 / shares.len() as f64;
    (part < UNEVEN * fair).then_some(shares)
}

#[cfg(test)]
mod tests {
    use super::super::made::{Made, kinds};
    use super::*;
    use crate::inspect::fdinfo::{EXCLUSIVE, IN};

    fn looks(busy: [f64; 4], switches: u64) -> Vec<Look> {
        let mut made = Made::with_listener(&[1, 2, 3, 4]);
        for pid in 1..=4 {
            made.watch(pid, 5, 3, IN | EXCLUSIVE);
        }
        let mut looks = made.looks(2);
        for (pid, busy) in (1..).zip(busy) {
            made.process(pid).busy = busy;
            made.process(pid).threads[0].switches += switches;
        }
        looks.extend(made.looks(1));
        looks
    }

    #[test]
    fn uneven_workers_are_a_skew() {
        let found = find(&looks([0.4, 0.1, 0.005, 0.0], 100), 1.0);
        assert_eq!(kinds(&found), ["skew"]);
        assert!(found[0].what.contains("in 1.0 s: 1 79 %, 2 20 %"), "{found:?}");
    }

    #[test]
    fn even_or_idle_workers_are_none() {
        assert_eq!(find(&looks([0.1, 0.05, 0.08, 0.07], 100), 1.0), []);
        assert_eq!(find(&looks([0.01, 0.0, 0.0, 0.0], 100), 1.0), []);
        // One long request.
        assert_eq!(find(&looks([0.4, 0.0, 0.0, 0.0], 3), 1.0), []);
    }

    #[test]
    fn idle_workers_are_judged_by_their_past_and_age() {
        let mut looks = looks([0.0; 4], 0);
        for look in &mut looks {
            for (process, (busy, age)) in look.processes.iter_mut().zip([
                (50.0, 100.0),
                (40.0, 100.0),
                (2.0, 4.0),
                (30.0, 60.0),
            ]) {
                (process.busy, process.age) = (busy, age);
                process.threads[0].switches = 500;
            }
        }
        assert_eq!(find(&looks, 1.0), []);
        for look in &mut looks {
            look.processes[2].age = 100.0;
            look.processes[3].busy = 1.0;
        }
        let found = find(&looks, 1.0);
        assert_eq!(kinds(&found), ["skew"]);
        assert!(found[0].what.contains("since they started"), "{found:?}");
    }
}
