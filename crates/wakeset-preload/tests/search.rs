//! The two bytes of `syscall` in code without an unwind table: which are taken for the instruction.

#[path = "../src/dispatch/frames.rs"]
#[allow(dead_code, reason = "as below")]
mod frames;
#[path = "../src/dispatch/length.rs"]
mod length;
#[path = "../src/dispatch/search.rs"]
#[allow(dead_code, reason = "objects with an unwind table are searched by the programs' tests")]
mod search;

use std::io::ErrorKind;
use std::process::Command;

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// What the search wants to know of a range of addresses.
#[derive(Clone, Copy)]
struct Range {
    start: usize,
    end: usize,
}

impl Range {
    const NONE: Self = Self { start: 0, end: 0 };

    #[allow(dead_code, reason = "as above")]
    fn len(self) -> usize {
        self.end - self.start
    }

    fn contains(self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// 64 bytes of code and more: `mov rbx, [rax + 0x17]; and edx, 7; cmp edx, 2; je +4`.
const CODE: [u8; 12] = [0x48, 0x8b, 0x58, 0x17, 0x83, 0xe2, 0x07, 0x83, 0xfa, 0x02, 0x74, 0x04];

fn after_code(bytes: &[u8]) -> Vec<u8> {
    [&CODE.repeat(8), bytes, &CODE.repeat(2)].concat()
}

fn has_call(code: &[u8]) -> bool {
    search::has_call(code, 0, code.len())
}

#[test]
fn bytes_inside_an_instruction_are_none() {
    // jmp +0x50f; call +0x50f; mov eax, 0x50f00; lea rax, [rip + 0x50f]; cmp [rdi + 0x50f], eax
    let inside: [&[u8]; 5] = [
        &[0xe9, 0x0f, 0x05, 0, 0],
        &[0xe8, 0x0f, 0x05, 0, 0],
        &[0xb8, 0, 0x0f, 0x05, 0],
        &[0x48, 0x8d, 0x05, 0x0f, 0x05, 0, 0],
        &[0x39, 0x87, 0x0f, 0x05, 0, 0],
    ];
    for bytes in inside {
        assert!(!has_call(&after_code(bytes)), "{bytes:02x?}");
    }
}

#[test]
fn bytes_in_a_table_are_none() {
    // From libcrypto's constants of NIST P-521; after `or esi, esp; xchg edx, eax` there is none.
    let table = [
        0x86, 0xfa, 0x28, 0xaa, 0x3f, 0x07, 0x1f, 0x02, 0x0f, 0x05, 0x09, 0xe6, 0x92, 0xc6, 0xa8,
        0x8f, 0x7f, 0x68,
    ];
    assert!(!has_call(&after_code(&table)));
}

#[test]
fn calls_are_found() {
    // mov eax, 39; syscall; ret, and what ends a thread: mov eax, 60; syscall; hlt
    let calls: [&[u8]; 3] = [
        &[0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3],
        &[0x90, 0x0f, 0x05, 0x48, 0x85, 0xc0, 0x74, 0x02, 0xc3],
        &[0xb8, 60, 0, 0, 0, 0x0f, 0x05, 0xf4],
    ];
    for bytes in calls {
        assert!(has_call(&after_code(bytes)), "{bytes:02x?}");
        // At the beginning of memory nothing is known about what comes before.
        assert!(has_call(bytes), "{bytes:02x?}");
    }
    // Longer instructions than any program's lead to it: mov qword ptr [rsp + disp32], imm32.
    let long = [0x48, 0xc7, 0x84, 0x24, 0, 1, 0, 0, 7, 0, 0, 0].repeat(8);
    assert!(has_call(&[&long, &[0x0f, 0x05, 0xc3][..]].concat()));
}

/// Each of libc's own, judged as if libc had no unwind table.
#[test]
fn all_calls_of_libc_are_found() {
    let required = std::env::var_os("WAKESET_REQUIRE_ALL").is_some_and(|value| value == "1");
    let output = match Command::new("objdump").args(["-d", "-w", "-j", ".text", LIBC]).output() {
        Err(error) if error.kind() == ErrorKind::NotFound && !required => {
            eprintln!("skipped: objdump is missing");
            return;
        }
        output => output.expect("objdump runs"),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut code, mut calls, mut first) = (Vec::new(), Vec::new(), None);
    for line in text.lines() {
        let mut fields = line.split('\t');
        let address = fields.next().and_then(|field| field.trim().strip_suffix(':'));
        let Some(address) = address.and_then(|text| usize::from_str_radix(text, 16).ok()) else {
            continue;
        };
        let bytes = fields.next().unwrap_or_default().split_whitespace();
        let bytes = bytes.map_while(|byte| u8::from_str_radix(byte, 16).ok());
        let at = address - *first.get_or_insert(address);
        code.resize(at, 0x90);
        code.extend(bytes);
        if fields.next().is_some_and(|text| text.starts_with("syscall")) {
            calls.push(at);
        }
    }
    assert!(calls.len() > 100, "{} calls", calls.len());
    let missed: Vec<_> = calls.iter().filter(|at| !search::has_call(&code, **at, 1)).collect();
    assert!(missed.is_empty(), "of {}: {missed:x?}", calls.len());
}
