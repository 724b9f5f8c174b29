//! The daemon that owns a SmartNIC card.
fn main() {}
