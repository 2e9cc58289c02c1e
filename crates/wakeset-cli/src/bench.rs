//! `wakeset bench`: the same workloads on the kernel's epoll and on the engine, a subcommand for
//! each.
//!
//! The rooms, upper ones first. A room imports only from those below it.
//!
//! | room | what is in it |
//! |---|---|
//! | `programs` | benchmarks whose sides are processes, plain and under `wakeset run` |
//! | `contention` | what the locks around a ready list cost |
//! | `workloads` | bodies that run on the kernel and on the engine |
//! | `measure` | rounds in which the sides take turns, and the report |
//! | `sides` | the kernel and the engine behind one trait |
//! | `options` | flags that several benchmarks have |

mod contention;
mod measure;
mod options;
pub mod programs;
mod sides;
mod workloads;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::run::is_preloaded;
use contention::{inversion, policies};
use programs::{herd, hop, make, selfpipe, uffd};
use workloads::{batch, close, ctl, nest, pingpong, ring, stress, timer, wait};

/// What `wakeset bench` takes.
#[derive(Args)]
#[command(after_help = "\
`wakeset bench NAME --help` says what one operation is, its unit and flags.

Exit status: 0, or 125 if it cannot be measured here.

Environment: see each benchmark.

Examples:
  wakeset bench
  wakeset bench stress --secs 1")]
pub struct Options {
    #[command(subcommand)]
    benchmark: Option<Benchmark>,
}

/// What the help of each benchmark ends with.
macro_rules! measured {
    ($example:literal) => {
        concat!(
            "Exit status: 0, or 125 if it cannot be measured here.\n\n\
             Environment: programs that are measured inherit all, and what they need is looked for \
             in PATH;\nLD_PRELOAD is kept, with Wakeset's library behind what it has where they \
             run on Wakeset.\n\nExamples:\n  ",
            $example
        )
    };
}

