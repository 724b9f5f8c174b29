//! Queries: views for callers, made from the state on demand, and the words and numbers of log lines
//! and metrics.

use std::collections::BTreeMap;

use snic_domain::limits::PAGE_SIZE;
use snic_domain::{
    BitstreamId, CardId, CardProfile, DagAttachments, DagName, DagSpec, DagState, DagUid, Digest,
    FunctionUse, Headroom, Node, NtTypeId, OperationId, RegionId, RegionState, RuleId, TenantId,
    Timestamp, VmId,
};
use snic_usage::PromiseTimes;

use crate::decide::batch::BatchSnapshot;
use crate::place::consolidation;
use crate::protocol::{
    Arrangement, AssignedDag, BindingView, BitstreamView, CallId, Caller, CardHealth, CardView,
    Command, ControlError, DagBatch, DagView, Event, LogEntry, NtView, OperationRecord,
    OperationView, ProvisionName, RegionView, ResourceKey, ResourceKind, RuleView, StateView,
    TenantView, UsageView,
};
use crate::request::{assignments, batch_create, validation};
use crate::restart::set_aside::SetAsideAccount;
use crate::state::Core;
use crate::state::card::{ConnectionState, StateFigures};
use crate::state::epoch::{CardLoop, FairnessView, LoopFigures, daemon_share_ppm};
use crate::store::records::{Maintenance, Stamp};
use crate::store::revisions::RevisionTooOld;
use crate::view::card_picture::{self, CardPicture};
use crate::view::diagnosis::{Diagnosis, DiagnosisInput, diagnose};
use crate::view::{guards, quotas, usage, views};

use super::Controller;

/// A region in a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionGlance {
    pub state: RegionState,
    /// Whether nothing new is placed in it.
    pub cordoned: bool,
    pub bitstream: Option<BitstreamId>,
}

impl Controller {
    /// Usage of a tenant, or of all, in intervals that are closed and not in full pages yet. Time O(accounts).
    pub fn usage(&self, tenant: Option<&TenantId>) -> UsageView {
        usage::usage(&self.core, tenant)
    }

    /// Times of promises since the daemon started, by tenant.
    pub fn promise_times(&self) -> impl Iterator<Item = (&TenantId, &PromiseTimes)> {
        self.core.usage.promise_times()
    }

    /// Part of the time in which promises are to be kept, in millionths.
    pub const fn availability_ppm(&self) -> u32 {
        self.core.policies.current().availability_ppm
    }

    /// Checks a command without carrying it out: a dry run of what has no operation.
    ///
    /// # Errors
    /// As when it is carried out.
    pub fn check_command(&self, caller: &Caller, command: Command) -> Result<(), ControlError> {
        validation::check(&self.core, caller, command)
    }

    /// A revision that all that was decided so far has, or a lower one; later changes have higher ones.
    pub fn revision(&self, now: Timestamp) -> u64 {
        self.revisions.at(now)
    }

    /// Records that were set aside, now or by an earlier start, and are kept.
    pub fn set_aside(&self) -> &SetAsideAccount {
        &self.set_aside
    }

    /// When a resource was made and last changed.
    pub fn stamp(&self, name: &ResourceKey) -> Stamp {
        self.revisions.stamp(name)
    }

    /// Resources deleted after a revision, the oldest first: of a tenant with what it sees of the
    /// provider's, or of all. Time O(deletions that are kept).
    ///
    /// # Errors
    /// Not all deletions after it are known.
    pub fn deleted_since(
        &self,
        kind: ResourceKind,
        tenant: Option<&TenantId>,
        revision: u64,
    ) -> Result<Vec<ResourceKey>, RevisionTooOld> {
        self.revisions.deleted_since(kind, tenant, revision)
    }

    /// All tenants, by id.
    pub fn tenants(&self) -> impl Iterator<Item = TenantView> {
        self.tenants_after(None)
    }

