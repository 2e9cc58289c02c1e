//! A loaded object: its names, and its symbols by name.

use core::ffi::{CStr, c_char};
use core::ptr;
use libc::Elf64_Sym as Symbol;

/// The part of `struct link_map` that `<link.h>` shows.
#[repr(C)]
#[derive(Debug)]
pub(super) struct LinkMap {
    base: usize,
    name: *const c_char,
    pub(super) dynamic: *const Dynamic,
    pub(super) next: *const LinkMap,
}

/// An entry of an object's dynamic section.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Dynamic {
    tag: usize,
    value: usize,
}

const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_SONAME: usize = 14;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;

/// Of a symbol's version: it is not the one that a reference without a version means.
const HIDDEN: u16 = 1 << 15;

/// A loaded object. What it points to stays as long as the object is loaded; only objects that are
/// never unloaded come here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    base: usize,
    name: &'static CStr,
    dynamic: *const Dynamic,
    soname: Option<usize>,
    strings: *const c_char,
    symbols: *const Symbol,
    versions: *const u16,
    /// The table of `DT_GNU_HASH`, or null.
    gnu_hash: *const u32,
    /// The table of `DT_HASH`, or null.
    hash: *const u32,
}

impl Object {
    /// The object of a link map.
    ///
    /// # Safety
    /// `map` is one of the loader's, of an object that stays loaded.
    pub(super) unsafe fn of(map: &'static LinkMap) -> Self {
        // SAFETY: the loader's string; null only in a map that is being made.
        let name = if map.name.is_null() { c"" } else { unsafe { CStr::from_ptr(map.name) } };
        // SAFETY: the caller's contract.
        unsafe { Self::at(map.base, name, map.dynamic) }
    }

    /// The object that is loaded there, with its dynamic section.
    ///
    /// # Safety
    /// It stays loaded as long as this value is used.
    pub(super) unsafe fn at(base: usize, name: &'static CStr, dynamic: *const Dynamic) -> Self {
        let mut object = Self {
            base,
            name,
            dynamic,
            soname: None,
            strings: ptr::null(),
            symbols: ptr::null(),
            versions: ptr::null(),
            gnu_hash: ptr::null(),
            hash: ptr::null(),
        };
        // The loader has added the base in place, but not where the section cannot be written.
        let address = |value: usize| if value < base { value + base } else { value };
        let mut entry = dynamic;
        // SAFETY: the section ends with an entry of tag 0.
        while let Some(Dynamic { tag: tag @ 1.., value }) = unsafe { entry.as_ref() } {
            let pointer = address(*value);
            match *tag {
                DT_SONAME => object.soname = Some(*value),
                DT_STRTAB => object.strings = pointer as *const c_char,
                DT_SYMTAB => object.symbols = pointer as *const Symbol,
                DT_VERSYM => object.versions = pointer as *const u16,
                DT_GNU_HASH => object.gnu_hash = pointer as *const u32,
                DT_HASH => object.hash = pointer as *const u32,
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
        object
    }

    /// Where it is loaded.
    pub(super) fn base(&self) -> usize {
        self.base
    }

    /// The path that it was loaded from.
    pub(super) fn name(&self) -> &'static CStr {
        self.name
    }

    /// Its dynamic section, which tells it from every other object.
    pub(super) fn dynamic(&self) -> *const Dynamic {
        self.dynamic
    }

    /// The name that other objects are linked to it by; empty for none.
    pub(super) fn soname(&self) -> &'static CStr {
        self.soname.map_or(c"", |offset| self.string(offset))
    }

