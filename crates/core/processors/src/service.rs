//! Time that one packet takes of the parts of a processor: by this a simulated card runs a program.
//!
//! A thread has one packet at a time, and a memory moves one packet after the other. What was measured says how
//! long a thread has a packet: with `t` threads and `b` bits per second, `t × bits / b`; of a size that nobody
//! measured, the longest that what was measured allows. Where the work of a
//! program is known instead, its thread, its payload and its working set take their times apart.

use std::time::Duration;

use snic_domain::{ByteSize, MemoryKind};

use crate::estimate::{Setting, bits, memory_nanos, served, thread_nanos};
use crate::model::{Implementation, Processor};

/// Time that one packet takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketService {
    /// Time of one thread.
    pub thread: Duration,
    /// Time of the memory that receives it, if somebody measured what that receives.
    pub receive: Option<Duration>,
    /// Time of memories that it reads and writes; those that it leaves alone are left out.
    pub memories: Vec<(MemoryKind, Duration)>,
    /// From the port to the processor and back, beside all this, if somebody measured it.
    pub network: Option<Duration>,
}

/// Time that a packet takes of a processor; `None` where nobody measured the program with these buffers.
pub fn service(
    processor: &Processor,
    implementation: &Implementation,
    (packet, working_set): (ByteSize, ByteSize),
    setting: Setting,
) -> Option<PacketService> {
    let path = processor.path(setting.network)?;
    let of_nanos = |nanos: f64| Duration::from_nanos(nanos.ceil() as u64);
    let received = bits(path.network_size(packet));
    let receive = path.receive.map(|rate| of_nanos(received * 1e9 / rate.get().max(1) as f64));
    let network = path.network;
    if let Some(served) = served(implementation, packet, setting) {
        // Threads beyond the most that were measured serve nothing more: those that were have the packets.
        let threads = f64::from(setting.threads.min(served.last));
        let thread = threads * bits(packet) * 1e9 / served.bps.max(1.0);
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
