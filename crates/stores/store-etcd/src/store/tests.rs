//! The store on the model of etcd: crashes and lost answers at each request, and readers between all of them.

use std::collections::BTreeMap;

use snic_etcd::model::{EtcdModel, Mishap};

use super::*;

/// The model, with something that goes wrong.
#[derive(Debug, Clone, Default)]
struct Faulty(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    model: EtcdModel,
    /// Requests that go well before the mishap.
    good: usize,
    mishap: Mishap,
    /// Whether nobody answers after it.
    is_last: bool,
    /// Records after each request.
    moments: Vec<EtcdModel>,
}

impl Default for Inner {
    fn default() -> Self {
        let (good, mishap, is_last) = (usize::MAX, Mishap::None, false);
        Self { model: EtcdModel::new(), good, mishap, is_last, moments: Vec::new() }
    }
}

impl Ask for Faulty {
    async fn ask(&self, request: &Request) -> Result<Answer, Failed> {
        let mut inner = self.0.lock();
        let mishap = match inner.good {
            0 => inner.mishap,
            _ => Mishap::None,
        };
        if inner.good == 0 {
            inner.mishap = if inner.is_last { Mishap::Unreachable } else { Mishap::None };
        }
        inner.good = inner.good.saturating_sub(1);
        let answer = inner.model.ask_with(Duration::ZERO, request, mishap);
        let moment = inner.model.clone();
        inner.moments.push(moment);
        answer
    }
}

impl Faulty {
    fn of(model: EtcdModel) -> Self {
        Self(Arc::new(Mutex::new(Inner { model, ..Inner::default() })))
    }

    /// After so many requests a mishap, and then nobody, or all goes on.
    fn with(self, good: usize, mishap: Mishap, is_last: bool) -> Self {
        let mut inner = self.0.lock();
        (inner.good, inner.mishap, inner.is_last) = (good, mishap, is_last);
        drop(inner);
        self
    }

    fn reader(&self, patience: Duration) -> Reader<Self> {
        Reader { etcd: self.clone(), layout: Layout::new("p"), patience }
    }

    async fn open(&self, patience: Duration) -> Result<Writer<Self>, StoreError> {
        let owner = uuid::Uuid::now_v7().to_string();
        Writer::open(self.reader(patience), owner, Unavailable::default()).await
    }

    fn keys(&self) -> usize {
        let all = Request::Range { prefix: String::new(), at: None, from: None, limit: usize::MAX };
        match self.0.lock().model.ask(Duration::ZERO, &all) {
            Ok(Answer::Range { records, .. }) => records.len(),
            other => panic!("{other:?}"),
        }
    }
}

type Records = BTreeMap<String, Vec<u8>>;

/// Change of the store.
#[derive(Debug, Clone)]
enum Change {
    Write(Batch),
    Replace(Records),
}

impl Change {
    fn apply(&self, records: &mut Records) {
        match self {
            Self::Write(batch) => batch.writes.iter().for_each(|write| {
                match write.value.clone() {
                    Some(value) => records.insert(write.key.clone(), value),
                    None => records.remove(&write.key),
                };
            }),
            Self::Replace(new) => *records = new.clone(),
        }
    }
}

fn puts(keys: std::ops::Range<usize>, value: &str) -> Batch {
    keys.fold(Batch::new(), |batch, i| batch.put(format!("k{i:03}"), value))
}

/// Small and large batches, and a replacement by more records than a transaction has room for.
fn history() -> Vec<Change> {
    let removals = (0..150).fold(Batch::new(), |batch, i| batch.remove(format!("k{i:03}")));
    let records = |from: usize, to: usize| {
        (from..to).map(|i| (format!("r{i:03}"), b"restored".to_vec())).collect()
    };
    vec![
        Change::Write(puts(0..3, "small")),
        Change::Write(puts(0..200, "large")),
        Change::Write(removals.put("k001", "kept")),
        Change::Replace(records(0, 140)),
        Change::Write(puts(0..1, "after").remove("r000")),
        Change::Replace(records(5, 7)),
    ]
}

