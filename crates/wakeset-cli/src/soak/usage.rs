//! What the process uses: memory and descriptors.

use std::fs;

use procfs::process::Process;

use crate::failure::Failure;

/// Numbers from here on are doorbells, which the program does not know of.
const FIRST_DOORBELL: u32 = 400;

/// What the process uses.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Bytes.
    pub resident: i64,
    pub descriptors: usize,
    pub doorbells: usize,
}

impl Usage {
    pub fn now() -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::own(format!("/proc/self: {error}"));
        let memory = Process::myself().and_then(|process| process.statm());
        let pages = memory.map_err(|e| failed(&e))?.resident;
        let entries = fs::read_dir("/proc/self/fd").map_err(|e| failed(&e))?;
        let numbers =
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let (doorbells, descriptors): (Vec<_>, Vec<_>) =
            numbers.partition(|number| *number >= FIRST_DOORBELL);
        Ok(Self {
            resident: (pages * procfs::page_size()) as i64,
            descriptors: descriptors.len(),
            doorbells: doorbells.len(),
        })
    }
}
