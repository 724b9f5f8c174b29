//! Turns: how many calls are carried out at once. Who has as many as its share waits until one of its own ends.
//!
//! ```text
//!  call with its message ──► a turn is free for its flow? ──yes──────────────────► service ──► reply
//!                                        └──no──► its flow's queue ──turn ends──► ─┘
//! ```
//!
//! The runtime's threads serve whatever is ready in the order in which it became ready, whoever it is for. When the
//! store has written, hundreds of one caller's calls may become ready at once, and another caller's one behind them
//! waits until all are answered. So few calls are under way at once ([`crate::steps`] shares the
//! threads among those), and the rest waits here, where waiting costs nothing. One part of the turns always stays free for a caller that has none ([`snic_admission::Room`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use snic_admission::Room;
use tokio::sync::oneshot;

use crate::share::{CallerFlow, CallerLevel, call_room};

/// Turns of all callers. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct TurnQueue(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    room: Room<CallerFlow>,
    /// Waiting callers of each level in which somebody waits.
    waiting: BTreeMap<CallerLevel, LevelQueue>,
    /// Counts calls that wait and turns that are given to them.
    count: u64,
}

/// The calls of a level that wait.
#[derive(Debug, Default)]
struct LevelQueue {
    queues: BTreeMap<CallerFlow, Queue>,
    /// The flows by their rank: the first one is next.
    order: BTreeSet<(Rank, CallerFlow)>,
}

/// Number of turns of a flow, and when it began to wait or last got one.
type Rank = (usize, u64);

/// The calls of a flow that wait, in the order in which they came.
#[derive(Debug)]
struct Queue {
    calls: BTreeMap<u64, oneshot::Sender<HeldTurn>>,
    rank: Rank,
}

/// A turn that is held; it ends on drop.
#[derive(Debug)]
pub(crate) struct HeldTurn {
    turns: TurnQueue,
    level: CallerLevel,
    flow: CallerFlow,
}

/// A call that waits, or did; on drop it leaves the queue.
struct Ticket<'a> {
    turns: &'a TurnQueue,
    level: CallerLevel,
    flow: &'a CallerFlow,
    number: u64,
}

