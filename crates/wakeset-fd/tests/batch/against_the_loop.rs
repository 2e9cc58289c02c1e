//! A batch against a loop of epoll_ctl(2), on random commands.

use super::*;

/// xorshift: the same programs in every run.
pub(super) struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }
}

/// A set, and the descriptors of batches: those with the same index are alike on both sides.
pub(super) struct World {
    side: Side,
    set: c_int,
    fds: Vec<c_int>,
    ours: Vec<c_int>,
}

pub(super) const COUNTERS: usize = 24;
pub(super) const PIPES: usize = 300;

impl World {
    fn new(side: Side, mixed: bool) -> Self {
        let set = side.set();
        let mut fds: Vec<_> =
            (0..if mixed { COUNTERS } else { 0 }).map(|i| side.eventfd(i as u32 % 2)).collect();
        let pipes: Vec<_> = (0..PIPES).flat_map(|i| pipe(i % 8 == 0)).collect();
        fds.extend(&pipes);
        let mut ours = fds.clone();
        let inner = side.set();
        // SAFETY: a path; a directory cannot be watched.
        let directory = unsafe {
            libc::open(c"/".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC)
        };
        ours.extend([inner, directory]);
        fds.extend([inner, directory, set, -1, 8191, c_int::MAX]);
        Self { side, set, fds, ours }
    }

    fn command(&self, (op, target, events): (c_int, usize, u32)) -> Command {
        Command::new(op, self.fds[target], events, target as u64)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.ours.iter().chain([&self.set]).for_each(|fd| self.side.close(*fd));
    }
}

pub(super) fn compare(
    mixed: bool,
    how: impl Fn(&mut Random) -> c_int,
    seeds: std::ops::Range<u64>,
) {
    let _alone = alone();
    for seed in seeds {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed << 7);
        let worlds = [Side::Kernel, Side::Wakeset].map(|side| World::new(side, mixed));
        for _ in 0..6 {
            let n = random.one_of(&[1, 2, 5, 40, 255, 256, 257, MANY, 1500]);
            // Orderly batches name different descriptors; the others name some more than once.
            let (orderly, first) = (random.below(2) == 0, random.below(worlds[0].fds.len()));
            let op = random.one_of(&[EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL]);
            let rare = random.one_of(&[3, 60, 4000]);
            let plan: Vec<_> = (0..n)
                .map(|i| {
                    let last = worlds[0].fds.len();
                    let target = if orderly { (first + i) % last } else { random.below(last) };
                    let odd = random.below(rare) == 0;
                    let op = if odd {
                        random.one_of(&[EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, 0, 7])
                    } else {
                        op
                    };
                    let events = random.one_of(&[
                        IN,
                        IN | OUT,
                        OUT,
                        IN | ET,
                        IN | ONESHOT,
                        IN | EXCLUSIVE,
                        0,
                    ]);
                    (op, target, events)
                })
                .collect();
            let flags = how(&mut random);
            let outcomes = worlds.each_ref().map(|world| {
                let mut commands: Vec<_> = plan.iter().map(|step| world.command(*step)).collect();
                let succeeded = world.side.batch(world.set, flags, &mut commands);
                let results: Vec<_> = commands.iter().map(|command| command.result).collect();
                (succeeded, results)
            });
            assert_eq!(outcomes[0], outcomes[1], "seed {seed}, flags {flags}, plan {plan:?}");
            // What the set watches, and for which events.
            let watched = worlds.each_ref().map(|world| {
                let probe = |target: usize| {
                    world.side.single(world.set, &world.command((EPOLL_CTL_MOD, target, IN)))
                };
                let asked: Vec<_> = (0..world.fds.len()).map(probe).collect();
                (asked, world.side.events(world.set).len())
            });
            assert_eq!(watched[0], watched[1], "seed {seed}, flags {flags}, plan {plan:?}");
        }
    }
}

#[test]
fn a_batch_has_the_results_of_the_loop() {
    compare(true, |random| random.one_of(&[0, SINGLE_CALLS]), 0..25);
}

#[test]
fn a_batch_that_stops_has_the_results_of_the_loop_that_stops() {
    compare(true, |random| STOP_AT_ERROR | random.one_of(&[0, SINGLE_CALLS]), 100..125);
}

#[test]
fn a_batch_of_kernel_descriptors_has_the_results_of_the_loop() {
    compare(false, |random| random.one_of(&[0, STOP_AT_ERROR, SINGLE_CALLS]), 200..225);
}
