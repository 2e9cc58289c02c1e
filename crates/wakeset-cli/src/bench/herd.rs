//! `herd`: worker processes that share one listener, as a prefork server's do.
//!
//! | side | a worker waits with |
//! |---|---|
//! | select, poll | that call, as unmodified servers do |
//! | exclusive | an epoll set of its own, the listener in it with EPOLLEXCLUSIVE |
//! | own listeners | the same, and each worker has a listener of its own, to which the clients go in turn |
//! | wakeset run | select(2), the same program, under `wakeset run` |
//! | wakeset | [`wakeset_group::listener`] |
//!
//! Own listeners are no choice that a server has: its clients do not know of its workers. They show what taking turns costs by itself, however it is
//! brought about: nobody but the worker whose turn it is hears of a connection, and nothing is done for the order.
//!
//! A worker accepts one connection each time it is told of one, sends eleven bytes and closes. The clients are threads of this process; each connects, reads
//! the reply, checks it, and connects again. Elapsed time is theirs, from the first connection to the last reply. CPU time (user and system) and
//! wakes are the workers'; a wake is a voluntary context switch, which the kernel counts: the worker had slept, and ran again. The clients' CPU
//! time, in which the kernel also does the network's half of each connection, has a column of its own.
//!
//! A hundred thousand TCP connections would leave as many in TIME_WAIT, more than there are ports. So a client closes with a reset (SO_LINGER of 0), after
//! which neither side keeps anything.

mod client;
pub mod worker;

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use serde::Serialize;

use super::child;
use super::report::{Json, Spread, machine};
use super::{Options, Order, Params, params, progress_bar};
use crate::{Failure, table};
use client::Address;
use worker::{Served, Way};

/// Worker processes, if not told otherwise.
const WORKERS: [usize; 1] = [8];
const CLIENTS: [usize; 1] = [2];
const CONNECTIONS: u64 = 100_000;
/// What the kernel keeps for workers that are busy.
const BACKLOG: i32 = 1024;

/// Which kind of listener.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
pub enum Socket {
    Tcp,
    Unix,
}

impl Socket {
    fn name(self) -> &'static str {
        match self {
            Socket::Tcp => "tcp",
            Socket::Unix => "unix",
        }
    }
}

/// Who waits, and how.
#[derive(Clone, Copy, PartialEq)]
struct Side {
    way: Way,
    /// Under `wakeset run`.
    preload: bool,
    /// Each worker has a listener.
    own: bool,
    /// Of Wakeset's sides.
    order: Option<Order>,
}

impl Side {
    fn all(orders: &[Order]) -> Vec<Self> {
        let kernel = |way| Side { way, preload: false, own: false, order: None };
        let mut sides = [Way::Select, Way::Poll, Way::Exclusive].map(kernel).to_vec();
        sides.push(Side { own: true, ..kernel(Way::Exclusive) });
        for &order in orders {
            let order = Some(order);
            sides.push(Side { preload: true, order, ..kernel(Way::Select) });
            sides.push(Side { order, ..kernel(Way::Wakeset) });
        }
        sides
    }

    fn name(self) -> &'static str {
        match (self.way, self.preload) {
            (_, true) => "wakeset run",
            _ if self.own => "own listeners",
            (Way::Select, _) => "select",
            (Way::Poll, _) => "poll",
            (Way::Exclusive, _) => "exclusive",
            (Way::Wakeset, _) => "wakeset",
        }
    }
}

/// Measures, prints the tables and writes the JSON.
pub fn herd(options: &Options) -> Result<(), Failure> {
    let group = &options.group;
    let sides = Side::all(group.orders());
    let mut points = Vec::new();
    for &socket in group.socket.as_deref().unwrap_or(&[Socket::Tcp, Socket::Unix]) {
        for &workers in options.threads.as_deref().unwrap_or(&WORKERS) {
            for &clients in group.clients.as_deref().unwrap_or(&CLIENTS) {
                points.push(Point { socket, workers, clients });
            }
        }
    }
    let connections = group.connections.unwrap_or(CONNECTIONS);
    let rounds = group.rounds();
    let json = Json::create(options.json.as_deref())?;
    let progress = progress_bar((points.len() * rounds) as u64);

    println!("{}", machine());
    println!("{connections} connections each; medians of {rounds} rounds, all sides in turn in each");
    println!("a ratio is this side's elapsed time, or its workers' CPU time, by the named side's in the same round");
    let mut rows = Vec::new();
    for point in &points {
        let mut samples: Vec<Vec<Sample>> = sides.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (side, samples) in sides.iter().zip(&mut samples) {
                progress.set_message(format!("{point} {}", side.name()));
                let sample = point.run(*side, connections).map_err(|why| {
                    progress.finish_and_clear();
                    Failure::own(format!("herd failed at {point}, {}: {}", side.name(), why.message))
                })?;
                samples.push(sample);
            }
            progress.inc(1);
        }
        let of = |way| sides.iter().zip(&samples).find(|(side, _)| side.way == way && !side.preload && !side.own);
        let of = |way| of(way).map_or(&[][..], |(_, samples)| samples);
        let kernels = [of(Way::Select), of(Way::Exclusive)];
        let measured = sides.iter().zip(&samples);
        let measured: Vec<_> =
            measured.map(|(side, samples)| Row::new(point, *side, connections, samples, kernels)).collect();
        progress.suspend(|| {
            println!("\n{point}\n{}", Row::HEADINGS);
            for row in &measured {
                println!("{row}");
            }
        });
        rows.extend(measured);
    }
    progress.finish_and_clear();
    json.write(&rows)
}

