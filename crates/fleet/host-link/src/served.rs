//! DAGs that their cards have, looked at again and again: a place may be lost, or change, long after it was applied.
//!
//! Nothing here remembers what the leader was told of a loss: a DAG that is lost is forgotten, the digest of its card
//! differs from then on, and the leader asks. What has changed on its card is told once, and once more with each link.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use snic_controller::{AssignedCard, AssignedDag, AssignmentProgress};
use snic_domain::{CardId, DagName};
use snic_fleet::protocol::{CardFaults, HostChoice};
use tokio::time::Instant;

use crate::places::{choice_of, reason_of};

/// Interval between looks at cards and served DAGs.
pub(crate) const LOOK_SERVED_INTERVAL: Duration = Duration::from_millis(500);
/// DAGs that are looked at together: a read on the controller's thread has a bound.
const LOOKED_AT_MAX: usize = 128;
/// Looks in a row that find a DAG without a place before it is lost: the controller may be finding another one.
const FAILED_LOOKS_MAX: u32 = 2;
/// Time without an answer after which the DAGs of a card are lost: it may be reset, or its driver started again.
const CARD_SILENCE_MAX: Duration = Duration::from_secs(10);

/// A DAG that its card has.
#[derive(Debug)]
pub(crate) struct DagOnCard {
    to: AssignedCard,
    /// Placement as the leader knows it: ordered, or reported.
    known: Option<HostChoice>,
    /// It was told, and the report may be lost.
    is_told: bool,
    failed: u32,
}

impl DagOnCard {
    /// A DAG of which `now` is told.
    pub fn new(to: AssignedCard, ordered: Option<HostChoice>, now: Option<HostChoice>) -> Self {
        let is_told = now.is_some() && now != ordered;
        Self { to, known: now.or(ordered), is_told, failed: 0 }
    }
}

/// News of a DAG for the fleet.
#[derive(Debug, PartialEq)]
pub(crate) enum DagNews {
    /// It is elsewhere on its card.
    Rearranged(AssignedCard, Box<HostChoice>),
    /// It has no place any more, for this reason.
    Lost(AssignedCard, String),
}

/// All DAGs that cards have.
#[derive(Debug)]
pub(crate) struct ServedDags {
    dags: BTreeMap<DagName, DagOnCard>,
    /// The last one that was looked at.
    looked_at: Option<DagName>,
    faults: Option<BTreeMap<CardId, CardFaults>>,
    /// Cards that do not answer, and since when.
    gone: BTreeMap<CardId, Instant>,
}

impl ServedDags {
    /// State of DAGs that were applied before the link began: nobody knows what the leader was told.
    pub fn new(served: Vec<(DagName, AssignedCard)>) -> Self {
        let dags = served.into_iter().map(|(name, to)| (name, DagOnCard::new(to, None, None)));
        Self { dags: dags.collect(), looked_at: None, faults: None, gone: BTreeMap::new() }
    }

    /// Its card has it.
    pub fn begin(&mut self, name: &DagName, served: DagOnCard) {
        self.dags.insert(name.clone(), served);
    }

    /// It is changed, or to be served elsewhere.
    pub fn forget(&mut self, name: &DagName) {
        self.dags.remove(name);
    }

    /// It is to be served on this card no more.
    pub fn forget_on(&mut self, name: &DagName, card: &CardId) {
        if self.dags.get(name).is_some_and(|of| of.to.card == *card) {
            self.dags.remove(name);
        }
    }

    /// The link has begun or ended. What was told over another one may not have arrived.
    pub fn link_changed(&mut self, is_open: bool) {
        for of in self.dags.values_mut().filter(|of| is_open && of.is_told) {
            of.known = None;
        }
    }

    /// Takes the faults of the cards. Returns whether they are news.
    pub fn cards_are(&mut self, faults: &BTreeMap<CardId, CardFaults>) -> bool {
        let gone: BTreeSet<&CardId> =
            faults.iter().filter(|(_, of)| of.is_gone).map(|(card, _)| card).collect();
        self.gone.retain(|card, _| gone.contains(card));
        for card in gone {
            self.gone.entry(card.clone()).or_insert_with(Instant::now);
        }
        let is_news = self.faults.as_ref() != Some(faults);
        self.faults = Some(faults.clone());
        is_news
    }

    /// Those that are looked at next: behind the last one, or from the first.
    pub fn next_names(&mut self) -> Vec<DagName> {
        let last = self.looked_at.take();
        let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.dags.range((from, Bound::Unbounded)).map(|(name, _)| name);
        let names: Vec<DagName> = behind.take(LOOKED_AT_MAX).cloned().collect();
        self.looked_at = names.last().filter(|_| names.len() == LOOKED_AT_MAX).cloned();
        names
    }

