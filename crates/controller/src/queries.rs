//! What callers may see, made from the state on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use snic_domain::{
    BitstreamId, CardId, Cycles, Dag, DagId, DagName, DagSpec, Digest, NodeId, NtTypeId,
    OperationId, RegionId, RegionState, RuleId, Slot, TenantId, Timestamp, VirtualChain,
};
use snic_planner::Ledger;
use snic_tables::ClassifierRow;

use crate::card::{CardState, ConnectionState};
use crate::dags::DagEntry;
use crate::etag::etag;
use crate::protocol::{
    BitstreamView, Caller, CardHealth, CardView, DagView, LogEntry, NtView, OperationRecord,
    OperationView, RegionUser, RegionView, RuleView, SlotView, TenantView, Work,
};
use crate::records::Placement;
use crate::rows;
use crate::rules::Rules;
use crate::state::Controller;

/// DAGs that a drain names at most: an answer is read by people.
const LEFT_NAMED_MAX: usize = 8;

impl Controller {
    /// All tenants, by id.
    pub fn tenants(&self) -> impl Iterator<Item = TenantView> {
        self.registry.tenants_after(None)
    }

    /// The tenants behind this one, by id. Time O(log tenants) before the first.
    pub fn tenants_after(&self, after: Option<&TenantId>) -> impl Iterator<Item = TenantView> {
        self.registry.tenants_after(after)
    }

    /// One tenant.
    pub fn tenant_view(&self, id: &TenantId) -> Option<TenantView> {
        self.registry.tenant_view(id)
    }

    /// The NT types that `caller` may know of, by id.
    pub fn nt_types(&self, caller: &Caller) -> impl Iterator<Item = NtView> {
        self.registry.nt_views(caller)
    }

    /// One NT type, if `caller` may know of it.
    pub fn nt_type(&self, caller: &Caller, id: &NtTypeId) -> Option<NtView> {
        self.registry.nt_view(caller, id)
    }

    /// The bitstreams that `caller` may know of, by id: the provider's and its own.
    pub fn bitstreams(&self, caller: &Caller) -> impl Iterator<Item = BitstreamView> {
        let views = self.registry.bitstream_views(caller);
        views.map(move |view| self.with_regions(caller, view))
    }

    /// One bitstream, if `caller` may know of it.
    pub fn bitstream(&self, caller: &Caller, id: &BitstreamId) -> Option<BitstreamView> {
        let view = self.registry.bitstream_view(caller, id)?;
        Some(self.with_regions(caller, view))
    }

    /// Adds which regions hold a bitstream, which is not for tenants.
    fn with_regions(&self, caller: &Caller, mut view: BitstreamView) -> BitstreamView {
        if caller.tenant().is_none() {
            view.regions = self.regions_with(&view.bitstream.id);
        }
        view
    }

    /// Whether a bitstream has these bytes.
    pub fn uses_digest(&self, digest: Digest) -> bool {
        self.registry.uses_digest(digest)
    }

    /// The DAGs of one tenant, or all, by name.
    pub fn dags(&self, tenant: Option<&TenantId>) -> Vec<DagView> {
        match tenant {
            Some(tenant) => self.dags_of(tenant).map(|entry| self.view_of(entry)).collect(),
            None => self.dags.values().map(|entry| self.view_of(entry)).collect(),
        }
    }

