//! A program as a child of this process: it gets the signals that this process gets.
//!
//! The terminal sends its signals to the whole foreground group, so the child has those already.
//! Only signals that a process sent are passed on. A `kill` of the whole group looks the same and
//! reaches the child twice, as under any supervisor.

use std::io;
use std::mem::MaybeUninit;
use std::time::Instant;

use super::command::Command;
use super::notify::Relay;
use crate::failure::Failure;

/// Signals that are about this process and not meant for the program. Signals that a fault causes
/// cannot be blocked, and the job-control stops apply to the whole group in any case. SIGABRT is
/// the program's, because systemd's watchdog sends it to the process that it has started; abort(3)
/// unblocks it.
const OUR_OWN: [libc::c_int; 9] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGPIPE,
];

/// Starts the program, calls `started` and waits for the program. Returns its exit status, 128+N if
/// signal N killed it.
pub fn run_to_end(command: &Command, started: impl FnOnce()) -> Result<i32, Failure> {
    let signals = Signals::block()?;
    let relay = Relay::open();
    let child = spawn(command, &signals, || relay.iter().for_each(Relay::announce))?;
    started();
    let relaying = relay.map(|relay| relay.start(child));
    let status = signals.pass_on_until_exit(child);
    if let Some(relaying) = relaying {
        relaying.end();
    }
    status
}

/// The signals that are blocked here, to be taken with sigwaitinfo(2).
pub struct Signals {
    blocked: libc::sigset_t,
    /// The mask that this process was started with.
    before: libc::sigset_t,
    /// SIGCHLD's action that this process was started with.
    child_before: libc::sigaction,
}

impl Signals {
    /// Restores what this process was started with, for the program to inherit.
    fn restore(&self) {
        // SAFETY: both values came from the kernel.
        unsafe {
            libc::sigaction(libc::SIGCHLD, &self.child_before, std::ptr::null_mut());
            libc::sigprocmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}

impl Signals {
    pub fn block() -> Result<Self, Failure> {
        let mut blocked = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: sigfillset initialises the one set, sigprocmask the other; a set that
        // sigfillset made may be changed by sigdelset.
        let (blocked, before) = unsafe {
            libc::sigfillset(blocked.as_mut_ptr());
            let mut blocked = blocked.assume_init();
            for signal in OUR_OWN {
                libc::sigdelset(&mut blocked, signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &blocked, before.as_mut_ptr()) != 0 {
                return Err(os_failure("cannot block signals"));
            }
            (blocked, before.assume_init())
        };
        let mut child_before = MaybeUninit::uninit();
        // Where SIGCHLD is ignored, the kernel reaps the child and its status is lost.
        // SAFETY: an all-zero action is the default one, and there is room for the old.
        let child_before = unsafe {
            let default = MaybeUninit::<libc::sigaction>::zeroed();
            if libc::sigaction(libc::SIGCHLD, default.as_ptr(), child_before.as_mut_ptr()) != 0 {
                return Err(os_failure("cannot set a signal's action"));
            }
            child_before.assume_init()
        };
        Ok(Signals { blocked, before, child_before })
    }

    /// Waits for one of them until `deadline`; `None` if none has come.
    pub fn wait_until(&self, deadline: Instant) -> Option<libc::c_int> {
        let left = deadline.saturating_duration_since(Instant::now());
        let time = libc::timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        // SAFETY: an initialised set, no answer, and a time.
        let signal = unsafe { libc::sigtimedwait(&self.blocked, std::ptr::null_mut(), &time) };
        (signal > 0).then_some(signal)
    }

    fn pass_on_until_exit(&self, child: libc::pid_t) -> Result<i32, Failure> {
        loop {
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            // SAFETY: an initialised set, and room for the answer.
            let signal = unsafe { libc::sigwaitinfo(&self.blocked, info.as_mut_ptr()) };
            if signal < 0 {
                match io::Error::last_os_error().kind() {
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(os_failure("cannot wait for signals")),
                }
            }
            // SAFETY: zeroed is valid, and sigwaitinfo filled it in.
            let from_kernel = unsafe { info.assume_init() }.si_code > 0;
            if signal == libc::SIGCHLD {
                if let Some(status) = reap(child)? {
                    return Ok(status);
                }
            } else if !from_kernel || signal == libc::SIGCONT {
                // SAFETY: no memory is involved. The child is ours and not yet reaped, so
                // the number is still its own.
                unsafe { libc::kill(child, signal) };
            }
        }
    }
}

/// The child's status if it has ended; does not wait. If the child was stopped, this process stops
/// too, so that the shell sees the job stopped.
fn reap(child: libc::pid_t) -> Result<Option<i32>, Failure> {
    let mut status = 0;
    // SAFETY: room for the status.
    let reaped = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG | libc::WUNTRACED) };
    if reaped < 0 {
        return Err(os_failure("cannot wait for the program"));
    }
    if reaped == 0 {
        return Ok(None);
    }
    if libc::WIFEXITED(status) {
        return Ok(Some(libc::WEXITSTATUS(status)));
    }
    if libc::WIFSIGNALED(status) {
        return Ok(Some(128 + libc::WTERMSIG(status)));
    }
    // SAFETY: no memory is involved.
    unsafe { libc::raise(libc::SIGSTOP) };
    Ok(None)
}

/// Forks and execs. The child starts with the signal mask and dispositions that this process
/// started with, after `prepare`. It is killed if this process is, as if this process had become
/// the program.
pub fn spawn(
    command: &Command,
    signals: &Signals,
    prepare: impl FnOnce(),
) -> Result<libc::pid_t, Failure> {
    let mut pipe = [0; 2];
    // SAFETY: room for both ends.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(os_failure("cannot make a pipe"));
    }
    let [result, report] = pipe;
    let ourselves = std::process::id();
    // SAFETY: this process has one thread, so the child may go on as usual.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(os_failure("cannot fork"));
    }
    if child == 0 {
        // SAFETY: no memory is involved. The parent may have died before prctl took effect: then
        // its number is no longer our parent's.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() as u32 != ourselves {
                libc::raise(libc::SIGKILL);
            }
        }
        signals.restore();
        address_to_child(ourselves);
        prepare();
        let errno = command.exec().raw_os_error().unwrap_or(libc::EIO);
        let bytes = errno.to_ne_bytes();
        // SAFETY: four initialised bytes; _exit so that nothing of the parent's is flushed twice.
        unsafe {
            libc::write(report, bytes.as_ptr().cast(), bytes.len());
            libc::_exit(crate::failure::OWN_FAILURE)
        }
    }
    let mut errno = [0u8; 4];
    // SAFETY: both ends are ours; the read has room for what it asks.
    let length = unsafe {
        libc::close(report);
        let length = libc::read(result, errno.as_mut_ptr().cast(), errno.len());
        libc::close(result);
        length
    };
    if length > 0 {
        let error = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
        // SAFETY: no status is asked for: the child has only said that there is no program.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        return Err(command.failure(error));
    }
    Ok(child)
}

/// In the child: what systemd has addressed to the process that it started is for the program,
/// which would take no listeners (`sd_listen_fds`) and no watchdog of another process's.
fn address_to_child(parent: u32) {
    for name in ["LISTEN_PID", "WATCHDOG_PID"] {
        if std::env::var(name).is_ok_and(|pid| pid == parent.to_string()) {
            // SAFETY: the child has one thread.
            unsafe { std::env::set_var(name, std::process::id().to_string()) };
        }
    }
}

pub fn os_failure(what: &str) -> Failure {
    Failure::own(format!("{what}: {}", io::Error::last_os_error()))
}
