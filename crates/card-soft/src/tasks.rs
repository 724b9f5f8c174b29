//! The NTs of the DAGs: which code is which type, their configurations and what they keep.
//!
//! What an NT keeps for a DAG is in the card's memory, by DAG and NT, as SuperNIC keeps it in on-board
//! memory behind a page table: all instances of an NT see the same tables, and a region can be loaded
//! again under them. It begins with the DAG's first configuration of that NT and goes when the DAG's row
//! goes. An NT without a configuration passes packets on as they are.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use snic_domain::Timestamp;
use snic_nts::{Context, Direction, Emitted, Instance, Packet, Pool, Verdict};

use crate::protocol::TaskObservation;

/// An NT of a DAG: the DAG's UID and the NT's code.
pub(crate) type TaskKey = (u32, u32);

/// The NTs of all DAGs.
pub(crate) struct Tasks {
    tasks: BTreeMap<TaskKey, (&'static str, Instance)>,
    random: ChaCha8Rng,
    pub(crate) emitted: Emitted,
}

impl Tasks {
    pub(crate) fn new(pool: &Pool, random: ChaCha8Rng) -> Self {
        Self { tasks: BTreeMap::new(), random, emitted: Emitted::new(pool.clone()) }
    }

    /// Works on a packet; `None` where the NT has no configuration for its DAG, or does not touch bytes.
    pub(crate) fn process(
        &mut self,
        key: TaskKey,
        packet: &mut Packet,
        now: Timestamp,
    ) -> Option<Verdict> {
        let (_, task) = self.tasks.get_mut(&key)?;
        let mut context = Context { now, random: &mut self.random, emitted: &mut self.emitted };
        Some(task.process(packet, &mut context))
    }

    /// Frames that the last packet's NT made.
    pub(crate) fn made(&mut self) -> impl Iterator<Item = (Direction, Packet)> + '_ {
        self.emitted.drain()
    }

    /// A DAG's row is gone, or has another UID now: so is all that its NTs kept.
    pub(crate) fn keep(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.tasks.retain(|(uid, _), _| is_kept(*uid));
    }

    /// What went through them.
    pub(crate) fn observe(&self) -> Vec<TaskObservation> {
        let observe = |(&(uid, _), (name, task)): (&TaskKey, &(&str, Instance))| {
            let counters = task.counters();
            TaskObservation {
                uid,
                nt_type: (*name).to_owned(),
                received: counters.received,
                forwarded: counters.forwarded,
                replied: counters.replied,
                consumed: counters.consumed,
                emitted: counters.emitted,
                dropped: counters.drops().map(|(why, n)| (why.name().to_owned(), n)).collect(),
            }
        };
        self.tasks.iter().map(observe).collect()
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("of", &self.tasks.keys()).finish_non_exhaustive()
    }
}
