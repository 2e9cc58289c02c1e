//! `wakeset run --stats`: collects the processes' pages and prints what they counted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use wakeset_fd::stats::{DIR_VARIABLE, ListenerSummary, NAMES, PAGE_BYTES, Stat, Summary};

use super::command::Command;
use super::listeners::Listeners;
use super::supervise;
use crate::failure::Failure;
use crate::format;

const HEADINGS: [&str; 10] = [
    "process",
    "pid",
    "made",
    "kept",
    "migrated",
    "waits",
    "events",
    "wakes",
    "spurious",
    "syscalls avoided",
];

/// Processes that get a line of their own in the table; the JSON has all.
const MOST_LINES: usize = 20;

/// Runs the program to its end and prints the counts: the table on stderr, and the JSON in
/// `file` or on stderr too. Returns the program's exit status.
pub fn run_counted(command: &Command, file: Option<&Path>) -> Result<i32, Failure> {
    // Created before the program runs: a failure afterwards would lose the counts.
    let file = match file {
        Some(path) => Some(fs::File::create(path).map_err(|e| {
            Failure::own(format!("cannot write the counts to {}: {e}", path.display()))
        })?),
        None => None,
    };
    let directory = Directory::make()?;
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var(DIR_VARIABLE, directory.path()) };
    let status = supervise::run_to_end(command)?;
    let report = Report::new(directory.pages());
    drop(directory);
    // From here on the exit status must be the program's, even if no process reads the report.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(report.table().as_bytes());
    let json = report.json();
    match file {
        None => {
            let _ = writeln!(stderr, "{json}");
        }
        Some(mut file) => {
            if let Err(e) = writeln!(file, "{json:#}") {
                let _ = writeln!(stderr, "wakeset: cannot write the counts: {e}");
            }
        }
    }
    Ok(status)
}

/// The directory in which the processes make their pages; dropping it removes it.
struct Directory(TempDir);

impl Directory {
    fn make() -> Result<Self, Failure> {
        // In memory first, because the counts are written all the time.
        let shm = PathBuf::from("/dev/shm");
        let fallback = std::env::temp_dir();
        make_in(&shm).or_else(|_| make_in(&fallback)).map(Directory).map_err(|error| {
            Failure::own(format!(
                "cannot make a directory for the counts in {}: {error}",
                fallback.display()
            ))
        })
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// What each process image counted, without those that never started counting.
    fn pages(&self) -> Vec<(Summary, Vec<ListenerSummary>)> {
        let Ok(entries) = fs::read_dir(self.path()) else {
            return Vec::new();
        };
        let mut paths: Vec<_> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
        // The images of one process in the order it became them: `<pid>.<n>`.
        paths.sort_by_key(|path| {
            let number = path.extension().and_then(|n| n.to_str()?.parse::<u64>().ok());
            (number.unwrap_or(0), path.clone())
        });
        paths.iter().filter_map(|path| read_page(path)).collect()
    }
}

fn make_in(base: &Path) -> io::Result<TempDir> {
    let directory = tempfile::Builder::new()
        .prefix("wakeset-stats-")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(base)?;
    // SAFETY: it cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        // A server started as root changes to other users, whose processes count too. They may
        // make files here, but neither list nor remove those of other users.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1733))?;
    }
    Ok(directory)
}

/// Reads one page. Other users may have put files there, so this follows no link and waits for
/// nothing.
fn read_page(path: &Path) -> Option<(Summary, Vec<ListenerSummary>)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::with_capacity(PAGE_BYTES);
    file.take(PAGE_BYTES as u64).read_to_end(&mut bytes).ok()?;
    Some((Summary::parse(&bytes)?, ListenerSummary::parse(&bytes).collect()))
}

/// The counts of a whole run.
struct Report {
    processes: Vec<Summary>,
    total: Summary,
    listeners: Listeners,
}

impl Report {
    /// Puts the images of each process together; they come in the order they ran.
    fn new(images: Vec<(Summary, Vec<ListenerSummary>)>) -> Self {
        let mut total = Summary::default();
        let mut processes: BTreeMap<u32, Summary> = BTreeMap::new();
        let mut listeners = Listeners::default();
        for (mut image, counted) in images {
            total.add(&image);
            listeners.add(image.pid, &counted);
            // The process goes by its last name: a shell that execs becomes the program.
            if let Some(earlier) = processes.get(&image.pid) {
                image.add(earlier);
            }
            processes.insert(image.pid, image);
        }
        Report { processes: processes.into_values().collect(), total, listeners }
    }

    fn table(&self) -> String {
        let mut rows = vec![HEADINGS.map(str::to_string).to_vec()];
        // Shells and the like count nothing: a line for each of them would bury the rest.
        let mut shown: Vec<_> = self.processes.iter().filter(|p| is_active(p)).collect();
        shown.sort_by_key(|p| std::cmp::Reverse(p.get(Stat::Waits) + p.made()));
        let hidden = self.processes.len() - shown.len().min(MOST_LINES);
        for process in shown.iter().take(MOST_LINES) {
            let name = printable(process.name());
            rows.push(row(name, process.pid.to_string(), process));
        }
        rows.push(row("total".to_string(), String::new(), &self.total));

        let mut text = String::from("\nwakeset: what ran in user space\n");
        text += &format::table(rows);
        if hidden > 0 {
            let _ = writeln!(text, "({hidden} more with nothing or less to show)");
        }
        if self.processes.is_empty() {
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

    fn json(&self) -> Value {
        let processes: Vec<_> = self
            .processes
            .iter()
            .map(|process| {
                let mut object = counts(process);
                object.insert("pid".to_string(), json!(process.pid));
                object.insert("name".to_string(), json!(printable(process.name())));
                Value::Object(object)
            })
            .collect();
        json!({
            "processes": processes,
            "total": counts(&self.total),
            "listeners": self.listeners.json(),
        })
    }
}

fn is_active(process: &Summary) -> bool {
    process.values().iter().any(|&count| count > 0)
}

fn name(stat: Stat) -> &'static str {
    NAMES[stat as usize]
}

/// A process chooses its name, so control characters in it must not reach the terminal.
fn printable(name: &[u8]) -> String {
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
        summary.get(Stat::Wakes),
        summary.get(Stat::SpuriousWakes),
        summary.get(Stat::SyscallsAvoided),
    ];
    let mut cells = vec![name, pid];
    cells.extend(numbers.iter().map(u64::to_string));
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
    object.insert("open_at_end".to_string(), json!(summary.open()));
    object.insert("migrated".to_string(), json!(summary.migrated()));
    object.insert("migrated_by_reason".to_string(), Value::Object(migrated));
    object
}
