//! What `/proc/PID/fdinfo/N` says of a descriptor: the watches of an epoll set, the count of an
//! eventfd, the expiries of a timerfd. The format is that of proc_pid_fdinfo(5).

use std::collections::HashMap;

/// One entry of a set's interest list.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// The number that the description had in the process that added it.
    pub number: i32,
    /// As in `struct epoll_event`, with the flags.
    pub events: u32,
    pub data: u64,
    /// The description's inode; 0 where Linux does not say it (before 5.x).
    pub inode: u64,
    /// How many entries before this one have the same number. kcmp(2) counts them in this order.
    pub before: u32,
}

/// What fdinfo says beside the position and the flags.
#[derive(Debug, Default, PartialEq)]
pub struct FdInfo {
    pub watches: Vec<Watch>,
    /// An eventfd's count, or a timerfd's expiries that were not read.
    pub level: Option<u64>,
}

impl FdInfo {
    /// Reads the text. Lines of another form are passed over: other kinds of files have their own.
    pub fn parse(text: &str) -> Self {
        let mut info = FdInfo::default();
        let mut seen: HashMap<i32, u32> = HashMap::new();
        for line in text.lines() {
            if let Some(mut watch) = watch(line) {
                let same = seen.entry(watch.number).or_default();
                watch.before = *same;
                *same += 1;
                info.watches.push(watch);
            } else if let Some(count) = line.strip_prefix("eventfd-count:") {
                info.level = u64::from_str_radix(count.trim(), 16).ok();
            } else if let Some(ticks) = line.strip_prefix("ticks:") {
                info.level = ticks.trim().parse().ok();
            }
        }
        info
    }
}

/// A line `tfd:        5 events:       19 data:     7fc100000005  pos:0 ino:2f4d20e sdev:f`.
fn watch(line: &str) -> Option<Watch> {
    let (number, rest) = line.strip_prefix("tfd:")?.split_once("events:")?;
    let (events, rest) = rest.split_once("data:")?;
    let mut words = rest.split_whitespace();
    let data = words.next()?;
    let inode = words.find_map(|word| word.strip_prefix("ino:")).unwrap_or("0");
    Some(Watch {
        number: number.trim().parse().ok()?,
        events: u32::from_str_radix(events.trim(), 16).ok()?,
        data: u64::from_str_radix(data, 16).ok()?,
        inode: u64::from_str_radix(inode, 16).ok()?,
        before: 0,
    })
}

pub const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
pub const EDGE: u32 = libc::EPOLLET as u32;
pub const IN: u32 = libc::EPOLLIN as u32;

impl Watch {
    pub fn has(&self, flag: u32) -> bool {
        self.events & flag != 0
    }

    /// The events and flags by name, as a C program writes them. `ERR` and `HUP`, which Linux adds
    /// to every watch, are left out.
    pub fn flags(&self) -> String {
        const NAMES: [(u32, &str); 11] = [
            (IN, "IN"),
            (libc::EPOLLPRI as u32, "PRI"),
            (libc::EPOLLOUT as u32, "OUT"),
            (libc::EPOLLRDNORM as u32, "RDNORM"),
            (libc::EPOLLWRNORM as u32, "WRNORM"),
            (libc::EPOLLMSG as u32, "MSG"),
            (libc::EPOLLRDHUP as u32, "RDHUP"),
            (EXCLUSIVE, "EXCLUSIVE"),
            (libc::EPOLLWAKEUP as u32, "WAKEUP"),
            (libc::EPOLLONESHOT as u32, "ONESHOT"),
            (EDGE, "ET"),
        ];
        let names = NAMES.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| *name);
        let names: Vec<_> = names.collect();
        if names.is_empty() { "none".to_string() } else { names.join("|") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = "pos:\t0\nflags:\t02000002\nmnt_id:\t17\nino:\t1038\n\
        tfd:        5 events:       19 data:     7fc100000005  pos:0 ino:2f4d20e sdev:f\n\
        tfd:        3 events: 90000019 data:     7fc100000003  pos:0 ino:2f4d20d sdev:9\n\
        tfd:        3 events:       1d data: ffffffffffffffff  pos:0 ino:40e sdev:10\n";

    #[test]
    fn a_set_is_read() {
        let info = FdInfo::parse(RECORDED);
        let [pipe, listener, again] = &info.watches[..] else { panic!("{info:?}") };
        assert_eq!((pipe.number, pipe.inode, pipe.data), (5, 0x2f4d20e, 0x7fc1_0000_0005));
        assert_eq!(pipe.flags(), "IN");
        assert_eq!(listener.flags(), "IN|EXCLUSIVE|ET");
        assert_eq!((listener.before, again.before), (0, 1));
        assert_eq!((again.flags().as_str(), again.data), ("IN|OUT", u64::MAX));
        assert_eq!(info.level, None);
    }

    #[test]
    fn counts_are_read() {
        let eventfd = "pos:\t0\neventfd-count:               1f\neventfd-id: 6\n";
        assert_eq!(FdInfo::parse(eventfd).level, Some(31));
        let timerfd = "clockid: 1\nticks: 12\nsettime flags: 00\nit_value: (0, 0)\n";
        assert_eq!(FdInfo::parse(timerfd).level, Some(12));
    }

    #[test]
    fn other_text_says_nothing() {
        for text in ["", "tfd:", "tfd: x events: 1 data: 1", "tfd: 1 events: zz data: 1", "ticks:"]
        {
            assert_eq!(FdInfo::parse(text), FdInfo::default(), "{text}");
        }
    }

    /// Linux before 5.6 wrote no inode.
    #[test]
    fn an_inode_may_be_missing() {
        let info = FdInfo::parse("tfd:        7 events:        1 data:        7\n");
        assert_eq!(info.watches[0].inode, 0);
    }
}
