//! Choice of a card, beside an exhaustive reference that plans on every card of every host.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{
    Rng, answers, card, catalogue, dag, host, host_spec, inventory, name, place_and_hold, profile,
    rack, spec, tenant, zone,
};
use proptest::prelude::*;
use snic_bitstream::catalogue::Catalogue;
use snic_domain::{Bandwidth, CardProfile, Dag, DagName, Node, NtTypeId, RegionId, Slot, TenantId};
use snic_fleet::placement::{
    CardConstraints, CardPolicy, Constraint, HostImages, HostNeeds, Inventory, KeptRoom, KeptUser,
    PlaceDag, RankedHost,
};
use snic_fleet::protocol::RequestId;
use snic_fleet::{FleetCard, HostId};
use snic_planner::{Ledger, PlanRequest, RegionCondition, plan};

const POLICIES: [CardPolicy; 4] =
    [CardPolicy::Pack, CardPolicy::Spread, CardPolicy::Headroom, CardPolicy::Loaded];

/// A fleet with at most sixteen cards, so that all of them may be tried, and what the test knows of it.
struct World {
    catalogue: &'static Catalogue,
    fleet: Inventory,
    unreachable: BTreeSet<HostId>,
    cordoned_cards: BTreeSet<FleetCard>,
    /// Functions that machines have.
    bound: BTreeMap<FleetCard, u32>,
    /// Functions and bandwidth that are reserved, with card and tenant.
    kept: Vec<(FleetCard, TenantId, u32, Bandwidth)>,
    rng: Rng,
}

impl World {
    fn new(seed: u64) -> Self {
        let catalogue = catalogue();
        let fleet = inventory(catalogue);
        let (unreachable, cordoned_cards) = (BTreeSet::new(), BTreeSet::new());
        let (bound, kept) = (BTreeMap::new(), Vec::new());
        let rng = Rng(seed);
        let mut world = Self { catalogue, fleet, unreachable, cordoned_cards, bound, kept, rng };
        world.add_hosts();
        world.fill();
        world.fleet.check().expect("ledgers and index agree");
        world
    }

    fn small(&mut self, model: &str) -> CardProfile {
        let mut profile = profile(self.catalogue, model);
        let regions = 1 + self.rng.below(3);
        // The last two regions are for tenants' NTs.
        let keep = if self.rng.percent(70) { 0 } else { profile.regions.len() - 2 };
        profile.regions = profile.regions[keep..].iter().take(regions).cloned().collect();
        profile
    }

    fn add_hosts(&mut self) {
        let shapes = [self.small("sim-16"), self.small("sim-32"), self.small("sim-16")];
        for number in 0..1 + self.rng.below(7) {
            let id = host(&format!("h{number}"));
            let cards: Vec<&CardProfile> =
                (0..self.rng.below(3)).map(|_| &shapes[self.rng.below(3)]).collect();
            let mut of = host_spec(self.rng.below(2), self.rng.below(2), &cards);
            if self.rng.percent(50) {
                of.labels.insert("disk".into(), "ssd".into());
            }
            assert!(self.fleet.add_host(&id, of));
            if self.rng.percent(15) {
                self.unreachable.insert(id);
            } else {
                answers(&mut self.fleet, &id);
                let is_cordoned = self.rng.percent(15);
                self.fleet.set_cordoned(&id, is_cordoned).expect("it is registered");
            }
        }
        let cards: Vec<FleetCard> = self.fleet.cards().map(|(name, _)| name.clone()).collect();
        for card in cards {
            if self.rng.percent(10) {
                self.fleet.set_card_cordoned(&card, true).expect("it is registered");
                self.cordoned_cards.insert(card.clone());
            }
            if self.rng.percent(10) {
                let region = RegionId(self.rng.below(3) as u8);
                self.fleet.set_condition(&card, region, RegionCondition::Faulty).expect("it is");
            }
            let bound = self.rng.below(65) as u32;
            self.fleet.set_bound(&card, bound).expect("it is registered");
            self.bound.insert(card.clone(), bound);
            for number in 0..self.rng.below(3) {
                let (of, functions) = (tenant(["t0", "t1"][number]), self.rng.below(20) as u32);
                let bandwidth = Bandwidth::from_gbps([0, 1, 40, 90][self.rng.below(4)]);
                let room = KeptRoom { vm: None, functions, bandwidth };
                let name = (of.clone(), RequestId(number as u64));
                self.fleet.keep(&card, name, room).expect("it is registered");
                self.kept.push((card.clone(), of, functions, bandwidth));
            }
        }
    }

