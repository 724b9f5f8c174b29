//! A transaction: the changes and effects of one event.

use std::collections::BTreeSet;

use snic_domain::{CardId, DagName, Digest, RegionId, TenantId, Timestamp, VmId};
use snic_tables::CardCommand;
use snic_usage::UsageWrite;

use crate::protocol::{
    CallId, Change, ControlError, Effect, LogEntry, LogKind, Reply, ResourceKey,
};
use crate::store::records::{self, Audience, Record, RecordKey, RecordWrite, Stamp};

/// Changes of the store, and what is to be done once they are durable: see [`crate::Outbox`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tx {
    now: Timestamp,
    writes: Vec<RecordWrite>,
    audience: TxAudience,
    asker: Option<(CallId, TenantId)>,
    effects: Vec<Effect>,
    touched: Vec<DirtyResource>,
    revision: u64,
}

/// A resource whose record is stored or removed, or of which cards say something else.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DirtyResource {
    /// Position of the write, if it is one.
    pub write: Option<usize>,
    pub name: ResourceKey,
    /// Owner; not known where it is deleted.
    pub owner: Option<TenantId>,
    pub is_deleted: bool,
}

/// Parts of a transaction.
pub(crate) struct TxParts {
    pub writes: Vec<RecordWrite>,
    pub audience: TxAudience,
    /// The call that it answers, and its tenant.
    pub asker: Option<(CallId, TenantId)>,
    pub effects: Vec<Effect>,
}

/// Callers whose reads the changes of a transaction show in, besides operators.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TxAudience {
    /// Perhaps in every tenant's.
    pub everybody: bool,
    /// In those of these.
    pub tenants: BTreeSet<TenantId>,
}

impl TxAudience {
    fn add(&mut self, audience: Audience) {
        match audience {
            Audience::Operators => {}
            Audience::Tenant(tenant) => drop(self.tenants.insert(tenant)),
            Audience::Everybody => self.everybody = true,
        }
    }
}

impl Tx {
    pub(crate) fn at(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }

    /// When the event came.
    pub(crate) const fn now(&self) -> Timestamp {
        self.now
    }

    /// Another event, later.
    #[cfg(test)]
    pub(crate) const fn pass_to(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// The changes of the store, in order; all of them or none.
    pub fn writes(&self) -> &[RecordWrite] {
        &self.writes
    }

    /// Effects to be carried out, in order.
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// A tenant asks with this call: an answer of the transaction to it is for that tenant alone.
    pub(crate) fn asked_by(&mut self, call: CallId, tenant: TenantId) {
        self.asker = Some((call, tenant));
    }

    pub(crate) fn into_parts(self) -> TxParts {
        let Self { writes, audience, asker, effects, .. } = self;
        TxParts { writes, audience, asker, effects }
    }

    /// The revision of the first change that is told; each further one has the next.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) const fn set_revision(&mut self, revision: u64) {
        self.revision = revision;
    }

