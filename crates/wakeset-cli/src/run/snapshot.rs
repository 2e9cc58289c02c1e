//! What a shared run has counted so far, read by another process.
//!
//! The file is read and not mapped: whoever makes it shorter meanwhile, this process gets an error
//! and no signal. Nothing is written, and no lock is taken.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use wakeset_fd::stats::area::{Area, CONTROL_BYTES, Refusal, SLOT_BYTES, SLOTS};
use wakeset_fd::stats::{ListenerSummary, Migration, PAGE_BYTES, SetSummary, Summary};

/// How often a look is begun again because a process was adding up meanwhile.
const TRIES: usize = 5;
/// How much later than its process a slot may seem to begin: clock ticks are coarse.
const SLACK: u64 = 20_000_000;

/// A process that counts.
pub struct Image {
    /// Its place, which another process has when this one has ended.
    pub slot: usize,
    pub summary: Summary,
    pub listeners: Vec<ListenerSummary>,
    /// The sets that it waits on.
    pub sets: Vec<SetSummary>,
    /// The last ones, in no order.
    pub migrations: Vec<Migration>,
}

/// A run, and what it had counted at the last look.
pub struct Snapshot {
    /// The process that `wakeset run` became.
    pub pid: u32,
    /// Of which only this process and its descendants are looked at, if it is not all of it.
    pub root: Option<u32>,
    file: File,
    /// Memory of our own, as large as the file, for what has been read of it.
    area: Area<'static>,
    start: *mut u8,
    bytes: usize,
    /// Whether processes have the same numbers here as they have for the run.
    pub knows_processes: bool,
    /// The processes that are alive, in the order in which they began to count.
    pub images: Vec<Image>,
    /// What processes have counted that have ended, or have become another program.
    pub ended: Summary,
    pub ended_listeners: Vec<ListenerSummary>,
    /// How many these are.
    pub ended_images: u64,
}

