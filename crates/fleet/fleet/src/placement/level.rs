//! Loads of cards, and the card to which a DAG may move so that they become more alike.
//!
//! A card's load is the larger of two parts: of its ingress, that is promised; and of its area, that its DAGs need as if each
//! were alone in its regions. Virtual functions do not count: a move of a DAG frees none.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use snic_domain::{Bandwidth, CardProfile, DagName};
use snic_planner::Ledger;

use super::constraints::{CardPolicy, Constraint};
use super::index::CardSlot;
use super::inventory::{CardEntry, Inventory};
use super::place::{DagChoice, PlaceDag, TrialFindings};
use super::walk::{Query, WalkDecision};
use crate::{FleetCard, ZoneId};

/// Most cards that are looked at for one DAG.
const LOOKS_MAX: usize = 1_000;
/// All of a card.
const WHOLE: u64 = 1_000_000_000;

/// Resources that a DAG takes of its card, or all DAGs of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ResourceUse {
    pub ingress: Bandwidth,
    pub milli_luts: u64,
}

/// Load of a card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CardLoad {
    taken: ResourceUse,
    all: ResourceUse,
}

impl CardLoad {
    fn of(card: &CardEntry, profile: &CardProfile) -> Self {
        let taken =
            ResourceUse { ingress: card.ledger.ingress_reserved(), milli_luts: card.milli_luts };
        let milli_luts = profile.luts().saturating_mul(1_000);
        Self { taken, all: ResourceUse { ingress: profile.ingress, milli_luts } }
    }

    /// The larger part, in thousand-millionths.
    pub fn ppb(&self) -> u64 {
        let part =
            |taken: u64, all: u64| u128::from(taken) * u128::from(WHOLE) / u128::from(all.max(1));
        let ingress = part(self.taken.ingress.get(), self.all.ingress.get());
        let area = part(self.taken.milli_luts, self.all.milli_luts);
        u64::try_from(ingress.max(area)).unwrap_or(u64::MAX)
    }

    fn with(mut self, of: ResourceUse) -> Self {
        self.taken.ingress += of.ingress;
        self.taken.milli_luts += of.milli_luts;
        self
    }

    fn without(mut self, of: ResourceUse) -> Self {
        self.taken.ingress = self.taken.ingress - of.ingress;
        self.taken.milli_luts = self.taken.milli_luts.saturating_sub(of.milli_luts);
        self
    }
}

/// Rule for moves that are worth it.
///
/// With `L` the load of a card, `t` the tolerance, and a prime for after the move, a DAG moves from card `a` to card `b` where
///
/// 1. `L(a) > mean + t` or `L(b) < mean - t`: what is within the tolerance of the mean stays as it is;
/// 2. `L'(b) + t/2 <= L(a)`: no card becomes as full as the one that is relieved was, so the largest load never rises;
/// 3. `L'(a)² + L'(b)² < L(a)² + L(b)²`: the sum of the squares of all loads falls with each move.
///
/// Rule 3 makes moves end: a state never comes back, and there are finitely many. Where cards are alike and one resource is the
/// larger part, a DAG with load `d` lowers that sum by `2·d·(L(a) - L'(b)) >= d·t`, so `n` cards lead to at most `n / (d·t)`
/// moves of DAGs with at least the load `d`. A rebalance has a closer bound: it moves no DAG twice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LevelRule {
    tolerance: u64,
}

impl LevelRule {
    pub fn new(percent: u32) -> Self {
        Self { tolerance: u64::from(percent) * (WHOLE / 100) }
    }

    /// 2 and 3.
    fn levels(self, (a, a_after): (u64, u64), (b, b_after): (u64, u64)) -> bool {
        let square = |load: u64| u128::from(load) * u128::from(load);
        b_after.saturating_add(self.tolerance / 2) <= a
            && square(a_after) + square(b_after) < square(a) + square(b)
    }
}

/// Why a DAG stays where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StayCause {
    /// Any other card would become about as full as its own is.
    NoEmptier,
    /// No emptier card has what it needs.
    NoRoom,
    /// Emptier cards are not what its policy prefers.
    Policy,
    /// The host of an emptier card lacks an image so far.
    Image,
}

/// The cards of a zone or of the fleet that take new DAGs, by load. A host that is away, cordoned or drained has none.
#[derive(Debug)]
pub(crate) struct Levels {
    loads: BTreeMap<CardSlot, CardLoad>,
    by_load: BTreeSet<(u64, CardSlot)>,
    mean: u64,
}

