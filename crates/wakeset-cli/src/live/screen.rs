//! The view of `wakeset top`, as lines of text.

use super::rates::{Line, ListenerLine, OtherSets, Rates, SetLine};
use crate::format::{percent, short};

/// How the lines are to look.
#[derive(Clone, Copy)]
pub struct Style {
    pub width: usize,
    /// Lines that there is room for; none is left out without a word.
    pub height: usize,
    /// Whether the headings may stand out.
    pub color: bool,
    /// Whether bars may be made of block elements.
    pub blocks: bool,
    pub help: bool,
    /// Which parts beside the processes are shown.
    pub sets: bool,
    pub listeners: bool,
    pub migrations: bool,
}

impl Default for Style {
    fn default() -> Self {
        Style {
            width: 80,
            height: 24,
            color: false,
            blocks: false,
            help: false,
            sets: true,
            listeners: true,
            migrations: true,
        }
    }
}

pub const HELP: [&str; 4] =
    ["q quit", "space look now", "h keys", "s l m show or hide sets listeners migrations"];

/// A column: its heading, its width with the gap before it, and what it says of a process.
type Column = (&'static str, usize, fn(&Line) -> String);

/// The columns, the most useful first: a narrow terminal has the first ones.
const COLUMNS: [Column; 11] = [
    ("pid", 8, |line| line.pid.to_string()),
    ("events/s", 9, |line| short(line.events)),
    ("wakes/s", 8, |line| short(line.wakes)),
    ("spurious", 9, |line| percent(line.spurious)),
    ("avoided/s", 10, |line| short(line.avoided)),
    ("here", 6, |line| line.here.to_string()),
    ("migrated", 9, |line| line.migrated.to_string()),
    ("waits/s", 8, |line| short(line.waits)),
    ("in process", 11, |line| percent(line.in_process)),
    ("signals/s", 10, |line| short(line.signals)),
    ("in process", 11, |line| percent(line.signals_in_process)),
];
const NAME_WIDTH: usize = 16;

/// Migrations that are shown where there is room.
const MOST_MIGRATIONS: usize = 3;
/// Lines of a screen with room for migrations.
const ROOMY: usize = 20;

/// The whole view. `heading` says which run it is.
pub fn lines(heading: &str, rates: &Rates, style: Style) -> Vec<String> {
    let mut lines = summary(heading, rates, style);
    let listeners = listeners(rates, style);
    let migrations = migrations(rates, style);
    // What is left after a heading for each part; sets have a third of it, or what processes leave.
    let fixed = lines.len() + 2 + listeners.len() + migrations.len();
    let room = style.height.saturating_sub(fixed);
    let for_sets = (room / 3).max(room.saturating_sub(rates.processes.len()));
    let sets = sets(rates, for_sets, style);
    lines.push(String::new());
    lines.push(process_heading(style));
    let room = room.saturating_sub(sets.len()).max(1);
    lines.extend(fitting(&rates.processes, room, style, |line| process(line, style)));
    lines.extend(sets);
    lines.extend(listeners);
    lines.extend(migrations);
    lines.truncate(style.height);
    lines
}

/// As many lines as there is room for, and how many more there are.
fn fitting<T>(all: &[T], room: usize, style: Style, line: impl Fn(&T) -> String) -> Vec<String> {
    let fits = all.len() <= room;
    let shown = if fits { all.len() } else { room.saturating_sub(1) };
    let mut lines: Vec<_> = all.iter().take(shown).map(line).collect();
    if !fits {
        lines.push(cut(&format!("({} more)", all.len() - shown), style.width));
    }
    lines
}

/// What holds for all processes together, and the keys if they are asked for.
fn summary(heading: &str, rates: &Rates, style: Style) -> Vec<String> {
    let total = &rates.total;
    // Of nothing there is no share.
    let of = |rate: f64, what: &str, share: Option<f64>, which: &str| match share {
        Some(_) => format!("{} {what} ({} {which})", short(rate), percent(share)),
        None => format!("{} {what}", short(rate)),
    };
    let rates_of_all = [
        of(total.events, "events", total.in_process, "in process"),
        of(total.signals, "signals", total.signals_in_process, "in process"),
        of(total.wakes, "wakes", total.spurious, "spurious"),
        format!("{} syscalls avoided", short(total.avoided)),
    ];
    let reasons: Vec<_> =
        rates.reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    let reasons = match reasons.is_empty() {
        true => String::new(),
        false => format!(" ({})", reasons.join(", ")),
    };
    let objects = format!("{} in process, {} migrated{reasons}", total.here, total.migrated);
    let objects: Vec<_> = objects.split(", ").map(str::to_string).collect();
    let mut lines = vec![heading.to_string()];
    lines.extend(wrapped("per second: ", &rates_of_all, style.width));
    lines.extend(wrapped("objects: ", &objects, style.width));
    if style.help {
        lines.extend(wrapped("", &HELP.map(str::to_string), style.width));
    }
    lines.iter().map(|line| cut(line, style.width)).collect()
}

/// The parts after one another, on as many lines as they need.
fn wrapped(first: &str, parts: &[String], width: usize) -> Vec<String> {
    let mut lines = vec![first.to_string()];
    for (i, part) in parts.iter().enumerate() {
        let comma = if i + 1 < parts.len() { "," } else { "" };
        let piece = format!("{part}{comma}");
        if let Some(line) = lines.last_mut() {
            let gap = if i == 0 { "" } else { " " };
            if i == 0 || line.chars().count() + 1 + piece.chars().count() <= width {
                *line += &format!("{gap}{piece}");
                continue;
            }
        }
        lines.push(format!("  {piece}"));
    }
    lines
}

/// A part with its heading, after an empty line; nothing if it has no lines.
fn part(heading: String, lines: Vec<String>) -> Vec<String> {
    match lines.is_empty() {
        true => lines,
        false => [String::new(), heading].into_iter().chain(lines).collect(),
    }
}

const SET_HEADINGS: [(&str, usize); 6] =
    [("fd", 6), ("events/s", 9), ("wakes/s", 8), ("spurious", 9), ("waits/s", 9), ("depth", 7)];

/// The busiest sets, in so many lines with their heading.
fn sets(rates: &Rates, room: usize, style: Style) -> Vec<String> {
    let others = usize::from(rates.other_sets.is_some());
    // The heading and the empty line before it, a set, how many more there are, and the others.
    if !style.sets || room < 2 + rates.sets.len().min(2) + others {
        return Vec::new();
    }
    let first = |name: &str, pid: &str| format!("{:16}{pid:>8}", cut(name, 16));
    let mut heading = first("set of", "pid");
    // Those that there is room for, as of the processes.
    let mut used = heading.len();
    let shown = SET_HEADINGS.iter().take_while(|(_, width)| {
        used += width;
        used <= style.width
    });
    let columns = shown.count();
    for (name, width) in &SET_HEADINGS[..columns] {
        heading += &format!("{name:>width$}");
    }
    let line = |line: &SetLine| {
        let mut text = first(&line.name, &line.pid.to_string());
        let depth = line.depth.map_or("-".to_string(), |depth| format!("{depth:.1}"));
        let cells = [
            line.fd.to_string(),
            short(line.events),
            short(line.wakes),
            percent(line.spurious),
            short(line.waits),
            depth,
        ];
        for (cell, (_, width)) in cells.iter().zip(&SET_HEADINGS[..columns]) {
            text += &format!("{cell:>width$}");
        }
        cut(&text, style.width)
    };
    let mut shown = fitting(&rates.sets, room - 2 - others, style, line);
    shown.extend(rates.other_sets.map(|others| other_sets(others, style)));
    part(stand_out(&cut(&heading, style.width), style), shown)
}

fn other_sets(others: OtherSets, style: Style) -> String {
    let (events, waits) = (short(others.events), short(others.waits));
    let name = "(kernel's sets, polls, others)";
    cut(&format!("{name:30}{events:>9}{:17}{waits:>9}", ""), style.width)
}

fn listeners(rates: &Rates, style: Style) -> Vec<String> {
    if !style.listeners {
        return Vec::new();
    }
    let headings = ["conn/s", "wakes/s", "spurious", "workers"];
    let heading = heading_of("listener", &headings, style);
    part(heading, rates.listeners.iter().map(|line| listener(line, style)).collect())
}

/// The last ones, where there is room for them.
fn migrations(rates: &Rates, style: Style) -> Vec<String> {
    if !style.migrations || style.height < ROOMY {
        return Vec::new();
    }
    let last = rates.migrations.iter().take(MOST_MIGRATIONS);
    let lines = last.map(|line| cut(&line.text(), style.width)).collect();
    part(stand_out(&cut("last migrations", style.width), style), lines)
}

/// The columns that there is room for.
fn columns(style: Style) -> impl Iterator<Item = &'static Column> {
    let mut used = NAME_WIDTH;
    COLUMNS.iter().take_while(move |(_, width, _)| {
        used += width;
        used <= style.width
    })
}

