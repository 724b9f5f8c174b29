//! Group commit: what a leader decides becomes durable here, in order, before anybody sees it.
//!
//! ```text
//! steps ──► queue ──► one transaction (at most 128 operations) ──► etcd
//!                        compares: the election key's creation, the last transaction's record
//!             Committed ──► effects of its steps are released
//!             no answer ──► read the last transaction's record: ours? released : sent again, the very same
//!             Refused   ──► read it: ours? released : somebody else leads
//!             Failed::Refused ──► given up: its steps are handed back, with the reason
//! ```
//!
//! Sending the same transaction twice is harmless: the record of the last transaction is compared with what it was
//! before the first attempt, so only one of them is carried out, however late the first one arrives.
//!
//! Tries of a transaction pause longer and longer, whatever fails. One that etcd refuses for good is not tried again: its
//! leader forgets what it has decided since, and sends [probes](Journal::probe) until etcd accepts writes again. Where
//! an attempt before had no answer, that one may still arrive; the next transaction that is carried out compares the
//! record of the last one, and finds that somebody else wrote it. Such a leader steps down.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use snic_domain::Timestamp;
use snic_etcd::backoff::Backoff;
use snic_etcd::{
    Answer, Compare, Failed, OPERATIONS_MAX, Operation, REQUEST_BYTES_MAX, Refusal, Request,
    Revision, Transaction,
};

use crate::protocol::{Epoch, FleetEffect};
use crate::records::{LAST_TRANSACTION, LastTransaction, Versioned};

/// About the first and the longest pause before a request is sent again.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Bytes of a request that the comparison and the record of the last transaction take, at most.
const OVERHEAD_BYTES: usize = 2_048;

/// Result of one event: records that change together, and effects that follow.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FleetStep {
    /// Writes by key; `None` deletes.
    writes: BTreeMap<String, Option<Vec<u8>>>,
    effects: Vec<FleetEffect>,
}

impl FleetStep {
    pub fn put(&mut self, key: String, value: Vec<u8>) {
        self.writes.insert(key, Some(value));
    }

    pub fn delete(&mut self, key: String) {
        self.writes.insert(key, None);
    }

    pub fn then(&mut self, effect: FleetEffect) {
        self.effects.push(effect);
    }

    /// Appends the result of another event.
    pub fn append(&mut self, other: Self) {
        self.writes.extend(other.writes);
        self.effects.extend(other.effects);
    }

    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.effects.is_empty()
    }

    /// Whether one transaction has room for it and for the record of a request that was answered with so many bytes.
    pub fn fits_with(&self, reply: usize) -> bool {
        let bytes = self.bytes() + reply + 2 * OVERHEAD_BYTES;
        self.writes.len() + 1 < OPERATIONS_MAX && bytes <= REQUEST_BYTES_MAX
    }

    /// Whether records change.
    pub fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    pub fn into_effects(self) -> Vec<FleetEffect> {
        self.effects
    }

    fn bytes(&self) -> usize {
        let value = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
        // As `Transaction::bytes` counts them.
        self.writes.iter().map(|(key, of)| 48 + key.len() + value(of)).sum()
    }
}

/// Knowledge of the transaction under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransactionState {
    Committing,
    /// No answer came: was it carried out?
    ReadingAfterSilence,
    /// It was refused: because it was carried out before, or because somebody else leads?
    ReadingAfterRefusal,
}

#[derive(Debug)]
struct PendingTransaction {
    /// None of a probe.
    steps: Vec<FleetStep>,
    last: LastTransaction,
    flight: TransactionState,
    /// Not before this time; `None`: it was sent and the answer is awaited.
    again_at: Option<Timestamp>,
    /// An attempt had no answer: it may still be carried out.
    was_silent: bool,
}

/// Steps that etcd refuses to store.
#[derive(Debug, PartialEq)]
pub(crate) struct RefusedSteps {
    pub why: Refusal,
    /// Text of etcd.
    pub said: String,
    /// An earlier attempt may have stored them after all.
    pub is_open: bool,
    /// None of a probe.
    pub steps: Vec<FleetStep>,
}

