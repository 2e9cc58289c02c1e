//! A pool of threads that serve a userfaultfd: every fault is served once, and every call ends when
//! it should.

use std::ptr;
use std::time::{Duration, Instant};

use wakeset_group::fault::{EVENT_PAGEFAULT, Message, Pool};
use wakeset_group::{Errno, Order};

const PAGE: usize = 4096;
const PAGES: usize = 512;
const THREADS: usize = 4;

/// A userfaultfd with its memory.
struct Memory {
    fd: i32,
    base: usize,
}

impl Memory {
    /// `None`, with a printed note, where userfaultfds are not permitted.
    fn new(flags: i32) -> Option<Self> {
        // SAFETY: numbers; 1 is UFFD_USER_MODE_ONLY.
        let fd =
            unsafe { libc::syscall(libc::SYS_userfaultfd, flags | libc::O_CLOEXEC | 1) } as i32;
        if fd < 0 {
            let required = std::env::var_os("WAKESET_REQUIRE_ALL").is_some_and(|v| v == "1");
            assert!(!required, "userfaultfd(2) is not permitted, and WAKESET_REQUIRE_ALL is set");
            eprintln!("skipped: userfaultfd(2) is not permitted");
            return None;
        }
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping; `struct uffdio_api` and `struct uffdio_register`.
        unsafe {
            let base = libc::mmap(ptr::null_mut(), PAGES * PAGE, protection, flags, -1, 0)
                .expose_provenance();
            assert_eq!(libc::ioctl(fd, 0xc018_aa3f, &mut [0xaa_u64, 0, 0]), 0);
            assert_eq!(
                libc::ioctl(fd, 0xc020_aa00, &mut [base as u64, (PAGES * PAGE) as u64, 1, 0]),
                0
            );
            Some(Memory { fd, base })
        }
    }

    fn touch(&self, pages: std::ops::Range<usize>) {
        for page in pages {
            // SAFETY: a byte of the mapping.
            unsafe { ptr::with_exposed_provenance::<u8>(self.base + page * PAGE).read_volatile() };
        }
    }

    /// `UFFDIO_ZEROPAGE`.
    fn bring(&self, message: &Message) {
        assert_eq!(message.event(), EVENT_PAGEFAULT);
        let start = message.address() & !(PAGE as u64 - 1);
        // SAFETY: `struct uffdio_zeropage`.
        unsafe { libc::ioctl(self.fd, 0xc020_aa04, &mut [start, PAGE as u64, 0, 0]) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe {
            libc::munmap(ptr::with_exposed_provenance_mut(self.base), PAGES * PAGE);
            libc::close(self.fd);
        }
    }
}

/// Serves until the pool is stopped; returns the number of faults served.
fn serve(pool: &Pool, memory: &Memory) -> u64 {
    let mut message = [Message::default()];
    let mut served = 0;
    loop {
        match pool.next(&mut message, None) {
            Ok(1) => {
                memory.bring(&message[0]);
                served += 1;
            }
            Err(Errno::ECANCELED) => return served,
            other => panic!("{other:?}"),
        }
    }
}

/// How many faults each thread of the pool served while `body` ran.
fn served(pool: &Pool, memory: &Memory, body: impl FnOnce()) -> Vec<u64> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| serve(pool, memory))).collect();
        body();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn every_fault_is_served_once() {
    for order in [Order::Fifo, Order::Turns, Order::Lifo] {
        let Some(memory) = Memory::new(libc::O_NONBLOCK) else { return };
        let pool = Pool::new(memory.fd, order).expect("a pool");
        let counts = served(&pool, &memory, || {
            std::thread::scope(|scope| {
                for i in 0..THREADS {
                    let (memory, share) = (&memory, PAGES / THREADS);
                    scope.spawn(move || memory.touch(i * share..(i + 1) * share));
                }
            });
            pool.stop();
        });
        assert_eq!(counts.iter().sum::<u64>(), PAGES as u64, "{order:?}");
    }
}

/// On a userfaultfd without `O_NONBLOCK`, the thread that waits in the kernel learns of the stop
/// with its next message.
#[test]
fn a_blocking_userfaultfd_is_served() {
    let Some(memory) = Memory::new(0) else { return };
    let pool = Pool::new(memory.fd, Order::Fifo).expect("a pool");
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| serve(&pool, &memory))).collect();
        memory.touch(0..PAGES / 2);
        pool.stop();
        // The last page ends the thread that waits in the kernel. If no thread did when the stop
        // came, this thread brings the page.
        let last = scope.spawn(|| memory.touch(PAGES / 2..PAGES / 2 + 1));
        let mut ours = 0;
        while !last.is_finished() {
            if ours == 0 && threads.iter().all(|thread| thread.is_finished()) {
                let mut message = Message::default();
                // A pool thread may have brought it while the last one is not at its end yet.
                // SAFETY: a number, and a place for a message.
                let got = unsafe {
                    libc::fcntl(memory.fd, libc::F_SETFL, libc::O_NONBLOCK);
                    libc::read(memory.fd, (&raw mut message).cast(), size_of::<Message>())
                };
                if got == size_of::<Message>() as isize {
                    memory.bring(&message);
                    ours = 1;
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let served: u64 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        assert_eq!(served + ours, PAGES as u64 / 2 + 1);
    });
    assert_eq!(pool.next(&mut [Message::default()], None), Err(Errno::ECANCELED));
}

/// With one fault at a time, fifo gives each thread the same number of faults, and lifo gives all
/// of them to two threads.
#[test]
fn the_order_is_kept() {
    for order in [Order::Fifo, Order::Turns, Order::Lifo] {
        let Some(memory) = Memory::new(libc::O_NONBLOCK) else { return };
        let pool = Pool::new(memory.fd, order).expect("a pool");
        let mut counts = served(&pool, &memory, || {
            for page in 0..80 {
                // A pause until all threads are back in the queue.
                std::thread::sleep(Duration::from_millis(3));
                memory.touch(page..page + 1);
            }
            pool.stop();
        });
        counts.sort_unstable();
        match order {
            // A thread that is not scheduled for longer than the pause loses its place.
            Order::Fifo | Order::Turns => assert!(counts[0] >= 10, "{counts:?}"),
            Order::Lifo => assert!(counts[0] + counts[1] <= 30, "{counts:?}"),
        }
    }
}

#[test]
fn a_limit_ends_who_waits_in_the_kernel_and_who_waits_for_the_turn() {
    let Some(memory) = Memory::new(libc::O_NONBLOCK) else { return };
    let pool = Pool::new(memory.fd, Order::Fifo).expect("a pool");
    std::thread::scope(|scope| {
        for i in 1..=3 {
            let pool = &pool;
            scope.spawn(move || {
                let limit = Duration::from_millis(30 * i);
                let begin = Instant::now();
                assert_eq!(
                    pool.next(&mut [Message::default()], Some(limit)),
                    Err(Errno::ETIMEDOUT)
                );
                assert!(begin.elapsed() >= limit);
            });
        }
    });
}
