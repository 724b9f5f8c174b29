//! The moves of a rebalance: a few with each tick, from the fullest card to the emptiest that a DAG may go to.
//!
//! A *pass* looks at the DAGs of each card that is to give some away, each DAG once. After a pass with moves there is another
//! one, for what did not help before may do so now; one without moves is the last.
//!
//! It always ends. No DAG is moved twice by one rebalance (a place that was made since it began stays), so that it makes at
//! most as many moves as there were DAGs when it began, whatever tenants do meanwhile; and each pass but the last makes one.
//!
//! A tick of a rebalance takes O(cards × log cards) where it may move something. It ends after about 2,000 looks at a DAG or
//! at the load of a card that one might go to, and searches a card for at most eight DAGs: each among the thousand emptiest
//! cards, with sixteen plans, and a look at the affinities of its tenant's DAGs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use snic_domain::{DagName, Timestamp};
use snic_planner::{Ledger, Reservation};

use super::dags::PreviousServer;
use super::reads::BOUND_NAMES_MAX;
use super::{DagEntry, Fleet, FleetSettings};
use crate::FleetCard;
use crate::hosts::HostState;
use crate::journal::FleetStep;
use crate::placement::{CardSlot, DagChoice, LevelRule, Levels, PlaceDag, ResourceUse, StayCause};
use crate::protocol::{
    FleetEffect, FleetNotice, LoadRange, PlannedMove, RebalanceOutcome, StayReason,
};
use crate::records::RebalanceRecord;

/// About how many DAGs, and loads of cards for them, one tick looks at.
const LOOKS_MAX: usize = 2_000;
/// Most DAGs for which one tick searches a card: planning takes time that others wait for.
const TRIES_MAX: usize = 8;
/// The same of a request that only asks what would move, and most moves that it names.
const PREVIEW_LOOKS_MAX: usize = 10_000;
const PREVIEW_TRIES_MAX: usize = 64;
const PREVIEW_MOVES_MAX: usize = 32;
/// So long without a move, images that are on their way and hosts that are about to be heard are waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Cards looked at since the last move that may have changed what helps.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// The last DAG of each card that was looked at; `None`: all were.
    looked: BTreeMap<CardSlot, Option<DagName>>,
    /// It has moved something.
    has_moved: bool,
    /// DAGs that a preview has moved.
    previewed: BTreeSet<DagName>,
    pub stays: BTreeMap<StayReason, u64>,
    /// The first hundred that are bound.
    pub bound: Vec<DagName>,
}

impl Pass {
    fn stays(&mut self, name: &DagName, why: StayReason) {
        *self.stays.entry(why).or_default() += 1;
        if why == StayReason::Bound && self.bound.len() < BOUND_NAMES_MAX {
            self.bound.push(name.clone());
        }
    }
}

/// Bound on the work of a tick.
#[derive(Debug)]
struct Effort {
    looks: usize,
    tries: usize,
}

/// A DAG that is to move.
#[derive(Debug)]
struct NextMove {
    name: DagName,
    from: CardSlot,
    to: CardSlot,
    choice: DagChoice,
}

enum Next {
    Move(Box<NextMove>),
    /// All that may be looked at now was looked at.
    Later,
    /// All was looked at.
    Over,
}

impl Fleet {
    /// Moves some DAGs of a rebalance, and ends it where nothing is left to do. While so much is away that nothing is
    /// evacuated, it waits.
    pub(super) fn rebalance_some(&mut self, now: Timestamp, step: &mut FleetStep) {
        let Some(record) = self.rebalancing.current().cloned() else { return };
        if !self.held.at.is_empty() {
            return;
        }
        let moving = self.moving(record.zone.as_ref());
        let mut room = (record.moves_max as usize).saturating_sub(moving);
        if room == 0 || !self.moves.has_one() || self.waits_for_hosts(now, &record) {
            return;
        }
        // A step for each move: one transaction may not have room for all.
        self.journal.submit(std::mem::take(step));
        let mut levels = Levels::of(&self.inventory, record.zone.as_ref());
        let mut pass = std::mem::take(&mut self.rebalancing.pass);
        let mut effort = Effort { looks: LOOKS_MAX, tries: TRIES_MAX };
        let mut sources = sources(&levels, &pass);
        let next = loop {
            if room == 0 || !self.moves.has_one() {
                break Next::Later;
            }
            match self.next_move(&record, &mut pass, (&levels, &mut sources), &mut effort) {
                Next::Move(next) => {
                    self.moves.take();
                    room -= 1;
                    pass.has_moved = true;
                    let (from, to) = (next.from, next.to);
                    let mut own = FleetStep::default();
                    self.move_to_level(now, *next, &mut own);
                    self.journal.submit(own);
                    self.levels_changed((&mut levels, &mut sources), [from, to]);
                }
                other => break other,
            }
        };
        self.rebalancing.pass = pass;
        if matches!(next, Next::Over) && self.moving(record.zone.as_ref()) == 0 {
            self.pass_is_over(now, &record, &levels, step);
        }
    }

