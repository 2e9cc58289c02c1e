//! Both ends of a pipe, as one source.

use wakeset::{Events, Pipe, PipeCapacity, Source, WaitQueue};

pub struct Both {
    pub pipe: Pipe,
    pub generation: u32,
    pub queue: WaitQueue,
}

impl Both {
    pub fn new() -> Self {
        Self::with(PipeCapacity::Pages)
    }

    pub fn with(capacity: PipeCapacity) -> Self {
        let pipe = Pipe::new();
        let generation = pipe.next_generation();
        pipe.unseal(generation, capacity);
        Self { pipe, generation, queue: WaitQueue::new() }
    }
}

impl Source for Both {
    fn poll(&self) -> Events {
        match self.pipe.state(self.generation) {
            Some(state) if state.len != 0 => Events::IN,
            _ => Events::empty(),
        }
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.queue
    }
}
