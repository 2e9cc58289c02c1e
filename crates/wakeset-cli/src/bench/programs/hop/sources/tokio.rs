//! Messages between two threads, each of which runs a current_thread runtime of tokio.

use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A runtime that waits in epoll, as one does that serves sockets.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_io().build().expect("a runtime")
}

/// Processor time in seconds, and context switches.
fn used() -> (f64, i64) {
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_nvcsw + usage.ru_nivcsw)
}

async fn go_on(
    ask: &UnboundedSender<u64>,
    answers: &mut UnboundedReceiver<u64>,
    seconds: f64,
) -> (u64, f64) {
    let (begin, mut trips) = (Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs_f64(seconds) {
        ask.send(trips).expect("a thread that answers");
        assert_eq!(answers.recv().await, Some(trips));
        trips += 1;
    }
    (trips, begin.elapsed().as_secs_f64())
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).expect("seconds").parse().expect("a number");
    let (ask, mut asked) = unbounded_channel();
    let (answer, mut answers) = unbounded_channel();
    let thread = thread::spawn(move || {
        runtime().block_on(async {
            while let Some(value) = asked.recv().await {
                answer.send(value).expect("a thread that asks");
            }
        });
    });
    runtime().block_on(async {
        go_on(&ask, &mut answers, seconds / 5.0).await;
        let (processor, switches) = used();
        let (trips, elapsed) = go_on(&ask, &mut answers, seconds * 4.0 / 5.0).await;
        let after = used();
        println!(
            "{{\"trips\":{trips},\"seconds\":{elapsed:.9},\"processor_seconds\":{:.9},\
             \"switches\":{}}}",
            after.0 - processor,
            after.1 - switches
        );
    });
    drop(ask);
    thread.join().expect("the other thread ends");
}
