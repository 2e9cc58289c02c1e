//! What `wakeset run --stats` prints: the counts of a run as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use wakeset_fd::stats::area::Refusal;
use wakeset_fd::stats::{ListenerSummary, Migration, NAMES, Stat, Summary};

use super::listeners::Listeners;
use super::snapshot::Snapshot;
use crate::format;

const HEADINGS: [&str; 13] = [
    "process",
    "pid",
    "made",
    "kept",
    "migrated",
    "waits",
    "events",
    "in process",
    "signals",
    "in process",
    "wakes",
    "spurious",
    "syscalls avoided",
];

/// The column of events.
const EVENTS: usize = 6;

/// Processes that get a line of their own in the table; the JSON has all that are kept.
const MOST_LINES: usize = 20;

/// Processes that are told apart. Of more, the busiest are; the others are added up.
const MOST_KEPT: usize = 1024;

/// What the images of one process have counted.
struct Process {
    counts: Summary,
    /// The next process with its id is another one.
    has_ended: bool,
}

/// The counts of a whole run.
#[derive(Default)]
pub struct Report {
    /// By process id, and by how many with this id have ended before.
    processes: BTreeMap<(u32, u64), Process>,
    /// Processes that are no longer told apart, and what they counted.
    others: (usize, Summary),
    /// Whether those are the ones that have ended, and the rest is alive.
    is_live: bool,
    total: Summary,
    listeners: Listeners,
    /// By which calls objects have migrated, of the last of each process, by reason.
    calls: BTreeMap<(usize, String), u64>,
    /// Process images that were not counted, by reason.
    refused: [u64; Refusal::ALL.len()],
    /// Why no process was counted.
    nothing: Option<String>,
}

impl Report {
    /// The report of a run in which nothing could be counted.
    pub fn of_nothing(why: String) -> Self {
        Report { nothing: Some(why), ..Report::default() }
    }

    /// Adds what a process image has counted. The images of one process come in the order in which
    /// it became them: it goes by its last name, as a shell that execs becomes the program.
    pub fn add(&mut self, mut image: Summary, listeners: &[ListenerSummary]) {
        self.total.add(&image);
        self.listeners.add(Some(image.pid), listeners);
        let (pid, mut ended) = (image.pid, 0);
        if let Some((last, process)) = self.processes.range((pid, 0)..=(pid, u64::MAX)).next_back()
        {
            ended = last.1 + u64::from(process.has_ended);
            if !process.has_ended {
                image.add(&process.counts);
            }
        }
        self.processes.insert((pid, ended), Process { counts: image, has_ended: false });
        if self.processes.len() >= 2 * MOST_KEPT {
            self.keep_the_busiest();
        }
    }

    /// Notes that the process has ended, so that the kernel may give its id to another one.
    pub fn end_process(&mut self, pid: u32) {
        let mut of_id = self.processes.range_mut((pid, 0)..=(pid, u64::MAX));
        if let Some((_, process)) = of_id.next_back() {
            process.has_ended = true;
        }
    }

    /// Notes by which calls objects have migrated.
    pub fn note_calls(&mut self, migrations: impl Iterator<Item = Migration>) {
        for migration in migrations.filter(|it| !it.call().is_empty()) {
            let key = (migration.reason as usize, printable(migration.call()));
            *self.calls.entry(key).or_default() += 1;
        }
    }

    /// By which calls objects have migrated for this reason, as far as that was noted.
    pub fn calls(&self, reason: Stat) -> impl Iterator<Item = (&str, u64)> {
        let of_reason = self.calls.iter().filter(move |((of, _), _)| *of == reason as usize);
        of_reason.map(|((_, call), count)| (call.as_str(), *count))
    }

    /// The report of a run that goes on.
    pub fn of_live(run: &Snapshot) -> Self {
        let mut report = Report { is_live: true, ..Report::default() };
        for image in &run.images {
            report.add(image.summary.clone(), &image.listeners);
        }
        report.others = (run.ended_images as usize, run.ended.clone());
        report.total.add(&run.ended);
        report.listeners.add(None, &run.ended_listeners);
        for why in Refusal::ALL {
            report.refuse(why, run.not_counted(why));
        }
        report
    }

