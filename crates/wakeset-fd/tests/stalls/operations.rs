//! What another thread does beside the stopped one.

use crate::descriptors::{is_readable, migrate, mix, write_fast};
use crate::polls;
use crate::world::{B, ET, IN, ONESHOT, World, add, epoll, eventfd, read, wait, write};
use std::sync::Arc;
use wakeset_fd as fd;

pub struct Operation {
    pub name: &'static str,
    pub run: fn(&Arc<World>) -> Result<(), String>,
    /// It uses a counter and nothing else: it never waits for a thread but one that migrates that
    /// counter. Other operations may wait for a thread that migrates or closes anything in the
    /// same set, or that holds the set's lock.
    pub of_counter: bool,
}

const fn operation(name: &'static str, run: fn(&Arc<World>) -> Result<(), String>) -> Operation {
    Operation { name, run, of_counter: false }
}

const fn of_counter(name: &'static str, run: fn(&Arc<World>) -> Result<(), String>) -> Operation {
    Operation { of_counter: true, ..operation(name, run) }
}

fn use_new_objects() -> Result<(), String> {
    let (set, number) = (epoll(), eventfd());
    add(set, number, IN | ET, 7);
    assert!(write(number, 1));
    let reported = wait(set, 0);
    fd::close(set).unwrap();
    fd::close(number).unwrap();
    if reported == [7] { Ok(()) } else { Err(format!("a new set reports {reported:?}")) }
}

pub fn operations() -> Vec<Operation> {
    vec![
        of_counter("write to another source", |world| {
            assert!(write(world.b, 1));
            Ok(())
        }),
        of_counter("write to the same source", |world| {
            world.write_a(write_fast);
            Ok(())
        }),
        of_counter("read of the same source", |world| {
            world.read_a(read);
            Ok(())
        }),
        operation("wait of no time", |world| {
            world.wait(0);
            Ok(())
        }),
        operation("write to another source, and the wait that hears of it", |world| {
            let before = world.of(B);
            assert!(write(world.b, 1));
            world.hear(B, before)
        }),
        operation("a wait that sleeps, a write to another source that wakes it", |world| {
            world.start_worker();
            let before = world.of(B);
            assert!(write(world.b, 1));
            world.hear(B, before)
        }),
        operation("change of interest of the same watch", |world| {
            world.modify_a();
            Ok(())
        }),
        operation("removal of the same watch", |world| {
            world.remove_a();
            Ok(())
        }),
        operation("removal of the same watch, and add again", |world| {
            world.remove_a();
            world.add_a();
            Ok(())
        }),
        operation("removal, add, write, and the wait that hears of it", |world| {
            world.remove_a();
            world.add_a();
            let data = world.data();
            world.write_a(write);
            // A worker that was told of the removed watch may have read this write as well.
            world.hear_unless(data, 0, || !polls::is_readable(world.a()))
        }),
        operation("add of the same source elsewhere", |world| {
            let set = epoll();
            add(set, world.a(), IN, 1);
            fd::close(set).map_err(|error| format!("{error:?}"))
        }),
        operation("add of a kernel descriptor", |world| {
            mix(world);
            Ok(())
        }),
        operation("close of the same source, and another under its number", |world| {
            world.close_a();
            Ok(())
        }),
        operation("close of another source of the set", |world| {
            let number = eventfd();
            add(world.set, number, IN, 7);
            fd::close(number).map_err(|error| format!("{error:?}"))
        }),
        operation("close of a set that watches the same source", |world| {
            let set = epoll();
            add(set, world.a(), IN | ET, 1);
            let kernel = epoll();
            add(set, kernel, IN, 2);
            fd::close(set).unwrap();
            fd::close(kernel).map_err(|error| format!("{error:?}"))
        }),
        operation("duplicates of the same source and of the set", |world| {
            for number in [world.a(), world.set] {
                let copy = fd::dup(number).map_err(|error| format!("{error:?}"))?;
                fd::close(copy).map_err(|error| format!("{error:?}"))?;
            }
            Ok(())
        }),
        operation("new sets and sources", |_| (0..4).try_for_each(|_| use_new_objects())),
        operation("move of another source", |world| migrate(world.b)),
        operation("move of the same source", |world| migrate(world.a())),
        operation("move of the set", |world| migrate(world.set)),
        operation("move of everything, as before a fork", |_| {
            fd::fork::prepare().in_parent();
            Ok(())
        }),
        operation("move of the same source, write, and the wait that hears of it", |world| {
            migrate(world.a())?;
            if world.kind & ONESHOT != 0 {
                world.modify_a();
            }
            let data = world.data();
            let before = world.of(data);
            world.write_a(write);
            let number = world.a();
            // A worker on the set may have read it before this write, and reads now what it was
            // told of then. The number is the kernel's, so poll(2) says so.
            world.hear_unless(data, if world.kind & ONESHOT != 0 { 0 } else { before }, || {
                !is_readable(number)
            })
        }),
    ]
}
