//! One run: the listeners, the workers that share them, and the clients.

use std::fmt;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use super::client::{self, Address};
use super::process::Worker;
use super::side::{Side, Socket};
use super::worker::Served;
use crate::bench::programs::child;
use crate::failure::Failure;

/// What the kernel keeps for workers that are busy.
const BACKLOG: i32 = 1024;

/// One combination.
pub struct Point {
    pub socket: Socket,
    pub workers: usize,
    pub clients: usize,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "socket={} workers={} clients={}", self.socket.name(), self.workers, self.clients)
    }
}

/// What one run came to.
pub struct Sample {
    elapsed: Duration,
    pub clients_cpu_us: u64,
    workers: Vec<Served>,
}

impl Sample {
    pub fn milliseconds(&self) -> f64 {
        self.elapsed.as_secs_f64() * 1e3
    }

    pub fn sum(&self, value: fn(&Served) -> u64) -> f64 {
        self.workers.iter().map(value).sum::<u64>() as f64
    }

    pub fn most(&self) -> u64 {
        self.workers.iter().map(|worker| worker.connections).max().unwrap_or(0)
    }

    pub fn least(&self) -> u64 {
        self.workers.iter().map(|worker| worker.connections).min().unwrap_or(0)
    }
}

impl Point {
    /// Runs once.
    pub fn run(&self, side: Side, connections: u64) -> Result<Sample, Failure> {
        let failed =
            |what: &'static str| move |e: std::io::Error| Failure::own(format!("{what}: {e}"));
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
            return Err(Failure::own(format!(
                "{connections} connections were made, and {served} accepted"
            )));
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
