//! Keys for the card's profile and the options of the data plane, so that a figure can be run with
//! another clock or other credits without a file.

use std::num::{NonZeroU32, NonZeroU64};

use snic_card_sim::{PlaneOptions, RegionPace};
use snic_domain::{Bandwidth, ByteSize, CardProfile, Cycles, NtType};

/// A key, how its value is read and written, and what is allowed.
pub(super) struct Field<T> {
    pub(super) key: &'static str,
    pub(super) get: fn(&T) -> f64,
    pub(super) set: fn(&mut T, f64),
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Keys of the card's profile.
pub(super) const CARD: &[Field<CardProfile>] = &[
    Field {
        key: "clock_hz",
        get: |card| card.clock_hz as f64,
        set: |card, hz| card.clock_hz = hz as u64,
        low: 1e6,
        high: 2e10,
    },
    Field {
        key: "width_bits",
        get: |card| f64::from(card.width_bits),
        set: |card, bits| card.width_bits = bits as u32,
        low: 64.0,
        high: 8_192.0,
    },
    Field {
        key: "ingress_bps",
        get: |card| card.ingress.get() as f64,
        set: |card, bps| card.ingress = Bandwidth::from_bps(bps as u64),
        low: 1e6,
        high: 1e13,
    },
    Field {
        key: "egress_bps",
        get: |card| card.egress.get() as f64,
        set: |card, bps| card.egress = Bandwidth::from_bps(bps as u64),
        low: 1e6,
        high: 1e13,
    },
    Field {
        key: "packet_store_bytes",
        get: |card| card.packet_store.get() as f64,
        set: |card, bytes| card.packet_store = ByteSize::from_bytes(bytes as u64),
        low: 9_216.0,
        high: 1e12,
    },
    Field {
        key: "configuration_bytes_per_second",
        get: |card| card.configuration_bytes_per_second as f64,
        set: |card, rate| card.configuration_bytes_per_second = rate as u64,
        low: 1e6,
        high: 1e12,
    },
    Field {
        key: "scheduler_pass_cycles",
        get: |card| card.scheduler_pass.get() as f64,
        set: |card, cycles| card.scheduler_pass = Cycles::new(cycles as u64),
        low: 0.0,
        high: 49.0,
    },
    Field {
        key: "core_cycles",
        get: |card| card.core.get() as f64,
        set: |card, cycles| card.core = Cycles::new(cycles as u64),
        low: 16.0,
        high: 1e6,
    },
    Field {
        key: "credits_initial",
        get: |card| f64::from(card.credits_initial),
        set: |card, credits| card.credits_initial = credits as u8,
        low: 1.0,
        high: 127.0,
    },
    Field {
        key: "regions",
        get: |card| card.regions.len() as f64,
        set: |card, regions| card.regions.truncate(regions as usize),
        low: 1.0,
        high: 16.0,
    },
];

fn at_least_one(value: f64) -> u32 {
    (value as u32).max(1)
}

/// Keys of the data plane, beside what the profile says.
pub(super) const PLANE: &[(Field<PlaneOptions>, &str)] = &[
    (
        Field {
            key: "descriptor_beats",
            get: |options| f64::from(options.descriptor_beats),
            set: |options, beats| options.descriptor_beats = beats as u8,
            low: 0.0,
            high: 64.0,
        },
        "SuperNIC, 3.2: the parser attaches a descriptor to the header; one beat is the least",
    ),
    (
        Field {
            key: "credit_cycles",
            get: |options| options.credit_cycles.get() as f64,
            set: |options, cycles| {
                options.credit_cycles =
                    NonZeroU64::new(cycles as u64).unwrap_or(options.credit_cycles);
            },
            low: 1.0,
            high: 1e4,
        },
        "fitted: SuperNIC, Fig. 7, with one credit: 3 cycles more than the NT's or the packet's beats",
    ),
    (
        Field {
            key: "sync_cycles",
            get: |options| f64::from(options.sync_cycles),
            set: |options, cycles| options.sync_cycles = cycles as u32,
            low: 0.0,
            high: 1e4,
        },
        "SuperNIC's thesis, evaluation, in a comment of its source: the synchronization buffer has an overhead of 4 cycles",
    ),
    (
        Field {
            key: "pace_packets",
            get: |options| f64::from(options.region_pace.packets.get()),
            set: |options, n| set_pace(options, at_least_one(n), options.region_pace.cycles.get()),
            low: 1.0,
            high: 1e6,
        },
        "fitted: SuperNIC, Fig. 7, with eight credits: packets of 64 and 128 bytes at one in 2.5 cycles",
    ),
    (
        Field {
            key: "pace_cycles",
            get: |options| f64::from(options.region_pace.cycles.get()),
            set: |options, n| set_pace(options, options.region_pace.packets.get(), at_least_one(n)),
            low: 1.0,
            high: 1e6,
        },
        "as pace_packets: number of packets in a number of cycles",
    ),
    (
        Field {
            key: "memory_latency_nanos",
            get: |options| f64::from(options.memory_latency_nanos),
            set: |options, nanos| options.memory_latency_nanos = nanos as u32,
            low: 0.0,
            high: 1e6,
        },
        "Wang and others, FCCM 2020: a page miss of DDR4 on an idle memory; no figure's NT uses memory",
    ),
    (
        Field {
            key: "memory_bytes_per_second",
            get: |options| options.memory_bytes_per_second.get() as f64,
            set: |options, rate| {
                options.memory_bytes_per_second =
                    NonZeroU64::new(rate as u64).unwrap_or(options.memory_bytes_per_second);
            },
            low: 1.0,
            high: 1e13,
        },
        "one channel of DDR4-2400: 2400 MT/s, 8 bytes each; no figure's NT uses memory",
    ),
    (
        Field {
            key: "shaper_queue_bytes",
            get: |options| options.shaper_queue.get() as f64,
            set: |options, bytes| options.shaper_queue = ByteSize::from_bytes(bytes as u64),
            low: 0.0,
            high: 1e9,
        },
        "assumption: 43 packets of 1500 bytes may wait at a DAG's token bucket",
    ),
];

fn set_pace(options: &mut PlaneOptions, packets: u32, cycles: u32) {
    let RegionPace { packets: p, cycles: c } = options.region_pace;
    options.region_pace = RegionPace {
        packets: NonZeroU32::new(packets).unwrap_or(p),
        cycles: NonZeroU32::new(cycles).unwrap_or(c),
    };
}

/// Keys of an NT of the catalogue.
pub(super) const NT: &[Field<NtType>] = &[
    Field {
        key: "gbps",
        get: |nt| nt.bandwidth_max.gbps_f64(),
        set: |nt, gbps| nt.bandwidth_max = Bandwidth::from_bps((gbps * 1e9) as u64),
        low: 0.001,
        high: 1_000.0,
    },
    Field {
        key: "latency_cycles",
        get: |nt| nt.latency.get() as f64,
        set: |nt, cycles| nt.latency = Cycles::new(cycles as u64),
        low: 0.0,
        high: 1e6,
    },
];
