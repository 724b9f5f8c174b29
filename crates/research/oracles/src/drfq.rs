//! Dominant Resource Fair Queueing, packet by packet (Ghodsi et al., SIGCOMM 2012).
//!
//! Every packet gets a virtual start S and a virtual finish F when it arrives. The packet with the
//! smallest start is served next; ties go to the lower flow:
//!
//! ```text
//!   memoryless    S = max(V, F of the flow's previous packet)        F = S + max_k s_k / w
//!   dovetailing   S_k = max(V_k, F_k of the previous packet)         F_k = S_k + s_k / w     by max_k S_k
//! ```
//!
//! s_k is the processing time of the packet at resource k, w the weight of the flow. Memoryless charges
//! each packet for its own dominant resource. Dovetailing charges the flow for the dominant resource of
//! all its packets together, so packets that need different resources are paid for once.
//!
//! V is the virtual time, the largest start served so far. There is one for each resource, and a packet
//! takes the smallest V of the resources it uses (dovetailing: each). The single V of the paper is the
//! same if all flows meet at one bottleneck. Otherwise flows at an idle resource run ahead and pull V up
//! for those that queue at a busy one, until these are served by arrival instead of by weight.
//!
//! When no packet waits for a resource, its V jumps to the largest finish served: a new busy period
//! begins with all flows equal, and idle time is not saved up.
//!
//! Virtual time is in units of 2^-32 of a cost. The remainder of the division by the weight is carried
//! to the flow's next packet, so the times of a backlogged flow do not drift and equal times are equal.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use smallvec::SmallVec;
use snic_domain::Timestamp;
use snic_fairness::Weight;

/// Bits after the point of a virtual time.
const FRACTION_BITS: u32 = 32;
/// Most resources: those of the largest card.
pub const RESOURCES_MAX: usize = snic_fairness::fluid::RESOURCES_MAX;

/// Charge of a flow for packets that need different resources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Charging {
    /// Each packet by its own dominant resource.
    #[default]
    Memoryless,
    /// The flow by the dominant resource of its packets together.
    Dovetailing,
}

/// Number of a flow, in the order of [`Drfq::add_flow`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// Cost of one packet at each resource, in any unit that all packets share.
pub type Costs = SmallVec<[u64; 8]>;

type Times = SmallVec<[u128; 8]>;

/// A served packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedPacket<T> {
    pub flow: FlowId,
    /// Its cost at each resource.
    pub costs: Costs,
    /// When it arrived.
    pub arrived: Timestamp,
    pub item: T,
}

/// Why a packet is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnqueueError {
    /// A flow that was never added.
    #[error("unknown flow {}; add it first", flow.0)]
    UnknownFlow { flow: FlowId },
    /// Costs for another number of resources.
    #[error("{given} costs for {resources} resources; expected one for each")]
    WrongLength {
        /// Number of given costs.
        given: usize,
        /// Number of resources.
        resources: usize,
    },
    /// A packet that costs nothing anywhere would be first forever.
    #[error("a packet of flow {} costs nothing at any resource; it needs no scheduler", flow.0)]
    NoCost { flow: FlowId },
    /// The flow has as many packets waiting as it may.
    #[error("the queue of flow {} is full with {waiting} packets", flow.0)]
    QueueFull {
        flow: FlowId,
        /// Number of waiting packets.
        waiting: usize,
    },
}

/// More resources than are supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{given} resources exceed the limit of {RESOURCES_MAX}")]
pub struct TooManyResources {
    /// Number of given weights.
    pub given: usize,
}

struct Waiting<T> {
    /// Virtual start and finish: one of each, or by resource when dovetailing.
    starts: Times,
    finishes: Times,
    key: u128,
    packet: ServedPacket<T>,
}

struct Flow<T> {
    weight: Weight,
    queue: VecDeque<Waiting<T>>,
    /// Virtual finish of its last packet, and what the division by the weight left over.
    finish: Times,
    remainder: SmallVec<[u64; 8]>,
}

/// The scheduler: packets in, and out in the order of their virtual starts.
///
/// ```
/// use snic_domain::Timestamp;
/// use snic_fairness::Weight;
/// use snic_oracles::drfq::{Charging, Drfq};
/// let mut drfq = Drfq::new(Charging::Memoryless, 2, 64)?;
/// let (small, large) = (drfq.add_flow(Weight::ONE), drfq.add_flow(Weight::ONE));
/// for _ in 0..2 {
///     drfq.enqueue(large, &[3, 3], Timestamp::ZERO, "large")?;
///     drfq.enqueue(small, &[1, 2], Timestamp::ZERO, "small")?;
/// }
/// let order: Vec<_> = std::iter::from_fn(|| drfq.next()).map(|served| served.item).collect();
/// assert_eq!(order, ["small", "large", "small", "large"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Drfq<T> {
    charging: Charging,
    resources: usize,
    queue_max: usize,
    flows: Vec<Flow<T>>,
    /// The first packet of every flow that has one: key and flow.
    heads: BinaryHeap<Reverse<(u128, u32)>>,
    /// Virtual time, by resource: the largest start served of a packet that uses it.
    now: Times,
    /// The largest finish served: one, or by resource when dovetailing.
    finished: Times,
    /// Number of packets that wait for each resource.
    waiting_for: SmallVec<[u32; 8]>,
    clock: Timestamp,
    waiting: usize,
}

