//! An echo server: one thread, one set with the listener, the connections, and a notifier that ends
//! it; and clients that check what they get.
//!
//! ```text
//! cargo run -p wakeset-io --example echo
//! ```

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use wakeset_io::{Event, Events, Interest, Notifier, Poll, Registered, Token};

const STOP: Token = Token(0);
const LISTENER: Token = Token(1);
const CLIENTS: usize = 20;
const LINES: usize = 50;

/// A connection, and what of its echo is not yet written.
struct Connection {
    socket: Registered<TcpStream>,
    unsent: Vec<u8>,
}

impl Connection {
    /// Reads and writes until nothing is left to do; whether the connection goes on. Edges are
    /// enough, because both are tried until they would block.
    fn echo(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let mut socket: &TcpStream = &self.socket;
        loop {
            while !self.unsent.is_empty() {
                match socket.write(&self.unsent) {
                    Ok(written) => drop(self.unsent.drain(..written)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                    Err(error) => return Err(error),
                }
            }
            match socket.read(buffer) {
                Ok(0) => return Ok(false),
                Ok(read) => self.unsent.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Serves until it is told to stop; how many connections there were.
fn serve(listener: TcpListener, stop: &Notifier) -> io::Result<usize> {
    listener.set_nonblocking(true)?;
    let poll = Poll::new()?;
    let _stop = poll.register(stop, STOP, Interest::READABLE)?;
    let listener = poll.register_fd(listener, LISTENER, Interest::READABLE)?;
    let both = (Interest::READABLE | Interest::WRITABLE).edge();
    let mut connections: HashMap<Token, Connection> = HashMap::new();
    let (mut accepted, mut buffer) = (0, [0; 4096]);
    let mut events = Events::with_capacity(64);
    loop {
        poll.wait(&mut events, None)?;
        for token in events.iter().map(Event::token) {
            match token {
                STOP => return Ok(accepted),
                LISTENER => {
                    let socket = match listener.accept() {
                        Ok((socket, _)) => socket,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                        Err(error) => return Err(error),
                    };
                    socket.set_nonblocking(true)?;
                    accepted += 1;
                    let token = Token::from(LISTENER.0 as usize + accepted);
                    let socket = poll.register_fd(socket, token, both)?;
                    connections.insert(token, Connection { socket, unsent: Vec::new() });
                }
                token => {
                    let connection = connections.get_mut(&token);
                    let goes_on = connection.map(|it| it.echo(&mut buffer));
                    if !matches!(goes_on, Some(Ok(true))) {
                        // Out of the set, and closed.
                        connections.remove(&token);
                    }
                }
            }
        }
    }
}

fn ask(address: SocketAddr, client: usize) -> io::Result<()> {
    let mut socket = TcpStream::connect(address)?;
    for line in 0..LINES {
        let question = format!("line {line} of client {client}\n");
        socket.write_all(question.as_bytes())?;
        let mut answer = vec![0; question.len()];
        socket.read_exact(&mut answer)?;
        assert_eq!(answer, question.as_bytes());
    }
    Ok(())
}

/// Serves some clients, and ends.
///
/// # Errors
/// Those of the sockets.
pub fn main() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let stop = Notifier::new()?;
    let server = thread::spawn({
        let stop = stop.clone();
        move || serve(listener, &stop)
    });
    thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || ask(address, client))).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("a client panicked"))
    })?;
    stop.notify();
    let accepted = server.join().expect("the server panicked")?;
    assert_eq!(accepted, CLIENTS);
    println!("{accepted} clients, {LINES} lines each: every line came back");
    Ok(())
}
