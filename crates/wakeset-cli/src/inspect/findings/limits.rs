//! Nearness to limits: descriptors, watches of a user, connections that wait to be accepted.

use std::collections::{BTreeMap, BTreeSet};

use super::super::look::Look;
use super::super::processes::Kind;
use super::{Finding, pids};

pub fn find(looks: &[Look]) -> Vec<Finding> {
    let Some(last) = looks.last() else { return Vec::new() };
    let mut findings = descriptors(last);
    findings.extend(watches(last));
    findings.extend(backlogs(looks));
    findings
}

/// Whether four fifths are used.
fn is_near(used: u64, most: u64) -> bool {
    used > 0 && u128::from(used) * 5 >= u128::from(most) * 4
}

fn descriptors(look: &Look) -> Vec<Finding> {
    let mut findings = Vec::new();
    for process in &look.processes {
        let used = process.descriptors.len() as u64;
        let Some(most) = process.most_descriptors.filter(|most| is_near(used, *most)) else {
            continue;
        };
        findings.push(Finding {
            kind: "limit",
            what: format!(
                "{} {} has {used} descriptors open, of {most} that it may have.",
                process.name, process.pid
            ),
            remedy: "Raise RLIMIT_NOFILE (`ulimit -n`, or LimitNOFILE= of systemd), or look for \
                     descriptors that are never closed."
                .to_string(),
            pids: [process.pid].into(),
        });
    }
    findings
}

/// Linux counts the watches of all sets of a user.
fn watches(look: &Look) -> Vec<Finding> {
    let Some(most) = look.most_watches else { return Vec::new() };
    let mut by_user: BTreeMap<u32, (u64, BTreeSet<i32>)> = BTreeMap::new();
    for set in &look.sets {
        let owner = set.holders.first().and_then(|holder| look.process(holder.pid));
        if let Some(owner) = owner {
            let user = by_user.entry(owner.uid).or_default();
            user.0 += set.watches.len() as u64;
            user.1.extend(pids(&set.holders));
        }
    }
    let near = by_user.into_iter().filter(|(_, (used, _))| is_near(*used, most));
    let finding = |(user, (used, pids))| Finding {
        kind: "limit",
        what: format!(
            "User {user} has at least {used} epoll watches, of {most} that a user may have."
        ),
        remedy: "Raise /proc/sys/fs/epoll/max_user_watches, or remove watches of descriptors that \
                 are no longer used."
            .to_string(),
        pids,
    };
    near.map(finding).collect()
}

/// The queue of a listener at its fullest look.
fn backlogs(looks: &[Look]) -> Vec<Finding> {
    let mut fullest: BTreeMap<u64, (u64, u64, String, BTreeSet<i32>)> = BTreeMap::new();
    for look in looks {
        for process in &look.processes {
            for descriptor in process.descriptors.values() {
                let Kind::Socket(inode) = descriptor.kind else { continue };
                let Some(socket) = look.sockets.get(&inode).filter(|it| it.listens) else {
                    continue;
                };
                let (Some(now), Some(most)) = (socket.unread, socket.backlog) else { continue };
                if is_near(now, most) {
                    let entry = fullest.entry(inode).or_default();
                    (entry.1, entry.2) = (most, socket.describe());
                    entry.0 = entry.0.max(now);
                    entry.3.insert(process.pid);
                }
            }
        }
    }
    let finding = |(now, most, address, pids)| Finding {
        kind: "limit",
        what: format!(
            "{address}: {now} connections wait to be accepted, of {most} that may; more are \
             refused or delayed."
        ),
        remedy: "Accept faster (more workers, or accept4(2) until EAGAIN), or raise the argument \
                 of listen(2) together with /proc/sys/net/core/somaxconn."
            .to_string(),
        pids,
    };
    fullest.into_values().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::made::{LISTENER, Made, kinds};
    use super::*;
    use crate::inspect::fdinfo::IN;

    #[test]
    fn descriptors_near_their_limit_are_said() {
        let mut made = Made::with_processes(&[2]);
        made.process(2).most_descriptors = Some(10);
        for fd in 0..7 {
            made.open(2, fd, Kind::Pipe(9));
        }
        assert_eq!(find(&made.looks(1)), []);
        made.open(2, 7, Kind::Pipe(9));
        assert_eq!(kinds(&find(&made.looks(1))), ["limit"]);
        made.process(2).most_descriptors = None;
        assert_eq!(find(&made.looks(1)), []);
    }

    #[test]
    fn watches_near_their_limit_are_said() {
        let mut made = Made::with_processes(&[2, 3]);
        for pid in [2, 3] {
            for fd in 6..8 {
                made.open(pid, fd, Kind::Pipe(9));
                made.watch(pid, 5, fd, IN);
            }
        }
        made.0.most_watches = Some(6);
        assert_eq!(find(&made.looks(1)), []);
        made.0.most_watches = Some(5);
        let found = find(&made.looks(1));
        assert_eq!(kinds(&found), ["limit"]);
        assert!(found[0].what.starts_with("User 1 has at least 4 epoll watches, of 5"));
    }

    #[test]
    fn a_full_queue_is_said() {
        let mut made = Made::with_listener(&[2]);
        let looks: Vec<_> = [0, 9, 3]
            .map(|unread| {
                let listener = made.0.sockets.get_mut(&LISTENER).expect("it");
                (listener.unread, listener.backlog) = (Some(unread), Some(10));
                made.0.clone()
            })
            .to_vec();
        let found = find(&looks);
        assert_eq!(kinds(&found), ["limit"]);
        assert!(found[0].what.contains("9 connections wait to be accepted, of 10"), "{found:?}");
        assert_eq!(find(&looks[2..]), []);
    }
}
