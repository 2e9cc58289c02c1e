//! That the other tests' `wakeset::` half is about Wakeset: what they use lives in user space, and only leaves it where it
//! should. These run beside them, in the same process.

use crate::backend::Wakeset;
use crate::objects::{Counter, ET, EXCLUSIVE, IN, ONESHOT, Set, pipe};
use crate::task::Task;
use std::os::fd::AsRawFd;
use wakeset_fd::descriptor::is_in_process;

fn here(object: &impl AsRawFd) -> bool {
    is_in_process(object.as_raw_fd())
}

#[test]
fn ordinary_use_stays_in_process() {
    let (outer, set) = (Set::<Wakeset>::new(), Set::new());
    let counters = [Counter::new(0), Counter::blocking(0)];
    outer.add(&set, IN, 0);
    set.add(&counters[0], IN | ET | EXCLUSIVE, 1);
    set.add(&counters[1], IN | ONESHOT, 2);
    let sleeper = outer.clone();
    let sleeper = Task::asleep(move || sleeper.wait(4, -1));
    counters.iter().for_each(|counter| counter.write(1));
    assert_eq!(sleeper.join(), Ok(vec![(0, IN)]));
    assert_eq!(set.ready().len(), 2);
    set.modify(&counters[1], IN, 3);
    assert_eq!(set.try_add(&counters[1], IN, 3), Err(libc::EEXIST));
    assert_eq!(set.try_add(&outer, IN, 3), Err(libc::ELOOP));
    assert_eq!(set.wait_masked(None, Some(0)), Ok(vec![(3, IN)]));
    assert!(here(&outer) && here(&set) && counters.iter().all(here));
}

#[test]
fn a_mixed_set_keeps_its_counters_in_process() {
    let (set, counter, (reader, writer)) = (Set::<Wakeset>::new(), Counter::new(0), pipe());
    set.add(&counter, IN, 1);
    set.add(&reader, IN, 2);
    counter.write(1);
    writer.write(b"x").unwrap();
    assert_eq!(set.ready().len(), 2);
    assert!(here(&set) && here(&counter) && !here(&reader));
}

#[test]
fn a_second_descriptor_moves_the_object_into_the_kernel() {
    let (set, counter) = (Set::<Wakeset>::new(), Counter::new(0));
    set.add(&counter, IN, 1);
    let same = counter.dup();
    assert!(!here(&counter) && !here(&same) && here(&set));
    same.write(1);
    assert_eq!(set.ready(), [(1, IN)]);
    let same = set.dup();
    assert!(!here(&set) && !here(&same));
    assert_eq!(same.ready(), [(1, IN)]);
}
