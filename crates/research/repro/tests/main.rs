//! The figures, and what was admitted and must be served: controller, driver and simulated card together.

mod elastic;
mod figures;
mod isolation;
mod memory;
mod programs;
mod promises;
mod steering;
mod switching;
mod ycsb;
