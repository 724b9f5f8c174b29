//! Usage in steps and pages beside what was counted.

mod slo;

use snic_controller::{CardCounters, DagCounters};
use snic_domain::{Bandwidth, DagId, DagUid, NtTypeId};
use snic_ports::store::Batch;
use snic_ports::store::memory::MemoryStore;
use snic_usage::{Book, Retention, UsageRates, UsageReading, UsageRecord, UsageWrite};

use super::*;

const BEGIN: u64 = 1_700_000_000;

fn card() -> CardId {
    "card0".parse().expect("a label")
}

fn dag(tenant: &str) -> (TenantId, DagId) {
    (tenant.parse().expect("a label"), "web".parse().expect("a label"))
}

fn counters(second: u64) -> CardCounters {
    let of = |row: u16| {
        let packets = second * u64::from(row + 1);
        let bytes = packets * 100;
        let dag = DagCounters {
            packets_in: packets,
            bytes_intended: bytes,
            bytes_served: bytes,
            packets_out: packets,
        };
        (row, dag)
    };
    CardCounters {
        cycles: Some(second * 1_000),
        dags: vec![of(0), of(1)],
        ..CardCounters::default()
    }
}

fn view(book: &Book) -> UsageView {
    let accounts = book.accounts().map(|(key, account)| UsageAccount {
        key: key.clone(),
        tenant: account.tenant().clone(),
        project: None,
        dag: account.dag().cloned(),
        begun: account.begun(),
        first: account.first(),
        ended: account.ended(),
        nts: account.nts().to_vec(),
        outages: account.outages().to_vec(),
        open: IntervalLevel::ALL.map(|level| (level, account.page(level).clone())),
    });
    UsageView {
        closed: book.closed().unwrap_or_default(),
        kept: *book.kept(),
        availability_ppm: 999_000,
        accounts: accounts.collect(),
    }
}

/// Two tenants' DAGs for some seconds, each with a packet or two a second.
fn used(seconds: u64, retention: Retention) -> (MemoryStore, UsageView) {
    let (store, mut book) = (MemoryStore::new(), Book::default());
    for second in 0..=seconds {
        let now = snic_domain::Timestamp::from_nanos((BEGIN + second) * 1_000_000_000);
        if second == 0 {
            book.booted(now, &card(), 1);
        }
        let line = Bandwidth::from_gbps(1);
        let counters = counters(second);
        book.read(
            &card(),
            &UsageReading { now, clock_hz: 1_000, line, counters: &counters },
            |_| true,
        );
        for (row, tenant) in (0..).zip(["acme", "globex"]).filter(|_| second == 0) {
            let (tenant, dag) = dag(tenant);
            let uid = DagUid::new(row, 1).expect("few");
            let nt = |id: &str, count| (id.parse::<NtTypeId>().expect("a label"), count);
            let own = format!("{tenant}.t");
            let nts = BTreeMap::from([nt("nat", 2), nt(&own, 1)]);
            let rates = UsageRates {
                packets: 0,
                promised: 8_000_000,
                regions: 1,
                area: 2_000_000 * (u64::from(row) + 1),
                memory: 4,
                functions: 3,
                nts: nts.into(),
            };
            book.place(now, &card(), (&tenant, &dag, uid), rates);
            book.loaded(now, &card(), uid, 2);
        }
        book.close(now, &retention);
        write(&store, &mut book);
    }
    (store, view(&book))
}

fn write(store: &MemoryStore, book: &mut Book) {
    let mut batch = Batch::new();
    for write in book.take_writes() {
        batch = match write {
            UsageWrite::Put(UsageRecord::FullPage(key, level, page)) => {
                let start = page.start(level).expect("a full page has entries");
                let key = UsageKey::FullPage(key, level, start).to_string();
                batch.put(key, serde_json::to_vec(&page).expect("JSON"))
            }
            UsageWrite::Remove(key) => batch.remove(key.to_string()),
            UsageWrite::Put(_) => batch,
        };
    }
    store.apply(batch).expect("it is in memory");
}

