//! A user-space stack's socket table: sockets without descriptors, whose readiness the stack sets,
//! beside the kernel's, in one set.
//!
//! ```text
//! cargo run -p wakeset-io --example socket_table
//! ```
//!
//! The stack here carries datagrams between the sockets of its table, over a wire that is a kernel
//! socket pair, so that the packets come as they do from a tap device: the stack's thread waits for
//! the wire, and for the application through a notifier; the application waits for its sockets, and
//! for a kernel socket beside them.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use wakeset::Description;
use wakeset_io::{
    Event, Events, Interest, Notifier, Poll, Ready, Registration, SetReadiness, Token, Watch,
};

/// How many packets a socket holds in each direction.
const DEPTH: usize = 4;

/// A packet: to, from, and one byte.
type Packet = [u8; 3];

/// What the stack keeps of a socket.
struct Entry {
    set_readiness: SetReadiness,
    received: VecDeque<Packet>,
    to_send: VecDeque<Packet>,
}

impl Entry {
    /// The readiness follows from the queues. Called with the table's lock held, so the last one
    /// that is set is the right one.
    fn tell(&self) {
        let mut ready = Ready::NONE;
        if !self.received.is_empty() {
            ready = ready | Ready::READABLE;
        }
        if self.to_send.len() < DEPTH {
            ready = ready | Ready::WRITABLE;
        }
        self.set_readiness.set_readiness(ready);
    }
}

/// The table: sockets by port.
struct Stack {
    table: Mutex<BTreeMap<u8, Entry>>,
    /// The application has put something into a queue.
    work: Notifier,
}

impl Stack {
    fn table(&self) -> MutexGuard<'_, BTreeMap<u8, Entry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A packet from the wire. One that finds no socket, or no room, is lost, as datagrams are.
    fn deliver(&self, packet: Packet) {
        if let Some(entry) = self.table().get_mut(&packet[0])
            && entry.received.len() < DEPTH
        {
            entry.received.push_back(packet);
            entry.tell();
        }
    }

    /// The next packet for the wire.
    fn next_to_send(&self) -> Option<Packet> {
        let mut table = self.table();
        table.values_mut().find_map(|entry| {
            let packet = entry.to_send.pop_front()?;
            entry.tell();
            Some(packet)
        })
    }

    /// The stack's thread: until the other end of the wire is gone.
    fn run(&self, wire: UnixDatagram) -> io::Result<()> {
        const WIRE: Token = Token(0);
        const WORK: Token = Token(1);
        wire.set_nonblocking(true)?;
        let poll = Poll::new()?;
        let wire = poll.register_fd(wire, WIRE, Interest::READABLE)?;
        let _work = poll.register(&self.work, WORK, Interest::READABLE)?;
        let mut events = Events::with_capacity(4);
        loop {
            poll.wait(&mut events, None)?;
            for event in &events {
                match event.token() {
                    WORK => {
                        self.work.take();
                        while let Some(packet) = self.next_to_send() {
                            wire.send(&packet)?;
                        }
                    }
                    _ => {
                        let mut packet = Packet::default();
                        match wire.recv(&mut packet) {
                            // The end of this wire: an empty packet.
                            Ok(0) => return Ok(()),
                            Ok(_) => self.deliver(packet),
                            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
        }
    }
}

/// A socket of the stack's, as the application has it.
struct Socket {
    stack: Arc<Stack>,
    port: u8,
    registration: Registration,
}

impl Socket {
    fn bind(stack: &Arc<Stack>, port: u8) -> io::Result<Self> {
        let (registration, set_readiness) = Registration::new()?;
        let (received, to_send) = (VecDeque::new(), VecDeque::new());
        let entry = Entry { set_readiness, received, to_send };
        entry.tell();
        stack.table().insert(port, entry);
        Ok(Self { stack: Arc::clone(stack), port, registration })
    }

    /// Does something with this socket's entry, tells of what changed, and wakes the stack.
    fn with<R>(&self, act: impl FnOnce(&mut Entry) -> Option<R>) -> io::Result<R> {
        let result = self.stack.table().get_mut(&self.port).and_then(|entry| {
            let result = act(entry);
            entry.tell();
            result
        });
        self.stack.work.notify();
        result.ok_or(ErrorKind::WouldBlock.into())
    }

    fn send(&self, to: u8, byte: u8) -> io::Result<()> {
        self.with(|entry| {
            let has_room = entry.to_send.len() < DEPTH;
            has_room.then(|| entry.to_send.push_back([to, self.port, byte]))
        })
    }

    fn receive(&self) -> io::Result<Packet> {
        self.with(|entry| entry.received.pop_front())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.stack.table().remove(&self.port);
    }
}

/// A socket goes into a set like everything else.
impl Watch for Socket {
    type Source = <Registration as Watch>::Source;
    fn source(&self) -> &Description<Self::Source> {
        self.registration.source()
    }
}

/// Two sockets of the stack that send each other numbers, and a kernel socket that says when to
/// stop.
///
/// # Errors
/// Those of the kernel sockets.
pub fn main() -> io::Result<()> {
    const LAST: u8 = 200;
    const KERNEL: Token = Token(1 << 32);
    // What is put onto one end comes out at the other, and the far end sends it back.
    let (wire, far) = UnixDatagram::pair()?;
    let mirror = thread::spawn(move || {
        let mut packet = Packet::default();
        while let Ok(length) = far.recv(&mut packet) {
            if far.send(&packet[..length]).is_err() || packet[2] == LAST {
                break;
            }
        }
        far.send(&[])
    });
    let (table, work) = (Mutex::default(), Notifier::new()?);
    let stack = Arc::new(Stack { table, work });
    let thread = thread::spawn({
        let stack = Arc::clone(&stack);
        move || stack.run(wire)
    });

    let poll = Poll::new()?;
    let sockets = [Socket::bind(&stack, 7)?, Socket::bind(&stack, 8)?];
    let _handles =
        [0, 1].map(|place| poll.register(&sockets[place], Token::from(place), Interest::READABLE));
    let (mut done, done_here) = UnixStream::pair()?;
    let mut done_here = &*poll.register_fd(done_here, KERNEL, Interest::READABLE)?;
    sockets[0].send(8, 1)?;
    let (mut events, mut packets) = (Events::with_capacity(8), 0);
    'all: loop {
        poll.wait(&mut events, None)?;
        for token in events.iter().map(Event::token) {
            if token == KERNEL {
                done_here.read_exact(&mut [0])?;
                break 'all;
            }
            let socket = &sockets[token.0 as usize];
            let Ok([_, from, byte]) = socket.receive() else { continue };
            packets += 1;
            match byte {
                LAST => done.write_all(b"x")?,
                byte => socket.send(from, byte + 1)?,
            }
        }
    }
    thread.join().expect("the stack panicked")?;
    mirror.join().expect("the wire panicked")?;
    assert_eq!(packets, u32::from(LAST));
    println!("{packets} packets between sockets of the stack, and a word from the kernel's");
    Ok(())
}
