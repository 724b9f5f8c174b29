//! State of each host as the leader knows it: whether it answers, what it is to serve, which orders it was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use snic_domain::{
    CardId, CardModel, DagAttachments, DagName, Digest, FunctionUse, KeptState, TenantId, Timestamp,
};

use crate::agent::holdings_digest;
use crate::protocol::{Attachments, BoundCause, CardFaults, HostPolicies, attachments_digest};
use crate::records::{HostRecord, Versioned};
use crate::{HostId, ZoneId};

/// Beats without progress after which orders count as lost.
const STALLED_BEATS: u32 = 2;
/// Beats after which policies are sent again to a host that does not say it looked at them.
const POLICIES_BEATS: u32 = 3;
/// The same of reservations.
const KEPT_BEATS: u32 = 3;

/// Whether a host answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Liveness {
    /// It does, or its lease is not over.
    Alive,
    /// Its lease is over.
    Suspected,
    /// And the time to confirm that.
    Lost,
}

/// Whether a DAG stays where it is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DagMobility {
    /// It may move unless something leads packets to it.
    Free,
    /// It may be on certain hosts only.
    Pinned,
    /// It is served there until its new place serves it.
    Leaving,
}

/// Desired content of a card.
#[derive(Debug, Clone, Default)]
struct Desired {
    /// Each DAG with the serial of its place.
    dags: BTreeMap<DagName, u64>,
    digest: Option<Digest>,
}

#[derive(Debug)]
pub(crate) struct HostState {
    pub record: Versioned<HostRecord>,
    liveness: Liveness,
    heard: Timestamp,
    /// It has been in step with this leader since it was last heard of: new DAGs may go there.
    is_in_step: bool,
    /// It was told to serve something since it was last in step.
    has_news: bool,
    sent: u64,
    seen: u64,
    stalled: u32,
    cards: BTreeMap<CardId, Desired>,
    /// Number of DAGs that it is to serve of each tenant.
    tenants: BTreeMap<TenantId, usize>,
    models: BTreeSet<CardModel>,
    pinned: BTreeSet<(CardId, DagName)>,
    /// DAGs that stay: pinned ones, those to which something leads, and all but the leaving while that is not known.
    bound: BTreeSet<(CardId, DagName)>,
    /// Whatever leads packets to its DAGs, with the digest, as it reported. `None`: that is not known.
    attachments: Option<(Attachments, Digest)>,
    /// Its beats have the digest: it answers when it is asked, and removes a DAG only if nothing leads to it.
    tells_attachments: bool,
    leaving: BTreeSet<(CardId, DagName)>,
    /// Faults of its cards, as it reported them.
    faults: BTreeMap<CardId, CardFaults>,
    /// Policies that it looked at. `None`: it has not said, or its program takes none.
    policies: Option<HostPolicies>,
    /// The number of those that it was sent last, and how many beats ago, while it has not looked at them.
    policies_sent: Option<(u64, u32)>,
    /// Use of its functions. `None`: it has not said, or its program keeps none.
    functions: Option<FunctionUse>,
    /// The reservations that it was sent last, by number with their revisions, and how many beats ago, while it has not
    /// said that it keeps them.
    kept_sent: Option<(BTreeMap<u64, u64>, u32)>,
}

/// Work that a beat asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AfterBeat {
    pub is_back: bool,
    /// All orders arrived and all cards serve what they are to serve.
    pub is_in_step: bool,
    /// No order is under way to it: what it says is how it stays.
    pub is_settled: bool,
    /// Orders were lost.
    pub has_lost: bool,
    /// Cards that must be compared DAG by DAG.
    pub differ: Vec<CardId>,
}

impl HostState {
    /// A host of which nothing is known yet; its lease begins now.
    pub fn new(record: Versioned<HostRecord>, now: Timestamp) -> Self {
        let spec = &record.value().spec;
        let models = spec.cards.values().map(|card| card.profile.model.clone()).collect();
        let cards = spec.cards.keys().map(|card| (card.clone(), Desired::default())).collect();
        Self {
            record,
            liveness: Liveness::Alive,
            heard: now,
            is_in_step: false,
            has_news: true,
            sent: 0,
            seen: 0,
            stalled: 0,
            cards,
            tenants: BTreeMap::new(),
            models,
            pinned: BTreeSet::new(),
            bound: BTreeSet::new(),
            attachments: None,
            tells_attachments: false,
            leaving: BTreeSet::new(),
            faults: BTreeMap::new(),
            policies: None,
            policies_sent: None,
            functions: None,
            kept_sent: None,
        }
    }

