//! Cards in the order of a policy, those that fail a constraint left out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::ControlFlow;

use smallvec::SmallVec;
use snic_domain::{Bandwidth, CardProfile, Dag, NtTypeId, TenantId};

use super::constraints::{CardConstraints, CardPolicy, Constraint};
use super::function_books::KeptUser;
use super::index::{CardSlot, CardsByBandwidth, Group, GroupKey};
use super::inventory::{CardEntry, HostEntry, Inventory};
use super::summary::Kinds;
use crate::HostId;

/// Most cards that a policy passes over for one that it prefers. Without a limit a tenant that has DAGs on each host would
/// have all cards looked at with each create.
const OTHERS_MAX: usize = 400;

/// Decision about the next card.
pub(super) type Step = ControlFlow<(), WalkDecision>;

/// Decision whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkDecision {
    /// With the next card.
    On,
    /// Without the other cards of this group, which are all alike.
    SkipAlike,
}

/// A request, with what follows from it for each card.
#[derive(Debug)]
pub(super) struct Query<'a> {
    pub inventory: &'a Inventory,
    pub constraints: &'a CardConstraints,
    pub policy: CardPolicy,
    /// Owner of the DAG.
    pub tenant: Option<&'a TenantId>,
    /// User of what is reserved.
    pub user: KeptUser<'a>,
    bandwidth: Bandwidth,
    /// Each NT once, with the bandwidth of all of its nodes.
    nts: SmallVec<[(&'a NtTypeId, Bandwidth); 8]>,
    /// Consequences for all cards of each profile.
    profiles: Vec<ProfileFit>,
}

/// Demand on a card that is looked for.
#[derive(Debug)]
pub(super) struct Demand<'a> {
    /// Owner of the DAGs.
    pub tenant: Option<&'a TenantId>,
    /// User of what is reserved.
    pub user: KeptUser<'a>,
    pub dags: Vec<&'a Dag>,
    /// Bandwidth beside that of the DAGs.
    pub bandwidth: Bandwidth,
}

/// Consequences of a request for all cards of a profile.
#[derive(Debug)]
struct ProfileFit {
    takes_model: bool,
    /// Kinds of regions that can be loaded with each NT of the request.
    kinds: SmallVec<[Kinds; 8]>,
}

impl<'a> Query<'a> {
    pub fn new(
        inventory: &'a Inventory,
        constraints: &'a CardConstraints,
        policy: CardPolicy,
        (tenant, dag): (&'a TenantId, &'a Dag),
    ) -> Self {
        let user = KeptUser { tenant: Some(tenant), vm: None };
        let bandwidth = Bandwidth::ZERO;
        let demand = Demand { tenant: Some(tenant), user, dags: vec![dag], bandwidth };
        Self::of(inventory, constraints, policy, demand)
    }

    /// A search for several DAGs, or for none.
    pub fn of(
        inventory: &'a Inventory,
        constraints: &'a CardConstraints,
        policy: CardPolicy,
        demand: Demand<'a>,
    ) -> Self {
        let Demand { tenant, user, dags, mut bandwidth } = demand;
        let mut nts: SmallVec<[(&NtTypeId, Bandwidth); 8]> = SmallVec::new();
        for dag in dags {
            bandwidth += dag.bandwidth();
            for node in dag.nodes() {
                match nts.iter_mut().find(|(nt, _)| **nt == node.nt) {
                    Some((_, sum)) => *sum += dag.bandwidth(),
                    None => nts.push((&node.nt, dag.bandwidth())),
                }
            }
        }
        let models = &constraints.models;
        let fit = |profile: &CardProfile| ProfileFit {
            takes_model: models.is_empty() || models.contains(&profile.model),
            kinds: nts.iter().map(|(nt, _)| inventory.kinds(&profile.model, nt)).collect(),
        };
        let profiles = inventory.profiles().iter().map(fit).collect();
        Self { inventory, constraints, policy, tenant, user, bandwidth, nts, profiles }
    }

