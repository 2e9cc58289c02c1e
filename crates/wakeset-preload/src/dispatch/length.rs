//! How long an x86-64 instruction is.
//!
//! Only that: enough to tell an instruction `0f 05` from these two bytes inside another one.

/// Where an opcode stands, which says how to read what follows.
#[derive(Clone, Copy)]
enum Map {
    One,
    /// After `0f`; the same with VEX or EVEX.
    Two,
    /// After `0f 38`, and others whose instructions have no immediate byte.
    Plain,
    /// After `0f 3a`, and others whose instructions have one.
    WithByte,
}

/// What comes before the opcode.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    operand: bool,
    address: bool,
    repeat_not_equal: bool,
    wide: bool,
}

/// An instruction, as far as the search for system calls wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    /// Of this many bytes; false if the next one need not be executed after it.
    Known { length: usize, goes_on: bool },
    /// It is none, or none that a program may execute.
    Never,
    /// It may be any, or is cut off.
    Unknown,
}

impl Instruction {
    /// The one that `code` begins with.
    pub(super) fn of(code: &[u8]) -> Self {
        let is_prefix = |byte: &u8| {
            matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
        };
        let prefixes = code.iter().take_while(|byte| is_prefix(byte)).count();
        let rex = matches!(code.get(prefixes), Some(0x40..=0x4f));
        let opcode = code.get(prefixes + usize::from(rex)..).unwrap_or_default();
        let group = |modrm: u8| modrm >> 3 & 7;
        let goes_on = match *opcode {
            // None in 64-bit code.
            [0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x27 | 0x2f | 0x37 | 0x3f, ..]
            | [0x60 | 0x61 | 0x82 | 0x9a | 0xce | 0xd4..=0xd6 | 0xea, ..]
            | [0x0f, 0x04 | 0x0a | 0x0c | 0x24..=0x27 | 0x36 | 0x39 | 0x3b..=0x3f, ..]
            // The kernel's alone.
            | [0x0f, 0x06..=0x09 | 0x20..=0x23 | 0x30 | 0x32, ..] => return Self::Never,
            [0x8d, modrm, ..] if modrm >= 0xc0 => return Self::Never,
            [0x8f, modrm, ..] if modrm & 0x1f < 8 && group(modrm) != 0 => return Self::Never,
            [0xc6 | 0xc7, modrm, ..] if modrm != 0xf8 && group(modrm) != 0 => return Self::Never,
            [0xfe, modrm, ..] if group(modrm) > 1 => return Self::Never,
            [0xff, modrm, ..] if group(modrm) == 7 => return Self::Never,
            // What is called, need not come back. HLT stands after what does not.
            [0xff, modrm, ..] => !matches!(group(modrm), 2..=5),
            [0xe8 | 0xcd | 0xf4, ..] | [0x0f, 0x05 | 0x34, ..] => false,
            [0xc2 | 0xc3 | 0xca..=0xcc | 0xcf | 0xe9 | 0xeb, ..] | [0x0f, 0x0b, ..] => false,
            _ => true,
        };
        match length(code) {
            Some(length) => Self::Known { length, goes_on },
            None => Self::Unknown,
        }
    }
}

/// The length of the instruction that `code` begins with; `None` if it is not known or cut off.
pub(super) fn length(code: &[u8]) -> Option<usize> {
    let mut prefixes = Prefixes::default();
    let mut at = 0;
    loop {
        match *code.get(at)? {
            0x66 => prefixes.operand = true,
            0x67 => prefixes.address = true,
            0xf2 => prefixes.repeat_not_equal = true,
            0xf3 | 0xf0 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 => {}
            _ => break,
        }
        at += 1;
    }
    if let rex @ 0x40..=0x4f = *code.get(at)? {
        prefixes.wide = rex & 8 != 0;
        at += 1;
    }
    let next = |i| code.get(at + i).copied();
    let (map, opcode) = match next(0)? {
        0x0f => match next(1)? {
            0x38 => (Map::Plain, 2),
            0x3a => (Map::WithByte, 2),
            _ => (Map::Two, 1),
        },
        0xc5 => (Map::Two, 2),
        0xc4 => (vex_map(next(1)? & 0x1f)?, 3),
        0x62 => (vex_map(next(1)? & 7)?, 4),
        // A POP has 0 in the field that names the map here.
        0x8f if next(1)? & 0x1f >= 8 => (xop_map(next(1)? & 0x1f)?, 3),
        _ => (Map::One, 0),
    };
    at += opcode;
    let opcode = *code.get(at)?;
    let rest = code.get(at + 1..)?;
    let operands = match map {
        Map::One => one(opcode, rest, prefixes)?,
        Map::Two => two(opcode, rest, prefixes)?,
        Map::Plain => memory(rest)?,
        Map::WithByte => memory(rest)? + 1,
    };
    let length = at + 1 + operands;
    (length <= code.len().min(15)).then_some(length)
}