impl Levels {
    /// Time O(cards × log cards).
    pub fn of(inventory: &Inventory, zone: Option<&ZoneId>) -> Self {
        let is_in = |card: &CardEntry| {
            let host = inventory.host_entry(&card.name.host);
            zone.is_none_or(|zone| host.is_some_and(|host| host.spec.zone == *zone))
        };
        let open = inventory.open_cards().filter(|(_, card)| is_in(card));
        let load = |card: &CardEntry| CardLoad::of(card, inventory.profile(card.profile));
        let loads: BTreeMap<CardSlot, CardLoad> =
            open.map(|(slot, card)| (slot, load(card))).collect();
        // Of all cards together, so that no move changes it.
        let mut all = CardLoad::default();
        for of in loads.values() {
            all = all.with(of.taken);
            all.all.ingress += of.all.ingress;
            all.all.milli_luts += of.all.milli_luts;
        }
        let by_load = loads.iter().map(|(slot, of)| (of.ppb(), *slot)).collect();
        Self { loads, by_load, mean: all.ppb() }
    }

    /// Cards by load, the emptiest first.
    pub const fn by_load(&self) -> &BTreeSet<(u64, CardSlot)> {
        &self.by_load
    }

    pub const fn mean(&self) -> u64 {
        self.mean
    }

    /// A card has changed. Returns its load before and now.
    pub fn update(&mut self, inventory: &Inventory, slot: CardSlot) -> (u64, u64) {
        let card = inventory.entry(slot);
        let now = CardLoad::of(card, inventory.profile(card.profile));
        let before = self.loads.insert(slot, now).unwrap_or_default().ppb();
        self.by_load.remove(&(before, slot));
        self.by_load.insert((now.ppb(), slot));
        (before, now.ppb())
    }

    const fn is_high(&self, rule: LevelRule, load: u64) -> bool {
        load > self.mean.saturating_add(rule.tolerance)
    }

    const fn is_low(&self, rule: LevelRule, load: u64) -> bool {
        load < self.mean.saturating_sub(rule.tolerance)
    }

    /// Whether DAGs of a card with this load are to move: it is too full, or another one is too empty.
    pub fn is_source(&self, rule: LevelRule, load: u64) -> bool {
        let emptiest = self.by_load.first().map_or(self.mean, |(load, _)| *load);
        self.is_high(rule, load) || self.is_low(rule, emptiest)
    }

    /// Whether all cards are within the tolerance of the mean.
    pub fn is_level(&self, rule: LevelRule) -> bool {
        let fullest = self.by_load.last().map_or(self.mean, |(load, _)| *load);
        !self.is_source(rule, fullest)
    }

    /// Cards that a DAG may move to as far as loads go, the emptiest first; of the thousand emptiest.
    fn targets(
        &self,
        rule: LevelRule,
        from: CardSlot,
        taken: ResourceUse,
        mut look: impl FnMut(CardSlot),
    ) -> impl Iterator<Item = CardSlot> {
        let source = self.loads.get(&from).copied().unwrap_or_default();
        let (load, after) = (source.ppb(), source.without(taken).ppb());
        let is_high = self.is_high(rule, load);
        let may_be =
            move |of: &&(u64, CardSlot)| of.0 < load && (is_high || self.is_low(rule, of.0));
        let levels = move |slot: &CardSlot| {
            let target = self.loads[slot];
            rule.levels((load, after), (target.ppb(), target.with(taken).ppb()))
        };
        let emptier = self.by_load.iter().take_while(may_be).take(LOOKS_MAX);
        emptier.map(|(_, slot)| *slot).inspect(move |slot| look(*slot)).filter(levels)
    }

    /// Whether there is such a card, and how many were looked at for that.
    pub fn has_target(&self, rule: LevelRule, from: CardSlot, taken: ResourceUse) -> (bool, usize) {
        let mut looks = 0;
        let mut targets = self.targets(rule, from, taken, |_| looks += 1);
        let found = targets.next().is_some();
        drop(targets);
        (found, looks)
    }
}

impl Inventory {
    /// Load of a card.
    pub fn load(&self, card: &FleetCard) -> Option<CardLoad> {
        let card = self.entry(self.slot_of(card)?);
        Some(CardLoad::of(card, self.profile(card.profile)))
    }

