//! A prefork server: its workers share a listener, and each connection wakes the worker that has
//! been idle longest.
//!
//! `cargo run -p wakeset-group --example prefork` serves a thousand connections and prints how many
//! each worker had.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use wakeset_group::listener::{Errno, Group, Order};

const WORKERS: usize = 8;
const CONNECTIONS: usize = 1000;

fn work(
    listener: &TcpListener,
    group: Group,
    number: u8,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut waiter = group.waiter();
    loop {
        match waiter.wait(None) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(os_error(error).into()),
        }
        // Non-blocking: another worker may have been faster, and then there is no connection left.
        if let Ok((mut connection, _)) = listener.accept() {
            connection.write_all(&[number])?;
        }
    }
}

fn os_error(error: Errno) -> std::io::Error {
    std::io::Error::from_raw_os_error(error.into_raw())
}

/// Serves, and prints what each worker had.
///
/// # Errors
/// Those of the sockets.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let group = Group::new(listener.as_raw_fd(), Order::Fifo).map_err(os_error)?;
    let mut workers = Vec::new();
    for number in 0..WORKERS as u8 {
        // SAFETY: there is one thread.
        match unsafe { libc::fork() } {
            0 => {
                let _ = work(&listener, group, number);
                std::process::exit(1);
            }
            pid => workers.push(pid),
        }
    }
    let mut served = [0; WORKERS];
    for _ in 0..CONNECTIONS {
        let mut number = [0];
        TcpStream::connect(listener.local_addr()?)?.read_exact(&mut number)?;
        served[usize::from(number[0])] += 1;
    }
    for pid in workers {
        // SAFETY: our own children.
        unsafe {
            libc::kill(pid, libc::SIGTERM);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }
    println!("{served:?}");
    Ok(())
}
