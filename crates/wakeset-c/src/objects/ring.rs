//! Event rings: of a set, and shared with another process.

use super::{created, unboxed};
use crate::argument::limit_of;
use crate::fork::{generation, watch_forks};
use crate::outcome::{fail, returned};
use core::ffi::{c_int, c_uint};
use libc::{epoll_event, size_t, ssize_t, timespec};
use wakeset::{Deadline, Error, Event, RingReader, Timeout};
use wakeset_fd::shared_ring::{Writer, open_reader};

/// `ws_ring_writer` of the header.
#[derive(Debug)]
pub struct SharedWriter {
    /// A forked child has a copy of the memory, and no use for it.
    generation: u32,
    writer: Writer,
}

/// `ws_ring_reader` of the header.
#[derive(Debug)]
pub struct SharedReader(RingReader);

/// Events that are converted at a time.
const BATCH: usize = 64;

/// Gives a set an event ring.
#[unsafe(no_mangle)]
pub extern "C" fn ws_ring_setup(epfd: c_int, entries: size_t, flags: c_int) -> c_int {
    returned(wakeset_fd::ring_setup_with(epfd, entries, flags).map(isize::from)) as c_int
}

/// Shares a set's events with another process.
#[unsafe(no_mangle)]
pub extern "C" fn ws_ring_writer_create(epfd: c_int, entries: c_uint) -> *mut SharedWriter {
    watch_forks();
    let writer = Writer::new(epfd, entries);
    created(writer, |writer| SharedWriter { generation: generation(), writer })
}

/// The descriptor that the other process gets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_ring_writer_fd(writer: *const SharedWriter) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { writer.as_ref() }
        .map_or_else(|| fail(libc::EINVAL) as c_int, |writer| writer.writer.fd())
}

/// Writes what is ready and fits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_ring_writer_pump(
    writer: *mut SharedWriter,
    limit: *const timespec,
) -> ssize_t {
    // SAFETY: the caller's contract, here and below.
    let (Some(writer), Some(limit)) = (unsafe { writer.as_mut() }, unsafe { limit_of(limit) })
    else {
        return fail(libc::EINVAL);
    };
    if writer.generation != generation() {
        return fail(libc::EBADF);
    }
    returned(writer.writer.pump_waiting(Timeout::from(limit)))
}

/// Ends the writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_ring_writer_destroy(writer: *mut SharedWriter) {
    // SAFETY: the caller's contract.
    let Some((ours, fd)) = (unsafe { writer.as_ref() })
        .map(|writer| (writer.generation == generation(), writer.writer.fd()))
    else {
        return;
    };
    if ours {
        // SAFETY: the caller's contract: no thread uses it any more.
        unsafe { unboxed(writer) };
    } else {
        // In a forked child its locks may be held by threads that do not exist: the memory stays.
        // SAFETY: this process's copy of the descriptor.
        unsafe { libc::close(fd) };
    }
}

/// Maps the memory that another process has passed on.
#[unsafe(no_mangle)]
pub extern "C" fn ws_ring_reader_open(fd: c_int) -> *mut SharedReader {
    created(open_reader(fd), SharedReader)
}

/// Takes events out of the ring.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_ring_reader_take(
    reader: *mut SharedReader,
    events: *mut epoll_event,
    capacity: c_int,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the caller's contract, here and below.
    let (Some(reader), Some(limit)) = (unsafe { reader.as_mut() }, unsafe { limit_of(limit) })
    else {
        return fail(libc::EINVAL) as c_int;
    };
    let capacity = usize::try_from(capacity).unwrap_or(0);
    if capacity == 0 || events.is_null() {
        return fail(libc::EINVAL) as c_int;
    }
    // SAFETY: memory for `capacity` events.
    match take(&mut reader.0, capacity, Timeout::from(limit), |at, event| unsafe {
        let event = epoll_event { events: event.events.bits(), u64: event.data };
        events.add(at).write_unaligned(event);
    }) {
        Ok(taken) => c_int::try_from(taken).unwrap_or(c_int::MAX),
        Err(error) => fail(error.errno()) as c_int,
    }
}

/// Passes up to `capacity` events to `store`, each with its index; waits for the first.
fn take(
    reader: &mut RingReader,
    capacity: usize,
    timeout: Timeout,
    mut store: impl FnMut(usize, Event),
) -> Result<usize, Error> {
    let deadline = Deadline::of(timeout);
    let mut events = [Event::default(); BATCH];
    let mut taken = 0;
    while taken < capacity {
        let part = &mut events[..BATCH.min(capacity - taken)];
        let n = match (reader.take(part), taken) {
            (Ok(0), 0) if timeout != Timeout::Now => {
                reader.wait(part, deadline.map(Deadline::remaining).into())?
            }
            (Err(error), 0) => return Err(error),
            // What has been taken comes first; the next call says it again.
            (Err(_), _) => 0,
            (Ok(n), _) => n,
        };
        for (event, at) in part[..n].iter().zip(taken..) {
            store(at, *event);
        }
        taken += n;
        if n < part.len() {
            break;
        }
    }
    Ok(taken)
}

/// Unmaps the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_ring_reader_destroy(reader: *mut SharedReader) {
    // SAFETY: the caller's contract.
    unsafe { unboxed(reader) };
}