    /// Constraint that a host fails, whatever its cards are.
    pub fn host_fails(&self, id: &HostId, host: &HostEntry) -> Option<Constraint> {
        let of = self.constraints;
        let lacks_label = || of.labels.iter().any(|(k, v)| host.spec.labels.get(k) != Some(v));
        let is_in_rack = || {
            let spec = &host.spec;
            of.of_dags.racks.iter().any(|(zone, rack)| (zone, rack) == (&spec.zone, &spec.rack))
        };
        let fails = [
            (Constraint::Unreachable, !host.is_reachable),
            (Constraint::Cordoned, host.spec.is_cordoned),
            (Constraint::Zone, !of.zones.is_empty() && !of.zones.contains(&host.spec.zone)),
            (Constraint::Rack, !of.racks.is_empty() && !of.racks.contains(&host.spec.rack)),
            (Constraint::Labels, lacks_label()),
            (Constraint::HostAffinity, !of.hosts.is_empty() && !of.hosts.contains(id)),
            (Constraint::HostAntiAffinity, of.apart_from_hosts.contains(id)),
            (Constraint::HostOfDag, of.of_dags.hosts.contains(id)),
            (Constraint::RackOfDag, is_in_rack()),
            (Constraint::NoCard, host.slots.is_empty()),
        ];
        fails.into_iter().find(|(_, fails)| *fails).map(|(constraint, _)| constraint)
    }

    /// Constraint that a card fails, its host aside.
    pub fn card_fails(&self, card: &CardEntry) -> Option<Constraint> {
        let (of, summary) = (self.constraints, &card.summary);
        let profile = &self.profiles[card.profile];
        let is_short = |((nt, needed), kinds): (&(&NtTypeId, Bandwidth), &Kinds)| {
            kinds & summary.loadable == 0 && summary.left(nt) < *needed
        };
        let lines = summary.ingress_left.min(summary.egress_left);
        let kept = card.functions.bandwidth_of_others(self.user.tenant);
        let is_for_machine = of.functions > 0;
        let fails = [
            (Constraint::CardModel, !profile.takes_model),
            (Constraint::CardCordoned, card.is_cordoned),
            (Constraint::CardOverbooked, !card.beyond.is_empty()),
            (Constraint::CardAffinity, !of.cards.is_empty() && !of.cards.contains(&card.name)),
            (Constraint::CardAntiAffinity, of.apart_from_cards.contains(&card.name)),
            (Constraint::Functions, card.functions.unbound() < of.functions),
            (
                Constraint::FunctionsReserved,
                is_for_machine && card.functions.left(self.user) < of.functions,
            ),
            (Constraint::Bandwidth, lines < self.bandwidth),
            (
                Constraint::BandwidthReserved,
                kept > Bandwidth::ZERO
                    && self.bandwidth > Bandwidth::ZERO
                    && lines < self.bandwidth + kept,
            ),
        ];
        let first = fails.into_iter().find(|(_, fails)| *fails).map(|(constraint, _)| constraint);
        let mut needs = self.nts.iter().zip(&profile.kinds);
        first.or_else(|| needs.any(is_short).then_some(Constraint::Nts))
    }

    fn passes(&self, card: &CardEntry) -> bool {
        let host = self.inventory.host_entry(&card.name.host);
        host.is_some_and(|host| self.host_fails(&card.name.host, host).is_none())
            && self.card_fails(card).is_none()
    }

    /// Whether the policy takes a card before all that it does not prefer.
    pub fn prefers(&self, card: &CardEntry) -> bool {
        match self.policy {
            CardPolicy::Pack | CardPolicy::Headroom => true,
            CardPolicy::Spread => {
                let host = self.inventory.host_entry(&card.name.host);
                let has = |tenant| host.is_some_and(|host| host.tenants.contains_key(tenant));
                !self.tenant.is_some_and(has)
            }
            CardPolicy::Loaded => {
                self.nts.iter().all(|(nt, needed)| card.summary.left(nt) >= *needed)
            }
        }
    }

    /// Smaller is earlier.
    fn rank(&self, card: &CardEntry) -> u64 {
        let part = || card.summary.left_ppb(self.inventory.profile(card.profile));
        match self.policy {
            CardPolicy::Pack | CardPolicy::Loaded => part(),
            CardPolicy::Spread => u64::MAX - part(),
            CardPolicy::Headroom => u64::MAX - card.summary.ingress_left.get(),
        }
    }

