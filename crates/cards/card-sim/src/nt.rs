//! One NT in its wrapper.

use snic_ports::card::image::SlotRom;

use crate::time::{Clock, Meter};

/// One NT in its wrapper.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nt {
    pub(crate) code: u32,
    pub(crate) latency: u64,
    /// Bytes that it keeps for one UID.
    pub(crate) state_bytes: u32,
    /// Serves its bandwidth and not a bit more.
    pub(crate) meter: Meter,
    /// When it would be done with all that the scheduler let in, came that at once: what the scheduler
    /// knows of it.
    pub(crate) ahead: Meter,
}

impl Nt {
    pub(crate) fn of(rom: &SlotRom, clock: Clock) -> Option<Self> {
        let rate = clock.rate(rom.bandwidth_max().get())?;
        let latency = u64::from(rom.latency_cycles);
        let state_bytes = u32::try_from(rom.state().get()).unwrap_or(u32::MAX);
        let (meter, ahead) = (Meter::new(rate), Meter::new(rate));
        Some(Self { code: rom.code.0, latency, state_bytes, meter, ahead })
    }
}
