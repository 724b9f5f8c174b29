//! The unmodified XRT library, with the simulated card behind its emulation shim.

mod conformance;
mod daemon;
mod device;
mod environment;
mod faults;
mod samples;
mod trace;