    /// DAGs anywhere, some of which leave again, so that victims stay loaded.
    fn fill(&mut self) {
        let cards: Vec<FleetCard> = self.fleet.cards().map(|(name, _)| name.clone()).collect();
        for number in 0..self.rng.below(4) * cards.len() {
            let (name, dag) = self.some_dag(number);
            let card = &cards[self.rng.below(cards.len())];
            let ledger = self.fleet.ledger(card).expect("it is registered");
            let request = PlanRequest { name: &name, dag: &dag, previous: None };
            if let Ok(plan) = plan(ledger, self.fleet.catalogue(), &request) {
                self.fleet.hold(card, &name, &plan.loads, plan.reservation).expect("as planned");
                if self.rng.percent(20) {
                    assert_eq!(self.fleet.release(&name), Some(card.clone()));
                }
            }
        }
    }

    fn some_dag(&mut self, number: usize) -> (DagName, Dag) {
        let nts: Vec<usize> = (0..1 + self.rng.below(3)).map(|_| self.rng.below(6)).collect();
        let mbit = [1_000, 5_000, 10_000, 20_000, 60_000][self.rng.below(5)];
        let name = name(["acme", "globex"][self.rng.below(2)], &format!("d{number}"));
        (name, dag(&spec(self.catalogue, &nts, mbit)))
    }

    fn some_constraints(&mut self) -> CardConstraints {
        let mut of = CardConstraints::default();
        let cards: Vec<FleetCard> = self.fleet.cards().map(|(name, _)| name.clone()).collect();
        let hosts: Vec<HostId> = self.fleet.hosts().map(|(id, _)| id.clone()).collect();
        let rng = &mut self.rng;
        if rng.percent(20) {
            of.zones.insert(zone(rng.below(3)));
        }
        if rng.percent(20) {
            of.racks.insert(rack(rng.below(2)));
        }
        if rng.percent(20) {
            of.labels.insert("disk".into(), "ssd".into());
        }
        if rng.percent(20) {
            let model = profile(self.catalogue, ["sim-16", "sim-32", "u280"][rng.below(3)]).model;
            of.models.insert(model);
        }
        for host in hosts {
            match rng.below(10) {
                0 => drop(of.hosts.insert(host)),
                1 => drop(of.apart_from_hosts.insert(host)),
                2 if rng.percent(30) => drop(of.of_dags.hosts.insert(host)),
                _ => {}
            }
        }
        if rng.percent(10) {
            of.of_dags.racks.insert((zone(rng.below(3)), rack(rng.below(2))));
        }
        for card in cards {
            match rng.below(12) {
                0 => drop(of.apart_from_cards.insert(card)),
                1 if rng.percent(30) => drop(of.cards.insert(card)),
                _ => {}
            }
        }
        of.functions = if rng.percent(30) { rng.below(64) as u32 } else { 0 };
        of
    }

