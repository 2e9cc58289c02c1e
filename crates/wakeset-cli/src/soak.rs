//! `wakeset soak`: a mixed load for as long as asked, that demands exact counts and flat memory all along.

mod calls;
mod load;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;
use wakeset_fd::stats::Page;

use crate::Failure;
use crate::run::is_preloaded;
use calls::Calls;
use load::{Load, Threads};

/// What `wakeset soak` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status 1 if a unit was lost or read twice, a report was wrong or missing, a thread slept while something was ready, \
or memory or descriptors grew; the summary says which.")]
pub struct Options {
    /// For how long
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..))]
    secs: u64,
    /// Threads that put on load; three servers, and one that blocks for each thread, come on top
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Who answers the calls; by default libc under `wakeset run`, so that the preload library does, and else the library
    #[arg(long, value_enum)]
    through: Option<Through>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Through {
    /// Wakeset by descriptor number, called directly
    Library,
    /// The C library: Wakeset under `wakeset run`, the kernel without it
    Libc,
}

/// What resident memory may grow by between the end of the warm-up and the end: threads' stacks and the allocator's
/// free lists are still finding their size.
const MEMORY_BOUND: i64 = 2 << 20;
/// A warm-up takes this part of the time, and no more than [`LONGEST_WARM_UP`].
const WARM_UP: u64 = 3;
const LONGEST_WARM_UP: Duration = Duration::from_secs(20);
/// Descriptors a thread of the load has open at one moment, at most: nine of a private set and its sources, as many of
/// a blocked call or a look into /proc.
const DESCRIPTORS_A_THREAD: usize = 20;
/// Of our own that the program does not know of (bells) there is one for each set that ever had both halves at one time.
const BELLS_A_THREAD: usize = 2;
/// Numbers from here on are bells.
const FIRST_BELL: u32 = 400;

/// Samples, one a second, without a unit read.
const STALLED: u32 = 20;

/// What the process uses.
#[derive(Clone, Copy, Debug)]
struct Usage {
    /// Bytes.
    resident: i64,
    descriptors: usize,
    bells: usize,
}

impl Usage {
    fn now() -> Result<Self, Failure> {
        let failed = |what: &str, error: std::io::Error| Failure::own(format!("{what}: {error}"));
        let statm = fs::read_to_string("/proc/self/statm").map_err(|e| failed("/proc/self/statm", e))?;
        let pages: i64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        // SAFETY: takes no memory.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let entries = fs::read_dir("/proc/self/fd").map_err(|e| failed("/proc/self/fd", e))?;
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let (bells, descriptors): (Vec<_>, Vec<_>) = numbers.partition(|number| *number >= FIRST_BELL);
        Ok(Self { resident: pages * page, descriptors: descriptors.len(), bells: bells.len() })
    }
}

/// Counts what the library does, when it is called directly.
static PAGE: Page = Page::zeroed();

/// Runs the load; the exit status.
pub fn soak(options: &Options) -> Result<i32, Failure> {
    let calls = match options.through {
        Some(Through::Library) if is_preloaded() => {
            return Err(Failure::own("under `wakeset run` the preload library has the descriptors: --through libc"));
        }
        Some(Through::Library) => Calls::Library,
        Some(Through::Libc) => Calls::Libc,
        None if is_preloaded() => Calls::Libc,
        None => Calls::Library,
    };
    let through = match (calls, is_preloaded()) {
        (Calls::Library, _) => "the library",
        (Calls::Libc, true) => "the preload library",
        (Calls::Libc, false) => "the kernel",
    };
    if calls == Calls::Library {
        PAGE.start(std::process::id(), b"soak");
        wakeset_fd::count::set_page(Some(&PAGE));
    }
    let threads = usize::from(options.threads);
    let (time, begin) = (Duration::from_secs(options.secs), Instant::now());
    let warm_up = (time / WARM_UP as u32).min(LONGEST_WARM_UP);
    let before = Usage::now()?;
    let failed = |error| Failure::own(format!("cannot set up the load: {error}"));
    let load = Arc::new(Load::new(calls).map_err(failed)?);
    let shared = Usage::now()?.descriptors;
    let running = Threads::start(&load, threads);

    let mut watch =
        Watch { load: &load, threads, shared, base: None, latest: before, highest: before, read: 0, stalled: 0 };
    let mut next_line = Instant::now();
    while begin.elapsed() < time && load.failure().is_none() {
        std::thread::sleep(Duration::from_secs(1).min(time.saturating_sub(begin.elapsed())));
        watch.sample(begin.elapsed() >= warm_up)?;
        if Instant::now() >= next_line {
            next_line += (time / 6).clamp(Duration::from_secs(1), Duration::from_secs(10));
            eprintln!("{:>6.0} s  {}", begin.elapsed().as_secs_f64(), watch.line());
        }
    }
    load.end();
    // Before the threads go, whose stacks would make up for what has grown.
    watch.sample(true)?;
    let grown = watch.check_memory();
    running.finish().map_err(|error| Failure::own(format!("cannot end the load: {error}")))?;
    let after = Usage::now()?;
    // Threads that hang keep what they use.
    if load.failure().is_none() && after.descriptors != before.descriptors {
        load.fail(format!("{} descriptors before and {} after", before.descriptors, after.descriptors));
    }

    let failure = load.failure();
    let open = (calls == Calls::Library).then(|| PAGE.summary().open());
    if options.json {
        let counts: serde_json::Map<_, _> =
            load.counts.all().map(|(name, count)| (name.to_string(), count.into())).collect();
        let summary = json!({
            "through": through,
            "seconds": begin.elapsed().as_secs_f64(),
            "threads": threads,
            "counts": counts,
            "resident_bytes": { "warm": watch.base.map(|base| base.resident), "end": watch.latest.resident,
                "grown": grown, "bound": MEMORY_BOUND },
            "descriptors": { "before": before.descriptors, "highest": watch.highest.descriptors,
                "after": after.descriptors, "bells": after.bells },
            "objects_left": open,
            "failure": failure,
        });
        println!("{summary:#}");
    } else {
        let rows =
            load.counts.all().map(|(name, count)| vec![name.replace('_', " "), crate::table::number(count as f64)]);
        let kib = |bytes: i64| format!("{} KiB", bytes >> 10);
        let rows: Vec<_> = rows
            .chain([
                vec!["resident, warm".into(), watch.base.map_or("-".into(), |base| kib(base.resident))],
                vec!["resident, end".into(), kib(watch.latest.resident)],
                vec!["growth allowed".into(), kib(MEMORY_BOUND)],
                vec!["descriptors, highest".into(), watch.highest.descriptors.to_string()],
                vec!["descriptors, before".into(), before.descriptors.to_string()],
                vec!["descriptors, after".into(), after.descriptors.to_string()],
                vec!["bells".into(), after.bells.to_string()],
            ])
            .collect();
        println!("{threads} threads on {through}, {:.1} s", begin.elapsed().as_secs_f64());
        print!("{}", crate::table::align(&rows));
        match &failure {
            None => println!("counts exact, memory and descriptors flat"),
            Some(failure) => println!("FAILED: {failure}"),
        }
    }
    Ok(i32::from(failure.is_some()))
}