    /// After an election, hosts have not been heard yet: what is known of them is no reason to move anything.
    fn waits_for_hosts(&self, now: Timestamp, record: &RebalanceRecord) -> bool {
        let FleetSettings { lease, confirm, .. } = self.settings;
        let mut hosts = self.hosts_of_zone(record.zone.as_ref());
        now.since(self.began) < lease + confirm && hosts.any(HostState::is_expected)
    }

    /// Another pass, or the end.
    fn pass_is_over(
        &mut self,
        now: Timestamp,
        record: &RebalanceRecord,
        levels: &Levels,
        step: &mut FleetStep,
    ) {
        let pass = &self.rebalancing.pass;
        let is_level = levels.is_level(Self::rule_of(record));
        let expects = self.hosts_of_zone(record.zone.as_ref()).any(HostState::is_expected);
        let may_pass = expects || !is_level && pass.stays.contains_key(&StayReason::Image);
        let waits = may_pass && now.since(self.rebalancing.progress) < PATIENCE;
        if waits || pass.has_moved && !is_level {
            self.rebalancing.pass = Pass::default();
        } else if is_level {
            self.rebalance_ends(now, RebalanceOutcome::Level, step);
        } else {
            self.rebalance_ends(now, RebalanceOutcome::NothingHelps, step);
        }
    }

    /// The next DAG that is to move, from the fullest card on.
    fn next_move(
        &self,
        record: &RebalanceRecord,
        pass: &mut Pass,
        (levels, sources): (&Levels, &mut BTreeSet<(u64, CardSlot)>),
        effort: &mut Effort,
    ) -> Next {
        let rule = Self::rule_of(record);
        while let Some(&(load, from)) = sources.last() {
            if !levels.is_source(rule, load) {
                break;
            }
            let card = self.inventory.name_of(from);
            let Some(ledger) = self.inventory.ledger(card) else { break };
            let last = pass.looked.get(&from).cloned().flatten();
            let all = ledger.reservations();
            let rest = all.skip_while(|(name, _)| last.as_ref().is_some_and(|last| *name <= last));
            for (name, reservation) in rest {
                if effort.looks == 0 || effort.tries == 0 {
                    return Next::Later;
                }
                effort.looks -= 1;
                pass.looked.insert(from, Some(name.clone()));
                let at = (from, name, reservation);
                let found = self
                    .check_free(record, pass, name)
                    .and_then(|entry| self.find_card(entry, (levels, rule), at, effort));
                match found {
                    Ok((to, choice)) => {
                        let name = name.clone();
                        return Next::Move(Box::new(NextMove { name, from, to, choice }));
                    }
                    Err(why) => pass.stays(name, why),
                }
            }
            pass.looked.insert(from, None);
            sources.pop_last();
        }
        Next::Over
    }

    /// A DAG that may move at all.
    fn check_free(
        &self,
        record: &RebalanceRecord,
        pass: &Pass,
        name: &DagName,
    ) -> Result<&DagEntry, StayReason> {
        let entry = self.dags.get(name).ok_or(StayReason::NotServed)?;
        let of = entry.of();
        let is_recent = of.place.as_ref().is_some_and(|place| place.serial > record.serial);
        if self.is_bound(name) {
            Err(StayReason::Bound)
        } else if is_recent || pass.previewed.contains(name) {
            Err(StayReason::Recent)
        } else if !of.is_ready || of.leaving.is_some() {
            Err(StayReason::NotServed)
        } else {
            Ok(entry)
        }
    }

