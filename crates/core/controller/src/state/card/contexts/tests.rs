//! The machine alone: without regions, DAGs or a card.

use snic_domain::{ByteSize, DagId, TenantId};

use super::*;

const NOW: Timestamp = Timestamp::ZERO;
const AREA: SaveArea = SaveArea { bytes: ByteSize::from_bytes(3 * 4_096), bytes_per_second: 1 };

fn contexts() -> (Contexts, Tx) {
    (Contexts::new(CardId::new("card0").expect("a label")), Tx::at(NOW))
}

fn bitstream() -> BitstreamId {
    BitstreamId::new("kv").expect("a label")
}

fn dag(id: &str) -> DagName {
    let tenant = TenantId::new("acme").expect("a label");
    DagName { tenant, dag: DagId::new(id).expect("a label") }
}

fn resident(of: &str) -> ResidentContext {
    ResidentContext { bitstream: bitstream(), dag: dag(of) }
}

fn uid(row: u16) -> DagUid {
    DagUid::new(row, 1).expect("a row")
}

fn record(of: &str, offset: u32, phase: Phase) -> StateRecord {
    StateRecord {
        dag: dag(of),
        uid: uid(1),
        bitstream: bitstream(),
        digest: Digest::of(b"kv"),
        offset,
        length: 100,
        boot_id: 7,
        phase,
        since: NOW,
        attempts: 0,
    }
}

fn done(contexts: &mut Contexts, ticket: u64) -> Option<ContextStep> {
    contexts.ended(NOW, Ticket(ticket), None::<fn(u32) -> Duration>)
}

#[test]
fn residents_are_stored_once_and_removed_once() {
    let (mut contexts, mut tx) = contexts();
    for _ in 0..2 {
        contexts.add_resident(&mut tx, RegionId(1), resident("a"));
    }
    assert_eq!(tx.writes().len(), 1);
    assert!(contexts.is_resident(RegionId(1), &bitstream(), &dag("a")));
    assert!(!contexts.is_resident(RegionId(0), &bitstream(), &dag("a")));
    for _ in 0..2 {
        contexts.remove_residents(&mut tx, RegionId(1), [&resident("a")]);
    }
    assert_eq!((tx.writes().len(), contexts.all_residents().count()), (2, 0));
}

#[test]
fn one_step_is_under_way_and_a_failure_makes_the_next_wait() {
    let (mut contexts, mut tx) = contexts();
    contexts.put(&mut tx, record("a", 0, Phase::Saving(RegionId(2))));
    let (region, command) = contexts.next_save().expect("it is to be saved");
    let order = contexts.begin(Ticket(1), region, command);
    assert_eq!(order, StateOrder::Save { uid: uid(1), slot: SaveSlot { offset: 0, length: 100 } });
    assert!(!contexts.is_idle(NOW) && contexts.holds_back(RegionId(2)));
    assert_eq!(contexts.next_deadline(), None, "it waits for the wrapper");
    assert_eq!(done(&mut contexts, 2), None, "that was not asked");
    let wait = Duration::from_secs(3);
    let step = contexts.ended(NOW, Ticket(1), Some(|_| wait)).expect("it is under way");
    assert_eq!((step.region, step.command), (RegionId(2), ContextCommand::Save(0)));
    assert!(!contexts.is_idle(NOW) && contexts.is_idle(NOW + wait));
    assert_eq!(contexts.next_deadline(), Some(NOW + wait));
    assert_eq!([contexts.count_attempt(0), contexts.count_attempt(0)], [1, 2]);
}

#[test]
fn a_context_is_saved_restored_and_erased() {
    let (mut contexts, mut tx) = contexts();
    contexts.put(&mut tx, record("a", 0, Phase::Saving(RegionId(2))));
    assert!(contexts.waiting_for(&dag("a"), &bitstream(), &[]).is_some());
    contexts.set_phase(&mut tx, 0, Phase::Saved(9));
    let command = ContextCommand::Restore(0);
    let order = contexts.begin(Ticket(1), RegionId(3), command);
    assert!(matches!(order, StateOrder::Restore { check: 9, .. }), "{order:?}");
    done(&mut contexts, 1).expect("it is under way");
    contexts.set_phase(&mut tx, 0, Phase::Erasing);
    assert_eq!(contexts.needed(0), None);
    assert!(contexts.waiting_for(&dag("a"), &bitstream(), &[]).is_none());
    let before = tx.writes().len();
    contexts.set_phase(&mut tx, 0, Phase::Saved(9));
    assert_eq!(tx.writes().len(), before, "what is to be erased is not needed again");
    let (region, command) = contexts.next_erase().expect("it is to be erased");
    contexts.begin(Ticket(2), region, command);
    assert!(!contexts.holds_back(region), "erasing in the save area holds no region back");
    done(&mut contexts, 2).expect("it is under way");
    contexts.remove(&mut tx, 0);
    assert_eq!((contexts.records().count(), contexts.next_deadline()), (0, None));
}

