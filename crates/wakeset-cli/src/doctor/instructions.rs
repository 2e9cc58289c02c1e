//! The system call instructions in a file's code: they pass libc, and so the hooks.
//!
//! The two bytes of `syscall` also occur inside other instructions, and in tables between
//! functions. So the code before them is disassembled from the beginning of the function, as the
//! unwind table (`.eh_frame_hdr`) has it; what is in no function of the table needs a symbol with a
//! size that covers it. In a file without that table the disassembly begins some hundred bytes
//! earlier, within which it finds the instructions' beginnings.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Code, Decoder, DecoderOptions};
use object::read::elf::ElfFile64;
use object::{NativeEndian, Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

/// The instructions of one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    pub count: usize,
    /// The functions that they are in, as far as there are names.
    pub functions: BTreeSet<String>,
}

const SYSCALL: &[u8] = &[0x0f, 0x05];
/// Pairs of these bytes that are looked at in one file.
const MOST: usize = 10_000;
/// From where, in a file that has no functions.
const BEFORE: u64 = 256;

/// Finds them in the code of a file.
pub fn find(file: &ElfFile64<'_, NativeEndian>) -> Instructions {
    let mut found = Instructions::default();
    let mut functions = None;
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
        let Ok(code) = section.data() else { continue };
        let pairs = code.windows(2).enumerate().filter(|(_, bytes)| *bytes == SYSCALL);
        for (at, _) in pairs.take(MOST) {
            let functions = functions.get_or_insert_with(|| Functions::of(file));
            let at = section.address() + at as u64;
            let Some(from) = functions.start(at) else { continue };
            if is_instruction(code, section.address(), from.max(section.address()), at) {
                found.count += 1;
                found.functions.extend(functions.name(at));
            }
        }
    }
    found
}

/// Where the functions of a file begin and end.
struct Functions {
    /// By the beginning: the size, and the name.
    named: BTreeMap<u64, (u64, String)>,
    /// By the beginning, the size; of the unwind table.
    unwound: BTreeMap<u64, u64>,
}

impl Functions {
    fn of(file: &ElfFile64<'_, NativeEndian>) -> Self {
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let functions =
            symbols.filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text);
        let named = functions
            .filter_map(|it| Some((it.address(), (it.size(), it.name().ok()?.to_string()))));
        Functions { named: named.collect(), unwound: unwound(file).unwrap_or_default() }
    }

    /// The name of the function around an address.
    fn name(&self, at: u64) -> Option<String> {
        let (start, (size, name)) = self.named.range(..=at).next_back()?;
        (*size == 0 || at - start < *size).then(|| name.clone())
    }

    /// From where to disassemble up to an address; `None` if it is in no function.
    fn start(&self, at: u64) -> Option<u64> {
        let around = |(start, size): (&u64, &u64)| (at - start < *size).then_some(*start);
        let unwound = self.unwound.range(..=at).next_back().and_then(around);
        let named = || {
            let (start, (size, _)) = self.named.range(..=at).next_back()?;
            around((start, size))
        };
        match self.unwound.is_empty() {
            false => unwound.or_else(named),
            true => named().or(Some(at.saturating_sub(BEFORE))),
        }
    }
}

/// The functions of the unwind table, whose entries are as every compiler for x86-64 makes them
/// (Linux Standard Base, "Exception Frames"). `None` if there is none, or another form of it.
fn unwound(file: &ElfFile64<'_, NativeEndian>) -> Option<BTreeMap<u64, u64>> {
    /// Version 1; how the frames' address, the count and the entries are written.
    const FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
    let (table, frames) =
        (file.section_by_name(".eh_frame_hdr")?, file.section_by_name(".eh_frame")?);
    let (bytes, frame_bytes) = (table.data().ok()?, frames.data().ok()?);
    let entries = bytes.strip_prefix(&FORM)?.get(8..)?;
    let base = table.address();
    let entry = |bytes: &[u8]| {
        let half = |at: usize| Some(i32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let address = |offset: i32| base.wrapping_add_signed(offset.into());
        let (start, frame) = (address(half(0)?), address(half(4)?));
        // After its length, the distance of what it shares with others, and the beginning.
        let at = frame.checked_sub(frames.address())? as usize + 12;
        let size = u32::from_ne_bytes(*frame_bytes.get(at..)?.first_chunk()?);
        Some((start, size.into()))
    };
    Some(entries.chunks_exact(8).filter_map(entry).collect())
}

/// Whether a disassembly from `from` comes to a system call at `at`. `code` begins at `base`.
fn is_instruction(code: &[u8], base: u64, from: u64, at: u64) -> bool {
    let Some(bytes) = code.get((from - base) as usize..) else { return false };
    let mut decoder = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE);
    while decoder.ip() < at && decoder.can_decode() {
        let _ = decoder.decode();
    }
    decoder.ip() == at && decoder.decode().code() == Code::Syscall
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_inside_an_instruction_are_none() {
        // mov eax, 0x50f; syscall; ret
        let code = [0xb8, 0x0f, 0x05, 0, 0, 0x0f, 0x05, 0xc3];
        assert!(!is_instruction(&code, 0x1000, 0x1000, 0x1001));
        assert!(is_instruction(&code, 0x1000, 0x1000, 0x1005));
    }
}