/// One combination.
struct Point {
    socket: Socket,
    workers: usize,
    clients: usize,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "socket={} workers={} clients={}", self.socket.name(), self.workers, self.clients)
    }
}

/// What one run came to.
struct Sample {
    elapsed: Duration,
    clients_cpu_us: u64,
    workers: Vec<Served>,
}

impl Sample {
    fn milliseconds(&self) -> f64 {
        self.elapsed.as_secs_f64() * 1e3
    }

    fn sum(&self, value: fn(&Served) -> u64) -> f64 {
        self.workers.iter().map(value).sum::<u64>() as f64
    }

    fn most(&self) -> u64 {
        self.workers.iter().map(|worker| worker.connections).max().unwrap_or(0)
    }

    fn least(&self) -> u64 {
        self.workers.iter().map(|worker| worker.connections).min().unwrap_or(0)
    }
}

impl Point {
    fn run(&self, side: Side, connections: u64) -> Result<Sample, Failure> {
        let failed = |what: &'static str| move |e: std::io::Error| Failure::own(format!("{what}: {e}"));
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for _ in 0..if side.own { self.workers } else { 1 } {
            let (listener, address) = self.listen().map_err(failed("no listener"))?;
            listeners.push(listener);
            addresses.push(address);
        }
        let start = |i| Worker::start(side, &listeners[i % listeners.len()]);
        let workers = (0..self.workers).map(start).collect::<Result<Vec<_>, _>>()?;
        let (elapsed, clients_cpu_us) =
            client::run(&addresses, self.clients, connections).map_err(failed("a client"))?;
        drop(listeners);
        let workers = workers.into_iter().map(Worker::end).collect::<Result<Vec<_>, _>>()?;
        let sample = Sample { elapsed, clients_cpu_us, workers };
        let served = sample.sum(|worker| worker.connections);
        if served != connections as f64 {
            return Err(Failure::own(format!("{connections} connections were made, and {served} accepted")));
        }
        Ok(sample)
    }

    fn listen(&self) -> std::io::Result<(OwnedFd, Address)> {
        let (listener, address): (OwnedFd, _) = match self.socket {
            Socket::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                listener.set_nonblocking(true)?;
                let address = Address::Tcp(listener.local_addr()?);
                (listener.into(), address)
            }
            Socket::Unix => {
                let (listener, address) = unix_listener()?;
                (listener.into(), Address::Unix(address))
            }
        };
        // SAFETY: a listener of ours.
        child::checked(unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) }.into())?;
        Ok((listener, address))
    }
}

