//! How much one look reads at most. What lies beyond is left out, and the report says so.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;

/// Processes of the tree.
pub const PROCESSES: usize = 512;
/// Descriptors of all processes together.
pub const DESCRIPTORS: usize = 200_000;
/// Threads of all processes together.
pub const THREADS: usize = 10_000;
/// Comparisons of descriptions, each a kcmp(2).
pub const COMPARISONS: usize = 200_000;
/// Watches of a set whose entries are compared by kcmp(2), each of which walks the set under its
/// lock.
pub const COMPARED: usize = 2000;
/// Bytes of one file of `/proc`.
pub const BYTES: u64 = 32 << 20;

/// What was left out, each sentence once.
pub type Notes = BTreeSet<String>;

/// The text of a file of `/proc`, up to [`BYTES`]; `None` if it cannot be read.
pub fn read(path: &str, notes: &mut Notes) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(BYTES).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 == BYTES {
        notes.insert(format!("{path} was read up to {} MB.", BYTES >> 20));
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Counts down to a bound.
pub struct Budget {
    left: usize,
    most: usize,
    what: &'static str,
}

impl Budget {
    pub fn new(most: usize, what: &'static str) -> Self {
        Budget { left: most, most, what }
    }

    /// Takes one; false, with a note, if all are taken.
    pub fn take(&mut self, notes: &mut Notes) -> bool {
        if self.left == 0 {
            let (most, what) = (self.most, self.what);
            notes.insert(match most {
                0 => format!("No {what} were looked at."),
                _ => format!("Only {most} {what} were looked at."),
            });
            return false;
        }
        self.left -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_a_bound_is_said_once() {
        let (mut budget, mut notes) = (Budget::new(2, "threads"), Notes::new());
        let taken: Vec<_> = (0..4).map(|_| budget.take(&mut notes)).collect();
        assert_eq!(taken, [true, true, false, false]);
        assert!(!Budget::new(0, "sets").take(&mut notes));
        let said: Vec<_> = notes.into_iter().collect();
        assert_eq!(said, ["No sets were looked at.", "Only 2 threads were looked at."]);
    }
}