impl Snapshot {
    /// The run in this file. An error says what is wrong with the file.
    pub fn of(pid: u32, file: File) -> Result<Self, String> {
        let size = file.metadata().map_err(|error| error.to_string())?.len() as usize;
        let most = CONTROL_BYTES + SLOTS * SLOT_BYTES;
        if size < CONTROL_BYTES + SLOT_BYTES {
            return Err("it is too short".into());
        }
        let bytes = size.min(most);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping, undone with this value, and large enough.
        let (start, area) = unsafe {
            let start = libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0).cast::<u8>();
            if start.cast() == libc::MAP_FAILED {
                return Err(io::Error::last_os_error().to_string());
            }
            (start, Area::at(start, bytes))
        };
        let area = area.ok_or("it is too short")?;
        let (images, ended_listeners) = (Vec::new(), Vec::new());
        let mut run = Snapshot {
            pid,
            root: None,
            file,
            area,
            start,
            bytes,
            knows_processes: false,
            images,
            ended: Summary::default(),
            ended_listeners,
            ended_images: 0,
        };
        run.read(0, CONTROL_BYTES).map_err(|error| error.to_string())?;
        if !area.is_started() || !area.is_shared() {
            return Err("it is none of a run, or of another version of Wakeset".into());
        }
        let here = fs::metadata("/proc/self/ns/pid").map_or(0, |inode| inode.ino());
        run.knows_processes = area.name_space() == here;
        Ok(run)
    }

    /// Reads part of the file into the same part of the memory.
    fn read(&mut self, at: usize, bytes: usize) -> io::Result<()> {
        let end = at + bytes;
        if end > self.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut at = at;
        while at < end {
            // SAFETY: within the mapping, which nothing reads meanwhile.
            let read = unsafe {
                let to = self.start.add(at).cast();
                libc::pread(self.file.as_raw_fd(), to, end - at, at as libc::off_t)
            };
            match read {
                ..0 => return Err(io::Error::last_os_error()),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => at += read as usize,
            }
        }
        Ok(())
    }

    /// Looks again.
    pub fn refresh(&mut self) -> io::Result<()> {
        for _ in 0..TRIES {
            self.read(0, CONTROL_BYTES)?;
            let before = self.area.folds();
            let area = self.area;
            let slots: Vec<_> = area.held().map(|(slot, ..)| slot).collect();
            for &slot in &slots {
                self.read(CONTROL_BYTES + slot * SLOT_BYTES, PAGE_BYTES)?;
            }
            let mut images = self.take(&slots);
            // What was being added up meanwhile is in both, or in neither.
            self.read(0, CONTROL_BYTES)?;
            let after = self.area.folds();
            std::mem::swap(&mut self.images, &mut images);
            if before == after && before.0 == before.1 {
                break;
            }
        }
        if let Some(root) = self.root {
            // What has ended is known for the whole run only.
            self.images.retain(|image| descends(image.summary.pid, root));
            self.ended = Summary::default();
            self.ended_listeners.clear();
            self.ended_images = 0;
        }
        Ok(())
    }

    /// Sorts what has been read into processes that are alive, and those that have ended.
    fn take(&mut self, slots: &[usize]) -> Vec<Image> {
        let mut bytes = [0; PAGE_BYTES];
        self.area.copy_folded(&mut bytes);
        self.ended = Summary::parse(&bytes).unwrap_or_default();
        self.ended_listeners = ListenerSummary::parse(&bytes).collect();
        self.ended_images = self.area.folds().1;

        let mut held: Vec<_> = self.area.held().filter(|(slot, ..)| slots.contains(slot)).collect();
        held.sort_unstable_by_key(|(_, _, claim)| *claim);
        let latest: HashMap<_, _> = held.iter().map(|(_, it, claim)| (it.pid, *claim)).collect();
        let mut images = Vec::new();
        for (slot, holder, claim) in held {
            self.area.copy(slot, &mut bytes);
            let Some(summary) = Summary::parse(&bytes) else { continue };
            let listeners: Vec<_> = ListenerSummary::parse(&bytes).collect();
            let is_checked = self.knows_processes && holder.known;
            let has_ended = is_checked
                && (latest.get(&holder.pid).is_some_and(|last| *last > claim)
                    || !has_been(holder.pid, self.area.since(slot)));
            if has_ended {
                self.ended.add(&summary);
                self.ended_listeners.extend(listeners);
                self.ended_images += 1;
            } else {
                let (sets, migrations) =
                    (SetSummary::parse(&bytes).collect(), Migration::parse(&bytes).collect());
                images.push(Image { slot, summary, listeners, sets, migrations });
            }
        }
        images
    }

    /// Process images that were not counted, for this reason.
    pub fn not_counted(&self, why: Refusal) -> u64 {
        self.area.not_counted(why)
    }

    /// Whether no process of the run is alive.
    pub fn has_ended(&self) -> bool {
        let first = self.root.unwrap_or(self.pid);
        self.images.is_empty() && !(self.knows_processes && is_process(first))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // SAFETY: our own mapping; nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// Whether there is a process of this number.
pub fn is_process(pid: u32) -> bool {
    let Ok(pid @ 1..) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: signal 0 only asks.
    let there = unsafe { libc::kill(pid, 0) } == 0;
    there || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Generations that are looked through at most.
const MOST_GENERATIONS: usize = 64;

/// Whether a process is `root` or comes from it. One whose parent has ended does not any more.
fn descends(pid: u32, root: u32) -> bool {
    let mut pid = pid;
    for _ in 0..MOST_GENERATIONS {
        if pid == root {
            return true;
        }
        match parent(pid) {
            Some(above) if above > 1 => pid = above,
            _ => return false,
        }
    }
    false
}

fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = text.rsplit_once(')')?;
    after.split_whitespace().nth(1)?.parse().ok()
}

/// Whether there is a process of this number, and was at that time: one that has got the number
/// since is another one. In nanoseconds of `CLOCK_BOOTTIME`.
fn has_been(pid: u32, at: u64) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        // It has ended, or may not be looked at.
        return is_process(pid);
    };
    // The name, in parentheses, may hold anything; the 22nd word of all says when it began.
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks = after.split_whitespace().nth(19).and_then(|word| word.parse::<u64>().ok());
    let nanoseconds = 1_000_000_000 / procfs::ticks_per_second().max(1);
    ticks.is_none_or(|ticks| ticks.saturating_mul(nanoseconds) <= at.saturating_add(SLACK))
}
