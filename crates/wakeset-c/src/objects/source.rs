//! Sources that a C program makes itself.

use super::{boxed, unboxed};
use crate::fork::{generation, watch_forks};
use crate::outcome::{fail, returned_unit};
use core::ffi::{c_int, c_void};
use core::ptr;
use libc::epoll_event;
use wakeset::{Description, Events, WaitQueue};
use wakeset_fd::custom;

/// `struct ws_source_ops` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SourceOps {
    on_poll: Option<unsafe extern "C" fn(*mut c_void) -> u32>,
    on_close: Option<unsafe extern "C" fn(*mut c_void)>,
}

#[derive(Debug)]
struct Inner {
    queue: WaitQueue,
    poll: unsafe extern "C" fn(*mut c_void) -> u32,
    context: *mut c_void,
}

// SAFETY: the header asks for a `poll` that any thread may call, several at a time.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl wakeset::Source for Inner {
    fn poll(&self) -> Events {
        // SAFETY: the program's own function and its own context.
        Events::from_bits_retain(unsafe { (self.poll)(self.context) })
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.queue
    }
}

/// `ws_source` of the header.
#[derive(Debug)]
pub struct Source {
    /// A forked child has a copy of the memory, and no use for it.
    generation: u32,
    close: Option<unsafe extern "C" fn(*mut c_void)>,
    description: Description<Inner>,
}

impl Source {
    fn is_ours(&self) -> bool {
        self.generation == generation()
    }
}

/// Makes a source.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_source_create(
    ops: *const SourceOps,
    context: *mut c_void,
) -> *mut Source {
    watch_forks();
    // SAFETY: the caller's contract.
    let Some(&SourceOps { on_poll: Some(poll), on_close: close }) = (unsafe { ops.as_ref() })
    else {
        fail(libc::EINVAL);
        return ptr::null_mut();
    };
    let inner = Inner { queue: WaitQueue::new(), poll, context };
    match custom::engine().map(|engine| Description::try_new(engine, inner)) {
        Some(Ok(description)) => boxed(Source { generation: generation(), close, description }),
        _ => {
            fail(libc::ENOMEM);
            ptr::null_mut()
        }
    }
}

/// Says that a source may have become ready.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_source_wake(source: *const Source, events: u32) {
    // SAFETY: the caller's contract.
    if let Some(source) = unsafe { source.as_ref() }
        && source.is_ours()
    {
        source.description.queue.wake(Events::from_bits_retain(events));
    }
}

/// Ends a source.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_source_close(source: *mut Source) {
    // SAFETY: the caller's contract.
    let Some((ours, close, context)) = (unsafe { source.as_ref() })
        .map(|source| (source.is_ours(), source.close, source.description.context))
    else {
        return;
    };
    if ours {
        // SAFETY: the caller's contract: no thread uses it any more.
        unsafe { unboxed(source) };
    }
    // In a forked child its locks may be held by threads that do not exist: the memory stays.
    if let Some(close) = close {
        // SAFETY: the program's own function.
        unsafe { close(context) };
    }
}

/// epoll_ctl(2) for a source.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_epoll_ctl_source(
    epfd: c_int,
    op: c_int,
    source: *mut Source,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's contract.
    let Some(source) = (unsafe { source.as_ref() }) else { return fail(libc::EINVAL) as c_int };
    if !source.is_ours() {
        return fail(libc::EBADF) as c_int;
    }
    let inner: &dyn wakeset::Source = &*source.description;
    // SAFETY: made for this engine; it is closed before it goes.
    returned_unit(unsafe { custom::epoll_ctl(epfd, op, ptr::from_ref(inner), event) })
}
