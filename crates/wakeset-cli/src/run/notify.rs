//! What a service tells systemd of itself (sd_notify(3)) under `wakeset run --stats`.
//!
//! By default (`NotifyAccess=main`) systemd believes only the process that it has started, and that
//! is `wakeset run`, not the program. So the program finds a socket of ours in `NOTIFY_SOCKET`,
//! and what arrives there goes on to systemd's socket:
//!
//! | it comes from | systemd sees it come from | and believes it |
//! |---|---|---|
//! | the program | this process | as the unit's main process |
//! | another process of the unit | a child of this process | if the unit has `NotifyAccess=all`, as without us |
//! | a process that is not of the unit | nobody: it is dropped | |
//!
//! User, group and descriptors are those of the sender. `MAINPID=` with the program's number
//! becomes `MAINPID=` with ours, because this process is the one that ends after the counts are
//! written. With the number of another process it goes on as it is.
//!
//! Where systemd gives up a watchdog it sends SIGABRT to this process, which passes that on
//! (`supervise`).

mod message;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tempfile::TempDir;

use message::Message;

/// The variable in which a service finds the socket.
const VARIABLE: &str = "NOTIFY_SOCKET";
/// How long systemd may take to accept a message, and then to have looked at it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The socket that the program finds, and the one that it would have found.
pub struct Relay {
    ours: UnixDatagram,
    /// What the program finds in the variable.
    name: OsString,
    /// Removed with the socket in it when this is dropped.
    _folder: Option<TempDir>,
    to: SocketAddr,
}

impl Relay {
    /// Makes the socket, if somebody wants to be notified. Where there can be none, says so.
    pub fn open() -> Option<Self> {
        let to = address(&std::env::var_os(VARIABLE)?)?;
        let made = in_a_folder().or_else(|_| without_a_file());
        match made {
            Ok((ours, name, _folder)) => Some(Relay { ours, name, _folder, to }),
            Err(error) => {
                eprintln!(
                    "wakeset: warning: no socket for notifications: {error}: they come from a \
                     process that is not the unit's main one"
                );
                None
            }
        }
    }

    /// In the child: has the program find our socket.
    pub fn announce(&self) {
        // SAFETY: the child has one thread.
        unsafe { std::env::set_var(VARIABLE, &self.name) };
    }

    /// Begins to pass on what arrives. The program is the process `child`.
    pub fn start(self, child: libc::pid_t) -> Relaying {
        let stop = io::pipe();
        let start = |(reader, writer): (io::PipeReader, io::PipeWriter)| {
            let thread = thread::Builder::new().spawn(move || {
                while wait_for_message(&self.ours, &reader) {
                    self.pass_on_all(child);
                }
                // What the program said last.
                self.pass_on_all(child);
            });
            thread.map(|thread| (writer, thread))
        };
        let thread = stop.and_then(start);
        if let Err(error) = &thread {
            eprintln!("wakeset: warning: notifications are lost: {error}");
        }
        Relaying(thread.ok())
    }

    /// Passes on what has arrived.
    fn pass_on_all(&self, child: libc::pid_t) {
        while let Some(mut message) = Message::receive(&self.ours) {
            message.text = addressed(&message.text, child, std::process::id());
            // One that cannot be passed on is lost, as it would be without us.
            let _ = match message.sender.pid == child {
                true => message.send(&self.to, PATIENCE),
                false if is_of_this_unit(message.sender.pid) => {
                    message.send_by_another(&self.to, PATIENCE)
                }
                false => Ok(()),
            };
        }
    }
}

/// What passes on messages while the program runs.
pub struct Relaying(Option<(io::PipeWriter, JoinHandle<()>)>);

impl Relaying {
    /// Passes on what is left, and removes the socket. The program has ended.
    pub fn end(self) {
        if let Some((writer, thread)) = self.0 {
            drop(writer);
            let _ = thread.join();
        }
    }
}

/// The address that a variable names; `None` if it names none, or one that is no unix socket.
fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', rest @ ..] if !rest.is_empty() => SocketAddr::from_abstract_name(rest).ok(),
        [b'/', _, ..] => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }
}

type Made = (UnixDatagram, OsString, Option<TempDir>);