    /// The sums over all processes.
    pub fn total(&self) -> &Summary {
        &self.total
    }

    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Whether no process was counted, so that the interposer got into none.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.others.0 == 0 && self.not_counted().is_empty()
    }

    /// Notes that so many process images were not counted.
    pub fn refuse(&mut self, why: Refusal, images: u64) {
        self.refused[why as usize] += images;
    }

    /// Adds up all processes but the busiest.
    pub fn keep_the_busiest(&mut self) {
        let mut processes: Vec<_> = std::mem::take(&mut self.processes).into_iter().collect();
        processes.sort_by_key(|(_, process)| std::cmp::Reverse(busyness(&process.counts)));
        for (_, other) in processes.drain(MOST_KEPT.min(processes.len())..) {
            self.others.0 += 1;
            self.others.1.add(&other.counts);
        }
        self.processes = processes.into_iter().collect();
    }

    pub fn table(&self) -> String {
        format!("\nwakeset: what ran in user space\n{}", self.body())
    }

    fn summaries(&self) -> impl Iterator<Item = &Summary> {
        self.processes.values().map(|process| &process.counts)
    }

    /// The tables without a heading.
    pub fn body(&self) -> String {
        let mut rows = vec![HEADINGS.map(str::to_string).to_vec()];
        // Shells and the like count nothing: a line for each of them would bury the rest.
        let mut shown: Vec<_> = self.summaries().filter(|p| is_active(p)).collect();
        shown.sort_by_key(|p| std::cmp::Reverse(busyness(p)));
        let apart = if self.is_live { 0 } else { self.others.0 };
        let hidden = self.processes.len() + apart - shown.len().min(MOST_LINES);
        for process in shown.iter().take(MOST_LINES) {
            let name = printable(process.name());
            rows.push(row(name, process.pid.to_string(), process));
        }
        if self.is_live && self.others.0 > 0 {
            rows.push(row(format!("({} ended)", self.others.0), String::new(), &self.others.1));
        }
        rows.push(row("total".to_string(), String::new(), &self.total));

        let mut text = format::table(rows);
        if hidden > 0 {
            let _ = writeln!(text, "({hidden} more with nothing or less to show)");
        }
        let not_counted = self.not_counted();
        text += &not_counted;
        if self.processes.is_empty() && apart == self.others.0 && not_counted.is_empty() {
            text += "The interposer counted nothing: it did not get into the program.\n";
        }
        let reasons: Vec<_> = Stat::ALL[Stat::MOVED]
            .iter()
            .filter(|&&reason| self.total.get(reason) > 0)
            .map(|&reason| format!("{} {}", name(reason), self.total.get(reason)))
            .collect();
        if !reasons.is_empty() {
            let _ = writeln!(text, "migrated into the kernel: {}", reasons.join(", "));
        }
        if self.total.came_home() > 0 {
            let _ = writeln!(text, "came home: {} after a fork", self.total.came_home());
        }
        let of_kernel = self.total.get(Stat::WaitsOfKernelSets);
        if of_kernel > 0 {
            let _ = writeln!(text, "waits on sets that are the kernel's: {of_kernel}");
        }
        text += &self.listeners.table();
        let uffd = [Stat::UffdMessages, Stat::UffdWakes, Stat::UffdSpuriousWakes]
            .map(|stat| self.total.get(stat));
        if uffd.iter().any(|&count| count > 0) {
            let [messages, wakes, spurious] = uffd;
            let _ = writeln!(
                text,
                "userfaultfds: {messages} messages, {wakes} wakes, {spurious} of them spurious"
            );
        }
        text
    }

    pub fn json(&self) -> Value {
        let processes: Vec<_> = self
            .summaries()
            .map(|process| {
                let mut object = counts(process);
                object.insert("pid".to_string(), json!(process.pid));
                object.insert("name".to_string(), json!(printable(process.name())));
                Value::Object(object)
            })
            .collect();
        let mut others = counts(&self.others.1);
        others.insert("processes".to_string(), json!(self.others.0));
        let others_are = if self.is_live { "ended" } else { "others" };
        json!({
            "processes": processes,
            others_are: others,
            "total": counts(&self.total),
            "listeners": self.listeners.json(),
            "not_counted": {
                "processes": self.refused.iter().sum::<u64>(),
                "no_memory": self.refused[Refusal::NoMemory as usize],
                "too_many": self.refused[Refusal::TooMany as usize],
                "no_address_space": self.refused[Refusal::NoAddressSpace as usize],
                "run": self.nothing,
            },
        })
    }

    /// A line that says how many processes were not counted, and why; empty if there are none.
    pub fn not_counted(&self) -> String {
        if let Some(why) = &self.nothing {
            return format!("No process was counted: {why}.\n");
        }
        let reasons: Vec<_> = Refusal::ALL
            .iter()
            .map(|&why| (self.refused[why as usize], why))
            .filter(|&(images, _)| images > 0)
            .map(|(images, why)| match why {
                Refusal::NoMemory => format!("{images} for want of memory"),
                Refusal::TooMany => format!("{images} beyond the number that can be at once"),
                Refusal::NoAddressSpace => format!("{images} for want of address space"),
            })
            .collect();
        match reasons.is_empty() {
            true => String::new(),
            false => format!("processes that were not counted: {}\n", reasons.join(", ")),
        }
    }
}

/// What the processes are sorted by.
fn busyness(process: &Summary) -> u64 {
    process.get(Stat::Waits).saturating_add(process.made())
}