impl<T> Drfq<T> {
    /// A scheduler for `resources` resources (1 to [`RESOURCES_MAX`]) whose flows may each have
    /// `queue_max` packets waiting.
    ///
    /// # Errors
    ///
    /// [`TooManyResources`] over [`RESOURCES_MAX`].
    pub fn new(
        charging: Charging,
        resources: usize,
        queue_max: usize,
    ) -> Result<Self, TooManyResources> {
        if resources > RESOURCES_MAX {
            return Err(TooManyResources { given: resources });
        }
        let lanes = match charging {
            Charging::Memoryless => 1,
            Charging::Dovetailing => resources,
        };
        let nobody = smallvec::smallvec![0; resources];
        Ok(Self {
            charging,
            resources,
            queue_max,
            flows: Vec::new(),
            heads: BinaryHeap::new(),
            now: smallvec::smallvec![0; resources],
            finished: smallvec::smallvec![0; lanes],
            waiting_for: nobody,
            clock: Timestamp::ZERO,
            waiting: 0,
        })
    }

    /// Adds a flow; the first is flow 0.
    pub fn add_flow(&mut self, weight: Weight) -> FlowId {
        let lanes = self.finished.len();
        let id = FlowId(u32::try_from(self.flows.len()).expect("fewer flows than memory holds"));
        self.flows.push(Flow {
            weight,
            queue: VecDeque::new(),
            finish: smallvec::smallvec![0; lanes],
            remainder: smallvec::smallvec![0; lanes],
        });
        id
    }

    /// Changes the weight of `flow` for the packets that come from now on.
    ///
    /// # Errors
    ///
    /// [`EnqueueError::UnknownFlow`] where `flow` was never added.
    pub fn set_weight(&mut self, flow: FlowId, weight: Weight) -> Result<(), EnqueueError> {
        let flow = self.flow_mut(flow)?;
        flow.weight = weight;
        flow.remainder.fill(0);
        Ok(())
    }

    fn flow_mut(&mut self, flow: FlowId) -> Result<&mut Flow<T>, EnqueueError> {
        self.flows.get_mut(flow.0 as usize).ok_or(EnqueueError::UnknownFlow { flow })
    }

    /// Takes a packet that arrives at `now`. A `now` before the last one counts as the last one.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`]: an unknown flow, a wrong number of costs, a packet without any cost, or a
    /// full queue. The packet is dropped and nothing is changed.
    pub fn enqueue(
        &mut self,
        flow: FlowId,
        costs: &[u64],
        now: Timestamp,
        item: T,
    ) -> Result<(), EnqueueError> {
        if costs.len() != self.resources {
            let (given, resources) = (costs.len(), self.resources);
            return Err(EnqueueError::WrongLength { given, resources });
        }
        let queue_max = self.queue_max;
        let waiting = self.flow_mut(flow)?.queue.len();
        let Some(&largest) = costs.iter().max().filter(|&&cost| cost > 0) else {
            return Err(EnqueueError::NoCost { flow });
        };
        if waiting >= queue_max {
            return Err(EnqueueError::QueueFull { flow, waiting });
        }
        self.clock = self.clock.max(now);
        self.begin_busy_periods(costs);
        let (starts, finishes) = match self.charging {
            Charging::Memoryless => {
                let used = (0..costs.len()).filter(|&k| costs[k] > 0);
                let behind = used.map(|k| self.now[k]).min().unwrap_or(0);
                self.charge(flow, &[largest], &[behind])
            }
            Charging::Dovetailing => {
                let now = self.now.clone();
                self.charge(flow, costs, &now)
            }
        };
        let key = starts.iter().copied().max().unwrap_or(0);
        if waiting == 0 {
            self.heads.push(Reverse((key, flow.0)));
        }
        let packet = ServedPacket { flow, costs: costs.into(), arrived: self.clock, item };
        self.flow_mut(flow)?.queue.push_back(Waiting { starts, finishes, key, packet });
        self.waiting += 1;
        Ok(())
    }

