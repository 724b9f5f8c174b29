//! The model before a real etcd: the same requests get the same answers, and watches tell the same. Only the ids of
//! leases and the first revision differ.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use snic_etcd::model::EtcdModel;
use snic_etcd::{
    Answer, Change, Compare, Failed, LeaseId, Operation, Record, Request, Revision, Transaction,
    Watch, WatchUpdate,
};
use snic_store_etcd::{EtcdConnection, EtcdWatchStream};

use super::cluster::{Cluster, commit, in_time, put, revision_of, runtime};

const KEYS: [&str; 6] = ["a", "a/", "a/b", "a0", "b", "\u{0}\u{10ffff}"];

/// Longer than any case takes: leases end by request only.
const SECONDS: u32 = 1_000;

/// A byte and a lease.
type Put = (u8, Option<i64>);

#[derive(Debug, Clone)]
enum Step {
    Commit { compares: Vec<(usize, Expect)>, operations: Vec<(usize, Option<Put>)> },
    Range { prefix: usize, at: Option<i64>, from: Option<usize>, limit: usize },
    Grant,
    KeepAlive(i64),
    Revoke(i64),
    Compact(i64),
    Watch { prefix: usize, from: i64 },
}

/// Expectation of a compare about a key.
#[derive(Debug, Clone)]
enum Expect {
    Created(i64),
    Changed(i64),
    /// The revision of creation, as it is.
    CreatedAsIs,
    ChangedAsIs,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS.len();
    let revision = 1..25_i64;
    let expect = prop_oneof![
        1 => (0..12_i64).prop_map(Expect::Created),
        1 => (0..12_i64).prop_map(Expect::Changed),
        4 => Just(Expect::CreatedAsIs),
        4 => Just(Expect::ChangedAsIs),
    ];
    let lease = 1..5_i64;
    let value = prop_oneof![
        3 => (any::<u8>(), prop::option::of(lease.clone())).prop_map(Some),
        2 => Just(None),
    ];
    let operations = prop::collection::vec((key.clone(), value), 0..4);
    let from = prop::option::of(key.clone());
    prop_oneof![
        10 => (prop::collection::vec((key.clone(), expect), 0..3), operations)
            .prop_map(|(compares, operations)| Step::Commit { compares, operations }),
        3 => (key.clone(), prop::option::of(revision.clone()), from, 0..5_usize)
            .prop_map(|(prefix, at, from, limit)| Step::Range { prefix, at, from, limit }),
        2 => Just(Step::Grant),
        1 => lease.clone().prop_map(Step::KeepAlive),
        1 => lease.prop_map(Step::Revoke),
        1 => revision.clone().prop_map(Step::Compact),
        2 => (key, revision).prop_map(|(prefix, from)| Step::Watch { prefix, from }),
    ]
}

/// The same history in both.
struct Pair<'a> {
    real: &'a EtcdConnection,
    model: EtcdModel,
    /// Prefix of all keys of the case.
    prefix: String,
    /// Number that is added to a revision of the model.
    offset: i64,
    /// Leases of the model in the real one.
    leases: BTreeMap<LeaseId, LeaseId>,
}

