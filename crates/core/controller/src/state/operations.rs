//! Operations (AIP-151): what takes longer than a reply, to be polled, waited for, or cancelled
//! before it starts. Each ends once, and is remembered for a while after that.
//!
//! ```text
//!          begin            start              end              forget_old, delete
//!  (none) ───────► pending ───────► started ───────► ended ───────────────────────► (none)
//!                     └──────────────────────────────► (cancelled, or done at once)
//! ```
//!
//! An operation names the work that it stands for; the work itself is known to the machine that does it.

use std::collections::BTreeMap;

use snic_domain::limits::{OPERATOR_HISTORY_MAX, TENANT_HISTORY_MAX};
use snic_domain::{BitstreamId, CardId, Digest, OperationId, RegionId, TenantId, Timestamp};
use snic_tables::Ticket;

use crate::protocol::{Caller, Change, ControlError, DagMoves, OperationRecord, OperationWork};
use crate::state::tally::Tally;
use crate::store::history::History;
use crate::store::records::{Audience, Meta, Record, RecordKey, storable_error};
use crate::store::tx::Tx;

/// Work of operators that has not ended, for those who look for it by card.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pending {
    /// Without a region, of all of the card.
    Drain {
        card: CardId,
        region: Option<RegionId>,
    },
    /// The card is closed and opened again.
    Reopening {
        card: CardId,
        closing: CardClosing,
    },
    Removal(Removal),
}

/// Progress of closing a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CardClosing {
    /// Whether its thread was told to is not known: the daemon started since, or the card was lost.
    Unknown,
    /// Its thread was told to.
    Asked {
        /// With this command.
        ticket: Ticket,
        /// Whether it is carried out also where the card is lost meanwhile.
        survives_loss: bool,
    },
    /// It was closed for this command, and is opened.
    Closed(Ticket),
}

impl CardClosing {
    /// The command that it was told.
    pub const fn ticket(self) -> Option<Ticket> {
        match self {
            Self::Unknown => None,
            Self::Asked { ticket, .. } | Self::Closed(ticket) => Some(ticket),
        }
    }
}

/// Resource that is deleted once no DAG of others uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Removal {
    Bitstream(BitstreamId),
    /// A tenant with all that it owns.
    Tenant(TenantId),
}

impl Pending {
    fn of(work: &OperationWork) -> Option<Self> {
        match work {
            OperationWork::DrainRegion(card, region) => {
                Some(Self::Drain { card: card.clone(), region: Some(*region) })
            }
            OperationWork::DrainCard(card) => {
                Some(Self::Drain { card: card.clone(), region: None })
            }
            OperationWork::LoadRole { card, .. } | OperationWork::ResetCard { card, .. } => {
                Some(Self::reopening(card.clone()))
            }
            OperationWork::DeleteBitstream(id) => {
                Some(Self::Removal(Removal::Bitstream(id.clone())))
            }
            OperationWork::DeleteTenant(id) => Some(Self::Removal(Removal::Tenant(id.clone()))),
            OperationWork::CreateDag(_)
            | OperationWork::UpdateDag(_)
            | OperationWork::DeleteDag(..)
            | OperationWork::ResetRegion(..)
            | OperationWork::OptimizeCard(_) => None,
        }
    }

    const fn reopening(card: CardId) -> Self {
        Self::Reopening { card, closing: CardClosing::Unknown }
    }
}

/// Progress of an operation when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkDone {
    /// Regions of its work, and those that are done.
    pub regions: (u32, u32),
    /// Moves of a consolidation.
    pub moves: Option<DagMoves>,
}

/// An operation that closes a card and opens it again, and has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reopening<'a> {
    pub operation: &'a OperationId,
    pub closing: CardClosing,
}

/// All operations that have not ended, and those that ended lately.
#[derive(Debug)]
pub(crate) struct Operations {
    meta: Meta,
    /// Whether a store has it: what is derived from its secret must not change with a restart.
    meta_is_stored: bool,
    records: BTreeMap<OperationId, OperationRecord>,
    pending: BTreeMap<OperationId, Pending>,
    /// Number of operations of each tenant that have not ended.
    open: Tally,
    /// Those that have ended, by the tenant that they are of; without one they are of operators.
    ended: History<Option<TenantId>, OperationId>,
}

