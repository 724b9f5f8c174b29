//! Packets into a design, and what comes out.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_domain::Bandwidth;

use crate::engine::Engine;
use crate::{Design, FRAME_BYTES_MAX, FRAME_BYTES_MIN, InvalidDesign, PacketClass, wrong};

/// Packets to send, and the time in which they are measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The flows; each packet is of one of them.
    pub flows: Vec<PacketClass>,
    /// Bytes of packets, each as often as any other.
    pub sizes: Vec<u32>,
    /// Bits of packets a second.
    pub rate: Bandwidth,
    /// Number of packets.
    pub packets: u64,
    /// The measurement begins when this many are out …
    pub from: u64,
    /// … and ends when this many are.
    pub to: u64,
    /// Seed of sizes and flows.
    pub seed: u64,
}

/// One flow's packets of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowMeasurement {
    pub flow: usize,
    /// Size in bytes.
    pub bytes: u32,
    /// Number of packets.
    pub packets: u64,
    /// The mean latency, in cycles, from the first beat in to the last beat out.
    pub mean: f64,
    pub min: u64,
    pub max: u64,
}

/// Result of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// Bits of packets that came out a second.
    pub served: Bandwidth,
    /// Measurements by flow and size; flows of which no packet of a size came out are left out.
    pub flows: Vec<FlowMeasurement>,
    /// The mean latency of all, in cycles.
    pub mean: f64,
    /// The most packets that were in the design at once.
    pub in_flight_max: usize,
    /// The mean number of packets in it, over the time measured.
    pub in_flight_mean: f64,
}

impl Workload {
    fn check(&self, design: &Design) -> Result<(), InvalidDesign> {
        let frame = FRAME_BYTES_MIN..=FRAME_BYTES_MAX;
        if let Some(bytes) = self.sizes.iter().find(|bytes| !frame.contains(bytes)) {
            return wrong("sizes", bytes, "a packet has 64 to 9216 bytes");
        }
        if self.sizes.is_empty() || self.flows.iter().all(|flow| flow.share == 0) {
            return wrong(
                "flows",
                self.flows.len(),
                "there must be a flow with a share, and a size",
            );
        }
        if self.rate == Bandwidth::ZERO {
            return wrong("rate", self.rate, "must be over zero");
        }
        if self.from >= self.to || self.to > self.packets {
            return wrong("to", self.to, "must be after `from`, and no more than are sent");
        }
        for (number, flow) in self.flows.iter().enumerate() {
            if let Some(offload) = flow.chain.iter().find(|at| **at >= design.offloads.len()) {
                return wrong(
                    format!("flows[{number}].chain"),
                    offload,
                    "there is no such offload",
                );
            }
        }
        Ok(())
    }

    /// Sends it all through a design. The same design and workload give the same numbers anywhere.
    ///
    /// # Errors
    /// The design is not valid ([`Design::check`]), or the workload does not fit it.
    pub fn run(&self, design: &Design) -> Result<Measurement, InvalidDesign> {
        design.check()?;
        self.check(design)?;
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        // Bits sent so far: the next packet comes when they are through at the rate.
        let mut sent = 0_u128;
        let shares: u32 = self.flows.iter().map(|flow| flow.share).sum();
        let mut engine = Engine::new(design, &self.flows);
        let mut sink = Sink::new(self);
        for _ in 0..self.packets {
            let bytes = self.sizes[rng.random_range(0..self.sizes.len())];
            let flow = draw_flow(&self.flows, rng.random_range(0..shares));
            let at = (sent * u128::from(design.clock_hz)).div_ceil(self.rate.get().into());
            let at = u64::try_from(at).unwrap_or(u64::MAX);
            sent += u128::from(bytes) * 8;
            engine.run(at + 1);
            engine.now = engine.now.max(at);
            engine.inject(at, flow, bytes);
            sink.take(&mut engine);
        }
        engine.run(u64::MAX);
        sink.take(&mut engine);
        if let Err(reason) = engine.check_rest() {
            debug_assert!(false, "{reason}");
        }
        Ok(sink.measurement(design.clock_hz, engine.packets.most()))
    }
}

/// Bytes in a number of cycles as bits per second; zero in no time.
fn bandwidth(bytes: u64, cycles: u64, clock_hz: u64) -> Bandwidth {
    let bits = u128::from(bytes) * 8 * u128::from(clock_hz);
    let bps = bits.checked_div(u128::from(cycles)).unwrap_or(0);
    Bandwidth::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
}

fn draw_flow(flows: &[PacketClass], mut draw: u32) -> usize {
    for (number, flow) in flows.iter().enumerate() {
        if draw < flow.share {
            return number;
        }
        draw -= flow.share;
    }
    0
}

/// Sink that takes packets and measures them.
struct Sink<'a> {
    workload: &'a Workload,
    out: u64,
    begin: u64,
    end: u64,
    bytes: u64,
    latency: u64,
    /// Sums by flow and size.
    cells: Vec<(u64, u64, u64, u64)>,
}

impl<'a> Sink<'a> {
    fn new(workload: &'a Workload) -> Self {
        let cells = vec![(0, 0, u64::MAX, 0); workload.flows.len() * workload.sizes.len()];
        Self { workload, out: 0, begin: 0, end: 0, bytes: 0, latency: 0, cells }
    }

    fn take(&mut self, engine: &mut Engine<'_>) {
        for (packet, at) in engine.out.drain(..) {
            self.out += 1;
            if self.out == self.workload.from {
                self.begin = at;
            }
            if self.out <= self.workload.from || self.out > self.workload.to {
                continue;
            }
            self.end = at;
            self.bytes += u64::from(packet.bytes);
            let latency = at - packet.born;
            self.latency += latency;
            let size = self.workload.sizes.iter().position(|bytes| *bytes == packet.bytes);
            let cell = packet.flow * self.workload.sizes.len() + size.unwrap_or(0);
            let (count, sum, min, max) = &mut self.cells[cell];
            *count += 1;
            *sum += latency;
            *min = latency.min(*min);
            *max = latency.max(*max);
        }
    }

    fn measurement(self, clock_hz: u64, in_flight_max: usize) -> Measurement {
        let sizes = &self.workload.sizes;
        let measured = |(cell, &(packets, sum, min, max)): (usize, &(u64, u64, u64, u64))| {
            (packets > 0).then(|| FlowMeasurement {
                flow: cell / sizes.len(),
                bytes: sizes[cell % sizes.len()],
                packets,
                mean: sum as f64 / packets as f64,
                min,
                max,
            })
        };
        let cycles = self.end - self.begin;
        Measurement {
            served: bandwidth(self.bytes, cycles, clock_hz),
            flows: self.cells.iter().enumerate().filter_map(measured).collect(),
            mean: self.latency as f64 / (self.workload.to - self.workload.from) as f64,
            in_flight_max,
            in_flight_mean: self.latency as f64 / cycles.max(1) as f64,
        }
    }
}