fn vex_map(number: u8) -> Option<Map> {
    match number {
        1 => Some(Map::Two),
        2 | 5 | 6 => Some(Map::Plain),
        3 => Some(Map::WithByte),
        _ => None,
    }
}

fn xop_map(number: u8) -> Option<Map> {
    match number {
        8 => Some(Map::WithByte),
        9 => Some(Map::Plain),
        _ => None,
    }
}

/// The bytes of ModRM, SIB and displacement.
fn memory(rest: &[u8]) -> Option<usize> {
    let modrm = *rest.first()?;
    let (mode, register) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return Some(1);
    }
    let has_sib = register == 4;
    let base = if has_sib { *rest.get(1)? & 7 } else { register };
    let displacement = match mode {
        1 => 1,
        2 => 4,
        _ if base == 5 => 4,
        _ => 0,
    };
    Some(1 + usize::from(has_sib) + displacement)
}

/// What follows an opcode of one byte.
fn one(opcode: u8, rest: &[u8], prefixes: Prefixes) -> Option<usize> {
    let word = if prefixes.operand && !prefixes.wide { 2 } else { 4 };
    let group = || rest.first().map(|modrm| modrm >> 3 & 7);
    Some(match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => memory(rest)?,
            4 => 1,
            5 => word,
            _ => return None,
        },
        0x50..=0x5f | 0x6c..=0x6f | 0x90..=0x99 | 0x9b..=0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => 0,
        0xc3 | 0xc9 | 0xcb | 0xcc | 0xcf | 0xd7 | 0xec..=0xef | 0xf1 | 0xf4 | 0xf5 => 0,
        0xf8..=0xfd => 0,
        0x63 | 0x84..=0x8f | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe | 0xff => memory(rest)?,
        0x68 | 0xa9 => word,
        0x69 | 0x81 | 0xc7 => memory(rest)? + word,
        0x6a | 0x70..=0x7f | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe0..=0xe7 | 0xeb => 1,
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => memory(rest)? + 1,
        0xa0..=0xa3 => {
            if prefixes.address {
                4
            } else {
                8
            }
        }
        0xb8..=0xbf => {
            if prefixes.wide {
                8
            } else {
                word
            }
        }
        0xc2 | 0xca => 2,
        0xc8 => 3,
        0xe8 | 0xe9 => 4,
        0xf6 => memory(rest)? + usize::from(group()? < 2),
        0xf7 => memory(rest)? + if group()? < 2 { word } else { 0 },
        _ => return None,
    })
}

/// What follows an opcode after `0f`.
fn two(opcode: u8, rest: &[u8], prefixes: Prefixes) -> Option<usize> {
    Some(match opcode {
        0x05..=0x09 | 0x0b | 0x0e | 0x30..=0x37 | 0x77 | 0xa0..=0xa2 | 0xa8..=0xaa => 0,
        0xc8..=0xcf => 0,
        0x04 | 0x0a | 0x0c => return None,
        0x80..=0x8f => 4,
        0x78 if prefixes.operand || prefixes.repeat_not_equal => memory(rest)? + 2,
        0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => memory(rest)? + 1,
        _ => memory(rest)?,
    })
}
