//! Queue lengths that no table of `/proc` has: how many connections a listener may have waiting,
//! and what is unread in unix sockets. They come from sock_diag(7), as those of ss(8) do, and are
//! those of the network name space that `wakeset` runs in.

use super::bounds::BYTES;
use super::sockets::Sockets;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `TCPF_LISTEN`.
const LISTENING: u32 = 1 << 10;
const HEADER: usize = 16;

/// A queue's length, and how long it may become.
#[derive(Debug, PartialEq)]
struct Queue {
    inode: u64,
    now: u32,
    most: u32,
}

/// Fills in the queues. Without sock_diag(7) they stay unknown.
pub fn fill(sockets: &mut Sockets) {
    for family in [libc::AF_INET, libc::AF_INET6] {
        ask(&inet_request(family as u8), &mut |message| {
            if let Some(queue) = inet(message)
                && let Some(socket) = sockets.get_mut(&queue.inode).filter(|it| it.listens)
            {
                socket.backlog = Some(queue.most.into());
            }
        });
    }
    ask(&unix_request(), &mut |message| {
        if let Some(queue) = unix(message)
            && let Some(socket) = sockets.get_mut(&queue.inode)
        {
            socket.unread = Some(queue.now.into());
            socket.backlog = socket.listens.then_some(queue.most.into());
        }
    });
}

/// `struct inet_diag_req_v2` for all listeners of TCP.
fn inet_request(family: u8) -> Vec<u8> {
    let mut request = vec![family, libc::IPPROTO_TCP as u8, 0, 0];
    request.extend(LISTENING.to_ne_bytes());
    // The addresses and the interface, of which a dump takes none.
    request.extend([0; 48]);
    request
}

/// `struct unix_diag_req` for all sockets, with the lengths of their queues.
fn unix_request() -> Vec<u8> {
    const SHOW_QUEUES: u32 = 0x10;
    let mut request = vec![libc::AF_UNIX as u8, 0, 0, 0];
    for word in [u32::MAX, 0, SHOW_QUEUES, 0, 0] {
        request.extend(word.to_ne_bytes());
    }
    request
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// `struct inet_diag_msg` of a listener.
fn inet(message: &[u8]) -> Option<Queue> {
    let inode = word(message, 68)?.into();
    Some(Queue { inode, now: word(message, 56)?, most: word(message, 60)? })
}

/// `struct unix_diag_msg` and its attributes.
fn unix(message: &[u8]) -> Option<Queue> {
    const RQLEN: u16 = 4;
    let inode = word(message, 4)?.into();
    let mut rest = message.get(16..)?;
    while let Some(head) = rest.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        if u16::from_ne_bytes([head[2], head[3]]) == RQLEN {
            return Some(Queue { inode, now: word(rest, 4)?, most: word(rest, 8)? });
        }
        rest = rest.get(length.max(4).next_multiple_of(4)..)?;
    }
    None
}

/// Asks for a dump and passes on each message of the answer.
fn ask(request: &[u8], take: &mut dyn FnMut(&[u8])) {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: this makes a descriptor, which is closed below.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) };
    if fd < 0 {
        return;
    }
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let mut message = ((HEADER + request.len()) as u32).to_ne_bytes().to_vec();
    message.extend(BY_FAMILY.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(request);
    let limit = libc::timeval { tv_sec: 1, tv_usec: 0 };
    // SAFETY: both buffers are as long as these calls say, and the socket is ours.
    let sent = unsafe {
        let size = size_of::<libc::timeval>() as libc::socklen_t;
        let at = (&raw const limit).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, at, size);
        libc::send(fd, message.as_ptr().cast(), message.len(), 0)
    };
    let (mut buffer, mut total, mut more) = (vec![0u8; 1 << 16], 0u64, sent > 0);
    while more && total < BYTES {
        // SAFETY: the buffer is as long as the call says.
        let got = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        let Some(got) = usize::try_from(got).ok().filter(|got| *got > 0) else { break };
        total += got as u64;
        more = messages(&buffer[..got], take);
    }
    // SAFETY: the descriptor is ours, and is not used again.
    unsafe { libc::close(fd) };
}

/// Passes on the messages of one datagram; whether others follow.
fn messages(mut rest: &[u8], take: &mut dyn FnMut(&[u8])) -> bool {
    while let (Some(length), Some(kind)) = (word(rest, 0), rest.get(4..6)) {
        let length = length as usize;
        if u16::from_ne_bytes([kind[0], kind[1]]) != BY_FAMILY {
            return false;
        }
        let Some(body) = rest.get(HEADER..length) else { return false };
        take(body);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_read() {
        let mut message = vec![0; 72];
        message[56] = 3;
        message[60] = 128;
        message[68] = 77;
        assert_eq!(inet(&message), Some(Queue { inode: 77, now: 3, most: 128 }));
        assert_eq!(inet(&message[..60]), None);
    }

    #[test]
    fn a_unix_socket_is_read() {
        let mut message = vec![0; 16];
        message[4] = 9;
        // An attribute of five bytes, with its padding, before the one that counts.
        message.extend([5, 0, 0, 0, 1, 0, 0, 0]);
        message.extend([12, 0, 4, 0, 7, 0, 0, 0, 16, 0, 0, 0]);
        assert_eq!(unix(&message), Some(Queue { inode: 9, now: 7, most: 16 }));
        assert_eq!(unix(&message[..24]), None);
    }

    #[test]
    fn an_answer_is_taken_apart() {
        let mut datagram = vec![18, 0, 0, 0, 20, 0];
        datagram.extend([0; 10]);
        datagram.extend([1, 2, 0, 0]);
        let mut bodies = Vec::new();
        assert!(messages(&datagram, &mut |body| bodies.push(body.to_vec())));
        assert_eq!(bodies, [[1, 2]]);
        // `NLMSG_DONE` ends it, and so does a length that cannot be.
        datagram[4] = 3;
        assert!(!messages(&datagram, &mut |_| panic!("no message")));
        datagram[..6].copy_from_slice(&[255, 255, 0, 0, 20, 0]);
        assert!(!messages(&datagram, &mut |_| panic!("no message")));
    }
}
