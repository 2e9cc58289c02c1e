//! What a trial run (`--try`) says of a program.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};
use wakeset_fd::stats::{NAMES, Stat, Summary};

use super::order::{self, Habit};
use super::{Check, Level};
use crate::failure::Failure;
use crate::format::percent;
use crate::inspect::connected;
use crate::run::{End, Report, Trial, try_out};

/// What came of a trial, in words.
pub struct Tried {
    pub checks: Vec<Check>,
    /// For the verdict: what was served, and how much of it.
    pub sentence: String,
    pub json: Value,
}

/// Runs the program for at most so long, and says what came of it.
pub fn look(command: &[OsString], limit: Duration) -> Result<Tried, Failure> {
    let mut open = None;
    let trial = try_out(command, limit, |pid| open = Some(connected(pid)))?;
    Ok(tell(&trial, open.as_deref()))
}

/// `open`: the connections when the time was up; not known of a program that has ended by itself.
fn tell(trial: &Trial, open: Option<&[SocketAddr]>) -> Tried {
    let total = trial.report.total();
    let mut checks = vec![end(trial)];
    if trial.report.is_empty() {
        checks.push(Check::new(Level::Bad, "trial", "the library did not get into it").means(
            "Nothing was counted. If it did not come so far as to run, try it plain; else \
             something has removed LD_PRELOAD from its environment.",
        ));
    }
    let not_counted = trial.report.not_counted();
    if !not_counted.is_empty() {
        checks.push(Check::new(Level::Note, "trial", not_counted.trim_end().to_string()));
    }
    checks.push(objects(total));
    checks.extend(migrations(&trial.report));
    checks.extend(wakes(total));
    let mut listeners = Vec::new();
    for (address, listener) in trial.report.listeners().iter() {
        let habit = Habit::of(listener, open.and_then(|open| held(address, open)));
        let (order, why) = order::advice(&habit);
        let (connections, workers) = (listener.connections, listener.workers.len());
        let what = format!(
            "{address}: {connections} connections, {workers} threads, {} wakes, {} of them \
             spurious; order: {}",
            listener.wakes,
            listener.spurious,
            order.unwrap_or("any"),
        );
        checks.push(Check::new(Level::Good, "listener", what).means(why.clone()));
        listeners.push(json!({ "address": address, "order": order, "why": why }));
    }
    Tried { checks, sentence: sentence(trial), json: value(trial, listeners) }
}

fn end(trial: &Trial) -> Check {
    let seconds = trial.lasted.as_secs_f64();
    let (level, what, means) = match trial.end {
        End::ByItself(0) => (Level::Good, "it ended by itself".to_string(), ""),
        End::ByItself(status @ 129..) => (
            Level::Bad,
            format!("signal {} ended it", status - 128),
            "Run it without Wakeset: if it does not end like this there, please report it.",
        ),
        End::ByItself(status) => (
            Level::Note,
            format!("it ended by itself with status {status}"),
            "Its output is above. Run it without Wakeset to see whether it does so there.",
        ),
        End::Terminated => (Level::Good, "SIGTERM ended it when the time was up".to_string(), ""),
        End::Killed => (
            Level::Note,
            "SIGKILL ended it, or something that it had started".to_string(),
            "It went on for five seconds after SIGTERM.",
        ),
    };
    Check::new(level, "trial", format!("{what}, after {seconds:.1} s")).means(means)
}

fn objects(total: &Summary) -> Check {
    let (made, kept) = (total.made(), total.kept());
    let what = format!(
        "{made} made, {kept} stayed in process, {} migrated; {} system calls avoided",
        total.migrated(),
        total.get(Stat::SyscallsAvoided)
    );
    match made {
        0 => Check::new(Level::Note, "objects", "it made none").means(
            "Wakeset has nothing to do for it beside its listeners, or it has not come so far: \
             give it work while it is tried.",
        ),
        _ => Check::new(Level::Good, "objects", what),
    }
}

/// A line for each reason for which objects migrated.
fn migrations(report: &Report) -> Vec<Check> {
    let total = report.total();
    let reasons = Stat::ALL[Stat::MOVED].iter().filter(|&&reason| total.get(reason) > 0);
    let check = |&reason: &Stat| {
        let mut what = format!("{} of them: {}", total.get(reason), NAMES[reason as usize]);
        let calls: Vec<_> = report.calls(reason).map(|(call, n)| format!("{call} {n}")).collect();
        if !calls.is_empty() {
            what += &format!(", by {}", calls.join(", "));
        }
        Check::new(Level::Note, "migrated", what).means(meaning(reason))
    };
    reasons.map(check).collect()
}

