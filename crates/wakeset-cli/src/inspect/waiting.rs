//! What a thread sleeps in: `/proc/PID/task/TID/syscall`, or `wchan` where that may not be read.
//!
//! For poll(2) and select(2) the descriptors are in the process's memory, which
//! process_vm_readv(2) copies without stopping it.

use std::fs;

#[derive(Clone, Debug, PartialEq)]
pub enum Wait {
    /// It was not asleep.
    Running,
    /// In epoll_wait(2) and its kin; the set's number, if it is known.
    Epoll(Option<i32>),
    /// In poll(2), select(2) and their kin; the numbers, if they are known.
    Poll(Option<Vec<i32>>),
    /// In accept(2).
    Accept(Option<i32>),
    /// Anywhere else.
    Elsewhere,
    /// Neither file may be read.
    Unknown,
}

/// Descriptors of one poll(2) that are read.
const MOST_POLLED: usize = 4096;

/// What a thread of the process sleeps in.
pub fn of(pid: i32, tid: i32) -> Wait {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}"));
    if let Ok(text) = read("syscall") {
        return from_call(&text, &|address, length| memory(pid, address, length));
    }
    read("wchan").map_or(Wait::Unknown, |text| from_wchan(&text))
}

/// Reads the line `270 0x6 0x7ffc56ffa330 …`: the number and six arguments, or `running`.
fn from_call(line: &str, memory: &dyn Fn(u64, usize) -> Option<Vec<u8>>) -> Wait {
    let line = line.trim();
    if line.starts_with("running") {
        return Wait::Running;
    }
    let mut words = line.split_whitespace();
    let Some(call) = words.next().and_then(|word| word.parse::<i64>().ok()) else {
        return Wait::Unknown;
    };
    let arguments: Vec<_> = words
        .filter_map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok())
        .collect();
    let [first, second, third, fourth, ..] = arguments[..] else { return Wait::Elsewhere };
    match call {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
            Wait::Epoll(Some(first as i32))
        }
        libc::SYS_accept | libc::SYS_accept4 => Wait::Accept(Some(first as i32)),
        libc::SYS_poll | libc::SYS_ppoll => Wait::Poll(polled(first, second, memory)),
        libc::SYS_select | libc::SYS_pselect6 => {
            Wait::Poll(selected(first, [second, third, fourth], memory))
        }
        _ => Wait::Elsewhere,
    }
}

/// The numbers of an array of `struct pollfd`.
fn polled(
    address: u64,
    count: u64,
    memory: &dyn Fn(u64, usize) -> Option<Vec<u8>>,
) -> Option<Vec<i32>> {
    const EACH: usize = size_of::<libc::pollfd>();
    if count == 0 {
        return Some(Vec::new());
    }
    let count = usize::try_from(count).ok()?.min(MOST_POLLED);
    let bytes = memory(address, count * EACH)?;
    let numbers = bytes.chunks_exact(EACH).filter_map(|entry| entry.first_chunk::<4>());
    Some(numbers.map(|bytes| i32::from_ne_bytes(*bytes)).filter(|fd| *fd >= 0).collect())
}

/// The numbers of the sets of select(2).
fn selected(
    highest: u64,
    sets: [u64; 3],
    memory: &dyn Fn(u64, usize) -> Option<Vec<u8>>,
) -> Option<Vec<i32>> {
    let highest = usize::try_from(highest).ok()?.min(MOST_POLLED);
    let mut numbers = Vec::new();
    for address in sets.into_iter().filter(|address| *address != 0) {
        let bytes = memory(address, highest.div_ceil(64) * 8)?;
        let is_in = |fd: &usize| bytes.get(fd / 8).is_some_and(|byte| byte >> (fd % 8) & 1 == 1);
        numbers.extend((0..highest).filter(is_in).map(|fd| fd as i32));
    }
    Some(numbers)
}

/// The function of the kernel that it sleeps in. The names are those of Linux 4.5 to 6.18.
fn from_wchan(name: &str) -> Wait {
    match name.trim() {
        "ep_poll" | "do_epoll_wait" => Wait::Epoll(None),
        "inet_csk_accept" => Wait::Accept(None),
        name if name.starts_with("poll_schedule_timeout")
            || name.starts_with("do_sys_poll")
            || name.starts_with("do_select") =>
        {
            Wait::Poll(None)
        }
        "0" => Wait::Unknown,
        _ => Wait::Elsewhere,
    }
}

/// Copies memory of the process; `None` if it may not be read.
fn memory(pid: i32, address: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0u8; length];
    let ours = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: length };
    let theirs = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length };
    // SAFETY: `ours` is `length` bytes that are ours to write; the other address is not ours.
    let read = unsafe { libc::process_vm_readv(pid, &ours, 1, &theirs, 1, 0) };
    (usize::try_from(read) == Ok(length)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: u64, _: usize) -> Option<Vec<u8>> {
        None
    }

    #[test]
    fn calls_are_told_apart() {
        let tail = "0x7ffc56ffa330 0x0 0x0 0x7ffc56ffa270 0x0 0x7ffc56ffa260 0x7fc1bdc5b954";
        let of = |call: &str| from_call(&format!("{call} {tail}\n"), &nothing);
        assert_eq!(of("232 0x6"), Wait::Epoll(Some(6)));
        assert_eq!(of("281 0x6"), Wait::Epoll(Some(6)));
        assert_eq!(of("441 0x6"), Wait::Epoll(Some(6)));
        assert_eq!(of("288 0x3"), Wait::Accept(Some(3)));
        assert_eq!(of("7 0x6"), Wait::Poll(None));
        assert_eq!(of("202 0x6"), Wait::Elsewhere);
        assert_eq!(from_call("running\n", &nothing), Wait::Running);
        assert_eq!(from_call("", &nothing), Wait::Unknown);
    }

    #[test]
    fn polled_numbers_are_read() {
        // Two entries, one of which poll(2) passes over.
        let array: Vec<u8> = [[5i32, 1], [-1, 1], [9, 1]]
            .as_flattened()
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let memory = |at, length| (at == 0x10 && length == 24).then(|| array.clone());
        let wait = from_call("7 0x10 0x3 0xffffffff 0x0 0x0 0x0 0x0 0x0", &memory);
        assert_eq!(wait, Wait::Poll(Some(vec![5, 9])));
    }

    #[test]
    fn selected_numbers_are_read() {
        let memory = |at, length| match (at, length) {
            (0x10, 16) => {
                Some([&[0b1000u8, 0, 0, 0, 0, 0, 0, 0][..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat())
            }
            _ => None,
        };
        let wait = from_call("270 0x41 0x10 0x0 0x0 0x0 0x0 0x0 0x0", &memory);
        assert_eq!(wait, Wait::Poll(Some(vec![3, 64])));
    }

    #[test]
    fn functions_of_the_kernel_are_told_apart() {
        assert_eq!(from_wchan("ep_poll"), Wait::Epoll(None));
        assert_eq!(from_wchan("poll_schedule_timeout.constprop.0"), Wait::Poll(None));
        assert_eq!(from_wchan("inet_csk_accept"), Wait::Accept(None));
        assert_eq!(from_wchan("futex_wait_queue"), Wait::Elsewhere);
        assert_eq!(from_wchan("0"), Wait::Unknown);
    }
}
