use std::sync::atomic::{AtomicU64, Ordering};

use snic_api::list::ListSelection;
use snic_api::v1;
use snic_domain::{Caller, TenantId};

use super::*;

fn settings(folder: &std::path::Path) -> AuditSettings {
    AuditSettings { folder: folder.join("audit"), file_bytes_max: 4_096, files_max: 3 }
}

fn entry(caller: &str, resource: &str, tenant: &str) -> Entry {
    Entry {
        caller: caller.into(),
        identity: PROVEN.into(),
        peer: "192.0.2.7:51612".into(),
        method: "DagService/CreateDag".into(),
        resource: resource.into(),
        tenant: tenant.into(),
        code: "OK".into(),
        ..Entry::default()
    }
}

/// Records at a time of its own, later than all before.
fn record(log: &AuditLog, entry: Entry) {
    static NANOS: AtomicU64 = AtomicU64::new(1);
    log.record(entry, Timestamp::from_nanos(NANOS.fetch_add(1, Ordering::Relaxed)));
}

fn operator() -> Caller {
    Caller::Operator("root".into())
}

fn of_tenant(id: &str) -> Caller {
    Caller::Tenant(TenantId::new(id).expect("valid"))
}

fn all(reader: Caller) -> Filter {
    Filter {
        reader,
        tenant: String::new(),
        caller: String::new(),
        method: String::new(),
        times: (0, u64::MAX),
        selection: selection(""),
    }
}

fn selection(filter: &str) -> ListSelection {
    ListSelection::parse::<v1::AuditEntry>(filter, "").expect("valid")
}

fn numbers(log: &AuditLog, before: Option<u64>, limit: usize) -> (Vec<u64>, Option<u64>) {
    let (entries, next) = log.read(&all(operator()), before, limit).expect("readable");
    (entries.iter().map(|entry| entry.number).collect(), next)
}

#[test]
fn entries_are_numbered_over_restarts_and_read_backwards() {
    let folder = tempfile::tempdir().expect("a folder");
    for round in 0..3 {
        let log = AuditLog::open(settings(folder.path())).expect("opened");
        for _ in 0..2 {
            record(&log, entry("operator/root", &format!("tenants/t{round}"), ""));
        }
    }
    let log = AuditLog::open(settings(folder.path())).expect("opened");
    assert_eq!(numbers(&log, None, 4), (vec![6, 5, 4, 3], Some(3)));
    assert_eq!(numbers(&log, Some(3), 4), (vec![2, 1], None));
}

#[test]
fn a_line_that_was_cut_off_goes_and_what_was_written_stays() {
    use std::io::Write as _;

    let folder = tempfile::tempdir().expect("a folder");
    let log = AuditLog::open(settings(folder.path())).expect("opened");
    record(&log, entry("operator/root", "tenants/a", ""));
    drop(log);
    let file = folder.path().join("audit/audit-00000000000000000001.jsonl");
    let mut torn = std::fs::OpenOptions::new().append(true).open(&file).expect("the file");
    torn.write_all(b"{\"number\":2,\"time\":1,\"cal").expect("written");
    let log = AuditLog::open(settings(folder.path())).expect("opened");
    record(&log, entry("operator/root", "tenants/b", ""));
    assert_eq!(numbers(&log, None, 9), (vec![2, 1], None));
    let text = std::fs::read_to_string(&file).expect("text");
    assert_eq!(text.lines().filter(|line| Entry::of_line(line).is_ok()).count(), 2, "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
}

/// Wherever a page ends, the next one goes on there, also over damaged lines and files.
#[test]
fn pages_put_together_are_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = AuditLog::open(settings(folder.path())).expect("opened");
    let damaged = |number: u64| number.is_multiple_of(5);
    let mut file = None;
    for number in 1..=60_u64 {
        record(&log, entry("operator/root", "tenants/a", ""));
        if damaged(number) {
            let files = std::fs::read_dir(folder.path().join("audit")).expect("the folder");
            let latest = files.map(|file| file.expect("a file").path()).max().expect("one");
            let text = std::fs::read_to_string(&latest).expect("text");
            // As long as it was: the log knows where the next line begins.
            let line = text.lines().last().expect("a line").len();
            let broken = "\u{e4}".repeat(line / 2) + &"x".repeat(line % 2);
            let kept = &text[..text.len() - line - 1];
            std::fs::write(&latest, format!("{kept}{broken}\n")).expect("written");
            file = Some(latest);
        }
    }
    assert!(file.is_some_and(|file| !file.ends_with("audit-00000000000000000001.jsonl")));
    let (all, next) = numbers(&log, None, 100);
    assert_eq!(next, None);
    let kept = *all.last().expect("some are kept")..=60;
    assert_eq!(all, kept.clone().rev().filter(|n| !damaged(*n)).collect::<Vec<_>>());
    for limit in 1..8 {
        let (mut found, mut before) = (Vec::new(), None);
        loop {
            let (page, next) = numbers(&log, before, limit);
            found.extend(page);
            before = next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(found, all, "pages of {limit}");
    }
    for before in kept {
        let below: Vec<u64> = all.iter().copied().filter(|number| *number < before).collect();
        assert_eq!(numbers(&log, Some(before), 100).0, below);
    }
}

/// A filter that matches nothing looks at a part of the log, and says where to go on.
#[test]
fn a_page_looks_at_a_bounded_number_of_entries() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = AuditSettings { file_bytes_max: 64 << 20, ..settings(folder.path()) };
    let log = AuditLog::open(settings).expect("opened");
    for _ in 0..SCANNED_MAX + 7 {
        record(&log, entry("operator/root", "tenants/a", ""));
    }
    let nothing = || Filter { method: "Nothing".to_owned(), ..all(operator()) };
    assert_eq!(log.read(&nothing(), None, 9).expect("readable"), (Vec::new(), Some(8)));
    assert_eq!(log.read(&nothing(), Some(8), 9).expect("readable"), (Vec::new(), None));
}

