//! The system call instructions in a file's code: they pass libc, and so the hooks.
//!
//! The two bytes of `syscall` also occur inside other instructions, so the code before them is
//! disassembled: from the beginning of the function where symbols say where that is, and otherwise
//! from some hundred bytes earlier, within which a disassembly finds the instructions' beginnings.

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
/// From where without a symbol, and how far a symbol reaches at most.
const BEFORE: u64 = 256;
const REACH: u64 = 1 << 20;

/// Finds them in the code of a file.
pub fn find(file: &ElfFile64<'_, NativeEndian>) -> Instructions {
    let mut found = Instructions::default();
    let mut functions = None;
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
        let Ok(code) = section.data() else { continue };
        let pairs = code.windows(2).enumerate().filter(|(_, bytes)| *bytes == SYSCALL);
        for (at, _) in pairs.take(MOST) {
            let functions = functions.get_or_insert_with(|| functions_of(file));
            let at = section.address() + at as u64;
            let name = functions.range(..=at).next_back().filter(|(start, _)| at - *start < REACH);
            let from = name.map_or(at.saturating_sub(BEFORE), |(start, _)| *start);
            if is_instruction(code, section.address(), from.max(section.address()), at) {
                found.count += 1;
                found.functions.extend(name.map(|(_, name)| name.clone()));
            }
        }
    }
    found
}

/// Where each function begins, and its name.
fn functions_of(file: &ElfFile64<'_, NativeEndian>) -> BTreeMap<u64, String> {
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let functions =
        symbols.filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text);
    functions.filter_map(|it| Some((it.address(), it.name().ok()?.to_string()))).collect()
}

/// Whether a disassembly from `from` comes to a system call at `at`. `code` begins at `base`.
fn is_instruction(code: &[u8], base: u64, from: u64, at: u64) -> bool {
    let Some(bytes) = code.get((from - base) as usize..) else { return false };
    let mut decoder = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE);
    while decoder.ip() < at && decoder.can_decode() {
        decoder.decode();
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