/// Records after each of the changes, the beginning included.
fn states(history: &[Change]) -> Vec<Records> {
    let mut records = Records::new();
    let mut states = vec![records.clone()];
    for change in history {
        change.apply(&mut records);
        states.push(records.clone());
    }
    states
}

async fn carry_out<E: Ask>(writer: &mut Writer<E>, change: &Change) -> Result<(), StoreError> {
    match change {
        Change::Write(batch) => {
            let (answer, answered) = mpsc::channel();
            let done = Box::new(move |result| answer.send(result).unwrap());
            writer.write(vec![(Ok(vec![batch.clone()]), done)]).await;
            answered.try_recv().expect("each submission is answered")
        }
        Change::Replace(records) => writer.replace(records.clone().into_iter().collect()).await,
    }
}

/// Carries out the history until it fails; how many changes were acknowledged.
async fn run_history(etcd: &Faulty, history: &[Change]) -> usize {
    let Ok(mut writer) = etcd.open(Duration::ZERO).await else { return 0 };
    for (count, change) in history.iter().enumerate() {
        if carry_out(&mut writer, change).await.is_err() {
            assert!(carry_out(&mut writer, change).await.is_err(), "it takes no more writes");
            return count;
        }
    }
    history.len()
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Whatever request is the last one: after the next opening there is what was acknowledged, or one
/// change more, whole, and nothing else is left in etcd.
#[test]
fn a_crash_at_any_request_leaves_whole_changes_only() {
    let (history, states) = (history(), states(&history()));
    for mishap in [Mishap::RequestLost, Mishap::AnswerLost] {
        for good in 0.. {
            let etcd = Faulty::default().with(good, mishap, true);
            let acknowledged = wait(run_history(&etcd, &history));
            if etcd.0.lock().good > 0 {
                assert_eq!(acknowledged, history.len());
                let left = states[history.len()].len() + 1;
                assert_eq!(etcd.keys(), left, "only the records and the head are left");
                assert!(good > 20, "the history takes {good} requests only");
                break;
            }
            let etcd = Faulty::of(etcd.0.lock().model.clone());
            wait(async {
                etcd.open(Duration::ZERO).await.unwrap();
                let found = etcd.reader(Duration::ZERO).scan("").await.unwrap();
                let possible = &states[acknowledged..states.len().min(acknowledged + 2)];
                assert!(
                    possible.contains(&found),
                    "{mishap:?} after {good} requests, {acknowledged} acknowledged: {} records",
                    found.len()
                );
                assert_eq!(etcd.keys(), found.len() + 1, "{mishap:?} after {good}: only the head");
            });
        }
    }
}

/// An answer that is lost delays a change and does not repeat it: all are acknowledged.
#[test]
fn a_lost_request_or_answer_is_made_up_for() {
    let (history, states) = (history(), states(&history()));
    for mishap in [Mishap::RequestLost, Mishap::AnswerLost, Mishap::Unreachable] {
        // Some of the requests: each waits a moment before it is tried again.
        for good in (0..).step_by(11) {
            let etcd = Faulty::default().with(good, mishap, false);
            let is_over = wait(async {
                let mut writer = etcd.open(Duration::from_secs(60)).await.unwrap();
                for change in &history {
                    carry_out(&mut writer, change).await.unwrap();
                }
                let reader = etcd.reader(Duration::from_secs(60));
                let is_over = etcd.0.lock().good > 0;
                assert_eq!(reader.scan("").await.unwrap(), states[history.len()]);
                is_over
            });
            if is_over {
                break;
            }
        }
    }
}

/// A reader between any two requests sees the states in their order, each whole: by scan, by prefix and by key.
#[test]
fn readers_between_all_requests_see_whole_changes() {
    let (history, states) = (history(), states(&history()));
    let etcd = Faulty::default();
    assert_eq!(wait(run_history(&etcd, &history)), history.len());
    let moments = std::mem::take(&mut etcd.0.lock().moments);
    let mut at = 0;
    for moment in moments {
        let reader = Faulty::of(moment).reader(Duration::ZERO);
        wait(async {
            let Ok(seen) = reader.scan("").await else {
                assert_eq!(at, 0, "only before the head is written");
                return;
            };
            while states[at] != seen {
                at += 1;
                assert!(at < states.len(), "no state of the history: {} records", seen.len());
            }
            let (one, part) = ("k001", "k00");
            assert_eq!(reader.get(one).await.unwrap().as_ref(), seen.get(one));
            let expected: Records =
                seen.iter().filter(|(key, _)| key.starts_with(part)).map(own).collect();
            assert_eq!(reader.scan(part).await.unwrap(), expected);
        });
    }
    assert_eq!(at, history.len());
}

fn own((key, value): (&String, &Vec<u8>)) -> (String, Vec<u8>) {
    (key.clone(), value.clone())
}

/// The model at later and later moments: time goes on between the requests of a reader.
struct Moving {
    moments: Vec<EtcdModel>,
    next: Mutex<usize>,
    stride: usize,
}

impl Ask for Moving {
    async fn ask(&self, request: &Request) -> Result<Answer, Failed> {
        let mut next = self.next.lock();
        let mut model = self.moments[*next].clone();
        *next = (*next + self.stride).min(self.moments.len() - 1);
        model.ask(Duration::ZERO, request)
    }
}

/// A scan takes several requests. It is of one moment, although changes go on between them.
#[test]
fn a_reader_beside_a_writer_sees_whole_changes() {
    let (history, states) = (history(), states(&history()));
    let etcd = Faulty::default();
    assert_eq!(wait(run_history(&etcd, &history)), history.len());
    let moments = std::mem::take(&mut etcd.0.lock().moments);
    for stride in [1, 3, 10] {
        for start in 2..moments.len() {
            let etcd = Moving { moments: moments.clone(), next: Mutex::new(start), stride };
            let reader = Reader { etcd, layout: Layout::new("p"), patience: Duration::ZERO };
            let seen = wait(reader.scan("")).unwrap();
            assert!(states.contains(&seen), "from request {start}: {} records", seen.len());
        }
    }
}

/// The one that opens later has the store; the other is told so, and changes nothing.
#[test]
fn a_later_opening_ends_the_earlier_writer() {
    let etcd = Faulty::default();
    wait(async {
        let mut earlier = etcd.open(Duration::ZERO).await.unwrap();
        carry_out(&mut earlier, &Change::Write(puts(0..1, "earlier"))).await.unwrap();
        let mut later = etcd.open(Duration::ZERO).await.unwrap();
        for change in [Change::Write(puts(0..300, "late")), Change::Replace(Records::new())] {
            let error = carry_out(&mut earlier, &change).await.unwrap_err().to_string();
            assert!(error.contains("another process"), "{error}");
        }
        carry_out(&mut later, &Change::Write(puts(1..2, "later"))).await.unwrap();
        let found = etcd.reader(Duration::ZERO).scan("").await.unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found["k000"], b"earlier");
        assert_eq!(etcd.keys(), 3);
    });
}

/// Batches that wait together take one transaction, not one each.
#[test]
fn batches_that_come_together_share_a_transaction() {
    let etcd = Faulty::default();
    wait(async {
        let mut writer = etcd.open(Duration::ZERO).await.unwrap();
        let before = etcd.0.lock().model.revision();
        let (answer, answered) = mpsc::channel();
        let submission = |i: usize| {
            let answer = answer.clone();
            let done: Done = Box::new(move |result: Result<(), _>| {
                answer.send((i, result.is_ok())).unwrap();
            });
            let batches = vec![puts(i..i + 1, "1"), puts(i..i + 1, "2")];
            match i % 10 {
                9 => (check_limits(&[Batch::new().put("", "")]).map(|()| batches), done),
                _ => (Ok(batches), done),
            }
        };
        writer.write((0..100).map(submission).collect()).await;
        let answers: Vec<_> = answered.try_iter().collect();
        assert_eq!(answers, (0..100).map(|i| (i, i % 10 != 9)).collect::<Vec<_>>());
        assert_eq!(etcd.0.lock().model.revision().0 - before.0, 1);
        let found = etcd.reader(Duration::ZERO).scan("").await.unwrap();
        assert!(found.len() == 90 && found.values().all(|value| value == b"2"));
    });
}
