//! Several buffers: readv(2), writev(2), sendmsg(2), recvmsg(2).

use super::*;
use libc::{EFAULT, EINVAL, ENOTSOCK, MSG_CMSG_CLOEXEC, iovec, msghdr};
use std::ptr;

fn vectors<const N: usize>(parts: [&[u8]; N]) -> [iovec; N] {
    parts.map(|part| iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() })
}

fn message(vectors: &[iovec]) -> msghdr {
    // SAFETY: zeros are a message of nothing.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_ptr().cast_mut();
    message.msg_iovlen = vectors.len();
    message
}

fn writev<B: Streams>(fd: &Fd<B>, vectors: &[iovec]) -> Result<usize, Errno> {
    // SAFETY: the tests' own memory, or such as cannot be reached.
    unsafe { B::writev(fd.as_raw_fd(), vectors.as_ptr(), vectors.len() as c_int) }
}

fn sendmsg<B: Streams>(fd: &Fd<B>, vectors: &[iovec], flags: c_int) -> Result<usize, Errno> {
    // SAFETY: as above.
    unsafe { B::sendmsg(fd.as_raw_fd(), &message(vectors), flags) }
}

fn readv<B: Streams>(fd: &Fd<B>, lens: &[usize]) -> Result<Vec<Vec<u8>>, Errno> {
    let mut parts: Vec<Vec<u8>> = lens.iter().map(|len| vec![b'-'; *len]).collect();
    let vectors: Vec<_> = parts
        .iter_mut()
        .map(|part| iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() })
        .collect();
    // SAFETY: as above.
    let n = unsafe { B::readv(fd.as_raw_fd(), vectors.as_ptr(), vectors.len() as c_int) }?;
    assert!(parts.concat()[n..].iter().all(|byte| *byte == b'-'));
    Ok(parts)
}

fn both_kinds<B: Streams>(flags: c_int) -> [Pipe<B>; 2] {
    [own_pair(B::pipe2(flags)), sockets(flags)]
}

pub(super) fn several_buffers_are_one_message<B: Streams>() {
    let (one, other) = nonblocking::<B>();
    let parts = vectors([b"ab", b"", &[b'c'; 100], b"d"]);
    let most = fill(&nonblocking::<Kernel>().0, 103);
    for i in 0..most {
        let sent = if i % 2 == 0 { writev(&one, &parts) } else { sendmsg(&one, &parts, 0) };
        assert_eq!(sent, Ok(103));
    }
    assert_eq!([writev(&one, &parts), sendmsg(&one, &parts, MSG_DONTWAIT)], [Err(EAGAIN); 2]);
    // A message counts until all of it has been read.
    assert_eq!(recv(&other, 102, 0).map(|bytes| bytes.len()), Ok(102));
    assert_eq!(send(&one, b"x", 0), Err(EAGAIN));
    assert_eq!(recv(&other, 1, 0), Ok(b"d".to_vec()));
    assert_eq!(send(&one, b"x", 0), Ok(1));
}

pub(super) fn several_buffers_are_filled_in_order<B: Streams>() {
    for (one, other) in both_kinds::<B>(SOCK_NONBLOCK) {
        assert_eq!(readv(&one, &[1, 2]), Err(EAGAIN));
        let long: Vec<u8> = (0..150).collect();
        for parts in [vectors([b"ab", b"cdefgh"]), vectors([&long[..20], &long[20..]])] {
            assert_eq!(writev(&other, &parts), Ok(parts[0].iov_len + parts[1].iov_len));
        }
        assert_eq!(readv(&one, &[1, 0, 3]), Ok(vec![b"a".to_vec(), vec![], b"bcd".to_vec()]));
        let parts = readv(&one, &[10, 60, 200]).unwrap();
        assert_eq!(parts[..2].concat(), [b"efgh", &long[..66]].concat());
        assert_eq!(parts[2][..84], long[66..]);
        // Runs of the same byte are held in another way.
        for _ in 0..3 {
            assert_eq!(writev(&other, &vectors([b"x", b"x"])), Ok(2));
        }
        assert_eq!(readv(&one, &[4, 9]), Ok(vec![b"xxxx".to_vec(), b"xx-------".to_vec()]));
    }
}