/// In the abstract name space, under a name that the kernel chooses: nothing is left behind.
fn unix_listener() -> std::io::Result<(UnixListener, std::os::unix::net::SocketAddr)> {
    use std::os::linux::net::SocketAddrExt;
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("wakeset-herd-{}-{n}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    let listener = UnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    Ok((listener, address))
}

/// A worker process. Killed when dropped before its end.
struct Worker {
    child: Child,
    output: BufReader<ChildStdout>,
    ended: bool,
}

impl Worker {
    /// Returns when it is about to wait.
    fn start(side: Side, listener: &OwnedFd) -> Result<Self, Failure> {
        let fd = listener.as_raw_fd();
        let order = side.order.unwrap_or(Order::Fifo);
        let arguments = ["__herd", side.way.name(), order.name(), &fd.to_string()].map(String::from);
        let mut command = child::command(&arguments, side.preload.then_some(order))?;
        // SAFETY: fcntl is async-signal-safe.
        unsafe {
            command.pre_exec(move || child::checked(libc::fcntl(fd, libc::F_SETFD, 0).into()).map(drop));
        }
        let failed = |e: std::io::Error| Failure::own(format!("a worker: {e}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let output = child.stdout.take().ok_or_else(|| Failure::own("a worker has no output"))?;
        let mut worker = Worker { child, output: BufReader::new(output), ended: false };
        let mut line = String::new();
        worker.output.read_line(&mut line).map_err(failed)?;
        if line.trim() != "ready" {
            return Err(Failure::own(format!("a worker said {line:?}")));
        }
        Ok(worker)
    }

    /// Ends it by the end of its input, which it watches beside the listener.
    fn end(mut self) -> Result<Served, Failure> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        let read = self.output.read_to_string(&mut text);
        let status = self.child.wait();
        self.ended = true;
        match (read, status) {
            (Ok(_), Ok(status)) if status.success() => {
                serde_json::from_str(&text).map_err(|e| Failure::own(format!("a worker said {text:?}: {e}")))
            }
            (read, status) => Err(Failure::own(format!("a worker ended with {status:?}, {read:?}"))),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// One side of one point.
#[derive(Serialize)]
struct Row {
    workload: &'static str,
    params: Params,
    unit: &'static str,
    elapsed_ms: Option<Spread>,
    cpu_ms: f64,
    clients_cpu_ms: f64,
    wakes_per_connection: f64,
    accepts_per_connection: f64,
    busiest: f64,
    least_busy: f64,
    busiest_by_least: f64,
    elapsed_by_select: f64,
    elapsed_by_exclusive: f64,
    cpu_by_select: f64,
    #[serde(skip)]
    label: String,
}

impl Row {
    const HEADINGS: &str = "                      elapsed, ms  by select  by excl.  CPU, ms  by select  clients'  wakes/conn  accepts/conn         busiest/least";

    /// `kernels`: what select and EPOLLEXCLUSIVE came to in the same rounds.
    fn new(point: &Point, side: Side, connections: u64, samples: &[Sample], kernels: [&[Sample]; 2]) -> Self {
        let median_of = |values: Vec<f64>| Spread::of(values).map_or(f64::NAN, |spread| spread.median);
        let median = |value: &dyn Fn(&Sample) -> f64| median_of(samples.iter().map(value).collect());
        let by = |others: &[Sample], value: fn(&Sample) -> f64| {
            median_of(samples.iter().zip(others).map(|(own, other)| value(own) / value(other)).collect())
        };
        let [select, exclusive] = kernels;
        let connections = connections as f64;
        let elapsed = samples.iter().map(Sample::milliseconds).collect();
        let mut params = params([
            ("socket", point.socket.name().into()),
            ("workers", point.workers.into()),
            ("clients", point.clients.into()),
            ("side", side.name().into()),
        ]);
        let mut label = side.name().to_string();
        if let Some(order) = side.order {
            params.insert("order".to_string(), order.name().into());
            label += &format!(", {}", order.name());
        }
        Row {
            workload: "herd",
            params,
            unit: "ms",
            elapsed_ms: Spread::of(elapsed),
            cpu_ms: median(&|sample| sample.sum(|worker| worker.cpu_us)) / 1e3,
            clients_cpu_ms: median(&|sample| sample.clients_cpu_us as f64) / 1e3,
            wakes_per_connection: median(&|sample| sample.sum(|worker| worker.wakes)) / connections,
            accepts_per_connection: median(&|sample| sample.sum(|worker| worker.accepts)) / connections,
            busiest: median(&|sample| sample.most() as f64),
            least_busy: median(&|sample| sample.least() as f64),
            busiest_by_least: median(&|sample| sample.most() as f64 / sample.least() as f64),
            elapsed_by_select: by(select, Sample::milliseconds),
            elapsed_by_exclusive: by(exclusive, Sample::milliseconds),
            cpu_by_select: by(select, |sample| sample.sum(|worker| worker.cpu_us)),
            label,
        }
    }

    fn elapsed(&self) -> f64 {
        self.elapsed_ms.as_ref().map_or(f64::NAN, |spread| spread.median)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratios = [self.elapsed_by_select, self.elapsed_by_exclusive, self.cpu_by_select];
        let [by_select, by_exclusive, cpu_by_select] = ratios.map(|ratio| format!("{ratio:.2}"));
        let [wakes, accepts] = [self.wakes_per_connection, self.accepts_per_connection].map(|n| format!("{n:.2}"));
        let [elapsed, cpu, clients, most, least] =
            [self.elapsed(), self.cpu_ms, self.clients_cpu_ms, self.busiest, self.least_busy].map(table::number);
        let spread = match self.least_busy {
            0.0 => format!("{most}/{least}"),
            _ => format!("{most}/{least} = {:.2}", self.busiest_by_least),
        };
        let label = &self.label;
        write!(
            f,
            "{label:<20}{elapsed:>13}{by_select:>11}{by_exclusive:>10}{cpu:>9}{cpu_by_select:>11}{clients:>10}{wakes:>12}{accepts:>14}{spread:>22}"
        )
    }
}