    /// The tenants behind this one, by id. Time O(log tenants) before the first.
    pub fn tenants_after(&self, after: Option<&TenantId>) -> impl Iterator<Item = TenantView> {
        let views = self.core.registry.tenants_after(after);
        views.map(|view| quotas::with_usage(&self.core, view))
    }

    pub fn tenant_view(&self, id: &TenantId) -> Option<TenantView> {
        let view = self.core.registry.tenant_view(id)?;
        Some(quotas::with_usage(&self.core, view))
    }

    /// The NT types that `caller` may know of, by id.
    pub fn nt_types(&self, caller: &Caller) -> impl Iterator<Item = NtView> {
        self.core.registry.nt_views(caller)
    }

    /// One NT type, if `caller` may know of it.
    pub fn nt_type(&self, caller: &Caller, id: &NtTypeId) -> Option<NtView> {
        self.core.registry.nt_view(caller, id)
    }

    /// The bitstreams that `caller` may know of, by id: the provider's and its own.
    pub fn bitstreams(&self, caller: &Caller) -> impl Iterator<Item = BitstreamView> {
        let views = self.core.registry.bitstream_views(caller);
        views.map(move |view| self.with_regions(caller, view))
    }

    /// One bitstream, if `caller` may know of it.
    pub fn bitstream(&self, caller: &Caller, id: &BitstreamId) -> Option<BitstreamView> {
        let view = self.core.registry.bitstream_view(caller, id)?;
        Some(self.with_regions(caller, view))
    }

    /// Adds which regions it has no image for, and which hold it, which is not for tenants.
    fn with_regions(&self, caller: &Caller, mut view: BitstreamView) -> BitstreamView {
        let of = &view.bitstream;
        let mut cards = self.core.cards.iter().map(|(_, card)| card.profile());
        let card = cards.find(|profile| profile.model == of.card_model);
        let regions = card.into_iter().flat_map(CardProfile::regions);
        let missing = regions
            .filter(|(id, region)| region.kind == of.region_kind && !of.fits_region(*id))
            .map(|(id, _)| id);
        view.missing_regions = missing.collect();
        if caller.tenant().is_none() {
            view.regions = self.core.cards.regions_with(&view.bitstream.id);
        }
        view
    }

    /// Whether a bitstream has these bytes.
    pub fn uses_digest(&self, digest: Digest) -> bool {
        self.core.registry.uses_digest(digest)
    }

    /// The DAGs of one tenant, or all, by name.
    pub fn dags(&self, tenant: Option<&TenantId>) -> Vec<DagView> {
        match tenant {
            Some(tenant) => self
                .core
                .dags
                .of_tenant(tenant)
                .map(|entry| views::view_of(&self.core, entry))
                .collect(),
            None => self.core.dags.iter().map(|entry| views::view_of(&self.core, entry)).collect(),
        }
    }

    /// The DAGs behind this one, of one tenant or of all, by name. Time O(log DAGs) before the
    /// first.
    pub fn dags_after(
        &self,
        tenant: Option<&TenantId>,
        after: Option<&DagName>,
    ) -> impl Iterator<Item = DagView> {
        self.core.dags.after(tenant, after).map(|entry| views::view_of(&self.core, entry))
    }

    /// Slack of each resource that a DAG holds on its card; empty where it has no place.
    pub fn dag_headroom(&self, name: &DagName) -> Vec<Headroom> {
        let entry = self.core.dags.get(name);
        let place = entry.and_then(|entry| entry.desired());
        let card = place.and_then(|place| self.core.cards.get(&place.mapping.card));
        card.map(|card| card.ledger().headroom(name)).unwrap_or_default()
    }

