//! Which dynamic loader a program asks for, read from its elf(5) headers.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadCacheOps, ReadRef};
use object::{NativeEndian, elf};

/// What loads a program.
#[derive(Debug, PartialEq, Eq)]
pub enum Loader {
    /// The kernel alone: without a PT_INTERP entry it is static, position-independent or not.
    None,
    /// The loader at this path.
    At(PathBuf),
    /// Not for this machine's native word size, byte order and processor.
    Foreign,
}

#[cfg(target_pointer_width = "64")]
type Header = elf::FileHeader64<NativeEndian>;
#[cfg(target_pointer_width = "32")]
type Header = elf::FileHeader32<NativeEndian>;

const CLASS: elf::FileClass =
    if cfg!(target_pointer_width = "64") { elf::ELFCLASS64 } else { elf::ELFCLASS32 };
const BYTE_ORDER: elf::DataEncoding =
    if cfg!(target_endian = "little") { elf::ELFDATA2LSB } else { elf::ELFDATA2MSB };

/// `e_machine` of this build; `None` for a processor that is not listed here, and then every
/// machine is accepted.
const MACHINE: Option<elf::Machine> = if cfg!(target_arch = "x86_64") {
    Some(elf::EM_X86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(elf::EM_AARCH64)
} else if cfg!(any(target_arch = "riscv64", target_arch = "riscv32")) {
    Some(elf::EM_RISCV)
} else {
    None
};

/// Reads the loader's path from an ELF file. Errors when the file is cut short or no ELF.
pub fn loader(file: &mut (impl Read + Seek)) -> io::Result<Loader> {
    find_loader(&ReadCache::new(file)).map_err(|()| ErrorKind::InvalidData.into())
}

fn find_loader<R: ReadCacheOps>(file: &ReadCache<R>) -> Result<Loader, ()> {
    let ident = file.read_bytes_at(0, size_of::<elf::Ident>() as u64)?;
    if !ident.starts_with(&elf::ELFMAG) {
        return Err(());
    }
    if ident[4..6] != [CLASS.0, BYTE_ORDER.0] {
        return Ok(Loader::Foreign);
    }
    let header = Header::parse(file).map_err(drop)?;
    if MACHINE.is_some_and(|ours| ours != header.e_machine(NativeEndian)) {
        return Ok(Loader::Foreign);
    }
    for entry in header.program_headers(NativeEndian, file).map_err(drop)? {
        if entry.p_type(NativeEndian) == elf::PT_INTERP {
            // execve(2) refuses a longer path; without this bound a damaged file could ask for
            // gigabytes.
            if entry.file_range(NativeEndian).1 > libc::PATH_MAX as u64 {
                return Err(());
            }
            let path = entry.interpreter(NativeEndian, file).map_err(drop)?.ok_or(())?;
            return Ok(Loader::At(OsString::from_vec(path.to_vec()).into()));
        }
    }
    Ok(Loader::None)
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
        let count = std::mem::offset_of!(Header, e_phnum);
        bytes[count..count + 2].fill(0);
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
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2000 {
            let mut damaged = bytes[..1024].to_vec();
            for _ in 0..8 {
                damaged[random.usize(6..1006)] = random.u8(..);
            }
            let _ = loader(&mut Cursor::new(damaged));
        }
    }
}
