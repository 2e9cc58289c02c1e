//! libc's functions by every road that leads to them, in a process with other preloads or without,
//! and with the preload library or plain.
//!
//! | file | concept |
//! |---|---|
//! | `plugin` | the plugins, and how they are opened |
//! | `instruction` | calls by instruction, no faster than Wakeset catches them |
//!
//! A program says by which road its next calls are made. The roads that take a plugin open it when
//! they are first taken, in the midst of a program: what the library does then, it does to objects
//! that are there.

mod instruction;
mod plugin;

use super::interposed::Interposed;
use super::kernel::raw;
use super::libc_call::fork_and_reap;
use super::{Sysno, World};
use libc::{c_char, c_void};
use plugin::{Finder, Plugin};
use serde::{Deserialize, Serialize};
use std::ptr;
use std::sync::OnceLock;

/// A road to a function of libc, or past it to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Road {
    /// The executable's own binding.
    #[default]
    Name,
    /// syscall(2), by the executable's own binding.
    Number,
    /// dlsym(3) with `RTLD_DEFAULT`, from the executable.
    Default,
    /// dlsym(3) with `RTLD_NEXT`, from the executable.
    Next,
    /// dlsym(3) with the handle of dlopen(3) of libc.
    Libc,
    /// dlvsym(3) with that handle.
    LibcVersion,
    /// dlsym(3) as it is found by that handle, with that handle.
    LibcDlsym,
    /// syscall(2), as it is found by that handle.
    LibcNumber,
    /// dlsym(3) with the handle of a plugin.
    PluginHandle,
    /// dlsym(3) with `RTLD_DEFAULT`, from the plugin.
    PluginDefault,
    /// dlsym(3) with `RTLD_NEXT`, from the plugin, which was loaded after every preload.
    PluginNext,
    /// The bindings of a plugin.
    Plugin,
    /// The bindings of a plugin that was opened with `RTLD_DEEPBIND` and bound at once.
    DeepBind,
    /// The same, with each function bound at its first call.
    DeepBindLazy,
    /// syscall(2), by the bindings of such a plugin.
    DeepBindNumber,
    /// The bindings of a plugin in a name space of its own, once it is open; [`Road::Name`] before.
    NameSpace,
    /// The system call instruction. Only the programs of [`Focus::Instructions`] take it for every
    /// call; elsewhere Wakeset is told not to see it, and it only closes a number that is made
    /// anew at once.
    ///
    /// [`Focus::Instructions`]: crate::program::Focus::Instructions
    Instruction,
}

impl Road {
    /// Those that lead through libc, which programs may take for every call.
    pub const ALL: &[Self] = &[
        Road::Name,
        Road::Number,
        Road::Default,
        Road::Next,
        Road::Libc,
        Road::LibcVersion,
        Road::LibcDlsym,
        Road::LibcNumber,
        Road::PluginHandle,
        Road::PluginDefault,
        Road::PluginNext,
        Road::Plugin,
        Road::DeepBind,
        Road::DeepBindLazy,
        Road::DeepBindNumber,
        Road::NameSpace,
    ];
}

/// Which library each plugin is, in the folder that [`FOLDER`] names.
static LOCAL: OnceLock<Plugin> = OnceLock::new();
static DEEP: OnceLock<Plugin> = OnceLock::new();
static LAZY: OnceLock<Plugin> = OnceLock::new();
static SPACE: OnceLock<Plugin> = OnceLock::new();
/// The handle of libc.
static LIBC: OnceLock<usize> = OnceLock::new();

/// The environment variable that says where the plugins are.
pub const FOLDER: &str = "WAKESET_ROADS";

fn local() -> &'static Plugin {
    LOCAL.get_or_init(|| Plugin::open("road_local.so", libc::RTLD_NOW | libc::RTLD_LOCAL))
}

fn deep() -> &'static Plugin {
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
    DEEP.get_or_init(|| Plugin::open("road_now.so", flags))
}

fn lazy() -> &'static Plugin {
    let flags = libc::RTLD_LAZY | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
    LAZY.get_or_init(|| Plugin::open("road_lazy.so", flags))
}

fn libc_handle() -> *mut c_void {
    let open = || {
        // SAFETY: a C string.
        let handle = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "libc cannot be opened");
        handle.expose_provenance()
    };
    ptr::with_exposed_provenance_mut(*LIBC.get_or_init(open))
}

