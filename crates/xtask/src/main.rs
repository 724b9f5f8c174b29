//! What CI runs.
fn main() {}