    /// Goes on with what its leader knew before the records were read again. Whether it is in step its next beat says.
    pub fn resume_after(&mut self, before: &Self) {
        (self.liveness, self.heard) = (before.liveness, before.heard);
        (self.sent, self.seen, self.stalled) = (before.sent, before.seen, before.stalled);
        (self.policies, self.policies_sent) = (before.policies.clone(), before.policies_sent);
        self.tells_attachments = before.tells_attachments;
        self.functions = before.functions.clone();
        self.set_attachments(before.attachments.as_ref().map(|(of, _)| of.clone()));
    }

    pub const fn liveness(&self) -> Liveness {
        self.liveness
    }

    pub const fn is_in_step(&self) -> bool {
        self.is_in_step
    }

    /// It will soon have been in step, or it is lost.
    pub fn is_expected(&self) -> bool {
        !self.is_in_step && self.liveness != Liveness::Lost
    }

    /// The number of the next order.
    pub const fn next_sequence(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Orders behind this one were not sent after all.
    pub const fn take_back_orders(&mut self, sent: u64) {
        self.sent = sent;
    }

    pub fn desire(&mut self, card: &CardId, name: &DagName, serial: u64, stay: DagMobility) {
        let key = (card.clone(), name.clone());
        self.pinned.remove(&key);
        self.leaving.remove(&key);
        match stay {
            DagMobility::Free => {}
            DagMobility::Pinned => drop(self.pinned.insert(key.clone())),
            DagMobility::Leaving => drop(self.leaving.insert(key.clone())),
        }
        match self.stays(&key) {
            true => self.bound.insert(key),
            false => self.bound.remove(&key),
        };
        let of = self.cards.entry(card.clone()).or_default();
        if of.dags.insert(name.clone(), serial).is_none() {
            *self.tenants.entry(name.tenant.clone()).or_default() += 1;
        }
        of.digest = None;
        self.has_news = true;
    }

    /// Returns whether the card was to serve it with this serial.
    pub fn desire_no_more(&mut self, card: &CardId, name: &DagName, serial: u64) -> bool {
        let Some(of) = self.cards.get_mut(card) else { return false };
        let is_it = of.dags.get(name) == Some(&serial);
        if is_it {
            of.dags.remove(name);
            of.digest = None;
            let key = (card.clone(), name.clone());
            self.pinned.remove(&key);
            self.bound.remove(&key);
            self.leaving.remove(&key);
            let count = self.tenants.get_mut(&name.tenant).expect("it was counted");
            *count -= 1;
            if *count == 0 {
                self.tenants.remove(&name.tenant);
            }
        }
        is_it
    }

    fn stays(&self, at: &(CardId, DagName)) -> bool {
        match self.bound_cause(&at.0, &at.1) {
            Some(BoundCause::Unknown) => !self.leaving.contains(at),
            cause => cause.is_some(),
        }
    }

    /// Why a DAG does not leave one of its cards.
    pub fn bound_cause(&self, card: &CardId, name: &DagName) -> Option<BoundCause> {
        if self.pinned.contains(&(card.clone(), name.clone())) {
            return Some(BoundCause::Hosts);
        }
        match self.attachments_of(name) {
            None => Some(BoundCause::Unknown),
            Some(of) => Some(BoundCause::Attached(of)).filter(|_| !of.is_none()),
        }
    }

    /// Whatever leads packets to a DAG there; `None` while that is not known.
    pub fn attachments_of(&self, name: &DagName) -> Option<DagAttachments> {
        let (of, _) = self.attachments.as_ref()?;
        Some(of.get(name).copied().unwrap_or_default())
    }

    pub const fn tells_attachments(&self) -> bool {
        self.tells_attachments
    }

    /// A beat has this digest; returns whether the host is to be asked. Until it has answered nothing is known.
    pub fn attachments_are(&mut self, said: Option<Digest>) -> bool {
        self.tells_attachments = said.is_some();
        let known = self.attachments.as_ref().map(|(_, digest)| *digest);
        if known.is_some() && known != said {
            self.set_attachments(None);
        }
        said.is_some() && known != said
    }

    /// A report of everything, or of what has changed. Changes of what is not known say nothing.
    pub fn attachments_change(&mut self, is_all: bool, dags: Attachments) {
        let before = self.attachments.take().map(|(of, _)| of);
        let mut now = if is_all { Some(Attachments::new()) } else { before };
        if let Some(now) = &mut now {
            now.extend(dags);
            now.retain(|_, of| !of.is_none());
        }
        self.set_attachments(now);
    }

    fn set_attachments(&mut self, now: Option<Attachments>) {
        self.attachments = now.map(|now| {
            let digest = attachments_digest(&now);
            (now, digest)
        });
        let all =
            self.cards.iter().flat_map(|(card, of)| of.dags.keys().map(move |dag| (card, dag)));
        let all = all.map(|(card, dag)| (card.clone(), dag.clone()));
        self.bound = all.filter(|at| self.stays(at)).collect();
    }

    /// DAGs that stay, each with its card.
    pub fn bound_at(&self) -> impl Iterator<Item = &(CardId, DagName)> {
        self.bound.iter()
    }

    /// DAGs that do not move by themselves.
    pub fn bound(&self) -> impl ExactSizeIterator<Item = &DagName> {
        self.bound.iter().map(|(_, name)| name)
    }

    pub const fn faults(&self) -> &BTreeMap<CardId, CardFaults> {
        &self.faults
    }

    /// Returns what was known before.
    pub fn set_faults(
        &mut self,
        faults: BTreeMap<CardId, CardFaults>,
    ) -> BTreeMap<CardId, CardFaults> {
        std::mem::replace(&mut self.faults, faults)
    }

    pub const fn policies(&self) -> Option<&HostPolicies> {
        self.policies.as_ref()
    }

    /// It says which policies it looked at; returns whether those with the wanted number are to be sent.
    pub fn policies_are(&mut self, said: HostPolicies, wanted: u64) -> bool {
        let is_it = said.number == wanted;
        self.policies = Some(said);
        let sent = self.policies_sent.filter(|(number, _)| *number == wanted);
        let is_due = !is_it && sent.is_none_or(|(_, beats)| beats >= POLICIES_BEATS);
        self.policies_sent = match sent {
            _ if is_it => None,
            Some((_, beats)) if !is_due => Some((wanted, beats + 1)),
            _ => Some((wanted, 1)),
        };
        is_due
    }

    /// Use of its functions, if it says so.
    pub const fn functions(&self) -> Option<&FunctionUse> {
        self.functions.as_ref()
    }

    /// Whether it has said that it keeps a reservation.
    pub fn keeps(&self, serial: u64, revision: u64) -> bool {
        let kept = self.functions.as_ref().and_then(|of| of.kept.get(&serial));
        kept.is_some_and(|of| of.revision == revision && !of.is_over)
    }

    /// It says how its functions are used; returns whether the wanted reservations are to be sent.
    pub fn functions_are(&mut self, said: FunctionUse, wanted: &BTreeMap<u64, u64>) -> bool {
        let revision = |(number, of): (&u64, &KeptState)| (*number, of.revision);
        let is_it = said.kept.iter().map(revision).eq(wanted.iter().map(|(n, of)| (*n, *of)));
        self.functions = Some(said);
        let sent = self.kept_sent.take().filter(|(sent, _)| sent == wanted && !is_it);
        let is_due = !is_it && sent.as_ref().is_none_or(|(_, beats)| *beats >= KEPT_BEATS);
        self.kept_sent = match sent {
            Some((sent, beats)) if !is_due => Some((sent, beats + 1)),
            _ => None,
        };
        is_due
    }

    /// It is sent these reservations.
    pub fn kept_are_sent(&mut self, wanted: BTreeMap<u64, u64>) {
        self.kept_sent = Some((wanted, 1));
    }

    /// Number of DAGs that it serves until their new places do, without those to which something leads there.
    pub fn leaving(&self) -> usize {
        self.leaving_names().count()
    }

    /// The same, by name.
    pub fn leaving_names(&self) -> impl Iterator<Item = &DagName> {
        self.leaving.iter().filter(|at| !self.bound.contains(*at)).map(|(_, name)| name)
    }

    /// All that it serves until their new places do, whatever leads to them.
    pub fn all_leaving(&self) -> impl Iterator<Item = &DagName> {
        self.leaving.iter().map(|(_, name)| name)
    }

    /// Number of DAGs that it is to serve.
    pub fn count(&self) -> usize {
        self.cards.values().map(|of| of.dags.len()).sum()
    }

    /// Tenants whose DAGs it is to serve.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.tenants.keys()
    }

