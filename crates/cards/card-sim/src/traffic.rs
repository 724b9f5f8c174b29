//! Traffic that meets the card: who sends, how much, in what sizes; all from a seed.
//!
//! Nothing here depends on the machine: draws come from a fixed generator, and the logarithm that
//! Poisson arrivals need is computed from additions, multiplications and divisions only, which
//! every machine rounds in the same way.

use std::sync::Arc;

use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_domain::{Bandwidth, DagUid, Timestamp};

use crate::capture::Capture;
use crate::flows::Flows;
use crate::frame::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};
use crate::time::{Clock, Meter, Rate};

/// The simple IMIX: sizes in bytes and how many of twelve packets have them.
pub const IMIX: [(u32, u32); 3] = [(64, 7), (594, 4), (1_518, 1)];

/// Time that a source may fall behind its own times while the port is taken, in cycles; what it
/// would have sent before that is never sent. 16 µs at 250 MHz: a queue of 200 kB at 100 Gbit/s.
const LAG_CYCLES_MAX: u64 = 4_096;

/// Sizes of packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// All the same.
    Fixed(u32),
    /// Each of these as often as any other; at least one.
    UniformOver(Vec<u32>),
    /// Drawn: sizes and how often each comes beside the others, such as [`IMIX`].
    Mix(Vec<(u32, u32)>),
    /// One after the other, again and again; at least one.
    InOrder(Arc<[u32]>),
    /// Those of flows of Facebook's data centres, heavy-tailed: full packets, and the flows' ends.
    Facebook,
}

impl Sizes {
    /// The simple IMIX: [`IMIX`].
    pub fn imix() -> Self {
        Self::Mix(IMIX.to_vec())
    }

    fn all(&self) -> Vec<u32> {
        match self {
            Self::Fixed(bytes) => vec![*bytes],
            Self::Facebook => vec![FRAME_BYTES_MIN],
            Self::UniformOver(sizes) => sizes.clone(),
            Self::InOrder(sizes) => sizes.to_vec(),
            Self::Mix(parts) => {
                parts.iter().filter(|(_, share)| *share > 0).map(|(bytes, _)| *bytes).collect()
            }
        }
    }
}

/// When packets are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly: the next packet follows after the time that this one takes at the source's rate.
    Constant,
    /// The same time on average, exponentially distributed.
    Poisson,
    /// The same time on average, heavy-tailed (Pareto, of infinite variance): long silences between
    /// bursts.
    HeavyTailed,
}

/// Fields of a packet that the card's parser sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// The descriptor's DAG, where the sender put one.
    pub dag: Option<DagUid>,
    /// The virtual function that sent it.
    pub virtual_function: u16,
    /// VXLAN network identifier, where there is one.
    pub vni: Option<u32>,
    /// VLAN of the outermost tag, where there is one.
    pub vlan: Option<u16>,
    pub source: u32,
    pub destination: u32,
    pub protocol: u8,
    /// TCP or UDP source port.
    pub source_port: u16,
    /// TCP or UDP destination port.
    pub destination_port: u16,
}

impl Header {
    /// A hash of what tells flows apart.
    pub(crate) fn flow_hash(&self) -> u8 {
        let addresses = u64::from(self.source) << 32 | u64::from(self.destination);
        let ports = u64::from(self.source_port) << 32 | u64::from(self.destination_port);
        // Knuth's multiplicative hash, with the golden ratio of 64 bits.
        let mix = |word: u64| word.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let sum = mix(addresses) ^ mix(ports ^ u64::from(self.protocol) << 16).rotate_left(23);
        (mix(sum) >> 56) as u8
    }
}

/// One flow: packets with one header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficSource {
    /// Fields that the parser sees.
    pub header: Header,
    /// Bits of packets per second; the ingress port may allow less.
    pub rate: Bandwidth,
    /// Sizes of its packets.
    pub sizes: Sizes,
    /// When they are sent.
    pub arrivals: Arrivals,
    /// When it begins; at once where that is past.
    pub start: Timestamp,
    /// When it ends; `None` never.
    pub stop: Option<Timestamp>,
    /// Number of packets that it sends at most.
    pub packets_max: Option<u64>,
    /// A capture whose lengths and times are sent again; rate, sizes and arrivals then do not
    /// count.
    pub replay: Option<Arc<Capture>>,
}