    fn string(&self, offset: usize) -> &'static CStr {
        // SAFETY: offsets in the object's own tables lead to strings of its string table.
        unsafe { CStr::from_ptr(self.strings.wrapping_add(offset)) }
    }

    fn symbol(&self, index: u32) -> &'static Symbol {
        // SAFETY: indices in the object's own hash table lead to symbols of its symbol table.
        unsafe { &*self.symbols.wrapping_add(index as usize) }
    }

    /// Whether it has a function of this name.
    pub(super) fn has(&self, name: &CStr) -> bool {
        self.find(name).is_some()
    }

    /// The function that a reference to this name without a version means.
    pub(super) fn find(&self, name: &CStr) -> Option<&'static Symbol> {
        let mut found = None;
        self.each(name, |symbol, hidden| {
            if !hidden && found.is_none() {
                found = Some(symbol);
            }
        });
        found
    }

    /// Calls `f` with the functions of this name, one for each version, and whether it is an older
    /// version than that which is meant where none is given.
    pub(super) fn each(&self, name: &CStr, mut f: impl FnMut(&'static Symbol, bool)) {
        if self.symbols.is_null() || self.strings.is_null() {
            return;
        }
        self.each_index(name, |index| {
            let symbol = self.symbol(index);
            if is_function(symbol) && self.string(symbol.st_name as usize) == name {
                let version = self.versions.wrapping_add(index as usize);
                // SAFETY: there is a version for each symbol, or none at all.
                let version = if self.versions.is_null() { 0 } else { unsafe { version.read() } };
                f(symbol, version & HIDDEN != 0);
            }
        });
    }

    /// Calls `f` with the index of each symbol that may have this name.
    fn each_index(&self, name: &CStr, f: impl FnMut(u32)) {
        if !self.gnu_hash.is_null() {
            self.each_in_gnu_hash(name, f);
        } else if !self.hash.is_null() {
            self.each_in_hash(f);
        }
    }

    /// One of the words of the hash table.
    fn word(&self, index: usize) -> u32 {
        // SAFETY: the callers follow the table's own indices.
        unsafe { self.gnu_hash.wrapping_add(index).read() }
    }

    /// The parts of `DT_GNU_HASH`: buckets, first symbol, words of the Bloom filter, its shift.
    fn parts(&self) -> [usize; 4] {
        [0, 1, 2, 3].map(|index| self.word(index) as usize)
    }

    fn each_in_gnu_hash(&self, name: &CStr, mut f: impl FnMut(u32)) {
        let [buckets, first, bloom_words, shift] = self.parts();
        if buckets == 0 || bloom_words == 0 {
            return;
        }
        let hash = name
            .to_bytes()
            .iter()
            .fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()));
        let bloom = 4 + hash as usize / 64 % bloom_words * 2;
        let bloom = u64::from(self.word(bloom)) | u64::from(self.word(bloom + 1)) << 32;
        let wanted = 1 << (hash % 64) | 1 << ((hash >> shift) % 64);
        if bloom & wanted != wanted {
            return;
        }
        let bucket = 4 + bloom_words * 2 + hash as usize % buckets;
        let chains = 4 + bloom_words * 2 + buckets;
        let mut index = self.word(bucket) as usize;
        while index >= first {
            let entry = self.word(chains + index - first);
            if (entry ^ hash) >> 1 == 0 {
                f(index as u32);
            }
            if entry & 1 != 0 {
                return;
            }
            index += 1;
        }
    }

    /// All symbols: an object without the newer table is rare, and small.
    fn each_in_hash(&self, mut f: impl FnMut(u32)) {
        // SAFETY: the second word is the number of symbols.
        let symbols = unsafe { self.hash.wrapping_add(1).read() };
        (0..symbols).for_each(&mut f);
    }

    /// The names of its functions, if it has `DT_GNU_HASH`.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static CStr> + use<'_> {
        let [buckets, first, bloom_words, _] =
            if self.gnu_hash.is_null() { [0; 4] } else { self.parts() };
        let (bucket, chains) = (4 + bloom_words * 2, 4 + bloom_words * 2 + buckets);
        let last = (0..buckets).map(|n| self.word(bucket + n) as usize).max().unwrap_or(0);
        // The table has the defined symbols alone, up to the end of the last chain.
        let mut end = last.max(first);
        while end > first && self.word(chains + end - first) & 1 == 0 {
            end += 1;
        }
        let symbols = (first..=end).filter(move |_| last >= first && buckets != 0);
        symbols
            .map(|index| self.symbol(index as u32))
            .filter(|symbol| is_function(symbol))
            .map(|symbol| self.string(symbol.st_name as usize))
    }
}

/// Whether a symbol is a function that its object defines.
fn is_function(symbol: &Symbol) -> bool {
    symbol.st_shndx != 0 && symbol.st_value != 0 && matches!(kind(symbol), FUNCTION | INDIRECT)
}

fn kind(symbol: &Symbol) -> u8 {
    symbol.st_info & 0xf
}

const FUNCTION: u8 = 2;
/// `STT_GNU_IFUNC`: the value is the address of a function that returns the function's.
const INDIRECT: u8 = 10;

/// Whether a symbol's value is the address of the function itself.
pub(super) fn is_direct(symbol: &Symbol) -> bool {
    kind(symbol) == FUNCTION
}
