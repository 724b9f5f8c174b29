//! The shell in SystemVerilog, simulated.

mod conformance;
mod model;
mod registers;
mod sources;