impl Pair<'_> {
    fn key(&self, key: usize) -> String {
        format!("{}{}", self.prefix, KEYS[key])
    }

    fn request(&self, step: &Step) -> Option<Request> {
        Some(match step {
            Step::Commit { compares, operations } => Request::Commit(Transaction {
                compares: compares.iter().map(|(key, expect)| self.compare(*key, expect)).collect(),
                operations: operations
                    .iter()
                    .map(|(key, value)| match (self.key(*key), value) {
                        (key, Some((byte, lease))) => {
                            let lease = lease.map(LeaseId);
                            Operation::Put { key, value: vec![*byte], lease }
                        }
                        (key, None) => Operation::Delete { key },
                    })
                    .collect(),
            }),
            Step::Range { prefix, at, from, limit } => Request::Range {
                prefix: self.key(*prefix),
                at: at.map(Revision),
                from: from.map(|key| self.key(key)),
                limit: *limit,
            },
            Step::Grant => Request::Grant { seconds: SECONDS },
            Step::KeepAlive(id) => Request::KeepAlive(LeaseId(*id)),
            Step::Revoke(id) => Request::Revoke(LeaseId(*id)),
            Step::Compact(at) => Request::Compact(Revision(*at)),
            Step::Watch { .. } => return None,
        })
    }

    fn compare(&self, key: usize, expect: &Expect) -> Compare {
        let key = self.key(key);
        let mut model = self.model.clone();
        let range = Request::Range { prefix: key.clone(), at: None, from: None, limit: 1 };
        let Ok(Answer::Range { records, .. }) = model.ask(Duration::ZERO, &range) else {
            panic!("a range")
        };
        let found = records.first().filter(|record| record.key == key);
        let zero = Revision(0);
        match expect {
            Expect::Created(at) => Compare::CreatedAt(key, Revision(*at)),
            Expect::Changed(at) => Compare::ChangedAt(key, Revision(*at)),
            Expect::CreatedAsIs => Compare::CreatedAt(key, found.map_or(zero, |it| it.created)),
            Expect::ChangedAsIs => Compare::ChangedAt(key, found.map_or(zero, |it| it.changed)),
        }
    }

    fn real_revision(&self, revision: Revision) -> Revision {
        match revision.0 {
            0 => revision,
            at => Revision(at + self.offset),
        }
    }

    fn real_lease(&self, id: LeaseId) -> LeaseId {
        // One that nobody has.
        self.leases.get(&id).copied().unwrap_or(LeaseId(i64::MAX - id.0))
    }

    /// A request of the model for the real one.
    fn real_request(&self, request: &Request) -> Request {
        let compare = |compare: &Compare| match compare {
            Compare::CreatedAt(key, at) => Compare::CreatedAt(key.clone(), self.real_revision(*at)),
            Compare::ChangedAt(key, at) => Compare::ChangedAt(key.clone(), self.real_revision(*at)),
        };
        let operation = |operation: &Operation| match operation.clone() {
            Operation::Put { key, value, lease } => {
                Operation::Put { key, value, lease: lease.map(|id| self.real_lease(id)) }
            }
            delete @ Operation::Delete { .. } => delete,
        };
        match request.clone() {
            Request::Commit(transaction) => Request::Commit(Transaction {
                compares: transaction.compares.iter().map(compare).collect(),
                operations: transaction.operations.iter().map(operation).collect(),
            }),
            Request::Range { prefix, at, from, limit } => {
                Request::Range { prefix, at: at.map(|at| self.real_revision(at)), from, limit }
            }
            Request::KeepAlive(id) => Request::KeepAlive(self.real_lease(id)),
            Request::Revoke(id) => Request::Revoke(self.real_lease(id)),
            Request::Compact(at) => Request::Compact(self.real_revision(at)),
            grant @ Request::Grant { .. } => grant,
        }
    }

    /// Answer of the real one if it said what the model says.
    fn real_answer(&self, said: Result<Answer, Failed>) -> Result<Answer, Failed> {
        said.map(|answer| match answer {
            Answer::Committed(at) => Answer::Committed(self.real_revision(at)),
            Answer::Refused(at) => Answer::Refused(self.real_revision(at)),
            Answer::Range { records, more, now } => Answer::Range {
                records: records.into_iter().map(|record| self.real_record(record)).collect(),
                more,
                now: self.real_revision(now),
            },
            Answer::Granted(id, seconds) => Answer::Granted(self.real_lease(id), seconds),
            Answer::Alive(id, seconds) => Answer::Alive(self.real_lease(id), seconds),
            Answer::Ended(id) => Answer::Ended(self.real_lease(id)),
            Answer::Compacted => Answer::Compacted,
        })
        .map_err(|failed| match failed {
            Failed::Compacted(at) => Failed::Compacted(self.real_revision(at)),
            Failed::Invalid(_) => Failed::Invalid(String::new()),
            other => other,
        })
    }

    fn real_record(&self, record: Record) -> Record {
        Record {
            created: self.real_revision(record.created),
            changed: self.real_revision(record.changed),
            lease: record.lease.map(|id| self.real_lease(id)),
            ..record
        }
    }

    fn real_change(&self, change: Change) -> Change {
        match change {
            Change::Put(record) => Change::Put(self.real_record(record)),
            Change::Deleted { key, at } => Change::Deleted { key, at: self.real_revision(at) },
        }
    }

    async fn carry_out(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let Some(request) = self.request(step) else {
            let Step::Watch { prefix, from } = step else { panic!("another step") };
            return self.watch(self.key(*prefix), Revision(*from)).await;
        };
        let said = self.model.ask(Duration::ZERO, &request);
        let real = self.real.ask(&self.real_request(&request)).await;
        if let (Ok(Answer::Granted(here, _)), Ok(Answer::Granted(there, _))) = (&said, &real) {
            self.leases.insert(*here, *there);
        }
        let real = real.map_err(|failed| match failed {
            Failed::Invalid(_) => Failed::Invalid(String::new()), // the words are each one's own
            other => other,
        });
        prop_assert_eq!(real, self.real_answer(said), "to {:?}", request);
        Ok(())
    }

    /// Compares what a watch of all that is behind it tells.
    async fn watch(&mut self, prefix: String, from: Revision) -> Result<(), TestCaseError> {
        let watch = Watch { prefix: prefix.clone(), from: self.real_revision(from) };
        let watching = self.real.watch(watch).unwrap();
        self.compare_watch(watching, Watch { prefix, from }).await
    }

    /// Compares what a watch tells with the model. A last change says where it ends.
    async fn compare_watch(
        &mut self,
        mut watching: EtcdWatchStream,
        watch: Watch,
    ) -> Result<(), TestCaseError> {
        let last = commit(vec![put(&format!("{}last", watch.prefix), "")]);
        let end = revision_of(&self.real.ask(&last).await.unwrap());
        self.model.ask(Duration::ZERO, &last).unwrap();
        let (mut real, mut until) = (Vec::new(), Revision(0));
        let expected = self.model.watch(Duration::ZERO, &watch, usize::MAX);
        if watch.from > self.model.revision() {
            prop_assert_eq!(expected, Ok(None));
            return Ok(()); // nothing to be told yet
        }
        while until < end {
            let told = match in_time(watching.next()).await {
                Ok(told) => told,
                Err(failed) => {
                    let expected = self.real_answer(expected.map(|_| Answer::Compacted));
                    prop_assert_eq!(Err(failed), expected);
                    return Ok(());
                }
            };
            let first = told.changes.first().map_or(told.until, revision);
            prop_assert!(until < first && first <= told.until, "a revision in two pieces");
            until = told.until;
            real.extend(told.changes);
        }
        let Ok(Some(WatchUpdate { changes, until: model_until })) = expected else {
            return Err(TestCaseError::fail(format!("the model tells {expected:?}")));
        };
        let changes: Vec<_> = changes.into_iter().map(|it| self.real_change(it)).collect();
        prop_assert_eq!(real, changes, "{:?}", watch);
        prop_assert_eq!(until, self.real_revision(model_until));
        Ok(())
    }
}