#[test]
fn the_oldest_files_go_and_numbers_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = AuditLog::open(settings(folder.path())).expect("opened");
    for _ in 0..400 {
        record(&log, entry("operator/root", "tenants/a", "tenants/a"));
    }
    let files = std::fs::read_dir(folder.path().join("audit")).expect("the folder");
    let sizes: Vec<u64> =
        files.map(|file| file.expect("a file").metadata().expect("its size").len()).collect();
    assert_eq!(sizes.len(), 3);
    assert!(sizes.iter().all(|size| *size <= 4_096), "{sizes:?}");
    let (found, next) = numbers(&log, None, 1_000);
    assert_eq!(next, None);
    assert_eq!(found[0], 400, "the latest");
    let kept = found.len() as u64;
    assert!((40..400).contains(&kept), "{kept}");
    assert_eq!(found, ((401 - kept)..=400).rev().collect::<Vec<_>>(), "without a gap");
}

#[test]
fn a_tenant_sees_its_own_calls_and_what_the_operator_did_to_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = AuditLog::open(settings(folder.path())).expect("opened");
    let dag = "tenants/acme/dags/web";
    record(&log, entry("tenant/acme", dag, "tenants/acme"));
    record(&log, entry("operator/root", dag, "tenants/acme"));
    record(&log, entry("tenant/globex", dag, "tenants/acme"));
    record(&log, entry("tenant/globex", "tenants/globex/dags/x", "tenants/globex"));
    record(&log, entry("operator/root", "cards/card0", ""));
    record(&log, entry(NOBODY, dag, "tenants/acme"));
    record(&log, entry("tenant/acme", "tenants/globex/dags/x", "tenants/globex"));
    let seen = |reader: Caller| {
        let (entries, _) = log.read(&all(reader.clone()), None, 99).expect("readable");
        let of = |entry: &Entry| (entry.number, entry.to_wire(&reader).caller);
        entries.iter().map(of).collect::<Vec<_>>()
    };
    let own = [(7, "tenant/acme"), (2, "operator"), (1, "tenant/acme")];
    assert_eq!(seen(of_tenant("acme")), own.map(|(number, who)| (number, who.to_owned())));
    let numbers = |reader| seen(reader).into_iter().map(|(number, _)| number).collect::<Vec<_>>();
    assert_eq!(numbers(of_tenant("globex")), [4, 3], "not what acme tried");
    assert_eq!(numbers(operator()).len(), 7);
    assert!(numbers(Caller::Orchestrator("libvirt".into())).is_empty());
    let places = |reader: Caller| {
        let (entries, _) = log.read(&all(reader.clone()), None, 99).expect("readable");
        let wire = entries.iter().map(|entry| entry.to_wire(&reader));
        wire.map(|entry| (entry.peer.len(), entry.identity.len())).collect::<Vec<_>>()
    };
    let own = [(15, 6), (0, 0), (15, 6)];
    assert_eq!(places(of_tenant("acme")), own, "not from where operators come, and how");
    assert_eq!(places(operator()), [(15, 6); 7]);
}

