//! Bandwidth of an implementation with so many threads and its buffers in these memories.
//!
//! A measured point counts as it is. Between two of them, and between none and the first, bandwidth grows
//! with the threads in a straight line, which is never more than what a curve that flattens gives; beyond the
//! last it does not grow.
//!
//! Other sizes of packets have known bounds only, and these are what is promised: a packet takes a thread no
//! longer than a larger one, and no longer than in proportion to a smaller one. So of a smaller size as many packets
//! are served as of the next that was measured, and of a larger size as many bits. In a mix each size takes its
//! part of the threads' time. [`Estimate::bounded`] names the sizes that nobody measured.
//!
//! Without points, an implementation whose work is known is limited by whatever is shortest: the line, the
//! threads (`threads × packet / (thread + payload / first cache)`), receiving and sending with the network
//! buffer's memory, and each memory (`packet / (bytes read / read rate + bytes written / write rate)`).
//! Memories work side by side, which is why the study's mixes are faster (Fig. 8).

use std::collections::BTreeSet;
use std::time::Duration;

use snic_domain::{Bandwidth, ByteSize, MemoryKind, PacketSizes};

use crate::model::{Implementation, MemoryPath, Processor};

/// Setting in which an implementation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setting {
    pub threads: u32,
    /// Where packets are received and sent.
    pub network: MemoryKind,
    /// Where its working set is.
    pub working: MemoryKind,
}

/// Limit of an implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ThroughputLimit {
    /// The card's ports.
    Line,
    Threads,
    /// Receiving packets into this memory.
    Receive(MemoryKind),
    /// Sending packets from this memory.
    Send(MemoryKind),
    /// Bandwidth of this memory.
    MemoryBandwidth(MemoryKind),
    /// Bandwidth measured at the most threads.
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

/// Result of a setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Bandwidth that is served at most; what is unmeasured may make it less.
    pub bandwidth: Bandwidth,
    pub limit: ThroughputLimit,
    /// Limits that nobody measured. With one of them, `bandwidth` is no promise.
    pub unmeasured: Vec<ThroughputLimit>,
    /// Time of a packet, if known.
    pub latency: Option<Duration>,
    /// Sizes of packets that nobody measured, for which the bandwidth is a bound and not a measurement.
    pub bounded: Vec<SizeBound>,
}

/// A size of packets that nobody measured, and the one that bounds what is served of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeBound {
    pub size: ByteSize,
    /// The measured one. If it is larger, as many packets are served as of it; if it is smaller, as many bits.
    pub measured: ByteSize,
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