#[test]
fn a_context_waits_for_its_own_dag_and_chain_only() {
    let (mut contexts, mut tx) = contexts();
    contexts.put(&mut tx, record("a", 0, Phase::Saved(9)));
    let another = BitstreamId::new("ids").expect("a label");
    assert!(contexts.waiting_for(&dag("a"), &another, &[]).is_none(), "it is of another chain");
    assert!(contexts.waiting_for(&dag("b"), &bitstream(), &[]).is_none(), "it is another DAG's");
    assert!(contexts.waiting_for(&dag("a"), &bitstream(), &[0]).is_none(), "it is spoken for");
    assert!(contexts.waiting_for(&dag("a"), &bitstream(), &[]).is_some());
}

#[test]
fn contexts_of_a_deleted_dag_are_erased_and_never_restored() {
    let (mut contexts, mut tx) = contexts();
    contexts.expect(&dag("a"));
    contexts.put(&mut tx, record("a", 0, Phase::Saved(9)));
    contexts.add_resident(&mut tx, RegionId(1), resident("a"));
    contexts.add_resident(&mut tx, RegionId(1), resident("b"));
    assert_eq!(contexts.forget_dag(&mut tx, &dag("a")), [RegionId(1)]);
    assert_eq!(contexts.awaiting_restore().count(), 0);
    assert!(contexts.next_erase().is_some());
    assert_eq!(contexts.residents(RegionId(1)).collect::<Vec<_>>(), [&resident("b")]);
    let gone = PendingErase { uid: uid(4), digest: Digest::of(b"kv") };
    contexts.add_pending_erase(&mut tx, RegionId(1), gone);
    assert_eq!(contexts.pending_erases().count(), 1);
    let before = tx.writes().len();
    for _ in 0..2 {
        contexts.remove_pending_erase(&mut tx, RegionId(1), uid(4));
    }
    assert_eq!((contexts.pending_erases().count(), tx.writes().len()), (0, before + 1));
}

#[test]
fn a_region_must_stay_while_what_it_keeps_has_nowhere_to_go() {
    let (mut contexts, mut tx) = contexts();
    let must_stay = |contexts: &Contexts| contexts.must_stay(RegionId(0), AREA, |_| 4_096);
    assert!(!must_stay(&contexts), "nothing is kept");
    for of in ["a", "b", "c"] {
        contexts.add_resident(&mut tx, RegionId(0), resident(of));
    }
    assert!(!must_stay(&contexts), "there is room for three");
    contexts.put(&mut tx, record("d", 4_096, Phase::Saved(1)));
    assert!(must_stay(&contexts), "two are left, and not for three");
    contexts.remove(&mut tx, 4_096);
    contexts.set_unsavable(RegionId(0), "the wrapper does not save");
    assert!(must_stay(&contexts));
    contexts.adopt(8);
    assert!(!must_stay(&contexts), "after a restart it is tried again");
    assert_eq!(contexts.figures().kept, 1);
}

#[test]
fn a_region_is_fresh_from_its_load_until_something_is_copied() {
    let (mut contexts, mut tx) = contexts();
    assert!(!contexts.is_fresh(RegionId(0)));
    contexts.loaded(RegionId(0));
    assert!(contexts.is_fresh(RegionId(0)));
    let clear = ContextCommand::Clear(resident("a"), uid(1));
    contexts.begin(Ticket(1), RegionId(0), clear);
    done(&mut contexts, 1).expect("it is under way");
    assert!(contexts.is_fresh(RegionId(0)), "nothing was copied");
    contexts.put(&mut tx, record("a", 0, Phase::Saved(9)));
    contexts.begin(Ticket(2), RegionId(0), ContextCommand::Restore(0));
    assert!(!contexts.is_fresh(RegionId(0)));
}

#[test]
fn two_contexts_of_a_store_never_stand_in_one_place() {
    let (mut contexts, _) = contexts();
    assert_eq!(contexts.restore_record(record("a", 0, Phase::Saved(1))), Ok(()));
    assert_eq!(contexts.restore_record(record("b", 64, Phase::Saved(1))), Err(SaveSlotConflict));
    assert_eq!(contexts.restore_record(record("b", 4_096, Phase::Saved(1))), Ok(()));
    assert_eq!(contexts.check(AREA), Ok(()));
    assert!(contexts.check(SaveArea { bytes: ByteSize::from_bytes(4_096), ..AREA }).is_err());
    assert_eq!(contexts.room_for(AREA, [100]), Some(vec![8_192]));
    assert_eq!(contexts.room_for(AREA, [100, 100]), None);
}
