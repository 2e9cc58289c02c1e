//! userfaultfds: threads that read or poll the same one take turns ([`wakeset_group::turn`]), so
//! that a fault wakes one of them.
//!
//! A number is taken for a userfaultfd from userfaultfd(2) or `USERFAULTFD_IOC_NEW` on, or once an
//! ioctl(2) that only a userfaultfd answers has succeeded on it, as every program that serves
//! faults makes them; until its next close. So one that was inherited, received or duplicated needs
//! no look at each number that the program reads from.
//!
//! | call | the thread that has the turn | the other threads |
//! |---|---|---|
//! | read(2), blocking | is in read(2); gives the turn up when it returns, to the first thread that comes | sleep on a futex each; one of them is woken |
//! | read(2) with `O_NONBLOCK` | not asked for; the read passes on the turn of the thread that was told of this message | – |
//! | poll(2), ppoll(2) | is in that call; keeps the turn when told of a message, until that is read | sleep on a futex, or in ppoll(2) on the other descriptors and a doorbell |
//!
//! **Signals.** Before a handler of the program runs, [`before_handler`] gives up what the thread
//! has or waits for: the handler may take its time, touch a page that another thread has to bring,
//! read the same userfaultfd, or never come back (siglongjmp(3)).
//!
//! **Rescue.** A thread that was told of a message and does not read it (it died, or does something
//! else) keeps the others waiting for [`RESCUE`](wakeset_fd::listeners::RESCUE) at most: then one
//! of them takes the turn over. The clock is the group's, so it goes on while their calls end and
//! begin again.
//!
//! | file | concept |
//! |---|---|
//! | `groups` | which numbers are userfaultfds, and the threads of each |
//! | `thread` | what a thread has to give up before a handler runs |
//! | `using` | a call under way |
//! | `read`, `poll` | the two kinds of call |

mod groups;
mod poll;
mod read;
mod thread;
mod using;

pub(crate) use groups::{
    after_ioctl, any, before_close, before_close_range, before_dup_to, is_known, leave_to_kernel,
    recognise, start,
};
pub(crate) use poll::poll;
pub(crate) use read::{after_read, read};
pub(crate) use thread::before_handler;