/// Most operations that have ended, of a tenant or of operators.
fn kept_max(tenant: &Option<TenantId>) -> usize {
    if tenant.is_some() { TENANT_HISTORY_MAX } else { OPERATOR_HISTORY_MAX }
}

impl Operations {
    /// None, in a store that has this or will have it.
    pub fn new(meta: Meta, meta_is_stored: bool) -> Self {
        Self {
            meta,
            meta_is_stored,
            records: BTreeMap::new(),
            pending: BTreeMap::new(),
            open: Tally::default(),
            ended: History::new(kept_max),
        }
    }

    /// Takes up the operations of a store.
    pub fn restore(&mut self, records: Vec<OperationRecord>) {
        for record in records {
            match &record.ended {
                Some((at, _)) => self.ended.note(record.tenant().cloned(), *at, record.id.clone()),
                None => self.note_pending(&record),
            }
            if let (None, Some(tenant)) = (&record.ended, record.tenant()) {
                self.open.add(tenant);
            }
            self.records.insert(record.id.clone(), record);
        }
    }

    fn note_pending(&mut self, record: &OperationRecord) {
        self.pending.extend(Pending::of(&record.work).map(|work| (record.id.clone(), work)));
    }

    pub fn get(&self, id: &OperationId) -> Option<&OperationRecord> {
        self.records.get(id)
    }

    /// Number of operations of a tenant that have not ended.
    pub fn open_of(&self, tenant: &TenantId) -> u32 {
        self.open.of(tenant)
    }

    /// All of them, by id.
    pub fn all(&self) -> impl Iterator<Item = &OperationRecord> {
        self.records.values()
    }

    /// # Errors
    /// It does not exist, or the caller may not know of it.
    pub fn visible(
        &self,
        caller: &Caller,
        id: &OperationId,
    ) -> Result<&OperationRecord, ControlError> {
        self.get(id)
            .filter(|record| caller.may_change(record.tenant()))
            .ok_or_else(|| ControlError::not_found(format!("operations/{id}")))
    }

    /// A new operation. Its id tells nothing about others.
    pub fn begin(&mut self, tx: &mut Tx, work: OperationWork, now: Timestamp) -> OperationId {
        self.meta.operations += 1;
        self.put_meta(tx);
        let seed = format!("{}/{}", self.meta.secret, self.meta.operations);
        let [a, b, ..] = Digest::of(seed.as_bytes()).words();
        let id = OperationId::new(&format!("op-{a:08x}{b:08x}"))
            .expect("a prefix and sixteen hexadecimal digits are a label");
        let record = OperationRecord::new(id.clone(), work, now);
        tx.put(Record::Operation(record.clone()));
        self.note_pending(&record);
        if let Some(tenant) = record.tenant() {
            self.open.add(tenant);
        }
        self.records.insert(id.clone(), record);
        id
    }

    /// A card was asked for something on its behalf: from now on it cannot be cancelled. It is stored
    /// with the operation's end: the card need not wait for it, since after a crash the operation
    /// starts again.
    pub fn start(&mut self, id: &OperationId, now: Timestamp) {
        let record = self.records.get_mut(id).expect("it is remembered until after its end");
        record.started.get_or_insert(now);
    }

    /// Ends an operation whose work got so far; gives what it was for.
    pub fn end(
        &mut self,
        tx: &mut Tx,
        id: &OperationId,
        (now, result): (Timestamp, Result<(), ControlError>),
        WorkDone { regions, moves }: WorkDone,
    ) -> &OperationWork {
        let record = self.records.get_mut(id).expect("it is remembered until after its end");
        assert!(record.ended.is_none(), "{id} ends once: what it is for is done or given up once");
        let result = result.map_err(|error| storable_error(&error));
        (record.ended, record.regions, record.moves) = (Some((now, result)), Some(regions), moves);
        tx.put(Record::Operation(record.clone()));
        tx.emit(Change::Operation(id.clone()));
        if let Some(tenant) = record.tenant() {
            self.open.remove(tenant);
        }
        self.ended.note(record.tenant().cloned(), now, id.clone());
        self.pending.remove(id);
        &record.work
    }

