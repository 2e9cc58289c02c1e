//! Closes of one end of a pair beside calls on it in other threads. Nothing else in the process
//! makes descriptors meanwhile, so a call by a closed number is EBADF.

use libc::{EBADF, SIG_IGN, SIGPIPE, c_int};
use std::thread;
use std::time::{Duration, Instant};
use wakeset_fd::descriptor::is_in_process;
use wakeset_fd::{Errno, close, pipe2, read, socketpair, write};

fn pairs() -> [[c_int; 2]; 2] {
    let mut pairs = [[0; 2]; 2];
    let [pipe, sockets] = &mut pairs;
    // SAFETY: room for two numbers.
    unsafe { pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }.unwrap();
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: as above.
    unsafe { socketpair(libc::AF_UNIX, kind, 0, sockets.as_mut_ptr()) }.unwrap();
    pairs
}

fn write_to(fd: c_int, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the buffer is `bytes`.
    unsafe { write(fd, bytes.as_ptr(), bytes.len()) }
}

fn read_from(fd: c_int) -> Result<Vec<u8>, Errno> {
    let mut bytes = [0; 64];
    // SAFETY: the buffer is `bytes`.
    let n = unsafe { read(fd, bytes.as_mut_ptr(), bytes.len()) }?;
    Ok(bytes[..n].to_vec())
}

/// What was written before the close is read, and nothing that comes after it.
#[test]
fn what_a_thread_writes_is_read_to_the_end() {
    // SAFETY: it is ignored.
    unsafe { libc::signal(SIGPIPE, SIG_IGN) };
    let begun = Instant::now();
    let mut in_process = 0;
    for round in 0_u64.. {
        if begun.elapsed() > Duration::from_secs(4) {
            break;
        }
        for [reader, writer] in pairs() {
            thread::scope(|scope| {
                let writing = scope.spawn(|| {
                    let mut written = 0_u64;
                    for n in 0_u64..50 {
                        let bytes = [n as u8; 3];
                        match write_to(writer, &bytes[..1 + n as usize % 3]) {
                            Ok(len) => written += len as u64,
                            Err(error) => {
                                assert_eq!(error.into_raw(), EBADF);
                                break;
                            }
                        }
                    }
                    written
                });
                let reading = scope.spawn(|| {
                    let mut got = 0_u64;
                    loop {
                        match read_from(reader).unwrap() {
                            bytes if bytes.is_empty() => break got,
                            bytes => got += bytes.len() as u64,
                        }
                    }
                });
                for _ in 0..round * 37 % 4000 {
                    std::hint::spin_loop();
                }
                close(writer).unwrap();
                let got = reading.join().unwrap();
                let written = writing.join().unwrap();
                assert_eq!(got, written);
            });
            in_process += u32::from(is_in_process(reader));
            close(reader).unwrap();
            assert_eq!(read_from(reader).unwrap_err().into_raw(), EBADF);
        }
    }
    assert!(in_process > 0, "every pair has migrated");
}