    /// Constraint that a host fails, and its cards that take the DAG.
    fn reference(
        &self,
        id: &HostId,
        of: &CardConstraints,
        (name, dag): (&DagName, &Dag),
    ) -> Result<Vec<FleetCard>, Constraint> {
        let host = self.fleet.host(id).expect("it is registered");
        if self.unreachable.contains(id) {
            return Err(Constraint::Unreachable);
        } else if host.is_cordoned {
            return Err(Constraint::Cordoned);
        } else if !of.zones.is_empty() && !of.zones.contains(&host.zone) {
            return Err(Constraint::Zone);
        } else if !of.racks.is_empty() && !of.racks.contains(&host.rack) {
            return Err(Constraint::Rack);
        } else if of.labels.iter().any(|(key, value)| host.labels.get(key) != Some(value)) {
            return Err(Constraint::Labels);
        } else if !of.hosts.is_empty() && !of.hosts.contains(id) {
            return Err(Constraint::HostAffinity);
        } else if of.apart_from_hosts.contains(id) {
            return Err(Constraint::HostAntiAffinity);
        } else if of.of_dags.hosts.contains(id) {
            return Err(Constraint::HostOfDag);
        } else if of.of_dags.racks.contains(&(host.zone.clone(), host.rack.clone())) {
            return Err(Constraint::RackOfDag);
        }
        let (mut fits, mut worst) = (Vec::new(), Constraint::NoCard);
        for number in 0..host.cards.len() {
            let card = card(id.as_str(), number);
            match self.card_reference(&card, of, (name, dag)) {
                None => fits.push(card),
                Some(fails) => worst = worst.max(fails),
            }
        }
        if fits.is_empty() { Err(worst) } else { Ok(fits) }
    }

    fn card_reference(
        &self,
        card: &FleetCard,
        of: &CardConstraints,
        (name, dag): (&DagName, &Dag),
    ) -> Option<Constraint> {
        let ledger = self.fleet.ledger(card).expect("it is registered");
        let left = ledger.ingress_residual().min(ledger.egress_residual());
        let others = self.kept.iter().filter(|(at, of, ..)| at == card && *of != name.tenant);
        let (functions_kept, kept) = others
            .fold((0, Bandwidth::ZERO), |(functions, sum), (_, _, more, bandwidth)| {
                (functions + more, sum + *bandwidth)
            });
        if !of.models.is_empty() && !of.models.contains(&ledger.profile().model) {
            Some(Constraint::CardModel)
        } else if self.cordoned_cards.contains(card) {
            Some(Constraint::CardCordoned)
        } else if !of.cards.is_empty() && !of.cards.contains(card) {
            Some(Constraint::CardAffinity)
        } else if of.apart_from_cards.contains(card) {
            Some(Constraint::CardAntiAffinity)
        } else if 64 - self.bound[card] < of.functions {
            Some(Constraint::Functions)
        } else if of.functions > 0 && 64 - self.bound[card] < of.functions + functions_kept {
            Some(Constraint::FunctionsReserved)
        } else if left < dag.bandwidth() {
            Some(Constraint::Bandwidth)
        } else if kept > Bandwidth::ZERO && left < dag.bandwidth() + kept {
            Some(Constraint::BandwidthReserved)
        } else if dag.nodes().iter().any(|node| self.is_nt_short(ledger, dag, node)) {
            Some(Constraint::Nts)
        } else {
            let request = PlanRequest { name, dag, previous: None };
            match plan(ledger, self.fleet.catalogue(), &request) {
                Err(_) => Some(Constraint::NoPlan),
                // Its packets may waste a part of a beat.
                Ok(plan) => {
                    let needed = plan.reservation.ingress().max(plan.reservation.egress());
                    let is_short = kept > Bandwidth::ZERO && left < needed + kept;
                    is_short.then_some(Constraint::BandwidthReserved)
                }
            }
        }
    }

    /// Too little is left of an NT, and no region can be loaded with any bitstream that has it.
    fn is_nt_short(&self, ledger: &Ledger, dag: &Dag, node: &Node) -> bool {
        let uses = dag.nodes().iter().filter(|other| other.nt == node.nt).count() as u64;
        let can_load = ledger.profile().regions().any(|(region, of)| {
            ledger.is_unused(region)
                && ledger.condition(region) == RegionCondition::Usable
                && self.fleet.catalogue().bitstreams().any(|bitstream| {
                    bitstream.card_model == ledger.profile().model
                        && bitstream.region_kind == of.kind
                        && bitstream.nts.contains(&node.nt)
                })
        });
        loaded(ledger, &node.nt) < uses * dag.bandwidth().get() && !can_load
    }