/// A socket with a path, which programs of every age understand. The program may have given up
/// its rights when it writes to it, so everybody may, as to systemd's.
fn in_a_folder() -> io::Result<Made> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let mut last = io::ErrorKind::NotFound.into();
    for place in [Some("/run".into()), runtime, Some(std::env::temp_dir())].into_iter().flatten() {
        let made = || {
            let folder = tempfile::Builder::new().prefix("wakeset-notify-").tempdir_in(place)?;
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711))?;
            let path = folder.path().join("socket");
            let socket = bound(&SocketAddr::from_pathname(&path)?)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
            Ok((socket, path.into_os_string(), Some(folder)))
        };
        match made() {
            Ok(made) => return Ok(made),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A socket with an abstract name, for where no folder can be written.
fn without_a_file() -> io::Result<Made> {
    let name = format!("wakeset-notify-{}-{:016x}", std::process::id(), fastrand::u64(..));
    let socket = bound(&SocketAddr::from_abstract_name(&name)?)?;
    Ok((socket, OsString::from_vec([b"@", name.as_bytes()].concat()), None))
}

fn bound(address: &SocketAddr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::bind_addr(address)?;
    message::want_credentials(&socket)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Waits for a message; false when none will come, because the program has ended.
fn wait_for_message(socket: &UnixDatagram, stop: &io::PipeReader) -> bool {
    let wanted = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut both = [wanted(socket.as_raw_fd()), wanted(stop.as_raw_fd())];
    // SAFETY: two entries, which are ours. No signal is handled, so nothing interrupts it.
    unsafe { libc::poll(both.as_mut_ptr(), 2, -1) };
    both[1].revents == 0
}

/// The text, with the program's number as main process replaced by ours.
fn addressed(text: &[u8], child: libc::pid_t, ours: u32) -> Vec<u8> {
    let (theirs, ours) = (format!("MAINPID={child}"), format!("MAINPID={ours}"));
    let lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
    if !lines.contains(&theirs.as_bytes()) {
        return text.to_vec();
    }
    // The number of a pidfd's inode would be the program's too.
    let lines = lines.into_iter().filter(|line| !line.starts_with(b"MAINPIDFDID="));
    let lines: Vec<_> =
        lines.map(|line| if line == theirs.as_bytes() { ours.as_bytes() } else { line }).collect();
    lines.join(&b'\n')
}

/// Whether a process is in our control group, or in one below it, as systemd asks of a sender.
fn is_of_this_unit(pid: libc::pid_t) -> bool {
    let read = |who: &str| fs::read_to_string(format!("/proc/{who}/cgroup"));
    let (Ok(ours), Ok(theirs)) = (read("self"), read(&pid.to_string())) else { return false };
    is_within(&ours, &theirs)
}

/// Whether each group of ours, a line `N:controllers:PATH` each, holds theirs.
fn is_within(ours: &str, theirs: &str) -> bool {
    let mut ours = ours.lines().peekable();
    ours.peek().is_some()
        && ours.all(|line| {
            let below = line.strip_suffix('/').unwrap_or(line);
            theirs.lines().any(|their| {
                their == line || their.strip_prefix(below).is_some_and(|it| it.starts_with('/'))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_number_becomes_ours() {
        let of = |text: &str| String::from_utf8(addressed(text.as_bytes(), 12, 7)).expect("text");
        assert_eq!(of("READY=1\nMAINPID=12"), "READY=1\nMAINPID=7");
        assert_eq!(of("MAINPID=12\nMAINPIDFDID=99\nREADY=1\n"), "MAINPID=7\nREADY=1\n");
        for same in ["READY=1", "MAINPID=123", "MAINPID=13\nMAINPIDFDID=9", "X=MAINPID=12", ""] {
            assert_eq!(of(same), same);
        }
    }

    #[test]
    fn both_kinds_of_sockets_know_the_sender() {
        for made in [in_a_folder(), without_a_file()] {
            let (ours, name, folder) = made.expect("a socket");
            let to = address(&name).expect("an address");
            assert!(Message::receive(&ours).is_none());
            UnixDatagram::unbound().and_then(|it| it.send_to_addr(b"x", &to)).expect("it is sent");
            let message = Message::receive(&ours).expect("what was sent");
            assert_eq!(message.text, b"x");
            assert_eq!(message.sender.pid, std::process::id() as i32);
            drop(folder);
            assert!(!std::path::Path::new(&name).exists());
        }
    }

    #[test]
    fn only_unix_sockets_are_relayed_to() {
        for name in ["/run/systemd/notify", "@abstract"] {
            assert!(address(OsStr::new(name)).is_some(), "{name}");
        }
        for name in ["", "@", "/", "vsock:2:1234", "run/notify"] {
            assert!(address(OsStr::new(name)).is_none(), "{name}");
        }
    }

    #[test]
    fn a_group_below_ours_is_of_this_unit() {
        let unified = "0::/system.slice/a.service\n";
        assert!(is_within(unified, unified));
        assert!(is_within(unified, "0::/system.slice/a.service/worker\n"));
        assert!(!is_within(unified, "0::/system.slice/a.service2\n"));
        assert!(!is_within(unified, "0::/user.slice\n"));
        assert!(!is_within(unified, ""));
        let several = "1:name=systemd:/a\n0::/\n";
        assert!(is_within(several, "1:name=systemd:/a\n0::/x\n"));
        assert!(!is_within(several, "1:name=systemd:/b\n0::/\n"));
        assert!(!is_within("", unified));
    }
}
