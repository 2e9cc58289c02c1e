//! The threads of the load: what each does over and over, and how they end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastrand::Rng;
use libc::{EFD_NONBLOCK, EPOLLIN, c_int};

use super::load::{Load, SETS, STOP};
use super::partner::{Partner, ignore_signals};
use super::private;

/// What one of the load's threads does over and over.
fn work(load: &Load, partner: &Partner, thread: usize, threads: usize) -> io::Result<()> {
    let mut random = Rng::with_seed(thread as u64);
    while load.goes_on() {
        match random.usize(..100) {
            0..=44 => load.produce(&mut random)?,
            45..=59 => {
                let set = load.sets[random.usize(..SETS)];
                load.serve(set, random.usize(..2) as c_int)?;
            }
            60..=69 => load.rewatch(thread, threads, &mut random)?,
            70..=89 => private::use_objects(load, &mut random)?,
            90..=93 => private::migrate(load, &mut random)?,
            94 => partner.block_in_reads(load, &mut random)?,
            95 => partner.close_under_a_wait(load)?,
            _ => partner.close_under_a_read(load)?,
        }
    }
    Ok(())
}

/// The running threads.
pub struct Threads {
    load: Arc<Load>,
    workers: Vec<JoinHandle<()>>,
    servers: Vec<JoinHandle<()>>,
}

impl Threads {
    pub fn start(load: &Arc<Load>, threads: usize) -> Self {
        ignore_signals();
        let worker = |thread| {
            let load = load.clone();
            std::thread::spawn(move || {
                let partner = Partner::start(&load);
                if let Err(error) = work(&load, &partner, thread, threads) {
                    load.fail(format!("a call failed that should not: {error}"));
                }
                let Partner { jobs, thread, .. } = partner;
                drop(jobs);
                let _ = thread.join();
            })
        };
        let server = |set: c_int| {
            let load = load.clone();
            std::thread::spawn(move || {
                loop {
                    match load.serve(set, -1) {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(error) => return load.fail(format!("a server's call failed: {error}")),
                    }
                }
            })
        };
        Self {
            load: load.clone(),
            workers: (0..threads).map(worker).collect(),
            servers: load.sets.iter().map(|&set| server(set)).collect(),
        }
    }

    /// Ends the load, when it has been told to: everything written must be read without further
    /// help, and then all is closed.
    pub fn finish(self) -> io::Result<()> {
        const LOST: Duration = Duration::from_secs(20);
        let Self { load, workers, servers } = self;
        let within = |done: &dyn Fn() -> bool| {
            let give_up = Instant::now() + LOST;
            while !done() && Instant::now() < give_up {
                std::thread::sleep(Duration::from_millis(1));
            }
            done()
        };
        if !within(&|| workers.iter().all(JoinHandle::is_finished)) {
            load.fail("a thread does not come back from its call");
            return Ok(());
        }
        if !within(&|| load.left().is_empty()) {
            load.fail(format!("units are lost, or servers sleep: {}", load.left().join("; ")));
        }
        let stop = load.calls.counter(EFD_NONBLOCK)?;
        load.calls.add_units(stop, 1)?;
        for set in load.sets {
            load.calls.add(set, stop, EPOLLIN, STOP)?;
        }
        if !within(&|| servers.iter().all(JoinHandle::is_finished)) {
            load.fail("a server sleeps while something is ready");
            return Ok(());
        }
        for thread in workers.into_iter().chain(servers) {
            if thread.join().is_err() {
                load.fail("a thread panicked");
            }
        }
        let (written, read) = (&load.counts.written, &load.counts.read);
        let (written, read) = (written.load(Ordering::SeqCst), read.load(Ordering::SeqCst));
        if written != read {
            load.fail(format!("{written} units written, {read} read"));
        }
        load.calls.close(stop)?;
        for channel in &load.channels {
            load.calls.close(channel.read_end)?;
            if channel.pipe {
                load.calls.close(channel.write_end)?;
            }
        }
        load.sets.iter().chain([&load.inner]).try_for_each(|&set| load.calls.close(set))
    }
}
