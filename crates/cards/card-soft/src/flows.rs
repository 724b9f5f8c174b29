//! The flow table: what the NTs of a DAG do with further packets of a flow.
//!
//! A frame is looked up once, at its first NT, by its DAG and [`FlowKey`]. Then each NT of its chain follows the rule that it
//! made for such packets ([`snic_nts::FlowRule`]), in place of parsing the frame and searching its tables:
//!
//! ```text
//!                 no key: SYN, FIN, RST, fragment, options, ICMP ...
//!   first NT ──────────────────────────────────────────────────────────► tasks, at every NT
//!      │  no rules yet: the NT processes the frame, and its rule, if it gives one, is the first step
//!      ▼
//!   step 0 ──► step 1 ──► ... behind the last step, at another NT than the step's, or where the rule does not hold any more:
//!                             the NT processes the frame, and its new rule is the next step; without one, tasks from here on
//! ```
//!
//! Rules change nothing but the time that a frame takes: the model passes it at the same times through the same NTs, and each
//! NT changes and counts the same. Each NT checks its own rule, so a rule that is out of date costs one frame's search.
//!
//! NTs of a chain learn from each other which addresses they give to packets. A frame that was on its way when one learnt
//! news is processed from there on, for it may have news, too.
//!
//! The steps hold for frames that went through all steps before them. A step that is given up therefore ends the places of
//! all other frames in these rules (their stamp), or they would follow rules that were made for other addresses.
//!
//! Tenants share the table. When it is full, a new flow takes the place of the oldest one of the tenant that has most: a
//! tenant that opens a million flows takes none from tenants with a smaller share.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use snic_domain::limits::DAG_ROWS;
use snic_domain::{DagUid, NtNumber};
use snic_nts::{Context, FlowKey, FlowRule, NtInstance, Packet, Verdict, wire::Layout};

use crate::header_rules::HeaderRule;

/// Flows in the table at most: 24 MB, most of which are taken as flows come.
pub(crate) const FLOWS_MAX: usize = 16_384;
/// NTs of a chain that have rules; those behind them process each frame.
const STEPS_MAX: usize = 4;

/// Progress of a frame through the rules of its flow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum FrameFlow {
    /// It has met no NT yet.
    #[default]
    New,
    /// It is of a flow without rules.
    Keyed(FlowKey),
    /// It has followed, or given, all steps of a flow so far.
    At(FlowPlace),
    /// Each NT processes it.
    Unruled,
}

/// Place of a frame in the rules of its flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowPlace {
    slot: u32,
    stamp: u64,
    step: usize,
    /// News that the DAG's NTs had learnt of each other when the frame met the first of them.
    learnt: u32,
    layout: Layout,
}

/// Changes of a DAG.
#[derive(Debug, Clone, Copy, Default)]
struct DagChanges {
    /// Changes of its row.
    generation: u32,
    /// News that its NTs have learnt of each other.
    learnt: u32,
    /// Packets that an NT of it has processed, and not treated by a rule.
    processed: u32,
    /// DAG whose flows were last in the table, and how many are.
    uid: u32,
    flows: u32,
    /// Flows of it that others took the place of.
    evicted: u64,
}

/// A flow of a DAG.
type DagFlow = (u32, FlowKey);

/// Rules of a flow with their NTs, in their order.
pub(crate) type FlowSteps = [Option<(NtNumber, FlowRule)>; STEPS_MAX];

#[derive(Debug)]
struct FlowSlot {
    flow: DagFlow,
    /// Generation of the DAG's row.
    generation: u32,
    /// Another one whenever a step is given up.
    stamp: u64,
    steps: FlowSteps,
    steps_made: usize,
    /// Its packets pass elsewhere, by its rules as they are.
    is_given: bool,
}

/// All flows of a card that have rules, with the tenants that they count for.
#[derive(Debug)]
pub(crate) struct FlowTable {
    index: HashMap<DagFlow, u32>,
    slots: Vec<FlowSlot>,
    free: Vec<u32>,
    /// Flows by tenant, the oldest first.
    tenants: BTreeMap<u16, VecDeque<u32>>,
    /// Numbers of flows with their tenants.
    shares: BTreeSet<(usize, u16)>,
    /// Changes of DAGs, by their row.
    changes: Box<[DagChanges]>,
    stamps: u64,
    capacity: usize,
    /// Flows that had been given away when a step of theirs was given up.
    ended: Vec<u32>,
}

/// Rule of a whole chain for a flow that may be given away.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowOffer {
    pub(crate) slot: u32,
    /// Stamp of the steps that it is made of.
    pub(crate) stamp: u64,
    pub(crate) uid: u32,
    pub(crate) rule: HeaderRule,
}

