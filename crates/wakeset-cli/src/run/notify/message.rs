//! A datagram with its sender's credentials and its descriptors: unix(7).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// systemd takes no message that is longer than 4 KiB.
const LONGEST: usize = 8192;
/// Room for credentials and for as many descriptors as one message can have (`SCM_MAX_FD`), in
/// words, which align it.
const CONTROL: usize = 256;

/// What somebody has sent.
pub struct Message {
    pub text: Vec<u8>,
    pub sender: libc::ucred,
    pub descriptors: Vec<OwnedFd>,
}

/// Has the kernel say who sends to this socket.
pub fn want_credentials(socket: &UnixDatagram) -> io::Result<()> {
    let yes: libc::c_int = 1;
    set_option(socket, libc::SO_PASSCRED, &yes)
}

fn set_option<T>(socket: &UnixDatagram, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let (fd, at) = (socket.as_raw_fd(), (value as *const T).cast());
    // SAFETY: the value is as long as the call says.
    match unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, at, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A header for the text and the control data.
fn header(text: &mut libc::iovec, control: &mut [u64]) -> libc::msghdr {
    // SAFETY: all-zero is a header without anything.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = text;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(control) as _;
    header
}

impl Message {
    /// One that has arrived; `None` if there is none, or nobody is known to have sent it.
    pub fn receive(socket: &UnixDatagram) -> Option<Self> {
        let (mut text, mut control) = (vec![0u8; LONGEST], [0u64; CONTROL]);
        let mut part = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
        let mut header = header(&mut part, &mut control);
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        // SAFETY: both buffers are as long as the header says.
        let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
        text.truncate(usize::try_from(length).ok()?);
        let (mut sender, mut descriptors) = (None, Vec::new());
        // SAFETY: the kernel has written well-formed control data; what is read of it lies in it,
        // and the descriptors are new and ours.
        unsafe {
            let mut at = libc::CMSG_FIRSTHDR(&header);
            while let Some(part) = at.as_ref() {
                let data = libc::CMSG_DATA(at);
                match (part.cmsg_level, part.cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                        sender = Some(data.cast::<libc::ucred>().read_unaligned());
                    }
                    (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                        let bytes = part.cmsg_len - libc::CMSG_LEN(0) as usize;
                        let numbers = data.cast::<libc::c_int>();
                        descriptors.extend(
                            (0..bytes / size_of::<libc::c_int>())
                                .map(|i| OwnedFd::from_raw_fd(numbers.add(i).read_unaligned())),
                        );
                    }
                    _ => {}
                }
                at = libc::CMSG_NXTHDR(&header, at);
            }
        }
        Some(Message { text, sender: sender?, descriptors })
    }

    /// Sends it on as this process.
    pub fn send(self, to: &SocketAddr, patience: Duration) -> io::Result<()> {
        let socket = sender(to, patience)?;
        let mut control = [0u64; CONTROL];
        let length = self.control(&mut control);
        post(&socket, &self.text, &mut control[..length], std::process::id() as libc::pid_t)
    }

    /// Sends it on as a child of this process, which is there until the receiver has looked at it:
    /// systemd finds the unit of a sender by its number.
    pub fn send_by_another(self, to: &SocketAddr, patience: Duration) -> io::Result<()> {
        let socket = sender(to, patience)?;
        let mut control = [0u64; CONTROL];
        let length = self.control(&mut control);
        // The receiver closes what comes with this when it has looked at all that came before.
        let (seen, barrier) = io::pipe()?;
        let last =
            Message { text: b"BARRIER=1".to_vec(), descriptors: vec![barrier.into()], ..self };
        let mut last_control = [0u64; CONTROL];
        let last_length = last.control(&mut last_control);
        // SAFETY: the child makes system calls only, on memory that is there already.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above; the entry is ours.
            unsafe {
                let pid = libc::getpid();
                let control = &mut control[..length];
                if post(&socket, &self.text, control, pid).is_ok()
                    && post(&socket, &last.text, &mut last_control[..last_length], pid).is_ok()
                {
                    libc::close(last.descriptors[0].as_raw_fd());
                    let fd = seen.as_raw_fd();
                    let mut closed = libc::pollfd { fd, events: 0, revents: 0 };
                    libc::poll(&mut closed, 1, patience.as_millis() as libc::c_int);
                }
                libc::_exit(0)
            }
        }
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        drop(last);
        // SAFETY: our child; no status is asked for.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        Ok(())
    }

    /// Writes the control data, in which the sender's number is still the sender's. Returns how
    /// many words it takes.
    fn control(&self, control: &mut [u64]) -> usize {
        let mut nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let header = header(&mut nothing, control);
        let numbers: Vec<_> = self.descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let bytes = size_of_val(&numbers[..]) as libc::c_uint;
        // SAFETY: there is room for credentials and for all descriptors that a message can have.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_CREDENTIALS;
            (*first).cmsg_len = libc::CMSG_LEN(size_of::<libc::ucred>() as libc::c_uint) as _;
            libc::CMSG_DATA(first).cast::<libc::ucred>().write_unaligned(self.sender);
            let mut space = libc::CMSG_SPACE(size_of::<libc::ucred>() as libc::c_uint);
            if !numbers.is_empty() {
                let second = first.byte_add(space as usize);
                (*second).cmsg_level = libc::SOL_SOCKET;
                (*second).cmsg_type = libc::SCM_RIGHTS;
                (*second).cmsg_len = libc::CMSG_LEN(bytes) as _;
                let to = libc::CMSG_DATA(second).cast::<libc::c_int>();
                to.copy_from_nonoverlapping(numbers.as_ptr(), numbers.len());
                space += libc::CMSG_SPACE(bytes);
            }
            space as usize / size_of::<u64>()
        }
    }
}

/// A socket without a name that writes to this address, and does not wait for longer.
fn sender(to: &SocketAddr, patience: Duration) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(patience))?;
    socket.connect_addr(to)?;
    Ok(socket)
}

/// Sends it with the number of the process that this is. The user and group are the sender's: the
/// kernel refuses those that this process may not have. Makes no call but system calls.
fn post(
    socket: &UnixDatagram,
    text: &[u8],
    control: &mut [u64],
    pid: libc::pid_t,
) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
    let header = header(&mut part, control);
    // SAFETY: the control data begins with credentials, see `control`; both buffers are as long as
    // the header says, and the text is only read.
    let sent = unsafe {
        let credentials = libc::CMSG_DATA(libc::CMSG_FIRSTHDR(&header)).cast::<libc::ucred>();
        (&raw mut (*credentials).pid).write_unaligned(pid);
        libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