    /// The changes that are told, in order.
    pub(crate) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.effects.iter().filter_map(|effect| match effect {
            Effect::Emit(change) => Some(change),
            Effect::Card { .. }
            | Effect::Reply { .. }
            | Effect::DropBlob(_)
            | Effect::Search { .. } => None,
        })
    }

    /// The resources whose records were stored or removed.
    pub(crate) fn take_touched(&mut self) -> Vec<DirtyResource> {
        std::mem::take(&mut self.touched)
    }

    /// The DAGs whose records were stored or removed.
    pub(crate) fn touched_dags(&self) -> BTreeSet<DagName> {
        let names = self.touched.iter().filter(|touch| touch.write.is_some());
        let dags = names.filter_map(|touch| match &touch.name {
            ResourceKey::Dag(name) => Some(name.clone()),
            _ => None,
        });
        dags.collect()
    }

    /// The tenants whose own records, or those of whose bitstreams, were stored or removed.
    pub(crate) fn touched_tenants(&self) -> BTreeSet<TenantId> {
        let names = self.touched.iter().filter(|touch| touch.write.is_some());
        let tenants = names.filter_map(|touch| match &touch.name {
            ResourceKey::Tenant(tenant) => Some(tenant.clone()),
            ResourceKey::Bitstream(bitstream) => bitstream.owner(),
            _ => None,
        });
        tenants.collect()
    }

    /// The machines whose bindings were stored or removed.
    pub(crate) fn touched_bindings(&self) -> BTreeSet<VmId> {
        let names = self.touched.iter().filter(|touch| touch.write.is_some());
        let machines = names.filter_map(|touch| match &touch.name {
            ResourceKey::Binding(vm) => Some(vm.clone()),
            _ => None,
        });
        machines.collect()
    }

    /// A record of usage is new, different or gone.
    pub(crate) fn put_usage(&mut self, write: UsageWrite) {
        match write {
            UsageWrite::Put(record) => self.put(Record::Usage(Box::new(record))),
            UsageWrite::Remove(key) => self.delete(RecordKey::Usage(Box::new(key))),
        }
    }

    /// Stores with a record when it was made and last changed.
    pub(crate) fn stamp(&mut self, write: usize, stamp: Stamp) {
        if let Some((_, Some(value))) = self.writes.get_mut(write) {
            records::stamp(value, stamp);
        }
    }

    /// Those who watch are told that what is seen of a card has changed.
    pub(crate) fn emit_card(&mut self, card: &CardId) {
        let name = ResourceKey::Card(card.clone());
        self.touched.push(DirtyResource { write: None, name, owner: None, is_deleted: false });
    }

    /// A record is new, or different.
    pub(crate) fn put(&mut self, record: Record) {
        self.audience.add(record.audience());
        if let Some((name, owner)) = record.resource() {
            let write = Some(self.writes.len());
            self.touched.push(DirtyResource { write, name, owner, is_deleted: false });
        }
        self.writes.push((record.key().to_string(), Some(record.encode())));
    }

    /// A record is gone.
    pub(crate) fn delete(&mut self, key: RecordKey) {
        self.delete_of(key.audience(), key);
    }

    /// A record is gone whose key alone does not tell whose reads it was in.
    pub(crate) fn delete_of(&mut self, audience: Audience, key: RecordKey) {
        self.audience.add(audience);
        if let Some(name) = key.resource() {
            let write = Some(self.writes.len());
            self.touched.push(DirtyResource { write, name, owner: None, is_deleted: true });
        }
        self.writes.push((key.to_string(), None));
    }

    /// A card is asked for a step.
    pub(crate) fn card(&mut self, card: CardId, command: CardCommand) {
        self.effects.push(Effect::Card { card, command });
    }

    /// A request is answered.
    pub(crate) fn reply(&mut self, call: CallId, result: Result<Reply, ControlError>) {
        self.effects.push(Effect::Reply { call, result });
    }

    /// Those who watch are told.
    pub(crate) fn emit(&mut self, change: Change) {
        self.effects.push(Effect::Emit(change));
    }

    /// Those who watch are told that a region has changed.
    pub(crate) fn emit_region(&mut self, card: &CardId, region: RegionId) {
        self.emit(Change::Region(card.clone(), region));
    }

    /// A better arrangement of a card is to be looked for.
    pub(crate) fn search(&mut self, card: CardId, reconfigurations: u32) {
        self.effects.push(Effect::Search { card, reconfigurations });
    }

    /// The bytes of a bitstream are needed no more.
    pub(crate) fn drop_blob(&mut self, digest: Digest) {
        self.effects.push(Effect::DropBlob(digest));
    }

    /// Something was decided: it is logged, and those who watch are told. The log numbers it at the
    /// end of the event.
    pub(crate) fn note(&mut self, kind: LogKind, about: LogSubject<'_>, text: String) {
        self.log(kind, about, text, None);
    }

    /// The same where `cause` may concern many DAGs at once: operators get one entry for all of them.
    pub(crate) fn note_of(
        &mut self,
        cause: &str,
        kind: LogKind,
        about: LogSubject<'_>,
        text: String,
    ) {
        self.log(kind, about, text, Some(cause.to_owned()));
    }

    fn log(&mut self, kind: LogKind, about: LogSubject<'_>, text: String, cause: Option<String>) {
        self.emit(Change::Logged(Box::new(LogEntry {
            number: 0,
            at: self.now,
            kind,
            dag: about.dag.cloned(),
            account: about.tenant.cloned(),
            card: about.card.cloned(),
            regions: about.regions,
            text,
            cause,
            is_detail: false,
        })));
    }

    /// Noted entries, in order.
    pub(crate) fn noted(&mut self) -> impl Iterator<Item = &mut LogEntry> {
        self.effects.iter_mut().filter_map(|effect| match effect {
            Effect::Emit(Change::Logged(entry)) => Some(entry.as_mut()),
            _ => None,
        })
    }
}

/// Subject of an entry of the log.
#[derive(Debug, Default)]
pub(crate) struct LogSubject<'a> {
    pub dag: Option<&'a DagName>,
    /// Tenant, where it is about none of its DAGs.
    pub tenant: Option<&'a TenantId>,
    pub card: Option<&'a CardId>,
    pub regions: Vec<RegionId>,
}

impl<'a> LogSubject<'a> {
    pub fn card(card: &'a CardId) -> Self {
        Self { card: Some(card), ..Self::default() }
    }

    pub fn dag(card: &'a CardId, dag: &'a DagName) -> Self {
        Self { card: Some(card), dag: Some(dag), ..Self::default() }
    }
}
