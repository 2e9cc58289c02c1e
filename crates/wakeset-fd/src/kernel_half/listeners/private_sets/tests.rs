use super::*;
use crate::table::{self, Entry, alone::alone};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::vec::Vec;
extern crate std;

/// Every poll(2) of a thread without an entry asked for each of 256 threads whether it lives.
#[test]
fn a_full_table_is_not_searched_again_at_once() {
    let _alone = alone();
    // Not on the main thread, which has all the entries here.
    let claims = || {
        let all = |private: &PrivateSet| private.owner.store(sys::getpid(), Ordering::SeqCst);
        PRIVATE_SETS.iter().for_each(all);
        assert_eq!(claim_index(), None);
        // No thread has such a number.
        PRIVATE_SETS[7].owner.store(c_int::MAX, Ordering::SeqCst);
        assert_eq!(claim_index(), None, "it has checked");
        FULL.forget();
        assert_eq!(claim_index(), Some(7));
        assert_eq!(claim_index(), Some(7), "its own");
        FULL.note();
        forget_all();
        assert_eq!(claim_index(), Some(0), "in a forked child");
        FULL.note();
        release_private_set();
        assert_eq!(claim_index(), Some(0), "given back by the thread itself");
        forget_all();
    };
    std::thread::scope(|scope| scope.spawn(claims).join()).unwrap();
}

/// How many numbers above those of programs are hidden.
fn hidden_numbers() -> usize {
    table::numbers().filter(|fd| matches!(table::get(*fd), Entry::Doorbell)).count()
}

/// A thread that had ended left its set open, up to 256 of them.
#[test]
fn threads_that_come_and_go_leave_no_set_and_close_no_other() {
    let _alone = alone();
    let before = hidden_numbers();
    let (over, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
    // One that ends at once, beside those that go on using theirs.
    let come_and_go = || {
        let mut sleeper = Sleeper::new();
        let index = claim_index().unwrap();
        renew_private_set(index, &mut sleeper).unwrap();
        assert_eq!(private_set(index), Some(sleeper.set()));
        release_private_set();
    };
    let stay = || {
        let mut sleeper = Sleeper::new();
        let index = claim_index().unwrap();
        renew_private_set(index, &mut sleeper).unwrap();
        let set = sleeper.set();
        begun.fetch_add(1, Ordering::SeqCst);
        while !over.load(Ordering::SeqCst) {
            assert_eq!(private_set(index), Some(set), "closed under its thread");
            assert!(sys::fcntl(set, libc::F_GETFD, 0).is_ok(), "closed under its thread");
        }
        release_private_set();
    };
    std::thread::scope(|scope| {
        let staying: Vec<_> = (0..3).map(|_| scope.spawn(stay)).collect();
        for _ in 0..300 {
            let both = [scope.spawn(come_and_go), scope.spawn(come_and_go)];
            both.into_iter().for_each(|thread| thread.join().unwrap());
        }
        while begun.load(Ordering::SeqCst) < 3 {
            std::thread::yield_now();
        }
        let during = hidden_numbers();
        over.store(true, Ordering::SeqCst);
        assert_eq!(during, before + 3);
        staying.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(hidden_numbers(), before);
}

/// A thread that ended by a system call of its own has given nothing back.
#[test]
fn what_a_thread_could_not_give_back_is_the_next_ones() {
    let _alone = alone();
    let before = hidden_numbers();
    let next = || {
        let mut sleeper = Sleeper::new();
        let index = claim_index().unwrap();
        assert_eq!(index, 1, "a free entry comes after one that was left");
        renew_private_set(index, &mut sleeper).unwrap();
        assert_eq!(hidden_numbers(), before + 1);
        release_private_set();
    };
    let set = hidden::hide(sys::epoll_create1(libc::EPOLL_CLOEXEC).unwrap());
    PRIVATE_SETS[1].set.store(set, Ordering::SeqCst);
    PRIVATE_SETS[1].owner.store(c_int::MAX, Ordering::SeqCst);
    std::thread::scope(|scope| scope.spawn(next).join()).unwrap();
    assert_eq!(hidden_numbers(), before);
}
