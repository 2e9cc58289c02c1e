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
