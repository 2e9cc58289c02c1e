//! How long to wait for what must come.
//!
//! By the clock alone a thread that has no processor looks like one that hangs: the machine may be
//! paused, and beside many other programs it may be seconds until a thread's turn comes. So time is
//! counted in rounds. A round lasts for some milliseconds by the clock, however late this thread
//! hears of their end, and until this thread has left its processor a few times to those that are
//! to run.
//!
//! It opens no file: descriptor numbers are the tests'.

use std::thread;
use std::time::{Duration, Instant};

/// How long a round lasts where threads have processors.
const ROUND: Duration = Duration::from_millis(10);

/// How often the thread leaves its processor to others in a round.
const TURNS: u32 = 8;

pub struct Patience {
    /// How many rounds are left, this one included.
    left: u32,
    /// How long each lasts at least.
    length: Duration,
    began: Instant,
}

impl Patience {
    /// For so long, where threads have processors.
    pub fn of(limit: Duration) -> Self {
        let left = limit.as_nanos().div_ceil(ROUND.as_nanos()).max(1) as u32;
        Self { left, length: limit / left, began: Instant::now() }
    }

    /// How long the round goes on.
    pub fn rest(&self) -> Duration {
        self.length.saturating_sub(self.began.elapsed())
    }

    pub fn is_over(&mut self) -> bool {
        if self.left > 0 && self.began.elapsed() >= self.length {
            (0..TURNS).for_each(|_| thread::yield_now());
            self.left -= 1;
            self.began = Instant::now();
        }
        self.left == 0
    }
}
