//! What lives under a number from an open to a close, and the units that went in and out.

use crate::clock::Time;
use libc::c_int;

/// A description: what lives under a number from an open to a close.
pub struct Description {
    pub target: usize,
    pub number: c_int,
    pub open: (Time, Time),
    /// The close. Its end is that of the last call which may still hold the description.
    pub close: (Time, Time),
    pub writes: Flow,
    pub reads: Flow,
}

/// Units added to a description, or taken from it.
#[derive(Default)]
pub struct Flow {
    /// Calls that certainly went to it, by their end, each with the running sum.
    pub certain: Vec<(Time, Time, u64)>,
    /// Calls that may have gone to it, by their start.
    pub possible: Vec<(Time, Time, u64)>,
}

impl Flow {
    pub fn sort(&mut self) {
        self.certain.sort_by_key(|call| call.1);
        self.possible.sort_by_key(|call| call.0);
        for list in [&mut self.certain, &mut self.possible] {
            let mut sum = 0;
            for call in list {
                sum += call.2;
                call.2 = sum;
            }
        }
    }

    /// Units that were certainly moved before `time`.
    pub fn before(&self, time: Time) -> u64 {
        let n = self.certain.partition_point(|call| call.1 < time);
        if n == 0 { 0 } else { self.certain[n - 1].2 }
    }

    /// Units that may have been moved before `time`.
    pub fn perhaps_before(&self, time: Time) -> u64 {
        let n = self.possible.partition_point(|call| call.0 < time);
        if n == 0 { 0 } else { self.possible[n - 1].2 }
    }

    /// The last call that certainly ended before `time`.
    pub fn last_before(&self, time: Time) -> Option<(Time, Time)> {
        let n = self.certain.partition_point(|call| call.1 < time);
        (n > 0).then(|| (self.certain[n - 1].0, self.certain[n - 1].1))
    }

    /// How many may have come after `time`.
    pub fn perhaps_after(&self, time: Time) -> usize {
        self.possible.len() - self.certain.partition_point(|call| call.1 <= time)
    }

    /// When the last of them began; 0 for none.
    pub fn last_start(&self) -> Time {
        self.possible.last().map_or(0, |call| call.0)
    }
}
