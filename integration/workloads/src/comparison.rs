//! Five ways to fill a card, side by side: each NT on a separate port (PANIC), a region for each
//! chain, the planner without sharing, without concatenation, and all of it.
//!
//! A way's restrictions are made by what the planner may do, or by what it has to load; the planner
//! itself, the reservations and the figures are the same for all.

use std::collections::BTreeSet;

use snic_domain::{
    Area, Bitstream, BitstreamId, ByteSize, CardId, CardProfile, Cycles, Dag, DagName, Digest,
    FormPreference, NtType, NtTypeId, RegionId, RegionImages, RegionKind,
};
use snic_planner::{
    Ledger, Plan, PlanCatalogue, PlanRequest, RegionCondition, TableRows, plan, plan_batch,
};

/// A way to fill a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacementScheme {
    /// Every NT has a region and a separate port; a packet passes the scheduler for each
    /// (PANIC, OSDI '20). Regions are shared.
    PerNt,
    /// A region for each DAG that nobody else uses, built for it.
    Static,
    /// Prebuilt chains, none shared.
    NoSharing,
    /// Shared regions of which each holds one DAG's chain at most, none a concatenation of several.
    NoConcatenation,
    /// All of it.
    Full,
}

/// All ways, in the order of the comparison.
pub const POLICIES: [PlacementScheme; 5] = [
    PlacementScheme::PerNt,
    PlacementScheme::Static,
    PlacementScheme::NoSharing,
    PlacementScheme::NoConcatenation,
    PlacementScheme::Full,
];

/// The result of a way for a workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyOutcome {
    pub admitted: usize,
    /// Regions in use.
    pub regions: usize,
    /// Part of the area of all regions in use that no NT fills, in thousandths.
    pub unused_permille: u64,
    /// Passes of a packet through the scheduler, in thousandths, over all DAGs admitted.
    pub passes_milli: u64,
    /// Latency of an unloaded card, in cycles, over all DAGs admitted.
    pub latency_cycles: u64,
    /// Bandwidth admitted, in Mbit/s.
    pub mbps: u64,
    /// LUTs of the regions in use.
    pub luts: u64,
}

impl PolicyOutcome {
    /// Throughput for each unit of area: kbit/s a LUT of the regions in use.
    pub fn kbps_per_lut(&self) -> u64 {
        (self.mbps * 1_000).checked_div(self.luts).unwrap_or(0)
    }
}

/// The card and the NTs of a comparison.
#[derive(Debug)]
pub struct Scene {
    pub profile: CardProfile,
    pub nts: Vec<NtType>,
    /// Prebuilt chains for the planner.
    pub chains: Vec<Vec<NtTypeId>>,
}

fn bitstream(id: &str, nts: &[NtTypeId], profile: &CardProfile) -> Bitstream {
    Bitstream {
        id: BitstreamId::new(id).expect("a label of the comparison"),
        images: RegionImages::for_all(Digest::of(id.as_bytes()), ByteSize::from_mib(2)),
        nts: nts.to_vec(),
        region_kind: RegionKind::KnownNt,
        card_model: profile.model.clone(),
        shareable: true,
        signed_by: None,
        modules: Vec::new(),
        notes: Default::default(),
        identity: None,
    }
}

/// A DAG's NTs in the order packets pass when it is flattened.
fn sequence(dag: &Dag) -> Vec<NtTypeId> {
    dag.topological_order().iter().map(|node| dag.nodes()[*node].nt.clone()).collect()
}

/// Chains of the full planner: each holds what several DAGs ask for, in the order in which the
/// workload's NTs are popular, as far as a region's RAMB36 go \[decided\].
const CHAINS: [&[&str]; 4] = [
    &["nat", "firewall", "load-balancer", "kv-cache", "go-back-n", "aes"],
    &["firewall", "nat", "load-balancer", "aes", "kv-cache", "go-back-n"],
    &["firewall", "nat", "load-balancer", "aes", "go-back-n", "kv-replication"],
    &["firewall", "nat", "load-balancer", "aes", "go-back-n", "dfadd"],
];

