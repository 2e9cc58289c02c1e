//! What `wakeset run --stats` counts of a program.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::compile::{Build, compile, scratch};
use super::run::{Runner, TIME_LIMIT, run};

/// Runs a program with `--stats` and returns the totals, after checking its status.
pub fn counts(source: &str, arguments: &[&str]) -> Option<Value> {
    let name = format!("{source}_counted");
    let program = compile(source, Build::Plain, &name)?;
    let file = scratch(&format!("{name}.json"));
    let outcome = run(&program, arguments, Runner::Counted(&file), TIME_LIMIT);
    outcome.expect_success(&name);
    Some(read(&file)["total"].clone())
}

pub fn count(totals: &Value, path: &str) -> u64 {
    totals
        .pointer(path)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no count {path} in {totals:#}"))
}

/// Reads the JSON of `--stats`.
pub fn read(file: &Path) -> Value {
    let text = fs::read_to_string(file).expect("the counts");
    serde_json::from_str(&text).expect("JSON")
}