/// Meaning of an answer of etcd.
#[derive(Debug, PartialEq)]
pub(crate) enum EtcdOutcome {
    /// Not known yet.
    Open,
    /// The transaction is durable: its effects.
    Durable(Vec<FleetEffect>),
    /// etcd refuses it, and the next one likely, too.
    Refused(RefusedSteps),
    /// Somebody else leads.
    Deposed,
}

/// The leader's journal.
#[derive(Debug)]
pub(crate) struct Journal {
    key: String,
    epoch: Epoch,
    /// When the record of the last transaction was written; 0: there is none.
    last_changed: Revision,
    number: u64,
    serial: u64,
    queue: VecDeque<FleetStep>,
    under_way: Option<PendingTransaction>,
    backoff: Backoff,
    /// Most operations and bytes of a transaction: fewer once etcd has refused one as too large, until another leads.
    operations_max: usize,
    bytes_max: usize,
}

impl Journal {
    /// Goes on after the last serial number that is on record.
    pub fn new(key: String, epoch: Epoch, last_changed: Revision, serial: u64) -> Self {
        Self {
            key,
            epoch,
            last_changed,
            number: 0,
            serial: serial.max(epoch.first_serial()),
            queue: VecDeque::new(),
            under_way: None,
            backoff: Backoff::new((RETRY, RETRY_MAX), epoch.0.unsigned_abs()),
            operations_max: OPERATIONS_MAX,
            bytes_max: REQUEST_BYTES_MAX,
        }
    }

    /// Goes on with the numbers of this leader's journal before its records were read again.
    pub fn resume_after(&mut self, before: &Self) {
        self.number = before.number;
        self.serial = self.serial.max(before.serial);
        (self.operations_max, self.bytes_max) = (before.operations_max, before.bytes_max);
    }

    /// Steps that wait for the transaction under way, which is no more.
    pub fn take_queue(&mut self) -> Vec<FleetStep> {
        std::mem::take(&mut self.queue).into()
    }

    /// Has the next request write nothing but the record of the last transaction, where nothing is under way: its answer
    /// tells whether etcd accepts writes.
    pub fn probe(&mut self, now: Timestamp) {
        if self.under_way.is_none() {
            self.under_way = Some(self.begin(Vec::new(), now));
        }
    }

    fn is_probing(&self) -> bool {
        self.under_way.as_ref().is_some_and(|of| of.steps.is_empty())
    }

    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The key with which it was elected.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The revision of the last transaction that is durable.
    pub fn revision(&self) -> u64 {
        u64::try_from(self.last_changed.0).unwrap_or_default()
    }

    /// A number that was never given out before, by any leader. A host that has something with this number has this very
    /// thing, whatever happened to etcd since.
    pub const fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Number of steps that are not begun.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub fn submit(&mut self, step: FleetStep) {
        if !step.is_empty() {
            self.queue.push_back(step);
        }
    }

    /// Work that can be done now: effects that wait for nothing, and a request to etcd.
    pub fn next(&mut self, now: Timestamp) -> (Vec<FleetEffect>, Option<Request>) {
        let mut released = Vec::new();
        if self.under_way.is_none() || self.is_probing() {
            while self.queue.front().is_some_and(|step| step.writes.is_empty()) {
                released.extend(self.queue.pop_front().into_iter().flat_map(|step| step.effects));
            }
        }
        if self.under_way.is_none() {
            self.under_way = self.collect(now);
        }
        let Some(under_way) = &mut self.under_way else { return (released, None) };
        if under_way.again_at.is_none_or(|at| at > now) {
            return (released, None);
        }
        under_way.again_at = None;
        let request = match under_way.flight {
            TransactionState::Committing => Request::Commit(self.transaction()),
            TransactionState::ReadingAfterSilence | TransactionState::ReadingAfterRefusal => {
                Request::Range {
                    prefix: LAST_TRANSACTION.to_owned(),
                    at: None,
                    from: None,
                    limit: 1,
                }
            }
        };
        (released, Some(request))
    }

