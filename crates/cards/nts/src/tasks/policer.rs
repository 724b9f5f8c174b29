//! Policer: a token bucket. Tokens flow in at the rate up to the burst; a packet takes as many as it
//! has bits, or is over the rate.

use serde::{Deserialize, Serialize};
use snic_domain::Timestamp;

use crate::config::{Configuration, Field, InvalidConfiguration, Kind, Schema};
use crate::state::{self, InvalidState};
use crate::wire::{self, Frame, Layout};
use crate::{Context, DropReason, FlowRule, NetworkTask, Packet, Verdict};

/// Largest burst: a bucket in bit-nanoseconds fits 64 bits with it.
const BURST_BYTES_MAX: u64 = 1 << 30;

pub(crate) static SCHEMA: Schema = Schema {
    nt_type: "policer",
    version: 1,
    fields: &[
        Field::required(
            "rate_bps",
            Kind::Integer { min: 1_000, max: 4_000_000_000_000 },
            "Bits a second that pass.",
        ),
        Field::required(
            "burst_bytes",
            Kind::Integer { min: 64, max: BURST_BYTES_MAX },
            "Bytes that pass at once after a pause; packets larger than this never pass.",
        ),
        Field::optional(
            "overhead_bytes",
            Kind::Integer { min: 0, max: 64 },
            "Bytes counted for each frame beyond its own, such as 24 for Ethernet; 0 by default.",
        ),
        Field::optional(
            "over_rate",
            Kind::Choice(&["drop", "mark"]),
            "What happens to packets over the rate; drop by default.",
        ),
        Field::optional(
            "mark_dscp",
            Kind::Integer { min: 0, max: 63 },
            "The DSCP that mark writes; 0 (best effort) by default.",
        ),
    ],
};

const STATE_VERSION: u16 = 1;

/// Tokens: a bit is a billion of them, so that a nanosecond at 1 bit/s adds a whole one.
const TOKENS_PER_BIT: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OverRate {
    #[default]
    Drop,
    Mark,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Settings {
    rate_bps: u64,
    burst_bytes: u64,
    #[serde(default)]
    overhead_bytes: u64,
    #[serde(default)]
    over_rate: OverRate,
    #[serde(default)]
    mark_dscp: u8,
}

impl Settings {
    fn burst_tokens(&self) -> u64 {
        self.burst_bytes * 8 * TOKENS_PER_BIT
    }
}

/// The NT: settings and bucket. The bucket starts full.
#[derive(Debug, Default)]
pub(crate) struct Policer {
    settings: Option<Settings>,
    bucket: Option<Bucket>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: u64,
    filled: Timestamp,
}

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    tokens: Option<u64>,
}

impl Bucket {
    fn fill(&mut self, settings: &Settings, now: Timestamp) {
        // Tokens are parts of a bit so small that a nanosecond at 1 bit/s gains one: nothing is divided, and so
        // nothing is lost to rounding however short the gaps between packets are.
        let nanos = now.since(self.filled).as_nanos();
        let gained = u64::try_from(nanos * u128::from(settings.rate_bps)).unwrap_or(u64::MAX);
        self.tokens = self.tokens.saturating_add(gained).min(settings.burst_tokens());
        self.filled = self.filled.max(now);
    }
}

impl Policer {
    fn is_within_rate(&mut self, settings: &Settings, bytes: usize, now: Timestamp) -> bool {
        let full = Bucket { tokens: settings.burst_tokens(), filled: now };
        let bucket = self.bucket.get_or_insert(full);
        bucket.fill(settings, now);
        let bits = (bytes as u64 + settings.overhead_bytes) * 8;
        match bucket.tokens.checked_sub(bits.saturating_mul(TOKENS_PER_BIT)) {
            Some(rest) => {
                bucket.tokens = rest;
                true
            }
            None => false,
        }
    }
}

impl NetworkTask for Policer {
    fn configure(
        &mut self,
        _: Timestamp,
        configuration: &Configuration,
    ) -> Result<(), InvalidConfiguration> {
        // The bucket stays: a new configuration gives no second burst.
        self.settings = Some(configuration.read()?);
        Ok(())
    }

