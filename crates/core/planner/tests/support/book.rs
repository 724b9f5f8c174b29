//! Parts of a scarce card that packets of many sizes take, counted from mappings alone, one packet at a time: from the
//! description of the card, not by the planner's code.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use snic_domain::limits::SYNC_ROWS;
use snic_domain::{
    ByteSize, CardProfile, Cycles, Dag, DagName, Mapping, NodeId, NtType, PacketSize, PacketSizes,
    RegionPass, Traffic,
};
use snic_planner::TableRows;

use super::World;

pub const CLOCK: f64 = 100e6;
pub const BEAT: f64 = 64.0;
pub const LINE: f64 = 30e9;
pub const STORE: f64 = 1_200.0;
/// Packets per second of an NT that has such a limit.
pub const PACKETS: f64 = 3e6;
pub const ROWS: TableRows = TableRows { dags: 9, stages: 14, chains: 16, instances: 20 };

/// Ports, credits, lines, store and rows that a few DAGs of the random worlds fill.
pub fn scarce(profile: &CardProfile) -> CardProfile {
    let pass = RegionPass {
        packets: NonZeroU32::MIN,
        cycles: NonZeroU32::new(4).expect("not zero"),
        credits_max: 14,
        ..RegionPass::SUPERNIC
    };
    let line = snic_domain::Bandwidth::from_bps(LINE as u64);
    CardProfile {
        clock_hz: CLOCK as u64,
        region_pass: Some(pass),
        ingress: line,
        egress: line,
        packet_store: ByteSize::from_bytes(STORE as u64 * 16 / 3 + 16),
        memory: ByteSize::from_mib(1_024),
        scheduler_pass: Cycles::new(16),
        core: Cycles::new(49),
        ..profile.clone()
    }
}

/// Each DAG that has a place.
pub type Placed = BTreeMap<DagName, (Dag, Mapping)>;

