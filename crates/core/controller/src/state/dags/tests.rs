//! The machine alone: without cards, registry or a controller.

use snic_domain::{Bandwidth, DagSpec, Form, Mapping, NtTypeId, Timestamp};

use super::*;
use crate::fixtures::name;
use crate::store::records::Placement;

const NOW: Timestamp = Timestamp::ZERO;

fn spec() -> DagSpec {
    DagSpec::chain(&[NtTypeId::new("aes").expect("a label")], Bandwidth::from_gbps(1))
}

fn add(dags: &mut Dags, tx: &mut Tx, of: &str) -> DagUid {
    let card = CardId::new("card0").expect("a label");
    let uid = dags.next_uid(&card).expect("few have one");
    dags.add(tx, DagEntry::new(name(of), uid, spec(), NOW));
    uid
}

fn placement(card: &str) -> Placement {
    let card = CardId::new(card).expect("a label");
    Placement {
        serial: 1,
        generation: 1,
        spec: spec(),
        burst: None,
        mapping: Mapping { card, form: Form::Sequential, stages: Vec::new(), programs: Vec::new() },
        stage_row: 0,
        chain_row: 0,
        instance_row: 0,
    }
}

fn names<'a>(entries: impl Iterator<Item = &'a DagEntry>) -> Vec<String> {
    entries.map(|entry| entry.name().dag.to_string()).collect()
}

#[test]
fn a_dag_that_goes_leaves_nothing_to_look_at() {
    let (mut dags, mut tx) = (Dags::default(), Tx::at(NOW));
    add(&mut dags, &mut tx, "a");
    assert!(dags.check().is_err(), "it has no place and does not wait for one");
    dags.set_unscheduled(&name("a"));
    dags.mark_dirty(&name("a"));
    assert_eq!((dags.check(), names(dags.unscheduled())), (Ok(()), vec!["a".to_owned()]));
    let gone = dags.remove(&mut tx, &name("a"));
    assert_eq!(gone.name(), &name("a"));
    assert!(dags.is_empty() && dags.is_settled());
    assert_eq!((dags.unscheduled().count(), dags.check()), (0, Ok(())));
    // Its UID, and that it and its explanation are gone.
    assert_eq!(tx.writes().len(), 3);
}

#[test]
fn a_row_is_given_out_again_as_another_uid() {
    let (mut dags, mut tx) = (Dags::default(), Tx::at(NOW));
    let first = add(&mut dags, &mut tx, "a");
    let second = add(&mut dags, &mut tx, "b");
    assert_ne!(first.row(), second.row());
    dags.remove(&mut tx, &name("a"));
    let third = add(&mut dags, &mut tx, "c");
    assert_eq!(third.row(), first.row());
    assert_ne!(third, first, "packets of the first are not taken for its own");
}

#[test]
fn dirty_dags_are_returned_once_and_sorted_by_name() {
    let (mut dags, mut tx) = (Dags::default(), Tx::at(NOW));
    for of in ["a", "b", "c"] {
        add(&mut dags, &mut tx, of);
    }
    dags.known_mut(&name("b")).begin(placement("card0"));
    for of in ["c", "a", "c"] {
        dags.mark_dirty(&name(of));
    }
    let card = CardId::new("card0").expect("a label");
    assert_eq!(names(dags.on_card(&card)), ["b"]);
    dags.mark_card_dirty(&card);
    dags.mark_all_dirty(BTreeSet::from([name("a")]));
    let order: Vec<_> = std::iter::from_fn(|| dags.pop_dirty()).collect();
    assert_eq!(order, [name("a"), name("b"), name("c")]);
    assert!(dags.is_settled());
}

#[test]
fn pages_of_a_list_begin_behind_a_name() {
    let (mut dags, mut tx) = (Dags::default(), Tx::at(NOW));
    for of in ["a", "b", "c"] {
        add(&mut dags, &mut tx, of);
    }
    let [acme, zeta] = ["acme", "zeta"].map(|id| TenantId::new(id).expect("a label"));
    assert_eq!(names(dags.of_tenant(&acme)), ["a", "b", "c"]);
    assert_eq!(dags.of_tenant(&zeta).count(), 0);
    assert_eq!(names(dags.after(Some(&acme), None)), ["a", "b", "c"]);
    assert_eq!(names(dags.after(Some(&acme), Some(&name("a")))), ["b", "c"]);
    assert_eq!(names(dags.after(None, Some(&name("b")))), ["c"]);
    assert_eq!(dags.after(Some(&zeta), Some(&name("a"))).count(), 0);
}

#[test]
fn a_store_gives_back_what_was_stored() {
    let (mut dags, mut tx) = (Dags::default(), Tx::at(NOW));
    let uid = add(&mut dags, &mut tx, "a");
    dags.known_mut(&name("a")).begin(placement("card0"));
    let mut again = Dags::default();
    again.restore_uid(uid.row(), uid.incarnation()).expect("there is such a row");
    let entry = again.restore(dags.known(&name("a")).record(), None).expect("it is a DAG");
    assert_eq!((entry.uid(), entry.desired()), (uid, Some(&placement("card0"))));
    assert_eq!((entry.target(), entry.active()), (None, None), "the card is asked");
    let card = CardId::new("card0").expect("a label");
    assert_ne!(again.next_uid(&card).map(DagUid::row), Some(uid.row()));
    assert_eq!(again.pop_dirty(), Some(name("a")), "its rows are to be looked at");
    assert_eq!((again.unscheduled().count(), again.check()), (0, Ok(())));
}

/// A DAG uses what it used until its last change while that placement serves, and not after.
#[test]
fn an_nt_type_is_used_until_the_last_placement_with_it_is_left() {
    let (mut dags, mut tx) = (Dags::default(), Tx::at(NOW));
    let [aes, lb] = ["aes", "lb"].map(|id| NtTypeId::new(id).expect("a label"));
    let acme = name("a").tenant;
    add(&mut dags, &mut tx, "a");
    dags.known_mut(&name("a")).begin(placement("card0"));
    let next = DagSpec::chain(std::slice::from_ref(&lb), Bandwidth::from_gbps(1));
    dags.change_spec(&name("a"), next.clone(), NOW);
    assert!(dags.is_used(&aes, None) && dags.is_used(&lb, None), "it serves as it was");
    assert!(!dags.is_used(&aes, Some(&acme)), "nobody else does");
    let entry = dags.known_mut(&name("a"));
    entry.begin(Placement { serial: 2, spec: next, ..placement("card0") });
    entry.set_target(Some(2));
    entry.set_active(Some(2));
    entry.arrived().expect("the first placement");
    assert_eq!((dags.count_users(&aes), dags.count_users(&lb)), (0, 1));
    assert!(!dags.is_used(&aes, None), "it has left it");
    let looks = dags.looked_at();
    assert!(!dags.is_used(&aes, None));
    assert_eq!(dags.looked_at(), looks, "which is found out once");
    assert_eq!(dags.check(), Ok(()));
    dags.remove(&mut tx, &name("a"));
    assert!(!dags.is_used(&lb, None));
}
