//! System calls that fail, for a thread.

use libc::c_int;

/// Runs `f` in a thread in which these calls fail with `errno`.
pub fn without(calls: &[libc::c_long], errno: c_int, f: impl FnOnce() + Send) {
    let (load, equal, end) = (0x20, 0x15, 0x06);
    let mut program = vec![libc::sock_filter { code: load, jt: 0, jf: 0, k: 0 }];
    for (i, call) in calls.iter().enumerate() {
        let jt = (calls.len() - i) as u8;
        program.push(libc::sock_filter { code: equal, jt, jf: 0, k: *call as u32 });
    }
    for k in [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_ERRNO | errno as u32] {
        program.push(libc::sock_filter { code: end, jt: 0, jf: 0, k });
    }
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let address = &raw const program as usize;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // SAFETY: for this thread alone; the program outlives the calls.
            unsafe {
                assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
                assert_eq!(
                    libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, address),
                    0
                );
            }
            f();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}