    /// Counts a packet in at the resources it uses; where it is the first, time jumps.
    fn begin_busy_periods(&mut self, costs: &[u64]) {
        for k in (0..costs.len()).filter(|&k| costs[k] > 0) {
            if self.waiting_for[k] == 0 {
                let lane = k.min(self.finished.len() - 1);
                self.now[k] = self.now[k].max(self.finished[lane]);
            }
            self.waiting_for[k] += 1;
        }
    }

    /// The virtual starts and finishes of a packet, one for each cost; a resource it does not use
    /// has no part in its turn. 2^96 units of cost fit, more than a card of 100 resources works off
    /// in the age of the universe.
    fn charge(&mut self, flow: FlowId, costs: &[u64], behind: &[u128]) -> (Times, Times) {
        let flow = &mut self.flows[flow.0 as usize];
        let weight = u128::from(flow.weight.get());
        let (mut starts, mut finishes) = (Times::new(), Times::new());
        for (k, (&cost, &behind)) in costs.iter().zip(behind).enumerate() {
            if cost == 0 {
                starts.push(0);
                finishes.push(0);
                continue;
            }
            if behind > flow.finish[k] {
                flow.finish[k] = behind;
                flow.remainder[k] = 0;
            }
            starts.push(flow.finish[k]);
            let work = (u128::from(cost) << FRACTION_BITS) + u128::from(flow.remainder[k]);
            flow.finish[k] += work / weight;
            flow.remainder[k] = (work % weight) as u64;
            finishes.push(flow.finish[k]);
        }
        (starts, finishes)
    }

    /// The packet whose turn it is; `None` when nothing waits.
    #[expect(clippy::should_implement_trait, reason = "a scheduler is refilled between calls")]
    pub fn next(&mut self) -> Option<ServedPacket<T>> {
        self.next_where(|_| true)
    }

    /// The first packet, in the order of virtual starts, for which `can_start` returns `true`. It is
    /// called for at most one packet of each flow: packets of a flow stay in order. With several
    /// resources, `can_start` rejects packets whose resources are busy. It should then reserve the
    /// last room at all resources of a rejected packet; otherwise a packet that needs two resources
    /// waits forever behind those that need one.
    pub fn next_where(
        &mut self,
        mut can_start: impl FnMut(&ServedPacket<T>) -> bool,
    ) -> Option<ServedPacket<T>> {
        let mut refused = SmallVec::<[_; 16]>::new();
        let mut found = None;
        while let Some(head) = self.heads.pop() {
            let flow = head.0.1;
            let waits = self.flows[flow as usize].queue.front();
            if waits.is_some_and(|waiting| can_start(&waiting.packet)) {
                found = Some(flow);
                break;
            }
            refused.push(head);
        }
        self.heads.extend(refused);
        self.serve(found?)
    }

    fn serve(&mut self, flow: u32) -> Option<ServedPacket<T>> {
        let queue = &mut self.flows[flow as usize].queue;
        let Waiting { starts, finishes, packet, .. } = queue.pop_front()?;
        if let Some(next) = queue.front() {
            self.heads.push(Reverse((next.key, flow)));
        }
        for k in (0..self.resources).filter(|&k| packet.costs[k] > 0) {
            let lane = k.min(starts.len() - 1);
            self.now[k] = self.now[k].max(starts[lane]);
            self.waiting_for[k] -= 1;
        }
        for (finished, finish) in self.finished.iter_mut().zip(finishes) {
            *finished = finish.max(*finished);
        }
        self.waiting -= 1;
        Some(packet)
    }

    /// Removes all waiting packets of `flow` and returns them in order.
    ///
    /// # Errors
    ///
    /// [`EnqueueError::UnknownFlow`] where `flow` was never added.
    pub fn drain(&mut self, flow: FlowId) -> Result<Vec<T>, EnqueueError> {
        let gone = std::mem::take(&mut self.flow_mut(flow)?.queue);
        self.heads.retain(|head| head.0.1 != flow.0);
        self.waiting -= gone.len();
        for packet in gone.iter().map(|waiting| &waiting.packet) {
            for (waiting, _) in
                self.waiting_for.iter_mut().zip(&packet.costs).filter(|(_, cost)| **cost > 0)
            {
                *waiting -= 1;
            }
        }
        Ok(gone.into_iter().map(|waiting| waiting.packet.item).collect())
    }

    /// Number of packets of `flow` that wait; none where there is no such flow.
    pub fn backlog(&self, flow: FlowId) -> usize {
        self.flows.get(flow.0 as usize).map_or(0, |flow| flow.queue.len())
    }

    /// Number of packets that wait in all.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Virtual time, in units of cost: the largest virtual start served so far.
    pub fn virtual_time(&self) -> f64 {
        let units = self.now.iter().copied().max().unwrap_or(0);
        units as f64 / (1_u64 << FRACTION_BITS) as f64
    }
}
