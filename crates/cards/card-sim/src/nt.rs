//! One NT in its wrapper.

use snic_domain::MemoryTraffic;
use snic_ports::card::image::SlotRom;

use crate::time::{Clock, Meter, ServiceTime};

/// One NT in its wrapper.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nt {
    pub(crate) code: u32,
    pub(crate) latency: u64,
    /// Bytes that it keeps for one UID.
    pub(crate) state_bytes: u32,
    /// Bytes that it moves in on-board memory for each packet.
    pub(crate) memory_traffic: MemoryTraffic,
    /// Serves its bandwidth and its packets, and not a bit more.
    pub(crate) meter: NtMeter,
    /// When it would be done with all that the scheduler let in, came that at once: what the scheduler
    /// knows of it.
    pub(crate) ahead: NtMeter,
}

impl Nt {
    pub(crate) fn of(rom: &SlotRom, clock: Clock) -> Option<Self> {
        let latency = u64::from(rom.latency_cycles);
        let state_bytes = u32::try_from(rom.state().get()).unwrap_or(u32::MAX);
        let meter = NtMeter::of(rom, clock)?;
        let (code, memory_traffic) = (rom.code.0, rom.memory_traffic);
        Some(Self { code, latency, state_bytes, memory_traffic, meter, ahead: meter })
    }
}

/// The two limits of an NT, one behind the other: a packet is taken when the packets before it were, as many in a
/// second as the NT takes; then its bits pass, at the NT's bandwidth.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NtMeter {
    bits: Meter,
    packets: Option<Meter>,
}

impl NtMeter {
    fn of(rom: &SlotRom, clock: Clock) -> Option<Self> {
        let bits = Meter::new(clock.rate(rom.bandwidth_max().get())?);
        let packets = rom.packets_per_second.and_then(|most| clock.rate(most.get().into()));
        Some(Self { bits, packets: packets.map(Meter::new) })
    }

    /// The same NT with nothing to do.
    pub(crate) fn fresh(&self) -> Self {
        Self { bits: self.bits.fresh(), packets: self.packets.as_ref().map(Meter::fresh) }
    }

    /// The cycle from which it takes a packet at once.
    pub(crate) fn free_at(&self) -> u64 {
        self.bits.free_at().max(self.packets.as_ref().map_or(0, Meter::free_at))
    }

    /// Serves a packet of `bits` as soon as it can, at `now` or later. It is done with it when its bits are through and
    /// the next packet could be taken.
    #[inline]
    pub(crate) fn serve(&mut self, now: u64, bits: u64) -> ServiceTime {
        let Some(packets) = &mut self.packets else { return self.bits.serve(now, bits) };
        let taken = packets.serve(now, 1);
        let ServiceTime { start, end } = self.bits.serve(taken.start, bits);
        ServiceTime { start, end: end.max(taken.end) }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use snic_domain::NtCode;

    use super::*;

    /// 8 Gbit/s are 32 bits a cycle at 250 MHz.
    fn meter(packets_per_second: Option<u32>) -> NtMeter {
        let rom = SlotRom {
            code: NtCode(1),
            latency_cycles: 10,
            bandwidth_kbps: 8_000_000,
            payload: true,
            state_units: 0,
            packets_per_second: packets_per_second.and_then(NonZeroU32::new),
            memory_traffic: MemoryTraffic::default(),
        };
        NtMeter::of(&rom, Clock::new(250_000_000)).expect("it serves something")
    }

    /// The starts of packets of so many bits that all come at once, and the end of the last.
    fn served(mut meter: NtMeter, bits: &[u64]) -> (Vec<u64>, u64) {
        let served: Vec<ServiceTime> = bits.iter().map(|bits| meter.serve(100, *bits)).collect();
        let end = served.last().map_or(0, |last| last.end);
        (served.iter().map(|served| served.start).collect(), end)
    }

    #[test]
    fn small_packets_wait_for_the_packets_before_and_large_ones_for_the_bits() {
        // A packet in 40 cycles; 512 bits take 16, 6,400 take 200.
        let limited = meter(Some(6_250_000));
        assert_eq!(served(limited, &[512; 3]), (vec![100, 140, 180], 220));
        assert_eq!(served(limited, &[6_400; 3]), (vec![100, 300, 500], 700));
        assert_eq!(served(meter(None), &[512; 3]), (vec![100, 116, 132], 148));
        assert_eq!(served(limited, &[6_400, 512, 512]), (vec![100, 300, 316], 332));
    }

    #[test]
    fn parts_of_a_cycle_add_up() {
        // A packet in 2.5 cycles, whose 32 bits take one.
        let (starts, end) = served(meter(Some(100_000_000)), &[32; 5]);
        assert_eq!((starts, end), (vec![100, 103, 105, 108, 110], 113));
    }

    #[test]
    fn it_is_free_when_both_limits_allow_the_next_packet() {
        let mut limited = meter(Some(6_250_000));
        assert_eq!(limited.free_at(), 0);
        limited.serve(100, 512);
        assert_eq!(limited.free_at(), 140);
        limited.serve(100, 6_400);
        assert_eq!(limited.free_at(), 340);
        assert_eq!(limited.fresh().free_at(), 0);
    }
}
