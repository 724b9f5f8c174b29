//! Bindings: the functions, rules and DAGs of a virtual machine, from the request until they are released.
//!
//! ```text
//!           DAGs have a place          DAGs are ready, rules read back
//! Initial ────────────────────► BindStarted ────────────────────► Bound
//!    │                               │                               │ unbound, lease over,
//!    └── too late, DAG gone ─────────┴──► BindFailed                 │ DAG gone
//!                                          (unbound before: Unbound) └──► Unbound
//! ```
//!
//! Functions, their rules and the DAG of a template are reserved in one batch of the
//! store, and released in one: after a crash there is never half a binding.
//! A lease is counted from the last heartbeat or the daemon's start, whichever is later: while the
//! daemon was down nobody could have sent one. Nor does the time count in which it was stopped.
//!
//! This machine has the records and their deadlines; `vm_bindings` makes and deletes the DAGs and rules
//! of a binding.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use snic_domain::limits::{FUNCTION_ROWS, TENANT_HISTORY_MAX};
use snic_domain::{
    BindingSpec, BindingState, BoundFunction, CardId, DagName, PciAddress, TenantId, Timestamp,
    VirtualFunctions, VmId,
};

use crate::protocol::{BindingRecord, ControlError};
use crate::state::tally::Tally;
use crate::store::history::History;
use crate::store::records::{InvalidRecord, Record, RecordKey, storable_reason};
use crate::store::tx::Tx;

/// All bindings, and what follows from them.
#[derive(Debug)]
pub(crate) struct Bindings {
    /// The functions that cards have, by the settings.
    offered: BTreeMap<CardId, VirtualFunctions>,
    records: BTreeMap<VmId, BindingRecord>,
    /// Machine that each function is bound to.
    taken: BTreeMap<(CardId, u16), VmId>,
    /// Bindings that are neither bound nor ended.
    pending: BTreeSet<VmId>,
    /// When something ends by itself: a deadline or a lease.
    alarms: BTreeSet<(Timestamp, VmId)>,
    /// The alarm of each binding that has one.
    alarm_of: BTreeMap<VmId, Timestamp>,
    /// Number of bindings of each tenant that have not ended.
    live: Tally,
    /// Bindings that have ended, by tenant.
    ended: History<TenantId, VmId>,
}

impl Default for Bindings {
    fn default() -> Self {
        Self {
            offered: BTreeMap::new(),
            records: BTreeMap::new(),
            taken: BTreeMap::new(),
            pending: BTreeSet::new(),
            alarms: BTreeSet::new(),
            alarm_of: BTreeMap::new(),
            live: Tally::default(),
            ended: History::new(|_| TENANT_HISTORY_MAX),
        }
    }
}

/// Result of a renewed lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// It runs from now, for as long as before.
    Same,
    /// It has another term from now on.
    OtherTerm,
}

impl Bindings {
    /// Takes up the bindings of a store. Leases run from `now`: see above.
    ///
    /// # Errors
    /// Two have one function.
    pub fn restore(
        &mut self,
        records: Vec<BindingRecord>,
        now: Timestamp,
    ) -> Result<(), InvalidRecord> {
        for record in records {
            let vm = record.spec.vm.clone();
            let alarm = match record.state {
                BindingState::Initial | BindingState::BindStarted => {
                    self.pending.insert(vm.clone());
                    Some(record.deadline)
                }
                BindingState::Bound => record.spec.lease.map(|lease| now + lease),
                BindingState::BindFailed | BindingState::Unbound => None,
            };
            self.set_alarm(&vm, alarm);
            for function in &record.functions {
                let at = (function.card.clone(), function.function);
                if self.taken.insert(at, vm.clone()).is_some() {
                    let reason = "another machine has one of its functions";
                    return Err(InvalidRecord::contradiction(RecordKey::Binding(vm), reason));
                }
            }
            self.records.insert(vm, record);
        }
        let ended = self.records.values().filter(|record| record.state.has_ended());
        for record in self.records.values().filter(|record| !record.state.has_ended()) {
            self.live.add(&record.spec.tenant);
        }
        for record in ended {
            self.ended.note(record.spec.tenant.clone(), record.changed, record.spec.vm.clone());
        }
        Ok(())
    }

