//! `wakeset top` on a terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::sharing::{Running, Runtime};

/// A terminal, and `wakeset top` on it.
struct Top {
    /// The side of whoever looks at the screen.
    screen: File,
    settings: libc::termios,
    child: Child,
    seen: String,
}

fn settings(terminal: &File) -> libc::termios {
    let mut settings = std::mem::MaybeUninit::zeroed();
    // SAFETY: room for the answer; an all-zero one is valid.
    unsafe {
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), settings.as_mut_ptr()), 0);
        settings.assume_init()
    }
}

impl Top {
    fn start(runtime: &Runtime, running: &Running, columns: u16, lines: u16) -> Self {
        let size = libc::winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let (mut screen, mut program) = (-1, -1);
        let none = std::ptr::null_mut();
        // SAFETY: room for both descriptors, which are ours then.
        let (screen, program) = unsafe {
            assert_eq!(libc::openpty(&mut screen, &mut program, none, none.cast(), &size), 0);
            libc::fcntl(screen, libc::F_SETFL, libc::O_NONBLOCK);
            (File::from_raw_fd(screen), File::from_raw_fd(program))
        };
        let settings = settings(&screen);
        let ends = [(); 2].map(|()| Stdio::from(program.try_clone().expect("a descriptor")));
        let [input, output] = ends;
        let mut command = runtime.wakeset(&["top", "-d", "0.2", &running.pid()]);
        let child = command.stdin(input).stdout(output).spawn().expect("it starts");
        Top { screen, settings, child, seen: String::new() }
    }

    fn wait_for(&mut self, text: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        let mut bytes = [0; 4096];
        while !self.seen.contains(text) {
            assert!(Instant::now() < end, "{:?}", self.seen);
            match self.screen.read(&mut bytes) {
                Ok(read) => self.seen += &String::from_utf8_lossy(&bytes[..read]),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Demands that it ends well, and leaves the terminal as it was.
    fn expect_end(mut self) {
        // The cursor is seen again, and the lines that were there before.
        self.wait_for("\x1b[?25h\x1b[?1049l");
        assert!(self.child.wait().expect("its status").success());
        let now = settings(&self.screen);
        assert_eq!((now.c_lflag, now.c_iflag), (self.settings.c_lflag, self.settings.c_iflag));
        assert_eq!(now.c_cc, self.settings.c_cc);
    }
}

#[test]
fn it_leaves_the_terminal_as_it_was() {
    let runtime = Runtime::new("top");
    let mut running = runtime.start(r#": >"$1"; read line"#, &[]);
    let heading = format!("run {} (sh): 1 process,", running.pid());

    let mut top = Top::start(&runtime, &running, 80, 24);
    top.wait_for(&heading);
    top.wait_for("per second: ");
    assert!(settings(&top.screen).c_lflag & libc::ICANON == 0);
    top.screen.write_all(b"h").expect("a key");
    top.wait_for("q quit");
    top.screen.write_all(b"q").expect("a key");
    top.expect_end();

    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut top = Top::start(&runtime, &running, 60, 15);
        top.wait_for(&heading);
        // SAFETY: a child that has not been waited for.
        unsafe { libc::kill(top.child.id() as i32, signal) };
        top.expect_end();
    }

    // With the program it ends by itself.
    let mut top = Top::start(&runtime, &running, 200, 50);
    top.wait_for(&heading);
    running.end();
    top.expect_end();
}
