//! What is compared: kinds of listeners, and ways to wait for them.

use super::worker::Way;
use crate::bench::options::Order;

/// Which kind of listener.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
pub enum Socket {
    Tcp,
    Unix,
}

impl Socket {
    pub fn name(self) -> &'static str {
        match self {
            Socket::Tcp => "tcp",
            Socket::Unix => "unix",
        }
    }
}

/// How the workers wait.
#[derive(Clone, Copy, PartialEq)]
pub struct Side {
    pub way: Way,
    /// Under `wakeset run`.
    pub preload: bool,
    /// Each worker has a listener.
    pub own: bool,
    /// Which idle worker an event wakes, on Wakeset's sides.
    pub order: Option<Order>,
}

impl Side {
    pub fn all(orders: &[Order]) -> Vec<Self> {
        let kernel = |way| Side { way, preload: false, own: false, order: None };
        let mut sides = [Way::Select, Way::Poll, Way::Exclusive].map(kernel).to_vec();
        sides.push(Side { own: true, ..kernel(Way::Exclusive) });
        for &order in orders {
            let order = Some(order);
            sides.push(Side { preload: true, order, ..kernel(Way::Select) });
            sides.push(Side { order, ..kernel(Way::Wakeset) });
        }
        sides
    }

    pub fn name(self) -> &'static str {
        match (self.way, self.preload) {
            (_, true) => "wakeset run",
            _ if self.own => "own listeners",
            (Way::Select, _) => "select",
            (Way::Poll, _) => "poll",
            (Way::Exclusive, _) => "exclusive",
            (Way::Wakeset, _) => "wakeset",
        }
    }
}