/// All entries.
fn add_up(
    store: &MemoryStore,
    view: &UsageView,
    query: &UsageQuery,
) -> Result<Vec<v1::UsageEntry>, ApiError> {
    let page = super::add_up(store, view, query, None, usize::MAX)?;
    assert_eq!(page.next, None);
    Ok(page.usage)
}

fn query(step: u64, by: UsageGrouping) -> UsageQuery {
    let from = Some(BEGIN / 86_400 * 86_400);
    let steps_max = STEPS_MAX;
    let (tenant, dag, card, to, older_from) = (None, None, None, None, None);
    UsageQuery { tenant, dag, card, project: None, from, to, step, steps_max, by, older_from }
}

#[test]
fn steps_of_any_length_add_up_to_what_was_counted() {
    let retention = Retention { fine: 120, minute: 7_200, hour: 864_000 };
    let (store, view) = used(20_000, retention);
    let closed = view.closed - BEGIN;
    for step in [0, 60, 600, 3_600] {
        let all = add_up(&store, &view, &query(step, UsageGrouping::Dag)).expect("it is readable");
        for (row, tenant) in [(1, "tenants/acme"), (2, "tenants/globex")] {
            let own = || all.iter().filter(|entry| entry.tenant == tenant);
            let bytes: u64 = own().map(|entry| entry.bytes_served).sum();
            // A reading a second, and the last close was with the reading of its second.
            assert_eq!(bytes, closed * row * 100, "{tenant} in steps of {step}");
            let promised: u64 = own().map(|entry| entry.promised_kbit).sum();
            assert_eq!(promised, closed * 8_000, "{tenant} in steps of {step}");
            assert_eq!(own().count() > 1, step > 0);
            let of = |meter: fn(&v1::UsageEntry) -> u64| own().map(meter).sum::<u64>();
            assert_eq!(of(|entry| entry.area_ppm_seconds), closed * 2_000 * row);
            assert_eq!(of(|entry| entry.memory_mib_ms), closed * 4_000);
            assert_eq!(of(|entry| entry.function_ms), closed * 3_000);
            assert_eq!(of(|entry| entry.loads), 2);
            let nat = own().flat_map(|entry| &entry.nts).filter(|nt| nt.nt_type == "ntTypes/nat");
            assert_eq!(nat.map(|nt| nt.instance_ms).sum::<u64>(), closed * 2_000);
        }
    }
}

#[test]
fn groups_are_sums_of_what_is_selected() {
    let (store, view) = used(100, Retention::default());
    let all = add_up(&store, &view, &query(0, UsageGrouping::Tenant)).expect("it is readable");
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|entry| entry.dag.is_empty() && entry.card.is_empty()));
    let (tenant, dag) = dag("globex");
    let only = UsageQuery { dag: Some(DagName { tenant, dag }), ..query(0, UsageGrouping::Dag) };
    let all = add_up(&store, &view, &only).expect("it is readable");
    let names: Vec<&str> = all.iter().map(|entry| entry.dag.as_str()).collect();
    assert_eq!(names, ["tenants/globex/dags/web"]);
    let mut of_projects = view.clone();
    let red = ProjectId::new("red").expect("a name");
    let counted = |view: &UsageView, only: Option<&ProjectId>| {
        let query = UsageQuery { project: only.cloned(), ..query(0, UsageGrouping::Project) };
        let all = add_up(&store, view, &query).expect("it is readable");
        assert!(all.iter().all(|of| of.tenant.is_empty() && of.dag.is_empty()), "{all:?}");
        all.into_iter().map(|of| (of.project, of.bytes_served)).collect::<Vec<_>>()
    };
    assert_eq!(counted(&of_projects, None), [(String::new(), 30_000)], "nobody is in one");
    assert_eq!(counted(&of_projects, Some(&red)), []);
    of_projects.accounts[1].project = Some(red.clone());
    let red_only = ("projects/red".to_owned(), 20_000);
    assert_eq!(counted(&of_projects, None), [(String::new(), 10_000), red_only.clone()]);
    assert_eq!(counted(&of_projects, Some(&red)), [red_only]);
    let many = UsageQuery { step: 1, ..query(1, UsageGrouping::Dag) };
    add_up(&store, &view, &many).expect_err("too many steps");
}

