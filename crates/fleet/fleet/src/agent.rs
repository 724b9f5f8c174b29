//! The host's side: which orders it carries out, and what it reports.
//!
//! It keeps serving whatever happens to the fleet, and does nothing that an older leader wants: it remembers the highest
//! epoch that it has seen. Orders may be lost, repeated or late. What counts is the comparison with every beat: a digest
//! for each card of what it serves. Where it differs the leader asks for the list, and sends what is missing.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{
    Bitstream, BitstreamId, CardId, DagAttachments, DagName, DagSpec, Digest, FunctionUse,
    KeptForTenant, NtType, RegionId, Tenant,
};

use crate::protocol::{
    ATTACHED_MAX, Attachments, CardFaults, Epoch, HostChoice, HostOrder, HostPolicies, HostReport,
    MISSING_MAX, Numbered, OrderKind, PolicyFiles, Provisions, attachments_digest,
};
use crate::records::PlaceRecord;

/// The digest of what a card serves: of the names and serials of its DAGs, in order.
pub fn holdings_digest<'a>(dags: impl Iterator<Item = (&'a DagName, u64)>) -> Digest {
    let mut text = String::new();
    for (name, serial) in dags {
        text.push_str(&format!("{name} {serial}\n"));
    }
    Digest::of(text.as_bytes())
}

/// Why a host's controller does not serve a DAG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeRefused {
    /// In words for the DAG's tenant: nothing of others in it.
    pub reason: String,
    /// Regions that take nothing.
    pub faulty: Vec<RegionId>,
}

/// A DAG that stays, for something leads packets to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptDag {
    /// Where the host's controller has it, if it says so.
    pub choice: Option<Box<HostChoice>>,
    /// Whatever leads packets to it; nothing if that has ended meanwhile.
    pub attachments: DagAttachments,
}

/// Input of the agent.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// An order arrived.
    Order(HostOrder),
    /// The host's controller carried out [`AgentEffect::Serve`], or refused it. Where it refuses a change, it serves
    /// what it served before.
    Served {
        name: DagName,
        /// On which card.
        card: CardId,
        /// Serial of its place.
        serial: u64,
        /// Where it put the DAG, if that is to be told; or why not.
        result: Result<Option<Box<HostChoice>>, ServeRefused>,
    },
    /// The host's controller has put a DAG elsewhere on its card.
    Rearranged {
        name: DagName,
        /// On which card.
        card: CardId,
        /// Where it is now.
        choice: Box<HostChoice>,
    },
    /// A DAG that was served has lost its place on its card, and the controller has forgotten it.
    Lost {
        name: DagName,
        /// On which card.
        card: CardId,
        /// Serial of its place.
        serial: u64,
        why: ServeRefused,
    },
    /// The host's controller carried out an [`AgentEffect::Stop`] with `if_detached`, or kept the DAG because something
    /// leads packets to it.
    Stopped {
        name: DagName,
        /// On which card.
        card: CardId,
        /// Serial of its place.
        serial: u64,
        result: Result<(), KeptDag>,
    },
    /// Whatever leads packets to the DAGs that it serves.
    Attachments(Attachments),
    /// Faults that keep cards from taking anything. Cards without a fault are left out.
    Faults(BTreeMap<CardId, CardFaults>),
    /// Provisions that are there now: NT types and tenants registered, images fetched, checked and registered.
    Provided(Provisions),
    /// The fleet's policies that the host looked at, and whether they are in force.
    Policies(HostPolicies),
    /// Functions that machines have, and reservations that the host's controller keeps.
    Functions(FunctionUse),
    /// It is time to say that the host lives.
    BeatDue,
}