impl Scene {
    /// 32 regions of sim-16's size with the papers' NTs, and ports that never limit: the comparison
    /// is about the use of regions.
    ///
    /// # Errors
    /// The built-in catalogue is damaged.
    pub fn new() -> Result<Self, snic_bitstream::catalogue::InvalidCatalogue> {
        let catalogue = snic_bitstream::catalogue::builtin()?;
        let mut profile = catalogue.cards[0].clone();
        profile.regions = vec![profile.regions[0].clone(); snic_domain::limits::REGIONS_MAX];
        profile.ingress = snic_domain::Bandwidth::from_gbps(100_000);
        profile.egress = profile.ingress;
        profile.region_pass = None;
        let chains = CHAINS
            .iter()
            .map(|nts| nts.iter().filter_map(|nt| NtTypeId::new(nt).ok()).collect())
            .collect();
        Ok(Self { profile, nts: catalogue.nt_types, chains })
    }

    /// The catalogue's sample DAGs: those of SuperNIC's Fig. 10 and one with a fork.
    ///
    /// # Errors
    /// The built-in catalogue is damaged.
    pub fn samples() -> Result<Vec<(DagName, Dag)>, snic_bitstream::catalogue::InvalidCatalogue> {
        let samples = snic_bitstream::catalogue::builtin()?.dags;
        Ok(samples.into_iter().filter_map(|s| Some((s.name, Dag::new(s.spec).ok()?))).collect())
    }

    fn catalogue(&self, policy: PlacementScheme, dags: &[(DagName, Dag)]) -> PlanCatalogue {
        let mut catalogue = PlanCatalogue::new();
        self.nts.iter().for_each(|nt| drop(catalogue.insert_nt(nt.clone())));
        let mut add = |id: String, nts: &[NtTypeId]| {
            catalogue.insert_bitstream(bitstream(&id, nts, &self.profile));
        };
        for (index, nt) in self.nts.iter().enumerate() {
            add(format!("nt{index}"), std::slice::from_ref(&nt.id));
        }
        // The bitstreams of single DAGs: each is built for one DAG alone.
        let own: BTreeSet<Vec<NtTypeId>> = dags.iter().map(|(_, dag)| sequence(dag)).collect();
        match policy {
            PlacementScheme::PerNt => {}
            PlacementScheme::Static | PlacementScheme::NoConcatenation => {
                own.iter().enumerate().for_each(|(index, nts)| add(format!("own{index}"), nts));
            }
            PlacementScheme::NoSharing | PlacementScheme::Full => {
                own.iter().enumerate().for_each(|(index, nts)| add(format!("own{index}"), nts));
                let chains = self.chains.iter().enumerate();
                chains.for_each(|(index, nts)| add(format!("chain{index}"), nts));
            }
        }
        catalogue
    }

