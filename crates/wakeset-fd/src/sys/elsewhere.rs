//! A watch under a number that another file has, or none.
//!
//! The kernel knows a watch by the file and the number that it was added by. A watch that was made
//! under a number which has been closed since, and whose file lives on under another, can therefore
//! not be made anew by epoll_ctl(2) in this process. It is in a thread that has a table of
//! descriptors of its own (clone(2) without `CLONE_FILES`): there the file gets the number, and is
//! added to the set under it, and then the thread ends, and its table with it. It closes everything
//! in there before, because it ends when the caller is awake already: a file must not live on in it
//! for a moment after its last close.

use super::Errno;
use core::ffi::c_int;
use libc::epoll_event;

/// Adds a file to a set as if it had this number: `EPOLL_CTL_ADD`. The caller has its signals
/// masked.
///
/// # Errors
/// As clone(2), dup2(2) and epoll_ctl(2). ENOSYS, EPERM where there is no such way.
#[cfg(target_arch = "x86_64")]
#[cold]
#[inline(never)]
pub(crate) fn add_under(
    epfd: c_int,
    file: c_int,
    number: c_int,
    event: &epoll_event,
) -> Result<(), Errno> {
    use super::user::may_fault;
    // The caller sleeps until the thread has ended: both use one stack, on which the thread writes
    // nothing.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
    let mut added = -(libc::ENOSYS as isize);
    let cloned: isize;
    // SAFETY: the thread touches nothing but `added` and ends. A filter's SIGSYS arrives with the
    // address of label 2 and resumes at 3.
    unsafe {
        core::arch::asm!(
            "syscall",
            "2: jmp 4f",
            "3: mov rax, -1",
            "4: test rax, rax",
            "jnz 6f",
            "mov rdi, r12; mov rsi, r13",
            "mov eax, {dup2}; syscall",
            "test rax, rax; js 5f",
            "mov rdi, r14",
            "mov esi, {add}",
            "mov rdx, r13; mov r10, r15",
            "mov eax, {epoll_ctl}; syscall",
            "5: mov [r9], rax",
            "xor edi, edi; mov esi, -1; xor edx, edx",
            "mov eax, {close_range}; syscall",
            "xor edi, edi; mov eax, {exit}; syscall",
            "ud2",
            "6:",
            may_fault!(),
            dup2 = const libc::SYS_dup2,
            add = const libc::EPOLL_CTL_ADD,
            epoll_ctl = const libc::SYS_epoll_ctl,
            close_range = const libc::SYS_close_range,
            exit = const libc::SYS_exit,
            inlateout("rax") libc::SYS_clone => cloned,
            inlateout("rdi") flags as isize => _,
            inlateout("rsi") 0_usize => _,
            inlateout("rdx") 0_usize => _,
            inlateout("r10") 0_usize => _,
            in("r8") 0_usize,
            in("r9") &raw mut added,
            in("r12") file as isize,
            in("r13") number as isize,
            in("r14") epfd as isize,
            in("r15") core::ptr::from_ref(event),
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    Errno::from_ret(cloned as usize)?;
    Errno::from_ret(added as usize).map(drop)
}

/// There is no such way.
#[cfg(not(target_arch = "x86_64"))]
#[cold]
pub(crate) fn add_under(_: c_int, _: c_int, _: c_int, _: &epoll_event) -> Result<(), Errno> {
    Err(Errno::ENOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use crate::sys::signal_guard::Masked;
    use core::ptr;

    /// The number is free, or another file's, and stays so; the watch is one of the file under the
    /// number, and lives as long as the file.
    #[test]
    fn a_watch_is_made_under_a_number_that_the_file_does_not_have() {
        let _alone = crate::table::alone::alone();
        let set = sys::epoll_create1(0).unwrap();
        let file = sys::eventfd(1, 0).unwrap();
        let event = epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
        let taken = sys::eventfd(0, 0).unwrap();
        // No other test gets it, whose threads run beside this one.
        let free = sys::duplicate_above(file, 900).unwrap();
        sys::close(free).unwrap();
        for number in [free, taken] {
            {
                let _masked = Masked::begin();
                assert_eq!(add_under(set, file, number, &event), Ok(()));
                assert_eq!(add_under(set, file, number, &event), Err(Errno::EEXIST));
                assert_eq!(add_under(set, -1, number, &event), Err(Errno::EBADF));
            }
            let mut found = [epoll_event { events: 0, u64: 0 }; 2];
            let n = sys::epoll_pwait(set, found.as_mut_ptr(), 2, 0, ptr::null(), 0).unwrap();
            assert_eq!((n, { found[0].u64 }), (1, 7));
            // Under the number it can be removed only while the file has it.
            let delete = || sys::epoll_ctl(set, libc::EPOLL_CTL_DEL, number, ptr::null());
            assert!(matches!(delete(), Err(Errno::EBADF | Errno::ENOENT)));
            let own = sys::duplicate_above(number, 0);
            sys::dup_to(file, number).unwrap();
            delete().unwrap();
            let _ = sys::close(number);
            if let Some(own) = own {
                sys::dup_to(own, number).unwrap();
                sys::close(own).unwrap();
            }
        }
        [set, file, taken].into_iter().for_each(|fd| sys::close(fd).unwrap());
    }
}
