//! The example for implementers of a source does what it says.

#[path = "../examples/channel.rs"]
mod channel;

#[test]
fn a_thousand_channels_lose_nothing() {
    channel::main().unwrap();
}
