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
//! A tenant's read waits for less: for the last batch with a record that shows in its reads, and all
//! before that. Others' batches, of which a busy neighbour may have hundreds on their way, do not hold
//! it back. What is computed from all tenants' DAGs, such as a rate, may then include one that a crash
//! undoes; such a value may change at any time anyway.
//!
//! Commands that read counters or set the loop's rates depend on no record and wait for none: a loop that
//! waited for every batch would miss epochs when somebody writes much.
//!
//! A batch is durable when it and all before it are. A store may complete batches in any order and
//! more than once. Once a batch has failed, what is durable beyond it is unknown, so nothing that
//! waits for it or for a later batch ever leaves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use snic_domain::TenantId;

use crate::protocol::Effect;
use crate::store::records::RecordWrite;
use crate::store::tx::{Tx, TxAudience};

/// Numbers the batches of one outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchNo(u64);

/// Changes of the store that are to be made durable together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedBatch {
    /// Number for [`Outbox::durable`] or [`Outbox::failed`].
    pub number: BatchNo,
    /// The changes, in order.
    pub writes: Vec<RecordWrite>,
}

/// Effects that wait for batches to become durable, in the order in which they were decided.
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
    /// Waiting effects, by the batch that each waits for, and all before, and in the order in which they were queued.
    waiting: BTreeMap<(u64, u64), W>,
    /// Number of effects queued so far.
    queued: u64,
    latest: VisibleBatches,
    /// Effects that wait for no batch.
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
            waiting: BTreeMap::new(),
            queued: 0,
            latest: VisibleBatches::NONE,
            at_once: VecDeque::new(),
        }
    }

    /// Queues what one event leads to, each effect as the `waiter` that the shell makes of it. Gives
    /// the batch that the store is to be handed; `None` where nothing has to be stored.
    #[must_use = "what waits for the batch never leaves unless the store is handed it"]
    pub fn submit(&mut self, tx: Tx, mut waiter: impl FnMut(Effect) -> W) -> Option<NumberedBatch> {
        let parts = tx.into_parts();
        let (asker, stores) = (parts.asker, !parts.writes.is_empty());
        let batch = stores.then(|| {
            self.submitted += 1;
            self.latest.note(self.submitted, self.durable, parts.audience);
            NumberedBatch { number: BatchNo(self.submitted), writes: parts.writes }
        });
        for effect in parts.effects {
            let behind = match &effect {
                Effect::Card { command, .. } if command.needs_no_record() => {
                    self.at_once.push_back(waiter(effect));
                    continue;
                }
                // It changed nothing, so it tells its caller no more than a read.
                Effect::Reply { call, .. } if !stores => {
                    let asker = asker.as_ref().filter(|(asked, _)| asked == call);
                    self.latest.of(asker.map(|(_, tenant)| tenant), self.submitted)
                }
                _ => self.submitted,
            };
            self.wait(behind, waiter(effect));
        }
        batch
    }

    /// Takes back the batch that was handed out last, and that no store was handed. Returns what waits for it.
    pub fn withdraw(&mut self, BatchNo(number): BatchNo) -> Vec<W> {
        assert_eq!(number, self.submitted, "only the last batch can be taken back");
        self.submitted -= 1;
        self.waiting.split_off(&(number, 0)).into_values().collect()
    }

    /// Queues something else that must not be told before all that was decided so far is durable.
    pub fn defer(&mut self, waiter: W) {
        self.wait(self.submitted, waiter);
    }

    /// Queues what this tenant has read: it must not be told before all that shows in the tenant's
    /// reads is durable.
    pub fn defer_read_of(&mut self, tenant: &TenantId, waiter: W) {
        self.wait(self.latest.of(Some(tenant), self.submitted), waiter);
    }

    fn wait(&mut self, behind: u64, waiter: W) {
        self.queued += 1;
        // A batch that was taken back is none to wait for.
        let behind = behind.min(self.submitted);
        self.waiting.insert((behind, self.queued), waiter);
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
        // The store may confirm batches in another order than they were handed out. An effect may follow from any batch up to
        // its own, so a number counts only once all before it are durable, and none counts from the first failure on.
        // Released by its own batch alone, a reply could promise what a crash then takes away: the batch it builds
        // on would be missing after the restart.
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
        let first = self.waiting.first_entry()?;
        let (behind, _) = *first.key();
        (behind <= self.durable).then(|| first.remove())
    }

    /// Takes out what is not to wait after all, wherever it stands, in its order: where the store
    /// cannot be written for a while, what tells of nothing that has to be stored need not wait for it.
    pub fn take_where(&mut self, mut is_taken: impl FnMut(&W) -> bool) -> Vec<W> {
        self.waiting
            .extract_if(.., |_, waiter| is_taken(waiter))
            .map(|(_, waiter)| waiter)
            .collect()
    }

    /// Whether every batch that was handed out is durable.
    pub const fn is_durable(&self) -> bool {
        self.durable == self.submitted
    }

    /// Number of waiting effects.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.at_once.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.at_once.is_empty()
    }
}

