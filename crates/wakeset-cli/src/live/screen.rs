//! The view of `wakeset top`, as lines of text.

use super::rates::{Line, ListenerLine, Rates};
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
}

pub const HELP: &str = "q quit   space look now   h this line";

/// A column: its heading, its width with the gap before it, and what it says of a process.
type Column = (&'static str, usize, fn(&Line) -> String);

/// The columns, the most useful first: a narrow terminal has the first ones.
const COLUMNS: [Column; 8] = [
    ("pid", 8, |line| line.pid.to_string()),
    ("events/s", 9, |line| short(line.events)),
    ("wakes/s", 8, |line| short(line.wakes)),
    ("spurious", 9, |line| percent(line.spurious)),
    ("avoided/s", 10, |line| short(line.avoided)),
    ("here", 6, |line| line.here.to_string()),
    ("migrated", 9, |line| line.migrated.to_string()),
    ("waits/s", 8, |line| short(line.waits)),
];
const NAME_WIDTH: usize = 16;

/// The whole view. `heading` says which run it is.
pub fn lines(heading: &str, rates: &Rates, style: Style) -> Vec<String> {
    let mut lines = vec![cut(heading, style.width)];
    let total = &rates.total;
    lines.push(cut(
        &format!(
            "per second: {} events, {} wakes ({} spurious), {} system calls avoided",
            short(total.events),
            short(total.wakes),
            percent(total.spurious),
            short(total.avoided)
        ),
        style.width,
    ));
    let reasons: Vec<_> =
        rates.reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    let reasons = match reasons.is_empty() {
        true => String::new(),
        false => format!(" ({})", reasons.join(", ")),
    };
    let objects =
        format!("objects: {} in process, {} migrated{reasons}", total.here, total.migrated);
    lines.push(cut(&objects, style.width));
    if style.help {
        lines.push(cut(HELP, style.width));
    }

    let mut listeners = Vec::new();
    if !rates.listeners.is_empty() {
        listeners.push(String::new());
        listeners.push(heading_of(
            "listener",
            &["conn/s", "wakes/s", "spurious", "workers"],
            style,
        ));
        listeners.extend(rates.listeners.iter().map(|line| listener(line, style)));
    }
    lines.push(String::new());
    lines.push(process_heading(style));
    let room = style.height.saturating_sub(lines.len() + listeners.len()).max(1);
    let fits = rates.processes.len() <= room;
    let shown = if fits { rates.processes.len() } else { room - 1 };
    lines.extend(rates.processes.iter().take(shown).map(|line| process(line, style)));
    if !fits {
        lines.push(cut(&format!("({} more)", rates.processes.len() - shown), style.width));
    }
    lines.extend(listeners);
    lines.truncate(style.height);
    lines
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
        Rates {
            total: line(0),
            processes: (1..=processes).map(line).collect(),
            listeners: vec![listener],
            reasons: vec![("fork", 1)],
        }
    }

    fn style(width: usize, height: usize) -> Style {
        Style { width, height, color: false, blocks: false, help: false }
    }

    #[test]
    fn an_ordinary_terminal_has_it_all() {
        let screen = lines("run 7 (server): 2 processes, 0 ended", &rates(2), style(80, 24));
        let expected = "\
run 7 (server): 2 processes, 0 ended
per second: 1.23k events, 50.0 wakes (12.5% spurious), 2.50M system calls avoide
objects: 9 in process, 1 migrated (fork 1)

process              pid events/s wakes/s spurious avoided/s  here migrated
worker1                1    1.23k    50.0    12.5%     2.50M     9        1
worker2                2    1.23k    50.0    12.5%     2.50M     9        1

listener                   conn/s  wakes/s spurious  workers
127.0.0.1:8080                500      510        -  3 _=#";
        assert_eq!(screen.join("\n"), expected);
    }

    #[test]
    fn a_small_terminal_says_what_is_left_out() {
        let screen = lines("run", &rates(30), style(60, 15));
        assert_eq!(screen.len(), 15);
        assert!(screen.iter().all(|line| line.chars().count() <= 60));
        assert!(screen.iter().any(|line| line == "(24 more)"), "{screen:#?}");
        assert!(screen.last().is_some_and(|line| line.starts_with("127.0.0.1")));
        for (width, height) in [(1, 1), (5, 2), (16, 3), (300, 100)] {
            let screen = lines("run", &rates(30), style(width, height));
            assert!(screen.len() <= height);
            assert!(screen.iter().all(|line| line.chars().count() <= width), "{width}");
        }
    }

    #[test]
    fn bars_show_the_evenness_of_workers() {
        assert_eq!(bars(&[0, 5, 10], 10, true), "▁▅█");
        assert_eq!(bars(&[0, 0], 10, false), "__");
        assert_eq!(bars(&[1; 20], 4, false), "####");
    }
}
