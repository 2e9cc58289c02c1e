//! What is read.

use super::Checker;
use super::flow::Description;
use crate::log::What;
use crate::plan::Kind;

impl Checker<'_> {
    pub(super) fn check_reads(&mut self) {
        for i in 0..self.log.calls.len() {
            let call = &self.log.calls[i];
            if call.what != What::Read {
                continue;
            }
            let (_, certain) = self.resolve(call.fd, call.start, call.end);
            let Some(d) = certain.filter(|&d| self.kind(self.descriptions[d].target) != Kind::Set)
            else {
                continue;
            };
            let (fd, start, end) = (call.fd, call.start, call.end);
            match call.result {
                Ok(_) => {
                    let Description { writes, reads, .. } = &self.descriptions[d];
                    // Itself and those that ended before it.
                    let (taken, written) = (reads.before(end + 1), writes.perhaps_before(end));
                    if taken > written {
                        let text = format!("{taken} units taken of {written} at most");
                        self.broken(
                            "a unit is read once, and after it was written",
                            text,
                            &[i],
                            Some(fd),
                        );
                    }
                }
                Err(libc::EAGAIN) if self.certainly_filled(d, start, end) => {
                    let text = "nothing was read of what is there".to_string();
                    self.broken("a read finds what was written", text, &[i], Some(fd));
                }
                Err(libc::EAGAIN) => {}
                Err(errno) => {
                    let text = format!("errno {errno}");
                    self.broken("a read of an open descriptor does not fail", text, &[i], Some(fd));
                }
            }
        }
    }
}