    /// As many steps as one transaction takes. A step is never divided, and one that writes a key again goes into the next
    /// transaction: effects follow what was stored, not what was overwritten before it was.
    fn collect(&mut self, now: Timestamp) -> Option<PendingTransaction> {
        let mut keys: BTreeSet<String> = BTreeSet::new();
        let (mut steps, mut bytes) = (Vec::new(), OVERHEAD_BYTES);
        while let Some(step) = self.queue.front() {
            let is_again = step.writes.keys().any(|key| keys.contains(key));
            bytes += step.bytes();
            let operations = keys.len() + step.writes.len() + 1;
            let is_full = operations > self.operations_max || bytes > self.bytes_max;
            if (is_full || is_again) && !keys.is_empty() {
                break;
            }
            let step = self.queue.pop_front().expect("it is the front");
            keys.extend(step.writes.keys().cloned());
            steps.push(step);
        }
        if keys.is_empty() {
            return None;
        }
        Some(self.begin(steps, now))
    }

    fn begin(&mut self, steps: Vec<FleetStep>, now: Timestamp) -> PendingTransaction {
        self.number += 1;
        let last =
            LastTransaction { epoch: self.epoch.0, number: self.number, serial: self.serial };
        let (flight, again_at) = (TransactionState::Committing, Some(now));
        PendingTransaction { steps, last, flight, again_at, was_silent: false }
    }

    /// The transaction under way: the same at each attempt.
    fn transaction(&self) -> Transaction {
        let operation = |(key, value): (&String, &Option<Vec<u8>>)| match value {
            Some(value) => Operation::Put { key: key.clone(), value: value.clone(), lease: None },
            None => Operation::Delete { key: key.clone() },
        };
        let under_way = self.under_way.iter();
        let steps = under_way.clone().flat_map(|of| &of.steps);
        let mut operations: Vec<_> = steps.flat_map(|step| &step.writes).map(operation).collect();
        operations.extend(under_way.map(|of| Operation::Put {
            key: LAST_TRANSACTION.to_owned(),
            value: Versioned::new(of.last).bytes(),
            lease: None,
        }));
        Transaction {
            compares: vec![
                // The first compare is the fence: the key of this leader's election is gone before anybody else may
                // lead, so a transaction that arrives late writes nothing. The second one makes a repeated attempt
                // harmless: once one has committed, the record of the last transaction has changed, and the next one
                // is refused.
                Compare::CreatedAt(self.key.clone(), Revision(self.epoch.0)),
                Compare::ChangedAt(LAST_TRANSACTION.to_owned(), self.last_changed),
            ],
            operations,
        }
    }

    /// etcd answered what [`Self::next`] asked.
    pub fn answered(&mut self, now: Timestamp, result: Result<Answer, Failed>) -> EtcdOutcome {
        let Some(under_way) = &mut self.under_way else { return EtcdOutcome::Open };
        if let Err(failed) = &result
            && let Some((why, said)) = failed.refusal()
        {
            return self.refused(why, said);
        }
        let (flight, again_at) = match (under_way.flight, result) {
            (TransactionState::Committing, Ok(Answer::Committed(revision))) => {
                return self.durable(revision);
            }
            (TransactionState::Committing, Ok(_)) => (TransactionState::ReadingAfterRefusal, now),
            (TransactionState::Committing, Err(Failed::Unreachable(_))) => {
                (TransactionState::Committing, now + self.backoff.next_pause())
            }
            (TransactionState::Committing, Err(_)) => {
                // The request may have been carried out, or not. Each transaction writes its number to the record of
                // the last one; that is read before anything is sent again, and says which.
                under_way.was_silent = true;
                (TransactionState::ReadingAfterSilence, now)
            }
            (reading, Ok(Answer::Range { records, .. })) => {
                let found = records.first().and_then(|record| {
                    let last = Versioned::<LastTransaction>::parse(&record.key, &record.value);
                    Some((*last.ok()?.value(), record.changed))
                });
                let ours = under_way.last;
                match found {
                    Some((last, changed))
                        if (last.epoch, last.number) == (ours.epoch, ours.number) =>
                    {
                        return self.durable(changed);
                    }
                    _ if reading == TransactionState::ReadingAfterRefusal => {
                        return EtcdOutcome::Deposed;
                    }
                    // A member that answers nothing to writes and everything to reads is not asked without pause.
                    _ => (TransactionState::Committing, now + self.backoff.next_pause()),
                }
            }
            (reading, _) => (reading, now + self.backoff.next_pause()),
        };
        (under_way.flight, under_way.again_at) = (flight, Some(again_at));
        EtcdOutcome::Open
    }