fn revision(change: &Change) -> Revision {
    match change {
        Change::Put(record) => record.changed,
        Change::Deleted { at, .. } => *at,
    }
}

async fn compare(real: &EtcdConnection, case: u32, steps: &[Step]) -> Result<(), TestCaseError> {
    // A revision that no case before has compacted.
    let first = real.ask(&commit(vec![put("first", "")])).await.unwrap();
    let mut pair = Pair {
        real,
        model: EtcdModel::new(),
        prefix: format!("case {case}/"),
        offset: revision_of(&first).0 - 1,
        leases: BTreeMap::new(),
    };
    // One that is open all the time, beside those that begin later.
    let watch = |from| Watch { prefix: format!("case {case}/"), from };
    let beside = real.watch(watch(Revision(revision_of(&first).0 + 1))).unwrap();
    for step in steps {
        pair.carry_out(step).await?;
    }
    let all = Request::Range { prefix: pair.prefix.clone(), at: None, from: None, limit: 1_000 };
    let said = pair.model.ask(Duration::ZERO, &all);
    prop_assert_eq!(real.ask(&all).await, pair.real_answer(said));
    pair.compare_watch(beside, watch(Revision(2))).await
}

#[test]
fn the_model_answers_as_etcd_does() {
    let Some(cluster) = Cluster::start(1) else { return };
    let runtime = runtime();
    let real = runtime.block_on(cluster.connect());
    let case = RefCell::new(0);
    let config = ProptestConfig { cases: 48, ..ProptestConfig::with_source_file(file!()) };
    let steps = prop::collection::vec(step(), 1..40);
    let outcome = TestRunner::new(config).run(&steps, |steps| {
        *case.borrow_mut() += 1;
        let case = *case.borrow();
        runtime.block_on(compare(&real, case, &steps))
    });
    if let Err(failed) = outcome {
        panic!("{failed}");
    }
}

/// Leases that end by themselves: their keys go in one revision, in order, at both.
#[test]
fn leases_end_in_the_model_as_in_etcd() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(async {
        let real = cluster.connect().await;
        let mut model = EtcdModel::new();
        let grant = Request::Grant { seconds: 1 };
        let Ok(Answer::Granted(there, seconds)) = real.ask(&grant).await else { panic!("granted") };
        let Ok(Answer::Granted(here, expected)) = model.ask(Duration::ZERO, &grant) else {
            panic!("granted")
        };
        assert_eq!(seconds, expected, "the shortest time");
        let with = |key: &str, lease| Operation::Put { key: key.to_owned(), value: vec![], lease };
        let keys = |lease| {
            let lease = Some(lease);
            commit(vec![with("b", lease), with("a", lease), with("c", lease), with("kept", None)])
        };
        let again = commit(vec![put("c", "free of the lease")]);
        assert_eq!(real.ask(&keys(there)).await, model.ask(Duration::ZERO, &keys(here)));
        assert_eq!(real.ask(&again).await, model.ask(Duration::ZERO, &again));
        let watch = Watch { prefix: String::new(), from: Revision(4) };
        let mut watching = real.watch(watch.clone()).unwrap();
        let told = loop {
            // Bookmarks come first.
            let told = in_time(watching.next()).await.unwrap();
            if !told.changes.is_empty() {
                break told;
            }
        };
        let end = Duration::from_secs(u64::from(seconds));
        assert_eq!(Ok(Some(told)), model.watch(end, &watch, 10));
        let ended = |id| Ok(Answer::Ended(id));
        assert_eq!(real.ask(&Request::KeepAlive(there)).await, ended(there));
        assert_eq!(model.ask(end, &Request::KeepAlive(here)), ended(here));
    });
}
