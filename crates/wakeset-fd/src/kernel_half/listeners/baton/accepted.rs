//! What related processes have accepted, for sets that watch a listener by edges.
//!
//! Such a set is told once of a connection that its program leaves. accept(2) takes the oldest
//! first, so once anybody has accepted on that listener since, what is there may be another
//! connection, of which the set was not told. That is counted by the [note](super::note_of) of the
//! listener: it costs a fstat(2) for each connection, and so only once a set of the family watches
//! by edges. Listeners that share a note are counted as one, which brings an edge too many.

use super::names::{Notes, note_of};
use super::rounds::of_each;
use crate::kernel_half::listeners::shared_hint;
use core::ffi::c_int;
use core::sync::atomic::Ordering::SeqCst;
use wakeset::mutated;
use wakeset_group::listener::inode;

/// The number of connections accepted on the listeners with these notes. From now on they are
/// counted.
pub(in super::super) fn accepted(notes: Notes) -> u64 {
    let declined = shared_hint::declined();
    if declined.edges.load(SeqCst) == 0 {
        declined.edges.store(1, SeqCst);
    }
    of_each(&declined.accepted, notes as u64)
        .fold(0, |sum, count| sum.wrapping_add(count.load(SeqCst)))
}

/// accept(2) has taken a connection from this listener.
#[inline]
pub fn note_accepted(fd: c_int) {
    if shared_hint::declined().edges.load(SeqCst) != 0 {
        count(note_of(inode(fd)));
    }
}

#[cold]
fn count(notes: Notes) {
    let notes = if mutated!("accepted_on_any_listener") { u64::MAX } else { notes as u64 };
    for count in of_each(&shared_hint::declined().accepted, notes) {
        count.fetch_add(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;
    extern crate std;

    #[test]
    fn what_is_accepted_is_counted_by_listener() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let count = |index: usize| accepted(note_of(inode(listeners[index].as_raw_fd())));
        let before = [count(0), count(1)];
        note_accepted(listeners[0].as_raw_fd());
        note_accepted(-1);
        assert_eq!([count(0), count(1)], [before[0] + 1, before[1]]);
    }
}