impl FlowTable {
    /// An empty table for `capacity` flows.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            index: HashMap::with_capacity(2 * capacity),
            slots: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            tenants: BTreeMap::new(),
            shares: BTreeSet::new(),
            changes: vec![DagChanges::default(); DAG_ROWS].into_boxed_slice(),
            stamps: 0,
            capacity,
            ended: Vec::new(),
        }
    }

    /// Number of flows with rules.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Use of the table by DAGs that have flows in it, or lost some: their UIDs, flows, and flows that others took the place of.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (u32, u32, u64)> + '_ {
        let used = self.changes.iter().filter(|dag| dag.flows > 0 || dag.evicted > 0);
        used.map(|dag| (dag.uid, dag.flows, dag.evicted))
    }

    /// The verdict of the NT's rule for a frame; `None` where the NT is to process it, and to say what it does with the next
    /// ones ([`FlowTable::record`]).
    pub(crate) fn follow(
        &mut self,
        frame: (&mut Packet, &mut FrameFlow),
        (uid, nt): (u32, NtNumber),
        instance: &mut NtInstance,
        context: &mut Context<'_>,
    ) -> Option<Verdict> {
        let (packet, flow) = frame;
        if matches!(flow, FrameFlow::New) {
            *flow = self.find(uid, packet.bytes());
        }
        let FrameFlow::At(place) = flow else { return None };
        let learnt = changes_of(&self.changes, uid).learnt;
        let found = self.slots.get_mut(place.slot as usize);
        let Some(slot) = found.filter(|slot| (slot.stamp, learnt) == (place.stamp, place.learnt))
        else {
            *flow = FrameFlow::Unruled;
            return None;
        };
        let (of, rule) = slot.steps.get(place.step)?.as_ref()?;
        let is_same = *of == nt;
        let verdict =
            is_same.then(|| instance.follow(rule, packet, &mut place.layout, context)).flatten();
        if verdict.is_some() {
            place.step += 1;
        } else {
            self.stamps += 1;
            slot.give_up(place.step, self.stamps);
            note_ended(&mut self.ended, place.slot, slot);
            place.stamp = self.stamps;
        }
        verdict
    }

    /// The place of a frame before its first NT.
    fn find(&mut self, uid: u32, frame: &[u8]) -> FrameFlow {
        let Some((key, layout)) = FlowKey::of(frame) else { return FrameFlow::Unruled };
        let Some(&slot) = self.index.get(&(uid, key)) else { return FrameFlow::Keyed(key) };
        let DagChanges { generation, learnt, .. } = changes_of(&self.changes, uid);
        let found = &mut self.slots[slot as usize];
        if found.generation != generation {
            self.stamps += 1;
            found.give_up(0, self.stamps);
            note_ended(&mut self.ended, slot, found);
            found.generation = generation;
        }
        FrameFlow::At(FlowPlace { slot, stamp: found.stamp, step: 0, learnt, layout })
    }

    /// Keeps the rule of an NT that has just processed a frame, if it has one.
    pub(crate) fn record(
        &mut self,
        frame: (&Packet, &mut FrameFlow),
        (uid, nt): (u32, NtNumber),
        rule: Option<FlowRule>,
        tenant: impl FnOnce() -> Option<u16>,
    ) {
        let (packet, flow) = frame;
        let place = rule.and_then(|rule| {
            let (_, layout) = FlowKey::of(packet.bytes())?;
            let place = match *flow {
                FrameFlow::Keyed(key) => {
                    let slot = self.insert((uid, key), tenant()?);
                    let learnt = changes_of(&self.changes, uid).learnt;
                    let stamp = self.slots[slot as usize].stamp;
                    FlowPlace { slot, stamp, step: 0, learnt, layout }
                }
                // Its stamp was compared when the NT had no rule for it.
                FrameFlow::At(place) => place,
                FrameFlow::New | FrameFlow::Unruled => return None,
            };
            self.slots[place.slot as usize].add(place.step, (nt, rule))?;
            Some(FlowPlace { step: place.step + 1, layout, ..place })
        });
        *flow = place.map_or(FrameFlow::Unruled, FrameFlow::At);
    }

    /// The rule of the whole chain for the flow of a frame that has left it; `None` where an NT of the chain needs each
    /// packet, or the frame has not followed all steps.
    pub(crate) fn compose(&self, uid: u32, flow: &FrameFlow) -> Option<HeaderRule> {
        let FrameFlow::At(place) = flow else { return None };
        let DagChanges { generation, learnt, .. } = changes_of(&self.changes, uid);
        let slot = self.slots.get(place.slot as usize)?;
        let is_valid = (slot.flow.0, slot.generation, slot.stamp) == (uid, generation, place.stamp);
        let is_whole = place.step == slot.steps_made && place.learnt == learnt;
        if !is_valid || !is_whole {
            return None;
        }
        let before = slot.flow.1;
        let (mut after, mut is_back) = (before, false);
        for (_, rule) in slot.steps[..slot.steps_made].iter().flatten() {
            after = after.behind(rule)?;
            is_back |= rule.is_reply();
        }
        HeaderRule::new(before, after, is_back)
    }

    /// The rule of the whole chain for the flow of a frame that has left it, where its packets do not pass elsewhere already.
    pub(crate) fn offer(&self, flow: &FrameFlow) -> Option<FlowOffer> {
        let FrameFlow::At(place) = flow else { return None };
        let slot = self.slots.get(place.slot as usize).filter(|slot| !slot.is_given)?;
        let rule = self.compose(slot.flow.0, flow)?;
        Some(FlowOffer { slot: place.slot, stamp: slot.stamp, uid: slot.flow.0, rule })
    }

    /// The packets of a flow pass elsewhere from now on.
    pub(crate) fn note_given(&mut self, offer: &FlowOffer) {
        if let Some(slot) = self.slots.get_mut(offer.slot as usize) {
            slot.is_given = slot.stamp == offer.stamp;
        }
    }

    /// The packets of a flow come here again.
    pub(crate) fn note_taken_back(&mut self, slot: u32) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.is_given = false;
        }
    }

    /// Flows that were given away and whose rules have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ended)
    }

    /// DAG, key and steps of a flow as they were offered; `None` where that has changed.
    pub(crate) fn steps_of(&self, offer: &FlowOffer) -> Option<(FlowKey, FlowSteps)> {
        let slot = self.slots.get(offer.slot as usize)?;
        let is_same = (slot.stamp, slot.flow.0) == (offer.stamp, offer.uid);
        is_same.then_some((slot.flow.1, slot.steps))
    }

    /// A flow without steps. It takes the place of another one where the table is full.
    fn insert(&mut self, flow: DagFlow, tenant: u16) -> u32 {
        if let Some(&slot) = self.index.get(&flow) {
            // Another frame of it was here since this one was looked up.
            return slot;
        }
        if self.index.len() >= self.capacity {
            self.evict();
        }
        self.stamps += 1;
        let generation = changes_of(&self.changes, flow.0).generation;
        let stamp = self.stamps;
        let steps = [const { None }; STEPS_MAX];
        let new = FlowSlot { flow, generation, stamp, steps, steps_made: 0, is_given: false };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = new;
                slot
            }
            None => {
                self.slots.push(new);
                (self.slots.len() - 1) as u32
            }
        };
        self.index.insert(flow, slot);
        if let Some(dag) = change_of(&mut self.changes, flow.0) {
            if dag.uid != flow.0 {
                (dag.uid, dag.flows, dag.evicted) = (flow.0, 0, 0);
            }
            dag.flows += 1;
        }
        self.change_share(tenant, |flows| flows.push_back(slot));
        slot
    }

    /// Removes the oldest flow of the tenant that has most.
    fn evict(&mut self) {
        let Some(&(_, tenant)) = self.shares.last() else { return };
        let oldest = self.change_share(tenant, VecDeque::pop_front);
        if let Some(slot) = oldest {
            let uid = self.slots[slot as usize].flow.0;
            self.release(slot);
            if let Some(dag) = change_of(&mut self.changes, uid).filter(|dag| dag.uid == uid) {
                dag.evicted += 1;
            }
        }
    }

    /// Frees a slot that is in no tenant's list any more.
    fn release(&mut self, slot: u32) {
        self.stamps += 1;
        let freed = &mut self.slots[slot as usize];
        freed.give_up(0, self.stamps);
        note_ended(&mut self.ended, slot, freed);
        let (uid, _) = freed.flow;
        self.index.remove(&freed.flow);
        self.free.push(slot);
        // A row that has gone to another DAG counts that one's flows.
        if let Some(dag) = change_of(&mut self.changes, uid).filter(|dag| dag.uid == uid) {
            dag.flows -= 1;
        }
    }

    /// Changes the list of a tenant's flows, and its share.
    fn change_share<T>(&mut self, tenant: u16, change: impl FnOnce(&mut VecDeque<u32>) -> T) -> T {
        let flows = self.tenants.entry(tenant).or_default();
        self.shares.remove(&(flows.len(), tenant));
        let result = change(flows);
        match flows.len() {
            0 => drop(self.tenants.remove(&tenant)),
            count => drop(self.shares.insert((count, tenant))),
        }
        result
    }

    /// A DAG's row changed: none of its rules holds any more.
    pub(crate) fn invalidate(&mut self, row: u16) {
        if let Some(changes) = self.changes.get_mut(usize::from(row)) {
            changes.generation = changes.generation.wrapping_add(1);
        }
    }

    /// NTs of a DAG have learnt news of each other.
    pub(crate) fn note_learnt(&mut self, row: u16) {
        if let Some(changes) = self.changes.get_mut(usize::from(row)) {
            changes.learnt = changes.learnt.wrapping_add(1);
        }
    }

    /// An NT of a DAG has processed a packet: what it keeps may be another.
    pub(crate) fn note_processed(&mut self, row: u16) {
        if let Some(changes) = self.changes.get_mut(usize::from(row)) {
            changes.processed = changes.processed.wrapping_add(1);
        }
    }

    /// Number of packets that NTs of a DAG have processed, modulo 2³².
    pub(crate) fn processed(&self, row: u16) -> u32 {
        self.changes.get(usize::from(row)).map_or(0, |changes| changes.processed)
    }

    /// Removes the flows of a DAG that is no more. Time O(flows of its tenant).
    pub(crate) fn remove_dag(&mut self, uid: u32, tenant: u16) {
        if !self.tenants.contains_key(&tenant) {
            self.forget_evicted(uid);
            return;
        }
        let mut flows = self.change_share(tenant, std::mem::take);
        flows.retain(|slot| {
            let goes = self.slots[*slot as usize].flow.0 == uid;
            if goes {
                self.release(*slot);
            }
            !goes
        });
        if !flows.is_empty() {
            self.change_share(tenant, |kept| *kept = flows);
        }
        self.forget_evicted(uid);
    }

    fn forget_evicted(&mut self, uid: u32) {
        if let Some(dag) = change_of(&mut self.changes, uid).filter(|dag| dag.uid == uid) {
            dag.evicted = 0;
        }
    }
}

