//! The controller request by request and report by report, told as examples: a tiny
//! card that answers when it is told to, a store that is a map, and time that stands still unless
//! a test moves it. The simulation beside it looks for what nobody thought of; this says what was.

mod admission;
mod adversaries;
mod affinity;
mod bad_input;
mod batches;
mod bindings;
mod bounded;
mod cards;
mod catalogue;
mod configurations;
mod consolidation;
mod dags;
mod devices;
mod effects;
pub mod elastic;
mod faults;
mod fleet;
mod guards;
mod histories;
mod identity;
mod images;
mod layouts;
mod memory;
mod operations;
mod operators;
mod properties;
mod recovery;
mod regions;
mod removals;
mod resets;
mod retirement;
mod retries;
mod revisions;
mod roles;
mod rules;
mod scheduling;
mod sizes;
mod states;
pub mod support;
mod tenants;
mod traffic;
mod transcripts;
mod trust;
mod updates;
mod usage;