/// A source that cannot be attached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSource {
    /// It would never send.
    #[error("a traffic source needs a rate over zero")]
    NoRate,
    /// It has nothing to send.
    #[error("a traffic source needs at least one packet size")]
    NoSize,
    /// No such frame.
    #[error("a packet has {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX} bytes, not {0}")]
    Size(u32),
}

impl TrafficSource {
    /// Packets of one DAG that carry its UID, at a constant rate, from now on and without end.
    pub fn of_dag(dag: DagUid, rate: Bandwidth, sizes: Sizes) -> Self {
        Self::new(Header { dag: Some(dag), ..Header::default() }, rate, sizes)
    }

    /// Packets with this header, at a constant rate, from now on and without end.
    pub fn new(header: Header, rate: Bandwidth, sizes: Sizes) -> Self {
        let (start, stop, packets_max, replay) = (Timestamp::ZERO, None, None, None);
        let arrivals = Arrivals::Constant;
        Self { header, rate, sizes, arrivals, start, stop, packets_max, replay }
    }

    /// Smallest packets that ask a TCP service for connections, and never go on.
    pub fn syn_flood(target: Header, rate: Bandwidth) -> Self {
        const TCP: u8 = 6;
        let header = Header { protocol: TCP, ..target };
        Self::new(header, rate, Sizes::Fixed(FRAME_BYTES_MIN)).poisson()
    }

    /// The packets of a capture again: their lengths, in their times from `start` on.
    pub fn replay(header: Header, capture: Arc<Capture>, start: Timestamp) -> Self {
        let rate = Bandwidth::from_gbps(1);
        let again = Self::new(header, rate, Sizes::Fixed(FRAME_BYTES_MIN));
        Self { start, replay: Some(capture), ..again }
    }

    /// A load in steps: this source at each of these rates from its time on, until the next one; a
    /// rate of zero is a silence.
    pub fn steps(self, steps: &[(Timestamp, Bandwidth)]) -> Vec<Self> {
        let ends = steps.iter().skip(1).map(|(end, _)| Some(*end)).chain([self.stop]);
        let step = |(&(start, rate), stop): (&(Timestamp, Bandwidth), Option<Timestamp>)| {
            (rate > Bandwidth::ZERO).then(|| Self { rate, start, stop, ..self.clone() })
        };
        steps.iter().zip(ends).filter_map(step).collect()
    }

    /// The same with Poisson arrivals.
    #[must_use]
    pub fn poisson(self) -> Self {
        Self { arrivals: Arrivals::Poisson, ..self }
    }

    /// The same from `start` until `stop`.
    #[must_use]
    pub fn between(self, start: Timestamp, stop: Timestamp) -> Self {
        Self { start, stop: Some(stop), ..self }
    }

    /// The same, but no more than `packets`.
    #[must_use]
    pub fn at_most(self, packets: u64) -> Self {
        Self { packets_max: Some(packets), ..self }
    }

    fn check(&self) -> Result<(), InvalidSource> {
        let sizes = self.sizes.all();
        let frame = FRAME_BYTES_MIN..=FRAME_BYTES_MAX;
        match sizes.iter().find(|bytes| !frame.contains(bytes)) {
            _ if self.rate == Bandwidth::ZERO => Err(InvalidSource::NoRate),
            _ if sizes.is_empty() => Err(InvalidSource::NoSize),
            Some(&bytes) => Err(InvalidSource::Size(bytes)),
            None => Ok(()),
        }
    }
}

/// A source at work.
#[derive(Debug)]
pub(crate) struct Generator {
    source: TrafficSource,
    rng: ChaCha8Rng,
    clock: Clock,
    /// When the first packet of a capture is due.
    start: Timestamp,
    flows: Flows,
    rate: Rate,
    /// Free again when the next packet is due.
    schedule: Meter,
    stop: u64,
    pub(crate) sent: u64,
    /// When the last of them was due.
    pub(crate) offered: u64,
    /// Answer of the classifier about its header, with the version of the tables.
    pub(crate) classified: Option<(u32, Option<DagUid>)>,
}

