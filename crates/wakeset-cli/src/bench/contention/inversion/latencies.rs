//! What the consumer's calls took.

use std::time::Duration;

use hdrhistogram::Histogram;

/// A call that takes longer than this is late: on its own it takes some ten microseconds.
pub const LATE: Duration = Duration::from_millis(1);

/// What the consumer's calls took.
pub struct Latencies {
    /// Nanoseconds, to three significant digits.
    pub times: Histogram<u64>,
    pub late: u64,
    pub stuck: u64,
}

impl Latencies {
    pub fn new() -> Self {
        let times = Histogram::new(3).expect("3 is a number of digits that is allowed");
        Latencies { times, late: 0, stuck: 0 }
    }

    pub fn record(&mut self, latency: Duration, stuck: bool) {
        let nanoseconds = latency.as_nanos() as u64;
        self.times.record(nanoseconds).expect("a histogram that resizes itself takes every value");
        self.late += u64::from(latency > LATE);
        self.stuck += u64::from(stuck);
    }

    pub fn add(&mut self, more: &Self) {
        self.times.add(&more.times).expect("a histogram that resizes itself takes every value");
        self.late += more.late;
        self.stuck += more.stuck;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To three significant digits, from the shortest call to the longest.
    #[test]
    fn latencies_of_every_length_are_kept() {
        let lengths = [300, 20_000, 1_500_000, 99_000_000, 7_000_000_000];
        let (mut latencies, mut more) = (Latencies::new(), Latencies::new());
        for (i, nanoseconds) in lengths.into_iter().enumerate() {
            let half = if i % 2 == 0 { &mut latencies } else { &mut more };
            half.record(Duration::from_nanos(nanoseconds), i == 4);
        }
        latencies.add(&more);
        for (i, nanoseconds) in lengths.into_iter().enumerate() {
            let found = latencies.times.value_at_quantile((i + 1) as f64 / 5.0);
            assert!(found.abs_diff(nanoseconds) * 1000 <= nanoseconds, "{found} of {nanoseconds}");
        }
        assert_eq!((latencies.times.len(), latencies.late, latencies.stuck), (5, 3, 1));
    }
}
