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
    let uid = dags.next_uid(&card, &[]).expect("few have one");
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
    assert_ne!(again.next_uid(&card, &[]).map(DagUid::row), Some(uid.row()));
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
    let mut entry = dags.known_mut(&name("a"));
    entry.begin(Placement { serial: 2, spec: next, ..placement("card0") });
    entry.set_target(Some(2));
    entry.set_active(Some(2));
    entry.arrived().expect("the first placement");
    drop(entry);
    assert_eq!((dags.count_users(&aes), dags.count_users(&lb)), (0, 1));
    assert!(!dags.is_used(&aes, None), "it has left it");
    let looks = dags.looked_at();
    assert!(!dags.is_used(&aes, None));
    assert_eq!(dags.looked_at(), looks, "which is found out once");
    assert_eq!(dags.check(), Ok(()));
    dags.remove(&mut tx, &name("a"));
    assert!(!dags.is_used(&lb, None));
}

/// Rows, promises, borrowers and use of tenants as they are counted from scratch, whatever happens to DAGs in whatever
/// order.
mod sums {
    use proptest::prelude::*;
    use snic_domain::NtConfiguration;

    use super::*;

    #[derive(Debug, Clone)]
    enum Act {
        Add,
        Remove,
        /// A place on one of the cards, for so much beyond the promise.
        Begin(u8, u64),
        /// The card has it.
        Arrive,
        Withdraw,
        Leave,
        /// Another promise.
        Promise(u64),
        /// An operation begins.
        Operate,
    }

    fn act() -> impl Strategy<Value = (usize, Act)> {
        let act = prop_oneof![
            4 => Just(Act::Add),
            1 => Just(Act::Remove),
            4 => (0u8..3, 0u64..4).prop_map(|(card, burst)| Act::Begin(card, burst)),
            4 => Just(Act::Arrive),
            1 => Just(Act::Withdraw),
            1 => Just(Act::Leave),
            1 => (1u64..5).prop_map(Act::Promise),
            1 => Just(Act::Operate),
        ];
        (0usize..8, act)
    }

    fn card(number: u8) -> CardId {
        CardId::new(&format!("card{number}")).expect("a label")
    }

    fn carry_out(dags: &mut Dags, tx: &mut Tx, name: &DagName, act: Act) {
        if !dags.contains(name) {
            if let (Act::Add, Some(uid)) = (&act, dags.next_uid(&card(0), &[])) {
                dags.add(tx, DagEntry::new(name.clone(), uid, spec(), NOW));
            }
            return;
        }
        let mut entry = dags.known_mut(name);
        match act {
            Act::Add => {}
            Act::Remove => {
                drop(entry);
                dags.remove(tx, name);
            }
            Act::Begin(at, burst) => {
                if entry.desired().is_none() || entry.previous().is_none() {
                    // While something serves it stays on that card.
                    let at = entry.card().cloned().unwrap_or_else(|| card(at));
                    let holds = entry.spec().bandwidth + Bandwidth::from_gbps(burst);
                    let new = Placement {
                        serial: entry.next_serial(),
                        spec: entry.spec().clone(),
                        burst: (burst > 0).then_some(holds),
                        ..placement(at.as_str())
                    };
                    entry.begin(new);
                }
            }
            Act::Arrive => {
                if let Some(serial) = entry.desired().map(|placement| placement.serial) {
                    entry.set_target(Some(serial));
                    entry.set_active(Some(serial));
                    entry.arrived();
                }
            }
            Act::Withdraw => drop(entry.withdraw()),
            Act::Leave => drop(entry.leave()),
            Act::Promise(gbps) => {
                let mut spec = spec();
                spec.bandwidth = Bandwidth::from_gbps(gbps);
                spec.nodes[0].configuration = (gbps == 4).then(|| NtConfiguration::new("{}"));
                drop(entry);
                dags.change_spec(name, spec, NOW);
            }
            Act::Operate => entry.set_operation("op-1".parse().expect("a label")),
        }
    }

    /// The DAGs on a card with what they hold beyond their promise, the most first.
    fn borrowers(dags: &Dags, card: &CardId) -> Vec<DagName> {
        let of = |entry: &&DagEntry| entry.card() == Some(card) && entry.is_at_rest();
        let holds = |entry: &DagEntry| {
            let holds = entry.desired()?.holds();
            (holds > entry.spec().bandwidth).then(|| holds.saturating_sub(entry.spec().bandwidth))
        };
        let all = dags.iter().filter(of);
        let mut all: Vec<_> = all.filter_map(|e| Some((holds(e)?, e.name().clone()))).collect();
        all.sort_by_key(|(burst, name)| (std::cmp::Reverse(*burst), name.clone()));
        all.into_iter().map(|(_, name)| name).collect()
    }

    proptest! {
        #[test]
        fn sums_follow_every_change(acts in prop::collection::vec(act(), 1..60)) {
            let (mut dags, mut tx) = (Dags::default(), Tx::at(NOW));
            for (of, act) in acts {
                let name = DagName {
                    tenant: TenantId::new(["acme", "zeta"][of % 2]).expect("a label"),
                    dag: DagId::new(&format!("d{of}")).expect("a label"),
                };
                carry_out(&mut dags, &mut tx, &name, act);
                prop_assert_eq!(dags.sums.check(&dags.entries), Ok(()));
                prop_assert_eq!(dags.entries.check(), Ok(()));
                for id in [0, 1, 2].map(card) {
                    let on: Vec<_> = dags.iter().filter(|e| e.card() == Some(&id)).collect();
                    let promised: Bandwidth = on.iter().map(|e| e.spec().bandwidth).sum();
                    prop_assert_eq!(dags.guaranteed_on(&id), promised);
                    let found: Vec<_> = dags.on_card(&id).map(DagEntry::name).collect();
                    prop_assert_eq!(found, on.iter().map(|e| e.name()).collect::<Vec<_>>());
                    let found: Vec<_> = dags.borrowers_on(&id).map(|e| e.name().clone()).collect();
                    prop_assert_eq!(found, borrowers(&dags, &id));
                    let rows: BTreeSet<u16> = dags.iter().map(|e| e.uid().row()).collect();
                    let free = (0..).find(|row| !rows.contains(row));
                    prop_assert_eq!(dags.next_uid(&id, &[]).map(DagUid::row), free);
                }
                for id in ["acme", "zeta"].map(|id| TenantId::new(id).expect("a label")) {
                    let configured: usize = dags.of_tenant(&id).map(|e| e.spec().configurations()).sum();
                    prop_assert_eq!(dags.configurations_of(&id), configured);
                    prop_assert_eq!(dags.count_of(&id), dags.of_tenant(&id).count());
                }
            }
        }
    }
}