/// The daemon did not run for days, and a DAG comes before the first interval after that is closed: its usage is in the interval that
/// began before, and is found there once its pages are full.
#[test]
fn the_first_interval_after_days_is_found_for_a_dag_that_is_new() {
    let retention = Retention::default();
    let (store, mut book) = (MemoryStore::new(), Book::default());
    let at = |second: u64| snic_domain::Timestamp::from_nanos((BEGIN + second) * 1_000_000_000);
    let read = |book: &mut Book, second: u64| {
        let counters = counters(second);
        let line = Bandwidth::from_gbps(1);
        let now = at(second);
        let reading = UsageReading { now, clock_hz: 1_000, line, counters: &counters };
        book.read(&card(), &reading, |_| true);
    };
    book.booted(at(0), &card(), 1);
    read(&mut book, 0);
    book.close(at(0), &retention);
    let back = 3 * DAY;
    read(&mut book, back);
    let (tenant, name) = dag("acme");
    let uid = DagUid::new(0, 1).expect("few");
    let rates = UsageRates { promised: 8_000_000, ..UsageRates::default() };
    book.place(at(back), &card(), (&tenant, &name, uid), rates);
    for second in back + 1..back + 2 * DAY {
        if second.is_multiple_of(600) || second < back + 60 {
            read(&mut book, second);
            book.close(at(second), &retention);
            write(&store, &mut book);
        }
    }
    let view = view(&book);
    let account = &view.accounts[0];
    assert!(account.first.is_some_and(|first| first <= BEGIN), "{account:?}");
    let total = |from: u64, to: u64| {
        let query = UsageQuery { from: Some(from), to: Some(to), ..query(0, UsageGrouping::Dag) };
        let all = add_up(&store, &view, &query).expect("it is readable");
        all.iter().map(|entry| entry.life_ms).sum::<u64>()
    };
    let (first, last) = (BEGIN / 3_600 * 3_600, view.closed);
    let whole = total(first, last);
    assert!(whole >= (2 * DAY - 1_200) * 1_000, "{whole} ms");
    let parts = [(first, first + DAY), (first + DAY, BEGIN + back), (BEGIN + back, last)];
    let sum: u64 =
        parts.map(|(from, to)| total(from / 3_600 * 3_600, to / 3_600 * 3_600)).iter().sum();
    let rest = total(last / 3_600 * 3_600, last);
    assert_eq!(sum + rest, whole, "nothing is lost between two questions");
    assert!(total(first, first + DAY) > 0, "of the interval in which the daemon did not run");
}

/// A fleet's tenant was created in an interval of an hour. An account that began later is its own, and one that began before may be of an
/// earlier tenant.
#[test]
fn the_first_interval_of_a_new_tenant_counts_and_none_of_an_earlier_one() {
    let retention = Retention { fine: 120, minute: 7_200, hour: 864_000 };
    let (store, mut view) = used(20_000, retention);
    // Five seconds after its first interval.
    view.accounts.iter_mut().for_each(|account| account.begun = BEGIN + 5);
    let closed = view.closed - BEGIN;
    let first_hour = 3_600 - BEGIN % 3_600;
    let bytes = |start_time: u64, first_interval_time: Option<u64>| {
        let request = v1::ListUsageRequest {
            tenant: "tenants/acme".into(),
            start_time: Some(timestamp(start_time)),
            first_interval_time: first_interval_time.map(timestamp),
            ..Default::default()
        };
        let query = usage_query(&request)?;
        let all = add_up(&store, &view, &query)?;
        Ok::<u64, ApiError>(all.iter().map(|entry| entry.bytes_served).sum())
    };
    let day = BEGIN / 86_400 * 86_400;
    assert_eq!(bytes(BEGIN + 3, Some(day)).expect("earlier"), closed * 100);
    assert_eq!(bytes(BEGIN + 3, None).expect("no field"), (closed - first_hour) * 100);
    let of_next = bytes(BEGIN + 6, Some(day)).expect("earlier");
    assert_eq!(
        of_next,
        (closed - first_hour) * 100,
        "of the account, whole intervals that began later"
    );
    bytes(day, Some(BEGIN)).expect_err("it is later than start_time");
}

