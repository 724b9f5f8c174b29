//! The planner, as one program, so that what its tests share is compiled once.

mod accounting;
mod batch;
mod embeddings;
mod example;
mod goldens;
mod headroom;
mod ledger;
mod lookups;
mod memory_rate;
mod nt_packets;
mod numbers;
mod objective;
mod optimize;
mod oracle;
mod packets;
mod passes;
mod programs;
mod properties;
mod recommend;
mod refusals;
mod rows;
mod scarce;
mod stays;
mod store_reads;
mod strangers;
#[path = "../support/mod.rs"]
mod support;
mod tampered;
mod trust;
mod updates;
