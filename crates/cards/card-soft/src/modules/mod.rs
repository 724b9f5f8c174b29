//! Tenants' modules: which region has which, their instances, and what they may take.
//!
//! ```text
//!  load of a region ──► compiler's thread ──► modules by region and slot
//!                                                  │ a packet's first pass
//!                                                  ▼
//!                        instance by DAG and NT ── within the tenant's budget of time
//! ```
//!
//! State of an instance is its DAG's, as with the card's own NTs: all regions with the same module share it,
//! and a region can be loaded again under it. Where the instance has to go, because another module takes its place or its
//! tenant needs the room, what it saves goes to the next one ([`saved`]). Without a runtime a bitstream with modules is refused.

mod budget;
mod compiler;
mod saved;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use snic_card_sim::{FrameAtNt, Preparation};
use snic_domain::limits::CHAIN_SLOTS_MAX;
use snic_domain::{DagUid, Timestamp};
use snic_nts::{
    CompiledModule, Context, DropReason, ModuleInstance, ModuleRuntime, NT_TYPES, Packet, Verdict,
};
use snic_ports::card::image;
use snic_tables::DagRow;
use snic_tables::configuration::entries;
use snic_tables::registers::{LOAD_ERROR_MODULE, LOAD_ERROR_NO_MODULES};

use crate::protocol::TaskObservation;
use crate::tasks::{PUT_BY, TaskKey};
use budget::{Budgets, CALL_MAX, START_MAX};
use compiler::Compiler;
use saved::SavedStates;

/// Instances of the card.
const INSTANCES_MAX: usize = 128;
/// Instances of one tenant.
const TENANT_INSTANCES_MAX: usize = 16;

/// A module in a slot of a region.
#[derive(Debug, Clone)]
struct Slot {
    nt: Arc<str>,
    module: Arc<dyn CompiledModule>,
}

type Slots = [Option<Slot>; CHAIN_SLOTS_MAX];

/// Content of a region in place of logic.
#[derive(Debug)]
enum Loaded {
    Compiling(Receiver<Result<Slots, u32>>),
    Ready(Slots),
    Refused(u32),
}

/// A module at work for a DAG.
struct Instance {
    tenant: u16,
    slot: Slot,
    module: ModuleInstance,
    /// Whether it has not been told its configuration: that happens before its next packet, within the budget.
    is_behind: bool,
    /// Since when its DAG has no row.
    put_by: Option<Timestamp>,
}

/// A row of the DAG table.
#[derive(Debug, Clone, Copy)]
struct Row {
    uid: u32,
    tenant: u16,
    tag: u32,
}

/// The modules of a card.
#[derive(Default)]
pub(crate) struct Modules {
    compiler: Option<Compiler>,
    regions: BTreeMap<u8, Loaded>,
    /// Rows by number.
    rows: BTreeMap<u16, Row>,
    /// Configurations of NTs that the card does not have itself.
    configurations: BTreeMap<TaskKey, Box<str>>,
    instances: BTreeMap<TaskKey, Instance>,
    saved: SavedStates,
    budgets: Budgets,
    /// When to look for what is put by for too long.
    look_at: Option<Timestamp>,
}

impl Modules {
    pub(crate) fn new(runtime: Option<Arc<dyn ModuleRuntime>>) -> Self {
        Self { compiler: runtime.map(Compiler::start), ..Self::default() }
    }

    /// The load of a region began.
    pub(crate) fn load_began(&mut self, region: u8, bitstream: &Arc<[u8]>) {
        self.regions.remove(&region);
        // What is no bitstream, the card refuses by itself.
        let Ok(file) = image::parse(bitstream) else { return };
        let loaded = match image::modules(&file) {
            Ok(modules) if modules.is_empty() => return,
            Ok(_) => match &self.compiler {
                Some(compiler) => Loaded::Compiling(compiler.compile(Arc::clone(bitstream))),
                None => Loaded::Refused(LOAD_ERROR_NO_MODULES),
            },
            Err(_) => Loaded::Refused(LOAD_ERROR_MODULE),
        };
        self.regions.insert(region, loaded);
    }

    /// Whether the modules of a region can be used.
    pub(crate) fn preparation(&mut self, region: u8) -> Preparation {
        let Some(loaded) = self.regions.get_mut(&region) else { return Preparation::Ready };
        if let Loaded::Compiling(answer) = loaded {
            *loaded = match answer.try_recv() {
                Err(TryRecvError::Empty) => return Preparation::UnderWay,
                Ok(Ok(slots)) => Loaded::Ready(slots),
                Ok(Err(code)) => Loaded::Refused(code),
                // The compiler failed over it.
                Err(TryRecvError::Disconnected) => Loaded::Refused(LOAD_ERROR_MODULE),
            };
        }
        match loaded {
            Loaded::Refused(code) => Preparation::Refused(*code),
            _ => Preparation::Ready,
        }
    }

