//! The simulated card, as one program, so that what its tests share is compiled once.

mod bursts;
mod choices;
mod conformance;
mod frames;
mod latency;
mod latency_parts;
mod loads;
mod map;
mod models;
#[path = "../naive/mod.rs"]
mod naive;
mod pool;
mod protection;
mod reference;
#[path = "../rig/mod.rs"]
mod rig;
mod shaping;
mod shared;
mod states;
mod stuck;
mod tables;
mod traffic;