    /// Why a DAG is as fast as it is, for a tenant, who learns nothing of others, or for operators. Time O(DAGs on its
    /// card).
    pub fn dag_diagnosis(&self, name: &DagName, reader: Option<&TenantId>) -> Option<Diagnosis> {
        let Core { dags, cards, loops, registry, .. } = &self.core;
        let dag = self.dag_view(name)?;
        let place = dags.get(name)?.desired();
        let id = place.map(|place| &place.mapping.card);
        let card = id.and_then(|id| cards.get(id));
        let nodes = place.into_iter().flat_map(|place| &place.spec.nodes);
        let latency = |node: &Node| Some((node.id.clone(), registry.nt(&node.nt)?.latency));
        let is_free = |region: &RegionId| {
            card.is_some_and(|card| card.region_state(*region) == RegionState::Free)
        };
        let regions = card.into_iter().flat_map(|card| card.region_ids());
        Some(diagnose(&DiagnosisInput {
            dag: &dag,
            card: card.map(|card| card.profile()),
            latencies: &nodes.filter_map(latency).collect(),
            flows: &id.and_then(|id| loops.get(id)).map(|l| l.all_dags(dags)).unwrap_or_default(),
            headroom: &self.dag_headroom(name),
            free_regions: regions.filter(is_free).count(),
            reader,
        }))
    }

    /// State to plan a batch of DAGs on, elsewhere: see [`crate::Command::CreateDags`]. Time O(state of the cards).
    pub fn batch_snapshot(&self, batch: &DagBatch) -> BatchSnapshot {
        batch_create::snapshot(&self.core, batch)
    }

    /// Calls that are not answered yet, for DAGs are to move that may make room for what they ask.
    pub fn held_calls(&self) -> impl Iterator<Item = CallId> {
        self.held.calls()
    }

    /// Planning effort of the last event, in looks of the planner: at most
    /// [`crate::LOOKS_OF_AN_EVENT`].
    pub const fn looks(&self) -> u32 {
        self.core.planning.looks()
    }

    /// All cards, by id.
    pub fn cards(&self) -> impl Iterator<Item = CardView> {
        self.core.cards.ids().filter_map(|id| self.card_view(id))
    }

    /// Cards that were never seen, and why.
    pub fn absent_cards(&self) -> impl Iterator<Item = (&CardId, &str)> {
        self.core.cards.absent()
    }

    pub fn card_view(&self, id: &CardId) -> Option<CardView> {
        let card = self.core.cards.get(id)?;
        Some(CardView {
            card: id.clone(),
            profile: card.profile().clone(),
            health: match card.connection() {
                ConnectionState::Ready => CardHealth::Ok,
                ConnectionState::Adopting(_) => CardHealth::Adopting,
                ConnectionState::Absent(reason) => CardHealth::Lost(reason.clone()),
            },
            loss: card.loss(),
            table_version: card.tables().version(),
            loads: card.regions().loads(),
            stalls: card.regions().stalls(),
            words_written: card.tables().figures().words_written,
            commits: card.tables().figures().commits,
            counters: card.counters().clone(),
            ingress_reserved: card.ledger().ingress_reserved(),
            regions: card.region_ids().map(|region| (region, card.region_state(region))).collect(),
            cordoned: {
                let is_cordoned =
                    |id: &RegionId| card.region(*id).is_some_and(|of| of.is_cordoned());
                card.region_ids().filter(is_cordoned).collect()
            },
            device: card.device().view(),
            threads_used: {
                let processors = card.profile().processors.iter();
                processors.map(|one| card.ledger().threads_used(one.kind)).collect()
            },
            etag: guards::card_etag(&self.core, id)?,
        })
    }

    /// All rules, by id.
    pub fn rules(&self) -> impl Iterator<Item = RuleView> {
        self.core.rules.all().filter_map(|record| views::rule_view(&self.core, &record.rule.id))
    }

    /// The operations that `caller` may see, by id.
    pub fn operations(&self, caller: &Caller) -> impl Iterator<Item = OperationView> {
        self.core
            .operations
            .all()
            .filter(|record| caller.may_change(record.tenant()))
            .map(|record| views::operation_view(&self.core, record))
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
            .core
            .operations
            .all()
            .filter(|record| caller.may_change(record.tenant()) && behind(record) && filter(record))
            .collect();
        records.sort_by_key(|record| (record.created, &record.id));
        records.into_iter().map(|record| views::operation_view(&self.core, record))
    }