    /// Takes back that DAGs were moved from these cards; `before` has the ledgers of all cards that this changed. Areas
    /// must be said again.
    pub(crate) fn take_back_moves<'a>(
        &mut self,
        moved: impl Iterator<Item = (&'a DagName, &'a FleetCard)> + Clone,
        before: BTreeMap<FleetCard, Ledger>,
    ) {
        moved.clone().for_each(|(dag, _)| drop(self.release(dag)));
        before.into_iter().for_each(|(card, ledger)| self.restore_ledger(&card, ledger));
        for (dag, card) in moved {
            if let Some(slot) = self.slot_of(card) {
                self.note(slot, dag);
            }
        }
    }

    /// The area that DAGs take of a card, in thousandths of a LUT.
    pub(crate) fn milli_luts(&self, card: &FleetCard) -> Option<u64> {
        self.slot_of(card).map(|slot| self.entry(slot).milli_luts)
    }

    pub(crate) fn name_of(&self, slot: CardSlot) -> &FleetCard {
        &self.entry(slot).name
    }

    /// The emptiest card to which a DAG may move, with the plan there; changes nothing. Up to 1,000 cards are looked at, and
    /// sixteen planned on.
    ///
    /// Under [`CardPolicy::Spread`] a DAG does not go to a host where its tenant has others, unless its own is one; under
    /// [`CardPolicy::Loaded`] it goes only where its chains are loaded. The other policies say in which order cards are
    /// filled, not what a DAG needs, and keep it nowhere.
    pub(crate) fn level(
        &self,
        request: &PlaceDag<'_>,
        (levels, rule): (&Levels, LevelRule),
        (from, taken): (CardSlot, ResourceUse),
    ) -> Result<(CardSlot, DagChoice), StayCause> {
        let source = self.entry(from);
        let dag = (&request.name.tenant, request.dag);
        let query = Query::new(self, request.constraints, request.policy, dag);
        let (mut tried, mut stays) = (TrialFindings::default(), StayCause::NoEmptier);
        for slot in levels.targets(rule, from, taken, |_| {}) {
            let card = self.entry(slot);
            let Some(host) = self.host_entry(&card.name.host) else { continue };
            let fails = query.host_fails(&card.name.host, host).or_else(|| query.card_fails(card));
            if fails.is_some() {
                stays = stays.or(StayCause::NoRoom);
                continue;
            }
            if !query.keeps_policy(source, card) {
                stays = stays.or(StayCause::Policy);
                continue;
            }
            match tried.plan(&query, (slot, card), (request.name, request.dag)) {
                Ok(plan) => {
                    // On another card its packets may waste another part of a beat.
                    let there = ResourceUse { ingress: plan.reservation.ingress(), ..taken };
                    let (a, b) = (levels.loads[&from], levels.loads[&slot]);
                    let (a, b) =
                        ((a.ppb(), a.without(taken).ppb()), (b.ppb(), b.with(there).ppb()));
                    if rule.levels(a, b) {
                        return Ok((slot, DagChoice { card: card.name.clone(), plan }));
                    }
                }
                Err(on) => {
                    let lacks = tried.constraint(&query, slot, card) == Constraint::Image;
                    stays = stays.or(if lacks { StayCause::Image } else { StayCause::NoRoom });
                    if on == ControlFlow::<(), WalkDecision>::Break(()) {
                        break;
                    }
                }
            }
        }
        Err(stays)
    }
}

impl StayCause {
    /// The reason that counts more: one that an operator may do something about.
    fn or(self, other: Self) -> Self {
        let weight = |of: Self| match of {
            Self::NoEmptier => 0,
            Self::NoRoom => 1,
            Self::Policy => 2,
            Self::Image => 3,
        };
        if weight(other) > weight(self) { other } else { self }
    }
}

impl Query<'_> {
    /// Whether a DAG that moves between these cards has what its policy prefers as much as before.
    fn keeps_policy(&self, from: &CardEntry, to: &CardEntry) -> bool {
        match self.policy {
            CardPolicy::Pack | CardPolicy::Headroom => true,
            CardPolicy::Loaded => self.prefers(to),
            CardPolicy::Spread => {
                let is_alone = || {
                    let host = self.inventory.host_entry(&from.name.host);
                    let count = |tenant| host.and_then(|host| host.tenants.get(tenant)).copied();
                    self.tenant.is_some_and(|tenant| count(tenant) == Some(1))
                };
                from.name.host == to.name.host || self.prefers(to) || !is_alone()
            }
        }
    }
}
