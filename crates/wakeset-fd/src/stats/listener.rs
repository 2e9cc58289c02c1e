//! The counts of listening sockets: how they lie in a page, and what a reader makes of them.

use super::page::{Page, SHARED_STRIPE, STRIPES, move_count};
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Listening sockets that a process counts for; it does not count for any more.
pub const LISTENERS: usize = 16;

/// Room in bytes for any address of an internet or a unix socket.
pub const ADDRESS_BYTES: usize = 112;

/// What is counted for each listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ListenerStat {
    /// Waits on the socket that joined the rotation.
    Waits,
    /// Connections accepted.
    Connections,
    /// Sleeps that the socket ended.
    Wakes,
    /// Those after which there was nothing to accept.
    SpuriousWakes,
}

/// One listening socket's counts in a page.
#[repr(C, align(64))]
pub(super) struct Listener {
    /// Its address as getsockname(2) gives it, in whole words.
    address: [AtomicU64; ADDRESS_BYTES / 8],
    /// The length of the address; 0: the entry is free; [`CLAIMED`]: it is about to be filled in.
    len: AtomicU64,
    counts: [AtomicU64; 4],
    /// Bit n: the thread of stripe n has waited on it.
    waited: AtomicU64,
    /// The connections that the thread of each stripe has accepted.
    connections: [AtomicU64; STRIPES],
}

const CLAIMED: u64 = u64::MAX;

impl Listener {
    pub(super) const fn zeroed() -> Self {
        Listener {
            address: [const { AtomicU64::new(0) }; ADDRESS_BYTES / 8],
            len: AtomicU64::new(0),
            counts: [const { AtomicU64::new(0) }; 4],
            waited: AtomicU64::new(0),
            connections: [const { AtomicU64::new(0) }; STRIPES],
        }
    }
}

impl Page {
    /// The index of the listening socket with this address, a new one if need be; `None` if all
    /// are taken, or if the address is longer than [`ADDRESS_BYTES`].
    pub fn index_of_listener(&self, address: &[u8]) -> Option<usize> {
        let mut padded = [0_u8; ADDRESS_BYTES];
        padded.get_mut(..address.len())?.copy_from_slice(address);
        let words = || {
            padded
                .chunks_exact(8)
                .map(|chunk| u64::from_ne_bytes(chunk.try_into().unwrap_or_default()))
        };
        self.listeners.iter().position(|listener| {
            match listener.len.compare_exchange(0, CLAIMED, Acquire, Acquire) {
                Ok(_) => {
                    for (stored, word) in listener.address.iter().zip(words()) {
                        stored.store(word, Relaxed);
                    }
                    listener.len.store(address.len() as u64, Release);
                    true
                }
                // An entry that is being filled in may be for the same socket. Then the socket has
                // two entries, and the reader adds them up.
                Err(len) => {
                    len == address.len() as u64
                        && listener
                            .address
                            .iter()
                            .zip(words())
                            .all(|(stored, word)| stored.load(Relaxed) == word)
                }
            }
        })
    }

    /// Adds one to a count of the listening socket at `index`; does nothing for an index that no
    /// socket can have. `stripe` is as for [`bump`](Self::bump) and says whose connection or wait
    /// this is.
    pub fn bump_listener(&self, index: usize, stripe: usize, stat: ListenerStat) {
        let Some(listener) = self.listeners.get(index) else { return };
        listener.counts[stat as usize].fetch_add(1, Relaxed);
        let stripe = stripe.min(SHARED_STRIPE);
        match stat {
            ListenerStat::Waits => _ = listener.waited.fetch_or(1 << stripe, Relaxed),
            ListenerStat::Connections => _ = listener.connections[stripe].fetch_add(1, Relaxed),
            ListenerStat::Wakes | ListenerStat::SpuriousWakes => {}
        }
    }

    /// Adds the counts of another page's socket to this page's, without its threads, and leaves
    /// that entry all zero.
    pub(super) fn absorb_listener(&self, other: &Listener) {
        let len = other.len.load(Acquire) as usize;
        let mut address = [0_u8; ADDRESS_BYTES];
        for (bytes, word) in address.chunks_exact_mut(8).zip(&other.address) {
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
        let index = address.get(..len).filter(|it| !it.is_empty());
        let to = index.and_then(|address| self.listeners.get(self.index_of_listener(address)?));
        for (i, count) in other.counts.iter().enumerate() {
            match to {
                Some(to) => move_count(&to.counts[i], count),
                None => count.store(0, Relaxed),
            }
        }
        other.waited.store(0, Relaxed);
        other.connections.iter().for_each(|count| count.store(0, Relaxed));
        // The address stays until the counts are gone, for whoever finishes this.
        other.len.store(0, Release);
        other.address.iter().for_each(|word| word.store(0, Relaxed));
    }
}

/// The counts that one page has of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSummary {
    address: [u8; ADDRESS_BYTES],
    len: usize,
    counts: [u64; 4],
    waited: u64,
    connections: [u64; STRIPES],
}

