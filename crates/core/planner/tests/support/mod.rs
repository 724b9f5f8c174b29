//! Cards, catalogues and DAGs for tests, in few words.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

pub mod book;
pub mod brute;
pub mod exact;
pub mod parts;
pub mod random;
pub mod validate;

use std::collections::BTreeSet;

use snic_domain::{
    Bandwidth, Bitstream, ByteSize, CardId, CardModel, CardProfile, CostsMore, Cycles, Dag,
    DagName, DagSpec, Edge, FormPreference, Infeasible, Mapping, Node, NodeId, NtType, NtTypeId,
    RegionId, RegionKind, RegionProfile, Rejection, RejectionReason, Resource, SaveArea,
};
use snic_planner::{Ledger, Plan, PlanCatalogue, PlanRequest, plan};

pub use parts::{bitstream, bitstream_id, gbps, lut, name, nt, nt_id, tenant};

pub fn known_region() -> RegionProfile {
    RegionProfile {
        kind: RegionKind::KnownNt,
        area: lut(1_000),
        bitstream_max: ByteSize::from_mib(4),
    }
}

pub fn profile(regions: usize) -> CardProfile {
    CardProfile {
        model: CardModel::new("sim").expect("a test id"),
        part: "xcvu9p".into(),
        idcode: 0,
        clock_hz: 250_000_000,
        width_bits: 512,
        ingress: gbps(1_000),
        egress: gbps(1_000),
        memory: ByteSize::from_mib(10_240),
        memory_bytes_per_second: None,
        packet_store: ByteSize::from_mib(4),
        configuration_bytes_per_second: 800_000_000,
        scheduler_pass: Cycles::new(16),
        scheduler_lookups_per_cycle: None,
        packet_store_beats_per_cycle: None,
        core: Cycles::new(49),
        credits_initial: 8,
        region_pass: None,
        save_area: SaveArea::default(),
        regions: vec![known_region(); regions],
        processors: Vec::new(),
        links: None,
    }
}

pub fn chain(nts: &str, bandwidth: Bandwidth) -> Dag {
    let nts: Vec<NtTypeId> = nts.split_whitespace().map(nt_id).collect();
    Dag::new(DagSpec::chain(&nts, bandwidth)).expect("a valid chain")
}

/// Nodes `n0`, `n1`, … of the given NTs.
pub fn graph(nts: &[&str], edges: &[(usize, usize)], bandwidth: Bandwidth) -> Dag {
    graph_with(nts, edges, bandwidth, FormPreference::Auto)
}

pub fn node_id(i: usize) -> NodeId {
    NodeId::new(&format!("n{i}")).expect("a test id")
}

pub fn graph_with(
    nts: &[&str],
    edges: &[(usize, usize)],
    bandwidth: Bandwidth,
    form: FormPreference,
) -> Dag {
    let nodes = nts.iter().enumerate().map(|(i, n)| Node::new(node_id(i), nt_id(n))).collect();
    let edges = edges.iter().map(|(f, t)| Edge { from: node_id(*f), to: node_id(*t) }).collect();
    Dag::new(DagSpec {
        nodes,
        edges,
        bandwidth,
        form,
        packet_sizes: snic_domain::PacketSizes::default(),
        trusted_tenants: Default::default(),
        card_affinity: Default::default(),
        latency_sensitive: false,
        refuse_idle_tasks: false,
        latency_bound: Default::default(),
        notes: Default::default(),
    })
    .expect("a valid graph")
}

/// Shortage of a kind of embedding, or its cost: regions, victims, passes.
pub fn why(rejection: &Rejection) -> Result<(Resource, u64, u64), [u32; 3]> {
    match &rejection.reason {
        RejectionReason::Shortage(short) => Ok((short.resource, short.required, short.available)),
        RejectionReason::CostsMore(CostsMore { least, .. }) => {
            Err([least.regions, least.victims, least.passes])
        }
    }
}

/// A card with its catalogue, that carries plans out at once.
#[derive(Clone)]
pub struct World {
    pub catalogue: PlanCatalogue,
    pub ledger: Ledger,
}

impl World {
    pub fn new(profile: CardProfile) -> Self {
        let ledger = Ledger::new(CardId::new("card-0").expect("a test id"), profile);
        Self { catalogue: PlanCatalogue::new(), ledger }
    }