/// Work that the agent wants done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEffect {
    /// Remember the epoch durably, before what follows.
    Remember(Epoch),
    /// Send a report. It may be lost.
    Report(HostReport),
    /// Have the controller serve a DAG, after the effects before.
    Serve {
        name: DagName,
        spec: Box<DagSpec>,
        place: Box<PlaceRecord>,
        /// Owner, to be registered first.
        tenant: Box<Numbered<Tenant>>,
        /// The serial of what the card serves of this DAG now: it is changed without a stop.
        changes: Option<u64>,
    },
    /// Have the controller serve it no more.
    Stop {
        name: DagName,
        /// On which card.
        card: CardId,
        /// Serial of its place.
        serial: u64,
        /// Only if nothing leads packets to it; [`AgentEvent::Stopped`] says what came of it.
        if_detached: bool,
    },
    /// Have NT types and tenants registered, and images fetched, checked and registered, tried again until it is done.
    /// Has something provided. With the same number it stays as it is; with another number it is replaced once nothing uses it.
    Provide {
        nts: Vec<Numbered<NtType>>,
        bitstreams: Vec<Numbered<Bitstream>>,
        tenants: Vec<Numbered<Tenant>>,
    },
    /// Have it forgotten, where it has these numbers, once nothing uses it.
    Withdraw(Provisions),
    /// Have policies checked, stored and put in force, and [`AgentEvent::Policies`] say what came of it. If that fails for
    /// a while only, they are ordered again.
    SetPolicies(Numbered<PolicyFiles>),
    /// Have the controller keep these reservations and no others, and [`AgentEvent::Functions`] say so.
    Keep(Vec<KeptForTenant>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DagSerials {
    /// Serial that was ordered last.
    serial: u64,
    /// Serial that is served.
    served: Option<u64>,
}

/// The host's part of the fleet.
#[derive(Debug, Clone)]
pub struct HostAgent {
    epoch: Epoch,
    sequence: u64,
    cards: BTreeMap<CardId, BTreeMap<DagName, DagSerials>>,
    /// Provisions that it was ordered to have, and their digest.
    told: Provisions,
    told_digest: Option<Digest>,
    /// Bitstreams of it that are there, by id and number.
    images: BTreeMap<BitstreamId, u64>,
    /// Faults of its cards, once they are known.
    faults: Option<BTreeMap<CardId, CardFaults>>,
    /// Policies that it looked at, once they are known.
    policies: Option<HostPolicies>,
    /// Whatever leads packets to its DAGs, once it is known; and whether this leader has asked for it.
    attachments: Option<Attachments>,
    tells_attachments: bool,
    /// Use of its functions, once it is known.
    functions: Option<FunctionUse>,
}

impl HostAgent {
    /// After a start: the epoch that it remembers, what its controller serves by card, and what of the fleet's it has.
    pub fn new(
        epoch: Epoch,
        served: BTreeMap<CardId, BTreeMap<DagName, u64>>,
        told: Provisions,
    ) -> Self {
        let holding = |(name, serial)| (name, DagSerials { serial, served: Some(serial) });
        let of_card = |(card, dags): (CardId, BTreeMap<DagName, u64>)| {
            (card, dags.into_iter().map(holding).collect())
        };
        let (cards, images) = (served.into_iter().map(of_card).collect(), told.bitstreams.clone());
        let (told_digest, faults, policies) = (None, None, None);
        let (attachments, tells_attachments) = (None, false);
        Self {
            epoch,
            sequence: 0,
            cards,
            told,
            told_digest,
            images,
            faults,
            policies,
            attachments,
            tells_attachments,
            functions: None,
        }
    }

    /// Work that follows from an event.
    pub fn handle(&mut self, event: AgentEvent) -> Vec<AgentEffect> {
        match event {
            AgentEvent::Order(order) => self.order(order),
            AgentEvent::Served { name, card, serial, result } => {
                self.served(name, &card, serial, result).into_iter().collect()
            }
            AgentEvent::Rearranged { name, card, choice } => {
                let held = self.cards.get(&card).and_then(|dags| dags.get(&name));
                let serial = held.and_then(|held| held.served);
                let report = |serial| HostReport::Applied { name, serial, choice: Some(choice) };
                serial.map(report).map(AgentEffect::Report).into_iter().collect()
            }
            AgentEvent::Lost { name, card, serial, why } => {
                self.lost(name, &card, serial, why).into_iter().collect()
            }
            AgentEvent::Stopped { name, card, serial, result } => {
                self.stopped(name, card, serial, result)
            }
            AgentEvent::Attachments(now) => self.attached(now),
            AgentEvent::Faults(faults) => {
                let is_news = self.faults.as_ref() != Some(&faults);
                self.faults = Some(faults);
                // Before what follows from it is told: the leader places elsewhere at once.
                if is_news { vec![self.beat()] } else { Vec::new() }
            }
            AgentEvent::Provided(there) => {
                for (id, number) in there.bitstreams {
                    let known = self.images.entry(id).or_default();
                    *known = number.max(*known);
                }
                Vec::new()
            }
            AgentEvent::Policies(now) => {
                let is_news = self.policies.as_ref() != Some(&now);
                self.policies = Some(now);
                if is_news { vec![self.beat()] } else { Vec::new() }
            }
            AgentEvent::Functions(now) => {
                let is_news = self.functions.as_ref() != Some(&now);
                self.functions = Some(now);
                if is_news { vec![self.beat()] } else { Vec::new() }
            }
            AgentEvent::BeatDue => vec![self.beat()],
        }
    }

    /// The highest epoch that it has seen.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The last order of that epoch which it looked at.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    fn order(&mut self, order: HostOrder) -> Vec<AgentEffect> {
        let mut effects = Vec::new();
        if order.epoch > self.epoch {
            (self.epoch, self.sequence) = (order.epoch, 0);
            self.tells_attachments = false;
            effects.push(AgentEffect::Remember(self.epoch));
        }
        if order.epoch < self.epoch || order.sequence <= self.sequence {
            return effects;
        }
        self.sequence = order.sequence;
        match order.what {
            OrderKind::Greet => effects.push(self.beat()),
            OrderKind::List(card) => {
                let dags = self.served_on(&card).map(|(name, of)| (name.clone(), of)).collect();
                let report = HostReport::Holds { epoch: self.epoch, card, dags };
                effects.push(AgentEffect::Report(report));
            }
            OrderKind::ListProvided => {
                let report = HostReport::Has { epoch: self.epoch, provided: self.told.clone() };
                effects.push(AgentEffect::Report(report));
            }
            OrderKind::ListAttachments => {
                self.tells_attachments = true;
                let (epoch, is_all) = (self.epoch, true);
                let report = |dags| HostReport::Attachments { epoch, is_all, dags };
                effects.extend(self.attachments.clone().map(report).map(AgentEffect::Report));
            }
            OrderKind::Put { name, spec, place, tenant } => {
                self.told.tenants.insert(tenant.of.id.clone(), tenant.number);
                self.told_digest = None;
                effects.extend(self.put(name, spec, place, tenant));
            }
            OrderKind::Remove { name, card, serial, if_detached } => {
                effects.extend(self.remove(name, card, serial, if_detached));
            }
            OrderKind::Provide { nts, bitstreams, tenants } => {
                effects.extend(self.provide(nts, bitstreams, tenants));
            }
            OrderKind::Withdraw(gone) => effects.extend(self.withdraw(gone)),
            OrderKind::SetPolicies(files) => effects.push(AgentEffect::SetPolicies(files)),
            OrderKind::Keep(all) => effects.push(AgentEffect::Keep(all)),
        }
        effects
    }

    fn put(
        &mut self,
        name: DagName,
        spec: Box<DagSpec>,
        place: Box<PlaceRecord>,
        tenant: Box<Numbered<Tenant>>,
    ) -> Option<AgentEffect> {
        let serial = place.serial;
        let dags = self.cards.entry(place.card.card.clone()).or_default();
        let changes = match dags.get(&name) {
            Some(held) if held.served == Some(serial) && held.serial == serial => {
                let report = HostReport::Applied { name, serial, choice: None };
                return Some(AgentEffect::Report(report));
            }
            Some(held) if held.serial >= serial => return None,
            Some(held) => held.served,
            None => None,
        };
        dags.insert(name.clone(), DagSerials { serial, served: changes });
        Some(AgentEffect::Serve { name, spec, place, tenant, changes })
    }

    /// A DAG that goes only if nothing leads packets to it counts as served until it is gone.
    fn remove(
        &mut self,
        name: DagName,
        card: CardId,
        serial: u64,
        if_detached: bool,
    ) -> Option<AgentEffect> {
        let dags = self.cards.entry(card.clone()).or_default();
        let Some(held) = dags.get(&name) else {
            let report = HostReport::Removed { name, card, serial };
            return if_detached.then_some(AgentEffect::Report(report));
        };
        if held.serial != serial {
            return None;
        }
        if !if_detached {
            dags.remove(&name);
        }
        Some(AgentEffect::Stop { name, card, serial, if_detached })
    }

    /// A removal that depended on what leads packets to the DAG has ended. Another place of it may have been ordered since.
    fn stopped(
        &mut self,
        name: DagName,
        card: CardId,
        serial: u64,
        result: Result<(), KeptDag>,
    ) -> Vec<AgentEffect> {
        let dags = self.cards.entry(card.clone()).or_default();
        let Some(held) = dags.get_mut(&name) else { return Vec::new() };
        let is_it = held.serial == serial;
        match result {
            Ok(()) if is_it => {
                dags.remove(&name);
                vec![AgentEffect::Report(HostReport::Removed { name, card, serial })]
            }
            Ok(()) => {
                held.served = held.served.filter(|served| *served != serial);
                Vec::new()
            }
            Err(KeptDag { choice, attachments }) => {
                // Told before, so that the leader does not try again at once.
                let mut now = self.attachments.clone().unwrap_or_default();
                now.insert(name.clone(), attachments);
                now.retain(|_, of| !of.is_none());
                let mut effects = self.attached(now);
                let kept = HostReport::Kept { name, card, serial, choice };
                effects.extend(is_it.then_some(AgentEffect::Report(kept)));
                effects
            }
        }
    }

    /// Tells a leader that has asked what has changed; the others learn from the digest of a beat.
    fn attached(&mut self, now: Attachments) -> Vec<AgentEffect> {
        if self.attachments.as_ref() == Some(&now) {
            return Vec::new();
        }
        let before = self.attachments.replace(now.clone()).unwrap_or_default();
        if !self.tells_attachments {
            return vec![self.beat()];
        }
        let gone = before.keys().filter(|name| !now.contains_key(*name));
        let gone: Attachments = gone.map(|name| (name.clone(), Default::default())).collect();
        let is_news = |(name, of): &(DagName, _)| before.get(name) != Some(of);
        let dags: Attachments = now.into_iter().filter(is_news).chain(gone).collect();
        let (epoch, is_all) = (self.epoch, false);
        vec![AgentEffect::Report(HostReport::Attachments { epoch, is_all, dags }), self.beat()]
    }

    fn served(
        &mut self,
        name: DagName,
        card: &CardId,
        serial: u64,
        result: Result<Option<Box<HostChoice>>, ServeRefused>,
    ) -> Option<AgentEffect> {
        let dags = self.cards.get_mut(card)?;
        let Some(held) = dags.get_mut(&name) else {
            // It was to be stopped while it was begun.
            let (card, if_detached) = (card.clone(), false);
            return result.is_ok().then_some(AgentEffect::Stop { name, card, serial, if_detached });
        };
        if held.serial != serial {
            // It was to be changed while it was begun.
            held.served = held.served.max(result.is_ok().then_some(serial));
            return None;
        }
        Some(AgentEffect::Report(match result {
            Ok(choice) => {
                held.served = Some(serial);
                HostReport::Applied { name, serial, choice }
            }
            Err(ServeRefused { reason, faulty }) => {
                match held.served {
                    Some(before) => held.serial = before,
                    None => drop(dags.remove(&name)),
                }
                HostReport::Refused { name, serial, reason, faulty, was_served: false }
            }
        }))
    }

    /// The report may be lost: then the digest of its card differs, and the leader orders the DAG once more.
    fn lost(
        &mut self,
        name: DagName,
        card: &CardId,
        serial: u64,
        why: ServeRefused,
    ) -> Option<AgentEffect> {
        let dags = self.cards.get_mut(card)?;
        let held = dags.get_mut(&name)?;
        held.served = held.served.filter(|served| *served != serial);
        if held.serial != serial {
            // Another place of it was ordered meanwhile, which is reported separately.
            return None;
        }
        dags.remove(&name);
        let ServeRefused { reason, faulty } = why;
        let report = HostReport::Refused { name, serial, reason, faulty, was_served: true };
        Some(AgentEffect::Report(report))
    }

    fn provide(
        &mut self,
        nts: Vec<Numbered<NtType>>,
        bitstreams: Vec<Numbered<Bitstream>>,
        tenants: Vec<Numbered<Tenant>>,
    ) -> Option<AgentEffect> {
        self.told_digest = None;
        self.told.nts.extend(nts.iter().map(|nt| (nt.of.id.clone(), nt.number)));
        self.told.tenants.extend(tenants.iter().map(|it| (it.of.id.clone(), it.number)));
        let told = bitstreams.iter().map(|it| (it.of.id.clone(), it.number));
        self.told.bitstreams.extend(told);
        let is_any = !(nts.is_empty() && bitstreams.is_empty() && tenants.is_empty());
        is_any.then_some(AgentEffect::Provide { nts, bitstreams, tenants })
    }

    fn withdraw(&mut self, gone: Provisions) -> Option<AgentEffect> {
        fn forget<K: Ord>(all: &mut BTreeMap<K, u64>, gone: &BTreeMap<K, u64>) {
            all.retain(|id, number| gone.get(id) != Some(number));
        }
        self.told_digest = None;
        forget(&mut self.told.nts, &gone.nts);
        forget(&mut self.told.tenants, &gone.tenants);
        forget(&mut self.told.bitstreams, &gone.bitstreams);
        forget(&mut self.images, &gone.bitstreams);
        (gone != Provisions::default()).then_some(AgentEffect::Withdraw(gone))
    }

    fn served_on(&self, card: &CardId) -> impl Iterator<Item = (&DagName, u64)> {
        let dags = self.cards.get(card).into_iter().flatten();
        dags.filter_map(|(name, held)| Some((name, held.served?)))
    }

    fn beat(&mut self) -> AgentEffect {
        let provided = *self.told_digest.get_or_insert_with(|| self.told.digest());
        let digest = |card: &CardId| (card.clone(), holdings_digest(self.served_on(card)));
        let told = self.told.bitstreams.iter();
        let missing = told.filter(|(id, number)| self.images.get(*id) != Some(*number));
        let missing: BTreeSet<_> = missing.map(|(id, _)| id.clone()).take(MISSING_MAX).collect();
        AgentEffect::Report(HostReport::Beat {
            epoch: self.epoch,
            sequence: self.sequence,
            digests: self.cards.keys().map(digest).collect(),
            provided,
            missing,
            faults: self.faults.clone(),
            policies: self.policies.clone(),
            attachments: self
                .attachments
                .as_ref()
                .filter(|of| of.len() <= ATTACHED_MAX)
                .map(attachments_digest),
            functions: self.functions.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::{
        Bandwidth, ByteSize, CardModel, DagId, Form, Mapping, RegionImages, RegionKind, TenantId,
    };
    use snic_planner::Reservation;

    use super::*;
    use crate::{FleetCard, HostId};

    fn name() -> DagName {
        let tenant = TenantId::new("acme").expect("a test id");
        DagName { tenant, dag: DagId::new("web").expect("a test id") }
    }

    fn card() -> CardId {
        CardId::new("card0").expect("a test id")
    }

    fn order(epoch: i64, sequence: u64, what: OrderKind) -> AgentEvent {
        AgentEvent::Order(HostOrder { epoch: Epoch(epoch), sequence, what })
    }

    fn put(serial: u64) -> OrderKind {
        let host = HostId::new("h0").expect("a test name");
        let mapping = Mapping {
            card: card(),
            form: Form::Sequential,
            stages: Vec::new(),
            programs: Vec::new(),
        };
        let place = PlaceRecord {
            card: FleetCard { host, card: card() },
            serial,
            mapping,
            reservation: Reservation::default(),
        };
        let spec = Box::new(DagSpec::chain(&[], Bandwidth::ZERO));
        let (place, tenant) = (Box::new(place), Box::new(numbered_tenant(1)));
        OrderKind::Put { name: name(), spec, place, tenant }
    }

    fn numbered_tenant(number: u64) -> Numbered<Tenant> {
        let (id, quota, notes) = (name().tenant, Default::default(), Default::default());
        Numbered { number, of: Tenant { id, weight: 1, quota, notes, project: None } }
    }

    fn image(number: u64) -> Numbered<Bitstream> {
        let of = Bitstream {
            id: BitstreamId::new("nat-sim").expect("a test id"),
            images: RegionImages::for_all(Digest::of(b"image"), ByteSize::from_mib(1)),
            nts: Vec::new(),
            region_kind: RegionKind::KnownNt,
            card_model: CardModel::new("sim-16").expect("a test id"),
            shareable: true,
            signed_by: None,
            modules: Vec::new(),
            notes: Default::default(),
            identity: None,
        };
        Numbered { number, of }
    }

    fn served(serial: u64) -> AgentEvent {
        AgentEvent::Served { name: name(), card: card(), serial, result: Ok(None) }
    }

    fn agent() -> HostAgent {
        let served = [(card(), [(name(), 7)].into())].into();
        HostAgent::new(Epoch(5), served, Provisions::default())
    }

    /// Orders of an earlier epoch, earlier orders, and those for an earlier place change nothing.
    #[test]
    fn old_orders_change_nothing() {
        let remove = |serial| {
            let (name, card) = (name(), card());
            OrderKind::Remove { name, card, serial, if_detached: false }
        };
        let mut agent = agent();
        assert_eq!(agent.handle(order(4, 9, remove(7))), []);
        assert_eq!(agent.handle(order(5, 3, remove(6))), [], "the place before");
        assert_eq!(agent.handle(order(5, 4, put(6))), [], "the place before");
        assert_eq!(agent.handle(order(5, 4, remove(7))), [], "an order with the number of another");
        let (name, card) = (name(), card());
        let stop = AgentEffect::Stop { name, card, serial: 7, if_detached: false };
        assert_eq!(agent.handle(order(5, 5, remove(7))), [stop]);
    }

    #[test]
    fn a_later_epoch_is_remembered_before_its_order_is_carried_out() {
        let mut agent = agent();
        let effects = agent.handle(order(6, 1, put(8)));
        let kinds = matches!(
            effects.as_slice(),
            [AgentEffect::Remember(Epoch(6)), AgentEffect::Serve { changes: Some(7), .. }]
        );
        assert!(kinds, "{effects:?}");
        assert_eq!(agent.handle(served(7)), [], "the place before");
        let applied = HostReport::Applied { name: name(), serial: 8, choice: None };
        assert_eq!(agent.handle(served(8)), [AgentEffect::Report(applied)]);
    }

    fn holds(agent: &mut HostAgent, sequence: u64) -> Option<u64> {
        match agent.handle(order(5, sequence, OrderKind::List(card()))).as_slice() {
            [AgentEffect::Report(HostReport::Holds { dags, .. })] => dags.get(&name()).copied(),
            other => panic!("{other:?}"),
        }
    }

    /// A change that the controller refuses leaves what was served; the same order again is tried again.
    #[test]
    fn a_refused_change_leaves_the_place_before() {
        let mut agent = agent();
        let begun = agent.handle(order(5, 1, put(8)));
        assert_eq!(holds(&mut agent, 2), Some(7), "until it is done");
        let refused = ServeRefused { reason: "no room".into(), faulty: Vec::new() };
        let result = Err(refused);
        let event = AgentEvent::Served { name: name(), card: card(), serial: 8, result };
        let told = agent.handle(event);
        let is_told =
            matches!(told.as_slice(), [AgentEffect::Report(HostReport::Refused { serial: 8, .. })]);
        assert!(is_told, "{told:?}");
        assert_eq!(holds(&mut agent, 3), Some(7));
        assert_eq!(agent.handle(order(5, 4, put(8))), begun);
        assert_eq!(agent.handle(served(8)).len(), 1);
        assert_eq!(holds(&mut agent, 5), Some(8));
        let (name_of, card_of) = (name(), card());
        let remove =
            OrderKind::Remove { name: name_of, card: card_of, serial: 7, if_detached: false };
        assert_eq!(agent.handle(order(5, 6, remove)), [], "the place before");
    }

    /// A place that is lost is told once, and is not held any more; one that was ordered in between is not touched.
    #[test]
    fn a_lost_place_is_told_and_forgotten() {
        let lost = |serial| AgentEvent::Lost {
            name: name(),
            card: card(),
            serial,
            why: ServeRefused { reason: "its region failed".into(), faulty: Vec::new() },
        };
        let mut first = agent();
        assert_eq!(first.handle(lost(6)), [], "the place before");
        let told = first.handle(lost(7));
        let is_told = matches!(
            told.as_slice(),
            [AgentEffect::Report(HostReport::Refused { serial: 7, was_served: true, .. })]
        );
        assert!(is_told, "{told:?}");
        assert_eq!(first.handle(lost(7)), []);
        assert_eq!(holds(&mut first, 1), None);
        let again = first.handle(order(5, 2, put(7)));
        assert!(
            matches!(again.as_slice(), [AgentEffect::Serve { changes: None, .. }]),
            "{again:?}"
        );
        let mut changed = agent();
        changed.handle(order(5, 1, put(8)));
        assert_eq!(changed.handle(lost(7)), [], "another place is on its way");
        assert_eq!(holds(&mut changed, 2), None);
        assert_eq!(changed.handle(served(8)).len(), 1);
    }

    /// Each beat says which cards fail, and one is sent at once when that changes.
    #[test]
    fn faults_are_told_at_once_and_with_each_beat() {
        let gone = CardFaults { is_gone: true, ..CardFaults::default() };
        let faults: BTreeMap<_, _> = [(card(), gone)].into();
        let told = |effects: Vec<AgentEffect>| match effects.as_slice() {
            [AgentEffect::Report(HostReport::Beat { faults, .. })] => faults.clone(),
            other => panic!("{other:?}"),
        };
        let mut agent = agent();
        assert_eq!(told(agent.handle(AgentEvent::BeatDue)), None, "it has not looked");
        assert_eq!(told(agent.handle(AgentEvent::Faults(faults.clone()))), Some(faults.clone()));
        assert_eq!(agent.handle(AgentEvent::Faults(faults.clone())), []);
        assert_eq!(told(agent.handle(AgentEvent::BeatDue)), Some(faults));
    }

    fn beat(agent: &mut HostAgent) -> (Digest, usize) {
        match agent.handle(AgentEvent::BeatDue).as_slice() {
            [AgentEffect::Report(HostReport::Beat { provided, missing, .. })] => {
                (*provided, missing.len())
            }
            other => panic!("{other:?}"),
        }
    }

    /// An image is missing from when the host is told of it until it is there with that number.
    #[test]
    fn an_image_is_missing_until_it_is_there() {
        let mut agent = agent();
        let provide = |number| OrderKind::Provide {
            nts: vec![],
            bitstreams: vec![image(number)],
            tenants: vec![],
        };
        let there = |number| Provisions {
            bitstreams: [(image(number).of.id, number)].into(),
            ..Provisions::default()
        };
        let none = beat(&mut agent);
        assert_eq!(none, (Provisions::default().digest(), 0));
        assert_eq!(agent.handle(order(5, 1, provide(3))).len(), 1);
        assert_eq!(beat(&mut agent), (there(3).digest(), 1));
        agent.handle(AgentEvent::Provided(there(3)));
        assert_eq!(beat(&mut agent), (there(3).digest(), 0));
        agent.handle(order(5, 2, provide(4)));
        assert_eq!(beat(&mut agent), (there(4).digest(), 1), "another image of the same id");
        agent.handle(AgentEvent::Provided(there(3)));
        assert_eq!(beat(&mut agent).1, 1, "the one before, told late");
        let old = agent.handle(order(5, 3, OrderKind::Withdraw(there(3))));
        assert_eq!(old, [AgentEffect::Withdraw(there(3))]);
        assert_eq!(beat(&mut agent), (there(4).digest(), 1));
        let restarted = HostAgent::new(Epoch(5), BTreeMap::new(), there(4));
        assert_eq!(beat(&mut restarted.clone()), (there(4).digest(), 0));
        agent.handle(order(5, 4, OrderKind::Withdraw(there(4))));
        assert_eq!(beat(&mut agent), none);
    }

    /// Policies are for the host to check; what came of it is told at once, and with each beat.
    #[test]
    fn policies_are_passed_on_and_what_came_of_them_is_told() {
        let told = |effects: Vec<AgentEffect>| match effects.as_slice() {
            [AgentEffect::Report(HostReport::Beat { policies, .. })] => policies.clone(),
            other => panic!("{other:?}"),
        };
        let mut agent = agent();
        assert_eq!(told(agent.handle(AgentEvent::BeatDue)), None, "it has not looked");
        let of = [("fairness.toml".to_owned(), String::new())].into();
        let files = Numbered { number: 9, of };
        let effects = agent.handle(order(5, 1, OrderKind::SetPolicies(files.clone())));
        assert_eq!(effects, [AgentEffect::SetPolicies(files)]);
        let refused = HostPolicies { number: 9, refused: Some("fairness.toml:1: no".into()) };
        let event = AgentEvent::Policies(refused.clone());
        assert_eq!(told(agent.handle(event.clone())), Some(refused.clone()));
        assert_eq!(agent.handle(event), [], "that is no news");
        assert_eq!(told(agent.handle(AgentEvent::BeatDue)), Some(refused));
    }

    /// A DAG that was to be stopped while it was begun is stopped once it has begun.
    #[test]
    fn what_is_begun_too_late_is_stopped() {
        let mut agent = HostAgent::new(Epoch(5), BTreeMap::new(), Provisions::default());
        agent.handle(order(5, 1, put(8)));
        let remove = |serial| {
            let (name, card) = (name(), card());
            OrderKind::Remove { name, card, serial, if_detached: false }
        };
        agent.handle(order(5, 2, remove(8)));
        let (name_of, card_of) = (name(), card());
        let stop =
            AgentEffect::Stop { name: name_of, card: card_of, serial: 8, if_detached: false };
        assert_eq!(agent.handle(served(8)), [stop]);
    }

    #[test]
    fn two_places_of_a_dag_have_different_digests() {
        let digest = |serial| holdings_digest([(&name(), serial)].into_iter());
        assert_ne!(digest(7), digest(8));
        assert_eq!(digest(7), digest(7));
    }
}
