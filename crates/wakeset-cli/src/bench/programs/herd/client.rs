//! The clients of `bench herd`: threads that connect, read the reply, and connect again.

use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use super::worker::{self, REPLY};
use crate::bench::measure::joined::joined;
use crate::bench::programs::child::checked;

/// A reply that takes longer than this is lost.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Where the listener is.
pub enum Address {
    Tcp(std::net::SocketAddr),
    Unix(std::os::unix::net::SocketAddr),
}

/// Makes this many connections from this many threads, to one listener after the other. Returns how
/// long that took, and how many microseconds of CPU time.
pub fn run(addresses: &[Address], clients: usize, connections: u64) -> io::Result<(Duration, u64)> {
    let left = AtomicI64::new(connections as i64);
    let cpu = || worker::usage(libc::RUSAGE_SELF).map(|(_, microseconds)| microseconds);
    let cpu_before = cpu()?;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let client = || -> io::Result<()> {
            loop {
                let n = left.fetch_sub(1, Ordering::Relaxed);
                if n <= 0 {
                    return Ok(());
                }
                connect(&addresses[n as usize % addresses.len()])
                    .inspect_err(|_| left.store(0, Ordering::Relaxed))?;
            }
        };
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        threads.into_iter().try_for_each(joined)?;
        Ok((begin.elapsed(), cpu()? - cpu_before))
    })
}

fn connect(address: &Address) -> io::Result<()> {
    match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(TIME_LIMIT))?;
            close_with_reset(&stream)?;
            read_reply(stream)
        }
        Address::Unix(address) => {
            let stream = UnixStream::connect_addr(address)?;
            stream.set_read_timeout(Some(TIME_LIMIT))?;
            read_reply(stream)
        }
    }
}

fn close_with_reset(stream: &TcpStream) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let (value, len) = ((&raw const linger).cast(), size_of::<libc::linger>() as libc::socklen_t);
    // SAFETY: a linger of its size.
    let result = unsafe {
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, len)
    };
    checked(result.into()).map(drop)
}

fn read_reply(mut stream: impl Read) -> io::Result<()> {
    let mut reply = [0; REPLY.len()];
    stream.read_exact(&mut reply)?;
    if reply == *REPLY { Ok(()) } else { Err(io::Error::other("a wrong reply")) }
}