    /// etcd did nothing and says why. Several steps that are too large together are sent in smaller transactions.
    fn refused(&mut self, why: Refusal, said: String) -> EtcdOutcome {
        let Some(of) = self.under_way.take() else { return EtcdOutcome::Open };
        let is_open = of.was_silent || of.flight != TransactionState::Committing;
        if why == Refusal::TooLarge && !is_open && of.steps.len() > 1 {
            let operations: usize = of.steps.iter().map(|step| step.writes.len()).sum();
            let bytes: usize = of.steps.iter().map(FleetStep::bytes).sum();
            self.operations_max = operations.div_ceil(2) + 1;
            self.bytes_max = bytes / 2 + OVERHEAD_BYTES;
            of.steps.into_iter().rev().for_each(|step| self.queue.push_front(step));
            return EtcdOutcome::Open;
        }
        EtcdOutcome::Refused(RefusedSteps { why, said, is_open, steps: of.steps })
    }

    fn durable(&mut self, revision: Revision) -> EtcdOutcome {
        self.last_changed = revision;
        self.backoff.succeeded();
        let steps = self.under_way.take().map(|of| of.steps).unwrap_or_default();
        EtcdOutcome::Durable(steps.into_iter().flat_map(|step| step.effects).collect())
    }

    /// Ends it: effects whose transaction may have been carried out, and those whose was not begun.
    pub fn end(self) -> (Vec<FleetEffect>, Vec<FleetEffect>) {
        let open = self.under_way.map(|of| of.steps).unwrap_or_default().into_iter();
        let open = open.flat_map(|step| step.effects).collect();
        (open, self.queue.into_iter().flat_map(|step| step.effects).collect())
    }
}

#[cfg(test)]
mod tests {
    use snic_etcd::model::{EtcdModel, NetworkFault};

    use super::*;
    use crate::protocol::FleetNotice;

    const KEY: &str = "/snic/v1/election/a";

    fn effect(number: usize) -> FleetEffect {
        FleetEffect::Tell(FleetNotice::CannotLead(number.to_string()))
    }

    fn step(number: usize) -> FleetStep {
        let mut step = FleetStep::default();
        step.put(format!("/snic/v1/x/{number}"), vec![7]);
        step.then(effect(number));
        step
    }

    #[test]
    fn what_etcd_refuses_is_handed_back_at_once_and_probes_find_out_when_it_accepts_again() {
        let mut etcd = EtcdModel::new();
        let mut journal = leader(&mut etcd);
        etcd.refuse_writes(Some(Refusal::NoSpace));
        (0..3).for_each(|number| journal.submit(step(number)));
        let (_, request) = journal.next(Timestamp::ZERO);
        let result = etcd.ask(Duration::ZERO, &request.expect("a transaction"));
        let settled = journal.answered(Timestamp::ZERO, result);
        let EtcdOutcome::Refused(refused) = settled else { panic!("{settled:?}") };
        assert_eq!(
            (refused.why, refused.is_open, refused.steps.len()),
            (Refusal::NoSpace, false, 3)
        );
        assert!(journal.next(Timestamp::ZERO).1.is_none(), "it is not tried again");
        for accepts in [false, true] {
            etcd.refuse_writes((!accepts).then_some(Refusal::NoSpace));
            journal.probe(Timestamp::ZERO);
            let mut read = FleetStep::default();
            read.then(effect(9));
            journal.submit(read);
            let (released, request) = journal.next(Timestamp::ZERO);
            assert_eq!(released, [effect(9)], "reads do not wait for it");
            let result = etcd.ask(Duration::ZERO, &request.expect("a probe"));
            let settled = journal.answered(Timestamp::ZERO, result);
            assert_eq!(matches!(settled, EtcdOutcome::Durable(_)), accepts, "{settled:?}");
        }
        assert_eq!(number_of_records(&mut etcd), 0);
    }