    /// Goes through the cards that pass all constraints, in the order of the policy.
    pub fn walk(&self, mut visit: impl FnMut(CardSlot, &CardEntry) -> Step) {
        let is_two_step = matches!(self.policy, CardPolicy::Spread | CardPolicy::Loaded);
        let mut steps = [true, false].into_iter().take(if is_two_step { 2 } else { 1 });
        let is_few = !self.constraints.cards.is_empty() || !self.constraints.hosts.is_empty();
        let mut was_cut_short = false;
        let _ = steps.try_for_each(|preferred| {
            let (mut others, mut is_enough) = (0, false);
            let takes_any = was_cut_short;
            let mut visit = |slot: CardSlot| {
                let card = self.inventory.entry(slot);
                if !self.passes(card) {
                    return ControlFlow::Continue(WalkDecision::On);
                }
                if takes_any || self.prefers(card) == preferred {
                    return visit(slot, card);
                }
                others += usize::from(preferred);
                is_enough = others >= OTHERS_MAX;
                if is_enough {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(WalkDecision::On)
                }
            };
            let walked = if is_few {
                self.few().into_iter().try_for_each(|slot| visit(slot).map_continue(|_| ()))
            } else {
                self.merged(preferred, &mut visit)
            };
            was_cut_short = is_enough;
            if is_enough { ControlFlow::Continue(()) } else { walked }
        });
    }

    /// The cards that the request names, by card or by host.
    fn few(&self) -> Vec<CardSlot> {
        let named = self.constraints.cards.iter().filter_map(|card| self.inventory.slot_of(card));
        let mut slots: Vec<CardSlot> = named.collect();
        if self.constraints.cards.is_empty() {
            let hosts = self.constraints.hosts.iter();
            let hosts = hosts.filter_map(|host| self.inventory.host_entry(host));
            slots = hosts.flat_map(|host| host.slots.iter().copied()).collect();
        }
        slots.sort_by_key(|slot| (self.rank(self.inventory.entry(*slot)), *slot));
        slots
    }

    /// The cards of a group that can be meant; `None`: none of them.
    fn source<'g>(
        &self,
        key: &GroupKey,
        group: &'g Group,
        loaded_only: bool,
    ) -> Option<&'g CardsByBandwidth> {
        let profile = &self.profiles[key.profile];
        let zones = &self.constraints.zones;
        if !profile.takes_model || !zones.is_empty() && !zones.contains(&key.zone) {
            return None;
        }
        let mut source = &group.cards;
        for ((nt, _), kinds) in self.nts.iter().zip(&profile.kinds) {
            if loaded_only || kinds & key.loadable == 0 {
                let having = group.by_nt.get(*nt)?;
                source = if having.len() < source.len() { having } else { source };
            }
        }
        Some(source)
    }

    /// Merges the groups: each is in the policy's order already, for its cards have one profile.
    fn merged(&self, preferred: bool, visit: &mut impl FnMut(CardSlot) -> Step) -> ControlFlow<()> {
        let loaded_only = self.policy == CardPolicy::Loaded && preferred;
        let is_rising = matches!(self.policy, CardPolicy::Pack | CardPolicy::Loaded);
        let from = (self.bandwidth, 0);
        let mut heads = BinaryHeap::new();
        let mut rest = BTreeMap::new();
        for (number, (key, group)) in self.inventory.index().groups().enumerate() {
            let Some(source) = self.source(key, group, loaded_only) else { continue };
            let mut cards: Box<dyn Iterator<Item = &(Bandwidth, CardSlot)>> = if is_rising {
                Box::new(source.range(from..))
            } else {
                Box::new(source.range(from..).rev())
            };
            if let Some((_, slot)) = cards.next() {
                heads.push(Reverse((self.rank(self.inventory.entry(*slot)), number, *slot)));
                rest.insert(number, cards);
            }
        }
        while let Some(Reverse((_, number, slot))) = heads.pop() {
            if visit(slot)? == WalkDecision::SkipAlike {
                continue;
            }
            if let Some((_, next)) = rest.get_mut(&number).and_then(Iterator::next) {
                heads.push(Reverse((self.rank(self.inventory.entry(*next)), number, *next)));
            }
        }
        ControlFlow::Continue(())
    }
}
