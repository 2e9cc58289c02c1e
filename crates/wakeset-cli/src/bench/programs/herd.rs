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
//! Own listeners are no choice that a server has: its clients do not know of its workers. They show
//! what a round robin costs by itself, however it is brought about: only the worker that is next
//! hears of a connection, and nothing is done for the order.
//!
//! A worker accepts one connection each time it is told of one, sends eleven bytes and closes. The
//! clients are threads of this process; each connects, reads the reply, checks it, and connects
//! again. Elapsed time is theirs, from the first connection to the last reply. CPU time (user and
//! system) and wakes are the workers'; a wake is a voluntary context switch, which the kernel
//! counts: the worker slept, and ran again. The clients' CPU time, in which the kernel also
//! does the network's half of each connection, has a column of its own.
//!
//! A hundred thousand TCP connections would leave as many in TIME_WAIT, more than there are ports.
//! So a client closes with a reset (SO_LINGER of 0), after which neither side keeps anything.

mod client;
mod point;
mod process;
mod row;
mod side;
pub mod worker;

use indicatif::ProgressBar;

use crate::bench::measure::machine::machine;
use crate::bench::measure::progress::progress_bar;
use crate::bench::measure::report::Json;
use crate::bench::options::{Common, Order, count};
use crate::failure::Failure;
use point::{Point, Sample};
use row::Row;
use side::{Side, Socket};
use worker::Way;

/// What `wakeset bench herd` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Numbers of worker processes to measure, as in 4,8
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = count,
        default_values_t = [8]
    )]
    workers: Vec<usize>,
    /// Numbers of client threads to measure, as in 1,2
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = count,
        default_values_t = [2]
    )]
    clients: Vec<usize>,
    /// Connections in each round of each side
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u64).range(1..=10_000_000)
    )]
    connections: u64,
    /// Sockets to measure, as in tcp,unix
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_enum,
        default_values_t = [Socket::Tcp, Socket::Unix]
    )]
    socket: Vec<Socket>,
    /// Which idle workers Wakeset wakes, as in fifo,lifo
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_enum,
        default_values_t = [Order::Auto]
    )]
    order: Vec<Order>,
    #[command(flatten)]
    common: Common,
}

impl Options {
    fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for &socket in &self.socket {
            for &workers in &self.workers {
                for &clients in &self.clients {
                    points.push(Point { socket, workers, clients });
                }
            }
        }
        points
    }
}

/// Measures, prints the tables and writes the JSON.
pub fn herd(options: &Options) -> Result<(), Failure> {
    let (points, sides) = (options.points(), Side::all(&options.order));
    let (connections, rounds) = (options.connections, options.common.rounds);
    let json = Json::create(options.common.json.as_deref())?;
    let progress = progress_bar(points.len() as u64 * u64::from(rounds));

    println!("{}", machine());
    println!(
        "{connections} connections each; medians of {rounds} rounds, all sides in turn in each"
    );
    println!(
        "a ratio is this side's elapsed time, or its workers' CPU time, by the named side's \
         in the same round"
    );
    let mut rows = Vec::new();
    for point in &points {
        let samples = run_rounds(point, &sides, options, &progress)
            .inspect_err(|_| progress.finish_and_clear())?;
        let of = |way| {
            let mut measured = sides.iter().zip(&samples);
            let found = measured.find(|(side, _)| side.way == way && !side.preload && !side.own);
            found.map_or(&[][..], |(_, samples)| samples)
        };
        let kernels = [of(Way::Select), of(Way::Exclusive)];
        let measured: Vec<_> = sides
            .iter()
            .zip(&samples)
            .map(|(side, samples)| Row::new(point, *side, connections, samples, kernels))
            .collect();
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

/// All rounds of one point, each side in turn in each. Returns the samples of each side.
fn run_rounds(
    point: &Point,
    sides: &[Side],
    options: &Options,
    progress: &ProgressBar,
) -> Result<Vec<Vec<Sample>>, Failure> {
    let mut samples: Vec<Vec<Sample>> = sides.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.common.rounds {
        for (side, samples) in sides.iter().zip(&mut samples) {
            progress.set_message(format!("{point} {}", side.name()));
            let sample = point.run(*side, options.connections).map_err(|why| {
                let name = side.name();
                Failure::own(format!("herd failed at {point}, {name}: {}", why.message))
            })?;
            samples.push(sample);
        }
        progress.inc(1);
    }
    Ok(samples)
}