    /// The first attempt had no answer: nobody knows, though the second one is refused.
    #[test]
    fn a_refusal_after_silence_is_open() {
        let mut etcd = EtcdModel::new();
        let mut journal = leader(&mut etcd);
        journal.submit(step(0));
        let mut now = Timestamp::ZERO;
        for (request, result) in [
            ("a transaction", Err(Failed::Unknown("lost".into()))),
            ("whether it was carried out", Ok(None)),
            ("the same again", Ok(Some(Refusal::NoSpace))),
        ] {
            now = now + RETRY_MAX;
            let asked = journal.next(now).1.expect(request);
            let result = result.and_then(|refusal| {
                etcd.refuse_writes(refusal);
                etcd.ask(Duration::ZERO, &asked)
            });
            if let EtcdOutcome::Refused(refused) = journal.answered(now, result) {
                assert_eq!(request, "the same again");
                return assert!(refused.is_open);
            }
        }
        panic!("it is not refused");
    }

    /// An etcd with lower limits than ours: what is too large together is stored in parts, and only what is too large alone
    /// is refused.
    #[test]
    fn what_is_too_large_together_is_stored_in_parts() {
        let mut etcd = EtcdModel::new();
        let mut journal = leader(&mut etcd);
        (0..100).for_each(|number| journal.submit(step(number)));
        let mut large = step(100);
        (0..20).for_each(|number| large.put(format!("/snic/v1/y/{number}"), vec![7]));
        journal.submit(large);
        let (mut durable, mut requests) = (0, 0);
        let refused = loop {
            requests += 1;
            let Some(request) = journal.next(Timestamp::ZERO).1 else {
                panic!("{durable} durable")
            };
            let operations = match &request {
                Request::Commit(of) => of.operations.len(),
                other => panic!("{other:?}"),
            };
            let result = match operations {
                ..=16 => etcd.ask(Duration::ZERO, &request),
                _ => Err(Failed::Refused { why: Refusal::TooLarge, said: String::new() }),
            };
            match journal.answered(Timestamp::ZERO, result) {
                EtcdOutcome::Open => {}
                EtcdOutcome::Durable(effects) => durable += effects.len(),
                EtcdOutcome::Refused(refused) => break refused,
                EtcdOutcome::Deposed => panic!("nobody else leads"),
            }
        };
        assert_eq!((durable, refused.steps.len(), refused.is_open), (100, 1, false));
        assert!(requests < 30, "{requests} requests");
    }

    /// Whatever fails at once, the number of requests in a minute has a bound.
    #[test]
    fn tries_pause() {
        let silent = || Failed::Unknown("etcdserver: leader changed".into());
        let unreachable = || Failed::Unreachable("etcdserver: too many requests".into());
        for failed in [silent, unreachable] {
            let mut etcd = EtcdModel::new();
            let mut journal = leader(&mut etcd);
            journal.submit(step(0));
            let (mut now, mut requests) = (Timestamp::ZERO, 0);
            let end = now + Duration::from_secs(60);
            while now < end {
                match journal.next(now).1 {
                    Some(request @ Request::Range { .. }) => {
                        requests += 1;
                        let result = etcd.ask(Duration::ZERO, &request);
                        journal.answered(now, result);
                    }
                    Some(_) => {
                        requests += 1;
                        journal.answered(now, Err(failed()));
                    }
                    None => now = now + Duration::from_millis(1),
                }
            }
            assert!((30..160).contains(&requests), "{requests} requests");
        }
    }

