use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn put(key: &str, value: &str, lease: Option<LeaseId>) -> Operation {
    Operation::Put { key: key.to_owned(), value: value.into(), lease }
}

fn delete(key: &str) -> Operation {
    Operation::Delete { key: key.to_owned() }
}

fn commit<const N: usize>(operations: [Operation; N]) -> Request {
    Request::Commit(Transaction { compares: Vec::new(), operations: operations.into() })
}

fn all(at: Option<Revision>) -> Request {
    Request::Range { prefix: String::new(), at, from: None, limit: usize::MAX }
}

fn keys(etcd: &mut EtcdModel, time: u64, prefix: &str) -> Vec<String> {
    let request =
        Request::Range { prefix: prefix.to_owned(), at: None, from: None, limit: usize::MAX };
    let Ok(Answer::Range { records, .. }) = etcd.ask(at(time), &request) else { panic!("a range") };
    records.into_iter().map(|record| record.key).collect()
}

fn granted(etcd: &mut EtcdModel, time: u64, seconds: u32) -> LeaseId {
    match etcd.ask(at(time), &Request::Grant { seconds }) {
        Ok(Answer::Granted(id, _)) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transaction_is_one_revision_and_one_that_changes_nothing_is_none() {
    let mut etcd = EtcdModel::new();
    let both = commit([put("a", "1", None), put("b", "1", None)]);
    assert_eq!(etcd.ask(at(0), &both), Ok(Answer::Committed(Revision(2))));
    assert_eq!(etcd.ask(at(0), &commit([delete("c")])), Ok(Answer::Committed(Revision(2))));
    assert_eq!(etcd.ask(at(0), &commit([delete("a")])), Ok(Answer::Committed(Revision(3))));
    assert_eq!(keys(&mut etcd, 0, ""), ["b"]);
}

/// As the real one with the alarm NOSPACE; the tests of `store-etcd` ask that one the same.
#[test]
fn without_room_only_what_takes_some_is_refused() {
    let mut etcd = EtcdModel::new();
    let lease = granted(&mut etcd, 0, 10);
    etcd.ask(at(0), &commit([put("a", "1", Some(lease))])).expect("there is room");
    etcd.refuse_writes(Some(Refusal::NoSpace));
    let never = Request::Commit(Transaction {
        compares: vec![Compare::CreatedAt("a".to_owned(), Revision(0))],
        operations: vec![put("a", "2", None)],
    });
    for refused in [commit([put("b", "1", None)]), never, Request::Grant { seconds: 5 }] {
        let failed = etcd.ask(at(0), &refused).expect_err("there is no room");
        assert_eq!(failed.refusal().map(|(why, _)| why), Some(Refusal::NoSpace));
    }
    assert_eq!(etcd.ask(at(5), &Request::KeepAlive(lease)), Ok(Answer::Alive(lease, 10)));
    assert_eq!(keys(&mut etcd, 5, ""), ["a"]);
    assert_eq!(etcd.ask(at(5), &Request::Compact(Revision(2))), Ok(Answer::Compacted));
    assert_eq!(etcd.ask(at(5), &Request::Revoke(lease)), Ok(Answer::Ended(lease)));
    assert_eq!(keys(&mut etcd, 5, ""), Vec::<String>::new());
    assert!(etcd.ask(at(5), &commit([delete("a")])).is_ok());
    etcd.refuse_writes(None);
    assert!(etcd.ask(at(5), &commit([put("b", "1", None)])).is_ok());
}

#[test]
fn a_compare_that_does_not_hold_changes_nothing() {
    let mut etcd = EtcdModel::new();
    let create = |value: &str| {
        Request::Commit(Transaction {
            compares: vec![Compare::CreatedAt("a".to_owned(), Revision(0))],
            operations: vec![put("a", value, None)],
        })
    };
    assert_eq!(etcd.ask(at(0), &create("1")), Ok(Answer::Committed(Revision(2))));
    assert_eq!(etcd.ask(at(0), &create("2")), Ok(Answer::Refused(Revision(2))));
    assert_eq!(etcd.record("a").map(|record| &record.value[..]), Some(&b"1"[..]));
}

#[test]
fn a_lease_that_ends_takes_its_keys_in_one_revision() {
    let mut etcd = EtcdModel::new();
    let lease = granted(&mut etcd, 0, 5);
    etcd.ask(at(0), &commit([put("b", "1", Some(lease)), put("a", "1", Some(lease))])).unwrap();
    etcd.ask(at(0), &commit([put("free", "1", Some(lease))])).unwrap();
    etcd.ask(at(0), &commit([put("free", "2", None)])).unwrap();
    assert_eq!(etcd.ask(at(4), &Request::KeepAlive(lease)), Ok(Answer::Alive(lease, 5)));
    assert_eq!(etcd.next_end(), Some(at(9)));
    assert_eq!(keys(&mut etcd, 8, ""), ["a", "b", "free"]);
    assert_eq!(keys(&mut etcd, 9, ""), ["free"]);
    let gone = |key: &str| Change::Deleted { key: key.to_owned(), at: Revision(5) };
    let watch = Watch { prefix: String::new(), from: Revision(5) };
    let told = WatchUpdate { changes: vec![gone("a"), gone("b")], until: Revision(5) };
    assert_eq!(etcd.watch(at(9), &watch, 100), Ok(Some(told)));
    assert_eq!(etcd.ask(at(9), &Request::KeepAlive(lease)), Ok(Answer::Ended(lease)));
    let late = commit([put("a", "1", Some(lease))]);
    assert_eq!(etcd.ask(at(9), &late), Err(Failed::LeaseEnded));
}

#[test]
fn a_short_lease_gets_the_shortest_time_and_a_new_leader_renews_all() {
    let mut etcd = EtcdModel::new();
    let lease = granted(&mut etcd, 10, 1);
    assert_eq!(etcd.next_end(), Some(at(12)));
    etcd.change_leader(at(11));
    assert_eq!(etcd.next_end(), Some(at(13)));
    assert_eq!(etcd.ask(at(12), &Request::Revoke(lease)), Ok(Answer::Ended(lease)));
    assert_eq!(etcd.next_end(), None);
}

#[test]
fn pages_go_on_where_the_last_one_ended() {
    let mut etcd = EtcdModel::new();
    etcd.ask(at(0), &commit(["a1", "a2", "a3", "b"].map(|key| put(key, "", None)))).unwrap();
    let page = |from: Option<&str>| Request::Range {
        prefix: "a".to_owned(),
        at: None,
        from: from.map(str::to_owned),
        limit: 2,
    };
    let mut seen = |request| match etcd.ask(at(0), &request) {
        Ok(Answer::Range { records, more, .. }) => {
            (records.into_iter().map(|record| record.key).collect::<Vec<_>>(), more)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(seen(page(None)), (vec!["a1".to_owned(), "a2".to_owned()], true));
    assert_eq!(seen(page(Some("a2\0"))), (vec!["a3".to_owned()], false));
    assert_eq!(seen(page(Some("A"))), (vec!["a1".to_owned(), "a2".to_owned()], true));
}

#[test]
fn what_was_compacted_cannot_be_read_or_watched() {
    let mut etcd = EtcdModel::new();
    for value in ["1", "2", "3"] {
        etcd.ask(at(0), &commit([put("a", value, None)])).unwrap();
    }
    assert_eq!(etcd.ask(at(0), &Request::Compact(Revision(3))), Ok(Answer::Compacted));
    assert_eq!(etcd.ask(at(0), &all(Some(Revision(2)))), Err(Failed::Compacted(Revision(3))));
    let watch = |from| Watch { prefix: String::new(), from: Revision(from) };
    assert!(matches!(
        etcd.ask(at(0), &all(Some(Revision(3)))),
        Ok(Answer::Range { records, .. }) if records[0].value == b"2"
    ));
    assert_eq!(etcd.watch(at(0), &watch(3), 9), Err(Failed::Compacted(Revision(4))));
    let told = etcd.watch(at(0), &watch(4), 9).unwrap().unwrap();
    assert_eq!((told.changes.len(), told.until), (1, Revision(4)));
    assert!(matches!(etcd.ask(at(0), &Request::Compact(Revision(5))), Err(Failed::Invalid(_))));
}

#[test]
fn a_mishap_decides_whether_the_request_was_carried_out() {
    let request = commit([put("a", "1", None)]);
    for (mishap, is_done, is_open) in [
        (NetworkFault::Unreachable, false, false),
        (NetworkFault::RequestLost, false, true),
        (NetworkFault::AnswerLost, true, true),
    ] {
        let mut etcd = EtcdModel::new();
        let failed = etcd.ask_with(at(0), &request, mishap).unwrap_err();
        assert_eq!(matches!(failed, Failed::Unknown(_)), is_open, "{mishap:?}");
        assert_eq!(etcd.revision() == Revision(2), is_done, "{mishap:?}");
    }
    assert!(EtcdModel::new().ask_with(at(0), &request, NetworkFault::None).is_ok());
}

/// One step of a random history: at a time that may have gone on.
fn step() -> impl Strategy<Value = (u64, Request)> {
    let key = prop::sample::select(vec!["a", "ab", "b", "b/1", "c"]);
    let lease = prop::option::of((1..4_i64).prop_map(LeaseId));
    let operation = prop_oneof![
        3 => (key.clone(), "[0-9]", lease).prop_map(|(key, value, lease)| put(key, &value, lease)),
        2 => key.prop_map(delete),
    ];
    let request = prop_oneof![
        6 => prop::collection::vec(operation, 0..4)
            .prop_map(|operations| Request::Commit(Transaction { compares: vec![], operations })),
        1 => (1..6_u32).prop_map(|seconds| Request::Grant { seconds }),
        1 => (1..4_i64).prop_map(|id| Request::KeepAlive(LeaseId(id))),
        1 => (1..4_i64).prop_map(|id| Request::Revoke(LeaseId(id))),
    ];
    (0..2_u64, request)
}

proptest! {
    /// A reader that follows a watch from the beginning, in pieces of any size, has at each revision what a range as of
    /// that revision finds.
    #[test]
    fn a_watch_leads_to_what_a_range_finds(
        steps in prop::collection::vec(step(), 0..40), revisions_max in 1..5_usize,
    ) {
        let mut etcd = EtcdModel::new();
        let mut time = 0;
        for (waited, request) in &steps {
            time += waited;
            let before = etcd.revision();
            // Refused requests are part of the history.
            let answer = etcd.ask(at(time), request);
            if answer.is_err() {
                prop_assert!(etcd.revision() == before || *waited > 0);
            }
        }
        let mut watch = Watch { prefix: String::new(), from: Revision(1) };
        let mut mirror = BTreeMap::new();
        while let Some(told) = etcd.watch(at(time), &watch, revisions_max).unwrap() {
            prop_assert!(told.until >= watch.from);
            let mut last = watch.from;
            for change in told.changes {
                let changed = match change {
                    Change::Put(record) => {
                        let changed = record.changed;
                        mirror.insert(record.key.clone(), record);
                        changed
                    }
                    Change::Deleted { key, at } => {
                        prop_assert!(mirror.remove(&key).is_some(), "{} was not there", key);
                        at
                    }
                };
                prop_assert!(last <= changed && changed <= told.until);
                last = changed;
            }
            let found = etcd.ask(at(time), &all(Some(told.until))).unwrap();
            let records = mirror.values().cloned().collect();
            prop_assert_eq!(found, Answer::Range { records, more: false, now: etcd.revision() });
            watch.from = Revision(told.until.0 + 1);
        }
        prop_assert_eq!(watch.from.0, etcd.revision().0 + 1);
    }
}
