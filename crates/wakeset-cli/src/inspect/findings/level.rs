//! Levels that are never drained: a level-triggered watch whose source stays ready, so that every
//! epoll_wait(2) on the set returns at once.

use super::super::fdinfo::{EDGE, IN, Watch};
use super::super::look::{Look, Set, Target};
use super::super::processes::Kind;
use super::{Finding, describe, is_partly_seen, list, pids, place};

pub fn find(looks: &[Look], seconds: f64) -> Vec<Finding> {
    let (Some(last), true) = (looks.last(), looks.len() > 1) else { return Vec::new() };
    let mut findings = Vec::new();
    for set in last.sets.iter().filter(|set| !is_partly_seen(last, set)) {
        let undrained: Vec<_> = set
            .watches
            .iter()
            .filter_map(|(watch, target)| {
                let level = undrained(looks, set, watch, target)?;
                let what = describe(last, watch, target);
                Some(format!("descriptor {} ({what}): {level} unread", watch.number))
            })
            .collect();
        if undrained.is_empty() {
            continue;
        }
        findings.push(Finding {
            kind: "level",
            what: format!(
                "The set of {} watches, level-triggered, what nobody drains; in {} looks during \
                 {seconds:.1} s nothing was taken from {}. {}",
                place(last, set),
                looks.len(),
                list(undrained.iter()),
                spinning(looks, set, seconds),
            ),
            remedy:
                "Read it until EAGAIN, or remove the watch while the program does not want it: \
                     as long as it is ready, every epoll_wait(2) returns at once."
                    .to_string(),
            pids: pids(&set.holders),
        });
    }
    findings
}

/// What was there in all looks, if nothing was taken.
fn undrained(looks: &[Look], set: &Set, watch: &Watch, target: &Target) -> Option<u64> {
    // A watch with ONESHOT that has reported has no events but ERR and HUP until it is armed again.
    let Target::Open(_) = target else { return None };
    if !watch.has(IN) || watch.has(EDGE) {
        return None;
    }
    let nothing = level(looks.last()?, target)?.0 == 0;
    if nothing {
        return None;
    }
    let mut levels = Vec::new();
    for look in looks {
        let set = look.set(set.holders[0])?;
        let (_, target) = set.watches.iter().find(|(other, _)| other == watch)?;
        levels.push(level(look, target)?);
    }
    let (&now, rest) = levels.split_first()?;
    (now.0 > 0 && rest.iter().all(|it| it.1 == now.1 && stays(now, *it))).then_some(now.0)
}

/// Bytes of a socket stay the same if nobody reads and nobody sends. A count may rise: that shows
/// no less that it is not read.
fn stays(earlier: (u64, bool), now: (u64, bool)) -> bool {
    if now.1 { now.0 >= earlier.0 } else { now.0 == earlier.0 }
}

/// What is to be read, and whether it is a count that one read takes to 0.
fn level(look: &Look, target: &Target) -> Option<(u64, bool)> {
    let Target::Open(number) = target else { return None };
    let descriptor = look.process(number.pid)?.descriptors.get(&number.fd)?;
    match descriptor.kind {
        Kind::Socket(inode) => Some((look.sockets.get(&inode)?.unread?, false)),
        _ => Some((descriptor.level?, true)),
    }
}

/// What the processes of the set do meanwhile.
fn spinning(looks: &[Look], set: &Set, seconds: f64) -> String {
    let busy = |look: Option<&Look>| -> f64 {
        let process = |holder: i32| look.and_then(|look| look.process(holder));
        pids(&set.holders).into_iter().filter_map(process).map(|process| process.busy).sum()
    };
    let share = (busy(looks.last()) - busy(looks.first())) / seconds.max(0.001);
    match set.waiters.is_empty() && share < 0.01 {
        true => "No thread waits on the set.".to_string(),
        false => format!("Its processes used {:.0} % of a processor.", share * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{Made, kinds};
    use super::*;
    use crate::inspect::sockets::Socket;

    fn socket(unread: u64, events: u32) -> Made {
        let mut made = Made::with_processes(&[2]);
        made.open(2, 7, Kind::Socket(9));
        let (protocol, unread) = ("tcp", Some(unread));
        made.0.sockets.insert(9, Socket { protocol, unread, ..Socket::default() });
        made.watch(2, 5, 7, events);
        made
    }

    #[test]
    fn bytes_that_stay_are_found() {
        let mut looks = socket(12, IN).looks(3);
        looks[2].processes[0].busy = 0.5;
        let found = find(&looks, 1.0);
        assert_eq!(kinds(&found), ["level"]);
        assert!(found[0].what.contains("7 (tcp socket without a name): 12 unread"), "{found:?}");
        assert!(found[0].what.contains("used 50 % of a processor"), "{found:?}");
    }

    #[test]
    fn bytes_that_come_and_go_are_none() {
        assert_eq!(find(&socket(0, IN).looks(3), 1.0), []);
        let looks = [12, 12, 11].map(|unread| socket(unread, IN).0);
        assert_eq!(find(&looks, 1.0), []);
        let looks = [12, 12, 13].map(|unread| socket(unread, IN).0);
        assert_eq!(find(&looks, 1.0), []);
    }

    #[test]
    fn an_edge_or_a_watch_for_writing_is_none() {
        assert_eq!(find(&socket(12, IN | EDGE).looks(3), 1.0), []);
        assert_eq!(find(&socket(12, libc::EPOLLOUT as u32).looks(3), 1.0), []);
    }

    #[test]
    fn a_count_that_rises_is_not_read() {
        let look = |count| {
            let mut made = Made::with_processes(&[2]);
            made.open(2, 7, Kind::Anonymous("eventfd".to_string()));
            made.watch(2, 5, 7, IN);
            made.process(2).descriptors.get_mut(&7).expect("it").level = Some(count);
            made.0
        };
        assert_eq!(kinds(&find(&[1, 2, 2].map(look), 1.0)), ["level"]);
        assert_eq!(find(&[2, 1, 2].map(look), 1.0), []);
    }
}
