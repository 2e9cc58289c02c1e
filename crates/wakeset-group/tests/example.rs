//! The example does what it says. It forks, so it is a process of its own and no thread of a test.
#![allow(missing_docs)]

#[path = "../examples/prefork.rs"]
mod prefork;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    prefork::main()
}
