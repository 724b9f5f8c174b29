//! What an implementation serves with so many threads and its buffers in these memories.
//!
//! A measured point counts as it is. Between two of them, and between none and the first, bandwidth grows
//! with the threads in a straight line, which is never more than what a curve that flattens gives; beyond the
//! last it does not grow. Where packets were smaller, as many packets of a larger size are served, at most.
//!
//! Without points, an implementation whose work is known is limited by whatever is shortest: the line, the
//! threads (`threads × packet / (thread + payload / first cache)`), receiving and sending with the network
//! buffer's memory, and each memory (`packet / (bytes read / read rate + bytes written / write rate)`).
//! Memories work side by side, which is why the study's mixes are faster (Fig. 8).

use std::time::Duration;

use snic_domain::{Bandwidth, ByteSize, MemoryKind};

use crate::model::{Implementation, MemoryPath, Processor};

/// How an implementation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setting {
    /// Threads.
    pub threads: u32,
    /// Where packets are received and sent.
    pub network: MemoryKind,
    /// Where its working set is.
    pub working: MemoryKind,
}

/// What limits an implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ThroughputLimit {
    /// The card's ports.
    Line,
    /// Its threads.
    Threads,
    /// Receiving packets into this memory.
    Receive(MemoryKind),
    /// Sending packets from this memory.
    Send(MemoryKind),
    /// What this memory moves.
    MemoryBandwidth(MemoryKind),
    /// What was measured at the most threads.
    Measured,
}

impl std::fmt::Display for ThroughputLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Line => f.write_str("the line"),
            Self::Threads => f.write_str("threads"),
            Self::Receive(memory) => write!(f, "receiving into {}", memory.name()),
            Self::Send(memory) => write!(f, "sending from {}", memory.name()),
            Self::MemoryBandwidth(memory) => write!(f, "bandwidth of {}", memory.name()),
            Self::Measured => f.write_str("what was measured"),
        }
    }
}

/// What a setting gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// What is served at most; what is unmeasured may make it less.
    pub bandwidth: Bandwidth,
    /// What limits it.
    pub limit: ThroughputLimit,
    /// Limits that nobody measured. With one of them, `bandwidth` is no promise.
    pub unmeasured: Vec<ThroughputLimit>,
    /// What a packet takes, if known.
    pub latency: Option<Duration>,
}

/// The settings that a processor allows, with as many threads: every pair of memories that it may use
/// together.
pub fn settings(processor: &Processor, threads: u32) -> Vec<Setting> {
    let memories: Vec<MemoryKind> = processor.memories.iter().map(|path| path.memory).collect();
    let together = |a: MemoryKind, b: MemoryKind| {
        a == b || !(processor.exclusive.contains(&a) && processor.exclusive.contains(&b))
    };
    let pairs = memories.iter().flat_map(|&network| memories.iter().map(move |&w| (network, w)));
    pairs
        .filter(|&(network, working)| together(network, working))
        .map(|(network, working)| Setting { threads, network, working })
        .collect()
}

/// What `implementation` serves on `processor`, for packets of one size and a working set.
pub fn estimate(
    processor: &Processor,
    implementation: &Implementation,
    line: Bandwidth,
    (packet, working_set): (ByteSize, ByteSize),
    setting: Setting,
) -> Estimate {
    let latency = latency(processor, implementation, packet, setting);
    if let Some((bandwidth, measured)) = measured(implementation, packet, setting) {
        let (bandwidth, limit) = match bandwidth {
            over if over >= line => (line, ThroughputLimit::Line),
            _ if measured.last < setting.threads => (bandwidth, ThroughputLimit::Measured),
            _ => (bandwidth, ThroughputLimit::Threads),
        };
        let latency = measured.latency.or(latency);
        return Estimate { bandwidth, limit, unmeasured: Vec::new(), latency };
    }
    let mut limits = vec![(ThroughputLimit::Line, Some(line))];
    let bits = packet.get() as f64 * 8.0;
    let of_nanos = |nanos: f64| Bandwidth::from_bps((bits * 1e9 / nanos) as u64);
    let thread = thread_nanos(processor, implementation, packet);
    limits.push((
        ThroughputLimit::Threads,
        thread.map(|nanos| of_nanos(nanos / f64::from(setting.threads))),
    ));
    let path = processor.path(setting.network);
    limits.push((ThroughputLimit::Receive(setting.network), path.and_then(|path| path.receive)));
    limits.push((ThroughputLimit::Send(setting.network), path.and_then(|path| path.send)));
    for path in &processor.memories {
        match memory_nanos(implementation, path, (packet, working_set), setting) {
            Some(0.0) => {}
            nanos => {
                limits.push((ThroughputLimit::MemoryBandwidth(path.memory), nanos.map(of_nanos)))
            }
        }
    }
    let unmeasured = limits.iter().filter(|(_, most)| most.is_none()).map(|(limit, _)| *limit);
    let unmeasured = unmeasured.collect();
    let known = limits.iter().filter_map(|(limit, most)| most.map(|most| (most, *limit)));
    let (bandwidth, limit) = known.min().unwrap_or((line, ThroughputLimit::Line));
    Estimate { bandwidth, limit, unmeasured, latency }
}

