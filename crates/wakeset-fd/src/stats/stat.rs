//! What is counted, one entry for each word of a stripe.

/// Defines [`Stat`] and [`NAMES`] from one list, so that they cannot disagree.
macro_rules! stats {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// What is counted. The discriminant is the index of the word in a stripe.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Stat { $($(#[$doc])* $variant,)+ }

        impl Stat {
            /// Every count, in the order of the discriminants.
            pub const ALL: [Stat; [$($name),+].len()] = [$(Stat::$variant),+];
        }

        /// The name of each count in the printed JSON, by discriminant.
        pub const NAMES: [&str; Stat::COUNT] = [$($name),+];
    };
}

stats! {
    /// An eventfd was created and began in user space.
    CountersMade = "counters_made",
    /// An epoll set was created and began in user space.
    SetsMade = "sets_made",
    /// A timerfd was created and began in user space.
    TimersMade = "timers_made",
    /// A pipe or a pair of stream sockets was created and began in user space.
    PipesMade = "pipes_made",
    /// Migrated: a fork would have shared it with a child.
    MigratedFork = "fork",
    /// Migrated: the child of a vfork named it, or executed a program that inherits it.
    MigratedVfork = "vfork",
    /// Migrated: an exec kept it open (no close-on-exec).
    MigratedExec = "exec",
    /// Migrated: a spawned program inherits it.
    MigratedSpawn = "spawn",
    /// Migrated: it was passed to another process over a socket (SCM_RIGHTS).
    MigratedPassedOver = "passed_over",
    /// Migrated: a request of an io_uring named it, or requests cannot be seen.
    MigratedIoRing = "io_uring",
    /// Migrated: a request of asynchronous I/O named it (io_submit, aio_read).
    MigratedAio = "aio",
    /// Migrated: it was given to a call that is not modelled.
    MigratedUnmodelled = "unmodelled_call",
    /// Migrated: a modelled call had an argument that is not modelled.
    MigratedOddArgument = "odd_argument",
    /// Migrated: it was duplicated, and cannot have several numbers here.
    MigratedDuplicate = "duplicate",
    /// Migrated: it was nested with a set that lives in the kernel.
    MigratedNestedKernel = "nested_in_kernel",
    /// Migrated: a poll or select waited on it together with kernel descriptors.
    MigratedPoll = "poll",
    /// Migrated: a blocking timerfd was read before it had expired.
    MigratedBlocking = "blocking_read",
    /// Migrated: a table or a resource limit was reached.
    MigratedLimit = "limit",
    /// Calls to the epoll_wait family, and to poll and select that name an object here.
    Waits = "waits",
    /// Those that entered the kernel neither to check for events nor to sleep.
    WaitsInProcess = "waits_in_process",
    /// Events delivered to the program.
    Events = "events",
    /// Those that came from the kernel half of a set.
    EventsFromKernel = "events_from_kernel",
    /// Sleeping threads that were woken for what lives in process.
    Wakes = "wakes",
    /// Those that found nothing to report and slept again.
    SpuriousWakes = "spurious_wakes",
    /// System calls the program asked for that were answered in user space.
    SyscallsAvoided = "syscalls_avoided",
    /// Counters, sets and pairs that were closed while they still lived in user space.
    Closed = "closed",
    /// Messages of userfaultfds that were read by threads that take turns.
    UffdMessages = "uffd_messages",
    /// Threads that were made the leader, or told of a message, while they slept.
    UffdWakes = "uffd_wakes",
    /// Those that were told of a message and found none.
    UffdSpuriousWakes = "uffd_spurious_wakes",
    /// Objects whose number was closed by a call that was not seen.
    ClosedUnseen = "closed_unseen",
    /// Waits that slept until they ended, and entered the kernel for nothing but to sleep.
    WaitsSleptInProcess = "waits_slept_in_process",
    /// Waits on sets of the kernel's that have ended without an error.
    WaitsOfKernelSets = "waits_of_kernel_sets",
    /// Writes to eventfds, pipes and pairs that were answered in user space.
    Signals = "signals_in_process",
    /// Writes to such objects that have migrated, or began in the kernel.
    SignalsInKernel = "signals_in_kernel",
    /// Came home: it had migrated for a fork, and no child has it any more.
    HomeFork = "home_fork",
}

impl Stat {
    /// How many counts there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The counts of objects that migrated into the kernel, one for each reason.
    pub const MOVED: core::ops::RangeInclusive<usize> =
        Stat::MigratedFork as usize..=Stat::MigratedLimit as usize;
}
