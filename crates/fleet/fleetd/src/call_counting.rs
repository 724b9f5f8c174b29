//! Counts calls of tenants at this replica: what its front has admitted goes to the ledger, whose requests go to etcd.
//!
//! ```text
//!  front ── CallCounts ──┐
//!  tenants' records ─────┼──► CallLedger ── one request at a time ──► etcd
//!  stop in order ────────┘
//! ```
//!
//! Calls never wait for it: the front adds to a number in memory.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_domain::TenantId;
use snic_etcd::{Answer, Change, Failed, Record, Request, Revision, Watch};
use snic_fleet::call_ledger::CallLedger;
use snic_fleet::records::{FleetTenantRecord, PREFIX, Versioned};
use snic_front::call_counts::CallCounts;
use snic_front::wall_clock;
use snic_store_etcd::EtcdConnection;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

/// Interval at which calls are taken from the front.
const TAKEN_EVERY: Duration = Duration::from_secs(1);
/// Pause before tenants are read once more after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// Longest time for what is to be stored before the end.
const END_MAX: Duration = Duration::from_secs(3);
/// Records of tenants that are read at once.
const PAGE: usize = 1_000;

/// Changes of the tenants that exist.
enum TenantNews {
    /// All of them, each with the second in which it was created.
    All(BTreeMap<TenantId, u64>),
    /// Some were created, or are gone.
    Changed(Vec<(TenantId, Option<u64>)>),
}

/// The task that counts.
#[derive(Debug)]
pub(crate) struct CallCounting {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl CallCounting {
    /// Counts for the replica with this address.
    pub fn start(etcd: EtcdConnection, counts: CallCounts, address: &str) -> Self {
        let (stop, stopped) = oneshot::channel();
        let now = wall_clock();
        let ledger = CallLedger::new(address, now.as_nanos(), second());
        let task = tokio::spawn(count(etcd, counts, ledger, stopped));
        Self { stop, task }
    }

    /// Stores what is counted, and that the replica stops in order. Without etcd it gives up after some seconds.
    pub async fn end(self) {
        let Self { stop, task } = self;
        drop(stop);
        let abort = task.abort_handle();
        if tokio::time::timeout(END_MAX, task).await.is_err() {
            abort.abort();
            tracing::error!("calls of the last seconds could not be stored: usage has a gap");
        }
    }
}

fn second() -> u64 {
    wall_clock().as_nanos() / 1_000_000_000
}

/// Counts until the sender is dropped, and then stores what is left.
async fn count(
    etcd: EtcdConnection,
    counts: CallCounts,
    mut ledger: CallLedger,
    mut stopped: oneshot::Receiver<()>,
) {
    let (news, mut told) = mpsc::channel(16);
    // It ends with this task, as do requests.
    let mut following = JoinSet::new();
    following.spawn(follow_tenants(etcd.clone(), news));
    let mut asked: JoinSet<Result<Answer, Failed>> = JoinSet::new();
    let mut ticks = tokio::time::interval(TAKEN_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut is_ending, mut problem) = (false, None);
    while !ledger.has_ended() {
        // All that was admitted before a round begins is in it.
        ledger.count(second(), counts.take());
        if asked.is_empty()
            && let Some(request) = ledger.next(second())
        {
            let etcd = etcd.clone();
            asked.spawn(async move { etcd.ask(&request).await });
        }
        tokio::select! {
            _ = &mut stopped, if !is_ending => {
                is_ending = true;
                ledger.count(second(), counts.take());
                ledger.end();
            }
            Some(answered) = asked.join_next() => {
                // A request that panicked has no answer, and without one nothing would go on.
                let result = answered.expect("requests to etcd do not panic");
                log_change(&mut problem, ledger.answer(second(), result));
            }
            Some(news) = told.recv() => {
                // What was admitted before is of the tenants before.
                ledger.count(second(), counts.take());
                match news {
                    TenantNews::All(tenants) => ledger.set_tenants(second(), tenants),
                    TenantNews::Changed(changes) => {
                        changes.into_iter().for_each(|(tenant, born)| ledger.set_tenant(tenant, born));
                    }
                }
            }
            _ = ticks.tick() => {}
        }
    }
}

/// Logs a problem when it begins, and its end.
fn log_change(before: &mut Option<String>, now: Option<String>) {
    match (&before, &now) {
        (None, Some(why)) => {
            tracing::warn!(why, "calls are not stored at the moment; they are counted on");
        }
        (Some(_), None) => tracing::info!("calls are stored again"),
        _ => {}
    }
    *before = now;
}

/// Tells which tenants exist, until nobody listens.
async fn follow_tenants(etcd: EtcdConnection, news: mpsc::Sender<TenantNews>) {
    let prefix = format!("{PREFIX}tenants/");
    loop {
        let (tenants, at) = match read_tenants(&etcd, &prefix).await {
            Ok(read) => read,
            Err(failed) => {
                tracing::debug!(%failed, "tenants cannot be read to count their calls");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        if news.send(TenantNews::All(tenants)).await.is_err() {
            return;
        }
        let watch = Watch { prefix: prefix.clone(), from: Revision(at.0 + 1) };
        let Ok(mut watching) = etcd.watch(watch) else { return };
        loop {
            match watching.next().await {
                Ok(update) => {
                    let changes: Vec<_> =
                        update.changes.iter().filter_map(|of| change(&prefix, of)).collect();
                    if !changes.is_empty() && news.send(TenantNews::Changed(changes)).await.is_err()
                    {
                        return;
                    }
                }
                // All of them are read again.
                Err(Failed::Compacted(_)) => break,
                // The next call tries again, after a pause.
                Err(_) => {}
            }
        }
    }
}

/// All tenants, as of one revision.
async fn read_tenants(
    etcd: &EtcdConnection,
    prefix: &str,
) -> Result<(BTreeMap<TenantId, u64>, Revision), Failed> {
    let (mut tenants, mut at, mut from) = (BTreeMap::new(), None, None);
    loop {
        let request = Request::Range { prefix: prefix.to_owned(), at, from, limit: PAGE };
        let Answer::Range { records, more, now } = etcd.ask(&request).await? else {
            return Err(Failed::Unreachable("an answer to something else".to_owned()));
        };
        let revision = *at.get_or_insert(now);
        tenants.extend(records.iter().filter_map(born));
        match records.last().filter(|_| more) {
            // The first key behind it.
            Some(last) => from = Some(format!("{}\0", last.key)),
            None => return Ok((tenants, revision)),
        }
    }
}

/// Tenant of a record, and the second in which it was created.
fn born(record: &Record) -> Option<(TenantId, u64)> {
    let read = Versioned::<FleetTenantRecord>::parse(&record.key, &record.value);
    let read =
        read.inspect_err(|error| tracing::error!(%error, "calls of a tenant are not counted"));
    let read = read.ok()?;
    let FleetTenantRecord { tenant, meta, .. } = read.value();
    Some((tenant.id.clone(), meta.created.as_nanos() / 1_000_000_000))
}

fn change(prefix: &str, change: &Change) -> Option<(TenantId, Option<u64>)> {
    match change {
        Change::Put(record) => born(record).map(|(tenant, born)| (tenant, Some(born))),
        Change::Deleted { key, .. } => Some((TenantId::new(key.strip_prefix(prefix)?).ok()?, None)),
    }
}
