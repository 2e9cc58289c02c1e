//! Herds: one connection wakes all that wait without `EPOLLEXCLUSIVE`, and one of them gets it.

use super::super::listeners::{self, Listener};
use super::super::look::Look;
use super::{Finding, count};

pub fn find(looks: &[Look]) -> Vec<Finding> {
    let listeners = listeners::of(looks);
    listeners.values().flat_map(|it| [herd(it), mixed(it)]).flatten().collect()
}

fn herd(listener: &Listener) -> Option<Finding> {
    let (sets, pollers) = (listener.not_exclusive().count(), listener.pollers.len());
    if sets + pollers < 2 {
        return None;
    }
    let mut ways = Vec::new();
    if sets > 0 {
        ways.push(format!("{} without EPOLLEXCLUSIVE", count(sets, "epoll set")));
    }
    if pollers > 0 {
        ways.push(format!("{} in poll(2) or select(2)", count(pollers, "thread")));
    }
    let address = listener.socket.describe();
    Some(Finding {
        kind: "herd",
        what: format!(
            "{address}: {} wait for its connections; each connection wakes all that are idle, and \
             one gets it.",
            ways.join(" and ")
        ),
        remedy:
            "Run the server by `wakeset run -- SERVER`, which wakes one per connection; or add \
                 the listener with EPOLLEXCLUSIVE in each worker; or give each worker a listener \
                 of its own with SO_REUSEPORT."
                .to_string(),
        pids: listener.workers(),
    })
}

fn mixed(listener: &Listener) -> Option<Finding> {
    let exclusive = listener.watchers.iter().filter(|it| it.exclusive).count();
    let others = listener.not_exclusive().count() + listener.pollers.len();
    if exclusive == 0 || others == 0 {
        return None;
    }
    Some(Finding {
        kind: "mixed",
        what: format!(
            "{}: {} it with EPOLLEXCLUSIVE, but {} without it; each connection wakes those too.",
            listener.socket.describe(),
            if exclusive == 1 { "1 set watches".into() } else { format!("{exclusive} sets watch") },
            if others == 1 { "1 other waits".into() } else { format!("{others} others wait") },
        ),
        remedy: "Add the listener with EPOLLEXCLUSIVE everywhere, or remove it where connections \
                 are not accepted."
            .to_string(),
        pids: listener.workers(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::{Made, kinds};
    use super::*;
    use crate::inspect::fdinfo::{EXCLUSIVE, IN};
    use crate::inspect::waiting::Wait;

    #[test]
    fn sets_without_exclusive_are_a_herd() {
        let mut made = Made::with_listener(&[2, 3, 4]);
        made.watch(2, 5, 3, IN);
        assert_eq!(find(&made.looks(3)), []);
        made.watch(3, 5, 3, IN);
        let found = find(&made.looks(3));
        assert_eq!(kinds(&found), ["herd"]);
        assert!(found[0].what.starts_with("tcp 127.0.0.1:80: 2 epoll sets without"), "{found:?}");
        assert_eq!(found[0].pids, [2, 3].into());
    }

    #[test]
    fn exclusive_sets_are_none() {
        let mut made = Made::with_listener(&[2, 3, 4]);
        for pid in [2, 3, 4] {
            made.watch(pid, 5, 3, IN | EXCLUSIVE);
        }
        assert_eq!(find(&made.looks(3)), []);
    }

    #[test]
    fn sleepers_in_select_are_a_herd() {
        let mut made = Made::with_listener(&[2, 3]);
        made.waits(2, Wait::Poll(Some(vec![3])));
        made.waits(3, Wait::Poll(Some(vec![3])));
        assert_eq!(kinds(&find(&made.looks(3))), ["herd"]);
        // accept(2) wakes one.
        made.waits(3, Wait::Accept(Some(3)));
        assert_eq!(find(&made.looks(3)), []);
    }

    /// A worker that was busy at one look has slept at another.
    #[test]
    fn sleepers_of_all_looks_count() {
        let mut made = Made::with_listener(&[2, 3]);
        made.waits(2, Wait::Poll(Some(vec![3])));
        let mut looks = made.looks(1);
        made.waits(2, Wait::Running);
        made.waits(3, Wait::Poll(Some(vec![3])));
        looks.extend(made.looks(1));
        assert_eq!(kinds(&find(&looks)), ["herd"]);
    }

    #[test]
    fn one_without_exclusive_among_others_is_said() {
        let mut made = Made::with_listener(&[2, 3, 4]);
        made.watch(2, 5, 3, IN | EXCLUSIVE);
        made.watch(3, 5, 3, IN | EXCLUSIVE);
        made.watch(4, 5, 3, IN);
        let found = find(&made.looks(3));
        assert_eq!(kinds(&found), ["mixed"]);
        assert!(found[0].what.contains("2 sets watch it with"), "{found:?}");
    }

    /// One set that processes share wakes one of them.
    #[test]
    fn one_shared_set_is_none() {
        let mut made = Made::with_listener(&[2, 3]);
        made.watch(2, 5, 3, IN);
        made.share(2, 5, 3);
        assert_eq!(find(&made.looks(3)), []);
    }

    #[test]
    fn processes_under_wakeset_are_left_out() {
        let mut made = Made::with_listener(&[2, 3]);
        for pid in [2, 3] {
            made.watch(pid, 5, 3, IN);
            made.process(pid).under_wakeset = true;
        }
        assert_eq!(find(&made.looks(3)), []);
    }
}