    /// One operation, if `caller` may see it.
    pub fn operation(&self, caller: &Caller, id: &OperationId) -> Option<OperationView> {
        let record = self.core.operations.get(id)?;
        caller.may_change(record.tenant()).then(|| views::operation_view(&self.core, record))
    }

    /// The decisions that `caller` may see with a number under `before`, the last first.
    pub fn log_before(
        &self,
        caller: &Caller,
        before: Option<u64>,
    ) -> impl Iterator<Item = &LogEntry> {
        self.log.before(caller, before)
    }

    /// The contexts on a card: those in regions first.
    pub fn states_on(&self, id: &CardId) -> Vec<StateView> {
        views::contexts_where(&self.core, id, |_, _| true)
    }

    /// Counts of saved, restored and lost state on a card.
    pub fn state_figures(&self, card: &CardId) -> Option<StateFigures> {
        self.core.cards.get(card).map(|card| card.contexts().figures())
    }

    /// A DAG: which one has the name now, and how it is. Time O(log DAGs + its regions).
    pub fn dag_glance(&self, name: &DagName) -> Option<(DagUid, DagState)> {
        let entry = self.core.dags.get(name)?;
        Some((entry.uid(), views::dag_state(&self.core, entry)))
    }

    /// A region. Time O(log cards).
    pub fn region_glance(&self, card: &CardId, region: RegionId) -> Option<RegionGlance> {
        let card = self.core.cards.get(card)?;
        let entry = card.region(region)?;
        Some(RegionGlance {
            state: card.region_state(region),
            cordoned: entry.is_cordoned(),
            bitstream: entry.bitstream().cloned(),
        })
    }

