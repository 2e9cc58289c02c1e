//! What must hold of the world once the stopped thread has gone on.

use crate::trap::Progress;
use crate::world::{B_DATA, FULL, World, is_exclusive};
use std::sync::atomic::Ordering::SeqCst;
use wakeset::{Event, EventPoll, Events, Timeout};

impl World {
    /// What must hold when all threads have gone on and come to their end.
    pub fn check(&self) -> Result<(), String> {
        self.let_holder_go();
        self.stop_workers()?;
        // An edge that somebody else was told of before the waiter looked, or its removal, is
        // nothing to ring the bell for.
        let told = |data| !self.is_level() && self.reports.of(data) > self.stale.load(SeqCst);
        if self.data().is_none_or(told) || self.a.value() == Some(0) {
            self.ring();
        }
        for extra in std::mem::take(&mut *self.extras.lock().unwrap()) {
            extra.release();
            // Others may have been faster, and left nothing to read or no room to write. Else it
            // must end by itself.
            while extra.until_at_rest() == Progress::Asleep {
                match self.a.value() {
                    Some(0) => {
                        self.write_a(1);
                    }
                    Some(FULL) => self.read_a(),
                    _ => break,
                }
            }
            extra.join()?;
        }
        let (written, read, left) =
            (self.written.load(SeqCst), self.read.load(SeqCst), self.a.value().unwrap());
        if written.wrapping_sub(read) != left {
            return Err(format!("{written} written, {read} read, {left} left"));
        }
        let Some(set) = self.set.lock().unwrap().clone() else { return Ok(()) };
        self.check_others(left)?;
        self.check_b(&set)?;
        let Some(data) = self.data() else {
            // Removed or closed: silence from here on.
            let before = self.reports.of_a();
            if !self.closed_a.load(SeqCst) {
                self.write_a(1);
                self.drain_set(&set);
            }
            return if self.reports.of_a() == before {
                Ok(())
            } else {
                Err("a removed watch was reported".into())
            };
        };
        self.drain_set(&set);
        let (level, once) = (self.is_level(), self.kind.contains(Events::ONESHOT));
        let of_data = self.reports.of(data);
        let heard = of_data > if once { 0 } else { self.stale.load(SeqCst) };
        if left > 0 && !heard {
            return Err(format!("what was written was not reported ({of_data} reports)"));
        }
        if once && of_data > 1 {
            return Err(format!("{of_data} reports of a one-shot watch"));
        }
        let (all, edges) = (self.reports.of_a(), self.edges.load(SeqCst));
        // SEMANTICS.md, Known differences 9.
        if !level && all > edges && !self.called_for.load(SeqCst) {
            return Err(format!("{all} reports of {edges} edges"));
        }
        self.check_again(&set, data)
    }

    /// The watch works as if nothing had been: one more change, one more report.
    fn check_again(&self, set: &EventPoll, data: u64) -> Result<(), String> {
        self.read_a();
        self.drain_set(set);
        let mut data = data;
        if self.kind.contains(Events::ONESHOT) {
            self.modify_a().unwrap();
            data = self.data().unwrap();
        }
        let before = self.reports.of(data);
        self.write_a(1);
        let writable = u64::from(self.kind.contains(Events::OUT) && self.is_level());
        let n = self.wait(set, Timeout::Now);
        if self.reports.of(data) != before + 1 {
            return Err(format!(
                "one more write had {} reports, in {n} events",
                self.reports.of(data) - before
            ));
        }
        self.read_a();
        self.drain_set(set);
        let silent =
            self.reports.of(data) == before + 1 || self.kind.contains(Events::OUT) || writable != 0;
        if silent { Ok(()) } else { Err("a watch that was drained is reported".into()) }
    }

    fn check_b(&self, set: &EventPoll) -> Result<(), String> {
        let closed = self.closed_b.load(SeqCst);
        let before = self.reports.of(B_DATA);
        self.b.write(1).unwrap();
        self.wait(set, Timeout::Now);
        let after = self.reports.of(B_DATA);
        let _ = self.b.try_read();
        match (closed, after > before) {
            (false, false) => Err("another counter of the set is not reported any more".into()),
            (true, true) => Err("a closed counter was reported".into()),
            _ => Ok(()),
        }
    }

    /// Other sets that watch `A`, not exclusively and level-triggered: they report what holds.
    fn check_others(&self, left: u64) -> Result<(), String> {
        let holds = left > 0 && !self.closed_a.load(SeqCst);
        for (i, other) in self.others.lock().unwrap().iter().enumerate() {
            let mut events = [Event::default(); 4];
            let n = other.wait(&mut events, Timeout::Now).unwrap();
            let exclusive = is_exclusive(i);
            if (n > 0) != holds && !(exclusive && n == 0) {
                return Err(format!("set {i} beside this one says {n} events with {left} to read"));
            }
        }
        Ok(())
    }

    pub fn drain_set(&self, set: &EventPoll) {
        let set_aside = self.stop.value();
        assert_eq!(set_aside, Some(0));
        // Level-triggered ones come again each time; twice the watches there are is all.
        for _ in 0..4 {
            if self.wait(set, Timeout::Now) == 0 {
                break;
            }
        }
    }
}
