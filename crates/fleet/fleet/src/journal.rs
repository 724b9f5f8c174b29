//! Group commit: what a leader decides becomes durable here, in order, before anybody sees it.
//!
//! ```text
//! steps ──► queue ──► one transaction (at most 128 operations) ──► etcd
//!                        compares: the election key's creation, the last transaction's record
//!             Committed ──► effects of its steps are released
//!             no answer ──► read the last transaction's record: ours? released : sent again, the very same
//!             Refused   ──► read it: ours? released : somebody else leads
//! ```
//!
//! Sending the same transaction twice is harmless: the record of the last transaction is compared with what it was
//! before the first attempt, so only one of them is carried out, however late the first one arrives.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use snic_domain::Timestamp;
use snic_etcd::{
    Answer, Compare, Failed, OPERATIONS_MAX, Operation, REQUEST_BYTES_MAX, Request, Revision,
    Transaction,
};

use crate::protocol::{Epoch, FleetEffect};
use crate::records::{LAST_TRANSACTION, LastTransaction, Versioned};

/// Pause before a request is sent again that did not reach etcd.
const RETRY: Duration = Duration::from_millis(100);
/// What compares and the record of the last transaction take of a request, at most.
const OVERHEAD_BYTES: usize = 2_048;

/// What one event leads to: records that change together, and effects that follow.
#[derive(Debug, Default)]
pub(crate) struct FleetStep {
    /// By key; `None` deletes.
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

    /// What another one leads to follows.
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

    fn bytes(&self) -> usize {
        let value = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
        // As `Transaction::bytes` counts them.
        self.writes.iter().map(|(key, of)| 48 + key.len() + value(of)).sum()
    }
}

/// What is known of the transaction under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flight {
    Committing,
    /// No answer came: was it carried out?
    ReadingAfterSilence,
    /// It was refused: because it was carried out before, or because somebody else leads?
    ReadingAfterRefusal,
}

#[derive(Debug)]
struct UnderWay {
    transaction: Transaction,
    effects: Vec<FleetEffect>,
    flight: Flight,
    /// Not before this time; `None`: it was sent and the answer is awaited.
    again_at: Option<Timestamp>,
}

impl UnderWay {
    /// Whether it is within the limits of etcd.
    fn fits(&self) -> bool {
        self.transaction.check().is_ok()
    }
}

/// What an answer of etcd means.
#[derive(Debug, PartialEq)]
pub(crate) enum Settled {
    /// Not known yet.
    Open,
    /// The transaction is durable: its effects.
    Durable(Vec<FleetEffect>),
    /// Somebody else leads.
    Deposed,
    /// The transaction breaks a limit of etcd, whoever sends it: nothing of it is stored. Why, and its effects, which
    /// never happen.
    Refused(String, Vec<FleetEffect>),
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
    under_way: Option<UnderWay>,
}

impl Journal {
    /// Goes on after the last serial number that is on record.
    pub fn new(key: String, epoch: Epoch, last_changed: Revision, serial: u64) -> Self {
        let (queue, under_way) = (VecDeque::new(), None);
        let serial = serial.max(epoch.first_serial());
        Self { key, epoch, last_changed, number: 0, serial, queue, under_way }
    }