    /// Smaller is better.
    fn merit(
        &self,
        card: &FleetCard,
        policy: CardPolicy,
        (name, dag): (&DagName, &Dag),
    ) -> (bool, i128) {
        let ledger = self.fleet.ledger(card).expect("it is registered");
        let left = i128::from(ledger.ingress_residual().get());
        // Parts of the ingress, to a thousand-millionth.
        let part = left * 1_000_000_000 / i128::from(ledger.profile().ingress.get());
        let has_tenant = self.fleet.cards().any(|(other, ledger)| {
            other.host == card.host
                && ledger.reservations().any(|(dag, _)| dag.tenant == name.tenant)
        });
        let uses = |nt: &NtTypeId| dag.nodes().iter().filter(|node| node.nt == *nt).count() as u64;
        let has = |node: &Node| loaded(ledger, &node.nt) >= uses(&node.nt) * dag.bandwidth().get();
        match policy {
            CardPolicy::Pack => (false, part),
            CardPolicy::Spread => (has_tenant, -part),
            CardPolicy::Headroom => (false, -left),
            CardPolicy::Loaded => (!dag.nodes().iter().all(has), part),
        }
    }
}

/// Bits per second that usable regions have left of an NT.
fn loaded(ledger: &Ledger, nt: &NtTypeId) -> u64 {
    let mut sum = 0;
    for (region, _) in ledger.profile().regions() {
        let nts = ledger.content(region).map(|content| content.nts.clone()).unwrap_or_default();
        for (slot, of) in (0u8..).zip(&nts) {
            if of == nt && ledger.condition(region) == RegionCondition::Usable {
                sum += ledger.residual(region, Slot(slot)).get();
            }
        }
    }
    sum
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Where a card takes the DAG, one is chosen, and none is better by the policy; where none does, each host is
    /// counted where the reference counts it.
    #[test]
    fn the_choice_is_that_of_an_exhaustive_search(seed in any::<u64>()) {
        let mut world = World::new(seed);
        for number in 0..6 {
            let (name, dag) = world.some_dag(1_000 + number);
            let constraints = world.some_constraints();
            let hosts: Vec<HostId> = world.fleet.hosts().map(|(id, _)| id.clone()).collect();
            let mut fits: Vec<FleetCard> = Vec::new();
            let mut failed: BTreeMap<Constraint, usize> = BTreeMap::new();
            for id in &hosts {
                match world.reference(id, &constraints, (&name, &dag)) {
                    Ok(cards) => fits.extend(cards),
                    Err(fails) => *failed.entry(fails).or_default() += 1,
                }
            }
            for policy in POLICIES {
                let request =
                    PlaceDag { name: &name, dag: &dag, constraints: &constraints, policy };
                let merit = |card: &FleetCard| world.merit(card, policy, (&name, &dag));
                match world.fleet.place(&request) {
                    Ok(choice) => {
                        prop_assert!(fits.contains(&choice.card), "{policy:?} {}", choice.card);
                        let best = fits.iter().map(merit).min();
                        prop_assert_eq!(Some(merit(&choice.card)), best, "{:?}", policy);
                        let ranked = world.ranked(&constraints, policy, (&name, &dag));
                        let hosts: BTreeSet<&HostId> = fits.iter().map(|card| &card.host).collect();
                        prop_assert_eq!(ranked.len(), hosts.len(), "each host once");
                        let merits: Vec<_> = ranked.iter().map(merit).collect();
                        prop_assert!(merits.is_sorted(), "{policy:?} {merits:?}");
                        prop_assert_eq!(merits.first().copied(), best);
                    }
                    Err(refused) => {
                        prop_assert!(fits.is_empty(), "{policy:?}: {fits:?} {refused}");
                        prop_assert_eq!(&refused.hosts, &failed, "{:?}", policy);
                    }
                }
            }
        }
    }
}

