//! The durability barrier: no effect leaves before the change that it follows from is durable.
//!
//! ```text
//!  submit(tx) ──► batch 7 ──► store ──► durable(7) ──┐
//!       └──► effects, behind batch 7 and all before ─┴──► pop_ready()
//! ```
//!
//! The one implementation, for the daemon's shell, the simulation, the examples and the figures.
//! The effects are of the shell's own type: it also queues replies to reads, log lines and whatever
//! else must not reveal a change that a crash could still undo.
//!
//! Commands that read counters or set the loop's rates depend on no record and wait for none: a loop that
//! waited for every batch would miss epochs when somebody writes much.
//!
//! A batch is durable when it and all before it are. A store may complete batches in any order and
//! more than once. Once a batch has failed, what is durable beyond it is unknown, so nothing that
//! waits for it or for a later batch ever leaves.

use std::collections::{BTreeSet, VecDeque};

use crate::protocol::Effect;
use crate::records::RecordWrite;
use crate::tx::Tx;

/// Numbers the batches of one outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchNo(u64);

/// Changes of the store that are to be made durable together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedBatch {
    /// What [`Outbox::durable`] or [`Outbox::failed`] is to be told.
    pub number: BatchNo,
    /// The changes, in order.
    pub writes: Vec<RecordWrite>,
}

/// What waits for batches to become durable, in the order in which it was decided.
#[derive(Debug)]
pub struct Outbox<W> {
    /// Batches handed out so far.
    submitted: u64,
    /// All batches up to this one are durable.
    durable: u64,
    /// Later ones that were completed before an earlier one.
    early: BTreeSet<u64>,
    /// The first batch that failed.
    failed: Option<u64>,
    /// Each with the last batch that was handed out before it.
    waiting: VecDeque<(u64, W)>,
    /// What waits for no batch.
    at_once: VecDeque<W>,
}

impl<W> Default for Outbox<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W> Outbox<W> {
    /// Nothing waits, and no batch was handed out.
    pub const fn new() -> Self {
        Self {
            submitted: 0,
            durable: 0,
            early: BTreeSet::new(),
            failed: None,
            waiting: VecDeque::new(),
            at_once: VecDeque::new(),
        }
    }

    /// Queues what one event leads to, each effect as the `waiter` that the shell makes of it. Gives
    /// the batch that the store is to be handed; `None` where nothing has to be stored.
    #[must_use = "what waits for the batch never leaves unless the store is handed it"]
    pub fn submit(&mut self, tx: Tx, mut waiter: impl FnMut(Effect) -> W) -> Option<NumberedBatch> {
        let (writes, effects) = tx.into_parts();
        let batch = (!writes.is_empty()).then(|| {
            self.submitted += 1;
            NumberedBatch { number: BatchNo(self.submitted), writes }
        });
        for effect in effects {
            match needs_no_record(&effect) {
                true => self.at_once.push_back(waiter(effect)),
                false => self.waiting.push_back((self.submitted, waiter(effect))),
            }
        }
        batch
    }

    /// Queues something else that must not be told before all that was decided so far is durable.
    pub fn defer(&mut self, waiter: W) {
        self.waiting.push_back((self.submitted, waiter));
    }

    /// The store has made a batch durable. Told again, it changes nothing.
    pub fn durable(&mut self, BatchNo(number): BatchNo) {
        assert!(
            number <= self.submitted,
            "only this outbox numbers its batches, and has no {number}"
        );
        if number <= self.durable || self.failed.is_some_and(|failed| failed <= number) {
            return;
        }
        self.early.insert(number);
        while self.early.remove(&(self.durable + 1)) {
            self.durable += 1;
        }
    }

    /// A batch is not durable, or not known to be.
    pub fn failed(&mut self, BatchNo(number): BatchNo) {
        assert!(
            number <= self.submitted,
            "only this outbox numbers its batches, and has no {number}"
        );
        if number > self.durable {
            self.failed = Some(self.failed.map_or(number, |failed| failed.min(number)));
            self.early.split_off(&number);
        }
    }

    /// The oldest of what waits, if nothing that it waits for is missing; what waits for nothing first.
    pub fn pop_ready(&mut self) -> Option<W> {
        if let Some(waiter) = self.at_once.pop_front() {
            return Some(waiter);
        }
        let (behind, _) = self.waiting.front()?;
        if *behind > self.durable {
            return None;
        }
        self.waiting.pop_front().map(|(_, waiter)| waiter)
    }

