//! The little of elf(5) that tells which dynamic loader a program asks for.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Who loads a program.
#[derive(Debug, PartialEq, Eq)]
pub enum Loader {
    /// Nobody: it has no PT_INTERP, so it is static, position-independent or not.
    None,
    /// The loader at this path.
    At(PathBuf),
    /// Not for this machine's native word size, byte order and processor.
    Foreign,
}

#[cfg(target_pointer_width = "64")]
mod native {
    pub const CLASS: u8 = 2;
    pub const HEADER: usize = 64;
    pub const TABLE_AT: usize = 32;
    pub const ENTRY_SIZE_AT: usize = 54;
    pub const ENTRIES_AT: usize = 56;
    pub const OFFSET_AT: usize = 8;
    pub const LENGTH_AT: usize = 32;
}
#[cfg(target_pointer_width = "32")]
mod native {
    pub const CLASS: u8 = 1;
    pub const HEADER: usize = 52;
    pub const TABLE_AT: usize = 28;
    pub const ENTRY_SIZE_AT: usize = 42;
    pub const ENTRIES_AT: usize = 44;
    pub const OFFSET_AT: usize = 4;
    pub const LENGTH_AT: usize = 16;
}

const BYTE_ORDER: u8 = if cfg!(target_endian = "little") { 1 } else { 2 };
const MACHINE_AT: usize = 18;
/// e_machine of this build; `None` where we do not know it, and then every machine passes.
const MACHINE: Option<u16> = if cfg!(all(target_arch = "x86_64", target_pointer_width = "64")) {
    Some(62)
} else if cfg!(target_arch = "aarch64") {
    Some(183)
} else if cfg!(any(target_arch = "riscv64", target_arch = "riscv32")) {
    Some(243)
} else {
    None
};
const PT_INTERP: u32 = 3;

/// Bounds on what we believe: the kernel itself refuses more than a page of program headers and a
/// longer path.
const MOST_ENTRIES: usize = 4096;
const LONGEST_PATH: usize = 4096;

/// Reads the loader's path from an ELF file. Errors when the file is cut short or no ELF.
pub fn loader(file: &mut (impl Read + Seek)) -> io::Result<Loader> {
    let mut header = [0u8; native::HEADER];
    file.seek(SeekFrom::Start(0))?;
    file.read_exact(&mut header[..20])?;
    if !header.starts_with(b"\x7fELF") {
        return Err(ErrorKind::InvalidData.into());
    }
    let machine = u16::from_ne_bytes([header[MACHINE_AT], header[MACHINE_AT + 1]]);
    if header[4] != native::CLASS || header[5] != BYTE_ORDER || MACHINE.is_some_and(|ours| ours != machine) {
        return Ok(Loader::Foreign);
    }
    file.read_exact(&mut header[20..])?;
    let table = word(&header, native::TABLE_AT)?;
    let size = usize::from(half(&header, native::ENTRY_SIZE_AT)?);
    let entries = usize::from(half(&header, native::ENTRIES_AT)?);
    if entries == 0 {
        return Ok(Loader::None);
    }
    if size < native::LENGTH_AT + size_of::<usize>() || entries > MOST_ENTRIES {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut entry = vec![0u8; size];
    file.seek(SeekFrom::Start(table as u64))?;
    for _ in 0..entries {
        file.read_exact(&mut entry)?;
        let kind = u32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]);
        if kind == PT_INTERP {
            let at = word(&entry, native::OFFSET_AT)?;
            let length = word(&entry, native::LENGTH_AT)?.min(LONGEST_PATH);
            let mut path = vec![0u8; length];
            file.seek(SeekFrom::Start(at as u64))?;
            file.read_exact(&mut path)?;
            path.truncate(path.iter().position(|&b| b == 0).unwrap_or(length));
            return Ok(Loader::At(OsString::from_vec(path).into()));
        }
    }
    Ok(Loader::None)
}

fn half(bytes: &[u8], at: usize) -> io::Result<u16> {
    field(bytes, at).map(u16::from_ne_bytes)
}

fn word(bytes: &[u8], at: usize) -> io::Result<usize> {
    field(bytes, at).map(usize::from_ne_bytes)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> io::Result<[u8; N]> {
    let field = bytes.get(at..at + N).and_then(|b| b.try_into().ok());
    field.ok_or_else(|| ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn own() -> Vec<u8> {
        std::fs::read("/proc/self/exe").expect("our own executable")
    }

    #[test]
    fn a_dynamic_program_names_its_loader() {
        match loader(&mut Cursor::new(own())).expect("an ELF file") {
            Loader::At(path) => assert!(path.is_absolute(), "{path:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_the_entry_it_is_static() {
        let mut bytes = own();
        bytes[native::ENTRIES_AT] = 0;
        bytes[native::ENTRIES_AT + 1] = 0;
        assert_eq!(loader(&mut Cursor::new(bytes)).expect("an ELF file"), Loader::None);
    }

    #[test]
    fn another_word_size_is_foreign() {
        let mut bytes = own();
        bytes[4] = 3 - bytes[4];
        assert_eq!(loader(&mut Cursor::new(bytes)).expect("an ELF file"), Loader::Foreign);
    }

    #[test]
    fn damaged_files_are_errors_or_answers_but_never_panics() {
        let bytes = own();
        for cut in [0, 3, 19, 20, 63, 64, 100] {
            assert!(loader(&mut Cursor::new(&bytes[..cut])).is_err(), "cut at {cut}");
        }
        let mut random = 1u32;
        for _ in 0..2000 {
            let mut damaged = bytes[..1024].to_vec();
            for _ in 0..8 {
                random = random.wrapping_mul(1664525).wrapping_add(1013904223);
                damaged[6 + (random >> 8) as usize % 1000] = random as u8;
            }
            let _ = loader(&mut Cursor::new(damaged));
        }
    }
}