    /// Fills the card with as many of the DAGs as fit.
    pub fn fill(&self, policy: PlacementScheme, dags: &[(DagName, Dag)]) -> PolicyOutcome {
        let catalogue = self.catalogue(policy, dags);
        let card = CardId::new("card-0").expect("a label");
        // The tables' rows are the same for all ways, and not what is compared.
        let mut ledger = Ledger::with_rows(card, self.profile.clone(), TableRows::UNLIMITED);
        let mut outcome = PolicyOutcome::default();
        let dags: Vec<(DagName, Dag)> = match policy {
            // One pass for each NT: a chain of single NTs. The other ways choose.
            PlacementScheme::PerNt => {
                dags.iter().map(|(name, dag)| (name.clone(), flat(dag))).collect()
            }
            _ => dags.to_vec(),
        };
        match policy {
            PlacementScheme::Static | PlacementScheme::NoSharing => {
                for (name, dag) in &dags {
                    let request = PlanRequest { name, dag, previous: None };
                    if let Ok(plan) = plan(&ledger, &catalogue, &request)
                        && (policy == PlacementScheme::NoSharing || plan.mapping.stages.len() == 1)
                    {
                        hold(&mut ledger, &catalogue, &request, &plan, &mut outcome);
                        // No other DAG may use it.
                        for load in &plan.loads {
                            ledger.set_condition(load.region, RegionCondition::Cordoned);
                        }
                    }
                }
            }
            PlacementScheme::PerNt | PlacementScheme::NoConcatenation | PlacementScheme::Full => {
                let requests: Vec<PlanRequest<'_>> = dags
                    .iter()
                    .map(|(name, dag)| PlanRequest { name, dag, previous: None })
                    .collect();
                let batch = plan_batch(&ledger, &catalogue, &requests);
                for (at, plan) in batch.plans() {
                    hold(&mut ledger, &catalogue, &requests[at], plan, &mut outcome);
                }
            }
        }
        self.measure(&ledger, &mut outcome);
        outcome
    }

    fn measure(&self, ledger: &Ledger, outcome: &mut PolicyOutcome) {
        let (mut filled, mut all) = (0u64, 0u64);
        for (region, profile) in self.profile.regions() {
            if ledger.is_unused(region) {
                continue;
            }
            outcome.regions += 1;
            all += u64::from(profile.area.lut);
            filled += u64::from(self.area(ledger, region).lut);
        }
        let admitted = outcome.admitted.max(1) as u64;
        outcome.luts = all;
        outcome.unused_permille = (1_000 * (all - filled)).checked_div(all).unwrap_or(0);
        outcome.passes_milli /= admitted;
        outcome.latency_cycles /= admitted;
    }

    fn area(&self, ledger: &Ledger, region: RegionId) -> Area {
        let content = ledger.content(region).map(|b| b.nts.as_slice()).unwrap_or_default();
        let of = |id: &NtTypeId| self.nts.iter().find(|nt| nt.id == *id).map(|nt| nt.area);
        content.iter().filter_map(of).sum()
    }
}

/// Carries a plan out in the ledger, and adds up its results.
fn hold(
    ledger: &mut Ledger,
    catalogue: &PlanCatalogue,
    request: &PlanRequest<'_>,
    plan: &Plan,
    outcome: &mut PolicyOutcome,
) {
    for load in &plan.loads {
        let content = catalogue.bitstream(&load.bitstream);
        ledger.set_content(load.region, content, catalogue).expect("nobody uses it");
    }
    ledger.hold(request.name, plan.reservation.clone()).expect("a plan never overbooks");
    let form = &plan.explanation.form;
    let latency = match form.chosen {
        snic_domain::Form::Parallel => form.parallel.unwrap_or(form.sequential),
        snic_domain::Form::Sequential => form.sequential,
    };
    outcome.admitted += 1;
    outcome.mbps += request.dag.bandwidth().get() / 1_000_000;
    outcome.passes_milli += 1_000 * plan.mapping.stages.len() as u64;
    outcome.latency_cycles += latency.get();
}

/// The same DAG as one sequence.
fn flat(dag: &Dag) -> Dag {
    let spec = snic_domain::DagSpec { form: FormPreference::Sequential, ..dag.spec().clone() };
    Dag::new(spec).expect("only the form differs")
}

/// Cycles of a DAG whose NTs each have a separate port: a pass for each.
pub fn per_nt_latency(dag: &Dag, profile: &CardProfile, nts: &[NtType]) -> Cycles {
    let of = |id: &NtTypeId| nts.iter().find(|nt| nt.id == *id).map_or(0, |nt| nt.latency.get());
    let sum: u64 = dag.nodes().iter().map(|node| of(&node.nt)).sum();
    let passes = dag.nodes().len() as u64 - 1;
    Cycles::new(profile.core.get() + passes * profile.scheduler_pass.get() + sum)
}
