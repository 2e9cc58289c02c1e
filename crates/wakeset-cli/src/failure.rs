//! The error of every subcommand: a message, and the exit status that it leads to.

/// What `wakeset` itself exits with when it, and not the program, fails; as env(1) and timeout(1).
pub const OWN_FAILURE: i32 = 125;

/// An error with the exit status that it leads to.
#[derive(Debug)]
pub struct Failure {
    pub status: i32,
    pub message: String,
}

impl Failure {
    /// An error of Wakeset's own.
    pub fn own(message: impl Into<String>) -> Self {
        Failure { status: OWN_FAILURE, message: message.into() }
    }
}