fn is_active(process: &Summary) -> bool {
    process.values().iter().any(|&count| count > 0)
}

fn name(stat: Stat) -> &'static str {
    NAMES[stat as usize]
}

/// A process chooses its name, so control characters in it must not reach the terminal.
pub fn printable(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    name.chars().filter(|c| !c.is_control()).collect()
}

fn row(name: String, pid: String, summary: &Summary) -> Vec<String> {
    let numbers = [
        summary.made(),
        summary.kept(),
        summary.migrated(),
        summary.get(Stat::Waits),
        summary.get(Stat::Events),
        summary.signals(),
        summary.get(Stat::Wakes),
        summary.get(Stat::SpuriousWakes),
        summary.get(Stat::SyscallsAvoided),
    ];
    let mut cells = vec![name, pid];
    cells.extend(numbers.iter().map(u64::to_string));
    let percent = |share: Option<u64>| share.map_or("-".to_string(), |it| format!("{it}%"));
    cells.insert(EVENTS + 2, percent(summary.percent_of_signals()));
    cells.insert(EVENTS + 1, percent(summary.percent_in_process()));
    cells
}

/// One process's counts as JSON: the plain ones by name, the migrations by reason.
fn counts(summary: &Summary) -> Map<String, Value> {
    let mut object = Map::new();
    let mut migrated = Map::new();
    for stat in Stat::ALL {
        let to = match Stat::MOVED.contains(&(stat as usize)) {
            true => &mut migrated,
            false => &mut object,
        };
        to.insert(name(stat).to_string(), json!(summary.get(stat)));
    }
    object.insert("made".to_string(), json!(summary.made()));
    object.insert("kept".to_string(), json!(summary.kept()));
    object.insert("objects_in_process".to_string(), json!(summary.open()));
    object.insert("events_in_process_percent".to_string(), json!(summary.percent_in_process()));
    object.insert("signals_in_process_percent".to_string(), json!(summary.percent_of_signals()));
    object.insert("migrated".to_string(), json!(summary.migrated()));
    object.insert("came_home".to_string(), json!(summary.came_home()));
    object.insert("migrated_by_reason".to_string(), Value::Object(migrated));
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use wakeset_fd::stats::Page;

    fn image(pid: u32, waits: u64) -> Summary {
        let page = Page::zeroed();
        page.start(pid, b"image");
        page.bump(0, Stat::Waits, waits);
        page.summary()
    }

    #[test]
    fn the_images_of_a_process_are_added_up() {
        let mut report = Report::default();
        report.add(image(5, 1), &[]);
        report.add(image(6, 10), &[]);
        report.add(image(5, 2), &[]);
        let json = report.json();
        assert_eq!(json["processes"].as_array().map(Vec::len), Some(2));
        assert_eq!(json["processes"][0]["waits"], 3);
        assert_eq!(json["total"]["waits"], 13);
    }

    /// The kernel gives a number out again, after 32,768 others or more.
    #[test]
    fn a_process_with_the_id_of_an_earlier_one_is_another() {
        let mut report = Report::default();
        for waits in [1, 2, 3] {
            report.add(image(5, waits), &[]);
            report.add(image(5, 10 * waits), &[]);
            report.end_process(5);
        }
        let json = report.json();
        let waits: Vec<_> =
            json["processes"].as_array().expect("processes").iter().map(|p| &p["waits"]).collect();
        assert_eq!(waits, [11, 22, 33]);
        assert_eq!(json["total"]["waits"], 66);
    }

    /// The memory of a report does not grow with the number of processes.
    #[test]
    fn the_busiest_processes_are_kept() {
        let mut report = Report::default();
        let last = 3 * MOST_KEPT as u32;
        for pid in 1..=last {
            report.add(image(pid, u64::from(pid)), &[]);
            assert!(report.processes.len() < 2 * MOST_KEPT);
        }
        report.keep_the_busiest();
        assert_eq!(report.processes.len(), MOST_KEPT);
        assert_eq!(report.processes.len() + report.others.0, last as usize);
        assert!(report.processes.contains_key(&(last, 0)));
        assert!(!report.processes.contains_key(&(1, 0)));
        let kept: u64 = report.summaries().map(|p| p.get(Stat::Waits)).sum();
        let others = report.others.1.get(Stat::Waits);
        assert_eq!(kept + others, report.total.get(Stat::Waits));
    }

    #[test]
    fn what_was_not_counted_is_said() {
        let mut report = Report::default();
        report.refuse(Refusal::NoMemory, 3);
        assert!(report.table().contains("not counted: 3 for want of memory\n"));
        assert_eq!(report.json()["not_counted"]["no_memory"], 3);
        let nothing = Report::of_nothing("no /proc".to_string());
        assert!(nothing.table().contains("No process was counted: no /proc.\n"));
    }
}
