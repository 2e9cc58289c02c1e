//! What is compared.

/// How the service threads wait.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Wait {
    /// A userfaultfd without O_NONBLOCK, read
    Read,
    /// One with O_NONBLOCK, polled and read
    Poll,
}

impl Wait {
    pub const ALL: [Wait; 2] = [Wait::Read, Wait::Poll];

    pub fn name(self) -> &'static str {
        match self {
            Wait::Read => "read",
            Wait::Poll => "poll",
        }
    }
}

/// What serves the faults.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Side {
    Kernel,
    Run,
    Pool,
}

impl Side {
    pub const ALL: [Side; 3] = [Side::Kernel, Side::Run, Side::Pool];

    pub fn name(self) -> &'static str {
        match self {
            Side::Kernel => "kernel",
            Side::Run => "wakeset run",
            Side::Pool => "pool",
        }
    }
}
