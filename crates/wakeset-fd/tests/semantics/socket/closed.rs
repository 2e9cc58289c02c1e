//! What the close of one end leaves to the other.

use super::*;

pub(super) fn a_closed_end_refuses_messages<B: Streams>() {
    for left in [&b""[..], b"abc"] {
        for len in [1, 40, 300, 5000] {
            let (set, (one, other)) = (Set::<B>::new(), sockets::<B>(0));
            assert_eq!(send(&one, left, 0), Ok(left.len()));
            drop(one);
            set.add(&other, IN | OUT | RDHUP, 1);
            assert_eq!(set.ready(), [(1, IN | OUT | RDHUP | HUP)]);
            assert_eq!(send(&other, &vec![1; len], 0), Err(EPIPE));
            // SIGPIPE is ignored in this program.
            assert_eq!(other.write(b"x"), Err(EPIPE));
            assert_eq!(other.write(b""), Err(EPIPE));
            assert_eq!(send(&other, b"", 0), Err(EPIPE));
            assert_eq!(recv(&other, 9, 0), Ok(left.to_vec()));
            assert_eq!(recv(&other, 9, 0), Ok(vec![]));
            assert_eq!(set.ready(), [(1, IN | OUT | RDHUP | HUP)]);
        }
        let (one, other) = sockets::<B>(0);
        assert_eq!(send(&one, left, 0), Ok(left.len()));
        drop(one);
        assert_eq!(send(&other, b"", 0), Err(EPIPE));
    }
}

pub(super) fn what_a_closed_end_wrote_moves<B: Streams>() {
    for left in [&[&b"abcd"[..], b"e"][..], &[b"a", b"a"], &[]] {
        let (set, (one, other)) = (Set::<B>::new(), nonblocking::<B>());
        set.add(&other, IN | RDHUP, 1);
        for bytes in left {
            assert_eq!(send(&one, bytes, 0), Ok(bytes.len()));
        }
        let left = left.concat();
        drop(one);
        if !left.is_empty() {
            assert_eq!(recv(&other, 1, 0), Ok(left[..1].to_vec()));
        }
        let same = other.dup();
        assert_eq!(set.ready(), [(1, IN | RDHUP | HUP)]);
        assert_eq!(send(&same, b"x", 0), Err(EPIPE));
        assert_eq!(recv(&same, 9, 0), Ok(left[left.len().min(1)..].to_vec()));
        assert_eq!(recv(&other, 9, 0), Ok(vec![]));
    }
}
