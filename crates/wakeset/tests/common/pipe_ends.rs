//! Both ends of a pipe, as one source.

use wakeset::{Events, Pipe, Room, Source, WaitQueue};

pub struct Both {
    pub pipe: Pipe,
    pub life: u32,
    pub queue: WaitQueue,
}

impl Both {
    pub fn new() -> Self {
        let pipe = Pipe::new();
        let life = pipe.next_life();
        pipe.unseal(life, Room::Pages);
        Self { pipe, life, queue: WaitQueue::new() }
    }
}

impl Source for Both {
    fn poll(&self) -> Events {
        match self.pipe.look(self.life) {
            Some(look) if look.len != 0 => Events::IN,
            _ => Events::empty(),
        }
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.queue
    }
}
