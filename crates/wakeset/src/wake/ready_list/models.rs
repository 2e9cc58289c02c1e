use super::*;
use crate::memory::pool::Pooled;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Catches a push that loses another's watch or call for attention, and a take that gives one
/// watch to two takers or tears the chain.
#[test]
fn each_push_is_taken_once() {
    crate::explore(3, || {
        let watches: Arc<[Box<Watch>]> = (0..3).map(|_| Box::new(Watch::vacant())).collect();
        let list = Arc::new(Incoming::new());
        let push = |list: &Incoming, watch: &Watch| {
            // SAFETY: each watch is pushed once, so its link is the pusher's, and it outlives
            // the list.
            unsafe { list.push(ptr::from_ref(watch).cast_mut()) };
        };
        let called = core::cell::Cell::new(false);
        let taken = |list: &Incoming| {
            let mut taken = Vec::new();
            let (mut watch, attention) = list.take();
            called.set(called.get() | attention);
            while !watch.is_null() {
                taken.push(watch.addr());
                // SAFETY: one of `watches`.
                watch = unsafe { &*watch }.next.load(Ordering::Relaxed);
            }
            taken
        };
        let pushers = [0, 1].map(|i| {
            let (list, watches) = (Arc::clone(&list), Arc::clone(&watches));
            loom::thread::spawn(move || {
                push(&list, &watches[i]);
                if i == 0 {
                    list.call_attention();
                    push(&list, &watches[2]);
                }
            })
        });
        let mut all = taken(&list);
        for pusher in pushers {
            pusher.join().unwrap();
        }
        all.extend(taken(&list));
        all.sort_unstable();
        let mut pushed: Vec<_> =
            watches.iter().map(|watch| ptr::from_ref::<Watch>(watch).addr()).collect();
        pushed.sort_unstable();
        assert_eq!((all, called.get()), (pushed, true));
    });
}