impl World {
    fn ranked(
        &self,
        constraints: &CardConstraints,
        policy: CardPolicy,
        dag: (&DagName, &Dag),
    ) -> Vec<FleetCard> {
        let tenant = Some(&dag.0.tenant);
        let user = KeptUser { tenant, vm: None };
        let (dags, bandwidth) = (&[dag], Bandwidth::ZERO);
        let needs = HostNeeds { constraints, policy, tenant, user, dags, bandwidth };
        let (found, refused) = self.fleet.find_hosts(&needs, usize::MAX);
        let all = found.len() + refused.hosts.values().sum::<usize>();
        assert_eq!(all, self.fleet.hosts().count(), "each host is found or has a reason");
        found.into_iter().map(|host| host.card).collect()
    }
}

fn fleet_of(hosts: usize) -> (&'static Catalogue, Inventory) {
    let catalogue = catalogue();
    let mut fleet = inventory(catalogue);
    let profile = profile(catalogue, "sim-16");
    for number in 0..hosts {
        let id = host(&format!("h{number}"));
        fleet.add_host(&id, host_spec(number % 3, number, &[&profile]));
        answers(&mut fleet, &id);
    }
    (catalogue, fleet)
}

/// Empty cards of one profile are alike, so one plan speaks for all of them.
#[test]
fn a_dag_that_fits_no_empty_card_is_refused_by_all_hosts() {
    let (catalogue, fleet) = fleet_of(40);
    // 30 uses of one NT: more than all regions together serve.
    let dag = dag(&spec(catalogue, &[0; 30], 90_000));
    let (name, constraints) = (name("acme", "large"), CardConstraints::default());
    let request =
        PlaceDag { name: &name, dag: &dag, constraints: &constraints, policy: CardPolicy::Pack };
    let refused = fleet.place(&request).expect_err("no card serves it");
    assert_eq!(refused.hosts, [(Constraint::NoPlan, 40)].into());
    let text = refused.to_string();
    assert!(
        text.starts_with("none of 40 hosts has room: 40 without a feasible placement; "),
        "{text}"
    );
}

/// Cards that are not alike are tried up to a bound, and the refusal says how many were not.
#[test]
fn a_refusal_says_how_many_hosts_were_not_tried() {
    let (catalogue, mut fleet) = fleet_of(40);
    let one = dag(&spec(catalogue, &[1], 1_000));
    for number in 0..40 {
        let (name, card) = (name("acme", &format!("d{number}")), card(&format!("h{number}"), 0));
        let constraints =
            CardConstraints { cards: [card.clone()].into(), ..CardConstraints::default() };
        let policy = CardPolicy::Pack;
        let request = PlaceDag { name: &name, dag: &one, constraints: &constraints, policy };
        let plan = fleet.place(&request).expect("the card is empty").plan;
        fleet.hold(&card, &name, &plan.loads, plan.reservation).expect("as planned");
    }
    let dag = dag(&spec(catalogue, &[0; 30], 90_000));
    let (name, constraints) = (name("acme", "large"), CardConstraints::default());
    let request =
        PlaceDag { name: &name, dag: &dag, constraints: &constraints, policy: CardPolicy::Pack };
    let refused = fleet.place(&request).expect_err("no card serves it");
    assert_eq!(refused.hosts, [(Constraint::NoPlan, 16), (Constraint::NotTried, 24)].into());
}

#[test]
fn machines_without_a_dag_are_ranked_by_functions_and_policy() {
    let (_, mut fleet) = fleet_of(4);
    fleet.set_bound(&card("h1", 0), 60).expect("it is registered");
    let acme = tenant("acme");
    let name = (acme.clone(), RequestId(7));
    let room = KeptRoom { vm: None, functions: 60, bandwidth: Bandwidth::from_gbps(90) };
    fleet.keep(&card("h2", 0), name.clone(), room).expect("it is registered");
    let constraints = CardConstraints { functions: 5, ..CardConstraints::default() };
    let needs = |tenant, bandwidth| HostNeeds {
        constraints: &constraints,
        policy: CardPolicy::Spread,
        tenant,
        user: KeptUser { tenant, vm: None },
        dags: &[],
        bandwidth: Bandwidth::from_gbps(bandwidth),
    };
    let (found, refused) = fleet.find_hosts(&needs(None, 0), 10);
    assert_eq!(found.len(), 2);
    let is_free = |of: &RankedHost| of.functions_left == 64 && of.card.host != host("h1");
    assert!(found.iter().all(is_free), "{found:?}");
    let reasons = [(Constraint::Functions, 1), (Constraint::FunctionsReserved, 1)];
    assert_eq!(refused.hosts, reasons.into());
    assert_eq!(fleet.find_hosts(&needs(None, 0), 1).0.len(), 1);
    let (found, _) = fleet.find_hosts(&needs(Some(&acme), 0), 10);
    assert_eq!(found.len(), 3, "they are acme's");
    fleet.set_bound(&card("h1", 0), 0).expect("it is registered");
    fleet.keep_no_more(&card("h2", 0), &name).expect("it is registered");
    assert_eq!(fleet.find_hosts(&needs(None, 0), 10).0.len(), 4);
    assert!(fleet.find_hosts(&needs(None, 1_000), 10).0.is_empty());
}

