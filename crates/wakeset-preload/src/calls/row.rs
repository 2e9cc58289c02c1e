//! How a row of the [table](super::table) becomes exported hooks and a case of the decoder of
//! `syscall()`.
//!
//! Both come from `road!`, which makes the code of the row's policy around a way to make the real
//! call: libc's function of that name for a hook, libc's `syscall` for the decoder. So the two
//! roads cannot drift apart.

use core::ffi::{CStr, c_int, c_long, c_uint};
use core::ptr;

/// The argument registers of a system call.
pub(crate) type Registers = [usize; 6];

/// A type that travels in one argument register.
pub(super) trait Argument: Sized {
    /// The argument in a register, whose upper half the caller need not have cleared.
    fn of(register: usize) -> Self;

    /// The register that the kernel is to see.
    fn register(self) -> usize;
}

macro_rules! integers {
    ($($type:ty)+) => {$(
        impl Argument for $type {
            fn of(register: usize) -> Self {
                register as Self
            }

            fn register(self) -> usize {
                self as usize
            }
        }
    )+};
}

integers!(c_int c_uint c_long usize u64);

impl<T> Argument for *const T {
    fn of(register: usize) -> Self {
        ptr::with_exposed_provenance(register)
    }

    fn register(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Argument for *mut T {
    fn of(register: usize) -> Self {
        ptr::with_exposed_provenance_mut(register)
    }

    fn register(self) -> usize {
        self.expose_provenance()
    }
}

/// The registers of a call that is made again with these arguments first.
pub(super) fn replaced<const N: usize>(mut registers: Registers, first: [usize; N]) -> Registers {
    for (register, argument) in registers.iter_mut().zip(first) {
        *register = argument;
    }
    registers
}

/// The name of a row, which ends with a zero byte.
pub(crate) const fn name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// The code of a row's policy. `$call` makes the real call, and `$name` is what statistics call it.
macro_rules! road {
    ($name:ident [$($arg:ident)*] body [$body:path], $call:expr) => { $body($($arg,)* $call) };
    ($name:ident [$($arg:ident)*] migrates [$($fd:ident)+], $call:expr) => {{
        use wakeset_fd::{migrate, stats::Stat};
        const NAME: &core::ffi::CStr = crate::calls::row::name(concat!(stringify!($name), "\0"));
        $(migrate::fd_for($fd as c_int, Stat::MigratedUnmodelled, NAME);)+
        ($call)($($arg),*)
    }};
    ($name:ident [$($arg:ident)*] opens [$path:ident], $call:expr) => {{
        crate::calls::path::before_open(core::ptr::with_exposed_provenance($path));
        let call = $call;
        let result = crate::calls::room::number(|| call($($arg),*), |result| result as c_int);
        wakeset_fd::migrate::number_is_new(result as c_int);
        result
    }};
    ($name:ident [$($arg:ident)*] opens_stream [$path:ident], $call:expr) => {{
        crate::calls::path::before_open(core::ptr::with_exposed_provenance($path));
        let call = $call;
        crate::calls::path::after_open_stream(crate::calls::room::stream(|| call($($arg),*)))
    }};
    ($name:ident [$($arg:ident)*] makes [], $call:expr) => {{
        let call = $call;
        let result = crate::calls::room::number(|| call($($arg),*), |result| result as c_int);
        wakeset_fd::migrate::number_is_new(result as c_int);
        result
    }};
    ($name:ident [$($arg:ident)*] makes_or_keeps [$fd:ident], $call:expr) => {{
        let call = $call;
        let result = crate::calls::room::number(|| call($($arg),*), |result| result as c_int);
        if $fd as c_int == -1 {
            wakeset_fd::migrate::number_is_new(result as c_int);
        }
        result
    }};
    ($name:ident [$($arg:ident)*] makes_stream [], $call:expr) => {{
        let call = $call;
        crate::calls::path::after_open_stream(crate::calls::room::stream(|| call($($arg),*)))
    }};
    ($name:ident [$($arg:ident)*] makes_directory [], $call:expr) => {{
        let call = $call;
        crate::calls::path::after_open_directory(crate::calls::room::stream(|| call($($arg),*)))
    }};
    ($name:ident [$($arg:ident)*] leaves [$reason:ident], $call:expr) => {{
        wakeset_fd::migrate::everything_for_good(wakeset_fd::stats::Stat::$reason);
        ($call)($($arg),*)
    }};
    ($name:ident [$($arg:ident)*] first [$($first:expr),+], $call:expr) => {{
        $($first;)+
        ($call)($($arg),*)
    }};
}

/// An exported hook. Arguments without a type are registers.
macro_rules! hook {
    (
        $abi:literal $name:ident ($($arg:ident $(: $type:ty)?),*) -> $ret:tt
        $policy:ident $what:tt
    ) => {
        hook!(@typed $abi $name ($($arg: argument_type!($($type)?)),*) -> $ret $policy $what);
    };
    (
        @typed $abi:literal $name:ident ($($arg:ident: $type:ty),*) -> $ret:tt
        $policy:ident $what:tt
    ) => {
        /// libc's function of this name; see the table.
        #[unsafe(no_mangle)]
        pub unsafe extern $abi fn $name($($arg: $type),*) -> $ret {
            type Function = unsafe extern $abi fn($($type),*) -> $ret;
            const NAME: &core::ffi::CStr =
                crate::calls::row::name(concat!(stringify!($name), "\0"));
            static FUNCTION: core::sync::atomic::AtomicPtr<core::ffi::c_void> =
                core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());
            /// Libc's function, which is not known yet. So a hook that ends in it ends in a jump,
            /// and has nothing to keep over a look-up.
            unsafe extern $abi fn look_up_and_call($($arg: $type),*) -> $ret {
                let found = crate::real::look_up(&FUNCTION, NAME);
                // SAFETY: the caller's contract.
                unsafe { crate::real::typed::<Function>(found)($($arg),*) }
            }
            // SAFETY: the caller's contract is that of libc's function.
            unsafe {
                road!($name [$($arg)*] $policy $what, |$($arg: $type),*| {
                    crate::real::known_or::<Function>(&FUNCTION, look_up_and_call)($($arg),*)
                })
            }
        }
    };
}

/// Another name for a hook.
macro_rules! alias {
    ($abi:literal $alias:ident = $name:ident ($($arg:ident $(: $type:ty)?),*) -> $ret:tt) => {
        /// glibc's other name for a function; see the table.
        #[unsafe(no_mangle)]
        pub unsafe extern $abi fn $alias($($arg: argument_type!($($type)?)),*) -> $ret {
            // SAFETY: the same contract.
            unsafe { $name($($arg),*) }
        }
    };
}

macro_rules! argument_type {
    () => {
        usize
    };
    ($type:ty) => {
        $type
    };
}

/// Whether a policy may answer a call without libc's function.
macro_rules! policy_answers {
    (body) => {
        true
    };
    ($other:ident) => {
        false
    };
}

/// Whether a policy acts before the real call, and afterwards only on the number that it returns.
macro_rules! acts_before {
    (body) => {
        false
    };
    (by_hand) => {
        false
    };
    ($other:ident) => {
        true
    };
}

/// A case of the decoder: the row's policy around the same system call.
macro_rules! decoded {
    (
        $name:ident $registers:ident $call:ident ($($arg:ident $(: $type:ty)?),*) -> $ret:tt
        $policy:ident $what:tt
    ) => {{
        let [$($arg,)* ..] = $registers;
        $(let $arg = <argument_type!($($type)?) as row::Argument>::of($arg);)*
        road!($name [$($arg)*] $policy $what, |$($arg: argument_type!($($type)?)),*| {
            $call(row::replaced($registers, [$(row::Argument::register($arg)),*])) as $ret
        }) as c_long
    }};
}

/// Makes the hooks of a part of the table, and its `decode`.
macro_rules! calls {
    ($(
        $abi:literal $row:ident $args:tt -> $ret:tt {
            $(names [$name:ident $($also:ident)*])?
            $(alias [$($alias:ident)+])?
            $(hand [$($hand:ident)+])?
            $(number [$($number:ident)+])?
            $(raw [$($raw:ident = $adapter:path),+])?
            => $policy:ident $what:tt
            $class:ident $note:literal
            $(apart $apart:literal)?
        }
    )+) => {
        #[allow(unused_imports, reason = "a part of the table has not every kind of row")]
        use crate::calls::{
            create, descriptor, epoll, fork, instruction, path, poll, process, read_write, row,
            sandbox, select, socket, uring,
        };
        #[allow(unused_imports, reason = "as above")]
        use crate::signals;
        #[allow(unused_imports, reason = "as above")]
        use core::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
        #[allow(unused_imports, reason = "as above")]
        use libc::{
            epoll_event, fd_set, iovec, itimerspec, mmsghdr, msghdr, nfds_t, pollfd, sigset_t,
            size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
        };

        $($(
            hook!($abi $name $args -> $ret $policy $what);
            $(hook!($abi $also $args -> $ret $policy $what);)*
        )?)+
        $($($(
            alias!($abi $alias = $row $args -> $ret);
        )+)?)+

        /// Whether a system call is in a row of this part of the table.
        #[inline]
        pub(super) const fn has(number: syscalls::Sysno) -> bool {
            match number {
                $($($(syscalls::Sysno::$number => true,)+)?)+
                $($($(syscalls::Sysno::$raw => true,)+)?)+
                _ => false,
            }
        }

        /// Whether a name is that of a call in this part of the table which may be answered here.
        #[allow(dead_code, reason = "the calls of `memory` are all made")]
        pub(super) fn answers(name: &[u8]) -> bool {
            $(
                if policy_answers!($policy) {
                    let named: &[&str] = &[
                        $(stringify!($name), $(stringify!($also),)*)?
                        $($(stringify!($alias),)+)?
                        $($(stringify!($hand),)+)?
                    ];
                    if named.iter().any(|own| own.as_bytes() == name) {
                        return true;
                    }
                }
            )+
            false
        }

        /// Whether the row of a system call acts before the real call, which it makes with these
        /// arguments, and afterwards only on the number that it returns.
        pub(super) const fn acts_before(number: syscalls::Sysno) -> bool {
            match number {
                $($($(syscalls::Sysno::$number => acts_before!($policy),)+)?)+
                _ => false,
            }
        }

        /// A system call of this part of the table by its number, as through its libc name; `call`
        /// makes it.
        ///
        /// # Safety
        /// The registers are as that call wants them.
        #[inline(always)]
        pub(super) unsafe fn decode(
            number: syscalls::Sysno,
            registers: row::Registers,
            call: impl Fn(row::Registers) -> c_long,
        ) -> c_long {
            // SAFETY: the caller's contract.
            unsafe {
                match number {
                    $($($(
                        syscalls::Sysno::$number => {
                            decoded!($number registers call $args -> $ret $policy $what)
                        }
                    )+)?)+
                    $($($(
                        syscalls::Sysno::$raw => $adapter(registers, call),
                    )+)?)+
                    _ => call(registers),
                }
            }
        }
    };
}