    /// A region holds nothing any more.
    pub(crate) fn emptied(&mut self, region: u8) {
        self.regions.remove(&region);
    }

    /// Works on a packet; `None` where the slot has no module.
    pub(crate) fn process(
        &mut self,
        passage: &FrameAtNt,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Option<Verdict> {
        let Some(Loaded::Ready(slots)) = self.regions.get(&passage.region) else { return None };
        let slot = slots.get(usize::from(passage.slot))?.as_ref()?;
        let key = (passage.uid.raw(), passage.nt);
        let is_same = |instance: &&Instance| Arc::ptr_eq(&instance.slot.module, &slot.module);
        let running = self.instances.get(&key).filter(is_same).map(|instance| instance.tenant);
        let Some(tenant) = running.or_else(|| self.tenant_of(key.0)) else {
            return Some(Verdict::Drop(DropReason::ModuleNoRoom));
        };
        if !self.budgets.has_some(tenant, passage.now) {
            let reason = DropReason::ModuleOverBudget;
            let instance = self.instances.get_mut(&key);
            let refused = instance.map(|instance| instance.module.refuse(reason));
            return Some(refused.unwrap_or(Verdict::Drop(reason)));
        }
        let began = Instant::now();
        let mut most = CALL_MAX;
        if running.is_none() {
            let slot = slot.clone();
            let Some(of_start) = self.start(key, tenant, slot) else {
                return Some(Verdict::Drop(DropReason::ModuleNoRoom));
            };
            most = of_start;
        }
        let instance = self.instances.get_mut(&key)?;
        if std::mem::take(&mut instance.is_behind)
            && let Some(json) = self.configurations.get(&key)
        {
            // A module that does not take its configuration drops packets, and says so by their reason.
            let _ = instance.module.configure(json);
            most = START_MAX;
        }
        let verdict = instance.module.process(packet, context);
        self.budgets.charge(tenant, began.elapsed().min(most));
        Some(verdict)
    }

    /// The tenant of a DAG that has a row.
    fn tenant_of(&self, uid: u32) -> Option<u16> {
        self.rows.get(&row_of(uid)).filter(|row| row.uid == uid).map(|row| row.tenant)
    }

    /// Makes an instance for a DAG, whose first packet came, or whose region has another module than before;
    /// says how long that may have taken. `None` where there is no room.
    fn start(&mut self, key: TaskKey, tenant: u16, slot: Slot) -> Option<Duration> {
        let mut has_saved = self.save(key);
        let of_tenant = |instance: &&Instance| instance.tenant == tenant;
        let is_full = self.instances.len() >= INSTANCES_MAX
            || self.instances.values().filter(of_tenant).count() >= TENANT_INSTANCES_MAX;
        if is_full {
            has_saved = self.shed(tenant);
            if !has_saved {
                return None;
            }
        }
        let mut module = ModuleInstance::new(slot.module.as_ref());
        if let Some(state) = self.saved.take(key, &slot.nt) {
            module.restore(state);
            has_saved = true;
        }
        let instance = Instance { tenant, slot, module, is_behind: true, put_by: None };
        self.instances.insert(key, instance);
        // To save a state, and to take it back, has fuel of its own, as a configuration has.
        Some(if has_saved { START_MAX } else { CALL_MAX })
    }

    /// An instance goes, but for what it saves.
    fn save(&mut self, key: TaskKey) -> bool {
        let Some(mut instance) = self.instances.remove(&key) else { return false };
        if let Some(state) = instance.module.save() {
            self.saved.keep(key, (instance.tenant, instance.slot.nt), state, instance.put_by);
        }
        true
    }

    /// Removes the state that a tenant has put by the longest; says whether there was any.
    fn shed(&mut self, tenant: u16) -> bool {
        let of_tenant = self.instances.iter().filter(|(_, instance)| instance.tenant == tenant);
        let put_by = of_tenant.filter_map(|(key, instance)| Some((instance.put_by?, *key)));
        let Some((_, oldest)) = put_by.min() else { return false };
        self.save(oldest)
    }

    /// New packets find this row of a DAG; `bytes` are the configurations that came with it.
    pub(crate) fn row_is(&mut self, dag: &DagRow, bytes: Option<&[u8]>) {
        let number = row_of(dag.uid);
        let row = Row { uid: dag.uid, tenant: dag.tenant, tag: dag.configuration };
        let before = self.rows.insert(number, row);
        self.forget(number, dag.uid);
        let of_dag = |key: &TaskKey| key.0 == dag.uid;
        for (_, instance) in self.instances.iter_mut().filter(|(key, _)| of_dag(key)) {
            instance.put_by = None;
        }
        self.saved.row_is(dag.uid);
        let is_same = before.is_some_and(|before| (before.uid, before.tag) == (row.uid, row.tag));
        if !is_same && (row.tag == 0 || bytes.is_some()) {
            self.configure(dag.uid, bytes.unwrap_or_default());
        }
    }

    fn configure(&mut self, uid: u32, bytes: &[u8]) {
        // The model has looked at the bytes already.
        let entries = entries(bytes).unwrap_or_default();
        let own: BTreeMap<TaskKey, &str> = entries
            .iter()
            .filter(|entry| !NT_TYPES.contains(&entry.nt_type))
            .map(|entry| ((uid, entry.number), entry.json))
            .collect();
        let gone = |key: &TaskKey| key.0 == uid && !own.contains_key(key);
        // One that had a configuration begins again without it.
        let begins_again = |key: &TaskKey| gone(key) && self.configurations.contains_key(key);
        self.instances.retain(|key, _| !begins_again(key));
        self.saved.forget(begins_again);
        self.configurations.retain(|key, _| !gone(key));
        for (key, json) in own {
            let before = self.configurations.insert(key, json.into());
            let instance = self.instances.get_mut(&key);
            if let Some(instance) = instance.filter(|_| before.as_deref() != Some(json)) {
                instance.is_behind = true;
            }
        }
    }

    /// A row of the DAG table is empty from now on.
    pub(crate) fn row_is_gone(&mut self, now: Timestamp, number: u16) {
        let Some(row) = self.rows.remove(&number) else { return };
        for (_, instance) in self.instances.iter_mut().filter(|(key, _)| key.0 == row.uid) {
            instance.put_by = instance.put_by.or(Some(now));
        }
        self.saved.row_is_gone(now, row.uid);
        self.look_at = self.look_at.or(Some(now + PUT_BY));
    }

    /// Removes what was put by for too long.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        if self.look_at.is_none_or(|at| now < at) {
            return;
        }
        self.instances
            .retain(|_, instance| instance.put_by.is_none_or(|since| now.since(since) < PUT_BY));
        let instances = &self.instances;
        let has_modules = |tenant| instances.values().any(|instance| instance.tenant == tenant);
        let pays_back = self.budgets.retain(now, has_modules);
        let oldest = self.instances.values().filter_map(|instance| instance.put_by).min();
        let oldest = oldest.into_iter().chain(self.saved.expire(now)).min();
        let puts_by = oldest.map(|since| since + PUT_BY);
        self.look_at = puts_by.into_iter().chain(pays_back).min();
        let rows = &self.rows;
        let instances = &self.instances;
        self.configurations.retain(|key, _| {
            rows.get(&row_of(key.0)).is_some_and(|row| row.uid == key.0)
                || instances.contains_key(key)
        });
    }

    /// The row of this number belongs to this DAG now.
    fn forget(&mut self, number: u16, own: u32) {
        let before = self.instances.len();
        self.instances.retain(|(uid, _), _| row_of(*uid) != number || *uid == own);
        self.saved.forget_others(number, own);
        if self.instances.len() < before {
            // A tenant may have none left.
            self.look_at = Some(Timestamp::ZERO);
        }
    }

    /// The power failed: all is gone.
    pub(crate) fn clear(&mut self) {
        *self = Self { compiler: self.compiler.take(), ..Self::default() };
    }

    /// Counts of the modules.
    pub(crate) fn observe(&self) -> impl Iterator<Item = TaskObservation> + '_ {
        self.instances.iter().map(|(&(uid, _), instance)| {
            let mut seen = TaskObservation {
                uid,
                nt_type: instance.slot.nt.to_string(),
                tag: self.rows.get(&row_of(uid)).map_or(0, |row| row.tag),
                restarts: instance.module.restarts(),
                ..TaskObservation::default()
            };
            seen.count(instance.module.counters());
            seen
        })
    }
}

/// A UID names its row in its low bits.
const fn row_of(uid: u32) -> u16 {
    DagUid::from_raw(uid).row()
}

impl std::fmt::Debug for Modules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Modules")
            .field("regions", &self.regions)
            .field("instances", &self.instances.keys())
            .finish_non_exhaustive()
    }
}