impl Generator {
    pub(crate) fn new(
        source: TrafficSource,
        clock: Clock,
        now: u64,
        seed: u64,
    ) -> Result<Self, InvalidSource> {
        source.check()?;
        let rate = clock.rate(source.rate.get()).ok_or(InvalidSource::NoRate)?;
        let mut schedule = Meter::new(rate);
        schedule.not_before(now.max(clock.cycle_at(source.start)));
        let stop = source.stop.map_or(u64::MAX, |stop| clock.cycle_at(stop));
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let start = source.start.max(Timestamp::from_nanos(clock.nanos(now)));
        let (flows, sent, offered, classified) = (Flows::default(), 0, now, None);
        let mut generator = Self {
            source,
            rng,
            clock,
            start,
            flows,
            rate,
            schedule,
            stop,
            sent,
            offered,
            classified,
        };
        if generator.source.arrivals != Arrivals::Constant {
            // The first packet comes as any other: after a drawn time.
            let bytes = generator.draw_size();
            generator.pass_time(u64::from(bytes) * 8);
        }
        Ok(generator)
    }

    /// The most bytes that a packet of its has, as far as that is known before they are drawn.
    pub(crate) fn largest(&self) -> u32 {
        match (&self.source.replay, &self.source.sizes) {
            (Some(_), _) | (None, Sizes::Facebook) => FRAME_BYTES_MAX,
            (None, Sizes::Fixed(bytes)) => *bytes,
            (None, Sizes::UniformOver(sizes)) => sizes.iter().copied().max().unwrap_or(0),
            (None, Sizes::InOrder(sizes)) => sizes.iter().copied().max().unwrap_or(0),
            (None, Sizes::Mix(parts)) => parts.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0),
        }
    }

    /// The next packet is due at this cycle or later.
    pub(crate) fn not_before(&mut self, cycle: u64) {
        self.schedule.not_before(cycle);
    }

    pub(crate) const fn header(&self) -> &Header {
        &self.source.header
    }

    /// When the next packet is due; `None` where there is none any more.
    pub(crate) fn due(&self) -> Option<u64> {
        let at = match &self.source.replay {
            Some(capture) => self.clock.cycle_at(capture.packet(self.sent, self.start)?.0),
            None => self.schedule.free_at(),
        };
        let more = self.source.packets_max.is_none_or(|most| self.sent < most);
        (more && at < self.stop).then_some(at)
    }

    /// The next packet goes out at `now`: how many bytes it has.
    pub(crate) fn send(&mut self, now: u64) -> u32 {
        let bytes = self.draw_size();
        self.offered = self.due().map_or(now, |due| due.min(now));
        self.sent += 1;
        self.pass_time(u64::from(bytes) * 8);
        self.schedule.not_before(now.saturating_sub(LAG_CYCLES_MAX));
        bytes
    }

    fn pass_time(&mut self, bits: u64) {
        let mean = self.rate.work(bits);
        let work = match self.source.arrivals {
            Arrivals::Constant => mean,
            Arrivals::Poisson => (mean as f64 * exponential(&mut self.rng)) as u64,
            Arrivals::HeavyTailed => (mean as f64 * pareto(&mut self.rng)) as u64,
        };
        self.schedule.serve_work(0, work);
    }

    fn draw_size(&mut self) -> u32 {
        if let Some(capture) = &self.source.replay {
            return capture.packet(self.sent, self.start).map_or(FRAME_BYTES_MIN, |(_, b)| b);
        }
        match &self.source.sizes {
            Sizes::Facebook => self.flows.next(&mut self.rng),
            Sizes::Fixed(bytes) => *bytes,
            Sizes::UniformOver(sizes) => sizes[self.rng.random_range(0..sizes.len())],
            Sizes::InOrder(sizes) => sizes[(self.sent % sizes.len() as u64) as usize],
            Sizes::Mix(parts) => {
                let all = parts.iter().map(|(_, share)| u64::from(*share)).sum();
                draw_part(parts, self.rng.random_range(0..all))
            }
        }
    }
}

/// The size in whose share `draw` falls.
fn draw_part(parts: &[(u32, u32)], mut draw: u64) -> u32 {
    for (bytes, share) in parts {
        if draw < u64::from(*share) {
            return *bytes;
        }
        draw -= u64::from(*share);
    }
    FRAME_BYTES_MIN
}

