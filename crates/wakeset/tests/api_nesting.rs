//! Sets in sets, where it is about the engine alone.
#![cfg(not(any(loom, shuttle)))]

use wakeset::{Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events};

const IN: Event = Event::new(Events::IN, 0);

fn set(engine: &Engine) -> Description<EventPoll> {
    Description::new(engine, EventPoll::new(engine).unwrap())
}

/// Four layers, each set of which watches all of the one below: 60^3 ways lead down from each set
/// of the highest. A check that follows each holds the lock of all nested adds for hundreds of
/// milliseconds; 181 looks are enough. The time is printed, not judged.
#[test]
fn a_check_looks_at_each_set_once() {
    const WIDTH: usize = 60;
    let engine = Engine::new();
    let layers: Vec<Vec<_>> = (0..4).map(|_| (0..WIDTH).map(|_| set(&engine)).collect()).collect();
    for pair in layers.windows(2) {
        for outer in &pair[1] {
            for (fd, inner) in (0..).zip(&pair[0]) {
                outer.add(fd, inner, IN).unwrap();
            }
        }
    }
    // The answers are right, also for sets that a walk had seen before.
    let [top, above] = [set(&engine), set(&engine)];
    let begin = std::time::Instant::now();
    for (fd, inner) in (0..).zip(&layers[3]) {
        top.add(fd, inner, IN).unwrap();
    }
    println!("an add over three layers of {WIDTH} took {:?}", begin.elapsed() / WIDTH as u32);
    assert_eq!(above.add(0, &top, IN), Err(Error::Loop), "six in a chain");
    assert_eq!(layers[0][7].add(0, &top, IN), Err(Error::Loop), "a circle");
    assert_eq!(layers[1][0].add(WIDTH as i32, &layers[2][59], IN), Err(Error::Loop), "a circle");
    // A source at the bottom would have 60^4 ways up.
    let source = Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK));
    assert_eq!(layers[0][0].add(1, &source, IN), Err(Error::Invalid));
}

/// Random edges between a few sets, against the rule itself: no circle, and no chain of more than
/// five.
#[test]
fn random_graphs_are_judged_by_the_rule() {
    const SETS: usize = 9;
    fn longest(edges: &[[bool; SETS]; SETS], from: usize, steps: usize) -> usize {
        let next = |to: usize| if steps > SETS { steps } else { longest(edges, to, steps + 1) };
        (0..SETS).filter(|to| edges[from][*to]).map(next).max().unwrap_or(steps)
    }
    let mut random = fastrand::Rng::with_seed(1);
    let mut below = move |n: usize| random.usize(..n);
    for round in 0..400 {
        let engine = Engine::new();
        let sets: Vec<_> = (0..SETS).map(|_| set(&engine)).collect();
        let mut edges = [[false; SETS]; SETS];
        for step in 0..60 {
            let (outer, inner) = (below(SETS), below(SETS));
            if outer == inner {
                continue;
            }
            if edges[outer][inner] {
                sets[outer].remove(inner as i32, &sets[inner]).unwrap();
                edges[outer][inner] = false;
                continue;
            }
            edges[outer][inner] = true;
            // A circle is longer than any chain that is allowed.
            let allowed = (0..SETS).all(|from| longest(&edges, from, 0) <= 4);
            edges[outer][inner] = allowed;
            let expected = if allowed { Ok(()) } else { Err(Error::Loop) };
            assert_eq!(
                sets[outer].add(inner as i32, &sets[inner], IN),
                expected,
                "round {round}, step {step}"
            );
        }
    }
}