/// What is sampled every second.
struct Watch<'a> {
    load: &'a Load,
    threads: usize,
    /// Descriptors with the shared objects, before the threads begin.
    shared: usize,
    /// At the end of the warm-up.
    base: Option<Usage>,
    latest: Usage,
    highest: Usage,
    /// Units read when that last changed, and for how many samples it has not.
    read: u64,
    stalled: u32,
}

impl Watch<'_> {
    fn sample(&mut self, warm: bool) -> Result<(), Failure> {
        self.load.check_channels();
        let now = Usage::now()?;
        self.latest = now;
        self.highest.descriptors = self.highest.descriptors.max(now.descriptors);
        self.highest.bells = self.highest.bells.max(now.bells);
        if warm {
            self.base.get_or_insert(now);
        }
        let read = self.load.counts.read.load(Ordering::Relaxed);
        self.stalled = if read == self.read { self.stalled + 1 } else { 0 };
        self.read = read;
        if self.stalled == STALLED {
            self.load.fail(format!("nothing has been read for {STALLED} seconds"));
        }
        let most = self.shared + self.threads * DESCRIPTORS_A_THREAD;
        if now.descriptors > most {
            self.load.fail(format!("{} descriptors are open, of {most} that can be in use", now.descriptors));
        }
        let most = 4 + self.threads * BELLS_A_THREAD;
        if now.bells > most {
            self.load.fail(format!("{} bells, of {most} that can be in use", now.bells));
        }
        Ok(())
    }

    fn line(&mut self) -> String {
        let count = |wanted: &str| self.load.counts.all().find(|(name, _)| *name == wanted).map_or(0, |(_, n)| n);
        format!(
            "{} units read, {} objects made, {} escapes, {} KiB resident, {} descriptors",
            crate::table::number(count("read") as f64),
            crate::table::number(count("objects_made") as f64),
            crate::table::number(count("escapes") as f64),
            self.latest.resident >> 10,
            self.latest.descriptors,
        )
    }

    /// How much resident memory has grown since the warm-up.
    fn check_memory(&self) -> i64 {
        let Some(base) = self.base else { return 0 };
        let grown = self.latest.resident - base.resident;
        if grown > MEMORY_BOUND {
            self.load.fail(format!(
                "resident memory grew by {} KiB, of {} KiB allowed",
                grown >> 10,
                MEMORY_BOUND >> 10
            ));
        }
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a watch over a load without threads says, having looked at it after `change`.
    fn verdict(change: impl FnOnce(&mut Watch)) -> Option<String> {
        let load = Load::new(Calls::Libc).unwrap();
        let now = Usage::now().unwrap();
        // Other tests of this process may open descriptors meanwhile.
        let shared = now.descriptors + 50;
        let mut watch =
            Watch { load: &load, threads: 1, shared, base: None, latest: now, highest: now, read: 0, stalled: 0 };
        change(&mut watch);
        load.failure()
    }

    #[test]
    fn memory_that_grows() {
        let grow = |bytes| {
            move |watch: &mut Watch| {
                watch.base = Some(Usage { resident: watch.latest.resident - bytes, ..watch.latest });
                watch.check_memory();
            }
        };
        assert_eq!(verdict(grow(MEMORY_BOUND)), None);
        let said = verdict(grow(MEMORY_BOUND + 1)).unwrap();
        assert!(said.contains("resident memory grew by 2048 KiB"), "{said}");
    }

    #[test]
    fn descriptors_that_stay_open() {
        assert_eq!(verdict(|watch| watch.sample(false).unwrap()), None);
        let said = verdict(|watch| {
            watch.shared = 0;
            let open: Vec<_> = (0..DESCRIPTORS_A_THREAD).map(|_| fs::File::open("/dev/null").unwrap()).collect();
            watch.sample(false).unwrap();
            drop(open);
        });
        assert!(said.as_ref().is_some_and(|said| said.contains("descriptors are open, of 20")), "{said:?}");
    }

    #[test]
    fn nothing_read_any_more() {
        let look = |times| move |watch: &mut Watch| (0..times).for_each(|_| watch.sample(false).unwrap());
        assert_eq!(verdict(look(STALLED - 1)), None);
        let said = verdict(look(STALLED)).unwrap();
        assert!(said.contains("nothing has been read"), "{said}");
    }
}