fn process_heading(style: Style) -> String {
    let mut line = format!("{:NAME_WIDTH$}", "process");
    for (heading, width, _) in columns(style) {
        line += &format!("{heading:>width$}");
    }
    stand_out(&cut(&line, style.width), style)
}

fn process(line: &Line, style: Style) -> String {
    let mut text = format!("{:NAME_WIDTH$}", cut(&line.name, NAME_WIDTH));
    for (_, width, cell) in columns(style) {
        text += &format!("{:>width$}", cell(line));
    }
    cut(&text, style.width)
}

const LISTENER_WIDTH: usize = 24;

fn heading_of(first: &str, rest: &[&str], style: Style) -> String {
    let mut line = format!("{first:LISTENER_WIDTH$}");
    for (i, heading) in rest.iter().enumerate() {
        line += &match i + 1 == rest.len() {
            true => format!("  {heading}"),
            false => format!("{heading:>9}"),
        };
    }
    stand_out(&cut(&line, style.width), style)
}

fn listener(line: &ListenerLine, style: Style) -> String {
    let name = cut(&line.name, LISTENER_WIDTH);
    let (connections, wakes) = (short(line.connections), short(line.wakes));
    let mut text = format!(
        "{name:LISTENER_WIDTH$}{connections:>9}{wakes:>9}{:>9}  {}",
        percent(line.spurious),
        line.workers.len()
    );
    let room = style.width.saturating_sub(text.chars().count() + 1);
    text += &format!(" {}", bars(&line.workers, room, style.blocks));
    cut(&text, style.width)
}

