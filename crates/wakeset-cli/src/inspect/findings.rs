//! What is wrong in what was seen, in plain words, with the remedy. Each kind of finding is a
//! function of the looks alone.

mod herd;
mod level;
mod limits;
mod nesting;
mod skew;
mod stale;
mod unattended;

#[cfg(test)]
mod made;

use std::collections::BTreeSet;

use super::fdinfo::Watch;
use super::kcmp::Number;
use super::look::{Look, Set, Target};
use super::processes::Kind;

/// One finding.
#[derive(Debug, PartialEq)]
pub struct Finding {
    /// A word that stays the same: `herd`, `mixed`, `skew`, `stale`, `level`, `unattended`,
    /// `nesting` or `limit`.
    pub kind: &'static str,
    pub what: String,
    pub remedy: String,
    pub pids: BTreeSet<i32>,
}

/// All findings. The looks are in the order of time, `seconds` after one another in all.
pub fn all(looks: &[Look], seconds: f64) -> Vec<Finding> {
    let mut findings = herd::find(looks);
    findings.extend(skew::find(looks, seconds));
    findings.extend(stale::find(looks));
    findings.extend(level::find(looks, seconds));
    findings.extend(unattended::find(looks, seconds));
    findings.extend(nesting::find(looks));
    findings.extend(limits::find(looks));
    findings
}

/// What an entry of a set watches, in words.
pub fn describe(look: &Look, watch: &Watch, target: &Target) -> String {
    let socket = |inode: &u64| look.sockets.get(inode).map(super::sockets::Socket::describe);
    match target {
        Target::Unknown => "cannot be told".to_string(),
        Target::Stale => match socket(&watch.inode) {
            Some(socket) => format!("{socket}, which no descriptor refers to"),
            None => "a file that no descriptor refers to".to_string(),
        },
        Target::Open(number) => match look.kind(*number) {
            Some(Kind::Socket(inode)) => socket(inode).unwrap_or_else(|| "socket".to_string()),
            Some(Kind::Set) => format!("the set at descriptor {}", number.fd),
            Some(Kind::Pipe(_)) => "pipe".to_string(),
            Some(Kind::Anonymous(name)) => name.clone(),
            Some(Kind::Path(path)) => path.clone(),
            None => "cannot be told".to_string(),
        },
    }
}

/// Where a set is: `nginx 77 (descriptor 8), shared with 78, 79`.
pub fn place(look: &Look, set: &Set) -> String {
    let Some(first) = set.holders.first() else { return String::new() };
    let name = look.process(first.pid).map_or("", |process| process.name.as_str());
    let mut text = format!("{name} {} (descriptor {})", first.pid, first.fd);
    let others: BTreeSet<_> =
        set.holders.iter().map(|it| it.pid).filter(|pid| *pid != first.pid).collect();
    if !others.is_empty() {
        text += &format!(", shared with {}", list(others.iter()));
    }
    text
}

/// The first few of them, and how many more there are.
pub fn list<T: ToString>(items: impl Iterator<Item = T>) -> String {
    const SHOWN: usize = 5;
    let items: Vec<_> = items.map(|item| item.to_string()).collect();
    let mut text = items.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if items.len() > SHOWN {
        text += &format!(" and {} more", items.len() - SHOWN);
    }
    text
}

/// `1 thread`, `2 threads`.
pub fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn pids(holders: &[Number]) -> BTreeSet<i32> {
    holders.iter().map(|holder| holder.pid).collect()
}

/// Whether a process of a set runs under Wakeset, so that only a part of the set is seen.
fn is_partly_seen(look: &Look, set: &Set) -> bool {
    let hidden = |it: &Number| look.process(it.pid).is_none_or(|process| process.under_wakeset);
    set.holders.iter().any(hidden)
}
