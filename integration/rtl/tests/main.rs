//! The shell in SystemVerilog, simulated.

mod conformance;
mod hostile;
mod images;
mod loads;
mod model;
mod packets;
mod registers;
mod sources;
