//! Profiles that no card can have.

use snic_domain::limits::{LINKS_MAX, REGIONS_MAX};
use snic_domain::{ByteSize, CardProfile};

use crate::frame::FRAME_BYTES_MAX;

/// A card profile that cannot be simulated: which key is wrong, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("card profile {model}: {key} = {value}: {reason}")]
pub struct InvalidProfile {
    /// Name of the profile.
    pub model: String,
    /// Key in the profile.
    pub key: &'static str,
    /// Value of the key.
    pub value: String,
    /// Constraint on the value.
    pub reason: &'static str,
}

/// Slowest clock: below it a pass of the scheduler takes longer than any packet may wait.
const CLOCK_HZ_MIN: u64 = 1_000;
/// Fastest clock: ten times what any FPGA or ASIC data path runs at.
const CLOCK_HZ_MAX: u64 = 20_000_000_000;
/// Widest data path, in bits.
const WIDTH_BITS_MAX: u32 = 8_192;
/// Longest way through the core or the scheduler, in cycles.
const CORE_CYCLES_MAX: u64 = 1_000_000;

/// Refuses what would divide by zero, never let a packet through, or overflow a cycle count.
pub(crate) fn check(profile: &CardProfile) -> Result<(), InvalidProfile> {
    let p = profile;
    let wrong = |key, value: String, reason| {
        Err(InvalidProfile { model: p.model.to_string(), key, value, reason })
    };
    if !(CLOCK_HZ_MIN..=CLOCK_HZ_MAX).contains(&p.clock_hz) {
        return wrong("clock_hz", p.clock_hz.to_string(), "must be 1 kHz to 20 GHz");
    }
    if !p.width_bits.is_multiple_of(8) || !(8..=WIDTH_BITS_MAX).contains(&p.width_bits) {
        return wrong("width_bits", p.width_bits.to_string(), "must be whole bytes, at most 8192");
    }
    for (key, port) in [("ingress", p.ingress), ("egress", p.egress)] {
        if port.get() < 1_000 {
            return wrong(key, port.to_string(), "a port must pass at least 1 kbit/s");
        }
    }
    if p.packet_store < ByteSize::from_bytes(u64::from(FRAME_BYTES_MAX)) {
        return wrong("packet_store", p.packet_store.to_string(), "must hold the largest frame");
    }
    if p.configuration_bytes_per_second == 0 && !p.regions.is_empty() {
        return wrong("configuration_bytes_per_second", "0".into(), "nothing could be loaded");
    }
    if p.core < p.scheduler_pass || p.core.get() > CORE_CYCLES_MAX {
        return wrong("core", p.core.to_string(), "must hold a scheduler pass, and be under 10^6");
    }
    if p.credits_initial == 0 || p.credits_initial > 127 {
        let reason = "must be 1 to 127: a credit row has seven bits";
        return wrong("credits_initial", p.credits_initial.to_string(), reason);
    }
    if p.regions.is_empty() && p.processors.is_empty() || p.regions.len() > REGIONS_MAX {
        return wrong(
            "regions",
            p.regions.len().to_string(),
            "must be 1 to 32, or none where it has processors: the crossbar has no port for another",
        );
    }
    if let Some(links) = p.links {
        if !(1..=LINKS_MAX).contains(&usize::from(links.count)) {
            return wrong("links.count", links.count.to_string(), "must be 1 to 16, or no links");
        }
        if links.capacity.get() < 1_000 {
            let reason = "a link must pass at least 1 kbit/s";
            return wrong("links.capacity", links.capacity.to_string(), reason);
        }
        if links.latency_nanos == 0 {
            return wrong("links.latency_nanos", "0".into(), "a frame takes some time");
        }
    }
    Ok(())
}
