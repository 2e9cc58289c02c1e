//! What systemd is for a service's notifications: a socket that knows who has sent a message.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

/// How long a test waits for what must come.
const LIMIT: Duration = Duration::from_secs(60);

/// A message of a service.
#[derive(Debug)]
pub struct Message {
    pub pid: u32,
    pub uid: u32,
    pub text: String,
    pub descriptors: Vec<OwnedFd>,
    /// The control group of the sender when the message was looked at.
    pub group: Option<String>,
}

/// The receiver of a service's messages, which are read as they come.
pub struct Notified {
    messages: Receiver<Message>,
    /// For `NOTIFY_SOCKET`.
    pub name: String,
}

impl Notified {
    /// At a path, as systemd's own is.
    pub fn at(place: &Path) -> Self {
        let _ = fs::remove_file(place);
        let socket = UnixDatagram::bind(place).expect("a socket");
        Self::of(socket, place.to_str().expect("UTF-8").to_string())
    }

    /// With an abstract name.
    pub fn called(name: &str) -> Self {
        let address = SocketAddr::from_abstract_name(name).expect("a name");
        let socket = UnixDatagram::bind_addr(&address).expect("a socket");
        Self::of(socket, format!("@{name}"))
    }

    fn of(socket: UnixDatagram, name: String) -> Self {
        let (fd, yes) = (socket.as_raw_fd(), 1);
        let length = size_of_val(&yes) as libc::socklen_t;
        let at = (&raw const yes).cast();
        // SAFETY: the value is as long as the call says.
        let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_PASSCRED, at, length) };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            loop {
                let message = receive(&socket);
                // A barrier's descriptor is closed here.
                if message.text == "BARRIER=1" {
                    assert_eq!(message.descriptors.len(), 1);
                } else if sender.send(message).is_err() {
                    break;
                }
            }
        });
        Notified { messages, name }
    }

    /// The next message that is not a barrier's.
    pub fn next(&self) -> Message {
        self.messages.recv_timeout(LIMIT).expect("a message")
    }
}

fn receive(socket: &UnixDatagram) -> Message {
    let (mut text, mut control) = ([0u8; 4096], [0u64; 64]);
    let mut part = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
    // SAFETY: all-zero is a header without anything; both buffers are as long as it says then;
    // what the kernel wrote is well-formed, and the descriptors are new.
    unsafe {
        let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_CMSG_CLOEXEC;
        let length = libc::recvmsg(socket.as_raw_fd(), &mut header, flags);
        let length = usize::try_from(length).expect("a message");
        let (mut sender, mut descriptors) = (None, Vec::new());
        let mut at = libc::CMSG_FIRSTHDR(&header);
        while let Some(one) = at.as_ref() {
            let data = libc::CMSG_DATA(at);
            if one.cmsg_type == libc::SCM_CREDENTIALS {
                sender = Some(data.cast::<libc::ucred>().read_unaligned());
            } else {
                assert_eq!(one.cmsg_type, libc::SCM_RIGHTS);
                let count = (one.cmsg_len - libc::CMSG_LEN(0) as usize) / 4;
                let number = |i| data.cast::<libc::c_int>().add(i).read_unaligned();
                descriptors.extend((0..count).map(|i| OwnedFd::from_raw_fd(number(i))));
            }
            at = libc::CMSG_NXTHDR(&header, at);
        }
        let libc::ucred { pid, uid, .. } = sender.expect("a sender");
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        let group = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok();
        Message { pid: pid as u32, uid, text, descriptors, group }
    }
}
