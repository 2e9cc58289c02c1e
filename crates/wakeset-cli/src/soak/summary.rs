//! What a soak prints at its end.

use std::time::Duration;

use serde_json::json;

use super::load::Load;
use super::usage::Usage;
use super::watch::{MEMORY_BOUND, Watch};
use crate::format;

/// What the load came to.
pub struct Summary<'a> {
    pub load: &'a Load,
    pub watch: &'a Watch<'a>,
    /// What answers the calls.
    pub through: &'static str,
    pub threads: usize,
    pub elapsed: Duration,
    /// Before the load, and after it.
    pub before: Usage,
    pub after: Usage,
    /// How much resident memory has grown since the warm-up.
    pub grown: i64,
    /// Objects that the library counts as open at the end.
    pub open: Option<u64>,
}

impl Summary<'_> {
    pub fn print_json(&self) {
        let Self { watch, before, after, .. } = self;
        let counts: serde_json::Map<_, _> =
            self.load.counts.all().map(|(name, count)| (name.to_string(), count.into())).collect();
        let summary = json!({
            "through": self.through,
            "seconds": self.elapsed.as_secs_f64(),
            "threads": self.threads,
            "counts": counts,
            "resident_bytes": {
                "warm": watch.base.map(|base| base.resident),
                "end": watch.latest.resident,
                "grown": self.grown,
                "bound": MEMORY_BOUND,
            },
            "descriptors": {
                "before": before.descriptors,
                "highest": watch.highest.descriptors,
                "after": after.descriptors,
                "doorbells": after.doorbells,
            },
            "objects_left": self.open,
            "failure": self.load.failure(),
        });
        println!("{summary:#}");
    }

    pub fn print_table(&self) {
        let Self { watch, before, after, .. } = self;
        let kib = |bytes: i64| format!("{} KiB", bytes >> 10);
        let warm = watch.base.map_or("-".to_string(), |base| kib(base.resident));
        let rows = self
            .load
            .counts
            .all()
            .map(|(name, count)| [name.replace('_', " "), format::number(count as f64)]);
        let more = [
            ("resident, warm", warm),
            ("resident, end", kib(watch.latest.resident)),
            ("growth allowed", kib(MEMORY_BOUND)),
            ("descriptors, highest", watch.highest.descriptors.to_string()),
            ("descriptors, before", before.descriptors.to_string()),
            ("descriptors, after", after.descriptors.to_string()),
            ("doorbells", after.doorbells.to_string()),
        ];
        let more = more.map(|(name, value)| [name.to_string(), value]);
        println!(
            "{} threads on {}, {:.1} s",
            self.threads,
            self.through,
            self.elapsed.as_secs_f64()
        );
        print!("{}", format::table(rows.chain(more).map(Vec::from)));
        match self.load.failure() {
            None => println!("counts exact, memory and descriptors flat"),
            Some(failure) => println!("FAILED: {failure}"),
        }
    }
}
