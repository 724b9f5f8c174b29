//! Compacts and removes old records of calls, while this replica leads.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_etcd::{Answer, Failed, OPERATIONS_MAX, Record, Request, Transaction};
use snic_fleet::call_ledger::{CallAges, CallKey, DAYS, compaction, day_prefix, removal};
use snic_front::wall_clock;
use snic_store_etcd::EtcdConnection;
use tokio::sync::watch;

use crate::runner::{Leadership, RunnerHandle};

/// Pause between passes.
const PASS_EVERY: Duration = Duration::from_secs(600);
/// Days before those with minutes that are looked at: so long may no replica have led for an hour.
const LATE_DAYS: u64 = 30;
/// Days after which a day is compacted: calls of the day before may be written late.
const OPEN_DAYS: u64 = 2;
/// Minutes of the longer intervals.
const HOUR: u16 = 60;
/// Records that are read at once.
const PAGE: usize = 500;

/// Works now and then while this replica leads, until `stopping`.
pub(crate) async fn run(
    etcd: EtcdConnection,
    ages: CallAges,
    runner: RunnerHandle,
    mut stopping: watch::Receiver<bool>,
) {
    // Days that are done, each with the length of its intervals.
    let mut done = BTreeMap::new();
    loop {
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return,
            () = tokio::time::sleep(PASS_EVERY) => {}
        }
        if *runner.leadership().borrow() != Leadership::Own {
            continue;
        }
        let today = wall_clock().as_nanos() / 1_000_000_000 / 86_400;
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return,
            passed = pass(&etcd, &ages, today, &mut done) => if let Err(failed) = passed {
                tracing::warn!(%failed, "old calls are not compacted this time");
            }
        }
    }
}

/// Removes what is too old, and compacts the days that are over.
async fn pass(
    etcd: &EtcdConnection,
    ages: &CallAges,
    today: u64,
    done: &mut BTreeMap<u64, u16>,
) -> Result<(), Failed> {
    remove(etcd, today.saturating_sub(ages.hour)).await?;
    let by_minute = today.saturating_sub(ages.minute);
    let first = by_minute.saturating_sub(LATE_DAYS);
    done.retain(|day, _| *day >= first);
    for day in first..=today.saturating_sub(OPEN_DAYS) {
        let interval = if day <= by_minute { HOUR } else { 1 };
        if done.get(&day) != Some(&interval) && compact(etcd, day, interval).await? {
            done.insert(day, interval);
        }
    }
    Ok(())
}

/// Removes records of days before this one, the oldest first.
async fn remove(etcd: &EtcdConnection, first: u64) -> Result<(), Failed> {
    loop {
        let records = read(etcd, (DAYS, None), OPERATIONS_MAX).await?;
        let is_old =
            |record: &Record| CallKey::parse(&record.key).is_some_and(|key| key.day < first);
        let old: Vec<Record> = records.into_iter().take_while(is_old).collect();
        if old.is_empty() {
            return Ok(());
        }
        commit(etcd, removal(&old)).await?;
    }
}

/// Compacts a day, tenant by tenant. Gives whether nothing is left to be compacted.
async fn compact(etcd: &EtcdConnection, day: u64, interval: u16) -> Result<bool, Failed> {
    let prefix = day_prefix(day, None);
    let account = |record: &Record| CallKey::parse(&record.key).map(|key| (key.tenant, key.born));
    let (mut from, mut is_done) = (None, true);
    let mut group: Vec<Record> = Vec::new();
    loop {
        let page = read(etcd, (&prefix, from), PAGE).await?;
        let next = page.last().map(|last| format!("{}\0", last.key));
        let is_last = page.len() < PAGE;
        for record in page {
            if group.first().is_some_and(|first| account(first) != account(&record)) {
                is_done &= compact_group(etcd, &std::mem::take(&mut group), interval).await?;
            }
            group.push(record);
        }
        if is_last {
            return Ok(is_done & compact_group(etcd, &group, interval).await?);
        }
        from = next;
    }
}

/// Gives whether the records were one already.
async fn compact_group(
    etcd: &EtcdConnection,
    records: &[Record],
    interval: u16,
) -> Result<bool, Failed> {
    let transaction = compaction(records, interval);
    match transaction.map_err(|error| Failed::Invalid(error.to_string()))? {
        Some(transaction) => commit(etcd, transaction).await.map(|()| false),
        None => Ok(true),
    }
}

/// Sends a transaction to etcd. A refused one is built again in the next pass.
async fn commit(etcd: &EtcdConnection, transaction: Transaction) -> Result<(), Failed> {
    etcd.ask(&Request::Commit(transaction)).await.map(drop)
}

async fn read(
    etcd: &EtcdConnection,
    (prefix, from): (&str, Option<String>),
    limit: usize,
) -> Result<Vec<Record>, Failed> {
    let request = Request::Range { prefix: prefix.to_owned(), at: None, from, limit };
    match etcd.ask(&request).await? {
        Answer::Range { records, .. } => Ok(records),
        _ => Err(Failed::Unreachable("an answer to something else".to_owned())),
    }
}
