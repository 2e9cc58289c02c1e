//! What is demanded of the process all along: flat memory, flat descriptors, and progress.

use std::sync::atomic::Ordering;

use super::load::Load;
use super::usage::Usage;
use crate::failure::Failure;
use crate::format;

/// What resident memory may grow by between the end of the warm-up and the end: threads' stacks and
/// the allocator's free lists are still finding their size.
pub const MEMORY_BOUND: i64 = 2 << 20;
/// The most descriptors that a thread of the load has open at one moment: nine of a private set and
/// its sources, as many of a blocked call or a check in /proc.
const DESCRIPTORS_A_THREAD: usize = 20;
/// Doorbells: there is one for each set that ever had both halves at one time.
const DOORBELLS_A_THREAD: usize = 2;
/// Samples, one a second, without a unit read.
const STALLED: u32 = 20;

/// What is sampled every second.
pub struct Watch<'a> {
    pub load: &'a Load,
    threads: usize,
    /// Descriptors with the shared objects, before the threads begin.
    shared: usize,
    /// At the end of the warm-up.
    pub base: Option<Usage>,
    pub latest: Usage,
    pub highest: Usage,
    /// Units read when that last changed, and the number of samples since then.
    read: u64,
    stalled: u32,
}

impl<'a> Watch<'a> {
    /// A watch over a load of so many threads that have yet to begin; `now` is without the shared
    /// objects.
    pub fn new(load: &'a Load, threads: usize, shared: usize, now: Usage) -> Self {
        Watch { load, threads, shared, base: None, latest: now, highest: now, read: 0, stalled: 0 }
    }

    pub fn sample(&mut self, warm: bool) -> Result<(), Failure> {
        self.load.check_channels();
        let now = self.load.sample(Usage::now)?;
        self.latest = now;
        self.highest.descriptors = self.highest.descriptors.max(now.descriptors);
        self.highest.doorbells = self.highest.doorbells.max(now.doorbells);
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
            self.load.fail(format!(
                "{} descriptors are open, of {most} that can be in use",
                now.descriptors
            ));
        }
        let most = 4 + self.threads * DOORBELLS_A_THREAD;
        if now.doorbells > most {
            self.load.fail(format!("{} doorbells, of {most} that can be in use", now.doorbells));
        }
        Ok(())
    }

    pub fn line(&mut self) -> String {
        let count = |wanted: &str| {
            self.load.counts.all().find(|(name, _)| *name == wanted).map_or(0, |(_, n)| n)
        };
        format!(
            "{} units read, {} objects made, {} migrations, {} KiB resident, {} descriptors",
            format::number(count("read") as f64),
            format::number(count("objects_made") as f64),
            format::number(count("migrations") as f64),
            self.latest.resident >> 10,
            self.latest.descriptors,
        )
    }

    /// How much resident memory has grown since the warm-up.
    pub fn check_memory(&self) -> i64 {
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
    use crate::soak::calls::Calls;
    use std::fs;

    /// The failure that a watch over a load without threads finds after `change`.
    fn verdict(change: impl FnOnce(&mut Watch)) -> Option<String> {
        let load = Load::new(Calls::Libc).unwrap();
        let now = Usage::now().unwrap();
        // Other tests of this process may open descriptors meanwhile, more than a hundred at once.
        let shared = now.descriptors + 1000;
        let mut watch = Watch::new(&load, 1, shared, now);
        change(&mut watch);
        load.failure()
    }

    #[test]
    fn memory_that_grows() {
        let grow = |bytes| {
            move |watch: &mut Watch| {
                watch.base =
                    Some(Usage { resident: watch.latest.resident - bytes, ..watch.latest });
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
            let open: Vec<_> =
                (0..DESCRIPTORS_A_THREAD).map(|_| fs::File::open("/dev/null").unwrap()).collect();
            watch.sample(false).unwrap();
            drop(open);
        });
        assert!(
            said.as_ref().is_some_and(|said| said.contains("descriptors are open, of 20")),
            "{said:?}"
        );
    }

    #[test]
    fn nothing_read_any_more() {
        let sample =
            |times| move |watch: &mut Watch| (0..times).for_each(|_| watch.sample(false).unwrap());
        assert_eq!(verdict(sample(STALLED - 1)), None);
        let said = verdict(sample(STALLED)).unwrap();
        assert!(said.contains("nothing has been read"), "{said}");
    }
}
