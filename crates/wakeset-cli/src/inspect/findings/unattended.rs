//! Sets that no thread waits on, though they watch something.
//!
//! A thread that ran between two looks may have been in epoll_wait(2) meanwhile, so a set is only
//! said to be unattended if all threads of its processes slept all along, elsewhere.

use super::super::look::{Look, Set, Target};
use super::super::processes::{Kind, Process};
use super::super::waiting::Wait;
use super::{Finding, count, is_partly_seen, pids, place};

pub fn find(looks: &[Look], seconds: f64) -> Vec<Finding> {
    let (Some(last), true) = (looks.last(), looks.len() > 1) else { return Vec::new() };
    let unattended = last.sets.iter().filter(|set| {
        !set.watches.is_empty()
            && !is_partly_seen(last, set)
            && !is_nested(last, set)
            && set.holders.iter().all(|it| has_slept_elsewhere(looks, it.pid, set))
    });
    let finding = |set: &Set| Finding {
        kind: "unattended",
        what: format!(
            "No thread waits on the set of {}, which has {}: all threads of its processes slept \
             elsewhere for {seconds:.1} s.",
            place(last, set),
            count(set.watches.len(), "watch").replace("watchs", "watches"),
        ),
        remedy: "Close the set if it is left over, or look at what the thread that should wait on \
                 it sleeps in: `cat /proc/PID/task/*/wchan`."
            .to_string(),
        pids: pids(&set.holders),
    };
    unattended.map(finding).collect()
}

/// Whether another set watches it, whose waiters then wait for it too.
fn is_nested(look: &Look, set: &Set) -> bool {
    look.sets.iter().flat_map(|other| &other.watches).any(|(_, target)| match target {
        Target::Open(number) => {
            look.kind(*number) == Some(&Kind::Set) && set.holders.contains(number)
        }
        _ => false,
    })
}

/// Whether all threads of a process slept from the first look to the last, and on something else.
fn has_slept_elsewhere(looks: &[Look], pid: i32, set: &Set) -> bool {
    let process: Option<Vec<&Process>> = looks.iter().map(|look| look.process(pid)).collect();
    let Some(process) = process else { return false };
    let elsewhere = |wait: &Wait| match wait {
        Wait::Elsewhere | Wait::Accept(_) => true,
        Wait::Epoll(Some(fd)) => !set.holders.iter().any(|it| it.pid == pid && it.fd == *fd),
        Wait::Poll(Some(numbers)) => {
            !set.holders.iter().any(|it| it.pid == pid && numbers.contains(&it.fd))
        }
        Wait::Running | Wait::Unknown | Wait::Epoll(None) | Wait::Poll(None) => false,
    };
    process.iter().all(|it| {
        !it.threads.is_empty()
            && it.threads == process[0].threads
            && it.threads.iter().all(|thread| elsewhere(&thread.wait))
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::{Made, kinds};
    use super::*;
    use crate::inspect::fdinfo::IN;

    fn made(wait: Wait) -> Made {
        let mut made = Made::with_processes(&[2]);
        made.open(2, 7, Kind::Pipe(9));
        made.watch(2, 5, 7, IN);
        made.waits(2, wait);
        made
    }

    #[test]
    fn a_set_that_all_sleep_past_is_found() {
        for wait in [Wait::Elsewhere, Wait::Epoll(Some(6)), Wait::Poll(Some(vec![7]))] {
            assert_eq!(kinds(&find(&made(wait).looks(3), 1.0)), ["unattended"]);
        }
    }

    #[test]
    fn a_set_that_may_be_waited_on_is_none() {
        for wait in [
            Wait::Epoll(Some(5)),
            Wait::Epoll(None),
            Wait::Poll(Some(vec![7, 5])),
            Wait::Poll(None),
            Wait::Running,
            Wait::Unknown,
        ] {
            assert_eq!(find(&made(wait).looks(3), 1.0), []);
        }
    }

    /// A thread that ran between the looks may have waited on it.
    #[test]
    fn a_thread_that_ran_may_have_waited() {
        let mut looks = made(Wait::Elsewhere).looks(3);
        looks[1].processes[0].threads[0].switches += 1;
        assert_eq!(find(&looks, 1.0), []);
    }

    #[test]
    fn a_nested_set_is_waited_on_through_the_outer_one() {
        let mut made = made(Wait::Epoll(Some(6)));
        made.watch(2, 6, 5, IN);
        assert_eq!(find(&made.looks(3), 1.0), []);
    }
}