/// The line that a measured value is read from.
pub(crate) struct Measured {
    /// Most threads that were measured.
    pub(crate) last: u32,
    latency: Option<Duration>,
}

/// The bandwidth by measured points, if there are any for these packets and this buffer.
pub(crate) fn measured(
    implementation: &Implementation,
    packet: ByteSize,
    setting: Setting,
) -> Option<(Bandwidth, Measured)> {
    let fits = |size: ByteSize| size <= packet;
    let here = implementation.points.iter().filter(|point| point.network == setting.network);
    // The largest size not over ours says most: packets a second hold for larger ones.
    let size = here.clone().map(|point| point.packet).filter(|size| fits(*size)).max()?;
    let mut points: Vec<_> = here.filter(|point| point.packet == size).collect();
    points.sort_by_key(|point| point.threads);
    let threads = f64::from(setting.threads);
    let (mut below, mut latency) = ((0.0, 0.0), None);
    for point in &points {
        let (at, bps) = (f64::from(point.threads.get()), point.bandwidth.get() as f64);
        latency = point.latency;
        if threads <= at {
            let share = (threads - below.0) / (at - below.0);
            let bps = below.1 + (bps - below.1) * share;
            let last = points.last()?.threads.get();
            return Some((Bandwidth::from_bps(bps as u64), Measured { last, latency }));
        }
        below = (at, bps);
    }
    let last = below.0 as u32;
    Some((Bandwidth::from_bps(below.1 as u64), Measured { last, latency }))
}

/// What one thread needs for a packet, in nanoseconds.
pub(crate) fn thread_nanos(
    processor: &Processor,
    implementation: &Implementation,
    packet: ByteSize,
) -> Option<f64> {
    let work = implementation.work?;
    let payload = share(packet, work.payload_permille);
    let reading = match processor.thread_read {
        _ if payload == 0.0 => 0.0,
        Some(rate) => rate.nanos(payload),
        None => return None,
    };
    Some(work.thread?.as_nanos() as f64 + reading).filter(|nanos| *nanos > 0.0)
}

/// How long a memory is busy with one packet, in nanoseconds. `None` where a rate is needed that nobody
/// measured.
pub(crate) fn memory_nanos(
    implementation: &Implementation,
    path: &MemoryPath,
    (packet, working_set): (ByteSize, ByteSize),
    setting: Setting,
) -> Option<f64> {
    let Some(work) = implementation.work else { return Some(0.0) };
    let of_network = if path.memory == setting.network { work.payload_permille } else { 0 };
    let (read, written) = if path.memory == setting.working {
        (work.working_read_permille, work.working_write_permille)
    } else {
        (0, 0)
    };
    let is_cached = path.cache.is_some_and(|cache| working_set <= cache);
    let gain = path.cache_gain.filter(|_| is_cached).map_or(1.0, |gain| f64::from(gain.get()));
    let nanos = |rate: Option<crate::ByteRate>, bytes: f64| match rate {
        _ if bytes == 0.0 => Some(0.0),
        rate => rate.map(|rate| rate.nanos(bytes)),
    };
    let network = nanos(path.read, share(packet, of_network))?;
    let read = nanos(path.read, share(packet, read))?;
    let written = nanos(path.write, share(packet, written))?;
    Some(network + (read + written) / gain)
}

fn share(packet: ByteSize, permille: u32) -> f64 {
    packet.get() as f64 * f64::from(permille) / 1e3
}

/// From the port to the processor and back, and the thread's time.
fn latency(
    processor: &Processor,
    implementation: &Implementation,
    packet: ByteSize,
    setting: Setting,
) -> Option<Duration> {
    let network = processor.path(setting.network)?.network?;
    let thread = thread_nanos(processor, implementation, packet)?;
    Some(network + Duration::from_nanos(thread.round() as u64))
}