/// What a reason means, by which calls it comes about, and what to do about it.
fn meaning(reason: Stat) -> &'static str {
    match reason {
        Stat::MigratedFork => {
            "fork(2) or clone(2) while they were open: the child has them too, and may use them. \
             Made after the last fork, they stay."
        }
        Stat::MigratedVfork => {
            "The child of vfork(2) used them, or gave them to the program that it executed. Make \
             those that it does not need with close-on-exec."
        }
        Stat::MigratedExec => {
            "execve(2) while they were open without close-on-exec. Make them with EFD_CLOEXEC, \
             EPOLL_CLOEXEC, TFD_CLOEXEC or O_CLOEXEC."
        }
        Stat::MigratedSpawn => {
            "posix_spawn(3), system(3) or popen(3) gave them to another program. Make those that \
             it does not need with close-on-exec."
        }
        Stat::MigratedPassedOver => "sendmsg(2) passed them to another process (SCM_RIGHTS).",
        Stat::MigratedIoRing => {
            "A request of an io_uring named them, or its requests cannot be seen."
        }
        Stat::MigratedAio => {
            "A request of io_submit(2) named them, or aio_read(3) and its kin were used."
        }
        Stat::MigratedUnmodelled => {
            "A call that only the kernel answers, such as setsockopt(2): docs/calls.md lists them."
        }
        Stat::MigratedOddArgument => {
            "A call with an argument that only the kernel answers, such as a long write into a \
             pipe: docs/limits.md lists them."
        }
        Stat::MigratedDuplicate => {
            "dup(2) of a pipe or socket pair, or of a set that another loop watches by its number."
        }
        Stat::MigratedNestedKernel => {
            "epoll_ctl(2) put them into, or around, a set that is the kernel's."
        }
        Stat::MigratedPoll => {
            "poll(2) or select(2) waited for them together with what is the kernel's."
        }
        Stat::MigratedBlocking => "read(2) of a timer that had not expired.",
        Stat::MigratedLimit => "A table was full, or a limit of the process was reached.",
        _ => "",
    }
}

/// Whether sleeping waits were woken in vain.
fn wakes(total: &Summary) -> Option<Check> {
    let (wakes, spurious) = (total.get(Stat::Wakes), total.get(Stat::SpuriousWakes));
    let share = (wakes > 0).then(|| spurious as f64 / wakes as f64)?;
    let what =
        format!("{wakes} of waits on sets, {spurious} of them spurious ({})", percent(Some(share)));
    // A handful says nothing.
    Some(match wakes >= 100 && share > 0.2 {
        true => Check::new(Level::Note, "wakes", what).means(
            "Threads that wait on one set take events from each other: fewer of them, or \
             EPOLLEXCLUSIVE or EPOLLET on what they share, spare these wakes.",
        ),
        false => Check::new(Level::Good, "wakes", what),
    })
}

/// How many of these connections have come to a listener; `None` if that cannot be known.
fn held(listener: &str, open: &[SocketAddr]) -> Option<u64> {
    let listener: SocketAddr = listener.parse().ok()?;
    let plain = |ip: IpAddr| ip.to_canonical();
    let came_here = |own: &&SocketAddr| {
        own.port() == listener.port()
            && (listener.ip().is_unspecified() || plain(own.ip()) == plain(listener.ip()))
    };
    Some(open.iter().filter(came_here).count() as u64)
}

fn sentence(trial: &Trial) -> String {
    let total = trial.report.total();
    let (made, kept) = (total.made(), total.kept());
    let avoided = total.get(Stat::SyscallsAvoided);
    let listeners = trial.report.listeners().iter();
    let workers = listeners.map(|(_, listener)| listener.workers.len()).filter(|&it| it > 1);
    let mut parts = Vec::new();
    if let Some(workers) = workers.max() {
        parts.push(format!("one of {workers} threads is woken for a connection"));
    }
    if made > 0 {
        parts.push(format!("{kept} of {made} objects stayed in process"));
        parts.push(format!("{avoided} system calls were avoided"));
    }
    let seconds = trial.lasted.as_secs_f64();
    match parts.is_empty() {
        true => format!("can be served, but gave Wakeset nothing to do in {seconds:.1} s"),
        false => format!("is served: {}, in {seconds:.1} s", parts.join(", ")),
    }
}

fn value(trial: &Trial, listeners: Vec<Value>) -> Value {
    let (end, status) = match trial.end {
        End::ByItself(status) => ("by itself", Some(status)),
        End::Terminated => ("SIGTERM", None),
        End::Killed => ("SIGKILL", None),
    };
    json!({
        "seconds": trial.lasted.as_secs_f64(),
        "end": end,
        "status": status,
        "counts": trial.report.json(),
        "listeners": listeners,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_belong_to_their_listener() {
        let open = ["127.0.0.1:80", "10.0.0.1:80", "127.0.0.1:4000", "[::ffff:127.0.0.1]:80"];
        let open = open.map(|it| it.parse().expect("an address"));
        assert_eq!(held("127.0.0.1:80", &open), Some(2));
        assert_eq!(held("0.0.0.0:80", &open), Some(3));
        assert_eq!(held("[::]:80", &open), Some(3));
        assert_eq!(held("/run/a.sock", &open), None);
    }

    #[test]
    fn every_reason_has_a_meaning() {
        assert!(Stat::ALL[Stat::MOVED].iter().all(|&reason| !meaning(reason).is_empty()));
        assert_eq!(meaning(Stat::Waits), "");
    }
}