/// A step of a flow was given up: whoever passes its packets has to stop.
fn note_ended(ended: &mut Vec<u32>, at: u32, slot: &mut FlowSlot) {
    if std::mem::take(&mut slot.is_given) {
        ended.push(at);
    }
}

/// The place of a DAG's changes.
fn change_of(changes: &mut [DagChanges], uid: u32) -> Option<&mut DagChanges> {
    changes.get_mut(usize::from(DagUid::from_raw(uid).row()))
}

/// The changes of a DAG so far.
fn changes_of(changes: &[DagChanges], uid: u32) -> DagChanges {
    changes.get(usize::from(DagUid::from_raw(uid).row())).copied().unwrap_or_default()
}

impl FlowSlot {
    /// Gives up the steps from `step` on, and the places of all frames.
    fn give_up(&mut self, step: usize, stamp: u64) {
        self.stamp = stamp;
        self.steps_made = self.steps_made.min(step);
        self.steps[self.steps_made..].fill(None);
    }

    /// Adds the step of a frame that has followed `step` ones; `None` where that is not the next, or there is no room.
    fn add(&mut self, step: usize, rule: (NtNumber, FlowRule)) -> Option<()> {
        if step != self.steps_made {
            return None;
        }
        *self.steps.get_mut(step)? = Some(rule);
        self.steps_made += 1;
        Some(())
    }
}

#[cfg(test)]
impl FlowTable {
    /// The table's invariants.
    pub(crate) fn check(&self) {
        assert!(self.index.len() <= self.capacity);
        assert!(self.index.iter().all(|(flow, slot)| self.slots[*slot as usize].flow == *flow));
        let listed: Vec<_> = self.tenants.values().flatten().collect();
        assert_eq!(listed.len(), self.index.len(), "each flow is in the list of one tenant");
        assert!(listed.iter().all(|slot| self.index.values().any(|used| used == *slot)));
        assert_eq!(self.free.len() + self.index.len(), self.slots.len());
        let shares = self.tenants.iter().map(|(tenant, flows)| (flows.len(), *tenant));
        assert_eq!(shares.collect::<BTreeSet<_>>(), self.shares);
        let mut counted = BTreeMap::<u32, u32>::new();
        self.index.keys().for_each(|(uid, _)| *counted.entry(*uid).or_default() += 1);
        let said =
            self.uses().filter(|(_, flows, _)| *flows > 0).map(|(uid, flows, _)| (uid, flows));
        assert_eq!(said.collect::<BTreeMap<_, _>>(), counted, "flows of each DAG");
    }
}

#[cfg(test)]
mod tests;