    /// Says which virtual functions a card has. Bindings that exist keep theirs.
    pub fn offer(&mut self, card: CardId, functions: VirtualFunctions) {
        self.offered.insert(card, functions);
    }

    /// The same functions as declared to another.
    pub fn offer_as(&mut self, other: &Self) {
        self.offered = other.offered.clone();
    }

    /// A binding, ended or not.
    pub fn get(&self, vm: &VmId) -> Option<&BindingRecord> {
        self.records.get(vm)
    }

    /// A binding that has not ended.
    pub fn live(&self, vm: &VmId) -> Option<&BindingRecord> {
        self.get(vm).filter(|record| !record.state.has_ended())
    }

    /// All of them, by UUID.
    pub fn all(&self) -> impl Iterator<Item = &BindingRecord> {
        self.records.values()
    }

    /// The machines that have functions of a card, by UUID. Time O(its functions · log machines).
    pub fn with_functions_of(&self, card: &CardId) -> BTreeSet<VmId> {
        let functions = self.taken.range((card.clone(), 0)..=(card.clone(), u16::MAX));
        functions.map(|(_, vm)| vm.clone()).collect()
    }

    /// Those behind this one, by UUID.
    pub fn after<'a>(
        &'a self,
        after: Option<&VmId>,
    ) -> impl Iterator<Item = &'a BindingRecord> + use<'a> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.records.range::<VmId, _>((start, Bound::Unbounded)).map(|(_, record)| record)
    }

    /// Those that are neither bound nor ended, by UUID.
    pub fn pending(&self) -> Vec<VmId> {
        self.pending.iter().cloned().collect()
    }

    /// A machine that uses a DAG now.
    pub fn user_of(&self, dag: &DagName) -> Option<&VmId> {
        let mut live = self.users();
        live.find(|record| record.dags().contains(dag)).map(|record| &record.spec.vm)
    }

    /// Bindings that have not ended. Time O(bindings).
    pub fn users(&self) -> impl Iterator<Item = &BindingRecord> {
        self.all().filter(|record| !record.state.has_ended())
    }

    /// The functions of a tenant's machines, with the machine of each. Time O(bindings).
    pub fn functions_of<'a>(
        &'a self,
        tenant: &'a TenantId,
    ) -> impl Iterator<Item = (&'a VmId, &'a BoundFunction)> {
        let own = self.all().filter(move |record| record.spec.tenant == *tenant);
        own.flat_map(|record| record.functions.iter().map(move |of| (&record.spec.vm, of)))
    }

    fn set_alarm(&mut self, vm: &VmId, at: Option<Timestamp>) {
        if let Some(before) = self.alarm_of.remove(vm) {
            self.alarms.remove(&(before, vm.clone()));
        }
        if let Some(at) = at {
            self.alarms.insert((at, vm.clone()));
            self.alarm_of.insert(vm.clone(), at);
        }
    }

    /// Everything that ends by itself ends so much later: meanwhile no heartbeat was heard, and no card. Time
    /// O(alarms · log alarms).
    pub fn postpone_alarms(&mut self, by: Duration) {
        self.alarm_of.values_mut().for_each(|at| *at = *at + by);
        self.alarms = self.alarm_of.iter().map(|(vm, at)| (*at, vm.clone())).collect();
    }

    /// When something ends by itself next.
    pub fn next_alarm(&self) -> Option<Timestamp> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// A binding whose deadline or lease is over.
    pub fn due(&self, now: Timestamp) -> Option<&VmId> {
        self.alarms.first().filter(|(at, _)| *at <= now).map(|(_, vm)| vm)
    }

    /// When a bound one is given back unless a heartbeat comes.
    pub fn expires(&self, vm: &VmId) -> Option<Timestamp> {
        self.get(vm).filter(|record| record.state == BindingState::Bound)?;
        self.alarm_of.get(vm).copied()
    }

    /// Number of bindings of a tenant that have not ended.
    pub fn live_of(&self, tenant: &TenantId) -> u32 {
        self.live.of(tenant)
    }

    /// A new binding, with the DAG that was made for it; in place of one that has ended.
    pub fn begin(&mut self, spec: BindingSpec, own: Option<DagName>, now: Timestamp) {
        let (vm, deadline) = (spec.vm.clone(), now + spec.ready_within);
        assert!(self.live(&vm).is_none(), "{vm} is bound; its lease is to be renewed instead");
        if let Some(before) = self.records.get(&vm) {
            self.ended.remove(before.changed, &vm);
        }
        let record = BindingRecord { own, ..BindingRecord::new(spec, now, deadline) };
        self.live.add(&record.spec.tenant);
        self.records.insert(vm.clone(), record);
        self.pending.insert(vm.clone());
        self.set_alarm(&vm, Some(deadline));
    }

    fn live_mut(&mut self, vm: &VmId) -> &mut BindingRecord {
        let live = self.records.get_mut(vm).filter(|record| !record.state.has_ended());
        live.expect("only a binding that has not ended is changed")
    }

    /// Number of functions of a card that can be bound: those that its tables have rows for.
    fn count_of(&self, card: &CardId) -> u16 {
        let count = self.offered.get(card).map_or(0, |offered| offered.count);
        count.min(FUNCTION_ROWS as u16)
    }

    /// The first function of a card that no machine has, and its address.
    ///
    /// # Errors
    /// There is none.
    pub fn free_function(&self, card: &CardId) -> Result<(u16, PciAddress), ControlError> {
        let offered = self.offered.get(card);
        let count = self.count_of(card);
        let free = (0..count).find(|n| !self.taken.contains_key(&(card.clone(), *n)));
        let found = offered.zip(free).and_then(|(all, n)| Some((n, all.address(n)?)));
        found.ok_or_else(|| no_function(card, count, (1, 0)))
    }

    /// Number of functions that machines have, by card.
    pub fn functions_taken(&self) -> BTreeMap<CardId, u32> {
        let mut taken: BTreeMap<CardId, u32> = BTreeMap::new();
        for (card, _) in self.taken.keys() {
            *taken.entry(card.clone()).or_default() += 1;
        }
        taken
    }

    /// Returns how many functions of a card are free.
    ///
    /// # Errors
    /// Fewer than `needed` are.
    pub fn check_free_functions(
        &self,
        card: &CardId,
        needed: usize,
    ) -> Result<usize, ControlError> {
        let count = self.count_of(card);
        let taken = self.taken.keys().filter(|(of, _)| of == card).count();
        let left = usize::from(count).saturating_sub(taken);
        if left >= needed {
            return Ok(left);
        }
        Err(no_function(card, count, (needed, left)))
    }

    /// A machine gets a function that was free.
    pub fn assign(&mut self, vm: &VmId, function: BoundFunction) {
        let at = (function.card.clone(), function.function);
        let before = self.taken.insert(at, vm.clone());
        assert_eq!(before, None, "only a function that is free is given to {vm}");
        self.live_mut(vm).functions.push(function);
    }

    /// Takes all functions back.
    pub fn release(&mut self, vm: &VmId) {
        let functions = std::mem::take(&mut self.live_mut(vm).functions);
        for function in &functions {
            let before = self.taken.remove(&(function.card.clone(), function.function));
            assert_eq!(before.as_ref(), Some(vm), "a machine has the functions of its record");
        }
    }

    /// It has its functions, and their rules are on their way to the card.
    pub fn started(&mut self, vm: &VmId, now: Timestamp) {
        let record = self.live_mut(vm);
        record.state = BindingState::BindStarted;
        record.changed = now;
    }

    /// All that it leads to is ready; the lease runs.
    pub fn bound(&mut self, tx: &mut Tx, vm: &VmId) {
        let now = tx.now();
        let record = self.live_mut(vm);
        record.state = BindingState::Bound;
        record.changed = now;
        let lease = record.spec.lease;
        self.pending.remove(vm);
        self.set_alarm(vm, lease.map(|lease| now + lease));
        self.store(tx, vm);
    }

    /// The lease of a machine runs from now, with another term where one is asked for.
    pub fn renew(&mut self, tx: &mut Tx, vm: &VmId, term: Option<Option<Duration>>) -> Renewal {
        let record = self.live_mut(vm);
        let term = term.unwrap_or(record.spec.lease);
        let before = std::mem::replace(&mut record.spec.lease, term);
        if record.state == BindingState::Bound {
            self.set_alarm(vm, term.map(|lease| tx.now() + lease));
        }
        if before == term {
            return Renewal::Same;
        }
        self.store(tx, vm);
        Renewal::OtherTerm
    }

    /// Ends a binding whose functions were taken back; gives the DAG that was made for it.
    pub fn end(
        &mut self,
        tx: &mut Tx,
        vm: &VmId,
        state: BindingState,
        reason: Option<String>,
    ) -> Option<DagName> {
        assert!(state.has_ended(), "{state:?} is no end");
        let record = self.live_mut(vm);
        record.state = state;
        record.changed = tx.now();
        record.reason = reason.map(storable_reason);
        let (own, tenant) = (record.own.take(), record.spec.tenant.clone());
        self.pending.remove(vm);
        self.set_alarm(vm, None);
        self.live.remove(&tenant);
        self.ended.note(tenant, tx.now(), vm.clone());
        self.store(tx, vm);
        own
    }

    /// Undoes a binding that could not even begin, and whose functions were taken back: as if it had
    /// never been asked for. Gives the DAG that was made for it.
    pub fn undo(&mut self, tx: &mut Tx, vm: &VmId) -> Option<DagName> {
        let record = self.records.remove(vm).expect("it was just begun");
        self.live.remove(&record.spec.tenant);
        assert!(record.functions.is_empty(), "they were taken back before");
        self.pending.remove(vm);
        self.set_alarm(vm, None);
        // An ended binding of this machine may be in the store.
        tx.delete(RecordKey::Binding(vm.clone()));
        record.own
    }

    /// The next binding that is not to be remembered any more; to be given to [`Bindings::forget`].
    pub fn outdated(&mut self, now: Timestamp) -> Option<VmId> {
        self.ended.forget(now)
    }

    /// The ended bindings of a tenant that was deleted; to be given to [`Bindings::forget`].
    pub fn retire(&mut self, tenant: &TenantId) -> Vec<VmId> {
        self.ended.retire(tenant)
    }

    /// Forgets a binding that has ended.
    pub fn forget(&mut self, tx: &mut Tx, vm: VmId) {
        self.records.remove(&vm);
        tx.delete(RecordKey::Binding(vm));
    }

    pub fn store(&self, tx: &mut Tx, vm: &VmId) {
        tx.put(Record::Binding(self.records[vm].clone()));
    }

    /// Every invariant, recomputed from scratch; says which is broken.
    pub fn check(&self) -> Result<(), String> {
        let mut taken: BTreeMap<(CardId, u16), VmId> = BTreeMap::new();
        for (vm, record) in &self.records {
            for function in &record.functions {
                let at = (function.card.clone(), function.function);
                if let Some(other) = taken.insert(at, vm.clone()) {
                    return Err(format!("{vm} and {other} have one function"));
                }
            }
            self.check_record(vm, record)?;
        }
        if taken != self.taken {
            return Err("the functions taken are not those of the bindings".into());
        }
        if self.alarms.len() != self.alarm_of.len() {
            return Err("a binding has two alarms".into());
        }
        let ended = self.records.values().filter(|record| record.state.has_ended());
        let ended: BTreeSet<_> = ended.map(|r| (&r.spec.tenant, &r.spec.vm)).collect();
        if self.ended.names().collect::<BTreeSet<_>>() != ended {
            return Err("a binding is not where the ended ones are".into());
        }
        let live = self.records.values().filter(|record| !record.state.has_ended());
        if !self.live.counts(live.map(|record| &record.spec.tenant)) {
            return Err("the bindings that have not ended are miscounted".into());
        }
        self.ended.check()
    }

    fn check_record(&self, vm: &VmId, record: &BindingRecord) -> Result<(), String> {
        use BindingState::{BindFailed, BindStarted, Bound, Initial, Unbound};
        let pending = matches!(record.state, Initial | BindStarted);
        let wants_alarm = match record.state {
            Initial | BindStarted => true,
            Bound => record.spec.lease.is_some(),
            BindFailed | Unbound => false,
        };
        let functions = match record.state {
            BindStarted | Bound => usize::from(record.spec.functions),
            Initial | BindFailed | Unbound => 0,
        };
        let wrong = if record.functions.len() != functions {
            "it has not the functions that its state says"
        } else if self.pending.contains(vm) != pending {
            "it is not where the pending ones are"
        } else if self.alarm_of.contains_key(vm) != wants_alarm {
            "it has an alarm without a reason, or none with one"
        } else {
            return Ok(());
        };
        Err(format!("binding of {vm}, {:?}: {wrong}", record.state))
    }
}

