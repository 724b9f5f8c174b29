//! The command line of tenants and operators.
fn main() {}