    pub fn has_tenant(&self, tenant: &TenantId) -> bool {
        self.tenants.contains_key(tenant)
    }

    pub const fn models(&self) -> &BTreeSet<CardModel> {
        &self.models
    }

    pub fn desired(&self, card: &CardId) -> Option<&BTreeMap<DagName, u64>> {
        self.cards.get(card).map(|of| &of.dags)
    }

    /// All DAGs that it is to serve.
    pub fn dags(&self) -> impl Iterator<Item = (&DagName, u64)> {
        self.cards.values().flat_map(|of| of.dags.iter().map(|(name, serial)| (name, *serial)))
    }

    /// A sign of life; returns whether it was missed.
    pub fn note_beat(&mut self, now: Timestamp) -> bool {
        self.heard = now;
        std::mem::replace(&mut self.liveness, Liveness::Alive) != Liveness::Alive
    }

    /// So long no host could be heard: that time counts for nobody.
    pub fn pass_unheard(&mut self, time: Duration) {
        self.heard = self.heard + time;
    }

    /// It was told once more to serve something; should its report be lost, the next beat in step says so.
    pub const fn expect_news(&mut self) {
        self.has_news = true;
    }

    /// Whether it was told to serve something since this was asked the last time.
    pub const fn take_news(&mut self) -> bool {
        std::mem::replace(&mut self.has_news, false)
    }

