//! The terminal of `wakeset top`: its size, keys and signals. What was changed is changed back when
//! the value goes, also for a stop (Ctrl-Z).
//!
//! Signals come through a descriptor, so that none interrupts between a change and its undoing.

use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// What a wait for the next look ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// It is time.
    Time,
    /// A key.
    Key(u8),
    /// The window has another size, or the terminal is ours again.
    Redraw,
    /// SIGINT, SIGTERM or SIGHUP; or there is no terminal any more.
    Quit,
}

/// Standard output as a terminal, with the program's own screen on it.
pub struct Terminal {
    signals: OwnedFd,
    before: libc::termios,
    mask_before: libc::sigset_t,
}

const SIGNALS: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGWINCH, libc::SIGTSTP];
/// To the other screen and back; a line does not go on in the next one.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";

impl Terminal {
    /// `None` if standard input and output are not both a terminal.
    pub fn open() -> io::Result<Option<Self>> {
        let mut before = MaybeUninit::<libc::termios>::uninit();
        let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
        let mut mask_before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: room for each answer, which is read if the call has succeeded; sigemptyset makes
        // the set that sigaddset changes; signalfd returns a descriptor of ours.
        unsafe {
            if libc::isatty(1) != 1 || libc::tcgetattr(0, before.as_mut_ptr()) != 0 {
                return Ok(None);
            }
            libc::sigemptyset(blocked.as_mut_ptr());
            for signal in SIGNALS {
                libc::sigaddset(blocked.as_mut_ptr(), signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, blocked.as_ptr(), mask_before.as_mut_ptr());
            let fd = libc::signalfd(-1, blocked.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let terminal = Terminal {
                signals: OwnedFd::from_raw_fd(fd),
                before: before.assume_init(),
                mask_before: mask_before.assume_init(),
            };
            terminal.enter();
            Ok(Some(terminal))
        }
    }

    fn enter(&self) {
        let mut raw = self.before;
        raw.c_lflag &= !(libc::ICANON | libc::ECHO);
        raw.c_cc[libc::VMIN] = 0;
        raw.c_cc[libc::VTIME] = 0;
        // SAFETY: a terminal's settings, changed from those that it had.
        unsafe { libc::tcsetattr(0, libc::TCSANOW, &raw) };
        write(ENTER);
    }

    fn leave(&self) {
        write(LEAVE);
        // SAFETY: the settings that it had.
        unsafe { libc::tcsetattr(0, libc::TCSANOW, &self.before) };
    }

    /// Columns and lines.
    pub fn size(&self) -> (usize, usize) {
        let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: room for the answer.
        unsafe { libc::ioctl(1, libc::TIOCGWINSZ, &mut size) };
        let or = |value: u16, otherwise| if value == 0 { otherwise } else { usize::from(value) };
        (or(size.ws_col, 80), or(size.ws_row, 24))
    }

    /// Puts these lines on the screen.
    pub fn show(&self, lines: &[String]) {
        write(frame(lines, self.size().1).as_bytes());
    }

    /// Waits for a key or a signal, so long at most.
    pub fn wait(&self, most: Duration) -> Input {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polled = [entry(0), entry(self.signals.as_raw_fd())];
        let milliseconds = most.as_millis().min(i32::MAX as u128) as i32;
        // SAFETY: two entries; the reads have room for what they ask.
        unsafe {
            if libc::poll(polled.as_mut_ptr(), 2, milliseconds) <= 0 {
                return Input::Time;
            }
            if polled[1].revents != 0 {
                return self.signal();
            }
            let mut key = 0_u8;
            match libc::read(0, (&raw mut key).cast(), 1) {
                1 => Input::Key(key),
                _ => Input::Quit,
            }
        }
    }

    fn signal(&self) -> Input {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: room for one; an all-zero one is valid.
        let signal = unsafe {
            libc::read(self.signals.as_raw_fd(), info.as_mut_ptr().cast(), size);
            info.assume_init().ssi_signo as libc::c_int
        };
        match signal {
            libc::SIGWINCH | 0 => Input::Redraw,
            libc::SIGTSTP => {
                self.leave();
                // SAFETY: no memory is involved.
                unsafe { libc::raise(libc::SIGSTOP) };
                self.enter();
                Input::Redraw
            }
            _ => Input::Quit,
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.leave();
        // SAFETY: the mask that there was.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.mask_before, std::ptr::null_mut()) };
    }
}

/// What puts the lines on a screen of this height. Each is cleared before it is written: after a
/// full line the cursor is on its last character.
fn frame(lines: &[String], height: usize) -> String {
    let text: Vec<_> = lines.iter().map(|line| format!("\x1b[K{line}")).collect();
    let rest = if lines.len() < height { "\r\n\x1b[J" } else { "" };
    format!("\x1b[H{}{rest}", text.join("\r\n"))
}

/// In one piece, so that no half of a screen is seen.
fn write(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_erased_behind_a_full_line() {
        let lines = ["ab".to_string(), "cd".to_string()];
        assert_eq!(frame(&lines, 2), "\x1b[H\x1b[Kab\r\n\x1b[Kcd");
        assert_eq!(frame(&lines, 3), "\x1b[H\x1b[Kab\r\n\x1b[Kcd\r\n\x1b[J");
    }
}
