//! What processes have counted for listening sockets, added up by address: for the report of
//! `wakeset run --stats`, and for whoever looks at a run that goes on.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::{Value, json};
use wakeset_fd::stats::{ListenerStat, ListenerSummary};

use crate::format;

const HEADINGS: [&str; 8] = [
    "listener",
    "threads",
    "connections",
    "wakes",
    "spurious",
    "least busy",
    "busiest",
    "busiest/least",
];

/// The listening sockets of a run, or of several, by address.
#[derive(Default)]
pub struct Listeners(BTreeMap<String, Listener>);

/// The counts of one address.
#[derive(Default)]
pub struct Listener {
    pub connections: u64,
    pub wakes: u64,
    pub spurious: u64,
    /// Connections of each thread that waited on it or accepted from it, by process.
    pub workers: BTreeMap<(u32, usize), u64>,
}

impl Listener {
    /// The connections of the least busy worker and of the busiest.
    pub fn extremes(&self) -> (u64, u64) {
        let counts = || self.workers.values().copied();
        (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
    }

    /// The connections of the busiest worker by those of the least busy; `None` if a worker had
    /// none.
    fn unevenness(&self) -> Option<f64> {
        let (least, most) = self.extremes();
        (least > 0).then(|| most as f64 / least as f64)
    }
}

impl Listeners {
    /// Adds what one process counted. `worker` is the number that its threads go by; without one
    /// they are no workers any more.
    pub fn add(&mut self, worker: Option<u32>, counted: &[ListenerSummary]) {
        for summary in counted {
            let listener = self.0.entry(name(summary.address())).or_default();
            let more = |count: &mut u64, stat| *count = count.saturating_add(summary.get(stat));
            more(&mut listener.connections, ListenerStat::Connections);
            more(&mut listener.wakes, ListenerStat::Wakes);
            more(&mut listener.spurious, ListenerStat::SpuriousWakes);
            let Some(process) = worker else { continue };
            for (thread, connections) in summary.threads() {
                let count = listener.workers.entry((process, thread)).or_default();
                *count = count.saturating_add(connections);
            }
        }
    }

    /// Each address with its counts.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Listener)> {
        self.0.iter()
    }

    pub fn get(&self, address: &str) -> Option<&Listener> {
        self.0.get(address)
    }

    /// A table; empty if no thread waited on a listening socket.
    pub fn table(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let mut rows = vec![HEADINGS.map(str::to_string).to_vec()];
        for (name, listener) in &self.0 {
            let (least, most) = listener.extremes();
            let unevenness =
                listener.unevenness().map_or("-".to_string(), |ratio| format!("{ratio:.2}"));
            let numbers = [
                listener.workers.len() as u64,
                listener.connections,
                listener.wakes,
                listener.spurious,
                least,
                most,
            ];
            let mut cells = vec![name.clone()];
            cells.extend(numbers.iter().map(u64::to_string));
            cells.push(unevenness);
            rows.push(cells);
        }
        format::table(rows)
    }

    pub fn json(&self) -> Value {
        let listeners = self.0.iter().map(|(name, listener)| {
            let workers: Vec<_> = listener
                .workers
                .iter()
                .map(|((pid, thread), connections)| {
                    json!({ "pid": pid, "thread": thread, "connections": connections })
                })
                .collect();
            json!({
                "address": name,
                "connections": listener.connections,
                "wakes": listener.wakes,
                "spurious_wakes": listener.spurious,
                "workers": workers,
                "busiest_over_least_busy": listener.unevenness(),
            })
        });
        listeners.collect()
    }
}

/// An address of getsockname(2) as people write it.
fn name(address: &[u8]) -> String {
    let bytes = |at: usize| address.get(at..).unwrap_or_default();
    let family = bytes(0).first_chunk().map_or(0, |family| i32::from(u16::from_ne_bytes(*family)));
    let port = bytes(2).first_chunk().map_or(0, |port| u16::from_be_bytes(*port));
    match family {
        libc::AF_INET => {
            let ip = bytes(4)
                .first_chunk()
                .map_or(Ipv4Addr::UNSPECIFIED, |ip: &[u8; 4]| Ipv4Addr::from(*ip));
            SocketAddr::from((ip, port)).to_string()
        }
        libc::AF_INET6 => {
            let ip = bytes(8)
                .first_chunk()
                .map_or(Ipv6Addr::UNSPECIFIED, |ip: &[u8; 16]| Ipv6Addr::from(*ip));
            SocketAddr::from((ip, port)).to_string()
        }
        libc::AF_UNIX => {
            let path = match bytes(2) {
                // The abstract name space.
                [0, name @ ..] => format!("@{}", String::from_utf8_lossy(name)),
                path => String::from_utf8_lossy(path).trim_end_matches('\0').to_string(),
            };
            path.chars().filter(|c| !c.is_control()).collect()
        }
        family => format!("family {family}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_names() {
        let mut internet = vec![libc::AF_INET as u8, 0, 0x1f, 0x90, 127, 0, 0, 1];
        internet.extend([0; 8]);
        assert_eq!(name(&internet), "127.0.0.1:8080");
        let mut internet6 = vec![libc::AF_INET6 as u8, 0, 0, 80, 0, 0, 0, 0];
        internet6.extend([0; 15]);
        internet6.extend([1, 0, 0, 0, 0]);
        assert_eq!(name(&internet6), "[::1]:80");
        let unix = |path: &[u8]| name(&[&[libc::AF_UNIX as u8, 0], path].concat());
        assert_eq!(unix(b"/run/a.sock\0"), "/run/a.sock");
        assert_eq!(unix(b"\0abstract\x1b"), "@abstract");
        assert_eq!(name(&[]), "family 0");
    }
}