    /// Compares what it says with what it is to serve.
    pub fn compare(&mut self, sequence: u64, digests: &BTreeMap<CardId, Digest>) -> AfterBeat {
        let mut after = AfterBeat::default();
        let stalls = sequence < self.sent && sequence == self.seen;
        self.stalled = if stalls { self.stalled + 1 } else { 0 };
        self.seen = sequence;
        if sequence < self.sent && self.stalled < STALLED_BEATS {
            return after;
        }
        self.stalled = 0;
        (after.is_settled, after.has_lost) = (true, sequence < self.sent);
        let empty = holdings_digest(std::iter::empty());
        for (card, of) in &mut self.cards {
            let dags = of.dags.iter().map(|(name, serial)| (name, *serial));
            let expected = *of.digest.get_or_insert_with(|| holdings_digest(dags));
            if digests.get(card).copied().unwrap_or(empty) != expected {
                after.differ.push(card.clone());
            }
        }
        after.is_in_step = after.differ.is_empty() && sequence == self.sent;
        self.is_in_step |= after.is_in_step;
        after
    }

    /// Time passed; returns what it has become, if anything new.
    pub fn pass_time(
        &mut self,
        now: Timestamp,
        lease: Duration,
        confirm: Duration,
    ) -> Option<Liveness> {
        let silent = now.since(self.heard);
        let liveness = match silent {
            _ if silent > lease + confirm => Liveness::Lost,
            _ if silent > lease => Liveness::Suspected,
            _ => Liveness::Alive,
        };
        let is_worse = liveness > self.liveness;
        if is_worse {
            (self.liveness, self.is_in_step) = (liveness, false);
        }
        is_worse.then_some(liveness)
    }
}

/// Tokens that come at a rate and are kept up to a number.
#[derive(Debug, Clone)]
pub(crate) struct TokenBucket {
    per_second: u64,
    max: u64,
    /// In thousand-millionths of one.
    nanos: u64,
    last: Timestamp,
}