/// Finders: what dlsym(3) or dlvsym(3) says to the executable.
macro_rules! finders {
    ($($(#[$doc:meta])* fn $finder:ident($name:ident, $version:ident) = $find:expr;)+) => {$(
        $(#[$doc])*
        extern "C" fn $finder($name: *const c_char, $version: *const c_char) -> *mut c_void {
            let _ = $version;
            // SAFETY: the plugin passes C strings; the handles stay open.
            unsafe { $find }
        }
    )+};
}

finders! {
    fn by_default(name, _version) = libc::dlsym(libc::RTLD_DEFAULT, name);
    fn by_next(name, _version) = libc::dlsym(libc::RTLD_NEXT, name);
    fn by_libc(name, _version) = libc::dlsym(libc_handle(), name);
    fn by_version(name, version) = libc::dlvsym(libc_handle(), name, version);
    fn by_plugin(name, _version) = libc::dlsym(local().handle(), name);
    fn by_libcs_dlsym(name, _version) = {
        type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
        let dlsym = libc::dlsym(libc_handle(), c"dlsym".as_ptr());
        std::mem::transmute::<*mut c_void, Dlsym>(dlsym)(libc_handle(), name)
    };
}

/// libc's functions by the road that was last chosen.
#[derive(Debug, Default)]
pub struct Roads {
    road: Road,
    interposed: Interposed,
    /// So many programs take only the roads that lead past nothing.
    quiet: u32,
    /// Calls by instruction are caught.
    catches: bool,
}

/// How many programs find objects in process where a preload behind Wakeset's wraps a call. Then
/// the other roads are taken, and everything is the kernel's. In several threads that begins with
/// the second block, because no other thread's program may be running.
const QUIET: u32 = 128;

impl Roads {
    /// For a process with such a preload.
    pub fn before_another() -> Self {
        Self { quiet: QUIET, ..Self::default() }
    }

    /// For a process in which calls by instruction are caught.
    pub fn with_instructions() -> Self {
        Self { catches: true, ..Self::default() }
    }
}

/// How a road's calls are made.
enum Way {
    /// By the executable.
    Own { by_number: bool },
    /// By a plugin: its function for the call, or for syscall(2).
    Of { plugin: &'static Plugin, find: Option<Finder>, by_number: bool },
    /// By instruction.
    Instruction,
}

fn way(road: Road) -> Way {
    let found = |find: Finder| Way::Of { plugin: local(), find: Some(find), by_number: false };
    let bound = |plugin| Way::Of { plugin, find: None, by_number: false };
    match road {
        Road::Name => Way::Own { by_number: false },
        Road::Number => Way::Own { by_number: true },
        Road::Default => found(by_default),
        Road::Next => found(by_next),
        Road::Libc => found(by_libc),
        Road::LibcVersion => found(by_version),
        Road::LibcDlsym => found(by_libcs_dlsym),
        Road::LibcNumber => Way::Of { plugin: local(), find: Some(by_libc), by_number: true },
        Road::PluginHandle => found(by_plugin),
        Road::PluginDefault => found(local().default),
        Road::PluginNext => found(local().next),
        Road::Plugin => bound(local()),
        Road::DeepBind => bound(deep()),
        Road::DeepBindLazy => bound(lazy()),
        Road::DeepBindNumber => Way::Of { plugin: deep(), find: None, by_number: true },
        Road::NameSpace => match SPACE.get() {
            Some(plugin) => bound(plugin),
            None => Way::Own { by_number: false },
        },
        Road::Instruction => Way::Instruction,
    }
}

impl World for Roads {
    fn begin(&mut self, by_number: bool) {
        if self.quiet == 1 {
            self.end_quiet();
        }
        self.quiet = self.quiet.saturating_sub(1);
        self.road = if by_number { Road::Number } else { Road::Name };
    }

    fn take(&mut self, road: Road) {
        let leads_past = !matches!(
            road,
            Road::Name | Road::Number | Road::Default | Road::PluginDefault | Road::Plugin
        );
        self.road = if self.quiet > 0 && leads_past { Road::Name } else { road };
    }

    fn end_quiet(&mut self) {
        if self.quiet > 0 {
            // While no object is there whose edges a migration would report once more.
            libc_handle();
            by_libc(c"open".as_ptr(), c"GLIBC_2.2.5".as_ptr());
            self.quiet = 0;
        }
    }

    fn open_name_space(&mut self) {
        SPACE.get_or_init(|| Plugin::open_apart("road_space.so"));
    }

    fn complaint(&mut self) -> Option<&'static str> {
        let is_left = self.catches && SPACE.get().is_none() && !instruction::is_in_process();
        is_left.then_some("everything was left to the kernel, so nothing was compared")
    }

    unsafe fn call(&mut self, number: Sysno, arguments: [usize; 6]) -> isize {
        // SAFETY: the caller's contract, for all of these.
        unsafe {
            match way(self.road) {
                Way::Own { by_number } => {
                    self.interposed.begin(by_number);
                    self.interposed.call(number, arguments)
                }
                Way::Of { plugin, find, by_number } => {
                    let call = if by_number { plugin.number } else { plugin.call };
                    call(find, number.id().into(), &arguments) as isize
                }
                Way::Instruction => {
                    if self.catches {
                        instruction::keep_pace();
                    }
                    raw(number, arguments)
                }
            }
        }
    }

    fn fork(&mut self) {
        match way(self.road) {
            // The libc of another name space has no part in it.
            Way::Of { plugin, find, .. } if self.road != Road::NameSpace => {
                (plugin.fork)(find);
            }
            Way::Instruction => instruction::fork_and_reap(),
            _ => fork_and_reap(),
        }
    }
}