/// Bandwidth that `implementation` serves on `processor`, for a mix of packets and a working set.
pub fn estimate(
    processor: &Processor,
    implementation: &Implementation,
    line: Bandwidth,
    (packets, working_set): (&PacketSizes, ByteSize),
    setting: Setting,
) -> Estimate {
    let largest = ByteSize::from_bytes(packets.largest().into());
    let latency = latency(processor, implementation, largest, setting);
    if let Some(measured) = of_points(implementation, packets, setting) {
        let (bandwidth, limit) = match measured.bandwidth {
            over if over >= line => (line, ThroughputLimit::Line),
            slow if measured.last < setting.threads => (slow, ThroughputLimit::Measured),
            slow => (slow, ThroughputLimit::Threads),
        };
        let (latency, unmeasured) = (measured.latency.or(latency), Vec::new());
        return Estimate { bandwidth, limit, unmeasured, latency, bounded: measured.bounded };
    }
    // What each size takes of something that all packets share, in nanoseconds.
    let round = |nanos: &dyn Fn(ByteSize) -> Option<f64>| -> Option<f64> {
        packets.sizes().iter().try_fold(0.0, |sum, size| {
            Some(sum + f64::from(size.weight) * nanos(ByteSize::from_bytes(size.bytes.into()))?)
        })
    };
    let bits = packets.bits() as f64;
    let of_nanos = |nanos: f64| Bandwidth::from_bps((bits * 1e9 / nanos) as u64);
    let mut limits = vec![(ThroughputLimit::Line, Some(line))];
    let thread = round(&|size| thread_nanos(processor, implementation, size));
    limits.push((
        ThroughputLimit::Threads,
        thread.map(|nanos| of_nanos(nanos / f64::from(setting.threads))),
    ));
    let path = processor.path(setting.network);
    let moved = |rate: Option<Bandwidth>| {
        let rate = rate?.get() as f64;
        let of = |size| Some(path?.network_size(size).get() as f64 * 8e9 / rate);
        round(&of).map(of_nanos)
    };
    let (receive, send) = (path.and_then(|path| path.receive), path.and_then(|path| path.send));
    limits.push((ThroughputLimit::Receive(setting.network), moved(receive)));
    limits.push((ThroughputLimit::Send(setting.network), moved(send)));
    for path in &processor.memories {
        let of = |size| memory_nanos(implementation, path, (size, working_set), setting);
        match round(&of) {
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
    Estimate { bandwidth, limit, unmeasured, latency, bounded: Vec::new() }
}

/// Measured points of a mix.
struct MeasuredPoints {
    bandwidth: Bandwidth,
    /// Most threads that were measured.
    last: u32,
    latency: Option<Duration>,
    bounded: Vec<SizeBound>,
}

fn of_points(
    implementation: &Implementation,
    packets: &PacketSizes,
    setting: Setting,
) -> Option<MeasuredPoints> {
    let (mut nanos, mut last) = (0.0, u32::MAX);
    let (mut latency, mut bounded) = (Some(Duration::ZERO), Vec::new());
    for size in packets.sizes() {
        let bytes = ByteSize::from_bytes(size.bytes.into());
        let served = served(implementation, bytes, setting)?;
        nanos += f64::from(size.weight) * bits(bytes) * 1e9 / served.bps;
        last = last.min(served.last);
        latency = latency.zip(served.latency).map(|(a, b)| a.max(b));
        if served.measured != bytes {
            bounded.push(SizeBound { size: bytes, measured: served.measured });
        }
    }
    let bandwidth = Bandwidth::from_bps((packets.bits() as f64 * 1e9 / nanos) as u64);
    Some(MeasuredPoints { bandwidth, last, latency, bounded })
}

/// Bandwidth of packets of one size, by measured points.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Served {
    /// Bits a second, at least.
    pub bps: f64,
    /// Most threads that were measured.
    pub last: u32,
    /// The size with which this was measured.
    measured: ByteSize,
    latency: Option<Duration>,
}

/// The most that is certain of packets of one size, if anything was measured with this buffer.
pub(crate) fn served(
    implementation: &Implementation,
    packet: ByteSize,
    setting: Setting,
) -> Option<Served> {
    let here = implementation.points.iter().filter(|point| point.network == setting.network);
    let sizes: BTreeSet<ByteSize> = here.map(|point| point.packet).collect();
    let bound = |measured: ByteSize| {
        let (bps, last, latency) = curve(implementation, measured, setting)?;
        // As many packets of a smaller size, as many bits of a larger one.
        let share = (packet.get() as f64 / measured.get() as f64).min(1.0);
        let longer = (packet.get() as f64 / measured.get() as f64).max(1.0);
        let latency = latency.map(|latency| latency.mul_f64(longer));
        Some(Served { bps: bps * share, last, measured, latency })
    };
    let near = |one: &Served| one.measured.get().abs_diff(packet.get());
    let all = sizes.into_iter().filter_map(bound);
    // What was measured of this very size is known, and no bound.
    all.max_by(|a, b| {
        let exact = |one: &Served| one.measured == packet;
        let order = exact(a).cmp(&exact(b)).then(a.bps.total_cmp(&b.bps));
        order.then_with(|| near(b).cmp(&near(a)))
    })
}

/// Bits a second of the points of one size with so many threads, the most threads there, and the latency.
fn curve(
    implementation: &Implementation,
    size: ByteSize,
    setting: Setting,
) -> Option<(f64, u32, Option<Duration>)> {
    let here = implementation.points.iter().filter(|point| point.network == setting.network);
    let mut points: Vec<_> = here.filter(|point| point.packet == size).collect();
    points.sort_by_key(|point| point.threads);
    let last = points.last()?.threads.get();
    let threads = f64::from(setting.threads);
    let (mut below, mut latency) = ((0.0, 0.0), None);
    for point in &points {
        let (at, bps) = (f64::from(point.threads.get()), point.bandwidth.get() as f64);
        latency = point.latency;
        if threads <= at {
            let share = (threads - below.0) / (at - below.0);
            return Some((below.1 + (bps - below.1) * share, last, latency));
        }
        below = (at, bps);
    }
    Some((below.1, last, latency))
}

/// Time of one thread for a packet, in nanoseconds.
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

/// Time that a memory is busy with one packet, in nanoseconds. `None` where a rate is needed that nobody
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

/// The bits of a packet.
pub(crate) fn bits(packet: ByteSize) -> f64 {
    packet.get() as f64 * 8.0
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