pub(super) fn a_blocked_read_fills_several_buffers<B: Streams>() {
    for (one, other) in both_kinds::<B>(0) {
        let task = Task::asleep(move || readv(&one, &[2, 9]));
        assert_eq!(writev(&other, &vectors([b"abc", b"d"])), Ok(4));
        assert_eq!(task.join(), Ok(vec![b"ab".to_vec(), b"cd-------".to_vec()]));
    }
}

pub(super) fn recvmsg_says_what_came<B: Streams>() {
    for flags in [0, MSG_CMSG_CLOEXEC, MSG_DONTWAIT, MSG_NOSIGNAL] {
        for control in [0, 64] {
            let (one, other) = sockets::<B>(0);
            let (mut bytes, mut room) = ([0_u8; 9], [0_u64; 8]);
            let (first, rest) = bytes.split_at_mut(2);
            let vectors = [first, rest]
                .map(|part| iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
            let mut message = message(&vectors);
            message.msg_namelen = 9;
            message.msg_flags = 0x1234;
            message.msg_controllen = control;
            if control != 0 {
                message.msg_control = room.as_mut_ptr().cast();
            }
            // SAFETY: memory of our own.
            let mut recvmsg = || unsafe {
                let n = B::recvmsg(one.as_raw_fd(), &mut message, flags)?;
                let said = (message.msg_flags, message.msg_controllen, message.msg_namelen);
                message.msg_flags = 0x1234;
                message.msg_controllen = control;
                Ok::<_, Errno>((n, said))
            };
            let nothing = (flags & MSG_CMSG_CLOEXEC, 0, 9);
            assert_eq!(other.write(b"hello"), Ok(5));
            assert_eq!(recvmsg(), Ok((5, nothing)));
            if flags == MSG_DONTWAIT {
                assert_eq!(recvmsg(), Err(EAGAIN));
            }
            assert_eq!(B::shutdown(other.as_raw_fd(), SHUT_WR), Ok(()));
            assert_eq!(recvmsg(), Ok((0, nothing)));
            assert_eq!(&bytes, b"hello\0\0\0\0");
        }
    }
}

pub(super) fn buffers_that_are_not_there_take_nothing<B: Streams>() {
    let bad = iovec { iov_base: ptr::without_provenance_mut(8), iov_len: 5 };
    for (one, other) in both_kinds::<B>(SOCK_NONBLOCK) {
        let [good] = vectors([b"good"]);
        assert_eq!(writev(&other, &[good, bad]), Err(EFAULT));
        assert_eq!(readv(&one, &[1, 2]), Err(EAGAIN));
        assert_eq!(writev(&other, &[good, good]), Ok(8));
        // SAFETY: an address that cannot be reached.
        let read = unsafe { B::readv(one.as_raw_fd(), [bad, good].as_ptr(), 2) };
        assert_eq!(read, Err(EFAULT));
        assert_eq!(readv(&one, &[4, 4]), Ok(vec![b"good".to_vec(), b"good".to_vec()]));
    }
}

pub(super) fn odd_vectors_are_refused<B: Streams>() {
    for (one, other) in both_kinds::<B>(SOCK_NONBLOCK) {
        let too_long = iovec { iov_base: ptr::null_mut(), iov_len: usize::MAX };
        let [good] = vectors([b"good"]);
        assert_eq!(writev(&other, &[good, too_long]), Err(EINVAL));
        assert_eq!(writev(&other, &[good; 1025]), Err(EINVAL));
        assert_eq!(writev(&other, &[]), Ok(0));
        assert_eq!(readv(&one, &[0, 0]), Ok(vec![vec![], vec![]]));
        assert_eq!(writev(&other, &[good; 17]), Ok(68));
        assert_eq!(readv(&one, &[68]).map(|parts| parts[0].len()), Ok(68));
    }
    let (_reader, writer) = own_pair::<B>(B::pipe2(0));
    assert_eq!(sendmsg(&writer, &vectors([b"a", b"b"]), 0), Err(ENOTSOCK));
}
