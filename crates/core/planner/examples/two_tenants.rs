//! The planner and the fairness solver as libraries, without a daemon or a card.
//!
//! A card with two regions and one prebuilt bitstream, `nat` then `firewall`. Two tenants submit a
//! DAG each. The planner loads the bitstream for the first and shares the loaded chain with the
//! second. Then both want to send more than the shared NT serves, and the fluid solver says at which
//! rate each may send: first what was reserved, then the rest by weight.
//!
//! ```text
//! cargo run -p snic-planner --example two_tenants
//! ```

use std::error::Error;
use std::fmt::Write;

use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, ByteSize, CardId, CardModel, CardProfile, Cycles, Dag,
    DagId, DagName, DagSpec, Digest, NtType, NtTypeId, RegionImages, RegionKind, RegionProfile,
    SaveArea, TenantId,
};
use snic_fairness::Weight;
use snic_fairness::fluid::{Cost, Demand, NetworkBuilder, Solver, Spare};
use snic_planner::{Ledger, Plan, PlanCatalogue, PlanRequest, plan};

fn main() -> Result<(), Box<dyn Error>> {
    print!("{}", run()?);
    Ok(())
}

/// Everything that the program prints.
///
/// # Errors
/// The example contradicts itself: an id is not valid, or something does not fit the card.
pub fn run() -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    let catalogue = catalogue()?;
    let mut ledger = Ledger::new(CardId::new("card0")?, profile()?);
    for (tenant, nts) in [("acme", &["nat", "firewall"][..]), ("globex", &["firewall"])] {
        let name = DagName { tenant: TenantId::new(tenant)?, dag: DagId::new("web")? };
        let nts = nts.iter().map(|nt| NtTypeId::new(nt)).collect::<Result<Vec<_>, _>>()?;
        let dag = Dag::new(DagSpec::chain(&nts, Bandwidth::from_gbps(2)))?;
        let request = PlanRequest { name: &name, dag: &dag, previous: None };
        let plan = plan(&ledger, &catalogue, &request)?;
        carry_out(&mut ledger, &catalogue, &name, &plan)?;
        for (chain, why) in plan.mapping.chains().zip(&plan.explanation.chains) {
            let (instance, how) = (&chain.instances[0], why.embeddings[0].kind);
            let slots: Vec<_> = instance.slots.iter().map(|slot| slot.0).collect();
            writeln!(text, "{name}: region {}, slots {slots:?}, {how:?}", instance.region)?;
        }
    }
    for (tenant, rate) in ["acme", "globex"].iter().zip(rates()?) {
        writeln!(text, "{tenant} may send {rate}")?;
    }
    Ok(text)
}

/// The caller's part: note in the ledger what is loaded and what is reserved.
fn carry_out(
    ledger: &mut Ledger,
    catalogue: &PlanCatalogue,
    name: &DagName,
    plan: &Plan,
) -> Result<(), Box<dyn Error>> {
    for load in &plan.loads {
        ledger.set_content(load.region, catalogue.bitstream(&load.bitstream), catalogue)?;
    }
    ledger.hold(name, plan.reservation.clone())?;
    Ok(())
}

/// Both want 20 Gbit/s through a firewall that serves 10; 2 are reserved for each, and `acme` has
/// twice the weight.
fn rates() -> Result<Vec<Bandwidth>, Box<dyn Error>> {
    let firewall = 0;
    let mut network = NetworkBuilder::new(&[Bandwidth::from_gbps(10).get()]);
    let acme = network.tenant(Weight::new(2)?);
    let globex = network.tenant(Weight::ONE);
    for tenant in [acme, globex] {
        network.flow(tenant, &[(firewall, Cost::ONE)]);
    }
    let (load, admitted) = (Bandwidth::from_gbps(20), Bandwidth::from_gbps(2));
    let mut solver = Solver::new(network.build()?, Spare::ByWeight);
    let rates = solver.solve(&[Demand { load, admitted }; 2])?;
    Ok(rates.rates.clone())
}

fn catalogue() -> Result<PlanCatalogue, Box<dyn Error>> {
    let mut catalogue = PlanCatalogue::new();
    for id in ["nat", "firewall"] {
        catalogue.insert_nt(NtType::new(
            NtTypeId::new(id)?,
            Bandwidth::from_gbps(10),
            Cycles::new(10),
            Area { lut: 100, ramb36: 0, dsp: 0 },
        ));
    }
    catalogue.insert_bitstream(Bitstream {
        id: BitstreamId::new("nat-firewall")?,
        images: RegionImages::for_all(
            Digest::of(b"the bytes of the bitstream"),
            ByteSize::from_mib(1),
        ),
        nts: vec![NtTypeId::new("nat")?, NtTypeId::new("firewall")?],
        region_kind: RegionKind::KnownNt,
        card_model: CardModel::new("example")?,
        shareable: true,
        signed_by: None,
        modules: Vec::new(),
        notes: Default::default(),
        identity: None,
    });
    Ok(catalogue)
}

fn profile() -> Result<CardProfile, Box<dyn Error>> {
    let region = RegionProfile {
        kind: RegionKind::KnownNt,
        area: Area { lut: 1_000, ramb36: 0, dsp: 0 },
        bitstream_max: ByteSize::from_mib(4),
    };
    Ok(CardProfile {
        model: CardModel::new("example")?,
        part: "xcvu9p".into(),
        idcode: 0,
        clock_hz: 250_000_000,
        width_bits: 512,
        ingress: Bandwidth::from_gbps(100),
        egress: Bandwidth::from_gbps(100),
        memory: ByteSize::from_mib(1_024),
        memory_bytes_per_second: None,
        packet_store: ByteSize::from_mib(4),
        configuration_bytes_per_second: 800_000_000,
        scheduler_pass: Cycles::new(16),
        scheduler_lookups_per_cycle: None,
        packet_store_beats_per_cycle: None,
        core: Cycles::new(49),
        credits_initial: 8,
        region_pass: Some(snic_domain::RegionPass::SUPERNIC),
        save_area: SaveArea::default(),
        regions: vec![region; 2],
        processors: Vec::new(),
        links: None,
    })
}