#[derive(Subcommand)]
#[command(disable_help_subcommand = true)]
enum Benchmark {
    /// N producers each add to their own counter, one consumer drains them all
    ///
    /// One operation is one addition of 1 to a counter, from the write until the consumer has
    /// waited for it and read it. The unit is events per millisecond, over all producers. Each
    /// producer adds 1,000,000 times, or as often as fits into the time. The row also says how
    /// fast the same threads are on plain atomic words (`bare`).
    #[command(
        verbatim_doc_comment,
        after_help = measured!("wakeset bench stress --threads 8,32 --secs 3")
    )]
    Stress(stress::Options),
    /// Write, wait, read: in one thread, and between two that sleep in turn
    ///
    /// One operation is a round trip. In one thread that is write, wait, read; between two
    /// threads it is a write that the other one waits for, and its answer. The unit is round
    /// trips per second.
    #[command(verbatim_doc_comment, after_help = measured!("wakeset bench pingpong --secs 2"))]
    Pingpong(pingpong::Options),
    /// Threads that wait, over one set or one each, by mode and nesting
    ///
    /// One operation is one event: a thread waits for it and reads its counter. Another thread
    /// writes to all counters in turn. The unit is events per second, over all threads.
    #[command(verbatim_doc_comment, after_help = measured!("wakeset bench wait --threads 1,2,4"))]
    Wait(wait::Options),
    /// Add, modify and remove, from 64 to 100,000 watches
    ///
    /// One operation is one call of epoll_ctl(2). Each thread adds, modifies and removes all
    /// watches of a set of its own, again and again. The unit is calls per second, over all
    /// threads, with a row for each of the three calls.
    #[command(verbatim_doc_comment, after_help = measured!("wakeset bench ctl --threads 1,2"))]
    Ctl(ctl::Options),
    /// Add and remove from 64 to 4,096 watches in one call, against a loop of epoll_ctl(2)
    ///
    /// One operation is one command: the addition or the removal of one watch. The unit is
    /// commands per second. The row also has the rate of Wakeset's own single calls (`singly`).
    #[command(verbatim_doc_comment, after_help = measured!("wakeset bench batch --secs 1"))]
    Batch(batch::Options),
    /// Add sets to sets, in threads with trees of their own
    ///
    /// One operation is the addition of a set to a set together with its removal. The unit is
    /// additions per second, over all threads.
    #[command(verbatim_doc_comment, after_help = measured!("wakeset bench nest --threads 1,8"))]
    Nest(nest::Options),
    /// Open, add, signal, wait, and close without removing
    ///
    /// One operation is a request, as a server with a connection for each would see it: open a
    /// counter, add it, signal it, wait, read it, and close it without removing the watch. The
    /// unit is requests per second, over all threads.
    #[command(verbatim_doc_comment, after_help = measured!("wakeset bench close --threads 1,2"))]
    Close(close::Options),
    /// Make objects that nobody uses, and close them, plain and under `wakeset run`
    ///
    /// One operation is to make one object and to close it, both ends of a pipe or pair. In the
    /// rows `open: 100` that many are made before the first of them is closed. The unit is
    /// objects per second, of a program that uses nothing but libc.
    #[command(verbatim_doc_comment, after_help = measured!("wakeset bench make --kind pipe,set"))]
    Make(make::Options),
    /// Set, wait and read timers, from 1 to 1,000,000 of them
    ///
    /// One operation is, in the rows `fire`, to set a timer to one nanosecond from now, to wait
    /// for it, to read it and to set it to a time far ahead; in the rows `arm`, to set a timer to
    /// another time far ahead. The unit is operations per second.
    #[command(verbatim_doc_comment, after_help = measured!("wakeset bench timer --secs 1"))]
    Timer(timer::Options),
    /// Events taken from a set's ring and read, against epoll_wait and read
    ///
    /// One operation is one event: it is taken, and its counter or socket is read. The unit is
    /// events per second of the time in which they are taken, over all threads.
    #[command(
        verbatim_doc_comment,
        after_help = measured!("wakeset bench ring --threads 1,2 --secs 1")
    )]
    Ring(ring::Options),
    /// All ready lists and the kernel side by side, with much and with little contention
    ///
    /// One operation is one event, as in `stress`, where producers do nothing but contend for
    /// the list, and as in `wait` with one set, where one writer and the waiters rarely meet.
    /// The units are events per millisecond and events per second.
    #[command(
        verbatim_doc_comment,
        after_help = measured!("wakeset bench policies --threads 8,32 --secs 5")
    )]
    Policies(policies::Options),
    /// How long a real-time thread waits for low-priority threads
    ///
    /// One operation is one call of the real-time thread: it signals a counter of its own and
    /// has the event. The unit is microseconds. Needs the right to SCHED_FIFO with priority 40.
    #[command(
        verbatim_doc_comment,
        after_help = measured!("wakeset bench inversion --policy kernel,lock-free --threads 4")
    )]
    Inversion(inversion::Options),
    /// Worker processes that share a listener
    ///
    /// One operation is one connection: a client connects, a worker accepts it, sends eleven
    /// bytes and closes it, and the client has read them. The unit is milliseconds for all
    /// connections of a round.
    #[command(
        verbatim_doc_comment,
        after_help = measured!("wakeset bench herd --workers 4,8 --connections 1000 --order lifo")
    )]
    Herd(herd::Options),
    /// An event loop that is woken through a pipe or socket pair of its own, asyncio's too
    ///
    /// One operation is, in one thread, a round trip of one byte; between two threads, one byte;
    /// with asyncio, one `loop.call_soon_threadsafe` until it has been called. The unit is
    /// operations per second, plain and under `wakeset run`.
    #[command(verbatim_doc_comment, after_help = measured!("wakeset bench selfpipe --secs 2"))]
    Selfpipe(selfpipe::Options),
    /// Round trips from thread to thread, of our own programs and of runtimes that are installed
    ///
    /// One operation is a round trip: a thread wakes another one and waits until that one has
    /// woken it; with Node's `fs.promises.stat` and asyncio's `run_in_executor`, one such call.
    /// The unit is microseconds, with the processor time and the context switches of one beside
    /// it. Plain there are two cases, which differ much: the scheduler has both threads on one
    /// core, or on two. So plain is measured twice: on one processor (`one core`), and left to the
    /// scheduler (`plain`). Programs that are not installed are named and not measured. Nothing is
    /// downloaded: `cargo fetch` in a package with tokio and its feature `net` brings tokio.
    ///
    /// With `--beside 2`, two programs of the same priority compute beside each side, so that a
    /// thread that spins takes processor time from them, and they from it.
    #[command(
        verbatim_doc_comment,
        after_help = measured!("wakeset bench hop --program epoll,java --spin auto,off --secs 2")
    )]
    Hop(hop::Options),
    /// Threads that serve a userfaultfd
    ///
    /// One operation is one fault: a worker touches a page, a service thread reads the message
    /// and copies the page in. The unit is milliseconds for all pages of a round.
    #[command(
        verbatim_doc_comment,
        after_help = measured!("wakeset bench uffd --workers 8 --handlers 40 --size 64")
    )]
    Uffd(uffd::Options),
}

/// Measures what the options ask for, prints it, and writes the JSON; without a benchmark, lists
/// those that there are.
pub fn bench(options: &Options) -> Result<(), Failure> {
    let Some(benchmark) = &options.benchmark else {
        return list();
    };
    if is_preloaded() {
        return Err(Failure::own(
            "bench compares with the kernel's epoll: start it without `wakeset run`",
        ));
    }
    match benchmark {
        Benchmark::Stress(options) => stress::stress(options),
        Benchmark::Pingpong(options) => pingpong::pingpong(options),
        Benchmark::Wait(options) => wait::wait(options),
        Benchmark::Ctl(options) => ctl::ctl(options),
        Benchmark::Batch(options) => batch::batch(options),
        Benchmark::Nest(options) => nest::nest(options),
        Benchmark::Close(options) => close::close(options),
        Benchmark::Make(options) => make::make(options),
        Benchmark::Timer(options) => timer::timer(options),
        Benchmark::Ring(options) => ring::ring(options),
        Benchmark::Policies(options) => policies::policies(options),
        Benchmark::Inversion(options) => inversion::inversion(options),
        Benchmark::Herd(options) => herd::herd(options),
        Benchmark::Selfpipe(options) => selfpipe::selfpipe(options),
        Benchmark::Hop(options) => hop::hop(options),
        Benchmark::Uffd(options) => uffd::uffd(options),
    }
}

/// Prints the benchmarks with what each of them measures.
fn list() -> Result<(), Failure> {
    let mut command = Options::augment_args(clap::Command::new("bench"))
        .bin_name("wakeset bench")
        .about("Measure the kernel and Wakeset in one run, alternating");
    command.print_help().map_err(|e| Failure::own(format!("cannot list the benchmarks: {e}")))
}