    fn put(key: &str) -> Request {
        let (key, value, lease) = (key.to_owned(), vec![], None);
        let operations = vec![Operation::Put { key, value, lease }];
        Request::Commit(Transaction { compares: vec![], operations })
    }

    /// A leader, elected.
    fn leader(etcd: &mut EtcdModel) -> Journal {
        let answer = etcd.ask(Duration::ZERO, &put(KEY));
        let Ok(Answer::Committed(Revision(created))) = answer else { panic!("{answer:?}") };
        Journal::new(KEY.into(), Epoch(created), Revision(0), 0)
    }

    /// Goes on until nothing is to be asked; a mishap for each request, none when they are used up.
    fn run(
        journal: &mut Journal,
        etcd: &mut EtcdModel,
        mishaps: &[NetworkFault],
    ) -> Vec<EtcdOutcome> {
        let (mut mishaps, mut now) = (mishaps.iter().copied(), Timestamp::ZERO);
        let mut settled = Vec::new();
        for _ in 0..100 {
            let (released, request) = journal.next(now);
            if !released.is_empty() {
                settled.push(EtcdOutcome::Durable(released));
            }
            if let Some(request) = request {
                let mishap = mishaps.next().unwrap_or_default();
                let result = etcd.ask_with(Duration::ZERO, &request, mishap);
                match journal.answered(now, result) {
                    EtcdOutcome::Open => {}
                    other => settled.push(other),
                }
            }
            now = now + RETRY;
        }
        settled
    }