    pub const fn epoch(&self) -> Epoch {
        self.epoch
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

    pub fn submit(&mut self, step: FleetStep) {
        if !step.is_empty() {
            self.queue.push_back(step);
        }
    }

    /// What can be done now: effects that wait for nothing, and a request to etcd.
    pub fn next(&mut self, now: Timestamp) -> (Vec<FleetEffect>, Option<Request>) {
        let mut released = Vec::new();
        if self.under_way.is_none() {
            while self.queue.front().is_some_and(|step| step.writes.is_empty()) {
                released.extend(self.queue.pop_front().into_iter().flat_map(|step| step.effects));
            }
            self.under_way = self.collect(now);
        }
        let Some(under_way) = &mut self.under_way else { return (released, None) };
        if under_way.again_at.is_none_or(|at| at > now) {
            return (released, None);
        }
        under_way.again_at = None;
        let request = match under_way.flight {
            Flight::Committing => Request::Commit(under_way.transaction.clone()),
            Flight::ReadingAfterSilence | Flight::ReadingAfterRefusal => Request::Range {
                prefix: LAST_TRANSACTION.to_owned(),
                at: None,
                from: None,
                limit: 1,
            },
        };
        (released, Some(request))
    }

    /// As many steps as one transaction takes. A step is never divided, and one that writes a key again goes into the next
    /// transaction: effects follow what was stored, not what was overwritten before it was.
    fn collect(&mut self, now: Timestamp) -> Option<UnderWay> {
        let mut writes: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
        let (mut effects, mut bytes) = (Vec::new(), OVERHEAD_BYTES);
        while let Some(step) = self.queue.front() {
            let is_again = step.writes.keys().any(|key| writes.contains_key(key));
            bytes += step.bytes();
            let operations = writes.len() + step.writes.len() + 1;
            let is_full = operations > OPERATIONS_MAX || bytes > REQUEST_BYTES_MAX;
            if (is_full || is_again) && !writes.is_empty() {
                break;
            }
            let step = self.queue.pop_front().expect("it is the front");
            writes.extend(step.writes);
            effects.extend(step.effects);
        }
        if writes.is_empty() {
            return None;
        }
        self.number += 1;
        let last =
            LastTransaction { epoch: self.epoch.0, number: self.number, serial: self.serial };
        writes.insert(LAST_TRANSACTION.to_owned(), Some(Versioned::new(last).bytes()));
        let operation = |(key, value): (String, Option<Vec<u8>>)| match value {
            Some(value) => Operation::Put { key, value, lease: None },
            None => Operation::Delete { key },
        };
        let transaction = Transaction {
            compares: vec![
                Compare::CreatedAt(self.key.clone(), Revision(self.epoch.0)),
                Compare::ChangedAt(LAST_TRANSACTION.to_owned(), self.last_changed),
            ],
            operations: writes.into_iter().map(operation).collect(),
        };
        let (flight, again_at) = (Flight::Committing, Some(now));
        Some(UnderWay { transaction, effects, flight, again_at })
    }

    /// etcd answered what [`Self::next`] asked.
    pub fn answered(&mut self, now: Timestamp, result: Result<Answer, Failed>) -> Settled {
        let Some(under_way) = &mut self.under_way else { return Settled::Open };
        let (flight, again_at) = match (under_way.flight, result) {
            (Flight::Committing, Ok(Answer::Committed(revision))) => return self.durable(revision),
            (Flight::Committing, Ok(_)) => (Flight::ReadingAfterRefusal, now),
            (Flight::Committing, Err(Failed::Unreachable(_))) => (Flight::Committing, now + RETRY),
            // Sent again it would be refused again, for ever.
            (Flight::Committing, Err(Failed::Invalid(reason))) if !under_way.fits() => {
                let reason = format!("the change cannot be stored: {reason}; ask for less at once");
                return Settled::Refused(
                    reason,
                    self.under_way.take().map_or_else(Vec::new, |of| of.effects),
                );
            }
            (Flight::Committing, Err(_)) => (Flight::ReadingAfterSilence, now),
            (reading, Ok(Answer::Range { records, .. })) => {
                let ours = LastTransaction {
                    epoch: self.epoch.0,
                    number: self.number,
                    serial: self.serial,
                };
                let found = records.first().and_then(|record| {
                    let last = Versioned::<LastTransaction>::parse(&record.key, &record.value);
                    Some((*last.ok()?.value(), record.changed))
                });
                match found {
                    Some((last, changed))
                        if (last.epoch, last.number) == (ours.epoch, ours.number) =>
                    {
                        return self.durable(changed);
                    }
                    _ if reading == Flight::ReadingAfterRefusal => return Settled::Deposed,
                    _ => (Flight::Committing, now),
                }
            }
            (reading, _) => (reading, now + RETRY),
        };
        (under_way.flight, under_way.again_at) = (flight, Some(again_at));
        Settled::Open
    }

    fn durable(&mut self, revision: Revision) -> Settled {
        self.last_changed = revision;
        Settled::Durable(self.under_way.take().map(|of| of.effects).unwrap_or_default())
    }

    /// Ends it: effects whose transaction may have been carried out, and those whose was not begun.
    pub fn end(self) -> (Vec<FleetEffect>, Vec<FleetEffect>) {
        let open = self.under_way.map(|of| of.effects).unwrap_or_default();
        (open, self.queue.into_iter().flat_map(|step| step.effects).collect())
    }
}

#[cfg(test)]
mod tests {
    use snic_etcd::model::{EtcdModel, Mishap};

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
    fn run(journal: &mut Journal, etcd: &mut EtcdModel, mishaps: &[Mishap]) -> Vec<Settled> {
        let (mut mishaps, mut now) = (mishaps.iter().copied(), Timestamp::ZERO);
        let mut settled = Vec::new();
        for _ in 0..100 {
            let (released, request) = journal.next(now);
            if !released.is_empty() {
                settled.push(Settled::Durable(released));
            }
            if let Some(request) = request {
                let mishap = mishaps.next().unwrap_or_default();
                let result = etcd.ask_with(Duration::ZERO, &request, mishap);
                match journal.answered(now, result) {
                    Settled::Open => {}
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
            Settled::Durable(effects) => effects.len(),
            other => panic!("{other:?}"),
        });
        assert_eq!(sizes.collect::<Vec<_>>(), [127, 127, 47]);
        let all: Vec<FleetEffect> = settled
            .into_iter()
            .flat_map(|of| match of {
                Settled::Durable(effects) => effects,
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
        let [Settled::Durable(first), Settled::Refused(why, refused)] = &settled[..] else {
            panic!("{settled:?}")
        };
        assert_eq!((first, refused), (&vec![effect(0)], &vec![effect(1)]));
        assert!(why.contains("at most 1572864") && why.contains("ask for less"), "{why}");
        assert_eq!(number_of_records(&mut etcd), 1);
    }

    /// What is written twice is stored twice: in between, what followed from the first is visible.
    #[test]
    fn a_key_that_is_written_again_waits_for_the_next_transaction() {
        let mut etcd = EtcdModel::new();
        let mut journal = leader(&mut etcd);
        [0, 1, 0, 2].into_iter().for_each(|number| journal.submit(step(number)));
        let settled = run(&mut journal, &mut etcd, &[]);
        let durable = |of: &[usize]| Settled::Durable(of.iter().copied().map(effect).collect());
        assert_eq!(settled, [durable(&[0, 1]), durable(&[0, 2])]);
    }

    /// Each sequence of mishaps of up to four requests: the step is durable once, and said so once.
    #[test]
    fn whatever_is_lost_the_step_is_carried_out_once() {
        const ALL: [Mishap; 4] =
            [Mishap::None, Mishap::Unreachable, Mishap::RequestLost, Mishap::AnswerLost];
        for number in 0..256 {
            let mishaps: Vec<Mishap> = (0..4).map(|at| ALL[number >> (2 * at) & 3]).collect();
            let mut etcd = EtcdModel::new();
            let mut journal = leader(&mut etcd);
            journal.submit(step(0));
            let before = etcd.revision();
            let settled = run(&mut journal, &mut etcd, &mishaps);
            assert_eq!(settled, [Settled::Durable(vec![effect(0)])], "{mishaps:?}");
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
        assert_eq!(run(&mut journal, &mut etcd, &[]).first(), Some(&Settled::Deposed));
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
