//! The shell in SystemVerilog, simulated.

mod conformance;
mod images;
mod loads;
mod model;
mod registers;
mod sources;
