//! Which order of waking suits a listener: the rule of docs/herd.md, applied to what was counted.

use crate::run::Listener;

/// How the workers of a listener behaved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habit {
    /// Threads that waited on it or accepted from it.
    workers: usize,
    connections: u64,
    /// Connections that were open when the time was up; `None` if that is not known.
    held: Option<u64>,
    wakes: u64,
    spurious: u64,
}

impl Habit {
    pub fn of(listener: &Listener, held: Option<u64>) -> Self {
        Habit {
            workers: listener.workers.len(),
            connections: listener.connections,
            held,
            wakes: listener.wakes,
            spurious: listener.spurious,
        }
    }

    /// Whether connections stay open: a quarter of those that came were still there.
    fn keeps(&self) -> bool {
        self.held.is_some_and(|held| held > 0 && held.saturating_mul(4) >= self.connections)
    }

    /// Whether workers that are awake often take what another was woken for.
    fn races(&self) -> bool {
        self.wakes >= 100 && self.spurious.saturating_mul(2) > self.wakes
    }
}

/// The order for `--order`, `None` if it makes no difference or nothing is known; and why.
pub fn advice(habit: &Habit) -> (Option<&'static str>, String) {
    let (connections, held) = (habit.connections, habit.held.unwrap_or(0));
    match habit {
        Habit { workers: 0 | 1, .. } => {
            (None, "One thread waited on it: there is no order to choose.".into())
        }
        Habit { connections: 0, .. } => {
            (None, "No connection came: give it work while it is tried.".into())
        }
        _ if habit.keeps() => (
            Some("least"),
            format!(
                "{held} of {connections} connections were still open: where they stay for long, \
                 least keeps their number even. auto, the default, deals them out as they come \
                 (fifo), at less cost."
            ),
        ),
        _ if habit.races() => (
            Some("lifo"),
            format!(
                "{} of {} wakes were spurious: requests are shorter than a wake, so the worker \
                 that is awake takes the next one. Fewer workers help as well.",
                habit.spurious, habit.wakes
            ),
        ),
        Habit { held: None, .. } => (
            Some("auto"),
            "Whether connections stay open is not known here; auto looks for itself.".into(),
        ),
        _ => (
            Some("auto"),
            format!(
                "{held} of {connections} connections were still open: they are closed soon, so \
                 auto, the default, does as turns, which keeps caches warm and the work even. \
                 fifo is for slow requests of uneven length, lifo for where processor time is \
                 short."
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(
        workers: usize,
        connections: u64,
        held: Option<u64>,
        spurious: u64,
    ) -> Option<&'static str> {
        advice(&Habit { workers, connections, held, wakes: 1000, spurious }).0
    }

    #[test]
    fn the_order_follows_from_the_habit() {
        assert_eq!(order(1, 1000, Some(0), 0), None, "one worker");
        assert_eq!(order(4, 0, Some(0), 0), None, "no connection");
        assert_eq!(order(4, 1000, Some(3), 10), Some("auto"), "closed soon");
        assert_eq!(order(4, 100, Some(25), 10), Some("least"), "kept");
        assert_eq!(order(4, 1000, Some(0), 600), Some("lifo"), "shorter than a wake");
        assert_eq!(order(4, 1000, None, 10), Some("auto"), "not known");
    }
}
