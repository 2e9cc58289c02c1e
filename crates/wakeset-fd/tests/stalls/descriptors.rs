//! What scenarios and operations do with descriptors.

use crate::world::{IN, PIPE, World, add, read, write};
use wakeset_fd as fd;

pub fn write_fast(number: libc::c_int, n: u64) -> bool {
    // SAFETY: eight bytes of our own.
    unsafe { fd::counter::write_fast(number, (&raw const n).cast(), 8) || write(number, n) }
}

pub fn read_fast(number: libc::c_int) -> Option<u64> {
    let mut n = 0_u64;
    // SAFETY: eight bytes of our own.
    if unsafe { fd::counter::read_fast(number, (&raw mut n).cast(), 8) } == 8 {
        Some(n)
    } else {
        read(number)
    }
}

pub fn pipe(world: &World) -> [libc::c_int; 2] {
    let mut ends = [0; 2];
    // SAFETY: room for two.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // As the interposer does with each number that it sees given out.
    ends.iter().for_each(|end| fd::migrate::number_is_new(*end));
    world.more.lock().unwrap().extend(ends);
    ends
}

/// From now on the set has both halves.
pub fn mix(world: &World) {
    let [reader, _] = pipe(world);
    add(world.set, reader, IN, PIPE);
}

/// Moves an object into the kernel.
pub fn migrate(number: libc::c_int) -> Result<(), String> {
    fd::migrate::release(number).map_err(|error| format!("{error:?}"))
}

/// A further number, but not the lowest: the other thread may have freed that, to take it anew.
pub fn far_duplicate(number: libc::c_int) -> libc::c_int {
    const LEAST: libc::c_int = 64;
    match fd::duplicate::dup_above(number, LEAST as usize, true) {
        fd::Verdict::Done(copy) => copy.unwrap(),
        fd::Verdict::Kernel => {
            // SAFETY: takes no memory.
            let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, LEAST) };
            assert!(copy >= LEAST);
            fd::migrate::number_is_new(copy);
            copy
        }
    }
}

pub fn is_readable(number: libc::c_int) -> bool {
    let mut asked = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry of our own.
    unsafe { libc::poll(&raw mut asked, 1, 0) == 1 }
}

pub fn read_all(number: libc::c_int) -> Vec<u8> {
    let mut bytes = [0; 64];
    // SAFETY: room for so many.
    let n = unsafe { fd::read(number, bytes.as_mut_ptr(), bytes.len()) }.unwrap();
    bytes[..n].to_vec()
}

pub fn write_bytes(number: libc::c_int, bytes: &[u8]) {
    // SAFETY: bytes of that length.
    assert_eq!(unsafe { fd::write(number, bytes.as_ptr(), bytes.len()) }, Ok(bytes.len()));
}

pub fn own_pipe() -> [libc::c_int; 2] {
    let mut ends = [0; 2];
    // SAFETY: room for two.
    unsafe { fd::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) }.unwrap();
    ends
}