    /// Takes out what is not to wait after all, wherever it stands, in its order: where the store
    /// cannot be written for a while, what tells of nothing that has to be stored need not wait for it.
    pub fn take_where(&mut self, mut is_taken: impl FnMut(&W) -> bool) -> Vec<W> {
        let (mut taken, mut rest) = (Vec::new(), VecDeque::new());
        for (behind, waiter) in std::mem::take(&mut self.waiting) {
            match is_taken(&waiter) {
                true => taken.push(waiter),
                false => rest.push_back((behind, waiter)),
            }
        }
        self.waiting = rest;
        taken
    }

    /// Whether every batch that was handed out is durable.
    pub const fn is_durable(&self) -> bool {
        self.durable == self.submitted
    }

    /// How much waits.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.at_once.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.at_once.is_empty()
    }
}

/// Whether a crash could undo nothing of what an effect tells.
const fn needs_no_record(effect: &Effect) -> bool {
    matches!(effect, Effect::Card { command, .. } if command.needs_no_record())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_domain::Digest;
    use snic_tables::CardCommand;

    use super::*;

    /// A transaction that stores something or does not, and has this many effects.
    fn tx(stores: bool, effects: usize) -> Tx {
        let writes = if stores { vec![("meta".to_owned(), None)] } else { Vec::new() };
        let effect = |number: usize| Effect::DropBlob(Digest::of(&number.to_le_bytes()));
        Tx::from_parts(writes, (0..effects).map(effect).collect())
    }

    fn ready(outbox: &mut Outbox<u32>) -> Vec<u32> {
        std::iter::from_fn(|| outbox.pop_ready()).collect()
    }

    /// Submits what stores something; gives its number.
    fn store(outbox: &mut Outbox<u32>, waiter: u32) -> BatchNo {
        outbox.submit(tx(true, 1), |_| waiter).expect("it stores something").number
    }

    #[test]
    fn replies_without_records_wait_only_for_earlier_batches() {
        let mut outbox = Outbox::new();
        assert_eq!(outbox.submit(tx(false, 1), |_| 1), None);
        assert_eq!(ready(&mut outbox), [1]);
        let first = store(&mut outbox, 2);
        assert_eq!(outbox.submit(tx(false, 1), |_| 3), None);
        outbox.defer(4);
        assert_eq!(ready(&mut outbox), [0; 0]);
        outbox.durable(first);
        assert_eq!(ready(&mut outbox), [2, 3, 4]);
        assert!(outbox.is_durable() && outbox.is_empty());
    }

    #[test]
    fn a_batch_is_durable_when_all_before_it_are() {
        let mut outbox = Outbox::new();
        let batches: Vec<BatchNo> = (0..3).map(|waiter| store(&mut outbox, waiter)).collect();
        outbox.durable(batches[2]);
        outbox.durable(batches[1]);
        outbox.durable(batches[1]);
        assert_eq!(ready(&mut outbox), [0; 0]);
        assert!(!outbox.is_durable());
        outbox.durable(batches[0]);
        assert_eq!(ready(&mut outbox), [0, 1, 2]);
        assert!(outbox.is_durable());
    }

    #[test]
    fn nothing_at_or_behind_a_failed_batch_ever_leaves() {
        let mut outbox = Outbox::new();
        let batches: Vec<BatchNo> = (0..4).map(|waiter| store(&mut outbox, waiter)).collect();
        outbox.durable(batches[3]);
        outbox.failed(batches[2]);
        outbox.failed(batches[1]);
        outbox.durable(batches[1]);
        outbox.durable(batches[2]);
        outbox.durable(batches[0]);
        outbox.defer(4);
        assert_eq!(ready(&mut outbox), [0]);
        assert_eq!((outbox.len(), outbox.is_durable()), (4, false));
    }

    #[test]
    fn samples_and_rates_wait_for_no_batch_and_rows_of_dags_do() {
        let ticket = snic_tables::Ticket(1);
        let program = |rates_only| CardCommand::Program {
            ticket,
            delta: Default::default(),
            configurations: Vec::new(),
            rates_only,
        };
        let commands = [program(false), CardCommand::Sample { ticket }, program(true)];
        let card: snic_domain::CardId = "card0".parse().expect("a label");
        let effects = commands.map(|command| Effect::Card { card: card.clone(), command });
        let mut outbox = Outbox::new();
        let before = store(&mut outbox, 0);
        let mut number = 0;
        let batch = outbox.submit(Tx::from_parts(Vec::new(), effects.into()), |_| {
            number += 1;
            number
        });
        assert_eq!(batch, None);
        assert_eq!((outbox.len(), ready(&mut outbox)), (4, vec![2, 3]));
        outbox.durable(before);
        assert_eq!(ready(&mut outbox), [0, 1]);
        assert!(outbox.is_empty());
    }

    #[test]
    #[should_panic(expected = "only this outbox numbers its batches")]
    fn a_number_of_another_outbox_is_a_bug() {
        let foreign = store(&mut Outbox::new(), 0);
        Outbox::<u32>::new().durable(foreign);
    }

    #[derive(Debug, Clone)]
    enum Act {
        Submit {
            stores: bool,
            effects: usize,
        },
        Defer,
        /// Of the batch at this place among those handed out.
        Durable(prop::sample::Index),
        Failed(prop::sample::Index),
        /// At most this many are taken out.
        Pop(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => (any::<bool>(), 0usize..4)
                .prop_map(|(stores, effects)| Act::Submit { stores, effects }),
            1 => Just(Act::Defer),
            8 => any::<prop::sample::Index>().prop_map(Act::Durable),
            1 => any::<prop::sample::Index>().prop_map(Act::Failed),
            3 => (0usize..6).prop_map(Act::Pop),
        ]
    }

    /// What each batch was said to be first, and which batches each waiter waits for: the rule as it
    /// is told, looked at from scratch every time.
    #[derive(Default)]
    struct Told {
        batches: Vec<Option<bool>>,
        /// How many batches were handed out before each waiter that is still there.
        waiting: VecDeque<(usize, u32)>,
    }

    impl Told {
        fn may_leave(&self) -> Option<u32> {
            let (batches, waiter) = self.waiting.front()?;
            let durable = |batch: &Option<bool>| *batch == Some(true);
            self.batches[..*batches].iter().all(durable).then_some(*waiter)
        }

        fn tell(&mut self, batch: usize, is_durable: bool) {
            let durable = self.batches.iter().position(|b| *b != Some(true));
            let is_settled = durable.is_none_or(|first| batch < first);
            let entry = &mut self.batches[batch];
            *entry = match (*entry, is_durable) {
                // A failure is final, and so is what all before is durable too.
                (Some(false), _) | (_, false) if !is_settled => Some(false),
                (before, false) => before,
                (_, true) => Some(true),
            };
        }
    }

    proptest! {
        /// Whatever completes in whatever order, what leaves is what the rule lets leave.
        #[test]
        fn only_what_is_durable_leaves_and_in_order(acts in prop::collection::vec(act(), 1..80)) {
            let mut outbox = Outbox::new();
            let (mut numbers, mut told) = (Vec::new(), Told::default());
            let mut next = 0u32;
            for act in acts {
                match act {
                    Act::Submit { stores, effects } => {
                        let from = next;
                        let batch = outbox.submit(tx(stores, effects), |_| {
                            next += 1;
                            next
                        });
                        prop_assert_eq!(batch.is_some(), stores);
                        if let Some(batch) = batch {
                            numbers.push(batch.number);
                            told.batches.push(None);
                        }
                        told.waiting.extend((from..next).map(|n| (told.batches.len(), n + 1)));
                    }
                    Act::Defer => {
                        next += 1;
                        outbox.defer(next);
                        told.waiting.push_back((told.batches.len(), next));
                    }
                    Act::Durable(which) if !numbers.is_empty() => {
                        let which = which.index(numbers.len());
                        outbox.durable(numbers[which]);
                        told.tell(which, true);
                    }
                    Act::Failed(which) if !numbers.is_empty() => {
                        let which = which.index(numbers.len());
                        outbox.failed(numbers[which]);
                        told.tell(which, false);
                    }
                    Act::Durable(_) | Act::Failed(_) => {}
                    Act::Pop(count) => {
                        for _ in 0..count {
                            let expected = told.may_leave();
                            prop_assert_eq!(outbox.pop_ready(), expected);
                            if expected.is_some() {
                                told.waiting.pop_front();
                            }
                        }
                    }
                }
                prop_assert_eq!(outbox.len(), told.waiting.len());
                let all = told.batches.iter().all(|batch| *batch == Some(true));
                prop_assert_eq!(outbox.is_durable(), all);
            }
        }
    }
}
