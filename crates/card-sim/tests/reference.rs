//! Every packet's departure against a second model, which knows no events: for each packet in turn
//! it computes when each step can happen at the earliest, from what the packets before it did.
//!
//! One DAG, every branch in a region of its own: then packets never overtake, and the second model
//! is exact, waiting included.

mod rig;

use proptest::prelude::*;
use rig::{Instance, Nt, Rig, uid};
use snic_card_sim::{Fate, Options, Record, Sizes, TrafficSource};
use snic_domain::Bandwidth;

/// A time as a fraction of a cycle: `(numerator, denominator)`.
#[derive(Clone, Copy)]
struct Exact(u128, u128);

impl Exact {
    fn up(self) -> u64 {
        u64::try_from(self.0.div_ceil(self.1)).expect("a short run")
    }
}

struct NtModel {
    latency: u64,
    bps: u128,
    free: Exact,
    /// When each packet's credit came back.
    credit_back: Vec<u64>,
}

struct BranchModel {
    nts: Vec<NtModel>,
    launched: u64,
    port_free: u64,
}

impl BranchModel {
    fn new(nts: &[Nt]) -> Self {
        let model = |&(latency, gbps): &Nt| {
            let bps = u128::from(gbps) * 1_000_000_000;
            NtModel { latency, bps, free: Exact(0, bps), credit_back: Vec::new() }
        };
        Self { nts: nts.iter().map(model).collect(), launched: 0, port_free: 0 }
    }

    /// When the packet that the scheduler is done with at `scheduled` leaves the region.
    fn pass(&mut self, scheduled: u64, bytes: u32, credits: Option<usize>) -> u64 {
        let mut launch = scheduled.max(self.launched);
        for nt in &self.nts {
            let before = credits.and_then(|credits| nt.credit_back.len().checked_sub(credits));
            if let Some(before) = before {
                launch = launch.max(nt.credit_back[before]);
            }
        }
        self.launched = launch;
        let mut at = launch.max(self.port_free);
        // The packet, and its descriptor.
        self.port_free = at + u64::from(bytes.div_ceil(64)) + 1;
        for nt in &mut self.nts {
            at = nt.pass(at, bytes);
        }
        at
    }
}

impl NtModel {
    fn pass(&mut self, at: u64, bytes: u32) -> u64 {
        let idle = self.free.up() < at;
        let start = if idle { Exact(u128::from(at) * self.bps, self.bps) } else { self.free };
        // Bits times cycles per second, over bits per second.
        self.free = Exact(start.0 + u128::from(bytes) * 8 * 250_000_000, self.bps);
        let leaves = start.up() + self.latency;
        self.credit_back.push(leaves.max(self.free.up()));
        leaves
    }
}

type Stages = Vec<Vec<Vec<Nt>>>;

/// When each packet goes out.
fn reference(stages: &Stages, arrivals: &[(u64, u32)], credits: Option<usize>) -> Vec<u64> {
    let models = |stage: &Vec<Vec<Nt>>| stage.iter().map(|nts| BranchModel::new(nts)).collect();
    let mut models: Vec<Vec<BranchModel>> = stages.iter().map(models).collect();
    let mut egress_free = 0;
    let mut out = Vec::new();
    for &(arrived, bytes) in arrivals {
        // Of the core's 49 cycles 16 are a pass; 17 lie before the scheduler and 16 behind.
        let mut at = arrived + 17;
        for stage in &mut models {
            let branches = stage.iter_mut().map(|branch| branch.pass(at + 16, bytes, credits));
            at = branches.max().expect("a stage has branches");
        }
        let leaves = (at + 16).max(egress_free);
        egress_free = leaves + u64::from(bytes.div_ceil(64));
        out.push(leaves);
    }
    out
}

fn card(stages: &Stages, credits: u8, with_credits: bool) -> Rig {
    let profile = snic_domain::CardProfile { credits_initial: credits, ..rig::profile() };
    let mut rig = Rig::with(profile, 1, Options { credits: with_credits, ..Options::default() });
    let mut number = 0;
    let mut instances: Vec<Vec<[Instance; 1]>> = Vec::new();
    for stage in stages {
        let mut row = Vec::new();
        for chain in stage {
            rig.load(number, chain);
            row.push([(number, ((1_u16 << chain.len()) - 1) as u8, 1)]);
            number += 1;
        }
        instances.push(row);
    }
    let branches: Vec<Vec<&[Instance]>> =
        instances.iter().map(|row| row.iter().map(|chain| &chain[..]).collect()).collect();
    let rows: Vec<&[&[Instance]]> = branches.iter().map(|row| &row[..]).collect();
    rig.dag(1, &rows);
    rig
}

/// As many as the synchronisation buffer and the packet store hold, whatever waits for what.
const PACKETS: u64 = 250;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn packets_leave_when_the_reference_says(
        stages in prop::collection::vec(
            prop::collection::vec(prop::collection::vec((0_u64..80, 5_u64..150), 1..=4), 1..=3),
            1..=4,
        ),
        credits in 1_u8..12,
        with_credits: bool,
        gbps in 5_u64..128,
        poisson: bool,
    ) {
        let mut rig = card(&stages, credits, with_credits);
        let rate = Bandwidth::from_gbps(gbps);
        let source = TrafficSource::of_dag(uid(1), rate, Sizes::imix()).at_most(PACKETS);
        rig.card.attach(if poisson { source.poisson() } else { source }).expect("valid");
        rig.card.keep_trace(PACKETS as usize);
        rig.drain();
        let trace = rig.card.take_trace();
        prop_assert!(trace.iter().all(|record| record.fate == Fate::Served));
        let arrival = |record: &Record| (record.arrived, record.bytes);
        let arrivals: Vec<_> = trace.iter().map(arrival).collect();
        let expected = reference(&stages, &arrivals, with_credits.then_some(credits.into()));
        let seen: Vec<_> = trace.iter().map(|record| record.ended).collect();
        prop_assert_eq!(seen, expected);
    }
}