/// The last batch that shows in whose reads.
#[derive(Debug)]
struct VisibleBatches {
    everybody: u64,
    /// Tenants with a batch that was not durable when they were last looked through.
    tenants: BTreeMap<TenantId, u64>,
    /// With more tenants than this they are looked through.
    most: usize,
}

impl VisibleBatches {
    /// Fewer are not looked through.
    const FEW: usize = 64;
    const NONE: Self = Self { everybody: 0, tenants: BTreeMap::new(), most: Self::FEW };

    /// Amortised O(log tenants) for each tenant of the batch.
    fn note(&mut self, batch: u64, durable: u64, audience: TxAudience) {
        if audience.everybody {
            self.everybody = batch;
        }
        self.tenants.extend(audience.tenants.into_iter().map(|tenant| (tenant, batch)));
        if self.tenants.len() > self.most {
            self.tenants.retain(|_, batch| *batch > durable);
            self.most = (2 * self.tenants.len()).max(Self::FEW);
        }
    }

    /// Batch that a read of this tenant waits for; for others all that was `submitted`.
    fn of(&self, tenant: Option<&TenantId>, submitted: u64) -> u64 {
        tenant.map_or(submitted, |tenant| {
            self.tenants.get(tenant).map_or(self.everybody, |own| self.everybody.max(*own))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_domain::{Digest, Timestamp};
    use snic_tables::CardCommand;

    use super::*;
    use crate::protocol::{CallId, ControlError};
    use crate::store::records::RecordKey;

    /// A transaction that stores something or does not, and has this many effects.
    fn tx(stores: bool, effects: usize) -> Tx {
        let mut tx = Tx::at(Timestamp::ZERO);
        if stores {
            tx.delete(RecordKey::Maintenance);
        }
        for number in 0..effects {
            tx.drop_blob(Digest::of(&number.to_le_bytes()));
        }
        tx
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
            windows: Default::default(),
            rates_only,
        };
        let commands = [program(false), CardCommand::Sample { ticket }, program(true)];
        let card: snic_domain::CardId = "card0".parse().expect("a label");
        let mut tx = tx(false, 0);
        commands.into_iter().for_each(|command| tx.card(card.clone(), command));
        let mut outbox = Outbox::new();
        let before = store(&mut outbox, 0);
        let mut number = 0;
        let batch = outbox.submit(tx, |_| {
            number += 1;
            number
        });
        assert_eq!(batch, None);
        assert_eq!((outbox.len(), ready(&mut outbox)), (4, vec![2, 3]));
        outbox.durable(before);
        assert_eq!(ready(&mut outbox), [0, 1]);
        assert!(outbox.is_empty());
    }

    fn tenant(name: &str) -> TenantId {
        name.parse().expect("a label")
    }

    /// A transaction that stores this record.
    fn storing(key: RecordKey) -> Tx {
        let mut tx = Tx::at(Timestamp::ZERO);
        tx.delete(key);
        tx
    }

    #[test]
    fn a_tenants_reads_and_refusals_wait_for_its_own_records_and_for_shared_ones() {
        let [acme, beta] = ["acme", "beta"].map(tenant);
        let mut outbox = Outbox::<u32>::new();
        let submit = |outbox: &mut Outbox<u32>, key| {
            outbox.submit(storing(key), |_| 0).expect("it stores something").number
        };
        let refused = |call: u64, of: &TenantId| {
            let mut tx = tx(false, 0);
            tx.asked_by(CallId(call), of.clone());
            tx.reply(CallId(call), Err(ControlError::not_found("dags/web")));
            tx
        };
        let first = submit(&mut outbox, RecordKey::Maintenance);
        let second = submit(&mut outbox, RecordKey::Tenant(beta.clone()));
        outbox.defer_read_of(&acme, 1);
        outbox.defer_read_of(&beta, 2);
        assert_eq!(outbox.submit(refused(3, &acme), |_| 3), None);
        outbox.defer(4);
        assert_eq!(ready(&mut outbox), [0; 0]);
        outbox.durable(first);
        assert_eq!(ready(&mut outbox), [1, 3]);
        outbox.durable(second);
        assert_eq!(ready(&mut outbox), [2, 4]);
        // An answer to another call than the tenant's own may be for anybody.
        submit(&mut outbox, RecordKey::Meta);
        let mut foreign = refused(5, &acme);
        foreign.reply(CallId(6), Err(ControlError::not_found("dags/web")));
        let mut number = 4;
        let none = outbox.submit(foreign, |_| {
            number += 1;
            number
        });
        assert_eq!((none, ready(&mut outbox), outbox.len()), (None, vec![5], 1));
    }

    #[test]
    fn tenants_whose_batches_are_durable_are_forgotten() {
        let mut outbox = Outbox::<u32>::new();
        for number in 0..10_000 {
            let key = RecordKey::Tenant(tenant(&format!("t{number}")));
            let batch = outbox.submit(storing(key), |_| 0).expect("it stores something");
            outbox.durable(batch.number);
        }
        assert!(
            outbox.latest.tenants.len() <= VisibleBatches::FEW,
            "{}",
            outbox.latest.tenants.len()
        );
    }

    #[test]
    fn what_follows_from_a_batch_that_is_taken_back_never_leaves_and_nobody_waits_for_it() {
        let acme = tenant("acme");
        let mut outbox = Outbox::<u32>::new();
        let first = store(&mut outbox, 1);
        let mut tx = storing(RecordKey::Tenant(acme.clone()));
        tx.drop_blob(Digest::of(b"a"));
        let second = outbox.submit(tx, |_| 2).expect("it stores something").number;
        assert_eq!(outbox.withdraw(second), [2]);
        outbox.defer_read_of(&acme, 3);
        outbox.defer(4);
        assert_eq!(ready(&mut outbox), [0; 0]);
        outbox.durable(first);
        assert_eq!(ready(&mut outbox), [1, 3, 4]);
        assert!(outbox.is_durable() && outbox.is_empty());
        let next = store(&mut outbox, 5);
        assert_eq!(next, second, "it has the number of the one that was never stored");
        outbox.durable(next);
        assert_eq!(ready(&mut outbox), [5]);
    }

    #[test]
    #[should_panic(expected = "only this outbox numbers its batches")]
    fn a_number_of_another_outbox_is_a_bug() {
        let foreign = store(&mut Outbox::new(), 0);
        Outbox::<u32>::new().durable(foreign);
    }

    const TENANTS: [&str; 3] = ["acme", "beta", "core"];

    #[derive(Debug, Clone, Copy)]
    enum Visibility {
        Nowhere,
        ToOne(usize),
        ToAll,
    }

    impl Visibility {
        fn key(self) -> RecordKey {
            match self {
                Self::Nowhere => RecordKey::Meta,
                Self::ToOne(one) => RecordKey::Tenant(tenant(TENANTS[one])),
                Self::ToAll => RecordKey::Maintenance,
            }
        }
    }

    fn shows() -> impl Strategy<Value = Visibility> {
        prop_oneof![
            Just(Visibility::Nowhere),
            (0..TENANTS.len()).prop_map(Visibility::ToOne),
            Just(Visibility::ToAll),
        ]
    }

    #[derive(Debug, Clone)]
    enum Act {
        Submit {
            /// In whose reads what it stores shows, if it stores something.
            stores: Option<Visibility>,
            effects: usize,
        },
        /// An effect of everybody, or of one of the tenants.
        Defer(Option<usize>),
        /// Durability of the batch at this place among those handed out.
        Durable(prop::sample::Index),
        Failed(prop::sample::Index),
        /// At most this many are taken out.
        Pop(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => (prop::option::of(shows()), 0usize..4)
                .prop_map(|(stores, effects)| Act::Submit { stores, effects }),
            2 => prop::option::of(0..TENANTS.len()).prop_map(Act::Defer),
            8 => any::<prop::sample::Index>().prop_map(Act::Durable),
            1 => any::<prop::sample::Index>().prop_map(Act::Failed),
            3 => (0usize..6).prop_map(Act::Pop),
        ]
    }

    /// The first report of each batch, and the batches each waiter waits for: the rule as it
    /// is told, looked at from scratch every time.
    #[derive(Default)]
    struct ReferenceOutbox {
        batches: Vec<Option<bool>>,
        shows: Vec<Visibility>,
        /// The batches that each waiter needs, as their count from the first on, and the waiter.
        waiting: Vec<(usize, u32)>,
    }

    impl ReferenceOutbox {
        /// The one that may leave next: of those that need the fewest batches the oldest.
        fn may_leave(&self) -> Option<u32> {
            let (batches, waiter) = self.waiting.iter().min()?;
            let durable = |batch: &Option<bool>| *batch == Some(true);
            self.batches[..*batches].iter().all(durable).then_some(*waiter)
        }

        fn needed_by(&self, reader: Option<usize>) -> usize {
            let shows = |shows: &Visibility| match (shows, reader) {
                (_, None) | (Visibility::ToAll, _) => true,
                (Visibility::Nowhere, Some(_)) => false,
                (Visibility::ToOne(one), Some(reader)) => *one == reader,
            };
            self.shows.iter().rposition(shows).map_or(0, |last| last + 1)
        }

        fn acknowledge(&mut self, batch: usize, is_durable: bool) {
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
            let (mut numbers, mut told) = (Vec::new(), ReferenceOutbox::default());
            let mut next = 0u32;
            for act in acts {
                match act {
                    Act::Submit { stores, effects } => {
                        let from = next;
                        let mut tx = tx(false, effects);
                        stores.into_iter().for_each(|shows| tx.delete(shows.key()));
                        let batch = outbox.submit(tx, |_| {
                            next += 1;
                            next
                        });
                        prop_assert_eq!(batch.is_some(), stores.is_some());
                        if let (Some(batch), Some(shows)) = (batch, stores) {
                            numbers.push(batch.number);
                            told.batches.push(None);
                            told.shows.push(shows);
                        }
                        told.waiting.extend((from..next).map(|n| (told.batches.len(), n + 1)));
                    }
                    Act::Defer(reader) => {
                        next += 1;
                        match reader {
                            Some(one) => outbox.defer_read_of(&tenant(TENANTS[one]), next),
                            None => outbox.defer(next),
                        }
                        told.waiting.push((told.needed_by(reader), next));
                    }
                    Act::Durable(which) if !numbers.is_empty() => {
                        let which = which.index(numbers.len());
                        outbox.durable(numbers[which]);
                        told.acknowledge(which, true);
                    }
                    Act::Failed(which) if !numbers.is_empty() => {
                        let which = which.index(numbers.len());
                        outbox.failed(numbers[which]);
                        told.acknowledge(which, false);
                    }
                    Act::Durable(_) | Act::Failed(_) => {}
                    Act::Pop(count) => {
                        for _ in 0..count {
                            let expected = told.may_leave();
                            prop_assert_eq!(outbox.pop_ready(), expected);
                            told.waiting.retain(|(_, waiter)| Some(*waiter) != expected);
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