    /// Where a DAG is to move, or why it stays.
    fn find_card(
        &self,
        entry: &DagEntry,
        (levels, rule): (&Levels, LevelRule),
        (from, name, reservation): (CardSlot, &DagName, &Reservation),
        effort: &mut Effort,
    ) -> Result<(CardSlot, DagChoice), StayReason> {
        let of = entry.of();
        let taken =
            ResourceUse { ingress: reservation.ingress(), milli_luts: entry.usage.milli_luts };
        let (has_target, looks) = levels.has_target(rule, from, taken);
        effort.looks = effort.looks.saturating_sub(looks);
        if !has_target {
            return Err(StayReason::NoEmptier);
        }
        effort.tries = effort.tries.saturating_sub(1);
        if self.has_company(name) {
            return Err(StayReason::NoRoom);
        }
        let mut constraints = of.constraints_now();
        self.add_affinities(name, &of.spec, &mut constraints);
        let (dag, policy) = (&entry.dag, of.policy);
        let request = PlaceDag { name, dag, constraints: &constraints, policy };
        Ok(self.inventory.level(&request, (levels, rule), (from, taken))?)
    }

    /// Gives a DAG its new place; the old one serves it until that does.
    fn move_to_level(&mut self, now: Timestamp, next: NextMove, step: &mut FleetStep) {
        let NextMove { name, choice, .. } = next;
        let Some(old) = self.dags.get(&name).and_then(|entry| entry.of().place.as_ref()) else {
            return;
        };
        let (from, to) = (old.card.clone(), choice.card.clone());
        let leaving = Some((from.clone(), old.serial));
        self.commit_place(&name, choice, PreviousServer { leaving, changes: None }, step);
        self.count_move(now, step);
        step.then(FleetEffect::Tell(FleetNotice::DagMoved { name, from, to }));
    }

    /// These cards have other loads now.
    fn levels_changed(
        &self,
        (levels, sources): (&mut Levels, &mut BTreeSet<(u64, CardSlot)>),
        cards: [CardSlot; 2],
    ) {
        for card in cards {
            let (before, now) = levels.update(&self.inventory, card);
            if sources.remove(&(before, card)) {
                sources.insert((now, card));
            }
        }
    }

    /// The first moves, and the loads after them. Each DAG is moved in the books and back again.
    pub(super) fn preview(
        &mut self,
        record: &RebalanceRecord,
        mut levels: Levels,
    ) -> (LoadRange, Pass, Vec<PlannedMove>) {
        let (mut pass, mut planned) = (Pass::default(), Vec::new());
        let mut effort = Effort { looks: PREVIEW_LOOKS_MAX, tries: PREVIEW_TRIES_MAX };
        let mut before: BTreeMap<FleetCard, Ledger> = BTreeMap::new();
        let mut sources = sources(&levels, &pass);
        while planned.len() < PREVIEW_MOVES_MAX {
            let levels_now = (&levels, &mut sources);
            let Next::Move(next) = self.next_move(record, &mut pass, levels_now, &mut effort)
            else {
                break;
            };
            let NextMove { name, from, to, choice } = *next;
            let cards = [from, to].map(|slot| self.inventory.name_of(slot).clone());
            for card in &cards {
                if !before.contains_key(card)
                    && let Some(ledger) = self.inventory.ledger(card)
                {
                    before.insert(card.clone(), ledger.clone());
                }
            }
            self.inventory.release(&name);
            self.inventory
                .hold(&choice.card, &name, &choice.plan.loads, choice.plan.reservation)
                .expect("the plan was made on this ledger");
            self.weigh(&name);
            self.levels_changed((&mut levels, &mut sources), [from, to]);
            pass.previewed.insert(name.clone());
            let [from, to] = cards;
            planned.push(PlannedMove { name, from, to });
        }
        self.inventory.take_back_moves(planned.iter().map(|of| (&of.name, &of.from)), before);
        planned.iter().for_each(|of| self.weigh(&of.name));
        (LoadRange::of(&levels), pass, planned)
    }

    fn weigh(&mut self, name: &DagName) {
        if let Some(entry) = self.dags.get(name) {
            self.inventory.weigh(name, entry.usage.milli_luts);
        }
    }
}

/// Cards of which not all DAGs were looked at.
fn sources(levels: &Levels, pass: &Pass) -> BTreeSet<(u64, CardSlot)> {
    let is_left = |(_, slot): &&(u64, CardSlot)| pass.looked.get(slot).is_none_or(Option::is_some);
    levels.by_load().iter().filter(is_left).copied().collect()
}

impl From<StayCause> for StayReason {
    fn from(why: StayCause) -> Self {
        match why {
            StayCause::NoEmptier => Self::NoEmptier,
            StayCause::NoRoom => Self::NoRoom,
            StayCause::Policy => Self::Policy,
            StayCause::Image => Self::Image,
        }
    }
}