impl TurnQueue {
    /// So many turns in total.
    pub fn new(total: usize) -> Self {
        let state = State { room: call_room(total), waiting: BTreeMap::new(), count: 0 };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Takes a turn, or waits for one. Calls of one flow get theirs in the order in which they come. Time O(levels +
    /// log calls), as for ending one.
    pub async fn take(&self, level: CallerLevel, flow: &CallerFlow) -> HeldTurn {
        let (number, given) = {
            let mut state = self.0.lock();
            if !state.waits(level, flow) && state.room.enter(level as usize, flow).is_ok() {
                return self.turn(level, flow.clone());
            }
            state.wait(level, flow)
        };
        let _ticket = Ticket { turns: self, level, flow, number };
        given.await.expect("only its ticket takes a call out of the queue without a turn")
    }

    fn turn(&self, level: CallerLevel, flow: CallerFlow) -> HeldTurn {
        HeldTurn { turns: self.clone(), level, flow }
    }
}

impl Drop for HeldTurn {
    fn drop(&mut self) {
        let mut state = self.turns.0.lock();
        state.room.leave(self.level as usize, &self.flow);
        state.rank_again(self.level, &self.flow);
        let given: Vec<_> = std::iter::from_fn(|| state.give()).collect();
        // Without the lock: a turn that nobody takes any more is dropped in `send`, and dropping a turn takes the
        // lock to give it to the next call.
        drop(state);
        for (level, flow, call) in given {
            // A call that is given up at this moment drops its turn, which ends it.
            let _ = call.send(self.turns.turn(level, flow));
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.turns.0.lock().take_out(self.level, self.flow, self.number);
    }
}

impl State {
    /// Whether calls of the flow wait.
    fn waits(&self, level: CallerLevel, flow: &CallerFlow) -> bool {
        self.waiting.get(&level).is_some_and(|waiting| waiting.queues.contains_key(flow))
    }

    /// Puts a call into its queue. Returns its number, and the turn to come.
    fn wait(
        &mut self,
        level: CallerLevel,
        flow: &CallerFlow,
    ) -> (u64, oneshot::Receiver<HeldTurn>) {
        self.count += 1;
        let (number, (give, given)) = (self.count, oneshot::channel());
        let waiting = self.waiting.entry(level).or_default();
        let queue = waiting.queues.entry(flow.clone()).or_insert_with(|| {
            let rank = (self.room.held(level as usize, flow), number);
            waiting.order.insert((rank, flow.clone()));
            Queue { calls: BTreeMap::new(), rank }
        });
        queue.calls.insert(number, give);
        (number, given)
    }

    /// Takes a turn for the call that is next; `None` if nobody who waits may have one now.
    fn give(&mut self) -> Option<(CallerLevel, CallerFlow, oneshot::Sender<HeldTurn>)> {
        let nexts = self.waiting.iter().filter_map(|(level, waiting)| {
            let (_, flow) = waiting.order.first()?;
            Some((*level, flow.clone()))
        });
        // If the flow with the fewest turns of its level may have no more, no other one may.
        let nexts: Vec<_> = nexts.collect();
        let (level, flow) = nexts
            .into_iter()
            .find(|(level, flow)| self.room.enter(*level as usize, flow).is_ok())?;
        let queue = self.waiting.get_mut(&level)?.queues.get_mut(&flow)?;
        let (number, call) = queue.calls.pop_first()?;
        self.count += 1;
        let since = self.count;
        self.rank(level, &flow, since);
        self.take_out(level, &flow, number);
        Some((level, flow, call))
    }

    /// After the flow's turns changed.
    fn rank_again(&mut self, level: CallerLevel, flow: &CallerFlow) {
        let queue = self.waiting.get(&level).and_then(|waiting| waiting.queues.get(flow));
        if let Some(queue) = queue {
            self.rank(level, flow, queue.rank.1);
        }
    }

    fn rank(&mut self, level: CallerLevel, flow: &CallerFlow, since: u64) {
        let Some(waiting) = self.waiting.get_mut(&level) else { return };
        let Some(queue) = waiting.queues.get_mut(flow) else { return };
        let rank = (self.room.held(level as usize, flow), since);
        waiting.order.remove(&(queue.rank, flow.clone()));
        waiting.order.insert((rank, flow.clone()));
        queue.rank = rank;
    }

    /// Takes a call out of its queue, if it is there, and an empty queue out of its level.
    fn take_out(&mut self, level: CallerLevel, flow: &CallerFlow, number: u64) {
        let Some(waiting) = self.waiting.get_mut(&level) else { return };
        let Some(queue) = waiting.queues.get_mut(flow) else { return };
        queue.calls.remove(&number);
        if queue.calls.is_empty() {
            waiting.order.remove(&(queue.rank, flow.clone()));
            waiting.queues.remove(flow);
        }
        if waiting.queues.is_empty() {
            self.waiting.remove(&level);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use proptest::prelude::*;

    use super::*;

    fn tenant(number: u8) -> CallerFlow {
        CallerFlow::Tenant(format!("t{number}").parse().expect("a label"))
    }

    /// A call, as a future that holds its turn once it has one.
    struct Call {
        flow: u8,
        number: usize,
        future: Pin<Box<dyn Future<Output = HeldTurn>>>,
        turn: Option<HeldTurn>,
    }

    impl Call {
        fn new(turns: &TurnQueue, flow: u8, number: usize) -> Self {
            let turns = turns.clone();
            let future =
                Box::pin(async move { turns.take(CallerLevel::Tenants, &tenant(flow)).await });
            let mut call = Self { flow, number, future, turn: None };
            call.poll_turn();
            call
        }

        fn poll_turn(&mut self) {
            if self.turn.is_none()
                && let Poll::Ready(turn) =
                    self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            {
                self.turn = Some(turn);
            }
        }
    }

    fn poll_turn(calls: &mut [Call]) {
        calls.iter_mut().for_each(Call::poll_turn);
    }

    fn served(calls: &[Call], flow: u8) -> usize {
        calls.iter().filter(|call| call.flow == flow && call.turn.is_some()).count()
    }

    #[test]
    fn a_newcomer_never_waits_for_one_that_floods() {
        let turns = TurnQueue::new(100);
        let mut calls: Vec<_> = (0..1_000).map(|number| Call::new(&turns, 1, number)).collect();
        assert_eq!(served(&calls, 1), 33, "half of 30 guaranteed and 35 shared ones");
        calls.push(Call::new(&turns, 2, 1_000));
        assert_eq!(served(&calls, 2), 1);
    }

    #[test]
    fn who_got_a_turn_goes_behind_the_others() {
        // One turn for all tenants.
        let turns = TurnQueue::new(1);
        let held = Call::new(&turns, 9, 0);
        let mut calls: Vec<_> =
            (0..6).map(|number| Call::new(&turns, [1, 2, 1, 2, 1, 2][number], number)).collect();
        drop(held);
        let mut order = Vec::new();
        for _ in 0..6 {
            poll_turn(&mut calls);
            let next = calls.iter().position(|call| call.turn.is_some()).expect("one is served");
            order.push(calls.remove(next).number);
        }
        assert_eq!(order, [0, 1, 2, 3, 4, 5]);
        assert!(turns.0.lock().waiting.is_empty());
    }

    fn free(turns: &TurnQueue) -> usize {
        turns.0.lock().room.free(CallerLevel::Tenants as usize)
    }

    fn in_queues(turns: &TurnQueue) -> usize {
        let state = turns.0.lock();
        let queues = state.waiting.values().flat_map(|waiting| waiting.queues.values());
        queues.map(|queue| queue.calls.len()).sum()
    }

    #[derive(Debug, Clone)]
    enum Step {
        Call(u8),
        /// The n-th call ends or is given up, before it has looked whether it has a turn.
        Drop(usize),
    }

    proptest! {
        /// Whatever comes and goes: nobody waits who may have a turn, a flow is served in order, none is lost.
        #[test]
        fn turns_are_neither_lost_nor_kept_back(
            total in 3..40usize,
            steps in prop::collection::vec(
                prop_oneof![(0..5u8).prop_map(Step::Call), (0..99usize).prop_map(Step::Drop)],
                0..300,
            ),
        ) {
            let turns = TurnQueue::new(total);
            let mut calls: Vec<Call> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Call(flow) => calls.push(Call::new(&turns, flow, number)),
                    Step::Drop(_) if calls.is_empty() => {}
                    Step::Drop(which) => drop(calls.remove(which % calls.len())),
                }
                poll_turn(&mut calls);
                let free = free(&turns);
                for flow in 0..5 {
                    let of_flow = || calls.iter().filter(|call| call.flow == flow);
                    let waits = of_flow().position(|call| call.turn.is_none());
                    if let Some(first) = waits {
                        prop_assert!(served(&calls, flow) >= free, "{flow} waits, {free} free");
                        prop_assert!(of_flow().skip(first).all(|call| call.turn.is_none()));
                    }
                }
                prop_assert!(calls.iter().filter(|call| call.turn.is_some()).count() + free <= total);
                let waits = calls.iter().filter(|call| call.turn.is_none()).count();
                prop_assert_eq!(in_queues(&turns), waits, "who gave up is not in a queue");
            }
            calls.clear();
            prop_assert!(turns.0.lock().waiting.is_empty());
            prop_assert_eq!(free(&turns), free(&TurnQueue::new(total)));
        }
    }
}