    /// The drains that have not ended, with the card and the region that they are of; without a
    /// region, of all of the card.
    pub fn drains(&self) -> impl Iterator<Item = (&OperationId, &CardId, Option<RegionId>)> {
        self.pending.iter().filter_map(|(id, pending)| match pending {
            Pending::Drain { card, region } => Some((id, card, *region)),
            Pending::Reopening { .. } | Pending::Removal(_) => None,
        })
    }

    /// Resource that an operation deletes once no DAG of others uses it, while it has not ended.
    pub fn removal(&self, id: &OperationId) -> Option<&Removal> {
        match self.pending.get(id)? {
            Pending::Removal(removal) => Some(removal),
            Pending::Drain { .. } | Pending::Reopening { .. } => None,
        }
    }

    /// Resources that are deleted once no other tenant's DAG uses them.
    pub fn removals(&self) -> impl Iterator<Item = (&OperationId, &Removal)> {
        self.pending.iter().filter_map(|(id, pending)| match pending {
            Pending::Removal(removal) => Some((id, removal)),
            Pending::Drain { .. } | Pending::Reopening { .. } => None,
        })
    }

    /// Operation that closes a card and opens it again, and has not ended.
    pub fn reopening(&self, on: &CardId) -> Option<Reopening<'_>> {
        self.pending.iter().find_map(|(operation, pending)| match pending {
            Pending::Reopening { card, closing } if card == on => {
                Some(Reopening { operation, closing: *closing })
            }
            _ => None,
        })
    }

    /// A card's thread is told to close it on behalf of an operation, or did so.
    pub fn set_closing(&mut self, id: &OperationId, now: CardClosing) {
        match self.pending.get_mut(id) {
            Some(Pending::Reopening { closing, .. }) => *closing = now,
            other => panic!("{id} closes a card and opens it again, and is {other:?}"),
        }
    }

    /// Forgets an operation that has ended.
    ///
    /// # Errors
    /// It does not exist, the caller may not know of it, or it has not ended.
    pub fn delete(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        id: &OperationId,
    ) -> Result<(), ControlError> {
        let Some((at, _)) = self.visible(caller, id)?.ended else {
            let text = "it has not ended; wait, or cancel it";
            return Err(ControlError::precondition(format!("operations/{id}"), text));
        };
        self.ended.remove(at, id);
        self.forget(tx, id);
        Ok(())
    }

    fn forget(&mut self, tx: &mut Tx, id: &OperationId) {
        let Some(record) = self.records.remove(id) else { return };
        tx.delete_of(Audience::of_owner(record.tenant()), RecordKey::Operation(id.clone()));
    }

    /// Forgets what ended long ago, and of those who have too many their oldest. Amortised O(log
    /// operations) an event.
    pub fn forget_old(&mut self, tx: &mut Tx, now: Timestamp) {
        while let Some(id) = self.ended.forget(now) {
            self.forget(tx, &id);
        }
    }

    /// Forgets what ended of a tenant that was deleted: its name is another's now.
    pub fn retire(&mut self, tx: &mut Tx, tenant: &TenantId) {
        for id in self.ended.retire(&Some(tenant.clone())) {
            self.forget(tx, &id);
        }
    }

    /// Stores the secret with the first thing that is stored at all.
    pub fn store_meta_once(&mut self, tx: &mut Tx) {
        if !self.meta_is_stored && !tx.writes().is_empty() {
            self.put_meta(tx);
        }
    }

    fn put_meta(&mut self, tx: &mut Tx) {
        self.meta_is_stored = true;
        tx.put(Record::Meta(self.meta.clone()));
    }

    /// Every invariant, recomputed from scratch; says which is broken. Time O(state · log state).
    pub fn check(&self) -> Result<(), String> {
        let open = self.records.values().filter(|record| record.ended.is_none());
        let pending = open.filter_map(|record| Some((&record.id, Pending::of(&record.work)?)));
        let unasked = |pending: &Pending| match pending {
            Pending::Reopening { card, .. } => Pending::reopening(card.clone()),
            drain => drain.clone(),
        };
        if !pending.eq(self.pending.iter().map(|(id, pending)| (id, unasked(pending)))) {
            return Err("the pending work is not that of the operations that have not ended".into());
        }
        let open = self.records.values().filter(|record| record.ended.is_none());
        if !self.open.counts(open.filter_map(OperationRecord::tenant)) {
            return Err("the operations that have not ended are miscounted".into());
        }
        let ended = self.records.values().filter(|record| record.ended.is_some()).count();
        let is_ended = |(tenant, id): (&Option<TenantId>, &OperationId)| {
            let ended = self.records.get(id).filter(|record| record.ended.is_some());
            ended.is_some_and(|record| record.tenant() == tenant.as_ref())
        };
        if ended != self.ended.names().count() || !self.ended.names().all(is_ended) {
            return Err("the ended operations are not those that are remembered as ended".into());
        }
        self.ended.check()
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::limits::OPERATION_KEPT;
    use snic_domain::{DagId, DagName, TenantId};

    use super::*;
    use crate::store::records::LAYOUT;

    const NO_WORK: WorkDone = WorkDone { regions: (0, 0), moves: None };

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn card() -> CardId {
        CardId::new("card0").expect("a label")
    }

    fn dag(tenant: &str) -> DagName {
        let tenant = TenantId::new(tenant).expect("a label");
        DagName { tenant, dag: DagId::new("web").expect("a label") }
    }

    fn operations() -> Operations {
        Operations::new(Meta { schema: LAYOUT, secret: 7, operations: 0 }, false)
    }

    /// Records stored after these writes, read back.
    fn stored(tx: &Tx) -> Vec<OperationRecord> {
        let mut last = BTreeMap::new();
        for (key, value) in tx.writes() {
            match value.as_ref().map(|value| Record::parse(key, value)) {
                Some(Ok(Record::Operation(record))) => last.insert(key.clone(), record),
                Some(Ok(Record::Meta(_))) => None,
                None => last.remove(key),
                other => panic!("{key}: {other:?}"),
            };
        }
        last.into_values().collect()
    }

    #[test]
    fn an_operation_begins_starts_and_ends_once() {
        let mut operations = operations();
        let mut tx = Tx::default();
        let id = operations.begin(&mut tx, OperationWork::CreateDag(dag("acme")), at(1));
        let before = tx.writes().len();
        operations.start(&id, at(2));
        operations.start(&id, at(3));
        assert_eq!(tx.writes().len(), before, "a start is stored with the end");
        let work = operations.end(&mut tx, &id, (at(4), Ok(())), NO_WORK);
        assert_eq!(*work, OperationWork::CreateDag(dag("acme")));
        let record = operations.get(&id).expect("it is remembered");
        assert_eq!((record.created, record.started), (at(1), Some(at(2))));
        assert_eq!(record.ended, Some((at(4), Ok(()))));
        assert_eq!(stored(&tx), std::slice::from_ref(record));
        operations.check().expect("consistent");
    }

    #[test]
    #[should_panic(expected = "ends once")]
    fn a_second_end_is_a_bug() {
        let mut operations = operations();
        let mut tx = Tx::default();
        let id = operations.begin(&mut tx, OperationWork::DrainCard(card()), at(1));
        operations.end(&mut tx, &id, (at(2), Ok(())), NO_WORK);
        operations.end(&mut tx, &id, (at(3), Err(ControlError::Cancelled)), NO_WORK);
    }

    #[test]
    fn pending_work_is_found_by_card_until_it_ends() {
        let mut operations = operations();
        let mut tx = Tx::default();
        let all = operations.begin(&mut tx, OperationWork::DrainCard(card()), at(1));
        let one = operations.begin(&mut tx, OperationWork::DrainRegion(card(), RegionId(2)), at(1));
        let role = OperationWork::LoadRole { card: card(), force: true };
        let role = operations.begin(&mut tx, role, at(1));
        let drains = |operations: &Operations| -> Vec<(OperationId, Option<RegionId>)> {
            operations.drains().map(|(id, _, region)| (id.clone(), region)).collect()
        };
        let mut both = vec![(all.clone(), None), (one.clone(), Some(RegionId(2)))];
        both.sort();
        assert_eq!(drains(&operations), both);
        let other = CardId::new("card1").expect("a label");
        assert_eq!(operations.reopening(&other), None);
        let closing = |operations: &Operations| operations.reopening(&card()).map(|o| o.closing);
        assert_eq!(closing(&operations), Some(CardClosing::Unknown));
        operations.set_closing(&role, CardClosing::Closed(Ticket(5)));
        assert_eq!(closing(&operations), Some(CardClosing::Closed(Ticket(5))));
        operations.check().expect("consistent");
        // Whether the card was closed is not known after a restart.
        let mut again = self::operations();
        again.restore(stored(&tx));
        assert_eq!(closing(&again), Some(CardClosing::Unknown));
        assert_eq!(drains(&again), drains(&operations));
        operations.end(&mut tx, &all, (at(3), Ok(())), NO_WORK);
        operations.end(&mut tx, &role, (at(3), Err(ControlError::Cancelled)), NO_WORK);
        assert_eq!(drains(&operations), [(one, Some(RegionId(2)))]);
        assert_eq!(operations.reopening(&card()), None);
        operations.check().expect("consistent");
    }

    #[test]
    fn tenants_see_their_own_and_operators_all() {
        let mut operations = operations();
        let mut tx = Tx::default();
        let own = operations.begin(&mut tx, OperationWork::CreateDag(dag("acme")), at(1));
        let drain = operations.begin(&mut tx, OperationWork::DrainCard(card()), at(1));
        let acme = Caller::Tenant(dag("acme").tenant);
        let beta = Caller::Tenant(dag("beta").tenant);
        let operator = Caller::Operator("ada".into());
        assert!(operations.visible(&acme, &own).is_ok());
        for (caller, id) in [(&acme, &drain), (&beta, &own), (&beta, &drain)] {
            let error = operations.visible(caller, id).expect_err("it is not theirs");
            assert_eq!(error, ControlError::not_found(format!("operations/{id}")));
            assert_eq!(operations.delete(&mut tx, caller, id), Err(error));
        }
        assert!(operations.visible(&operator, &drain).is_ok());
        let open = operations.delete(&mut tx, &operator, &drain);
        assert!(matches!(open, Err(ControlError::Precondition { .. })), "{open:?}");
        operations.end(&mut tx, &drain, (at(2), Ok(())), NO_WORK);
        operations.delete(&mut tx, &operator, &drain).expect("it has ended");
        assert_eq!(operations.get(&drain), None);
        assert_eq!(stored(&tx).len(), 1);
        operations.check().expect("consistent");
    }

    #[test]
    fn finished_operations_expire_and_open_ones_do_not() {
        let mut operations = operations();
        let mut tx = Tx::default();
        let open = operations.begin(&mut tx, OperationWork::DrainCard(card()), at(1));
        let ids: Vec<OperationId> = (0..3)
            .map(|n| {
                let id =
                    operations.begin(&mut tx, OperationWork::DeleteDag(dag("acme"), None), at(n));
                operations.end(&mut tx, &id, (at(10 + n), Ok(())), NO_WORK);
                id
            })
            .collect();
        operations.forget_old(&mut tx, at(11) + OPERATION_KEPT);
        assert_eq!(operations.all().count(), 2);
        assert!(operations.get(&open).is_some() && operations.get(&ids[2]).is_some());
        assert_eq!(stored(&tx).len(), 2);
        operations.check().expect("consistent");
    }

    #[test]
    fn the_secret_is_stored_with_the_first_thing_that_is() {
        let mut operations = operations();
        let mut tx = Tx::default();
        operations.store_meta_once(&mut tx);
        assert!(tx.writes().is_empty(), "nothing is stored");
        tx.put(Record::Uid(1, 1));
        operations.store_meta_once(&mut tx);
        operations.store_meta_once(&mut tx);
        assert_eq!(tx.writes().iter().filter(|(key, _)| key == "meta").count(), 1);
    }
}