    /// A card with `regions` known-NT regions, these NTs (see [`nt`]) and bitstreams.
    pub fn with(regions: usize, nts: &str, bitstreams: &[(&str, &str)]) -> Self {
        let mut world = Self::new(profile(regions));
        for id in nts.split_whitespace() {
            world.catalogue.insert_nt(nt(id));
        }
        for (id, nts) in bitstreams {
            world.catalogue.insert_bitstream(bitstream(id, nts));
        }
        world
    }

    pub fn nt(&mut self, id: &str, change: impl FnOnce(&mut NtType)) {
        let mut nt = self.catalogue.nt(&nt_id(id)).cloned().unwrap_or_else(|| nt(id));
        change(&mut nt);
        self.catalogue.insert_nt(nt);
    }

    pub fn bitstream(&mut self, id: &str, change: impl FnOnce(&mut Bitstream)) {
        let known = self.catalogue.bitstream(&bitstream_id(id)).cloned();
        let mut bitstream = known.expect("a known bitstream");
        change(&mut bitstream);
        self.catalogue.insert_bitstream(bitstream);
    }

    pub fn load(&mut self, region: u8, bitstream: &str) {
        let content = self.catalogue.bitstream(&bitstream_id(bitstream)).cloned();
        self.ledger
            .set_content(RegionId(region), Some(&content.expect("known")), &self.catalogue)
            .expect("a free region");
    }

    pub fn plan(&self, name: &DagName, dag: &Dag) -> Result<Plan, Infeasible> {
        let request = PlanRequest { name, dag, previous: None };
        let result = plan(&self.ledger, &self.catalogue, &request);
        if let Ok(plan) = &result {
            validate::plan(&self.ledger, &self.catalogue, &request, plan).expect("a valid plan");
            assert!(self.explains_all(dag, plan), "{:?}", plan.explanation);
        }
        result
    }

    /// Whether a plan says of every kind of embedding why it was not chosen. It must where a chain stands for
    /// itself: there is no fork, no NT twice, and no memory to be shared with other regions.
    fn explains_all(&self, dag: &Dag, plan: &Plan) -> bool {
        let nts: BTreeSet<_> = dag.nodes().iter().map(|node| &node.nt).collect();
        let memory = |id: &&NtTypeId| self.catalogue.nt(id).map_or(ByteSize::ZERO, |nt| nt.memory);
        let is_plain = plan.explanation.form.parallel.is_none()
            && nts.len() == dag.nodes().len()
            && nts.iter().map(memory).sum::<ByteSize>() == ByteSize::ZERO;
        !is_plain || plan.explanation.chains.iter().all(|chain| chain.rejected.len() == 3)
    }

    pub fn update(
        &self,
        name: &DagName,
        dag: &Dag,
        previous: &Mapping,
    ) -> Result<Plan, Infeasible> {
        let request = PlanRequest { name, dag, previous: Some(previous) };
        let result = plan(&self.ledger, &self.catalogue, &request);
        if let Ok(plan) = &result {
            validate::plan(&self.ledger, &self.catalogue, &request, plan).expect("a valid plan");
            assert!(self.explains_all(dag, plan), "{:?}", plan.explanation);
        }
        result
    }

    pub fn apply(&mut self, name: &DagName, plan: &Plan) {
        for load in &plan.loads {
            let content = self.catalogue.bitstream(&load.bitstream).cloned();
            self.ledger
                .set_content(load.region, content.as_ref(), &self.catalogue)
                .expect("the plan loads regions that nobody uses");
        }
        self.ledger.hold(name, plan.reservation.clone()).expect("a plan never overbooks");
        self.ledger.check().expect("a ledger that adds up");
    }

    pub fn add(&mut self, name_text: &str, dag: &Dag) -> Result<Plan, Infeasible> {
        let name = name(name_text);
        let plan = self.plan(&name, dag)?;
        self.apply(&name, &plan);
        Ok(plan)
    }
}

/// `region:slot,slot*gbps` of every instance, stage by stage: `0:1,5*15 | 2:0*3 + 3:0*2`.
pub fn show(mapping: &Mapping) -> String {
    let stages = mapping.stages.iter().map(|stage| {
        let branches = stage.branches.iter().map(|branch| {
            let instances = branch.instances.iter().map(|instance| {
                let slots: Vec<String> =
                    instance.slots.iter().map(|slot| slot.0.to_string()).collect();
                let gbps = instance.bandwidth.gbps_f64();
                format!("{}:{}*{gbps}", instance.region, slots.join(","))
            });
            instances.collect::<Vec<_>>().join(" + ")
        });
        branches.collect::<Vec<_>>().join(" & ")
    });
    stages.collect::<Vec<_>>().join(" | ")
}
