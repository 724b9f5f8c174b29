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
//! frame of memcached's protocol over UDP, and every answer is compared with what was written. The paper's cache is a
//! model of its own (`pairs`) behind the card's NTs: the product's cache is another one.

mod card;
mod end;
mod frames;
pub mod keys;
mod links;
mod network;
mod pairs;
mod store;

pub use network::{KeyValueNetwork, Load, Operations, YcsbMeasurement};
pub use pairs::PairCache;

use std::sync::Arc;

use keys::Names;

use crate::parameters::{
    CLIO_LINK_GBPS, CROWD_CACHE_BYTES, CROWD_PAIR_BYTES, CROWD_RANKS, CROWD_STORE_NS,
    FIG19_ACK_FRAMES, FIG19_ANSWERS_FIRST, FIG19_BEFORE, FIG19_CACHE_PAIRS, FIG19_CLIENT_NS,
    FIG19_GIVE_UP_US, FIG19_HIT_NS, FIG19_KEYS, FIG19_LINK_GBPS, FIG19_MOVES_ONE, FIG19_PHY_NS,
    FIG19_RANKS, FIG19_SEED, FIG19_SHARE_BOARD, FIG19_STORE_GBPS, FIG19_STORE_NS, FIG19_SWITCH_NS,
    FIG19_THETA, FIG19_USED_LAST, FIG19_VALUE_BYTES, FIG19_WRITE_MOVES, Parameters,
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

/// The cache on an arm's card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardCache {
    Absent,
    /// The product's NT.
    Product,
    /// That of the paper.
    Paper,
}

/// The place where a write is doubled, for two stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubling {
    /// There is one store.
    Nowhere,
    /// The client writes to one and then to the other.
    Client,
    /// The card's NT writes to both at once.
    Card,
}

/// Parts between clients and store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arm {
    pub name: &'static str,
    /// Whether there is a card.
    pub card: bool,
    /// Whether clients use the transport. Its other end is on the card; without a card, in the store.
    pub transport: bool,
    pub cache: CardCache,
    pub doubling: Doubling,
}

const fn arm(name: &'static str, card: bool, transport: bool, cache: CardCache) -> Arm {
    Arm { name, card, transport, cache, doubling: Doubling::Nowhere }
}

/// The systems of Figs. 19 and 20 that are modelled.
pub const PAPER_ARMS: [Arm; 3] = [
    arm("Clio", false, true, CardCache::Absent),
    arm("Clio-sNIC", true, true, CardCache::Absent),
    arm("Clio-sNIC-$", true, true, CardCache::Paper),
];

/// The same with two stores.
pub const DOUBLING_ARMS: [Arm; 2] = [
    Arm { name: "Clio-R", doubling: Doubling::Client, ..PAPER_ARMS[0] },
    Arm { name: "Clio-sNIC-R", doubling: Doubling::Card, ..PAPER_ARMS[1] },
];

/// The product's NTs, together and alone.
pub const ARMS: [Arm; 4] = [
    arm("Clio", false, true, CardCache::Absent),
    arm("sNIC, transport", true, true, CardCache::Absent),
    arm("sNIC, cache", true, false, CardCache::Product),
    arm("sNIC, transport and cache", true, true, CardCache::Product),
];

/// The inputs of a run that all arms share.
#[derive(Debug, Clone)]
pub struct RunInputs {
    /// Keys of the store.
    pub keys: u64,
    pub names: Arc<Names>,
    /// Popularity of keys: the exponent of Zipf's law.
    pub theta: f64,
    /// Ranks that popularities are drawn from; those beyond the number of keys are hashed to keys.
    pub ranks: f64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Stores that the keys are spread over, up to four. A card and doubled writes know one store.
    pub stores: usize,
    /// Pairs that the cache holds.
    pub cache_pairs: u64,
    /// Whether the paper's cache evicts what was used longest ago, and not what came longest ago.
    pub moves_used: bool,
    /// Time that it takes for a request.
    pub hit_ns: u64,
    /// Operations that it has seen before the clients begin.
    pub before: u64,
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
    /// Whether it moves one value at a time, at its link's rate and in either direction.
    pub store_moves_one: bool,
    /// Whether several stores move one value at a time together.
    pub stores_share_board: bool,
    /// Time that it moves a value that is written, of that of one that is read.
    pub write_moves: f64,
    /// Whether it answers a write that has come before the value is moved.
    pub answers_writes_first: bool,
    /// Whether acknowledgements are frames of their own; else they ride in the headers of others.
    pub has_ack_frames: bool,
    /// After this a client counts an operation as lost.
    pub give_up_ns: u64,
    /// Seed of keys, operations and losses.
    pub seed: u64,
}

impl RunInputs {
    /// As in the paper's figures.
    pub fn new(parameters: &Parameters) -> Self {
        let nanos = |entry| parameters.count(entry);
        let is_set = |entry| parameters.value(entry) >= 0.5;
        let keys = parameters.count(&FIG19_KEYS);
        Self {
            keys,
            names: Arc::new(Names::new(keys)),
            theta: parameters.value(&FIG19_THETA),
            ranks: parameters.value(&FIG19_RANKS),
            value_bytes: parameters.count(&FIG19_VALUE_BYTES) as usize,
            stores: 1,
            cache_pairs: parameters.count(&FIG19_CACHE_PAIRS),
            moves_used: is_set(&FIG19_USED_LAST),
            hit_ns: nanos(&FIG19_HIT_NS),
            before: parameters.count(&FIG19_BEFORE),
            store_bps: parameters.value(&FIG19_STORE_GBPS) * 1e9,
            link_bps: parameters.value(&FIG19_LINK_GBPS) * 1e9,
            switch_ns: nanos(&FIG19_SWITCH_NS),
            phy_ns: nanos(&FIG19_PHY_NS),
            client_ns: nanos(&FIG19_CLIENT_NS),
            store_ns: nanos(&FIG19_STORE_NS),
            store_moves_one: is_set(&FIG19_MOVES_ONE),
            stores_share_board: is_set(&FIG19_SHARE_BOARD),
            write_moves: parameters.value(&FIG19_WRITE_MOVES),
            answers_writes_first: is_set(&FIG19_ANSWERS_FIRST),
            has_ack_frames: is_set(&FIG19_ACK_FRAMES),
            give_up_ns: nanos(&FIG19_GIVE_UP_US) * 1_000,
            seed: parameters.count(&FIG19_SEED),
        }
    }

    /// As in Clio's own evaluation, which has no card and slower links.
    pub fn of_clio(parameters: &Parameters) -> Self {
        Self { link_bps: parameters.value(&CLIO_LINK_GBPS) * 1e9, ..Self::new(parameters) }
    }

    /// The same for its memory without a key-value store in it.
    pub fn of_clio_memory(parameters: &Parameters) -> Self {
        Self { store_ns: parameters.count(&CROWD_STORE_NS), ..Self::of_clio(parameters) }
    }

    /// As for many clients of the product's NTs: a store that is fast and works on many operations at once, and keys as
    /// YCSB's own client draws them.
    pub fn of_crowd(parameters: &Parameters) -> Self {
        let pairs = parameters.value(&CROWD_CACHE_BYTES) / parameters.value(&CROWD_PAIR_BYTES);
        Self {
            ranks: parameters.value(&CROWD_RANKS),
            cache_pairs: (pairs as u64).max(1),
            store_ns: parameters.count(&CROWD_STORE_NS),
            store_moves_one: false,
            has_ack_frames: true,
            ..Self::new(parameters)
        }
    }
}
