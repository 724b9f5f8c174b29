//! One DAG: what it asks for, where it is, and which of its placements the card serves.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::{
    Bandwidth, CardId, Condition, ConditionStatus, ConditionType, DagName, DagSpec, DagUid,
    Explanation, Infeasible, NodeId, Notes, NtTypeId, OperationId, TenantId, Timestamp,
};

use snic_usage::BreakCause;

use super::nt_answers::NtAnswers;
use super::place::PlacementState;
use crate::decide::thread_use::threads_of;
use crate::protocol::{AssignedCard, DagTraffic};
use crate::state::meter::Meter;
use crate::store::records::{DagRecord, Placement};

/// A placement that a DAG has no more: its rows and its reservation are to be given back.
#[derive(Debug)]
pub(crate) struct ReplacedPlacement {
    pub placement: Placement,
    /// The target tables still have its rows.
    pub in_target: bool,
}

/// A DAG with what is known of it at run time.
#[derive(Debug, Clone)]
pub(crate) struct DagEntry {
    name: DagName,
    uid: DagUid,
    spec: DagSpec,
    generation: u64,
    place: PlacementState,
    created: Timestamp,
    updated: Timestamp,
    /// Serial of the placement whose rows the target tables hold.
    target: Option<u64>,
    /// Serial of the placement whose rows the card's tables hold, as read back.
    active: Option<u64>,
    /// The generation that those rows are of; zero where there are none.
    observed: u64,
    /// Since when no rows lead it anywhere, for its state is moved.
    stopped: Option<Timestamp>,
    /// The operation that waits for it; its own record says for which DAG.
    operation: Option<OperationId>,
    explanation: Option<Explanation>,
    conditions: Vec<Condition>,
    /// Since when its promise is broken, where that was told.
    broken: Option<Timestamp>,
    /// The card that the fleet assigned it to, which it does not leave.
    assigned: Option<AssignedCard>,
    nts: NtAnswers,
    meter: Meter,
    /// Changes of its spec and its placements since it is known.
    changes: u64,
}

impl DagEntry {
    /// A new DAG, nowhere yet.
    pub fn new(name: DagName, uid: DagUid, spec: DagSpec, now: Timestamp) -> Self {
        let (placement, previous) = (None, None);
        let (created, updated, generation, assigned) = (now, now, 1, None);
        let record = DagRecord {
            name,
            uid,
            spec,
            generation,
            placement,
            previous,
            created,
            updated,
            assigned,
            unconfigured_nts: None,
        };
        Self::restore(record, None)
    }

    /// From the store; which rows the card has is not known.
    pub fn restore(record: DagRecord, explanation: Option<Explanation>) -> Self {
        Self {
            name: record.name,
            uid: record.uid,
            spec: record.spec,
            generation: record.generation,
            place: PlacementState::stored(record.placement, record.previous),
            created: record.created,
            updated: record.updated,
            target: None,
            active: None,
            observed: 0,
            stopped: None,
            operation: None,
            explanation,
            conditions: Vec::new(),
            broken: None,
            assigned: record.assigned,
            nts: NtAnswers::restore(record.unconfigured_nts),
            meter: Meter::default(),
            changes: 0,
        }
    }

    /// Record to be stored.
    pub fn record(&self) -> DagRecord {
        DagRecord {
            name: self.name.clone(),
            uid: self.uid,
            spec: self.spec.clone(),
            generation: self.generation,
            placement: self.place.desired().cloned(),
            previous: self.place.previous().cloned(),
            created: self.created,
            updated: self.updated,
            assigned: self.assigned.clone(),
            unconfigured_nts: self.nts.stored(),
        }
    }

    /// The card that the fleet assigned it to; `None`: it was created on this host.
    pub const fn assigned(&self) -> Option<&AssignedCard> {
        self.assigned.as_ref()
    }

    /// The fleet assigned it to this card.
    pub fn assign(&mut self, to: AssignedCard) {
        self.assigned = Some(to);
    }

    pub const fn name(&self) -> &DagName {
        &self.name
    }

    /// UID that packets carry.
    pub const fn uid(&self) -> DagUid {
        self.uid
    }