/// Sums by what they are of.
#[derive(Default)]
pub struct Book(BTreeMap<(&'static str, u8, u8), f64>);

impl Book {
    fn add(&mut self, what: &'static str, (region, slot): (u8, u8), amount: f64) {
        *self.0.entry((what, region, slot)).or_default() += amount;
    }

    pub fn of(world: &World, placed: &Placed) -> Self {
        let mut book = Self::default();
        for (dag, mapping) in placed.values() {
            book.take(world, dag, mapping);
        }
        book
    }

    fn take(&mut self, world: &World, dag: &Dag, mapping: &Mapping) {
        let nt = |node: &NodeId| -> &NtType {
            let node = dag.nodes().iter().find(|of| of.id == *node).expect("a node of the DAG");
            world.catalogue.nt(&node.nt).expect("a known NT")
        };
        let payload = dag.nodes().iter().any(|node| nt(&node.id).traffic == Traffic::Payload);
        let sizes = dag.spec().packet_sizes.sizes();
        let bits: f64 = sizes.iter().map(|s| f64::from(s.weight * s.bytes) * 8.0).sum();
        let largest = sizes.iter().map(|s| s.bytes).max().expect("one size at least");
        let beats = |bytes: u32| (f64::from(bytes) / BEAT).ceil();
        let crossing = |bytes: u32| 1.0 + if payload { beats(bytes) } else { 1.0 };
        // What each bit/s brings, over all sizes.
        let sum = |cost: &dyn Fn(u32) -> f64| -> f64 {
            sizes.iter().map(|s| f64::from(s.weight) * cost(s.bytes)).sum::<f64>() / bits
        };
        let (all, packets) = (dag.bandwidth().get() as f64, sum(&|_| 1.0));
        let line = sum(&|bytes| (f64::from(bytes) * 8.0).max(beats(bytes) * LINE / CLOCK));
        self.add("line", (0, 0), all * line);
        let (mut way, mut waits) = (49.0 - 16.0, 0.0);
        for stage in &mapping.stages {
            let mut longest = 0.0_f64;
            self.add("stages", (0, 0), 1.0);
            for chain in &stage.branches {
                self.add("chains", (0, 0), 1.0);
                let nts: Vec<&NtType> = chain.nodes.iter().map(nt).collect();
                let latency: f64 = nts.iter().map(|nt| nt.latency.get() as f64).sum();
                let slowest = nts.iter().map(|nt| nt.bandwidth_max.get()).min().unwrap_or(1) as f64;
                let packets_max =
                    |nt: &NtType| nt.packets_per_second_max.map(|n| f64::from(n.get()));
                let limited = nts.iter().filter_map(|nt| packets_max(nt)).fold(f64::MAX, f64::min);
                let swallow = (f64::from(largest) * 8.0 * CLOCK / slowest).ceil();
                let swallow = swallow.max((CLOCK / limited).ceil());
                let round_trip = crossing(largest) + 3.0 + latency + swallow;
                longest = longest.max(latency);
                for instance in &chain.instances {
                    self.add("instances", (0, 0), 1.0);
                    let (region, bps) = (instance.region.0, instance.bandwidth.get() as f64);
                    self.add("port", (region, 0), bps * sum(&|bytes| crossing(bytes).max(4.0)));
                    for (slot, nt) in instance.slots.iter().zip(&nts) {
                        if packets_max(nt).is_some() {
                            self.add("packets", (region, slot.0), bps * packets);
                        }
                        let credits = bps * packets * round_trip / CLOCK;
                        self.add("credits", (region, slot.0), credits);
                    }
                }
            }
            way += 16.0 + longest;
            if stage.branches.len() > 1 {
                waits += 16.0 + longest;
            }
        }
        self.add("store", (0, 0), all * sum(&beats) * BEAT * way / CLOCK);
        self.add("sync", (0, 0), all * packets * waits / CLOCK);
        self.add("dags", (0, 0), 1.0);
    }

    /// Limit of promises, and what rounding may add to it: amounts are rounded down once for each share.
    fn most(what: &str) -> (f64, f64) {
        match what {
            "packets" => (PACKETS, 20.0),
            "line" => (LINE * 0.96, 1e3),
            "port" => (CLOCK * 0.96, 1e3),
            "credits" => (14.0 * 0.8, 0.02),
            "store" => (STORE, 20.0),
            "sync" => (SYNC_ROWS as f64 * 0.8, 0.1),
            "dags" => (f64::from(ROWS.dags), 0.0),
            "stages" => (f64::from(ROWS.stages), 0.0),
            "chains" => (f64::from(ROWS.chains), 0.0),
            _ => (f64::from(ROWS.instances), 0.0),
        }
    }

    /// Rest for one more DAG: at most, with all that rounding may have left over, or at least, without.
    pub fn left(&self, what: &'static str, (region, slot): (u8, u8), is_lenient: bool) -> f64 {
        let taken = self.0.get(&(what, region, slot)).copied().unwrap_or_default();
        let (most, rounding) = Self::most(what);
        let left = if is_lenient { most + rounding } else { most - rounding } - taken;
        left.max(0.0)
    }

    /// The first sum over what promises may take.
    pub fn over(&self) -> Option<String> {
        let over = |((what, region, slot), sum): (&(&'static str, u8, u8), &f64)| {
            let (most, rounding) = Self::most(what);
            let text = || format!("{what} {region}/{slot}: {sum} of {most}");
            (*sum > most + rounding).then(text)
        };
        self.0.iter().find_map(over)
    }
}

/// One size or a mix, from a number.
pub fn sizes(number: usize) -> PacketSizes {
    let mix = [(64, 9), (1_500, 1)].map(|(bytes, weight)| PacketSize { bytes, weight });
    [64, 65, 300, 1_500, 9_000]
        .get(number % 7)
        .map(|bytes| PacketSizes::only(*bytes))
        .unwrap_or_else(|| {
            if number % 7 == 5 { PacketSizes::imix() } else { PacketSizes::new(mix.to_vec()) }
        })
}
