//! `wakeset metrics`: the counts of shared runs for Prometheus, in its text format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use wakeset_fd::stats::{NAMES, Stat, Summary};

use super::{TROUBLE, target, trouble};
use crate::failure::Failure;
use crate::output::print;
use crate::run::{Listener, Listeners, Snapshot};

/// What `wakeset metrics` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0; 2 if the metrics cannot be served or written.

Without --listen and --textfile they are printed once. Runs of the same program are added up; a \
program has the name that its first process has now.

Environment: XDG_RUNTIME_DIR is where the runs of this user are looked for first, and then
/run/user/UID.

Examples:
  wakeset metrics
  wakeset metrics --listen 127.0.0.1:9464
  wakeset metrics --textfile /var/lib/prometheus/node-exporter/wakeset.prom")]
pub struct MetricsOptions {
    /// Serve them by HTTP until a signal ends this: a loopback address with a port, or the path of
    /// a unix socket
    #[arg(long, value_name = "ADDRESS", conflicts_with = "textfile")]
    listen: Option<String>,
    /// Write them into FILE, in one step, for the textfile collector of node_exporter
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
}

/// Prints, writes or serves the metrics.
pub fn metrics(options: &MetricsOptions) -> Result<i32, Failure> {
    let fail = |what: String| move |error: io::Error| trouble(format!("{what}: {error}"));
    if let Some(path) = &options.textfile {
        write_whole(path, &text()).map_err(fail(path.display().to_string()))?;
    } else if let Some(address) = &options.listen {
        serve(address)?;
    } else {
        print(&text(), TROUBLE)?;
    }
    Ok(0)
}

/// The collector never sees half a file.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    // Not `.prom`, so that it is not collected itself.
    name.push(format!(".{}", std::process::id()));
    let fresh = path.with_file_name(name);
    fs::write(&fresh, text)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o644))?;
    fs::rename(&fresh, path)
}

/// Answers one request after the other, until a signal ends it or no more can be accepted.
fn serve(address: &str) -> Result<(), Failure> {
    let fail = |error: io::Error| trouble(format!("{address}: {error}"));
    if address.contains('/') {
        let listener = UnixListener::bind(address).map_err(fail)?;
        loop {
            attend(listener.accept().map(|(stream, _)| stream.into())).map_err(fail)?;
        }
    }
    let parsed: SocketAddr = address
        .parse()
        .map_err(|_| trouble(format!("{address}: neither an address with a port nor a path")))?;
    if !parsed.ip().is_loopback() {
        return Err(trouble(format!(
            "{address}: not a loopback address; whoever can reach it could read the metrics"
        )));
    }
    let listener = TcpListener::bind(parsed).map_err(fail)?;
    if let Ok(bound) = listener.local_addr() {
        eprintln!("wakeset: http://{bound}/metrics");
    }
    loop {
        attend(listener.accept().map(|(stream, _)| stream.into())).map_err(fail)?;
    }
}

/// How long the request of a client may take, and then each part of the answer.
const PATIENCE: Duration = Duration::from_secs(2);
const MOST_REQUEST: usize = 8192;

/// Answers an accepted connection, of either family, whatever comes of it.
fn attend(accepted: io::Result<OwnedFd>) -> io::Result<()> {
    match accepted {
        Ok(connection) => {
            // The calls are those of any socket: the time limits are its options.
            let _ = answer(&mut TcpStream::from(connection));
            Ok(())
        }
        // The client has gone already.
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
        Err(error) => Err(error),
    }
}