impl TokenBucket {
    pub const fn new(per_second: u64, max: u64, now: Timestamp) -> Self {
        Self { per_second, max, nanos: max * 1_000_000_000, last: now }
    }

    pub fn refill(&mut self, now: Timestamp) {
        let passed = u64::try_from(now.since(self.last).as_nanos()).unwrap_or(u64::MAX);
        let more = passed.saturating_mul(self.per_second);
        self.nanos = self.nanos.saturating_add(more).min(self.max * 1_000_000_000);
        self.last = now;
    }

    /// Whether there is one.
    pub const fn has_one(&self) -> bool {
        self.nanos >= 1_000_000_000
    }

    pub const fn take(&mut self) -> bool {
        match self.nanos.checked_sub(1_000_000_000) {
            Some(rest) => {
                self.nanos = rest;
                true
            }
            None => false,
        }
    }
}

/// Where so many hosts are unreachable that nothing is evacuated: more than a third, and more than one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EvacuationHold {
    /// `None`: the whole fleet. With hosts that do not answer, and all.
    pub at: BTreeMap<Option<ZoneId>, (usize, usize)>,
}

impl EvacuationHold {
    pub fn of<'a>(hosts: impl Iterator<Item = &'a HostState>) -> Self {
        let mut at: BTreeMap<Option<ZoneId>, (usize, usize)> = BTreeMap::new();
        for host in hosts {
            let missing = usize::from(host.liveness != Liveness::Alive);
            for place in [None, Some(host.record.value().spec.zone.clone())] {
                let of = at.entry(place).or_default();
                *of = (of.0 + missing, of.1 + 1);
            }
        }
        at.retain(|_, (missing, all)| *missing > 1 && *missing * 3 > *all);
        Self { at }
    }

    pub fn holds(&self, zone: &ZoneId) -> bool {
        self.at.contains_key(&None) || self.at.contains_key(&Some(zone.clone()))
    }
}

/// All hosts, by name.
pub(crate) type Hosts = BTreeMap<HostId, HostState>;

/// Zones that differ.
pub(crate) fn difference(of: &EvacuationHold, from: &EvacuationHold) -> BTreeSet<Option<ZoneId>> {
    of.at.keys().filter(|zone| !from.at.contains_key(*zone)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::placement::HostSpec;
    use crate::{RackId, ZoneId};

    use super::*;

    /// At once, then after as many beats as an answer may take; others at once.
    #[test]
    fn policies_are_sent_again_until_the_host_has_looked_at_them() {
        let zone = ZoneId::new("z").expect("a name of the test");
        let rack = RackId::new("r").expect("a name of the test");
        let (labels, cards) = (BTreeMap::new(), BTreeMap::new());
        let spec = HostSpec { zone, rack, labels, is_cordoned: false, cards };
        let id = HostId::new("h").expect("a name of the test");
        let record = HostRecord { host: id, spec, is_draining: false, meta: Default::default() };
        let mut host = HostState::new(Versioned::new(record), Timestamp::ZERO);
        let said = |number| HostPolicies { number, refused: None };
        let mut sent = |has: u64, wanted: u64| host.policies_are(said(has), wanted);
        assert!(!sent(0, 0), "none are registered");
        let beats: Vec<bool> = (0..8).map(|_| sent(0, 7)).collect();
        assert_eq!(beats, [true, false, false, true, false, false, true, false]);
        assert!(sent(0, 9), "others were registered");
        assert!(!sent(9, 9));
        assert!(sent(9, 0), "a fleet that knows none, after its records were restored");
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let at = |millis: u64| Timestamp::ZERO + Duration::from_millis(millis);
        let mut bucket = TokenBucket::new(2, 3, at(0));
        let mut taken = Vec::new();
        for millis in [0, 400, 600, 1_000, 100_000] {
            bucket.refill(at(millis));
            taken.push(std::iter::repeat_with(|| bucket.take()).take_while(|had| *had).count());
        }
        assert_eq!(taken, [3, 0, 1, 1, 3]);
    }
}
