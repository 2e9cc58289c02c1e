//! An async executor on the engine: tasks, wakers, futures of sockets and channels, and a join.
//!
//! ```text
//! cargo run -p wakeset-io --example executor
//! ```
//!
//! One thread runs the tasks. Each task has a notifier in the set, and its waker notifies it: so a
//! wake-up from any thread, and also from a signal handler, is an event like that of a socket. A
//! future that waits for a socket or a channel has a one-shot registration with a token of its own.
//! All above the three tasks at the end is the executor, in fewer than 150 lines.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{self, Future};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll as Task, Wake, Waker};
use std::thread;
use wakeset_io::{Events, Interest, Notifier, Poll, Receiver, Registered, Token, channel};

/// Wakes a task, from any thread.
struct Alarm(Notifier);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// A task, and the notifier that its waker notifies.
struct Running {
    future: Pin<Box<dyn Future<Output = ()>>>,
    notifier: Notifier,
    waker: Waker,
    _registered: Registered,
}

/// What the futures of one executor share with it.
#[derive(Clone)]
struct Reactor(Rc<Shared>);

struct Shared {
    poll: Poll,
    next: Cell<u64>,
    /// By token: who waits for a socket or a channel.
    waiting: RefCell<HashMap<Token, Waker>>,
    spawned: RefCell<Vec<Pin<Box<dyn Future<Output = ()>>>>>,
}

impl Reactor {
    fn token(&self) -> Token {
        self.0.next.set(self.0.next.get() + 1);
        Token(self.0.next.get())
    }

    fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.0.spawned.borrow_mut().push(Box::pin(future));
    }

    /// Registers with a token of its own.
    fn register<T>(
        &self,
        register: impl FnOnce(&Poll, Token) -> io::Result<Registered<T>>,
    ) -> io::Result<Awaited<T>> {
        let token = self.token();
        Ok(Awaited { reactor: self.clone(), token, it: register(&self.0.poll, token)? })
    }

    fn socket<F: AsFd>(&self, socket: F) -> io::Result<Awaited<F>> {
        self.register(|poll, token| poll.register_fd(socket, token, Interest::NONE.one_shot()))
    }

    fn receiver<T: Send + 'static>(&self, receiver: &Receiver<T>) -> io::Result<Awaited<()>> {
        self.register(|poll, token| poll.register(receiver, token, Interest::NONE.one_shot()))
    }
}

/// Something that a task can wait for.
struct Awaited<T> {
    reactor: Reactor,
    token: Token,
    it: Registered<T>,
}

impl<T> Awaited<T> {
    /// Repeats the attempt, after each event, until it does not say that it would block.
    async fn when<R>(
        &self,
        interest: Interest,
        mut attempt: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        future::poll_fn(|context| match attempt(&self.it) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut waiting = self.reactor.0.waiting.borrow_mut();
                waiting.insert(self.token, context.waker().clone());
                // Armed after the attempt: what has come since is reported.
                match self.it.modify(self.token, interest.one_shot()) {
                    Ok(()) => Task::Pending,
                    Err(error) => Task::Ready(Err(error)),
                }
            }
            result => Task::Ready(result),
        })
        .await
    }
}

/// Runs the tasks until all have ended.
fn run(reactor: &Reactor) -> io::Result<()> {
    let (mut tasks, mut events) = (HashMap::<Token, Running>::new(), Events::with_capacity(64));
    loop {
        for future in reactor.0.spawned.take() {
            let (token, notifier) = (reactor.token(), Notifier::new()?);
            let _registered = reactor.0.poll.register(&notifier, token, Interest::READABLE)?;
            notifier.notify();
            let waker = Waker::from(Arc::new(Alarm(notifier.clone())));
            tasks.insert(token, Running { future, notifier, waker, _registered });
        }
        if tasks.is_empty() {
            return Ok(());
        }
        reactor.0.poll.wait(&mut events, None)?;
        for event in &events {
            let Some(task) = tasks.get_mut(&event.token()) else {
                let waker = reactor.0.waiting.borrow_mut().remove(&event.token());
                waker.into_iter().for_each(Waker::wake);
                continue;
            };
            // First taken, then polled: a wake-up in between is another event.
            task.notifier.take();
            if task.future.as_mut().poll(&mut Context::from_waker(&task.waker)).is_ready() {
                tasks.remove(&event.token());
            }
        }
    }
}

/// Three tasks: one answers lines on a socket, one asks, and one adds up what a thread sends.
///
/// # Errors
/// Those of the sockets.
pub fn main() -> io::Result<()> {
    let (poll, next) = (Poll::new()?, Cell::new(0));
    let (waiting, spawned) = (RefCell::default(), RefCell::default());
    let reactor = Reactor(Rc::new(Shared { poll, next, waiting, spawned }));
    let (here, there) = UnixStream::pair()?;
    [&here, &there].into_iter().try_for_each(|socket| socket.set_nonblocking(true))?;
    let (here, there) = (reactor.socket(here)?, reactor.socket(there)?);
    reactor.spawn(async move {
        let mut buffer = [0; 64];
        let read = async |buffer: &mut [u8]| {
            there.when(Interest::READABLE, |mut socket: &UnixStream| socket.read(buffer)).await
        };
        while let Ok(length @ 1..) = read(&mut buffer).await {
            let answer = &buffer[..length];
            let write = |mut socket: &UnixStream| socket.write_all(answer);
            there.when(Interest::WRITABLE, write).await.expect("an answer");
        }
    });
    let (sender, receiver) = channel(4)?;
    let awaited = reactor.receiver(&receiver)?;
    let sums = Rc::new(Cell::new((0, 0)));
    let asks = Rc::clone(&sums);
    reactor.spawn(async move {
        for number in 0..100_u8 {
            (&*here.it).write_all(&[number]).expect("a question");
            let mut answer = [0];
            let read = |mut socket: &UnixStream| socket.read(&mut answer);
            here.when(Interest::READABLE, read).await.expect("an answer");
            asks.set((asks.get().0 + u32::from(answer[0]), asks.get().1));
        }
    });
    let adds = Rc::clone(&sums);
    reactor.spawn(async move {
        let next = |_: &()| match receiver.try_recv() {
            Ok(number) => Ok(Some(number)),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => Ok(None),
            Err(_) => Err(ErrorKind::WouldBlock.into()),
        };
        while let Some(number) = awaited.when(Interest::READABLE, next).await.expect("a message") {
            adds.set((adds.get().0, adds.get().1 + number));
        }
    });
    let thread = thread::spawn(move || (0..100).for_each(|n| sender.send(n).expect("a receiver")));
    run(&reactor)?;
    thread.join().expect("the thread that sends");
    assert_eq!(sums.get(), (4950, 4950));
    println!("three tasks on one set: 100 answers by a socket, 100 messages from a thread");
    Ok(())
}
