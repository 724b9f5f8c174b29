//! As many small DAGs as a card has rows for, one after the other, on 32 regions. What a DAG takes beyond one row of the
//! virtual-chain table is a DAG fewer, so DAGs that were cut early move once a region has all of their NTs.

use std::collections::BTreeMap;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use snic_bitstream::catalogue::builtin;
use snic_domain::{
    Bandwidth, Bitstream, BitstreamId, ByteSize, CardId, CardProfile, Dag, DagId, DagName, DagSpec,
    Digest, Mapping, NtTypeId, RegionImages, RegionKind, TenantId,
};
use snic_planner::{
    Budget, Ledger, Plan, PlanCatalogue, PlanRequest, Resident, TableRows, optimize, plan,
};

const DAGS: usize = 1_000;
const MODEL: &str = "sim-32";
/// NTs of which all sequences are made.
const NTS: [&str; 6] = ["nat", "firewall", "load-balancer", "kv-cache", "go-back-n", "aes"];
/// Sequences of two or three of them that users want, beside those of the catalogue.
const SEQUENCES: usize = 20;
/// As in the policies that ship.
const BUDGET: Budget = Budget { reconfigurations: 4, regions: 1, passes: 1 };

/// A card with DAGs that stay.
struct Card {
    catalogue: PlanCatalogue,
    ledger: Ledger,
    sequences: Vec<Vec<NtTypeId>>,
    placed: BTreeMap<DagName, (Dag, Mapping)>,
}

fn bitstream(id: &BitstreamId, nts: &[NtTypeId], profile: &CardProfile) -> Bitstream {
    Bitstream {
        id: id.clone(),
        images: RegionImages::for_all(Digest::of(id.as_str().as_bytes()), ByteSize::from_mib(2)),
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

impl Card {
    /// The catalogue's bitstreams, and one for each sequence.
    fn new(rng: &mut ChaCha8Rng) -> Self {
        let shipped = builtin().expect("it ships");
        let profile = shipped.cards.iter().find(|card| card.model.as_str() == MODEL);
        let profile = profile.expect("it ships").clone();
        let mut catalogue = PlanCatalogue::new();
        shipped.nt_types.into_iter().for_each(|nt| drop(catalogue.insert_nt(nt)));
        let chains = shipped.chains.iter().filter(|one| one.card_models.contains(&profile.model));
        for chain in chains.filter(|one| one.region_kind == RegionKind::KnownNt) {
            catalogue.insert_bitstream(bitstream(&chain.id, &chain.nts, &profile));
        }
        let sequences: Vec<Vec<NtTypeId>> = (0..SEQUENCES)
            .map(|_| {
                let mut nts = NTS;
                nts.shuffle(rng);
                let chosen = nts[..rng.random_range(2..=3)].iter();
                chosen.map(|nt| NtTypeId::new(nt).expect("a label")).collect()
            })
            .collect();
        for (number, nts) in sequences.iter().enumerate() {
            let id = BitstreamId::new(&format!("wanted{number}")).expect("a label");
            catalogue.insert_bitstream(bitstream(&id, nts, &profile));
        }
        let ledger = Ledger::new(CardId::new("card0").expect("a label"), profile);
        Self { catalogue, ledger, sequences, placed: BTreeMap::new() }
    }

    fn hold(&mut self, name: &DagName, plan: &Plan) {
        for load in &plan.loads {
            let content = self.catalogue.bitstream(&load.bitstream);
            self.ledger.set_content(load.region, content, &self.catalogue).expect("it is unused");
        }
        self.ledger.release(name);
        self.ledger.hold(name, plan.reservation.clone()).expect("a plan never overbooks");
    }

    fn place(&mut self, name: &DagName, dag: &Dag) -> Result<(), String> {
        let request = PlanRequest { name, dag, previous: None };
        let plan = plan(&self.ledger, &self.catalogue, &request).map_err(|why| why.to_string())?;
        self.hold(name, &plan);
        self.placed.insert(name.clone(), (dag.clone(), plan.mapping));
        Ok(())
    }

    /// Moves DAGs until nothing is gained, as the controller does; says how many moved.
    fn consolidate(&mut self) -> usize {
        let mut moved = 0;
        loop {
            let placed = self.placed.iter();
            let residents: Vec<Resident<'_>> =
                placed.map(|(name, (dag, mapping))| Resident { name, dag, mapping }).collect();
            let moves = optimize(&self.ledger, &self.catalogue, &residents, BUDGET).moves;
            if moves.is_empty() {
                return moved;
            }
            for one in moves {
                self.hold(&one.name, &one.plan);
                self.placed.get_mut(&one.name).expect("a resident").1 = one.plan.mapping;
                moved += 1;
            }
        }
    }

    fn free_regions(&self) -> usize {
        let regions = self.ledger.profile().regions();
        regions.filter(|(region, _)| self.ledger.is_unused(*region)).count()
    }

    /// Passes beyond the first of each DAG.
    fn further_passes(&self) -> usize {
        self.placed.values().map(|(_, mapping)| mapping.stages.len() - 1).sum()
    }
}

/// Refusals among a thousand DAGs for 1 to 90 Mbit/s each.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    refused: Vec<String>,
    /// DAGs that a card without moves refuses.
    refused_without_moves: usize,
}

fn fill(seed: u64) -> Outcome {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut card = Card::new(&mut rng);
    let (mut refused, mut refused_without_moves, mut moved) = (Vec::new(), 0, 0);
    for number in 0..DAGS {
        let name = DagName {
            tenant: TenantId::new(&format!("t{}", number % 50)).expect("a label"),
            dag: DagId::new(&format!("d{number}")).expect("a label"),
        };
        let nts = card.sequences[rng.random_range(0..card.sequences.len())].clone();
        let bandwidth = Bandwidth::from_mbps(rng.random_range(1..=90));
        let dag = Dag::new(DagSpec::chain(&nts, bandwidth)).expect("a valid chain");
        if card.place(&name, &dag).is_err() {
            refused_without_moves += 1;
            moved += card.consolidate();
            if let Err(why) = card.place(&name, &dag) {
                refused.push(format!("{name} beside {} free regions: {why}", card.free_regions()));
            }
        }
    }
    card.ledger.check().expect("sums are right");
    let before = card.further_passes();
    moved += card.consolidate();
    let (after, free) = (card.further_passes(), card.free_regions());
    println!(
        "seed {seed}: {refused_without_moves} refused at first, {} at last, {moved} moved, {before} further \
         passes and then {after}, {free} regions free",
        refused.len()
    );
    assert!(after == 0 || free == 0, "seed {seed}: {after} passes too many, {free} regions free");
    Outcome { refused, refused_without_moves }
}

/// The number of chains that a card may promise is as large, so each DAG has one row.
#[test]
fn a_thousand_small_dags_find_room_once_those_that_were_cut_have_moved() {
    assert!(TableRows::CARD.chains as usize >= DAGS);
    let outcomes: Vec<Outcome> = (0..20).map(fill).collect();
    for (seed, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.refused, Vec::<String>::new(), "seed {seed}");
    }
    let at_first: usize = outcomes.iter().map(|outcome| outcome.refused_without_moves).sum();
    assert!(at_first > 0, "moves are not needed, so nothing is shown");
}