#[test]
fn filters_are_all_held_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = AuditLog::open(settings(folder.path())).expect("opened");
    record(&log, entry("tenant/acme", "tenants/acme/dags/a", "tenants/acme"));
    record(&log, entry("operator/root", "tenants/acme/dags/a", "tenants/acme"));
    record(&log, entry("operator/eve", "tenants/globex", "tenants/globex"));
    let count = |filter: Filter| log.read(&filter, None, 99).expect("readable").0.len();
    let filter = || all(operator());
    assert_eq!(count(Filter { tenant: "tenants/acme".into(), ..filter() }), 2);
    assert_eq!(count(Filter { caller: "operator/eve".into(), ..filter() }), 1);
    assert_eq!(count(Filter { method: "CreateDag".into(), ..filter() }), 3);
    assert_eq!(count(Filter { method: "DagService/CreateDag".into(), ..filter() }), 3);
    assert_eq!(count(Filter { method: "Dag".into(), ..filter() }), 0);
    let selects = |text: &str| count(Filter { selection: selection(text), ..filter() });
    assert_eq!(selects("caller = operator/root"), 1);
    assert_eq!(selects("tenant = tenants/acme AND caller != operator/root"), 1);
    // What a reader does not see it cannot filter by.
    let of_acme = |text: &str| Filter { selection: selection(text), ..all(of_tenant("acme")) };
    assert_eq!((count(of_acme("caller = operator/root")), count(of_acme("number > 0"))), (0, 0));
    assert_eq!(count(of_acme("")), 2);
    let (entries, _) = log.read(&filter(), None, 99).expect("readable");
    let second = entries[1].time;
    assert_eq!(count(Filter { times: (second, u64::MAX), ..filter() }), 2);
    assert_eq!(count(Filter { times: (0, second), ..filter() }), 1);
    let both = Filter { tenant: "tenants/acme".into(), caller: "operator/root".into(), ..filter() };
    assert_eq!(count(both), 1);
}

#[test]
fn unauthenticated_callers_do_not_fill_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = AuditLog::open(settings(folder.path())).expect("opened");
    for _ in 0..1_000 {
        record(&log, entry(NOBODY, "tenants/acme", ""));
    }
    let (entries, _) = log.read(&all(operator()), None, 9_999).expect("readable");
    assert!(entries.len() < 100, "{}", entries.len());
}

/// However much a tenant does, the operators' entries stay, and so do those of most other tenants.
#[test]
fn tenants_push_out_no_entry_of_an_operator() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || AuditLog::open(settings(folder.path())).expect("opened");
    let log = open();
    record(&log, entry("operator/root", "tenants/acme", "tenants/acme"));
    record(&log, entry("orchestrator/hook", "bindings/x", "tenants/acme"));
    let others: Vec<String> = (0..20).map(|number| format!("tenant/other{number}")).collect();
    for other in &others {
        record(&log, entry(other, "tenants/x/dags/y", ""));
    }
    let long = "x".repeat(200);
    for _ in 0..1_000 {
        record(&log, entry("tenant/acme", &long, "tenants/acme"));
    }
    drop(log);
    let (entries, next) = open().read(&all(operator()), None, 9_999).expect("readable");
    assert_eq!(next, None);
    assert!(entries.is_sorted_by(|a, b| a.number > b.number), "latest first");
    assert_eq!(entries[0].number, 1_022);
    let kept = |caller: &str| entries.iter().filter(|entry| entry.caller == caller).count();
    assert_eq!((kept("operator/root"), kept("orchestrator/hook")), (1, 1));
    assert!((10..1_000).contains(&kept("tenant/acme")), "{}", kept("tenant/acme"));
    let of_others: usize = others.iter().map(|other| kept(other)).sum();
    assert!(of_others >= 15, "{of_others} of 20");
    let (own, _) = open().read(&all(of_tenant("acme")), None, 9_999).expect("readable");
    assert_eq!(own.len(), kept("tenant/acme") + 2, "its own, and what others did to it");
}

#[test]
fn denied_requests_of_a_tenant_get_few_entries_and_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = AuditLog::open(settings(folder.path())).expect("opened");
    let denied = || Entry { code: "NOT_FOUND".into(), ..entry("tenant/acme", "x", "") };
    for _ in 0..500 {
        record(&log, denied());
    }
    std::thread::sleep(INTERVAL);
    record(&log, denied());
    record(&log, Entry { code: "NOT_FOUND".into(), ..entry("operator/root", "x", "") });
    record(&log, entry("tenant/acme", "x", ""));
    let (entries, _) = log.read(&all(operator()), None, 9_999).expect("readable");
    assert!(entries.len() < 50, "{}", entries.len());
    let left_out: u64 = entries.iter().map(|entry| entry.left_out).sum();
    assert_eq!(left_out + entries.len() as u64, 503, "each is written or counted");
}