    /// The DAGs behind this one, of one tenant or of all, by name. Time O(log DAGs) before the
    /// first.
    pub fn dags_after(
        &self,
        tenant: Option<&TenantId>,
        after: Option<&DagName>,
    ) -> impl Iterator<Item = DagView> {
        let first = tenant.map(|tenant| DagName {
            tenant: tenant.clone(),
            dag: DagId::new("a").expect("the smallest label"),
        });
        let start = match (after, &first) {
            (Some(after), Some(first)) if after < first => Bound::Included(first),
            (Some(after), _) => Bound::Excluded(after),
            (None, Some(first)) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        let range = self.dags.range::<DagName, _>((start, Bound::Unbounded));
        range
            .take_while(move |(name, _)| tenant.is_none_or(|tenant| name.tenant == *tenant))
            .map(|(_, entry)| self.view_of(entry))
    }

    /// One DAG.
    pub fn dag_view(&self, name: &DagName) -> Option<DagView> {
        self.dags.get(name).map(|entry| self.view_of(entry))
    }

    pub(crate) fn dag_etag(&self, entry: &DagEntry) -> String {
        etag(&[entry.name(), &entry.uid(), &entry.generation()])
    }

    pub(crate) fn view_of(&self, entry: &DagEntry) -> DagView {
        let desired = entry.desired();
        let active = entry.active().and_then(|serial| entry.placement(serial));
        DagView {
            name: entry.name().clone(),
            uid: entry.uid(),
            spec: entry.spec().clone(),
            generation: entry.generation(),
            observed_generation: entry.observed_generation(),
            state: self.dag_state(entry),
            conditions: entry.conditions.clone(),
            mapping: desired.map(|p| p.mapping.clone()),
            contents: desired.map(|p| self.contents(p)).unwrap_or_default(),
            latency: desired.map_or(Cycles::ZERO, |p| self.latency(p)),
            explanation: entry.explanation.clone(),
            rate: entry.rate(active.map_or(entry.spec().bandwidth, |p| p.spec.bandwidth)),
            states: self.states_of(entry.name()),
            etag: self.dag_etag(entry),
            created: entry.created(),
            updated: entry.updated(),
        }
    }

    /// What the bitstreams of a placement hold.
    fn contents(&self, placement: &Placement) -> BTreeMap<BitstreamId, Vec<NtTypeId>> {
        let content = |id: &BitstreamId| {
            let bitstream = self.registry.bitstream(id)?;
            Some((id.clone(), bitstream.nts.clone()))
        };
        placement.mapping.instances().filter_map(|i| content(&i.bitstream)).collect()
    }

    /// What a packet that waits nowhere takes: the core, another pass for each further stage, and
    /// the longest branch of each.
    pub(crate) fn latency(&self, placement: &Placement) -> Cycles {
        let of_node = |id: &NodeId| {
            let node = placement.spec.nodes.iter().find(|node| node.id == *id)?;
            self.registry.nt(&node.nt).map(|nt| nt.latency)
        };
        let of_chain =
            |chain: &VirtualChain| -> Cycles { chain.nodes.iter().filter_map(of_node).sum() };
        let stages = &placement.mapping.stages;
        let nts = stages.iter().filter_map(|s| s.branches.iter().map(of_chain).max()).sum();
        let Some(card) = self.cards.get(&placement.mapping.card) else { return nts };
        let passes = stages.len().saturating_sub(1) as u64;
        let passes = Cycles::new(card.profile.scheduler_pass.get().saturating_mul(passes));
        card.profile.core + passes + nts
    }

    /// All cards, by id.
    pub fn cards(&self) -> impl Iterator<Item = CardView> {
        self.cards.keys().filter_map(|id| self.card_view(id))
    }

    /// Cards that were never seen, and why.
    pub fn absent_cards(&self) -> impl Iterator<Item = (&CardId, &str)> {
        self.absent.iter().map(|(id, why)| (id, why.as_str()))
    }

    /// One card.
    pub fn card_view(&self, id: &CardId) -> Option<CardView> {
        let card = self.cards.get(id)?;
        Some(CardView {
            card: id.clone(),
            profile: card.profile.clone(),
            health: match &card.connection {
                ConnectionState::Ready => CardHealth::Ok,
                ConnectionState::Adopting(_) => CardHealth::Adopting,
                ConnectionState::Absent(reason) => CardHealth::Lost(reason.clone()),
            },
            table_version: card.tables.version(),
            loads: card.regions.loads(),
            words_written: card.tables.figures().words_written,
            commits: card.tables.figures().commits,
            counters: card.counters.clone(),
            ingress_reserved: card.profile.ingress.saturating_sub(card.ledger.ingress_residual()),
            regions: card.region_ids().map(|region| (region, card.region_state(region))).collect(),
        })
    }

    /// One region.
    pub fn region_view(&self, id: &CardId, region: RegionId) -> Option<RegionView> {
        let card = self.cards.get(id)?;
        let entry = card.region(region)?;
        let profile = card.profile.region(region)?;
        Some(RegionView {
            card: id.clone(),
            region,
            kind: profile.kind,
            area: profile.area,
            state: card.region_state(region),
            cordoned: entry.is_cordoned(),
            bitstream: entry.bitstream().cloned(),
            slots: self.slots(&card.ledger, region),
            users: self.users(card, region),
            loads: entry.loads(),
            failures: entry.failures(),
            last_error: entry.fault().or(entry.last_error()).map(ToOwned::to_owned),
            last_error_at: entry.last_error_at(),
            states: self.states_in(id, region),
        })
    }

    fn slots(&self, ledger: &Ledger, region: RegionId) -> Vec<SlotView> {
        let nts = ledger.content(region).map_or(&[][..], |content| &content.nts);
        (0u8..)
            .map(Slot)
            .zip(nts)
            .map(|(slot, nt)| SlotView {
                nt: nt.clone(),
                bandwidth_max: self
                    .registry
                    .nt(nt)
                    .map_or(Default::default(), |nt| nt.bandwidth_max),
                reserved: ledger.reserved(region, slot),
            })
            .collect()
    }

    fn users(&self, card: &CardState, region: RegionId) -> Vec<RegionUser> {
        let user = |name: &DagName| {
            let entry = self.dags.get(name)?;
            let mut slots = Vec::new();
            let mut bandwidth = snic_domain::Bandwidth::ZERO;
            let placement = entry.placements().next()?;
            for instance in placement.mapping.instances().filter(|i| i.region == region) {
                slots.extend(instance.slots.iter().copied());
                bandwidth += instance.bandwidth;
            }
            slots.sort_unstable();
            slots.dedup();
            Some(RegionUser { dag: name.clone(), slots, bandwidth })
        };
        card.ledger.users(region).filter_map(user).collect()
    }

    /// All rules, by id.
    pub fn rules(&self) -> impl Iterator<Item = RuleView> {
        self.rules.all().filter_map(|record| self.rule_view(&record.rule.id))
    }

    /// One rule.
    pub fn rule_view(&self, id: &RuleId) -> Option<RuleView> {
        let record = self.rules.get(id)?;
        let card = self.cards.get(&record.card);
        let uid = self.dags.get(&record.rule.dag).map(|entry| entry.uid());
        let desired = uid.map(|uid| rows::classifier(&record.rule, uid));
        let observed = card
            .filter(|card| card.connection == ConnectionState::Ready)
            .and_then(|card| card.tables.active().get::<ClassifierRow>(record.row));
        Some(RuleView {
            rule: record.rule.clone(),
            programmed: observed.is_some() && observed == desired,
            etag: Rules::etag(record),
            created: record.created,
        })
    }

    /// The operations that `caller` may see, by id.
    pub fn operations(&self, caller: &Caller) -> impl Iterator<Item = OperationView> {
        self.operations
            .all()
            .filter(|record| caller.may_change(record.tenant()))
            .map(|record| self.operation_view(record))
    }

    /// The operations that `caller` may see and `filter` lets through, the oldest first, behind
    /// one that was made at `after.0`. Time O(operations · log operations) before the first.
    pub fn operations_after(
        &self,
        caller: &Caller,
        filter: impl Fn(&OperationRecord) -> bool,
        after: Option<(Timestamp, OperationId)>,
    ) -> impl Iterator<Item = OperationView> {
        let behind = |record: &OperationRecord| {
            after.as_ref().is_none_or(|(at, id)| (record.created, &record.id) > (*at, id))
        };
        let mut records: Vec<&OperationRecord> = self
            .operations
            .all()
            .filter(|record| caller.may_change(record.tenant()) && behind(record) && filter(record))
            .collect();
        records.sort_by_key(|record| (record.created, &record.id));
        records.into_iter().map(|record| self.operation_view(record))
    }

    /// One operation, if `caller` may see it.
    pub fn operation(&self, caller: &Caller, id: &OperationId) -> Option<OperationView> {
        let record = self.operations.get(id)?;
        caller.may_change(record.tenant()).then(|| self.operation_view(record))
    }

    /// How far regions are drained: all and those that are empty, and which DAGs are left and why.
    fn drained(&self, id: &CardId, region: Option<RegionId>) -> Option<((u32, u32), String)> {
        let ledger = &self.cards.get(id)?.ledger;
        let all: Vec<RegionId> = self.regions_meant(id, region).collect();
        let empty = all.iter().filter(|region| ledger.is_unused(**region)).count();
        let left: BTreeSet<&DagName> = all.iter().flat_map(|r| ledger.users(*r)).collect();
        let what = if region.is_none() {
            "packets of what it serves come in by this card: delete it, or unbind its machines and \
             bind them at another one"
        } else {
            "what finds no room in other regions stays: uncordon some, or delete DAGs"
        };
        let left = if left.is_empty() {
            "no DAG is left".to_owned()
        } else {
            let named: Vec<_> = left.iter().take(LEFT_NAMED_MAX).map(|n| n.to_string()).collect();
            let more = left.len().saturating_sub(named.len());
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            let are = if left.len() == 1 { "DAG is" } else { "DAGs are" };
            format!("{} {are} left: {}{more}; {what}", left.len(), named.join(", "))
        };
        Some(((u32::try_from(all.len()).ok()?, u32::try_from(empty).ok()?), left))
    }

    pub(crate) fn operation_view(&self, record: &OperationRecord) -> OperationView {
        let entry = match &record.work {
            Work::CreateDag(name) | Work::UpdateDag(name) => self.dags.get(name),
            _ => None,
        };
        let regions = entry.and_then(|entry| entry.desired()).map(|placement| {
            let all = crate::placement::regions_of(placement).len() as u32;
            (all, self.regions_done(placement) as u32)
        });
        let drained = match &record.work {
            Work::DrainRegion(card, region) => self.drained(card, Some(*region)),
            Work::DrainCard(card) => self.drained(card, None),
            _ => None,
        };
        let region = match &record.work {
            Work::DrainRegion(card, region) | Work::ResetRegion(card, region) => {
                self.region_view(card, *region).map(Box::new)
            }
            _ => None,
        };
        let started = record.started.is_some();
        let cancellable = record.ended.is_none()
            && match &record.work {
                Work::CreateDag(_) => !started,
                Work::UpdateDag(_) => !started && entry.is_some_and(|e| e.previous().is_some()),
                Work::DrainRegion(..) | Work::DrainCard(_) | Work::OptimizeCard(_) => true,
                Work::DeleteDag(..) | Work::ResetRegion(..) | Work::LoadRole { .. } => false,
            };
        OperationView {
            region,
            cancellable,
            record: record.clone(),
            regions: regions.or(drained.as_ref().map(|(regions, _)| *regions)).unwrap_or_default(),
            stage: entry
                .and_then(|entry| Some(entry.conditions.last()?.message.clone()))
                .or(drained.map(|(_, left)| left)),
            dag: entry
                .filter(|_| record.ended.is_some())
                .map(|entry| Box::new(self.view_of(entry))),
        }
    }
}

impl Controller {
    /// The DAGs that have no place now, and those that were refused; each name once, by name.
    pub(crate) fn dags_without_place(&self) -> Vec<(DagName, Dag)> {
        let waiting =
            self.unscheduled.iter().filter_map(|name| Some((name, self.dags.get(name)?.spec())));
        let all: BTreeMap<&DagName, &DagSpec> = self.refused.all().chain(waiting).collect();
        let dag =
            |(name, spec): (&DagName, &DagSpec)| Some((name.clone(), Dag::new(spec.clone()).ok()?));
        all.into_iter().filter_map(dag).collect()
    }

    /// The decisions that `caller` may see with a number under `before`, the last first.
    pub fn log_before(
        &self,
        caller: &Caller,
        before: Option<u64>,
    ) -> impl Iterator<Item = &LogEntry> {
        self.log.before(caller, before)
    }
}

impl CardState {
    /// How a region is, in one word.
    pub(crate) fn region_state(&self, region: RegionId) -> RegionState {
        self.regions.state(region, self.ledger.is_unused(region))
    }
}