    fn number_of_records(etcd: &mut EtcdModel) -> usize {
        let prefix = "/snic/v1/x/".to_owned();
        let range = Request::Range { prefix, at: None, from: None, limit: 10_000 };
        match etcd.ask(Duration::ZERO, &range) {
            Ok(Answer::Range { records, .. }) => records.len(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn serial_numbers_are_new_though_etcd_has_forgotten_some() {
        let journal =
            |epoch, on_record| Journal::new(KEY.into(), Epoch(epoch), Revision(0), on_record);
        let mut before = journal(70, 12);
        let given: Vec<_> = (0..1_000).map(|_| before.next_serial()).collect();
        // A backup from before has the 12, and epochs are above all that hosts have seen.
        assert!(journal(71, 12).next_serial() > given[999]);
        // Without a backup numbers go on.
        let last = journal(71, 12).next_serial() + (1 << 30);
        assert_eq!(journal(72, last).next_serial(), last + 1);
    }

    #[test]
    fn many_steps_share_a_transaction_and_effects_keep_their_order() {
        let mut etcd = EtcdModel::new();
        let mut journal = leader(&mut etcd);
        (0..300).for_each(|number| journal.submit(step(number)));
        let mut read = FleetStep::default();
        read.then(effect(300));
        journal.submit(read);
        let settled = run(&mut journal, &mut etcd, &[]);
        let sizes = settled.iter().map(|of| match of {
            EtcdOutcome::Durable(effects) => effects.len(),
            other => panic!("{other:?}"),
        });
        assert_eq!(sizes.collect::<Vec<_>>(), [127, 127, 47]);
        let all: Vec<FleetEffect> = settled
            .into_iter()
            .flat_map(|of| match of {
                EtcdOutcome::Durable(effects) => effects,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(all, (0..301).map(effect).collect::<Vec<_>>());
        assert_eq!(number_of_records(&mut etcd), 300);
    }

    /// A step that no transaction has room for is not sent for ever: it is refused, and those before it are stored.
    #[test]
    fn a_step_that_etcd_can_never_take_is_refused_and_said_so() {
        let mut etcd = EtcdModel::new();
        let mut journal = leader(&mut etcd);
        journal.submit(step(0));
        let mut large = step(1);
        large.put("/snic/v1/x/large".into(), vec![7; REQUEST_BYTES_MAX]);
        assert!(!large.fits_with(0) && step(1).fits_with(0));
        journal.submit(large);
        let settled = run(&mut journal, &mut etcd, &[]);
        let [EtcdOutcome::Durable(first), EtcdOutcome::Refused(refused)] = &settled[..] else {
            panic!("{settled:?}")
        };
        let steps: Vec<FleetEffect> =
            refused.steps.iter().flat_map(|step| step.effects.clone()).collect();
        assert_eq!((first, &steps), (&vec![effect(0)], &vec![effect(1)]));
        assert!(!refused.is_open && refused.said.contains("at most 1572864"), "{refused:?}");
        assert_eq!(number_of_records(&mut etcd), 1);
    }

    /// A key that is written twice is stored twice: in between, what followed from the first is visible.
    #[test]
    fn a_key_that_is_written_again_waits_for_the_next_transaction() {
        let mut etcd = EtcdModel::new();
        let mut journal = leader(&mut etcd);
        [0, 1, 0, 2].into_iter().for_each(|number| journal.submit(step(number)));
        let settled = run(&mut journal, &mut etcd, &[]);
        let durable = |of: &[usize]| EtcdOutcome::Durable(of.iter().copied().map(effect).collect());
        assert_eq!(settled, [durable(&[0, 1]), durable(&[0, 2])]);
    }

    /// Each sequence of mishaps of up to four requests: the step is durable once, and said so once.
    #[test]
    fn whatever_is_lost_the_step_is_carried_out_once() {
        const ALL: [NetworkFault; 4] = [
            NetworkFault::None,
            NetworkFault::Unreachable,
            NetworkFault::RequestLost,
            NetworkFault::AnswerLost,
        ];
        for number in 0..256 {
            let mishaps: Vec<NetworkFault> = (0..4).map(|at| ALL[number >> (2 * at) & 3]).collect();
            let mut etcd = EtcdModel::new();
            let mut journal = leader(&mut etcd);
            journal.submit(step(0));
            let before = etcd.revision();
            let settled = run(&mut journal, &mut etcd, &mishaps);
            assert_eq!(settled, [EtcdOutcome::Durable(vec![effect(0)])], "{mishaps:?}");
            assert_eq!(etcd.revision().0, before.0 + 1, "{mishaps:?}");
        }
    }

    /// Its transaction arrives after another leader was elected: nothing is written.
    #[test]
    fn a_leader_whose_key_is_gone_writes_nothing() {
        let mut etcd = EtcdModel::new();
        let mut journal = leader(&mut etcd);
        let gone = Transaction {
            compares: vec![],
            operations: vec![Operation::Delete { key: KEY.into() }],
        };
        etcd.ask(Duration::ZERO, &Request::Commit(gone)).expect("it is there");
        etcd.ask(Duration::ZERO, &put(KEY)).expect("the next leader, with the same key");
        journal.submit(step(0));
        assert_eq!(run(&mut journal, &mut etcd, &[]).first(), Some(&EtcdOutcome::Deposed));
        assert_eq!(number_of_records(&mut etcd), 0);
        let (open, not_begun) = journal.end();
        assert_eq!((open.len(), not_begun.len()), (1, 0));
    }

    /// The first attempt arrives when the second one was carried out and more was written.
    #[test]
    fn a_transaction_that_arrives_twice_is_carried_out_once() {
        let mut etcd = EtcdModel::new();
        let mut journal = leader(&mut etcd);
        journal.submit(step(0));
        let (_, late) = journal.next(Timestamp::ZERO);
        let late = late.expect("a transaction");
        journal.answered(Timestamp::ZERO, Err(Failed::Unknown("lost".into())));
        assert_eq!(run(&mut journal, &mut etcd, &[]).len(), 1);
        assert!(matches!(etcd.ask(Duration::ZERO, &late), Ok(Answer::Refused(_))));
    }
}