    fn process(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> Verdict {
        let Some(settings) = self.settings else {
            return Verdict::Drop(DropReason::Unconfigured);
        };
        if self.is_within_rate(&settings, packet.len(), context.now) {
            return Verdict::Forward;
        }
        match settings.over_rate {
            OverRate::Drop => Verdict::Drop(DropReason::RateExceeded),
            OverRate::Mark => match wire::parse(packet.bytes()) {
                Ok(Frame::Ip(layout)) => {
                    let ecn = layout.traffic_class(packet.bytes()) & 3;
                    layout.set_traffic_class(packet.bytes_mut(), settings.mark_dscp << 2 | ecn);
                    Verdict::Forward
                }
                // Without a DSCP nothing can be marked.
                Ok(Frame::Arp | Frame::Other(_)) | Err(DropReason::Unreadable) => {
                    Verdict::Drop(DropReason::RateExceeded)
                }
                Err(reason) => Verdict::Drop(reason),
            },
        }
    }

    fn flow_rule(&self) -> Option<FlowRule> {
        self.settings.map(|_| FlowRule::JUDGE)
    }

    fn follow(
        &mut self,
        _: &FlowRule,
        (bytes, _): (&mut [u8], &Layout),
        context: &mut Context<'_>,
    ) -> bool {
        let settings = self.settings;
        settings.is_some_and(|settings| self.is_within_rate(&settings, bytes.len(), context.now))
    }

    fn save(&self, now: Timestamp, out: &mut Vec<u8>) {
        let tokens = self.bucket.map(|mut bucket| {
            if let Some(settings) = self.settings {
                bucket.fill(&settings, now);
            }
            bucket.tokens
        });
        state::write(SCHEMA.nt_type, STATE_VERSION, &Saved { tokens }, out);
    }

    fn restore(&mut self, now: Timestamp, bytes: &[u8]) -> Result<(), InvalidState> {
        let saved: Saved = state::read(SCHEMA.nt_type, STATE_VERSION, bytes)?;
        self.bucket = saved.tokens.map(|tokens| Bucket { tokens, filled: now });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::tasks::support::{Bench, udp};

    fn policer(settings: serde_json::Value) -> Bench {
        Bench::new("policer", settings)
    }

    #[test]
    fn the_burst_passes_and_then_the_rate() {
        // 8 Mbit/s: a byte a microsecond.
        let mut bench = policer(json!({"rate_bps": 8_000_000, "burst_bytes": 1_000}));
        let frame = vec![0; 500];
        assert_eq!(bench.run(&frame).verdict, Verdict::Forward);
        assert_eq!(bench.run(&frame).verdict, Verdict::Forward);
        assert_eq!(bench.run(&frame).verdict, Verdict::Drop(DropReason::RateExceeded));
        bench.wait_nanos(499_999);
        assert_eq!(bench.run(&frame).verdict, Verdict::Drop(DropReason::RateExceeded));
        bench.wait_nanos(1);
        assert_eq!(bench.run(&frame).verdict, Verdict::Forward);
        assert!(bench.wake().is_empty(), "nothing is ever due");
        bench.restart();
        assert_eq!(bench.run(&frame).verdict, Verdict::Drop(DropReason::RateExceeded), "saved");
    }

    #[test]
    fn marking_changes_the_dscp_and_keeps_ecn_and_checksums() {
        let mut bench = policer(json!({
            "rate_bps": 1_000, "burst_bytes": 64, "over_rate": "mark", "mark_dscp": 10,
        }));
        for frame in [udp("10.0.0.1", "10.0.0.2", b"x"), udp("2001:db8::1", "2001:db8::2", b"x")] {
            let mut frame = frame;
            let Frame::Ip(layout) = wire::parse(&frame).unwrap() else { panic!() };
            layout.set_traffic_class(&mut frame, 0b101_1101);
            bench.run(&[0; 64]);
            let out = bench.run(&frame);
            assert_eq!(out.verdict, Verdict::Forward);
            let Frame::Ip(layout) = wire::parse(&out.frame).unwrap() else { panic!() };
            assert_eq!(layout.traffic_class(&out.frame), 10 << 2 | 1);
        }
        bench.run(&[0; 64]);
        assert_eq!(bench.run(&[0; 64]).verdict, Verdict::Drop(DropReason::RateExceeded));
    }

    proptest! {
        /// The continuous-state leaky bucket of ITU-T I.371 (GCRA), over exact numbers, decides the
        /// same: it keeps a level that drains, and a packet fits while the level is below the burst.
        #[test]
        fn the_leaky_bucket_decides_the_same(
            rate in 1_000..10_000_000_000_u64,
            burst in 64..100_000_u64,
            packets in prop::collection::vec((0..2_000_000_u64, 1..2_000_usize), 1..100),
        ) {
            let mut bench = policer(json!({"rate_bps": rate, "burst_bytes": burst}));
            let mut level = 0_i128; // in bit-nanoseconds
            let limit = i128::from(burst) * 8_000_000_000;
            for (nanos, bytes) in packets {
                bench.wait_nanos(nanos);
                level = (level - i128::from(nanos) * i128::from(rate)).max(0);
                let cost = bytes as i128 * 8_000_000_000;
                let fits = level + cost <= limit;
                level += if fits { cost } else { 0 };
                let verdict = bench.run(&vec![0; bytes]).verdict;
                prop_assert_eq!(verdict == Verdict::Forward, fits);
            }
        }
    }
}
