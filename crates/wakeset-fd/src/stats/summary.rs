//! The sums over the stripes of a page, or over several pages.

use super::page::{MAGIC, PAGE_BYTES, Page, STRIPES, Stripe, VERSION};
use super::stat::Stat;
use super::tally::Tally;
use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;

/// The sums over a page's stripes, or over several pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The process the page belonged to; 0 for a total.
    pub pid: u32,
    name: [u8; 16],
    values: [u64; Stat::COUNT],
}

impl Default for Summary {
    fn default() -> Self {
        Summary { pid: 0, name: [0; 16], values: [0; Stat::COUNT] }
    }
}

impl Summary {
    /// The sums of a page in this process's memory.
    pub(super) fn of(page: &Page) -> Summary {
        let mut summary = Summary { pid: page.header.pid.load(Relaxed), ..Summary::default() };
        for (bytes, word) in summary.name.chunks_exact_mut(8).zip(&page.header.name) {
            bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        for stripe in &page.stripes {
            for (value, word) in summary.values.iter_mut().zip(&stripe.words) {
                *value = value.wrapping_add(word.load(Relaxed));
            }
            for tally in Tally::ALL {
                summary.add_tally(tally, stripe.tallies[tally as usize].load(Relaxed));
            }
        }
        summary
    }

    /// Reads a page from its bytes, which need not be aligned.
    ///
    /// `None` if there are too few bytes, or if the page was never started or has another version.
    pub fn parse(bytes: &[u8]) -> Option<Summary> {
        let word = |at: usize| -> Option<u64> {
            let eight = bytes.get(at..at + 8)?;
            Some(u64::from_ne_bytes(eight.try_into().ok()?))
        };
        let half = |at: usize| -> Option<u32> {
            let four = bytes.get(at..at + 4)?;
            Some(u32::from_ne_bytes(four.try_into().ok()?))
        };
        if bytes.len() < PAGE_BYTES
            || word(offset_of!(Page, header.magic))? != MAGIC
            || half(offset_of!(Page, header.version))? != VERSION
        {
            return None;
        }
        let mut summary =
            Summary { pid: half(offset_of!(Page, header.pid))?, ..Summary::default() };
        let name = offset_of!(Page, header.name);
        for (i, part) in summary.name.chunks_exact_mut(8).enumerate() {
            part.copy_from_slice(&word(name + 8 * i)?.to_le_bytes());
        }
        for stripe in 0..STRIPES {
            let start = offset_of!(Page, stripes) + stripe * size_of::<Stripe>();
            for (i, value) in summary.values.iter_mut().enumerate() {
                *value = value.wrapping_add(word(start + 8 * i)?);
            }
            let tallies = start + offset_of!(Stripe, tallies);
            for tally in Tally::ALL {
                summary.add_tally(tally, word(tallies + 8 * tally as usize)?);
            }
        }
        Some(summary)
    }

    fn add_tally(&mut self, tally: Tally, word: u64) {
        for stat in tally.stats() {
            let value = &mut self.values[*stat as usize];
            *value = value.wrapping_add(tally.count_of(word));
        }
    }

    /// The process's short name, without the padding.
    pub fn name(&self) -> &[u8] {
        let end = self.name.iter().position(|&b| b == 0);
        &self.name[..end.unwrap_or(self.name.len())]
    }

    /// One count.
    pub fn get(&self, stat: Stat) -> u64 {
        self.values[stat as usize]
    }

    /// All counts, in the order of [`NAMES`](super::NAMES).
    pub fn values(&self) -> &[u64; Stat::COUNT] {
        &self.values
    }

    /// Adds another page's counts to these; the process and its name stay as they are.
    pub fn add(&mut self, other: &Summary) {
        for (value, more) in self.values.iter_mut().zip(&other.values) {
            *value = value.wrapping_add(*more);
        }
    }

    /// Objects created: counters, timers, sets, and pairs.
    pub fn made(&self) -> u64 {
        [Stat::CountersMade, Stat::TimersMade, Stat::SetsMade, Stat::PipesMade]
            .iter()
            .fold(0, |made, stat| made.wrapping_add(self.get(*stat)))
    }

    /// Objects that migrated into the kernel, for whatever reason.
    pub fn migrated(&self) -> u64 {
        self.values[Stat::MOVED].iter().sum()
    }

    /// Of a hundred events that waits have reported, how many came from objects in process, rounded
    /// down; `None` if there were no events.
    pub fn percent_in_process(&self) -> Option<u64> {
        let events = self.get(Stat::Events);
        let here = events.saturating_sub(self.get(Stat::EventsFromKernel));
        here.saturating_mul(100).checked_div(events)
    }

    /// Of a hundred writes to eventfds, pipes and pairs, how many were answered in process, rounded
    /// down; `None` if there were none.
    pub fn percent_of_signals(&self) -> Option<u64> {
        self.get(Stat::Signals).saturating_mul(100).checked_div(self.signals())
    }

    /// Writes to eventfds, pipes and pairs, in process or in the kernel.
    pub fn signals(&self) -> u64 {
        self.get(Stat::Signals).saturating_add(self.get(Stat::SignalsInKernel))
    }

    /// Objects that had migrated and have come home, for whatever reason, each time counted.
    pub fn came_home(&self) -> u64 {
        self.get(Stat::HomeFork)
    }

    /// Objects that never left user space, or came home each time, including those that have been
    /// closed since.
    pub fn kept(&self) -> u64 {
        self.made().saturating_add(self.came_home()).saturating_sub(self.migrated())
    }

    /// Objects that still live in user space: neither migrated nor closed.
    pub fn open(&self) -> u64 {
        self.kept().saturating_sub(self.get(Stat::Closed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::SHARED_STRIPE;
    use super::super::page::tests::bytes_of;
    use super::*;

    /// What a thread counts on its fastest paths, in words of its own first.
    #[test]
    fn tallies_are_parts_of_the_counts() {
        let page = Page::zeroed();
        page.start(1, b"");
        let mine = page.claim_stripe();
        page.add_tallies(mine, [3_u64.wrapping_neg(), 2_u64.wrapping_neg(), u64::MAX, 7]);
        page.add_tallies(SHARED_STRIPE, [u64::MAX, 0, 0, 1]);
        page.bump(mine, Stat::Waits, 1);
        page.bump(mine, Stat::SignalsInKernel, 1);
        let read = Summary::parse(bytes_of(&page)).expect("a started page");
        assert_eq!(read, page.summary());
        let counts =
            [Stat::Waits, Stat::WaitsInProcess, Stat::SyscallsAvoided, Stat::Signals, Stat::Events];
        assert_eq!(counts.map(|stat| read.get(stat)), [5, 4, 7, 2, 8]);
        assert_eq!(read.percent_of_signals(), Some(66));
        let sum = Page::zeroed();
        sum.absorb(&page);
        assert_eq!(sum.summary().values(), read.values());
    }

    #[test]
    fn counts_survive_the_way_through_a_file() {
        let page = Page::zeroed();
        assert_eq!(Summary::parse(bytes_of(&page)), None, "not started");
        page.start(42, b"a name longer than fifteen");
        let mine = page.claim_stripe();
        page.bump(mine, Stat::CountersMade, 5);
        page.bump(mine, Stat::MigratedPoll, 2);
        page.bump(SHARED_STRIPE, Stat::SetsMade, 1);
        page.bump(usize::MAX, Stat::Closed, 3);
        let read = Summary::parse(bytes_of(&page)).expect("a started page");
        assert_eq!(read, page.summary());
        assert_eq!((read.pid, read.name()), (42, &b"a name longer t"[..]));
        assert_eq!((read.made(), read.migrated(), read.kept(), read.open()), (6, 2, 4, 1));
        assert_eq!(Summary::parse(&bytes_of(&page)[1..]), None);
        page.bump(mine, Stat::HomeFork, 1);
        let home = page.summary();
        assert_eq!((home.came_home(), home.kept(), home.open()), (1, 5, 2));
        assert_eq!(read.percent_in_process(), None);
        page.bump(mine, Stat::Events, 3);
        page.bump(mine, Stat::EventsFromKernel, 1);
        assert_eq!(page.summary().percent_in_process(), Some(66));
    }
}