/// A machine with two DAGs needs room for both on one card, not for each alone.
#[test]
fn the_dags_of_a_machine_share_its_card() {
    let (_, fleet) = fleet_of(1);
    let constraints = CardConstraints::default();
    let found = |gbps: &[u64]| {
        let named = |(number, gbps): (usize, &u64)| {
            (name("acme", &format!("d{number}")), dag(&spec(catalogue(), &[0, 1], gbps * 1_000)))
        };
        let dags: Vec<(DagName, Dag)> = gbps.iter().enumerate().map(named).collect();
        let dags: Vec<(&DagName, &Dag)> = dags.iter().map(|(name, dag)| (name, dag)).collect();
        let needs = HostNeeds {
            constraints: &constraints,
            policy: CardPolicy::Pack,
            tenant: None,
            user: KeptUser::default(),
            dags: &dags,
            bandwidth: Bandwidth::ZERO,
        };
        let (found, refused) = fleet.find_hosts(&needs, 16);
        (found.len(), refused.hosts.keys().copied().collect::<Vec<_>>())
    };
    assert_eq!(found(&[40, 40]), (1, vec![]));
    assert_eq!(found(&[60]), (1, vec![]));
    assert_eq!(found(&[60, 60]), (0, vec![Constraint::Bandwidth]));
}

/// A change and a way back leave to others what is reserved for them.
#[test]
fn a_dag_that_grows_on_its_card_takes_nothing_that_is_reserved() {
    let (catalogue, mut fleet) = fleet_of(1);
    let (of, constraints) = (name("acme", "a"), CardConstraints::default());
    let policy = CardPolicy::Pack;
    let before = dag(&spec(catalogue, &[0], 10_000));
    let request = PlaceDag { name: &of, dag: &before, constraints: &constraints, policy };
    let choice = fleet.place(&request).expect("there is room");
    let (loads, reservation) = (&choice.plan.loads, choice.plan.reservation.clone());
    fleet.hold(&choice.card, &of, loads, reservation).expect("as planned");
    let room = KeptRoom { vm: None, functions: 0, bandwidth: Bandwidth::from_gbps(70) };
    let kept = (tenant("beta"), RequestId(7));
    fleet.keep(&choice.card, kept, room).expect("it is registered");
    let again = |mbit| {
        let dag = dag(&spec(catalogue, &[0], mbit));
        let request = PlaceDag { name: &of, dag: &dag, constraints: &constraints, policy };
        let refused = fleet.place_again(&request, &choice.plan.mapping).err();
        refused.map(|refused| refused.hosts.keys().copied().collect::<Vec<_>>())
    };
    assert_eq!((again(9_000), again(20_000)), (None, None));
    assert_eq!(again(40_000), Some(vec![Constraint::BandwidthReserved]));
    fleet.release(&of);
    assert!(fleet.place_back((&of, &before), &choice.card).is_some());
    let large = dag(&spec(catalogue, &[0], 40_000));
    assert!(fleet.place_back((&of, &large), &choice.card).is_none());
}