fn answer(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let begun = Instant::now();
    let mut request = Vec::new();
    let mut bytes = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            read => request.extend(&bytes[..read]),
        }
        if request.len() > MOST_REQUEST {
            return Ok(());
        }
    }
    let path = request.strip_prefix(b"GET ").and_then(|rest| rest.split(|b| *b == b' ').next());
    let (status, body) = match path {
        Some(b"/metrics") => ("200 OK", text()),
        Some(_) => ("404 Not Found", "see /metrics\n".to_string()),
        None => ("405 Method Not Allowed", String::new()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Counts that become a metric each: name, help.
const COUNTERS: [(Stat, &str, &str); 9] = [
    (Stat::Waits, "waits", "Calls of the epoll_wait family."),
    (Stat::Events, "events", "Events that these calls reported."),
    (
        Stat::EventsFromKernel,
        "events_from_kernel",
        "Those of them that came from descriptors of the kernel's.",
    ),
    (
        Stat::Signals,
        "signals_in_process",
        "Writes to eventfds, pipes and pairs (not signal(7)) that were answered in process.",
    ),
    (Stat::SignalsInKernel, "signals_in_kernel", "Such writes that were the kernel's."),
    (Stat::HomeFork, "objects_home_after_fork", "Objects that came home after a fork."),
    (Stat::Wakes, "wakes", "Sleeping waits that were woken for what lives in process."),
    (Stat::SpuriousWakes, "spurious_wakes", "Wakes after which there was nothing to report."),
    (Stat::SyscallsAvoided, "syscalls_avoided", "Calls answered without a system call."),
];

/// What the runs of one program count.
#[derive(Default)]
struct Program {
    processes: u64,
    ended: u64,
    in_process: u64,
    total: Summary,
    /// Their processes go by the slot.
    listeners: Listeners,
}

/// Counts of a listener that become a metric each: name, help.
type ListenerCount = (fn(&Listener) -> u64, &'static str, &'static str);

const LISTENER: [ListenerCount; 3] = [
    (|it| it.connections, "connections", "Connections accepted from a listening socket."),
    (|it| it.wakes, "wakes", "Sleeps that a listening socket ended."),
    (
        |it| it.spurious,
        "spurious_wakes",
        "Such sleeps after which another worker had the connection, or got it.",
    ),
];

impl Program {
    fn add(&mut self, run: &Snapshot) {
        self.processes += run.images.len() as u64;
        self.ended += run.ended_images;
        self.total.add(&run.ended);
        self.listeners.add(None, &run.ended_listeners);
        for image in &run.images {
            self.listeners.add(Some(image.slot as u32), &image.listeners);
            self.total.add(&image.summary);
            self.in_process += image.summary.open();
        }
    }
}

/// All metrics. There are none without a shared run.
fn text() -> String {
    let mut programs = BTreeMap::<String, Program>::new();
    for run in target::own_runs() {
        let name = target::name(run.pid).unwrap_or_else(|| "ended".to_string());
        programs.entry(name).or_default().add(&run);
    }
    let mut text = String::new();
    let of = |value: fn(&Program) -> u64| {
        programs.iter().map(move |(name, it)| (labels(&[("program", name)]), value(it)))
    };
    metric(&mut text, "processes", "gauge", "Processes that count.", of(|it| it.processes));
    let help = "Processes, and programs that a process was, that have ended.";
    metric(&mut text, "ended_processes_total", "counter", help, of(|it| it.ended));
    let help = "Objects whose state is in a process.";
    metric(&mut text, "objects_in_process", "gauge", help, of(|it| it.in_process));
    let help = "Eventfds, timerfds, sets, pipes and socket pairs made.";
    metric(&mut text, "objects_made_total", "counter", help, of(|it| it.total.made()));
    for (stat, name, help) in COUNTERS {
        let values = programs
            .iter()
            .map(|(program, it)| (labels(&[("program", program)]), it.total.get(stat)));
        metric(&mut text, &format!("{name}_total"), "counter", help, values);
    }
    let migrated = programs.iter().flat_map(|(program, it)| {
        Stat::ALL[Stat::MOVED].iter().map(move |&reason| {
            let labels = labels(&[("program", program), ("reason", NAMES[reason as usize])]);
            (labels, it.total.get(reason))
        })
    });
    let help = "Objects that migrated into the kernel.";
    metric(&mut text, "objects_migrated_total", "counter", help, migrated);
    for (count, name, help) in LISTENER {
        let values = programs.iter().flat_map(|(program, it)| {
            it.listeners.iter().map(move |(address, counts)| {
                (labels(&[("program", program), ("address", address)]), count(counts))
            })
        });
        metric(&mut text, &format!("listener_{name}_total"), "counter", help, values);
    }
    let workers = programs.iter().flat_map(|(program, it)| {
        it.listeners.iter().flat_map(move |(address, listener)| {
            listener.workers.iter().map(move |((slot, thread), count)| {
                let (slot, thread) = (slot.to_string(), thread.to_string());
                let own = [("program", program.as_str()), ("address", address)];
                (labels(&[own[0], own[1], ("slot", &slot), ("thread", &thread)]), *count)
            })
        })
    });
    let help = "Connections by worker; a slot is used again when its process has ended.";
    metric(&mut text, "worker_connections_total", "counter", help, workers);
    text
}

/// One metric with its values; nothing if there are none.
fn metric(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    values: impl Iterator<Item = (String, u64)>,
) {
    let mut values = values.peekable();
    if values.peek().is_some() {
        let _ = writeln!(text, "# HELP wakeset_{name} {help}\n# TYPE wakeset_{name} {kind}");
    }
    for (labels, value) in values {
        let _ = writeln!(text, "wakeset_{name}{labels} {value}");
    }
}

fn labels(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<_> = pairs
        .iter()
        .map(|(name, value)| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{name}=\"{value}\"")
        })
        .collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_quoted() {
        let name = labels(&[("program", "a\"b\\c"), ("reason", "fork")]);
        assert_eq!(name, r#"{program="a\"b\\c",reason="fork"}"#);
    }

    #[test]
    fn a_metric_has_its_help_once() {
        let mut text = String::new();
        let values = [("{a=\"1\"}".to_string(), 1), ("{a=\"2\"}".to_string(), 2)];
        metric(&mut text, "x_total", "counter", "Help.", values.into_iter());
        metric(&mut text, "none", "gauge", "Help.", std::iter::empty());
        let expected = "# HELP wakeset_x_total Help.\n# TYPE wakeset_x_total counter\n\
                        wakeset_x_total{a=\"1\"} 1\nwakeset_x_total{a=\"2\"} 2\n";
        assert_eq!(text, expected);
    }
}
