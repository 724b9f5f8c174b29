//! What one packet takes of the parts of a processor: by this a simulated card runs a program.
//!
//! A thread has one packet at a time, and a memory moves one packet after the other. What was measured says how
//! long a thread has a packet: with `t` threads and `b` bits per second, `t × bits / b`. Where the work of a
//! program is known instead, its thread, its payload and its working set take their times apart.

use std::time::Duration;

use snic_domain::{ByteSize, MemoryKind};

use crate::estimate::{Setting, measured, memory_nanos, thread_nanos};
use crate::model::{Implementation, Processor};

/// What one packet takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketService {
    /// Of one thread.
    pub thread: Duration,
    /// Of the memory that receives it, if somebody measured what that receives.
    pub receive: Option<Duration>,
    /// Of memories that it reads and writes; those that it leaves alone are left out.
    pub memories: Vec<(MemoryKind, Duration)>,
    /// From the port to the processor and back, beside all this, if somebody measured it.
    pub network: Option<Duration>,
}

/// What a packet takes of a processor; `None` where nobody measured the program with these buffers.
pub fn service(
    processor: &Processor,
    implementation: &Implementation,
    (packet, working_set): (ByteSize, ByteSize),
    setting: Setting,
) -> Option<PacketService> {
    let path = processor.path(setting.network)?;
    let bits = packet.get().saturating_mul(8) as f64;
    let of_nanos = |nanos: f64| Duration::from_nanos(nanos.ceil() as u64);
    let receive = path.receive.map(|rate| of_nanos(bits * 1e9 / rate.get().max(1) as f64));
    let network = path.network;
    if implementation.points.iter().any(|point| point.network == setting.network) {
        let thread = measured_nanos(implementation, packet, setting)?;
        return Some(PacketService {
            thread: of_nanos(thread),
            receive,
            memories: Vec::new(),
            network,
        });
    }
    let thread = thread_nanos(processor, implementation, packet)?;
    let mut memories = Vec::new();
    for path in &processor.memories {
        let nanos = memory_nanos(implementation, path, (packet, working_set), setting)?;
        if nanos > 0.0 {
            memories.push((path.memory, of_nanos(nanos)));
        }
    }
    Some(PacketService { thread: of_nanos(thread), receive, memories, network })
}

/// How long a thread has a packet, by what was measured. A packet that is smaller than all that were measured
/// takes as long as the smallest of them.
fn measured_nanos(
    implementation: &Implementation,
    packet: ByteSize,
    setting: Setting,
) -> Option<f64> {
    let here = implementation.points.iter().filter(|point| point.network == setting.network);
    let smallest = here.clone().map(|point| point.packet).min()?;
    let known = here.map(|point| point.packet).filter(|size| *size <= packet).max();
    let size = known.unwrap_or(smallest);
    let (bandwidth, last) = measured(implementation, size, setting)?;
    // Threads beyond the most that were measured serve nothing more: those that were have the packets.
    let threads = setting.threads.min(last.last);
    let bits = size.get().saturating_mul(8) as f64;
    let nanos = f64::from(threads) * bits * 1e9 / bandwidth.get().max(1) as f64;
    // As many packets a second: more bits do not make them faster than the threads are.
    Some(nanos)
}
