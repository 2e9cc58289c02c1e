//! The lengths of instructions, by which `syscall` is told from its two bytes inside another one,
//! against what objdump says of libc's code: several hundred thousand instructions, none of which
//! is taken for one that cannot be executed.

#[path = "../src/dispatch/length.rs"]
mod length;

use std::io::ErrorKind;
use std::process::Command;

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// The bytes and the text of a line of a disassembly.
fn instruction(line: &str) -> Option<(Vec<u8>, &str)> {
    let mut fields = line.split('\t').skip(1);
    let (bytes, text) = (fields.next()?, fields.next()?);
    let bytes = bytes.split_whitespace().map(|byte| u8::from_str_radix(byte, 16));
    Some((bytes.collect::<Result<_, _>>().ok()?, text))
}

#[test]
fn lengths_are_those_of_objdump() {
    let required = std::env::var_os("WAKESET_REQUIRE_ALL").is_some_and(|value| value == "1");
    let arguments = ["-d", "-w", "--insn-width=16", LIBC];
    let output = match Command::new("objdump").args(arguments).output() {
        Err(error) if error.kind() == ErrorKind::NotFound && !required => {
            eprintln!("skipped: objdump is missing");
            return;
        }
        output => output.expect("objdump runs"),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut seen, mut wrong, mut calls) = (0, Vec::new(), 0);
    for (bytes, text) in text.lines().filter_map(instruction) {
        if bytes.is_empty() || text.contains("(bad)") {
            continue;
        }
        let mut code = bytes.clone();
        code.extend([0x90; 16]);
        seen += 1;
        calls += usize::from(text.starts_with("syscall"));
        let is_known = matches!(
            length::Instruction::of(&code),
            length::Instruction::Known { length, .. } if length == bytes.len()
        );
        if !is_known {
            wrong.push(format!("{bytes:02x?} {text}"));
        }
    }
    assert!(seen > 100_000 && calls > 100, "{seen} instructions, {calls} system calls");
    assert!(wrong.is_empty(), "of {seen}: {wrong:#?}");
}
