//! Stale watches: a set still watches a description that no descriptor refers to any more. Linux
//! removes a watch with the last descriptor of its description, not with the number that was added.

use std::collections::BTreeSet;

use super::super::fdinfo::Watch;
use super::super::look::{Look, Target};
use super::{Finding, count, describe, is_partly_seen, list, pids, place};

pub fn find(looks: &[Look]) -> Vec<Finding> {
    let (Some(last), true) = (looks.last(), looks.len() > 1) else { return Vec::new() };
    let mut findings = Vec::new();
    for set in &last.sets {
        let first = set.holders[0];
        if is_partly_seen(last, set) {
            continue;
        }
        // A descriptor may be closed and its watch removed between two reads of one look.
        let is_always_stale = |entry: &(Watch, Target)| {
            looks.iter().all(|look| {
                let set = look.set(first);
                set.is_some_and(|set| set.watches.contains(entry))
            })
        };
        let stale: Vec<_> = set
            .watches
            .iter()
            .filter(|entry| entry.1 == Target::Stale && is_always_stale(entry))
            .collect();
        if stale.is_empty() {
            continue;
        }
        let texts = stale.iter().map(|(watch, target)| {
            format!("{} ({}): {}", watch.number, watch.flags(), describe(last, watch, target))
        });
        let texts: BTreeSet<_> = texts.collect();
        findings.push(Finding {
            kind: "stale",
            what: format!(
                "The set of {} has {} of what was closed: added as {}. It reports events for them \
                 and epoll_ctl(2) cannot remove them.",
                place(last, set),
                count(stale.len(), "watch").replace("watchs", "watches"),
                list(texts.iter()),
            ),
            remedy: "Another descriptor kept the file open when this one was closed: a dup(2), a \
                     child of fork(2), a message of SCM_RIGHTS, a mapping. Remove the watch with \
                     EPOLL_CTL_DEL before close(2), or set FD_CLOEXEC so that children do not keep \
                     the file."
                .to_string(),
            pids: pids(&set.holders),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::made::{Made, kinds};
    use super::*;
    use crate::inspect::fdinfo::IN;
    use crate::inspect::processes::Kind;

    fn made(target: Target) -> Made {
        let mut made = Made::with_processes(&[2]);
        made.open(2, 7, Kind::Pipe(9));
        made.watch(2, 5, 7, IN);
        made.watch_as(2, 5, 8, IN, target);
        made
    }

    #[test]
    fn a_watch_of_a_closed_file_is_found() {
        let found = find(&made(Target::Stale).looks(3));
        assert_eq!(kinds(&found), ["stale"]);
        assert!(found[0].what.contains("has 1 watch of what was closed: added as 8 (IN)"));
    }

    #[test]
    fn what_cannot_be_told_is_not_said() {
        assert_eq!(find(&made(Target::Unknown).looks(3)), []);
    }

    /// It was being closed while the last look was taken.
    #[test]
    fn it_must_be_stale_at_each_look() {
        let mut looks = made(Target::Unknown).looks(2);
        looks.extend(made(Target::Stale).looks(1));
        assert_eq!(find(&looks), []);
    }
}