#[test]
fn one_account_is_the_sum_of_its_steps() {
    let (store, view) = used(700, Retention::default());
    let closed = view.closed - BEGIN;
    let (tenant, dag) = dag("globex");
    let own = UsageQuery {
        tenant: Some(tenant.clone()),
        steps_max: ACCOUNT_STEPS_MAX,
        from: Some(BEGIN / 60 * 60),
        ..query(60, UsageGrouping::Tenant)
    };
    let reply = account_of(&store, &view, &own).expect("it is readable");
    let total = reply.total.expect("a sum");
    assert!(reply.steps.len() > 10 && reply.steps.iter().all(|step| step.dag.is_empty()));
    assert_eq!((total.bytes_served, total.memory_mib_ms), (closed * 200, closed * 4_000));
    let names: Vec<&str> = total.nts.iter().map(|nt| &*nt.nt_type).collect();
    assert_eq!(names, ["ntTypes/globex.t", "ntTypes/nat"]);
    let end = total.end_time.map_or(0, |time| time.seconds);
    assert_eq!(u64::try_from(end), Ok(view.closed));
    let of_dag = UsageQuery { dag: Some(DagName { tenant, dag }), ..own };
    let one = account_of(&store, &view, &of_dag).expect("it is readable").total.expect("a sum");
    assert_eq!((&*one.dag, one.bytes_served), ("tenants/globex/dags/web", total.bytes_served));
    // Nothing of a time before, and its sum is there all the same.
    let before = UsageQuery { from: Some(BEGIN - 60), to: Some(BEGIN - 30), ..of_dag };
    let none = account_of(&store, &view, &before).expect("it is readable");
    assert_eq!((none.steps.len(), none.total.map(|sum| sum.life_ms)), (0, Some(0)));
    let many = UsageQuery { from: Some(BEGIN - 50_000), to: None, step: 1, ..before };
    account_of(&store, &view, &many).expect_err("more steps than one reply has");
}

#[test]
fn pages_are_parts_of_one_list_although_time_goes_on() {
    let retention = Retention { fine: 120, minute: 7_200, hour: 864_000 };
    let (store, view) = used(10_000, retention);
    for (by, step) in [(UsageGrouping::Dag, 600), (UsageGrouping::Tenant, 3_600)] {
        let whole = add_up(&store, &view, &query(step, by)).expect("it is readable");
        let (later_store, later) = used(10_700, retention);
        for limit in [1, 2, 7] {
            let first = super::add_up(&store, &view, &query(step, by), None, limit);
            let UsagePageOf { mut usage, mut next } = first.expect("it is readable");
            while let Some(end) = next {
                let end = PageEnd::parse(&end.to_string()).expect("our own");
                let page = super::add_up(&later_store, &later, &query(step, by), Some(&end), limit);
                let page = page.expect("it is readable");
                assert!((1..=limit).contains(&page.usage.len()));
                usage.extend(page.usage);
                next = page.next;
            }
            assert_eq!(usage, whole, "{by:?} in pages of {limit}");
        }
    }
}

#[test]
fn causes_have_the_words_of_the_api() {
    assert_eq!(cause_word(DropCause::ByNt), "BY_NT");
    assert_eq!(cause_word(DropCause::RateLimited), "RATE_LIMITED");
}
