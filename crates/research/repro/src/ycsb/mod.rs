//! The test bed of SuperNIC's Figs. 19 and 20: clients that run YCSB's workloads, a key-value store behind a slow link, and
//! a card between them whose NTs work on bytes.
//!
//! ```text
//!               100 Gbit/s            100 Gbit/s           10 Gbit/s
//!   clients ═══════════════ switch ═══════════════ card ═══════════════ store      transport, cache, both
//!   clients ═══════════════ switch ════════════════════════════════════ store      without a card
//! ```
//!
//! Hosts, links and switch are events (`network`). The card is the product's: DAGs go through controller and driver to
//! the simulated card, and its NTs are those of the software card (`snic_card_soft::FrameBench`). Every operation is a
//! frame of memcached's protocol over UDP, and every answer is compared with what was written.

mod card;
mod end;
mod frames;
pub mod keys;
mod network;
mod store;

pub use network::{KeyValueNetwork, Load, Operations, YcsbMeasurement};

use std::sync::Arc;

use keys::Names;

use crate::parameters::{
    FIG19_CACHE_BYTES, FIG19_CLIENT_NS, FIG19_GIVE_UP_US, FIG19_KEYS, FIG19_LINK_GBPS,
    FIG19_PAIR_BYTES, FIG19_PHY_NS, FIG19_RANKS, FIG19_SEED, FIG19_STORE_GBPS, FIG19_STORE_NS,
    FIG19_SWITCH_NS, FIG19_THETA, FIG19_VALUE_BYTES, Parameters,
};

/// One of YCSB's core workloads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct YcsbWorkload {
    pub name: &'static str,
    /// Number of 100 operations that read; the others write.
    pub reads_percent: u32,
}

/// Those of the figures (SuperNIC, 5.4).
pub const WORKLOADS: [YcsbWorkload; 3] = [
    YcsbWorkload { name: "A", reads_percent: 50 },
    YcsbWorkload { name: "B", reads_percent: 95 },
    YcsbWorkload { name: "C", reads_percent: 100 },
];

/// Parts between clients and store, and the end of the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arm {
    pub name: &'static str,
    /// Whether there is a card.
    pub card: bool,
    /// Whether clients use the transport. Its other end is on the card; without a card, in the store.
    pub transport: bool,
    /// Whether the card caches.
    pub cache: bool,
}

pub const ARMS: [Arm; 4] = [
    Arm { name: "Clio", card: false, transport: true, cache: false },
    Arm { name: "sNIC, transport", card: true, transport: true, cache: false },
    Arm { name: "sNIC, cache", card: true, transport: false, cache: true },
    Arm { name: "sNIC, transport and cache", card: true, transport: true, cache: true },
];

/// The inputs of a run that all arms share.
#[derive(Debug, Clone)]
pub struct RunInputs {
    /// Keys of the store.
    pub keys: u64,
    pub names: Arc<Names>,
    /// Popularity of keys: the exponent of Zipf's law.
    pub theta: f64,
    /// Ranks that popularities are drawn from, before they are hashed to keys.
    pub ranks: f64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Pairs that the cache holds.
    pub cache_pairs: u64,
    /// Rate of the store's link.
    pub store_bps: f64,
    /// Rate of the other links.
    pub link_bps: f64,
    /// Time of a crossing of the switch.
    pub switch_ns: u64,
    /// Time that ports of the card add to its core, on a way through it.
    pub phy_ns: u64,
    /// Time of a client for an operation.
    pub client_ns: u64,
    /// Time of the store for one; it works on many at once.
    pub store_ns: u64,
    /// After this a client counts an operation as lost.
    pub give_up_ns: u64,
    /// Seed of keys, operations and losses.
    pub seed: u64,
}

impl RunInputs {
    /// As the parameters have it.
    pub fn new(parameters: &Parameters) -> Self {
        let nanos = |entry| parameters.count(entry);
        let keys = parameters.count(&FIG19_KEYS);
        let cache_bytes = parameters.value(&FIG19_CACHE_BYTES);
        Self {
            keys,
            names: Arc::new(Names::new(keys)),
            theta: parameters.value(&FIG19_THETA),
            ranks: parameters.value(&FIG19_RANKS),
            value_bytes: parameters.count(&FIG19_VALUE_BYTES) as usize,
            cache_pairs: ((cache_bytes / parameters.value(&FIG19_PAIR_BYTES)) as u64).max(1),
            store_bps: parameters.value(&FIG19_STORE_GBPS) * 1e9,
            link_bps: parameters.value(&FIG19_LINK_GBPS) * 1e9,
            switch_ns: nanos(&FIG19_SWITCH_NS),
            phy_ns: nanos(&FIG19_PHY_NS),
            client_ns: nanos(&FIG19_CLIENT_NS),
            store_ns: nanos(&FIG19_STORE_NS),
            give_up_ns: nanos(&FIG19_GIVE_UP_US) * 1_000,
            seed: parameters.count(&FIG19_SEED),
        }
    }
}
