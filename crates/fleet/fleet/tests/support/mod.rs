//! A fleet of the shipped catalogue, and what a test asks of it in few words.
#![allow(dead_code)] // each test program uses its part

pub mod functions;
pub mod leading;

use std::sync::OnceLock;

use snic_bitstream::catalogue::{Catalogue, builtin};
use snic_domain::{
    Bandwidth, Bitstream, ByteSize, CardId, CardProfile, Dag, DagId, DagName, DagSpec, Digest,
    Notes, NtTypeId, RegionImages, TenantId,
};
use snic_fleet::placement::{
    CardSpec, DagChoice, HostImages, HostSpec, Inventory, PlaceDag, PlacementRefused,
};
use snic_fleet::{FleetCard, HostId, RackId, ZoneId};

pub fn host(text: &str) -> HostId {
    HostId::new(text).expect("a name of the test")
}

pub fn zone(number: usize) -> ZoneId {
    ZoneId::new(&format!("z{number}")).expect("a name of the test")
}

pub fn rack(number: usize) -> RackId {
    RackId::new(&format!("r{number}")).expect("a name of the test")
}

pub fn card_id(number: usize) -> CardId {
    CardId::new(&format!("card{number}")).expect("an id of the test")
}

pub fn card(of: &str, number: usize) -> FleetCard {
    FleetCard { host: host(of), card: card_id(number) }
}

pub fn tenant(text: &str) -> TenantId {
    TenantId::new(text).expect("an id of the test")
}

pub fn name(of: &str, dag: &str) -> DagName {
    DagName { tenant: tenant(of), dag: DagId::new(dag).expect("an id of the test") }
}

/// A chain of the catalogue's NTs, by position.
pub fn spec(catalogue: &Catalogue, nts: &[usize], mbit: u64) -> DagSpec {
    let all = &catalogue.nt_types;
    let nts: Vec<NtTypeId> = nts.iter().map(|nt| all[nt % all.len()].id.clone()).collect();
    DagSpec::chain(&nts, Bandwidth::from_mbps(mbit))
}

pub fn dag(spec: &DagSpec) -> Dag {
    Dag::new(spec.clone()).expect("a chain is valid")
}

/// The shipped catalogue, read once.
pub fn catalogue() -> &'static Catalogue {
    static ONCE: OnceLock<Catalogue> = OnceLock::new();
    ONCE.get_or_init(|| builtin().expect("a test of its own says so"))
}

/// A profile of the catalogue.
pub fn profile(catalogue: &Catalogue, model: &str) -> CardProfile {
    let found = catalogue.cards.iter().find(|card| card.model.as_str() == model);
    found.expect("a card of the catalogue").clone()
}

/// All bitstreams of the catalogue's chains.
pub fn bitstreams(catalogue: &Catalogue) -> Vec<Bitstream> {
    let of = |chain: &snic_bitstream::catalogue::CatalogueChain| -> Vec<Bitstream> {
        let model = |model: &snic_domain::CardModel| Bitstream {
            id: chain.bitstream_id(model).expect("an id of the catalogue"),
            images: RegionImages::for_all(
                Digest::of(format!("{}{model}", chain.id).as_bytes()),
                ByteSize::from_mib(1),
            ),
            nts: chain.nts.clone(),
            region_kind: chain.region_kind,
            card_model: model.clone(),
            shareable: true,
            signed_by: None,
            modules: Vec::new(),
            notes: Notes::default(),
            identity: None,
        };
        chain.card_models.iter().map(model).collect()
    };
    catalogue.chains.iter().flat_map(of).collect()
}

/// The catalogue's NTs and bitstreams, no hosts.
pub fn inventory(catalogue: &Catalogue) -> Inventory {
    let mut inventory = Inventory::new();
    catalogue.nt_types.iter().cloned().for_each(|nt| inventory.insert_nt(nt));
    bitstreams(catalogue).into_iter().for_each(|of| inventory.insert_bitstream(of));
    inventory
}

/// A host answers and has all images.
pub fn answers(inventory: &mut Inventory, id: &HostId) {
    inventory.set_reachable(id, true).expect("it is registered");
    let all = HostImages::AllBut(Default::default());
    inventory.set_images(id, all).expect("it is registered");
}

/// Places a DAG and holds its reservation.
pub fn place_and_hold(
    inventory: &mut Inventory,
    request: &PlaceDag<'_>,
) -> Result<FleetCard, Box<PlacementRefused>> {
    let DagChoice { card, plan } = inventory.place(request)?;
    let held = inventory.hold(&card, request.name, &plan.loads, plan.reservation);
    held.expect("the plan was made on this ledger");
    Ok(card)
}

/// A host with cards of these profiles, 64 functions each.
pub fn host_spec(zone_of: usize, rack_of: usize, cards: &[&CardProfile]) -> HostSpec {
    let card = |(number, profile): (usize, &&CardProfile)| {
        let spec = CardSpec { profile: (*profile).clone(), functions: 64, is_cordoned: false };
        (card_id(number), spec)
    };
    HostSpec {
        zone: zone(zone_of),
        rack: rack(rack_of),
        labels: [].into(),
        is_cordoned: false,
        cards: cards.iter().enumerate().map(card).collect(),
    }
}

/// splitmix64 (Steele et al., 2014): the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// 0 to `below - 1`.
    pub fn below(&mut self, below: usize) -> usize {
        (self.next() % below.max(1) as u64) as usize
    }

    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}
