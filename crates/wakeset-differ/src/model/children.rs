//! Which process has which numbers. Descriptions are shared by all of them.
//!
//! Where objects are is not followed: an object stays in the parent's process until a child names
//! it, and may come home when the child has gone. Both depend on time.

use super::{CHILDREN, Model, NUMBERS};

/// The numbers of a process.
#[derive(Clone, Debug)]
pub(super) struct Table {
    numbers: [u8; NUMBERS],
    open: Vec<i32>,
}

impl Model {
    /// The same, for programs whose children live for a while.
    pub fn with_children(self) -> Self {
        Self { anywhere: true, ..self }
    }

    /// Whether objects may leave and come home at any time.
    pub fn is_anywhere(&self) -> bool {
        self.anywhere
    }

    /// Whose turn it is: 0 for the parent's.
    pub fn turn(&self) -> u8 {
        self.turn as u8
    }

    /// Whether this child lives.
    pub fn has_child(&self, child: u8) -> bool {
        child > 0 && (self.turn == usize::from(child) || self.table(child).is_some())
    }

    fn table(&self, process: u8) -> Option<&Table> {
        self.elsewhere.get(usize::from(process))?.as_ref()
    }

    /// The parent, whose turn it is, has forked a child.
    pub fn forked(&mut self, child: u8) {
        for number in &self.open {
            let description = usize::from(self.numbers[*number as usize]);
            self.descriptions[description].refs += 1;
        }
        self.elsewhere[usize::from(child)] =
            Some(Table { numbers: self.numbers, open: self.open.clone() });
    }

    /// It is this process's turn, which lives.
    pub fn change_turn(&mut self, to: u8) {
        let to = usize::from(to);
        let Some(next) = self.elsewhere[to].take() else { return };
        let open = std::mem::replace(&mut self.open, next.open);
        self.elsewhere[self.turn] = Some(Table { numbers: self.numbers, open });
        self.numbers = next.numbers;
        self.turn = to;
    }

    /// A child has ended; it is the parent's turn.
    pub fn ended(&mut self, child: u8) {
        self.change_turn(child);
        while let Some(number) = self.first_open() {
            self.closed(number);
        }
        self.change_turn(0);
        self.elsewhere[usize::from(child)] = None;
    }

    /// A child that lives, if any does.
    pub fn living_child(&self) -> Option<u8> {
        (1..=CHILDREN).find(|child| self.has_child(*child))
    }

    /// Whether a number stands for the same in the parent.
    pub fn is_parents(&self, number: i32) -> bool {
        self.turn == 0
            || usize::try_from(number).is_ok_and(|at| {
                at < NUMBERS
                    && self.table(0).is_some_and(|table| table.numbers[at] == self.numbers[at])
            })
    }
}
