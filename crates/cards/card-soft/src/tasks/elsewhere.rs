//! Flows whose packets pass elsewhere: NTs say whether their rules hold, and count the packets.

use snic_domain::Timestamp;
use snic_nts::{Context, FlowKey};

use super::{Tasks, row_of};
use crate::flows::{FlowOffer, FlowSteps, FrameFlow};

impl Tasks {
    /// The rule of the whole chain for the flow of a frame that has left it, where its packets do not pass elsewhere already.
    pub(crate) fn offer(&self, flow: &FrameFlow) -> Option<FlowOffer> {
        self.flows.offer(flow)
    }

    /// The packets of a flow pass elsewhere from now on.
    pub(crate) fn note_given(&mut self, offer: &FlowOffer) {
        self.flows.note_given(offer);
    }

    /// The packets of a flow come here again.
    pub(crate) fn note_taken_back(&mut self, slot: u32) {
        self.flows.note_taken_back(slot);
    }

    /// Flows whose packets passed elsewhere and whose rules have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<u32> {
        self.flows.take_ended()
    }

    /// Number of packets that NTs of a row's DAG have processed, modulo 2³²: while it stays, no rule of the DAG ends but by time.
    pub(crate) fn processed(&self, row: u16) -> u32 {
        self.flows.processed(row)
    }

    /// Steps of a flow as they were offered.
    pub(crate) fn steps_of(&self, offer: &FlowOffer) -> Option<(FlowKey, FlowSteps)> {
        self.flows.steps_of(offer)
    }

    /// Whether each NT would still do with a flow's packets as its rule says.
    pub(crate) fn holds(&self, offer: &FlowOffer, now: Timestamp) -> bool {
        let Some((mut key, steps)) = self.flows.steps_of(offer) else { return false };
        steps.iter().flatten().all(|(nt, rule)| {
            let task = self.tasks.get(&(offer.uid, *nt));
            let instance = task.and_then(|task| task.instance.as_ref());
            let holds = instance.is_some_and(|instance| instance.holds(rule, &key, now));
            let next = key.behind(rule);
            key = next.unwrap_or(key);
            holds && next.is_some()
        })
    }

    /// Counts packets of a flow that passed elsewhere, the last one at `last`, and has timers start again from there. `steps` are those
    /// that the flow had. Says whether all of their rules held then.
    pub(crate) fn passed_elsewhere(
        &mut self,
        uid: u32,
        (mut key, steps): (FlowKey, FlowSteps),
        packets: u64,
        last: Timestamp,
    ) -> bool {
        let mut held = true;
        for (nt, rule) in steps.iter().flatten() {
            if let Some(task) = self.tasks.get_mut(&(uid, *nt))
                && let Some(instance) = &mut task.instance
            {
                task.by_rule += packets;
                let (random, emitted) = (&mut self.random, &mut self.emitted);
                let mut context = Context { now: last, random, emitted };
                held &= instance.passed_elsewhere((rule, &key), packets, &mut context);
            }
            key = key.behind(rule).unwrap_or(key);
        }
        if !held {
            self.flows.note_processed(row_of(uid));
        }
        held
    }
}
