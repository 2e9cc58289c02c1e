//! Counts by name, so that those of several workers can be added up and printed.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was done how often.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// By call and outcome.
    pub outcomes: BTreeMap<String, BTreeMap<String, u64>>,
    /// Bits asked for by an ADD or MOD that succeeded.
    pub asked: BTreeMap<String, u64>,
    /// Bits reported.
    pub reported: BTreeMap<String, u64>,
    /// Waits, by how many events they gave.
    pub waits: BTreeMap<String, u64>,
    /// Waits with events, by how much of their order was compared.
    pub orders: BTreeMap<String, u64>,
}

impl Coverage {
    /// Adds the counts of another.
    pub fn add(&mut self, other: Coverage) {
        for (call, outcomes) in other.outcomes {
            add_to(self.outcomes.entry(call).or_default(), outcomes);
        }
        add_to(&mut self.asked, other.asked);
        add_to(&mut self.reported, other.reported);
        add_to(&mut self.waits, other.waits);
        add_to(&mut self.orders, other.orders);
    }

    /// Prints the counts as tables, if anything was counted.
    pub fn print(&self) {
        if self.outcomes.is_empty() {
            return;
        }
        let total: u64 = self.outcomes.values().flat_map(BTreeMap::values).sum();
        println!("operations by outcome:");
        let mut calls: Vec<_> = self
            .outcomes
            .iter()
            .map(|(call, counts)| (counts.values().sum::<u64>(), call, counts))
            .collect();
        calls.sort_by_key(|(n, ..)| std::cmp::Reverse(*n));
        for (n, call, outcomes) in calls {
            println!(
                "  {call:17} {n:>12} {:5.1} %  {}",
                100.0 * n as f64 / total.max(1) as f64,
                list(outcomes)
            );
        }
        println!("bits asked for:    {}", list(&self.asked));
        println!("bits reported:     {}", list(&self.reported));
        println!("events of a wait:  {}", list(&self.waits));
        println!("order compared:    {}", list(&self.orders));
    }
}

fn add_to(counts: &mut BTreeMap<String, u64>, more: BTreeMap<String, u64>) {
    for (name, n) in more {
        *counts.entry(name).or_default() += n;
    }
}

/// The counts, largest first.
fn list(counts: &BTreeMap<String, u64>) -> String {
    let mut sorted: Vec<_> = counts.iter().filter(|(_, n)| **n > 0).collect();
    sorted.sort_by(|a, b| b.1.cmp(a.1));
    sorted.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
}
