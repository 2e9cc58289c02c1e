//! The loaded objects, and which of them have system call instructions.

use super::Range;
use super::frames::Frames;
use super::search::has_instruction;
use crate::loader;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::slice;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use libc::{Elf64_Phdr, dl_phdr_info};

const NAME: usize = 96;
const FOREIGN: usize = 16;

/// What a look at the loaded objects has found.
#[derive(Debug)]
pub(crate) struct Look {
    /// The executable memory of this library, of libc, of the loader and of the vDSO.
    pub(crate) own: Range,
    pub(crate) libc: Range,
    pub(crate) loader: Range,
    pub(crate) vdso: Range,
    /// That of objects with system call instructions of their own.
    foreign: [Range; FOREIGN],
    count: usize,
    /// The path of the last of them; empty for the program itself.
    name: [u8; NAME],
    /// False if there are more than we have room for.
    pub(crate) is_complete: bool,
    /// Whether an object was looked at for the first time and has such instructions.
    pub(crate) is_news: bool,
    /// Whether there is memory that may get such instructions at any time.
    pub(crate) may_have_more: bool,
    /// Whether one of them is Go's, whose stacks have no room for a signal's frame.
    pub(crate) is_go: bool,
}

/// The objects that were looked at: the address of their headers, odd if they have instructions.
/// The loader's lock guards them, which each look holds.
static SEEN: [AtomicUsize; 512] = [const { AtomicUsize::new(0) }; 512];
/// How many objects had been unloaded then: an address may be another object's since.
static UNLOADED: AtomicU64 = AtomicU64::new(0);

impl Look {
    /// Looks at all objects that are loaded.
    pub(crate) fn now() -> Self {
        let none = Range::NONE;
        let mut look = Self {
            own: none,
            libc: none,
            loader: none,
            vdso: none,
            foreign: [none; FOREIGN],
            count: 0,
            name: [0; NAME],
            is_complete: true,
            is_news: false,
            may_have_more: false,
            is_go: false,
        };
        // SAFETY: the callback gets the pointer, for as long as this call lasts.
        unsafe { loader::iterate(on_object, (&raw mut look).cast()) };
        look
    }

    /// Where the system call instructions of the program are.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = Range> {
        self.foreign.iter().take(self.count).copied()
    }

    /// Whether there are any.
    pub(crate) fn has_foreign(&self) -> bool {
        self.count != 0
    }

    /// What to call the last object that has some.
    pub(crate) fn name(&self) -> &CStr {
        match CStr::from_bytes_until_nul(&self.name) {
            Ok(name) if !name.is_empty() => name,
            _ => c"the program",
        }
    }

    /// Notes memory with instructions.
    pub(crate) fn add(&mut self, code: Range, name: &CStr) {
        let bytes = name.to_bytes();
        // The end of a long one says more than its beginning; a 0 byte stays.
        let bytes = bytes.get((bytes.len() + 1).saturating_sub(NAME)..).unwrap_or(bytes);
        self.name = [0; NAME];
        self.name.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        match self.foreign.get_mut(self.count) {
            Some(place) => {
                *place = code;
                self.count += 1;
            }
            None => self.is_complete = false,
        }
    }
}

unsafe extern "C" fn on_object(info: *mut dl_phdr_info, _: usize, look: *mut c_void) -> c_int {
    // SAFETY: what the loader passes, and what `now` has passed to it.
    let (info, look) = unsafe { (&*info, &mut *look.cast::<Look>()) };
    // SAFETY: the headers of a loaded object.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let loaded = Loaded { base: info.dlpi_addr as usize, headers };
    let code = loaded.code();
    if let Some(place) = look.trusted(&loaded) {
        *place = code;
    } else if !is_harmless(path_of(info.dlpi_name))
        && loaded.is_foreign(info.dlpi_subs, &mut look.is_news)
    {
        look.is_go |= loaded.is_go();
        look.add(code, path_of(info.dlpi_name));
    }
    0
}

/// Libraries whose system calls by instruction are about nothing that a program has made through
/// libc, by the beginning of their names: they wait on words of memory, or read files of their own.
/// libcrypto has none, but tables between its functions that contain the two bytes. The last two
/// are parts of libc before glibc 2.34, whose functions have our hooks before them as libc's do.
const HARMLESS: [&[u8]; 9] = [
    b"libgomp.so.",
    b"libitm.so.",
    b"libasan.so.",
    b"liblsan.so.",
    b"libtsan.so.",
    b"libubsan.so.",
    b"libcrypto.so.",
    b"libpthread.so.0",
    b"librt.so.1",
];