    /// Sets the UID that its packets carry. Only while it has no place.
    pub(super) fn set_uid(&mut self, uid: DagUid) {
        debug_assert!(self.placements().next().is_none(), "{}: its rows have its UID", self.name);
        self.uid = uid;
    }

    pub const fn spec(&self) -> &DagSpec {
        &self.spec
    }

    /// Counts changes of its spec and its placements since the daemon started: while it is the same, so are these.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Counts changes of the spec.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The generation that the card serves; zero where it serves none.
    pub const fn observed_generation(&self) -> u64 {
        self.observed
    }

    pub const fn created(&self) -> Timestamp {
        self.created
    }

    pub const fn updated(&self) -> Timestamp {
        self.updated
    }

    /// Part that its tenant's usage counts: its specification, and its card if it has a place.
    pub fn counted(&self) -> (&DagSpec, Option<&CardId>) {
        (self.spec(), self.card())
    }

    /// The next generation of it; gives what was asked for before.
    pub fn change_spec(&mut self, spec: DagSpec, now: Timestamp) -> DagSpec {
        self.generation += 1;
        self.changes += 1;
        self.updated = now;
        std::mem::replace(&mut self.spec, spec)
    }

    /// Desired specification, and those that its placements are for.
    fn specs(&self) -> impl Iterator<Item = &DagSpec> {
        self.placements().map(|placement| &placement.spec).chain([&self.spec])
    }

    /// Whether it, or a placement of it, names a tenant as trusted.
    pub fn names_as_trusted(&self, tenant: &TenantId) -> bool {
        self.specs().any(|spec| spec.trusted_tenants.contains(tenant))
    }

    /// The tenants that it, or a placement of it, names as trusted.
    pub fn trusted(&self) -> BTreeSet<TenantId> {
        self.specs().flat_map(|spec| &spec.trusted_tenants).cloned().collect()
    }

    /// Whether it, or a placement of it, has an NT of this type.
    pub fn uses(&self, nt: &NtTypeId) -> bool {
        self.specs().flat_map(|spec| &spec.nodes).any(|node| node.nt == *nt)
    }

    /// The types of the NTs that it, or a placement of it, has.
    pub fn nts(&self) -> BTreeSet<NtTypeId> {
        self.specs().flat_map(|spec| &spec.nodes).map(|node| node.nt.clone()).collect()
    }

    /// A tenant is gone, and it does not trust that name any more. That is its next generation, and what was
    /// placed for the one before is placed for that.
    pub fn forget_trust(&mut self, tenant: &TenantId, now: Timestamp) {
        let before = self.generation;
        self.generation += 1;
        self.changes += 1;
        self.updated = now;
        self.spec.trusted_tenants.remove(tenant);
        self.place.forget_trust(tenant, before, self.generation);
        if self.observed == before {
            self.observed = self.generation;
        }
    }

    /// Changes its labels or description; its generation stays.
    pub fn annotate(&mut self, notes: Notes, now: Timestamp) {
        self.updated = now;
        self.spec.notes = notes;
    }

    /// The operation that waits for it.
    pub const fn operation(&self) -> Option<&OperationId> {
        self.operation.as_ref()
    }

    /// An operation waits for it from now on.
    pub fn set_operation(&mut self, operation: OperationId) {
        self.operation = Some(operation);
    }

    /// An operation has ended: where it waited for this DAG, it does not any more.
    pub fn end_operation(&mut self, ended: &OperationId) {
        self.operation.take_if(|operation| operation == ended);
    }

    /// Why it is placed as it is.
    pub const fn explanation(&self) -> Option<&Explanation> {
        self.explanation.as_ref()
    }