impl ListenerSummary {
    /// Reads the listening sockets of a page from its bytes.
    /// [`Summary::parse`](super::Summary::parse) says whether the bytes are a page at all.
    pub fn parse(bytes: &[u8]) -> impl Iterator<Item = ListenerSummary> {
        (0..LISTENERS).filter_map(move |i| {
            let start = offset_of!(Page, listeners) + i * size_of::<Listener>();
            let word = |at: usize| -> Option<u64> {
                let eight = bytes.get(start + at..start + at + 8)?;
                Some(u64::from_ne_bytes(eight.try_into().ok()?))
            };
            let len = usize::try_from(word(offset_of!(Listener, len))?).ok()?;
            if !(1..=ADDRESS_BYTES).contains(&len) {
                return None;
            }
            let at = start + offset_of!(Listener, address);
            let waited = word(offset_of!(Listener, waited))?;
            let (address, connections) = ([0; ADDRESS_BYTES], [0; STRIPES]);
            let mut summary = ListenerSummary { address, len, counts: [0; 4], waited, connections };
            summary.address.copy_from_slice(bytes.get(at..at + ADDRESS_BYTES)?);
            for (i, count) in summary.counts.iter_mut().enumerate() {
                *count = word(offset_of!(Listener, counts) + 8 * i)?;
            }
            for (i, count) in summary.connections.iter_mut().enumerate() {
                *count = word(offset_of!(Listener, connections) + 8 * i)?;
            }
            Some(summary)
        })
    }

    /// The socket's address as getsockname(2) gives it.
    pub fn address(&self) -> &[u8] {
        self.address.get(..self.len).unwrap_or_default()
    }

    /// One count.
    pub fn get(&self, stat: ListenerStat) -> u64 {
        self.counts[stat as usize]
    }

    /// The threads that have waited on the socket or accepted from it: the stripe of each, and the
    /// number of its connections. Threads that shared a stripe, at the same time or one after the
    /// other, appear as one.
    pub fn threads(&self) -> impl Iterator<Item = (usize, u64)> {
        let threads = self.connections.iter().copied().enumerate();
        threads.filter(|(stripe, connections)| *connections > 0 || self.waited >> stripe & 1 != 0)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::super::page::tests::bytes_of;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn listeners_have_an_index_each() {
        let page = Page::zeroed();
        let address = |i: u8| [i; 16];
        for i in 1..=LISTENERS as u8 {
            assert_eq!(page.index_of_listener(&address(i)), Some(usize::from(i) - 1));
        }
        assert_eq!(page.index_of_listener(&address(3)), Some(2));
        assert_eq!(page.index_of_listener(&address(99)), None);
        assert_eq!(page.index_of_listener(&[0; ADDRESS_BYTES + 1]), None);
        page.bump_listener(2, 0, ListenerStat::Wakes);
        page.bump_listener(LISTENERS, 0, ListenerStat::Wakes);
        page.bump_listener(4, 5, ListenerStat::Waits);
        page.bump_listener(4, 7, ListenerStat::Connections);
        page.bump_listener(4, SHARED_STRIPE, ListenerStat::Connections);
        page.bump_listener(4, usize::MAX, ListenerStat::Connections);
        page.bump_listener(4, SHARED_STRIPE, ListenerStat::Waits);
        let read: Vec<_> = ListenerSummary::parse(bytes_of(&page)).collect();
        assert_eq!(read.len(), LISTENERS);
        assert_eq!(read[2].address(), address(3));
        assert_eq!(read.iter().map(|listener| listener.get(ListenerStat::Wakes)).sum::<u64>(), 1);
        assert_eq!(read[2].get(ListenerStat::Wakes), 1);
        assert_eq!(read[2].threads().count(), 0);
        assert_eq!(read[4].threads().collect::<Vec<_>>(), [(5, 0), (7, 1), (SHARED_STRIPE, 2)]);
    }
}
