//! Chains of sets that watch sets. Linux allows five sets in a chain, and each wake goes through
//! all of them.

use super::super::look::{Look, Set, Target};
use super::super::processes::Kind;
use super::{Finding, pids, place};

/// Sets in a chain that are worth a word.
const LONG: usize = 3;
/// Linux's own limit, so that a look that was taken during a change ends.
const LONGEST: usize = 5;

pub fn find(looks: &[Look]) -> Vec<Finding> {
    let Some(last) = looks.last() else { return Vec::new() };
    let outer = |set: &&Set| !last.sets.iter().any(|other| inner(last, other).any(|it| it == *set));
    let mut findings = Vec::new();
    for set in last.sets.iter().filter(outer) {
        let depth = depth(last, set, LONGEST);
        if depth >= LONG {
            findings.push(Finding {
                kind: "nesting",
                what: format!(
                    "The set of {} is the outermost of {depth} in a chain; Linux allows {LONGEST}, \
                     and an event passes each of them.",
                    place(last, set)
                ),
                remedy: "Watch the sources of the inner sets in one set.".to_string(),
                pids: pids(&set.holders),
            });
        }
    }
    findings
}

/// The sets that a set watches.
fn inner<'a>(look: &'a Look, set: &'a Set) -> impl Iterator<Item = &'a Set> {
    set.watches.iter().filter_map(|(_, target)| match target {
        Target::Open(number) if look.kind(*number) == Some(&Kind::Set) => look.set(*number),
        _ => None,
    })
}

fn depth(look: &Look, set: &Set, most: usize) -> usize {
    match most {
        0 => 0,
        _ => 1 + inner(look, set).map(|it| depth(look, it, most - 1)).max().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{Made, kinds};
    use super::*;
    use crate::inspect::fdinfo::IN;

    #[test]
    fn a_chain_of_three_is_said() {
        let mut made = Made::with_processes(&[2]);
        made.open(2, 3, Kind::Pipe(9));
        made.watch(2, 4, 3, IN);
        made.watch(2, 5, 4, IN);
        assert_eq!(find(&made.looks(1)), []);
        made.watch(2, 6, 5, IN);
        let found = find(&made.looks(1));
        assert_eq!(kinds(&found), ["nesting"]);
        assert!(found[0].what.contains("worker 2 (descriptor 6) is the outermost of 3"));
    }
}