    /// Takes the state of one of them. One that is lost is forgotten.
    pub fn found(&mut self, name: &DagName, found: Option<AssignedDag>) -> Option<DagNews> {
        let served = self.dags.get_mut(name)?;
        let to = served.to.clone();
        let Some(found) = found else {
            self.dags.remove(name);
            return Some(DagNews::Lost(to, "it was removed on the host".to_owned()));
        };
        if found.to != to {
            // It was assigned anew, which is followed separately.
            self.dags.remove(name);
            return None;
        }
        let silent = self.gone.get(&to.card).map(Instant::elapsed);
        let why = match found.progress {
            _ if silent.is_some_and(|silent| silent > CARD_SILENCE_MAX) => {
                "its card does not answer".to_owned()
            }
            AssignmentProgress::Failed(why) => {
                served.failed += 1;
                if served.failed < FAILED_LOOKS_MAX {
                    return None;
                }
                reason_of(why)
            }
            AssignmentProgress::Pending => {
                served.failed = 0;
                return None;
            }
            AssignmentProgress::Applied(place) => {
                served.failed = 0;
                let now = choice_of(*place).filter(|now| served.known.as_ref() != Some(now))?;
                (served.known, served.is_told) = (Some(now.clone()), true);
                return Some(DagNews::Rearranged(to, Box::new(now)));
            }
        };
        self.dags.remove(name);
        Some(DagNews::Lost(to, why))
    }
}

#[cfg(test)]
mod tests {
    use snic_controller::AppliedPlace;
    use snic_domain::{DagId, Form, Mapping, TenantId};
    use snic_planner::Reservation;

    use super::*;

    fn name(number: usize) -> DagName {
        let tenant = TenantId::new("acme").expect("a test id");
        DagName { tenant, dag: DagId::new(&format!("d{number:03}")).expect("a test id") }
    }

    fn to() -> AssignedCard {
        AssignedCard { card: CardId::new("card0").expect("a test id"), serial: 7 }
    }

    fn choice(form: Form) -> HostChoice {
        let mapping = Mapping { card: to().card, form, stages: Vec::new(), programs: Vec::new() };
        HostChoice { mapping, reservation: Reservation::default() }
    }

    fn applied(form: Form, borrows: bool) -> Option<AssignedDag> {
        let HostChoice { mapping, reservation } = choice(form);
        let reservation = Some(reservation).filter(|_| !borrows);
        let place = Box::new(AppliedPlace { mapping, reservation });
        Some(AssignedDag { to: to(), progress: AssignmentProgress::Applied(place) })
    }

    fn of(known: Option<HostChoice>, now: Option<HostChoice>) -> ServedDags {
        let mut dags = ServedDags::new(Vec::new());
        dags.begin(&name(0), DagOnCard::new(to(), known, now));
        dags
    }

    /// A place as it was ordered is not reported again with another link; a reported one is.
    #[test]
    fn another_place_on_the_card_is_told_once_with_each_link() {
        let (one, other) = (Form::Sequential, Form::Parallel);
        let mut dags = of(Some(choice(one)), Some(choice(one)));
        dags.link_changed(true);
        assert_eq!(dags.found(&name(0), applied(one, false)), None);
        assert_eq!(dags.found(&name(0), applied(other, true)), None, "not while it borrows");
        let told = Some(DagNews::Rearranged(to(), Box::new(choice(other))));
        assert_eq!(dags.found(&name(0), applied(other, false)), told);
        assert_eq!(dags.found(&name(0), applied(other, false)), None);
        dags.link_changed(false);
        assert_eq!(dags.found(&name(0), applied(other, false)), None);
        dags.link_changed(true);
        assert_eq!(dags.found(&name(0), applied(other, false)), told);
        let mut resumed = ServedDags::new(vec![(name(0), to())]);
        assert_eq!(resumed.found(&name(0), applied(other, false)), told, "nobody knows");
    }

    #[test]
    fn a_place_is_lost_when_it_stays_away_or_its_card_does() {
        let failed = || Some(AssignedDag { to: to(), progress: AssignmentProgress::Failed(None) });
        let is_lost = |news| matches!(news, Some(DagNews::Lost(..)));
        let form = Form::Sequential;
        let mut dags = of(None, Some(choice(form)));
        assert_eq!(dags.found(&name(0), failed()), None, "it may find another one");
        assert_eq!(dags.found(&name(0), applied(form, false)), None);
        assert_eq!(dags.found(&name(0), failed()), None);
        assert!(is_lost(dags.found(&name(0), failed())));
        assert_eq!(dags.found(&name(0), failed()), None, "it is forgotten");
        let mut dags = of(None, Some(choice(form)));
        assert!(is_lost(dags.found(&name(0), None)), "removed on the host");
    }

    #[tokio::test(start_paused = true)]
    async fn dags_of_a_silent_card_are_lost_after_a_while() {
        let form = Form::Sequential;
        let mut dags = of(None, Some(choice(form)));
        let gone = CardFaults { is_gone: true, ..CardFaults::default() };
        let gone: BTreeMap<_, _> = [(to().card, gone)].into();
        let mut look = |faults: &BTreeMap<_, _>| {
            dags.cards_are(faults);
            dags.found(&name(0), applied(form, false))
        };
        assert_eq!(look(&gone), None);
        tokio::time::advance(CARD_SILENCE_MAX).await;
        assert_eq!(look(&BTreeMap::new()), None, "it answers in time");
        assert_eq!(look(&gone), None);
        tokio::time::advance(CARD_SILENCE_MAX + Duration::from_millis(1)).await;
        assert!(matches!(look(&gone), Some(DagNews::Lost(..))));
    }

    #[test]
    fn each_is_looked_at_in_its_turn() {
        let count = 2 * LOOKED_AT_MAX + 3;
        let all = (0..count).map(|number| (name(number), to())).collect();
        let mut dags = ServedDags::new(all);
        let mut seen = BTreeSet::new();
        for _ in 0..3 {
            seen.extend(dags.next_names());
        }
        assert_eq!(seen.len(), count);
        assert_eq!(dags.next_names().first(), Some(&name(0)));
    }
}