fn is_harmless(path: &CStr) -> bool {
    let path = path.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    HARMLESS.iter().any(|beginning| name.starts_with(beginning))
}

/// The path that the loader gives for an object.
fn path_of<'a>(path: *const c_char) -> &'a CStr {
    // SAFETY: null or the loader's string, which is there as long as its lock is held.
    if path.is_null() { c"" } else { unsafe { CStr::from_ptr(path) } }
}

unsafe extern "C" {
    fn gnu_get_libc_version() -> *const c_char;
}

impl Look {
    /// The place for an object that makes calls as it should.
    fn trusted(&mut self, loaded: &Loaded) -> Option<&mut Range> {
        // SAFETY: has no preconditions.
        let auxiliary = |kind| unsafe { libc::getauxval(kind) } as usize;
        let first = loaded.first();
        if loaded.has(on_object as *const () as usize) {
            Some(&mut self.own)
        } else if loaded.has(gnu_get_libc_version as *const () as usize) {
            Some(&mut self.libc)
        } else if first != 0 && first == auxiliary(libc::AT_BASE) {
            Some(&mut self.loader)
        } else if first != 0 && first == auxiliary(libc::AT_SYSINFO_EHDR) {
            Some(&mut self.vdso)
        } else {
            None
        }
    }
}

/// An object as the loader knows it.
pub(super) struct Loaded<'a> {
    pub(super) base: usize,
    pub(super) headers: &'a [Elf64_Phdr],
}

impl Loaded<'_> {
    fn memory_of(&self, header: &Elf64_Phdr) -> Range {
        let start = self.base.wrapping_add(header.p_vaddr as usize);
        Range { start, end: start.saturating_add(header.p_memsz as usize) }
    }

    fn executable(&self) -> impl Iterator<Item = Range> {
        let is_code = |header: &&Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0
        };
        self.headers.iter().filter(is_code).map(|header| self.memory_of(header))
    }

    /// From the first page of code to the last, whole pages.
    fn code(&self) -> Range {
        const PAGE: usize = 4096;
        let code = self.executable().fold(Range::NONE, Range::around);
        Range { start: code.start & !(PAGE - 1), end: code.end.next_multiple_of(PAGE) }
    }

    fn has(&self, address: usize) -> bool {
        self.executable().any(|range| range.contains(address))
    }

    /// Where its first page is.
    fn first(&self) -> usize {
        let load = self.headers.iter().find(|header| header.p_type == libc::PT_LOAD);
        load.map_or(0, |header| self.memory_of(header).start)
    }

    fn of_type(&self, kind: u32) -> impl Iterator<Item = Range> {
        self.headers.iter().filter(move |h| h.p_type == kind).map(|h| self.memory_of(h))
    }

    /// Whether it has system call instructions: looked up, or found out and remembered.
    fn is_foreign(&self, unloaded: u64, is_news: &mut bool) -> bool {
        if UNLOADED.swap(unloaded, Ordering::Relaxed) != unloaded {
            SEEN.iter().for_each(|entry| entry.store(0, Ordering::Relaxed));
        }
        let name = self.headers.as_ptr().addr() & !1;
        for entry in &SEEN {
            let seen = entry.load(Ordering::Relaxed);
            if seen != 0 && seen & !1 == name {
                return seen & 1 != 0;
            }
            if seen == 0 {
                let found = self.has_instruction();
                *is_news |= found;
                entry.store(name | usize::from(found), Ordering::Relaxed);
                return found;
            }
        }
        *is_news = true;
        self.has_instruction()
    }

    pub(super) fn has_instruction(&self) -> bool {
        let frames = self.of_type(libc::PT_GNU_EH_FRAME).next().and_then(Frames::at);
        self.executable().any(|range| {
            // SAFETY: code of a loaded object, which can be read and does not change.
            let code = unsafe {
                slice::from_raw_parts(
                    core::ptr::with_exposed_provenance::<u8>(range.start),
                    range.len(),
                )
            };
            has_instruction(code, frames)
        })
    }

    /// Whether a note says that Go's linker made it.
    fn is_go(&self) -> bool {
        // The length of the name, of what follows, the kind "build ID"; the name.
        self.of_type(libc::PT_NOTE).any(|note| {
            // SAFETY: a mapped part of a loaded object.
            let bytes = unsafe {
                slice::from_raw_parts(
                    core::ptr::with_exposed_provenance::<u8>(note.start),
                    note.len(),
                )
            };
            bytes.windows(16).step_by(4).any(|w| {
                w.get(..4) == Some(&[4, 0, 0, 0]) && w.get(8..) == Some(b"\x04\0\0\0Go\0\0")
            })
        })
    }
}