    /// The digests of all bitstreams: whose bytes are needed.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        self.core.registry.digests()
    }

    /// Whether somebody waits for a region to be loaded: a DAG that is to have its place there and
    /// is not served by what is on the card. Where nobody is, the load is hidden: all that it is
    /// for is served meanwhile. Time O(DAGs in the region).
    pub fn is_waited_for(&self, card: &CardId, region: RegionId) -> bool {
        let Some(card) = self.core.cards.get(card) else {
            return false; // A caller may name any card.
        };
        let served =
            |name: &DagName| self.core.dags.get(name).is_some_and(|dag| dag.active().is_some());
        card.ledger().users(region).any(|name| !served(name))
    }

    /// The bindings behind this one, of one tenant or of all, by UUID; ended ones too, for a while.
    pub fn bindings_after<'a>(
        &'a self,
        tenant: Option<&'a TenantId>,
        after: Option<&VmId>,
    ) -> impl Iterator<Item = BindingView> + 'a {
        self.core
            .bindings
            .after(after)
            .filter(move |record| tenant.is_none_or(|tenant| record.spec.tenant == *tenant))
            .map(|record| views::view_of_binding(&self.core, record))
    }

    /// Since when and why nothing new is taken in; `None` in normal service.
    pub const fn maintenance(&self) -> Option<&Maintenance> {
        self.core.maintenance.get()
    }

    pub fn dag_view(&self, name: &DagName) -> Option<DagView> {
        self.core.dags.get(name).map(|entry| views::view_of(&self.core, entry))
    }

    /// One DAG that the fleet assigned, and how far it is; `None` where there is none.
    pub fn assigned(&self, name: &DagName) -> Option<AssignedDag> {
        let entry = self.core.dags.get(name)?;
        assignments::assigned(&self.core, entry)
    }

    /// The DAGs that the fleet assigned behind this one, by name. Time O(log DAGs) before the first.
    pub fn assigned_after(
        &self,
        after: Option<&DagName>,
    ) -> impl Iterator<Item = (DagName, AssignedDag)> {
        let all = self.core.dags.after(None, after);
        all.filter_map(|entry| {
            Some((entry.name().clone(), assignments::assigned(&self.core, entry)?))
        })
    }

    /// Whatever leads packets to DAGs that the fleet assigned; those without anything are left out. Time
    /// O(bindings + rules).
    pub fn attachments(&self) -> BTreeMap<DagName, DagAttachments> {
        assignments::attachments(&self.core)
    }

    /// Use of the host's functions by machines and reservations of the fleet. Time O(functions that are bound).
    pub fn function_use(&self) -> FunctionUse {
        assignments::function_use(&self.core)
    }

    /// The tenants, NT types and bitstreams that the fleet provided, with their numbers. Time O(all of them).
    pub fn provisions(&self) -> Vec<(ProvisionName, u64)> {
        assignments::provisions(&self.core)
    }

    pub fn region_view(&self, id: &CardId, region: RegionId) -> Option<RegionView> {
        views::region_view(&self.core, id, region)
    }

    pub fn rule_view(&self, id: &RuleId) -> Option<RuleView> {
        views::rule_view(&self.core, id)
    }

    pub fn binding_view(&self, vm: &VmId) -> Option<BindingView> {
        views::binding_view(&self.core, vm)
    }

    /// The contexts of a DAG: those in regions first.
    pub fn states_of(&self, name: &DagName) -> Vec<StateView> {
        views::contexts_of(&self.core, name)
    }

    /// Shares of a tenant on every card that it has DAGs on.
    pub fn fairness(&self, tenant: &TenantId) -> Vec<FairnessView> {
        let Core { loops, cards, dags, .. } = &self.core;
        let on = |(id, card_loop): (&CardId, &CardLoop)| {
            card_loop.fairness(id, cards.known(id).regions().len(), dags, tenant)
        };
        let mut views: Vec<FairnessView> = loops.iter().filter_map(on).collect();
        let of_card = |(id, card_loop): (&CardId, &CardLoop)| {
            let profile = cards.known(id).profile();
            (card_loop.allocation(tenant), [profile.luts(), profile.memory.get() / PAGE_SIZE.get()])
        };
        let daemon_ppm = daemon_share_ppm(loops.iter().map(of_card));
        views.iter_mut().for_each(|view| view.daemon_ppm = daemon_ppm);
        views
    }

    /// The shares of tenants with DAGs on a card as last written to their histories, in millionths:
    /// of its dominant resource in space, and in time. Time O(tenants).
    pub fn dominant_shares(&self, card: &CardId) -> impl Iterator<Item = (&TenantId, u32, u32)> {
        self.core.loops.get(card).into_iter().flat_map(CardLoop::dominant_shares)
    }

    /// Counters of a card's loop.
    pub fn loop_figures(&self, card: &CardId) -> Option<LoopFigures> {
        self.core.loops.get(card).map(CardLoop::figures)
    }

    /// Compares what a caller read of what a command is about.
    ///
    /// # Errors
    /// It is different now, or not there, or the command is about nothing that has an etag.
    pub fn check_etag(&self, command: &Command, read: &str) -> Result<(), ControlError> {
        guards::check(&self.core, command, read)
    }

    /// A copy of a card to search on another thread; see [`CardPicture`]. Time O(DAGs of the card · their NTs).
    ///
    /// # Errors
    /// There is no such card, or what it holds is not known.
    pub fn picture(&self, card: &CardId) -> Result<CardPicture, ControlError> {
        consolidation::check_is_known(&self.core, card)?;
        let picture = card_picture::of(&self.core, card);
        Ok(picture.expect("a card that is known is there"))
    }

    /// The answer to [`Effect::Search`](crate::Effect::Search), found on this thread: for those who have no other.
    pub fn search(&self, card: &CardId, reconfigurations: u32) -> Event {
        let found = match self.picture(card) {
            Ok(picture) => picture.search(reconfigurations),
            Err(_) => Arrangement::as_it_is(card.clone()),
        };
        Event::Searched(found)
    }

    /// The DAGs that have no place now, 256 at most, and those that were refused lately.
    pub fn dags_without_place(&self) -> Vec<(DagName, DagSpec)> {
        card_picture::dags_without_place(&self.core)
    }
}