/// A host that is removed is forgotten whole.
#[test]
fn a_removed_host_takes_its_cards_and_reservations_along() {
    let (catalogue, mut fleet) = fleet_of(2);
    let (name, dag) = (name("acme", "web"), dag(&spec(catalogue, &[1], 1_000)));
    let only = CardConstraints { hosts: [host("h0")].into(), ..CardConstraints::default() };
    let request = PlaceDag { name: &name, dag: &dag, constraints: &only, policy: CardPolicy::Pack };
    assert_eq!(place_and_hold(&mut fleet, &request), Ok(card("h0", 0)));
    assert!(!fleet.add_host(&host("h0"), host_spec(0, 0, &[])), "it is registered");
    fleet.remove_host(&host("h0")).expect("it is registered");
    assert!(fleet.remove_host(&host("h0")).is_err());
    assert_eq!(fleet.card_of(&name), None);
    assert_eq!(fleet.release(&name), None);
    let refused = fleet.place(&request).expect_err("the host is gone");
    assert_eq!(refused.hosts, [(Constraint::HostAffinity, 1)].into());
    assert_eq!(Bandwidth::ZERO, fleet.ledger(&card("h1", 0)).expect("it is").ingress_reserved());
    fleet.check().expect("ledgers and index agree");
}

/// A card that no policy prefers is used all the same.
#[test]
fn every_policy_places_on_an_empty_fleet() {
    let (catalogue, fleet) = fleet_of(40);
    let dag = dag(&spec(catalogue, &[1], 2_000));
    let (name, constraints) = (name("acme", "web"), CardConstraints::default());
    for policy in POLICIES {
        let request = PlaceDag { name: &name, dag: &dag, constraints: &constraints, policy };
        assert_eq!(fleet.place(&request).map(|of| of.plan.loads.len()), Ok(1), "{policy:?}");
    }
}

/// A tenant has a DAG on all hosts but one, which is the fullest: that one is found behind a few hundred others, and not
/// looked for behind more.
#[test]
fn a_card_that_is_preferred_is_looked_for_among_some_hundreds() {
    for (hosts, is_found) in [(300, true), (500, false)] {
        let (catalogue, mut fleet) = fleet_of(hosts);
        let constraints = CardConstraints::default();
        let policy = CardPolicy::Spread;
        for number in 0..hosts {
            let (of, mbit) = if number == 7 { ("globex", 50_000) } else { ("acme", 1_000) };
            let (name, dag) = (name(of, &format!("d{number}")), dag(&spec(catalogue, &[1], mbit)));
            let card = card(&format!("h{number}"), 0);
            let ledger = fleet.ledger(&card).expect("it is registered");
            let request = PlanRequest { name: &name, dag: &dag, previous: None };
            let plan = plan(ledger, fleet.catalogue(), &request).expect("there is room");
            fleet.hold(&card, &name, &plan.loads, plan.reservation).expect("as planned");
        }
        let (name, dag) = (name("acme", "web"), dag(&spec(catalogue, &[1], 1_000)));
        let request = PlaceDag { name: &name, dag: &dag, constraints: &constraints, policy };
        let choice = fleet.place(&request).expect("there is room");
        assert_eq!(choice.card == card("h7", 0), is_found, "{hosts} hosts: {}", choice.card);
    }
}

/// An image that is on its way to all hosts is what a refusal says, and one host that has it is found among many.
#[test]
fn a_host_without_the_image_is_passed_over() {
    let (catalogue, mut fleet) = fleet_of(40);
    let dag = dag(&spec(catalogue, &[1], 2_000));
    let (name, constraints) = (name("acme", "web"), CardConstraints::default());
    let (name, dag, constraints) = (&name, &dag, &constraints);
    for policy in POLICIES {
        let request = PlaceDag { name, dag, constraints, policy };
        let loads = fleet.place(&request).expect("there is room").plan.loads;
        let image = loads[0].bitstream.clone();
        let missing = HostImages::AllBut([image.clone()].into());
        for number in 0..40 {
            fleet.set_images(&host(&format!("h{number}")), missing.clone()).expect("it is there");
        }
        let refused = fleet.place(&request).expect_err("no host has it");
        assert_eq!(refused.hosts, [(Constraint::Image, 40)].into(), "{policy:?}");
        assert_eq!(refused.to_string(), "none of 40 hosts has room: 40 without the image yet");
        for has in ["h0", "h17", "h39"] {
            answers(&mut fleet, &host(has));
            let found = fleet.place(&request).map(|choice| choice.card.host);
            assert_eq!(found, Ok(host(has)), "{policy:?}");
            fleet.set_images(&host(has), missing.clone()).expect("it is there");
        }
        fleet.set_images(&host("h3"), HostImages::Unknown).expect("it is there");
        assert!(fleet.place(&request).is_err(), "what it has is not known");
        (0..40).for_each(|number| answers(&mut fleet, &host(&format!("h{number}"))));
    }
}

