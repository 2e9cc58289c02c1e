//! `wakeset top`: looks at a run again and again.

use std::thread;
use std::time::{Duration, Instant};

use super::rates::Look;
use super::screen::{self, Style};
use super::terminal::{Input, Terminal};
use super::{TROUBLE, heading, refresh, seconds, target, trouble};
use crate::failure::Failure;
use crate::output::print;
use crate::run::Snapshot;

/// What `wakeset top` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0; 2 if no such program shares its counts.

The program must run by `wakeset run --share`, as the same user, or this must run as root. Keys: q \
quits, space looks at once, h shows the keys, s, l and m hide or show \
sets, listeners and migrations. Where standard output is no terminal, each look is \
printed below the one before. It ends when the program does.

Environment: with NO_COLOR set, nothing stands out. LC_ALL, LC_CTYPE and LANG say whether bars may
be drawn in Unicode. XDG_RUNTIME_DIR is where the runs of this user are looked for first, and then
/run/user/UID.

Examples:
  wakeset top
  wakeset top -d 0.5 nginx")]
pub struct TopOptions {
    /// A process of the run, or its name; may be left out if there is one run only. Of a process
    /// that is not the first one it is that process and its descendants
    #[arg(value_name = "PID|NAME")]
    target: Option<String>,
    /// The time from one look to the next
    #[arg(short = 'd', long, value_name = "SECS", default_value_t = 1.0, value_parser = seconds)]
    every: f64,
    /// End after so many looks
    #[arg(short = 'n', long, value_name = "COUNT",
        value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// The first look at what happens comes soon.
const FIRST: Duration = Duration::from_millis(200);
/// Without a terminal.
const WIDTH: usize = 100;

/// Shows the run until it ends, the count is reached, or the user has seen enough.
pub fn top(options: &TopOptions) -> Result<i32, Failure> {
    let mut run = target::find(options.target.as_deref())?;
    let terminal = Terminal::open().map_err(|error| trouble(format!("the terminal: {error}")))?;
    let shown = match &terminal {
        Some(terminal) => on_terminal(&mut run, options, terminal),
        None => as_text(&mut run, options).map(|()| false),
    };
    // The terminal as it was, before anything else is said.
    drop(terminal);
    if shown? {
        print(&format!("run {} has ended\n", run.pid), TROUBLE)?;
    }
    Ok(0)
}

fn as_text(run: &mut Snapshot, options: &TopOptions) -> Result<(), Failure> {
    let pause = Duration::from_secs_f64(options.every);
    let mut before = Look::at(run);
    for look in 0..options.count.unwrap_or(u64::MAX) {
        thread::sleep(pause);
        refresh(run)?;
        if run.has_ended() {
            break;
        }
        let now = Look::at(run);
        let height = usize::MAX;
        let plain = Style { width: WIDTH, height, ..Style::default() };
        let style = Style { blocks: blocks(), ..plain };
        let mut text = if look > 0 { "\n".to_string() } else { String::new() };
        text += &screen::lines(&heading(run), &now.since(&before), style).join("\n");
        text.push('\n');
        if !print(&text, TROUBLE)? {
            break;
        }
        before = now;
    }
    Ok(())
}

/// Whether the run has ended meanwhile.
fn on_terminal(
    run: &mut Snapshot,
    options: &TopOptions,
    terminal: &Terminal,
) -> Result<bool, Failure> {
    let pause = Duration::from_secs_f64(options.every);
    let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut style = Style { color, blocks: blocks(), ..Style::default() };
    let mut before = Look::at(run);
    let mut now = Look::at(run);
    let mut looks = 0;
    let mut due = Instant::now() + FIRST.min(pause);
    loop {
        let (width, height) = terminal.size();
        style = Style { width, height, ..style };
        terminal.show(&screen::lines(&heading(run), &now.since(&before), style));
        if options.count.is_some_and(|count| looks >= count) {
            return Ok(false);
        }
        match terminal.wait(due.saturating_duration_since(Instant::now())) {
            Input::Quit | Input::Key(b'q' | b'Q') => return Ok(false),
            Input::Key(b'h' | b'H' | b'?') => style.help = !style.help,
            Input::Key(b's') => style.sets = !style.sets,
            Input::Key(b'l') => style.listeners = !style.listeners,
            Input::Key(b'm') => style.migrations = !style.migrations,
            Input::Key(b' ') | Input::Time => {
                refresh(run)?;
                if run.has_ended() {
                    return Ok(true);
                }
                before = std::mem::replace(&mut now, Look::at(run));
                looks += 1;
                due = Instant::now() + pause;
            }
            Input::Key(_) | Input::Redraw => {}
        }
    }
}

/// Whether the terminal's characters are Unicode's.
fn blocks() -> bool {
    let mut names = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
    let value = names.find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let value = value.unwrap_or_default().to_ascii_uppercase();
    value.contains("UTF-8") || value.contains("UTF8")
}