/// In the middle of 2^53 equal parts of (0, 1): never zero, never one.
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// An exponentially distributed number with mean one; never more than 38.
fn exponential(rng: &mut ChaCha8Rng) -> f64 {
    -ln(uniform(rng))
}

/// A Pareto-distributed number with mean one and shape two, cut off at ten thousand.
fn pareto(rng: &mut ChaCha8Rng) -> f64 {
    (0.5 / uniform(rng).sqrt()).min(10_000.0)
}

/// 1, 1/3, 1/5 … 1/19: the series of the inverse hyperbolic tangent.
const ODD_PARTS: [f64; 10] = {
    let mut parts = [0.0; 10];
    let mut i = 0;
    while i < 10 {
        parts[i] = 1.0 / (2 * i + 1) as f64;
        i += 1;
    }
    parts
};

/// The natural logarithm of a normal positive number, to 1e-14, the same on every machine.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i32 - 1_023;
    let mut mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1_023 << 52);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh((m - 1) / (m + 1)), whose argument is at most 0.172.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = ODD_PARTS.iter().rev().fold(0.0, |sum, part| sum * square + part);
    f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * s * series
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLOCK: Clock = Clock::new(250_000_000);

    fn source(rate: Bandwidth, sizes: Sizes) -> TrafficSource {
        TrafficSource::new(Header::default(), rate, sizes)
    }

    fn times(source: &TrafficSource, packets: usize, seed: u64) -> Vec<(u64, u32)> {
        let mut generator = Generator::new(source.clone(), CLOCK, 0, seed).expect("valid");
        let next = || {
            let due = generator.due()?;
            Some((due, generator.send(due)))
        };
        std::iter::from_fn(next).take(packets).collect()
    }

    #[test]
    fn a_constant_source_keeps_its_rate_to_the_cycle() {
        let sent = times(&source(Bandwidth::from_gbps(30), Sizes::Fixed(64)), 16, 1);
        assert_eq!(sent[15].0, 64, "15 packets of 512 bits at 30 Gbit/s are 64 cycles");
        assert_eq!(sent[1].0, 5, "4.27 cycles");
    }

    #[test]
    fn a_poisson_source_keeps_its_rate_on_average() {
        let source = source(Bandwidth::from_gbps(10), Sizes::imix()).poisson();
        let sent = times(&source, 100_000, 7);
        let bits: f64 = sent.iter().map(|(_, bytes)| f64::from(*bytes) * 8.0).sum();
        let seconds = sent[99_999].0 as f64 * 4e-9;
        assert!((bits / seconds / 1e10 - 1.0).abs() < 0.02, "{}", bits / seconds);
        let short = sent.windows(2).filter(|w| w[1].0 - w[0].0 < 10).count();
        assert!(short > 5_000, "about one gap in twelve is that short: {short}");
    }

    #[test]
    fn a_heavy_tailed_source_keeps_its_rate_with_long_silences() {
        let mut source = source(Bandwidth::from_gbps(10), Sizes::Fixed(125));
        source.arrivals = Arrivals::HeavyTailed;
        let sent = times(&source, 200_000, 7);
        let mean = sent[199_999].0 as f64 / 200_000.0;
        assert!((mean / 25.0 - 1.0).abs() < 0.05, "25 cycles a packet: {mean}");
        let longest = sent.windows(2).map(|w| w[1].0 - w[0].0).max().expect("many");
        assert!(longest > 25 * 100, "{longest}");
        let median = sent.windows(2).filter(|w| w[1].0 - w[0].0 <= 18).count();
        assert!(
            (90_000..110_000).contains(&median),
            "half the gaps are under 0.71 of it: {median}"
        );
    }

    #[test]
    fn a_load_in_steps_is_one_source_a_step() {
        let at = |micros: u64| Timestamp::from_nanos(micros * 1_000);
        let gbps = Bandwidth::from_gbps;
        let steps = source(gbps(1), Sizes::Fixed(125)).steps(&[
            (at(0), gbps(10)),
            (at(10), Bandwidth::ZERO),
            (at(20), gbps(40)),
        ]);
        let sent: Vec<_> = steps.iter().map(|step| times(step, 1_000, 0)).collect();
        assert_eq!(sent.len(), 2, "silence needs no source");
        assert_eq!((sent[0].len(), sent[0][99].0), (100, 2_475));
        assert_eq!(sent[1][0].0, 5_000);
    }

    #[test]
    fn a_capture_is_sent_again_in_its_own_time() {
        let mut file = 0xa1b2_3c4d_u32.to_le_bytes().to_vec();
        file.resize(24, 0);
        for (nanos, bytes) in [(0_u32, 60_u32), (400, 1_500), (400, 128)] {
            for word in [9, nanos, 0, bytes] {
                file.extend(word.to_le_bytes());
            }
        }
        let capture = Arc::new(Capture::parse(&file).expect("whole"));
        let start = Timestamp::from_nanos(4_000);
        let source = TrafficSource::replay(Header::default(), capture, start);
        assert_eq!(times(&source, 10, 0), [(1_000, 64), (1_100, 1_500), (1_100, 128)]);
    }

    #[test]
    fn a_flood_is_of_smallest_tcp_packets() {
        let target = Header { destination: 7, destination_port: 443, ..Header::default() };
        let flood = TrafficSource::syn_flood(target, Bandwidth::from_gbps(25));
        assert_eq!((flood.header.protocol, flood.header.destination_port), (6, 443));
        assert!(times(&flood, 100, 0).iter().all(|(_, bytes)| *bytes == 64));
    }

    #[test]
    fn imix_is_seven_four_one() {
        let sent = times(&source(Bandwidth::from_gbps(10), Sizes::imix()), 120_000, 3);
        for (bytes, of_twelve) in IMIX {
            let seen = sent.iter().filter(|(_, b)| *b == bytes).count() as f64 / 10_000.0;
            assert!((seen - f64::from(of_twelve)).abs() < 0.15, "{bytes}: {seen}");
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_traffic() {
        let source = source(Bandwidth::from_gbps(10), Sizes::UniformOver(vec![64, 512])).poisson();
        assert_eq!(times(&source, 100, 5), times(&source, 100, 5));
        assert_ne!(times(&source, 100, 5), times(&source, 100, 6));
    }

    #[test]
    fn a_source_begins_and_ends_when_told() {
        let source = source(Bandwidth::from_gbps(1), Sizes::Fixed(125))
            .between(Timestamp::from_nanos(4_000), Timestamp::from_nanos(8_000));
        let sent: Vec<_> = times(&source, 100, 0).iter().map(|(at, _)| *at).collect();
        assert_eq!(sent, [1_000, 1_250, 1_500, 1_750]);
        assert_eq!(times(&source.clone().at_most(2), 100, 0).len(), 2);
    }

    #[test]
    fn a_late_source_does_not_catch_up_in_a_burst() {
        let source = source(Bandwidth::from_gbps(128), Sizes::Fixed(64));
        let mut generator = Generator::new(source, CLOCK, 0, 0).expect("valid");
        generator.send(1_000_000);
        assert_eq!(generator.due(), Some(1_000_000 - LAG_CYCLES_MAX));
    }

    #[test]
    fn sources_that_cannot_send_are_refused() {
        let refused = |rate, sizes| {
            Generator::new(source(rate, sizes), CLOCK, 0, 0).map(|_| ()).expect_err("invalid")
        };
        let rate = Bandwidth::from_gbps(1);
        assert_eq!(refused(Bandwidth::ZERO, Sizes::imix()), InvalidSource::NoRate);
        assert_eq!(refused(rate, Sizes::UniformOver(vec![])), InvalidSource::NoSize);
        assert_eq!(refused(rate, Sizes::Mix(vec![(64, 0)])), InvalidSource::NoSize);
        assert_eq!(refused(rate, Sizes::Fixed(63)), InvalidSource::Size(63));
        assert_eq!(refused(rate, Sizes::UniformOver(vec![64, 9_217])), InvalidSource::Size(9_217));
    }

    proptest! {
        #[test]
        fn the_logarithm_is_the_logarithm(x in 1e-17_f64..1.0) {
            prop_assert!((ln(x) - x.ln()).abs() < 1e-12, "{} {}", ln(x), x.ln());
        }
    }
}