/// A placement of a host beyond the ledger counts, and its card takes nothing new until there is room.
#[test]
fn an_overbooked_card_takes_nothing_new() {
    let (catalogue, mut fleet) = fleet_of(1);
    let (constraints, policy) = (CardConstraints::default(), CardPolicy::Pack);
    let large = dag(&spec(catalogue, &[1], 70_000));
    let small = dag(&spec(catalogue, &[1], 1_000));
    let names: Vec<DagName> = (0..3).map(|number| name("acme", &format!("d{number}"))).collect();
    let request =
        |at: usize, dag| PlaceDag { name: &names[at], dag, constraints: &constraints, policy };
    let choice = fleet.place(&request(0, &large)).expect("there is room");
    let (loads, reservation) = (choice.plan.loads, choice.plan.reservation);
    let hold = |fleet: &mut Inventory, at: usize| {
        let held =
            fleet.hold_as_it_is(&choice.card, &names[at], loads.clone(), reservation.clone());
        held.expect("it is registered").map(|short| short.to_string())
    };
    assert_eq!(hold(&mut fleet, 0), None);
    let short = hold(&mut fleet, 1).expect("it is too much");
    assert!(short.contains("overbooked"), "{short}");
    assert_eq!(fleet.check(), Ok(()));
    assert_eq!(fleet.card_of(&names[1]), Some(&choice.card));
    let refused = fleet.place(&request(2, &small)).expect_err("it is overbooked");
    assert_eq!(refused.hosts, [(Constraint::CardOverbooked, 1)].into());
    assert_eq!(fleet.release(&names[0]).as_ref(), Some(&choice.card));
    assert_eq!(fleet.check(), Ok(()));
    let ledger = fleet.ledger(&choice.card).expect("it is registered");
    assert!(ledger.held(&names[1]).is_some(), "there is room for it now");
    assert!(fleet.place(&request(2, &small)).is_ok());
}

/// A region that a forgotten bitstream is loaded in is free.
#[test]
fn a_bitstream_that_is_removed_is_loaded_nowhere() {
    let (catalogue, mut fleet) = fleet_of(2);
    let (name, dag) = (name("acme", "web"), dag(&spec(catalogue, &[1], 1_000)));
    let (constraints, policy) = (CardConstraints::default(), CardPolicy::Pack);
    let request = PlaceDag { name: &name, dag: &dag, constraints: &constraints, policy };
    let loads = fleet.place(&request).expect("there is room").plan.loads;
    let image = loads[0].bitstream.clone();
    place_and_hold(&mut fleet, &request).expect("there is room");
    fleet.release(&name);
    assert!(fleet.place(&request).expect("there is room").plan.loads.is_empty(), "it is loaded");
    let of = fleet.remove_bitstream(&image).expect("it is registered");
    assert_eq!(fleet.check(), Ok(()));
    let again = fleet.place(&request).map(|choice| choice.plan.loads);
    let others = again.unwrap_or_default().into_iter().map(|load| load.bitstream);
    assert!(others.clone().all(|other| other != image), "{others:?}");
    fleet.insert_bitstream(of);
    let loads = fleet.place(&request).expect("there is room").plan.loads;
    assert!(!loads.is_empty(), "the region counts as empty");
}
