//! What is known of single sets, and of the last migrations.

use serde_json::{Value, json};
use wakeset_fd::stats::{Migration, NAMES, SetStat};

use crate::format;
use crate::run::{Image, Snapshot, printable};

/// Lines of a kind in the text of `wakeset stats`.
const MOST_LINES: usize = 20;

/// One migration, with whose it was.
#[derive(Clone, Debug)]
pub struct MigrationLine {
    pub process: String,
    pub pid: u32,
    pub object: &'static str,
    pub fd: u32,
    pub reason: &'static str,
    /// Empty if it is not known.
    pub call: String,
    /// In seconds.
    pub ago: f64,
}

impl MigrationLine {
    fn of(image: &Image, migration: &Migration, now: u64) -> Self {
        MigrationLine {
            process: printable(image.summary.name()),
            pid: image.summary.pid,
            object: migration.object(),
            fd: migration.fd,
            reason: NAMES[migration.reason as usize],
            call: printable(migration.call()),
            ago: now.saturating_sub(migration.when) as f64 / 1e9,
        }
    }

    /// All of it in one line.
    pub fn text(&self) -> String {
        let call = match self.call.as_str() {
            "" => self.reason.to_string(),
            call => format!("{} by {call}", self.reason),
        };
        let MigrationLine { process, pid, object, fd, .. } = self;
        format!("{} ago: {object} {fd} of {process} {pid}: {call}", span(self.ago))
    }

    fn json(&self) -> Value {
        let call = (!self.call.is_empty()).then_some(&self.call);
        json!({
            "pid": self.pid, "object": self.object, "fd": self.fd,
            "reason": self.reason, "call": call, "seconds_ago": self.ago,
        })
    }
}

/// A time in few columns.
fn span(seconds: f64) -> String {
    match seconds {
        s if s < 99.5 => format!("{s:.0} s"),
        s if s < 99.5 * 60.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.0} h", s / 3600.0),
    }
}

/// The last migrations of the processes that are alive, the latest first. `now` is in nanoseconds
/// of `CLOCK_BOOTTIME`.
pub fn migrations(run: &Snapshot, now: u64) -> Vec<MigrationLine> {
    let of = |image| {
        let image: &Image = image;
        image.migrations.iter().map(move |it| MigrationLine::of(image, it, now))
    };
    let mut lines: Vec<_> = run.images.iter().flat_map(of).collect();
    lines.sort_by(|a, b| a.ago.total_cmp(&b.ago));
    lines
}

const HEADINGS: [&str; 7] = ["set of", "pid", "fd", "waits", "events", "wakes", "spurious"];
const STATS: [SetStat; 4] =
    [SetStat::Waits, SetStat::Events, SetStat::Wakes, SetStat::SpuriousWakes];

/// Sets that have been waited on, as a table, and the last migrations.
pub fn text(run: &Snapshot, now: u64) -> String {
    let mut sets: Vec<_> = run
        .images
        .iter()
        .flat_map(|image| image.sets.iter().map(move |set| (image, set)))
        .filter(|(_, set)| set.get(SetStat::Waits) > 0)
        .collect();
    sets.sort_by_key(|(_, set)| std::cmp::Reverse(set.get(SetStat::Waits)));
    let mut text = String::new();
    if !sets.is_empty() {
        let mut rows = vec![HEADINGS.map(str::to_string).to_vec()];
        for (image, set) in sets.iter().take(MOST_LINES) {
            let name = printable(image.summary.name());
            let mut row = vec![name, image.summary.pid.to_string(), set.fd.to_string()];
            row.extend(STATS.map(|stat| set.get(stat).to_string()));
            rows.push(row);
        }
        text += &format::table(rows);
    }
    if sets.len() > MOST_LINES {
        text += &format!("({} more sets)\n", sets.len() - MOST_LINES);
    }
    for line in migrations(run, now).iter().take(MOST_LINES) {
        text += &format!("migrated {}\n", line.text());
    }
    text
}

/// The fields `sets` and `migrations` of the JSON.
pub fn json(run: &Snapshot, now: u64) -> [(&'static str, Value); 2] {
    let set = |image: &Image| {
        let pid = image.summary.pid;
        let one = move |set: &wakeset_fd::stats::SetSummary| {
            let [waits, events, wakes, spurious] = STATS.map(|stat| set.get(stat));
            json!({
                "pid": pid, "fd": set.fd, "waits": waits, "events": events,
                "wakes": wakes, "spurious_wakes": spurious,
            })
        };
        image.sets.iter().map(one).collect::<Vec<_>>()
    };
    let sets: Vec<_> = run.images.iter().flat_map(set).collect();
    let migrations: Vec<_> = migrations(run, now).iter().map(MigrationLine::json).collect();
    [("sets", json!(sets)), ("migrations", json!(migrations))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let texts = [0.2, 99.0, 100.0, 7200.0].map(span);
        assert_eq!(texts, ["0 s", "99 s", "2 min", "2 h"]);
    }
}
