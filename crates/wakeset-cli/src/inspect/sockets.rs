//! Sockets by inode, from the tables `/proc/PID/net/{tcp,tcp6,udp,udp6,unix}` of the process's own
//! network name space: address, state, and what nobody has read yet.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Socket {
    pub protocol: &'static str,
    /// `127.0.0.1:80`, `[::1]:80`, a path, or `@name` of the abstract name space.
    pub local: String,
    /// The other end's address, where there is one.
    pub peer: Option<String>,
    pub listens: bool,
    /// `Recv-Q` of ss(8): bytes not read; of a listener, connections not accepted.
    pub unread: Option<u64>,
    /// How many connections a listener may have waiting.
    pub backlog: Option<u64>,
}

/// Sockets by inode.
pub type Sockets = HashMap<u64, Socket>;

impl Socket {
    /// The address in words: `tcp 127.0.0.1:80`, and the peer if there is one.
    pub fn describe(&self) -> String {
        match (&self.peer, self.local.as_str()) {
            (Some(peer), local) => format!("{} {local} from {peer}", self.protocol),
            (None, "") => format!("{} socket without a name", self.protocol),
            (None, local) => format!("{} {local}", self.protocol),
        }
    }
}

/// Adds the sockets of `net/tcp` and its like.
pub fn add_inet(sockets: &mut Sockets, protocol: &'static str, text: &str) {
    for line in text.lines().skip(1) {
        if let Some((inode, socket)) = inet(protocol, line) {
            sockets.insert(inode, socket);
        }
    }
}

/// `  0: 0100007F:8F27 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 49598989 …`
fn inet(protocol: &'static str, line: &str) -> Option<(u64, Socket)> {
    const LISTEN: u8 = 0x0A;
    let words: Vec<_> = line.split_whitespace().take(10).collect();
    let [_, local, peer, state, queues, _, _, _, _, inode] = words[..] else { return None };
    let (local, peer) = (address(local)?, address(peer)?);
    let state = u8::from_str_radix(state, 16).ok()?;
    let (_, unread) = queues.split_once(':')?;
    let socket = Socket {
        protocol,
        local: local.to_string(),
        peer: (peer.port() != 0).then(|| peer.to_string()),
        listens: protocol == "tcp" && state == LISTEN,
        unread: u64::from_str_radix(unread, 16).ok(),
        backlog: None,
    };
    Some((inode.parse().ok()?, socket))
}

/// The own addresses of the connections of `net/tcp` and its like that have been accepted or made.
pub fn connected(text: &str) -> impl Iterator<Item = SocketAddr> {
    text.lines().skip(1).filter_map(|line| {
        let (inode, socket) = inet("tcp", line)?;
        // What nobody has accepted yet, or has closed, has no inode.
        (inode != 0 && socket.peer.is_some()).then(|| socket.local.parse().ok())?
    })
}

/// `0100007F:8F27`, or the same with 32 digits: words as the processor has them in memory.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |i: usize| {
        let digits = address.get(8 * i..8 * i + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let address: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (i, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(i)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

/// Adds the sockets of `net/unix`. Queues are not in it.
pub fn add_unix(sockets: &mut Sockets, text: &str) {
    /// `__SO_ACCEPTCON`.
    const ACCEPTS: u32 = 1 << 16;
    for line in text.lines().skip(1) {
        // The path is the rest of the line: it may contain spaces.
        let mut words = line.split_whitespace();
        let (Some(flags), Some(inode)) = (words.nth(3), words.nth(2)) else { continue };
        let (Ok(flags), Ok(inode)) = (u32::from_str_radix(flags, 16), inode.parse()) else {
            continue;
        };
        let local = words.collect::<Vec<_>>().join(" ");
        let listens = flags & ACCEPTS != 0;
        let socket = Socket { protocol: "unix", local, listens, ..Socket::default() };
        sockets.insert(inode, socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_told_from_listeners() {
        let line = |state: &str, inode: u32| {
            format!(
                "0: 0100007F:1F90 {} {state} 00000000:00000000 00:00000000 00000000 0 0 {inode} 1",
                if state == "0A" { "00000000:0000" } else { "0100007F:8F27" }
            )
        };
        let text = ["head".to_string(), line("0A", 7), line("01", 8), line("06", 0)].join("\n");
        let own: Vec<_> = connected(&text).map(|it| it.to_string()).collect();
        assert_eq!(own, ["127.0.0.1:8080"]);
    }

    #[test]
    fn tcp_is_read() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr …\n   \
            0: 0100007F:8F27 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        \
            0 49598989 1 00000000039bc34c 100 0 0 10 0\n   \
            2: 020200C0:BAF2 507100CB:01BB 01 00000000:0000001F 00:00000000 00000000     0        \
            0 48497741 1 00000000195a269c 20 4 29 48 146\n";
        let mut sockets = Sockets::new();
        add_inet(&mut sockets, "tcp", text);
        let listener = &sockets[&49598989];
        assert_eq!(listener.describe(), "tcp 127.0.0.1:36647");
        assert!(listener.listens && listener.unread == Some(3));
        let connection = &sockets[&48497741];
        assert_eq!(connection.describe(), "tcp 192.0.2.2:47858 from 203.0.113.80:443");
        assert!(!connection.listens && connection.unread == Some(31));
    }

    #[test]
    fn tcp6_is_read() {
        let text = "head\n 0: 00000000000000000000000001000000:1F90 \
            00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 \
            0 0 7 1";
        let mut sockets = Sockets::new();
        add_inet(&mut sockets, "tcp", text);
        assert_eq!(sockets[&7].describe(), "tcp [::1]:8080");
    }

    #[test]
    fn unix_is_read() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            00000000580755e4: 00000003 00000000 00000000 0001 03 49598339\n\
            00000000580755e5: 00000002 00000000 00010000 0001 01 12 /run/a b\n\
            00000000580755e6: 00000002 00000000 00010000 0001 01 13 @abstract\n";
        let mut sockets = Sockets::new();
        add_unix(&mut sockets, text);
        assert_eq!(sockets[&49598339].describe(), "unix socket without a name");
        assert_eq!((sockets[&12].local.as_str(), sockets[&12].listens), ("/run/a b", true));
        assert_eq!(sockets[&13].local, "@abstract");
    }

    #[test]
    fn broken_lines_are_passed_over() {
        let mut sockets = Sockets::new();
        for line in ["0: 0100007F:8F27", "0: 01:1 0:0 0A 0:0 0 0 0 0 1", "0: zz zz zz z z z z z 1"]
        {
            add_inet(&mut sockets, "tcp", &format!("head\n{line}\n"));
        }
        for line in ["0: 2 0", "0: 2 0 zz 1 1 7", "0: 2 0 0 1 1 x"] {
            add_unix(&mut sockets, &format!("head\n{line}\n"));
        }
        assert!(sockets.is_empty(), "{sockets:?}");
    }
}