    /// Why it is placed as it is, where that is known.
    pub fn set_explanation(&mut self, explanation: Option<Explanation>) {
        self.explanation = explanation;
    }

    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// The condition that says whether its promise is kept; none before it was given one.
    pub fn promise(&self) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == ConditionType::PromiseKept)
    }

    /// Promised bandwidth that is not known to be served.
    pub fn unserved(&self) -> Bandwidth {
        let kept = self.promise().is_none_or(|promise| promise.status == ConditionStatus::True);
        if kept { Bandwidth::ZERO } else { self.spec.bandwidth }
    }

    /// Shortfall against the smaller of promise and load, served or known to be served.
    pub fn shortfall(&self) -> Bandwidth {
        let (promised, sizes) = (self.spec.bandwidth, &self.spec.packet_sizes);
        let traffic = self.meter.traffic();
        let missing = traffic.map_or(Bandwidth::ZERO, |traffic| traffic.shortfall(promised, sizes));
        missing.max(self.unserved())
    }

    /// Fault of what it was served in the last second: less than promised of what it sent within its promise, or too late.
    pub fn service_fault(&self) -> Option<BreakCause> {
        if self.is_below_promise() {
            return Some(BreakCause::BelowPromise);
        }
        self.meter.is_above_latency_bound().then_some(BreakCause::LatencyAboveBound)
    }

    fn is_below_promise(&self) -> bool {
        let (promised, sizes) = (self.spec.bandwidth, &self.spec.packet_sizes);
        let missing = |traffic: DagTraffic| traffic.shortfall_within_promise(promised, sizes);
        self.meter.traffic().is_some_and(|traffic| missing(traffic) > Bandwidth::ZERO)
    }

    /// Its promise is broken, which is told; `false` where it was told before.
    pub const fn note_broken(&mut self, now: Timestamp) -> bool {
        let is_new = self.broken.is_none();
        if is_new {
            self.broken = Some(now);
        }
        is_new
    }

    /// Its promise is kept; gives since when it was broken, if it was told that.
    pub const fn note_kept(&mut self) -> Option<Timestamp> {
        self.broken.take()
    }

    /// Whether it is stopped while its state is moved.
    pub const fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// It is as far as these say.
    pub fn set_conditions(&mut self, conditions: Vec<Condition>) {
        self.conditions = conditions;
    }

    /// Its meter: the measured traffic, and what the autoscaler remembers.
    pub const fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Its meter, a machine with private fields that only its verbs change; `sampling` and `scaling` call them.
    pub const fn meter_mut(&mut self) -> &mut Meter {
        &mut self.meter
    }

    /// Its spec, beside its meter to change.
    pub const fn spec_and_meter(&mut self) -> (&DagSpec, &mut Meter) {
        (&self.spec, &mut self.meter)
    }

    /// The desired placement, if one is known.
    pub const fn desired(&self) -> Option<&Placement> {
        self.place.desired()
    }

    /// The placement that it leaves, which serves until the card has another one.
    pub const fn previous(&self) -> Option<&Placement> {
        self.place.previous()
    }

    /// Its placements: the desired one first.
    pub fn placements(&self) -> impl Iterator<Item = &Placement> {
        self.place.placements()
    }

    /// The placement with this serial.
    pub fn placement(&self, serial: u64) -> Option<&Placement> {
        self.place.placement(serial)
    }

    /// The card it is on, or is to be on.
    pub fn card(&self) -> Option<&CardId> {
        self.place.card()
    }

    /// Why it has no place, where that is known.
    pub const fn why_unplaced(&self) -> Option<&Infeasible> {
        self.place.why()
    }

    /// The placement that serves until one that replaces the desired one does.
    pub fn serves_meanwhile(&self) -> Option<&Placement> {
        let serves = |placement: &&Placement| self.active == Some(placement.serial);
        self.previous().or(self.desired().filter(serves))
    }

    /// The desired placement, where one that replaces it takes its room at once: it never served, or
    /// another one does meanwhile.
    pub fn replaced_at_once(&self) -> Option<&Placement> {
        let serves = |placement: &&Placement| self.active == Some(placement.serial);
        self.desired().filter(|placement| self.previous().is_some() || !serves(placement))
    }

    /// The threads of its programs; while it moves, those of the placement that has more.
    pub fn threads(&self) -> u32 {
        self.placements().map(|placement| threads_of(&placement.mapping)).max().unwrap_or(0)
    }

    /// The serial of the next placement.
    pub fn next_serial(&self) -> u64 {
        let known = self.placements().map(|placement| placement.serial).chain(self.active);
        known.max().unwrap_or(0) + 1
    }

    /// It gets a place; what is there serves until the card has the new one.
    pub fn begin(&mut self, next: Placement) {
        self.changes += 1;
        self.nts.leave_others(&next.mapping.card);
        self.place.begin(next);
    }

    /// NTs in these regions and slots of its card are told its configuration; says whether that is to be stored.
    pub fn ask_nts(&mut self, card: &CardId, at: impl Iterator<Item = (u8, u8)>) -> bool {
        self.nts.ask(card, at)
    }

    /// NTs in these regions and slots of its card lack its configuration from now on, or do not; says whether that is to be
    /// stored. What its placements do not use any more is forgotten.
    pub fn windows_ended(
        &mut self,
        card: &CardId,
        ends: impl Iterator<Item = ((u8, u8), bool)>,
    ) -> bool {
        let mut ends = ends.peekable();
        if ends.peek().is_none() && self.nts.is_all_known() {
            return false;
        }
        let used = self.windows().into_keys().collect();
        self.nts.ended(card, ends, &used)
    }

    /// The card was read back with its rows: gives the NTs that may lack its configuration, and count as lacking it until they
    /// are asked again.
    pub fn doubt_nts(&mut self, card: &CardId) -> BTreeSet<(u8, u8)> {
        let used = self.windows().into_keys().collect();
        self.nts.doubt(card, &used)
    }

    /// Its card has no NTs that are told configurations; says whether that is to be stored.
    pub fn forget_nts(&mut self) -> bool {
        std::mem::take(&mut self.nts).stored().is_some()
    }

    /// NTs that its placements use and it configures, by region and slot.
    fn windows(&self) -> BTreeMap<(u8, u8), &NtTypeId> {
        let mut windows = BTreeMap::new();
        for placement in self.placements() {
            let nodes = &placement.spec.nodes;
            let configured = nodes.iter().filter(|node| node.configuration.is_some());
            // An NT takes what is meant for its type, whichever node says it.
            let types: BTreeSet<&NtTypeId> = configured.map(|node| &node.nt).collect();
            let type_of = |id: &NodeId| {
                let node = nodes.iter().find(|node| node.id == *id)?;
                types.contains(&node.nt).then_some(&node.nt)
            };
            for chain in placement.mapping.chains().filter(|_| !types.is_empty()) {
                for instance in &chain.instances {
                    let told = chain.nodes.iter().zip(&instance.slots);
                    let told = told.filter_map(|(node, slot)| Some((slot.0, type_of(node)?)));
                    windows.extend(told.map(|(slot, nt)| ((instance.region.0, slot), nt)));
                }
            }
        }
        windows
    }

    /// Whether all NTs that lack its configuration are the tenant's own programs.
    pub fn lacks_own_only(&self) -> bool {
        let windows = self.windows();
        let tenant = &self.name.tenant;
        let is_own = |at| windows.get(at).is_some_and(|nt| nt.is_owned_by(tenant));
        self.nts.lacking().is_some_and(|lacking| lacking.at.iter().all(is_own))
    }

    /// Whether no NT is known to lack its configuration.
    pub fn is_configured(&self) -> bool {
        self.nts.lacking().is_none()
    }

    /// Explanation which NTs lack its configuration, and what to do; nothing where all have it.
    pub fn lacking_configuration(&self) -> Option<String> {
        self.nts.explanation()
    }

    /// The card has the desired placement: gives what served until now.
    pub fn arrived(&mut self) -> Option<ReplacedPlacement> {
        debug_assert!(self.is_ready(), "{}: what arrives is what the card has", self.name);
        let placement = self.place.arrived()?;
        Some(self.left(placement))
    }

    /// Nothing is desired any more; what serves meanwhile stays.
    pub fn withdraw(&mut self) -> Option<ReplacedPlacement> {
        let placement = self.place.withdraw()?;
        Some(self.left(placement))
    }

    /// Ends the service of the replaced placement.
    pub fn leave(&mut self) -> Option<ReplacedPlacement> {
        let placement = self.place.leave()?;
        Some(self.left(placement))
    }

    /// Makes the serving placement the desired one again, for the present generation; what was desired
    /// instead must have been withdrawn.
    pub fn abort(&mut self) {
        self.changes += 1;
        let next = self.place.abort(self.generation);
        debug_assert!(next.is_none(), "{}: rows and reservation are lost", self.name);
    }

    /// A place was looked for and not found.
    pub fn refused(&mut self, why: Option<Infeasible>) {
        self.place.refused(why);
    }

    fn left(&mut self, placement: Placement) -> ReplacedPlacement {
        let in_target = self.target.take_if(|target| *target == placement.serial).is_some();
        ReplacedPlacement { placement, in_target }
    }

    /// The entry as it would be with a placement, on a card that does not know of it.
    pub fn planned_at(mut self, placement: Placement) -> Self {
        self.place = PlacementState::stored(Some(placement), None);
        self.conditions.clear();
        self.forget_rows();
        self
    }

    /// The placement whose rows the target tables hold.
    pub fn targeted(&self) -> Option<&Placement> {
        let serial = self.target?;
        let placement = self.placement(serial);
        debug_assert!(placement.is_some(), "{}: placement {serial} is gone", self.name);
        placement
    }

    /// Serial of the placement whose rows the target tables hold.
    pub const fn target(&self) -> Option<u64> {
        self.target
    }

    /// The target tables hold the rows of this placement from now on.
    pub fn set_target(&mut self, serial: Option<u64>) {
        debug_assert!(
            serial.is_none_or(|serial| self.placement(serial).is_some()),
            "{}: rows of placement {serial:?}, which it has not",
            self.name
        );
        self.target = serial;
    }

    /// Serial of the placement whose rows the card's tables hold, as read back.
    pub const fn active(&self) -> Option<u64> {
        self.active
    }

    /// The card's tables, as read back, hold the rows of this placement; gives since when the DAG was
    /// stopped, if it was and is no more.
    pub fn set_active(&mut self, serial: Option<u64>) -> Option<Timestamp> {
        self.active = serial;
        let placement = serial.and_then(|serial| self.placement(serial));
        self.observed = placement.map_or(0, |placement| placement.generation);
        self.stopped.take_if(|_| serial.is_some())
    }

    /// No rows lead it anywhere from now on, until its state has been moved.
    pub fn stop(&mut self, now: Timestamp) {
        self.stopped = Some(now);
    }

    /// Forgets which rows the tables hold.
    pub fn forget_rows(&mut self) {
        self.target = None;
        self.active = None;
        self.observed = 0;
    }

    /// Whether it is at rest: what is desired is what serves, and nothing is under way.
    pub fn is_at_rest(&self) -> bool {
        self.previous().is_none() && self.operation.is_none() && self.is_ready()
    }

    /// Bandwidth that it holds beyond what it was guaranteed, where it could be made smaller now.
    pub fn burst_to_give(&self) -> Option<Bandwidth> {
        let holds = self.desired()?.holds();
        let is_borrowed = holds > self.spec.bandwidth && self.is_at_rest();
        is_borrowed.then(|| holds.saturating_sub(self.spec.bandwidth))
    }

    /// The placement that tells how the DAG is: while another one of the same generation is on its
    /// way, the one that serves.
    pub fn shown(&self) -> Option<&Placement> {
        let serves = |p: &&Placement| {
            self.active == Some(p.serial)
                && self.target == self.active
                && p.generation == self.generation
        };
        self.previous().filter(serves).or(self.desired())
    }

    /// Rate of its token bucket where so much was promised.
    pub fn rate(&self, promised: Bandwidth) -> Bandwidth {
        self.meter.rate(promised)
    }

    /// Whether the card, read back, serves the spec that is asked for now.
    pub fn is_served(&self) -> bool {
        let shown = self.shown().map(|p| p.serial);
        shown.is_some() && shown == self.active && shown == self.target
    }

    /// Whether the card, read back, has the placement that is wanted now.
    pub fn is_ready(&self) -> bool {
        let desired = self.desired().map(|p| p.serial);
        desired.is_some() && desired == self.active && desired == self.target
    }
}
