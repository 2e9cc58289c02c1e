//! Lack of memory.

use super::*;

#[test]
fn no_memory_from_any_allocation_on() {
    let kernel = in_child(|| everything::<Kernel>(false, || ())).unwrap();
    for n in 0..1000 {
        let ours = in_child(|| {
            RATION.set(n);
            report(everything::<Wakeset>(true, || ()))
        });
        if same(&format!("memory for {n} allocations"), &kernel, ours) == "0" {
            assert!(n > 20, "the script needs {n} allocations only");
            return;
        }
    }
    panic!("it never has enough");
}

#[test]
fn no_memory_for_one_allocation() {
    let kernel = in_child(|| everything::<Kernel>(false, || ())).unwrap();
    for n in 0..1000 {
        let ours = in_child(|| {
            ONE_REFUSAL.set(true);
            RATION.set(n);
            report(everything::<Wakeset>(true, || ()))
        });
        if same(&format!("all memory but for allocation {n}"), &kernel, ours) == "0" {
            assert!(n > 20, "the script needs {n} allocations only");
            return;
        }
    }
    panic!("it never has enough");
}

/// A doorbell may take a number that has memory for an object of the program. The number gets this
/// memory back with the next object.
#[test]
fn a_doorbell_leaves_a_number_its_memory() {
    let live = in_child(|| {
        let pipe = pipe_with_a_byte();
        let mut s = Script::<Wakeset>::new();
        let (set, counter) = (s.set(), s.counter(0));
        leave_numbers(1);
        let mut live = Vec::new();
        for _ in 0..10 {
            // The last number that is left, for an object and then for a doorbell.
            let last = s.counter(0);
            assert!(last > counter, "{}", s.log);
            s.close(last);
            s.add(set, counter, EPOLLIN, 1);
            s.add(set, pipe[0], EPOLLIN, 2);
            assert!(open_numbers().contains(&last), "there is no bell");
            // The set is closed, and dup2 takes the number from the doorbell that it leaves.
            let next = s.counter(0);
            assert_eq!(next, -1, "a number was left");
            rationed(|| Wakeset::close(set)).unwrap();
            assert_eq!(s.set(), set);
            rationed(|| Wakeset::dup2(pipe[0], last)).unwrap();
            rationed(|| Wakeset::close(last)).unwrap();
            live.push(LIVE.get());
        }
        format!("{live:?}")
    });
    let live = live.unwrap();
    let counts: Vec<&str> = live.trim_matches(['[', ']']).split(", ").collect();
    assert_eq!(counts[2], counts[9], "allocations there are, after each round: {live}");
}

/// A number whose object is closed while a call sleeps in it has memory for the next object all the
/// same, and gets the memory of the first one back when the call is over.
#[test]
fn memory_of_an_object_closed_under_a_call_is_used_again() {
    let live = in_child(|| {
        let mut live = Vec::new();
        for _ in 0..20 {
            let blocking = rationed(|| Wakeset::eventfd(0, libc::EFD_CLOEXEC)).unwrap();
            let tid = std::sync::Arc::new(AtomicI32::new(0));
            let tell = tid.clone();
            let reader = std::thread::spawn(move || {
                let mut value = 0_u64;
                // SAFETY: takes nothing.
                tell.store(unsafe { libc::gettid() }, Ordering::SeqCst);
                // SAFETY: 8 bytes of our own.
                unsafe { Wakeset::read(blocking, (&raw mut value).cast(), 8) }
            });
            while !sleeps(tid.load(Ordering::SeqCst)) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            rationed(|| Wakeset::close(blocking)).unwrap();
            let next = rationed(|| Wakeset::eventfd(0, libc::EFD_CLOEXEC)).unwrap();
            assert_eq!(next, blocking, "the script is about one number");
            rationed(|| Wakeset::close(next)).unwrap();
            live.push(LIVE.get());
            // SAFETY: the thread has not been joined; SIGUSR1 has a handler that does nothing.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
                assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
                while !reader.is_finished() {
                    libc::pthread_kill(
                        std::os::unix::thread::JoinHandleExt::as_pthread_t(&reader),
                        libc::SIGUSR1,
                    );
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
            assert_eq!(reader.join().unwrap(), Err(libc::EINTR));
        }
        format!("{live:?}")
    });
    let live = live.unwrap();
    let counts: Vec<&str> = live.trim_matches(['[', ']']).split(", ").collect();
    assert_eq!(counts[2], counts[19], "allocations there are, after each round: {live}");
}

pub(super) fn sleeps(tid: c_int) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}