/// A card that has `count` functions has fewer left than are needed.
fn no_function(card: &CardId, count: u16, (needed, left): (usize, usize)) -> ControlError {
    ControlError::Exhausted {
        what: format!("virtual functions of cards/{card}"),
        limit: count.into(),
        hint: format!(
            "{needed} needed, {left} left: unbind a machine first, or enable more in the settings of the card"
        ),
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::limits::OPERATION_KEPT;
    use snic_domain::{BindingTarget, DagId, MacAddress, RuleId};

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn vm(number: u8) -> VmId {
        format!("123e4567-e89b-12d3-a456-4266141740{number:02}").parse().expect("a UUID")
    }

    fn card() -> CardId {
        CardId::new("card0").expect("a label")
    }

    fn dag() -> DagName {
        let tenant = TenantId::new("acme").expect("a label");
        DagName { tenant, dag: DagId::new("web").expect("a label") }
    }

    fn spec(number: u8, lease: Option<Duration>) -> BindingSpec {
        BindingSpec {
            vm: vm(number),
            tenant: dag().tenant,
            chains: BindingTarget::Dags(vec![dag()]),
            functions: 1,
            ready_within: seconds(5),
            lease,
            notes: Default::default(),
            limits: Default::default(),
        }
    }

    fn bindings() -> Bindings {
        let mut bindings = Bindings::default();
        let physical_function = "0000:3b:00.0".parse().expect("an address");
        let functions =
            VirtualFunctions { physical_function, count: 2, first_offset: 1, stride: 1 };
        bindings.offer(card(), functions);
        bindings
    }

    fn give(bindings: &mut Bindings, number: u8) -> Result<u16, ControlError> {
        let (function, pci_address) = bindings.free_function(&card())?;
        let mac_address = MacAddress::of_function("7/card0", function);
        let rule = RuleId::new(&format!("vm-{number}")).expect("a label");
        let bound =
            BoundFunction { card: card(), function, pci_address, mac_address, dag: dag(), rule };
        bindings.assign(&vm(number), bound);
        Ok(function)
    }

    /// A binding that is bound at second 2.
    fn bound(bindings: &mut Bindings, tx: &mut Tx, number: u8, lease: Option<Duration>) {
        bindings.begin(spec(number, lease), None, at(1));
        give(bindings, number).expect("one is free");
        bindings.started(&vm(number), at(1));
        tx.pass_to(at(2));
        bindings.bound(tx, &vm(number));
        bindings.check().expect("consistent");
    }

    #[test]
    fn a_binding_is_late_at_its_deadline_and_then_its_lease_runs() {
        let mut bindings = bindings();
        let mut tx = Tx::default();
        bindings.begin(spec(1, Some(seconds(60))), None, at(1));
        assert_eq!((bindings.pending(), bindings.next_alarm()), (vec![vm(1)], Some(at(6))));
        assert_eq!((bindings.due(at(5)), bindings.due(at(6))), (None, Some(&vm(1))));
        assert_eq!(bindings.expires(&vm(1)), None, "it is not bound");
        give(&mut bindings, 1).expect("one is free");
        bindings.started(&vm(1), at(2));
        tx.pass_to(at(3));
        bindings.bound(&mut tx, &vm(1));
        assert_eq!((bindings.pending(), bindings.expires(&vm(1))), (vec![], Some(at(63))));
        tx.pass_to(at(50));
        assert_eq!(bindings.renew(&mut tx, &vm(1), None), Renewal::Same);
        assert_eq!(bindings.expires(&vm(1)), Some(at(110)));
        let shorter = Some(Some(seconds(30)));
        tx.pass_to(at(50));
        assert_eq!(bindings.renew(&mut tx, &vm(1), shorter), Renewal::OtherTerm);
        assert_eq!(bindings.expires(&vm(1)), Some(at(80)));
        tx.pass_to(at(50));
        assert_eq!(bindings.renew(&mut tx, &vm(1), Some(None)), Renewal::OtherTerm);
        assert_eq!(bindings.next_alarm(), None, "without a lease it stays");
        bindings.check().expect("consistent");
    }

    #[test]
    fn functions_are_given_once_and_taken_back_together() {
        let mut bindings = bindings();
        let mut tx = Tx::default();
        for number in 1..=3 {
            bindings.begin(spec(number, None), None, at(1));
        }
        assert_eq!((give(&mut bindings, 1), give(&mut bindings, 2)), (Ok(0), Ok(1)));
        let full = give(&mut bindings, 3);
        assert!(matches!(full, Err(ControlError::Exhausted { limit: 2, .. })), "{full:?}");
        let told =
            bindings.check_free_functions(&card(), 1).expect_err("all are taken").to_string();
        assert!(told.contains("at most 2; 1 needed, 0 left: unbind"), "{told}");
        let unknown = bindings.free_function(&CardId::new("card1").expect("a label"));
        assert!(matches!(unknown, Err(ControlError::Exhausted { limit: 0, .. })), "{unknown:?}");
        let back: Vec<u16> =
            bindings.get(&vm(1)).expect("bound").functions.iter().map(|f| f.function).collect();
        bindings.release(&vm(1));
        assert_eq!(back, [0]);
        tx.pass_to(at(2));
        assert_eq!(bindings.end(&mut tx, &vm(1), BindingState::BindFailed, None), None);
        assert_eq!(give(&mut bindings, 3), Ok(0));
    }

    #[test]
    fn ended_bindings_are_kept_for_a_while_and_may_begin_again() {
        let mut bindings = bindings();
        let mut tx = Tx::default();
        bound(&mut bindings, &mut tx, 1, None);
        assert_eq!(bindings.user_of(&dag()), Some(&vm(1)));
        bindings.release(&vm(1));
        tx.pass_to(at(10));
        bindings.end(&mut tx, &vm(1), BindingState::Unbound, Some("asked".into()));
        assert_eq!((bindings.live(&vm(1)), bindings.user_of(&dag())), (None, None));
        assert_eq!(bindings.get(&vm(1)).and_then(|r| r.reason.as_deref()), Some("asked"));
        assert_eq!(bindings.outdated(at(9) + OPERATION_KEPT), None);
        bindings.begin(spec(1, None), None, at(20));
        assert_eq!(bindings.outdated(at(10) + OPERATION_KEPT), None);
        assert_eq!(bindings.undo(&mut tx, &vm(1)), None);
        assert_eq!(bindings.get(&vm(1)), None);
        assert_eq!(tx.writes().last().map(|(_, value)| value.is_none()), Some(true));
        bindings.check().expect("consistent");
    }

    #[test]
    fn a_restart_keeps_deadlines_and_counts_leases_anew() {
        let mut bindings = bindings();
        let mut tx = Tx::default();
        bound(&mut bindings, &mut tx, 1, Some(seconds(60)));
        bindings.begin(spec(2, None), Some(dag()), at(3));
        bindings.store(&mut tx, &vm(2));
        let mut last = BTreeMap::new();
        for (key, value) in tx.writes() {
            let value = value.as_deref().expect("nothing was deleted");
            let Ok(Record::Binding(record)) = Record::parse(key, value) else { panic!("{key}") };
            last.insert(key, record);
        }
        let records: Vec<BindingRecord> = last.into_values().collect();
        let mut again = self::bindings();
        again.restore(records.clone(), at(100)).expect("our own records");
        again.check().expect("consistent");
        assert_eq!(again.expires(&vm(1)), Some(at(160)));
        assert_eq!((again.pending(), again.due(at(100))), (vec![vm(2)], Some(&vm(2))));
        let mut twice = records;
        twice[1].functions = twice[0].functions.clone();
        let error =
            self::bindings().restore(twice, at(100)).expect_err("one function, two machines");
        assert!(matches!(error, InvalidRecord::Contradiction { .. }), "{error}");
    }

    #[test]
    #[should_panic(expected = "has not ended")]
    fn an_ended_binding_does_not_change() {
        let mut bindings = bindings();
        let mut tx = Tx::default();
        bound(&mut bindings, &mut tx, 1, None);
        bindings.release(&vm(1));
        tx.pass_to(at(3));
        bindings.end(&mut tx, &vm(1), BindingState::Unbound, None);
        tx.pass_to(at(4));
        bindings.end(&mut tx, &vm(1), BindingState::Unbound, None);
    }
}