/// A bar for each worker, the busiest one full.
fn bars(workers: &[u64], room: usize, blocks: bool) -> String {
    let ramp: Vec<char> = if blocks { "▁▂▃▄▅▆▇█" } else { "_.:-=+*#" }.chars().collect();
    let most = workers.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: &u64| {
        let height = (*count as f64 / most as f64 * (ramp.len() - 1) as f64).round() as usize;
        ramp.get(height).copied().unwrap_or(' ')
    };
    workers.iter().take(room).map(bar).collect()
}

fn stand_out(text: &str, style: Style) -> String {
    match style.color {
        true => format!("\x1b[1m{text}\x1b[0m"),
        false => text.trim_end().to_string(),
    }
}

/// No more characters than this.
fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::super::details::MigrationLine;
    use super::*;

    fn rates(processes: u32) -> Rates {
        let line = |pid: u32| Line {
            name: format!("worker{pid}"),
            pid,
            waits: 100.0,
            events: 1234.0,
            wakes: 50.0,
            spurious: Some(0.125),
            avoided: 2_500_000.0,
            in_process: Some(0.875),
            signals: 700.0,
            signals_in_process: Some(0.99),
            here: 9,
            migrated: 1,
        };
        let listener = ListenerLine {
            name: "127.0.0.1:8080".into(),
            connections: 500.0,
            wakes: 510.0,
            spurious: None,
            workers: vec![0, 50, 100],
        };
        let set = |pid: u32| SetLine {
            name: format!("worker{pid}"),
            pid,
            fd: 5,
            waits: 100.0,
            events: 1234.0,
            depth: Some(12.34),
            wakes: 50.0,
            spurious: Some(0.125),
        };
        let migration = |ago: f64, call: &str| MigrationLine {
            process: "worker1".into(),
            pid: 1,
            object: "eventfd",
            fd: 7,
            reason: "unmodelled_call",
            call: call.into(),
            ago,
        };
        Rates {
            total: line(0),
            processes: (1..=processes).map(line).collect(),
            listeners: vec![listener],
            sets: (1..=processes).map(set).collect(),
            other_sets: Some(OtherSets { waits: 7.0, events: 21.0 }),
            migrations: vec![migration(3.0, "dup"), migration(240.0, "")],
            reasons: vec![("unmodelled_call", 1)],
        }
    }

    fn style(width: usize, height: usize) -> Style {
        Style { width, height, ..Style::default() }
    }

    /// A screen as text, each size with what there is room for. What it shows is in the files.
    fn expect(processes: u32, style: Style, expected: &str) {
        let screen = lines("run 7 (server): 2 processes, 0 ended", &rates(processes), style);
        assert!(screen.len() <= style.height);
        assert!(screen.iter().all(|line| line.chars().count() <= style.width), "{screen:#?}");
        assert_eq!(screen.join("\n") + "\n", expected);
    }

    #[test]
    fn an_ordinary_terminal_has_it_all() {
        expect(2, style(80, 24), include_str!("screens/80x24"));
    }

    #[test]
    fn a_wide_terminal_has_more_columns_and_lines() {
        let style = Style { blocks: true, help: true, ..style(200, 50) };
        expect(30, style, include_str!("screens/200x50"));
    }

    #[test]
    fn a_small_terminal_says_what_is_left_out() {
        expect(30, style(60, 15), include_str!("screens/60x15"));
        for (width, height) in [(1, 1), (5, 2), (16, 3), (40, 8), (300, 100)] {
            let screen = lines("run", &rates(30), style(width, height));
            assert!(screen.len() <= height);
            assert!(screen.iter().all(|line| line.chars().count() <= width), "{width}");
        }
    }

    #[test]
    fn a_narrow_terminal_has_whole_columns() {
        let screen = lines("run", &rates(2), style(60, 40));
        let heading = screen.iter().find(|line| line.starts_with("set of"));
        assert!(heading.is_some_and(|line| line.ends_with("spurious")), "{screen:#?}");
    }

    #[test]
    fn parts_are_hidden() {
        let hidden = Style { sets: false, listeners: false, migrations: false, ..style(80, 24) };
        let screen = lines("run", &rates(30), hidden).join("\n");
        let shown = |word: &str| screen.lines().any(|line| line.starts_with(word));
        assert!(!shown("set of") && !shown("listener") && !shown("last migrations"), "{screen}");
        assert!(shown("worker17") && shown("(13 more)"), "{screen}");
    }

    /// With NO_COLOR there is no escape sequence, and without it the headings alone stand out.
    #[test]
    fn headings_stand_out_in_colour_only() {
        let plain = lines("run", &rates(2), style(80, 24));
        assert!(plain.iter().all(|line| !line.contains('\x1b')));
        let bold = lines("run", &rates(2), Style { color: true, ..style(80, 24) });
        let headings = bold.iter().filter(|line| line.contains("\x1b[1m"));
        assert_eq!(headings.count(), 4, "{bold:#?}");
    }

    #[test]
    fn bars_show_the_evenness_of_workers() {
        assert_eq!(bars(&[0, 5, 10], 10, true), "▁▅█");
        assert_eq!(bars(&[0, 0], 10, false), "__");
        assert_eq!(bars(&[1; 20], 4, false), "####");
    }
}
