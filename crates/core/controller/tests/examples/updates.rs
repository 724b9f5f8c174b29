//! Updates: the old place serves until the new one does.

use snic_controller::{Command, ControlError, DagView};
use snic_domain::{
    Bandwidth, ConditionStatus, ConditionType, DagState, Quota, RegionId, RegionState,
};
use snic_tables::{CardCommand, DagRow, LoadFailure, RateLimiterRow};

use crate::support::things::{cancel, create, dag, delete, digest, spec, tenant_id, update};
use crate::support::{World, operation, operation_id, over_quota, precondition};

/// The first stage row that the card has for a DAG.
fn first_stage(world: &mut World, view: &DagView) -> Option<u16> {
    let row: Option<DagRow> = world.card().tables.get(view.uid.row());
    row.map(|row| row.first_stage)
}

#[test]
fn the_old_rows_stay_until_the_new_place_is_loaded() {
    let mut world = World::new();
    world.deploy("acme/web", "nat firewall", 5);
    let old_region = world.regions_of("acme/web")[0];
    let view = world.view("acme/web");
    let old_row = first_stage(&mut world, &view);
    let id = operation_id(world.ask(update("acme/web", spec("lb", 7))));
    let new_region = world.regions_of("acme/web")[0];
    assert_ne!(new_region, old_region);
    assert_eq!(first_stage(&mut world, &view), old_row);
    let meanwhile = world.view("acme/web");
    assert_eq!((meanwhile.generation, meanwhile.observed_generation), (2, 1));
    assert_eq!(meanwhile.rate, Bandwidth::from_gbps(5), "the old token bucket serves");
    assert_eq!(meanwhile.state, DagState::Provisioning);
    assert!(
        matches!(world.answer_one(), Some(CardCommand::Load { region, .. }) if region == new_region)
    );
    assert_eq!(first_stage(&mut world, &view), old_row, "only a commit changes rows");
    assert!(world.card().routed().contains(&old_region));
    assert_eq!(world.region(old_region.0).state, RegionState::Active);
    assert!(matches!(world.answer_one(), Some(CardCommand::Program { .. })));
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert_eq!(world.card().routed().into_iter().collect::<Vec<_>>(), [new_region]);
    world.settle();
    assert_eq!(world.region(old_region.0).state, RegionState::Victim);
    assert_eq!(world.region(old_region.0).users, []);
    let after = world.view("acme/web");
    assert_eq!((after.observed_generation, after.state), (2, DagState::Ready));
    assert_eq!((after.uid, after.rate), (view.uid, Bandwidth::from_gbps(7)));
}

#[test]
fn no_commit_leaves_the_dag_without_rows() {
    let mut world = World::new();
    world.deploy("acme/web", "nat firewall", 5);
    let view = world.view("acme/web");
    for (chain, gbps) in [("nat firewall", 8), ("lb", 8), ("nat firewall cache aes", 2)] {
        world.ask(update("acme/web", spec(chain, gbps))).expect("there is room");
        while world.answer_one().is_some() {
            assert!(first_stage(&mut world, &view).is_some(), "{chain}");
        }
        assert_eq!(world.state("acme/web"), DagState::Ready);
    }
}

#[test]
fn an_update_of_an_update_leaves_the_dag_its_rows() {
    let mut world = World::new();
    world.deploy("acme/web", "nat firewall", 5);
    let view = world.view("acme/web");
    for (chain, gbps) in [("lb", 8), ("vpn", 8), ("pad", 2), ("lb", 3)] {
        world.ask(update("acme/web", spec(chain, gbps))).expect("there is room");
    }
    while world.answer_one().is_some() {
        assert!(first_stage(&mut world, &view).is_some(), "no row leads to it");
    }
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

#[test]
fn another_bandwidth_alone_needs_one_commit_and_no_load() {
    let mut world = World::new();
    world.deploy("acme/web", "nat firewall", 5);
    let (loads, version) = (world.card().loads.len(), world.card().version);
    let region = world.regions_of("acme/web");
    world.ask(update("acme/web", spec("nat firewall", 9))).expect("there is room");
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_eq!((world.card().loads.len(), world.card().version), (loads, version + 1));
    assert_eq!(world.regions_of("acme/web"), region);
    let row = world.view("acme/web").uid.row();
    let bucket: RateLimiterRow = world.card().tables.get(row).expect("it is served");
    assert_eq!(bucket.rate_kbps, 9_000_000);
    let nine = Bandwidth::from_gbps(9).get();
    let (reserved, ingress) = world.reserved();
    assert_eq!((&reserved[region[0].index()][..], ingress), (&[nine, nine][..], nine));
}

#[test]
fn both_places_are_reserved_until_the_update_is_done() {
    let mut world = World::new();
    world.deploy("acme/web", "aes", 10);
    world.ask(update("acme/web", spec("lb", 40))).expect("there is room");
    let aes = world.region(world.regions_of("acme/web")[0].0);
    assert_eq!(aes.slots[0].reserved, Bandwidth::from_gbps(40));
    let (reserved, ingress) = world.reserved();
    assert_eq!(reserved.iter().flatten().sum::<u64>(), 50_000_000_000);
    assert_eq!(ingress, 40_000_000_000, "packets come in once");
    world.settle();
    assert_eq!(world.reserved().0.iter().flatten().sum::<u64>(), 40_000_000_000);
}

#[test]
fn both_places_are_reserved_after_a_restart_in_the_middle_of_an_update() {
    let mut world = World::new();
    world.deploy("acme/web", "aes", 10);
    world.ask(update("acme/web", spec("lb", 40))).expect("there is room");
    world.restart();
    let (reserved, ingress) = world.reserved();
    assert_eq!(reserved.iter().flatten().sum::<u64>(), 50_000_000_000, "10 there, 40 here");
    assert_eq!(ingress, 40_000_000_000, "packets come in once");
    world.settle();
    assert_eq!(world.reserved().0.iter().flatten().sum::<u64>(), 40_000_000_000);
}

#[test]
fn a_shrinking_dag_holds_its_old_bandwidth_until_the_card_has_the_new_rate() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 40);
    world.ask(update("acme/web", spec("nat", 10))).expect("less is always there");
    let before = world.reserved().0.iter().flatten().sum::<u64>();
    assert!(before >= 40_000_000_000, "{before}");
    world.settle();
    assert_eq!(world.reserved().0.iter().flatten().sum::<u64>(), 10_000_000_000);
}

#[test]
fn an_update_to_what_is_there_ends_at_once() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 5);
    let before = world.view("acme/web");
    let view = operation(world.ask(update("acme/web", spec("nat", 5))));
    assert_eq!(world.ended(&view.record.id), Some(Ok(())));
    assert!(world.asked.is_empty());
    let after = world.view("acme/web");
    assert_eq!((after.generation, after.etag), (before.generation, before.etag));
}

#[test]
fn the_same_update_again_is_the_operation_under_way() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 5);
    let first = operation_id(world.ask(update("acme/web", spec("lb", 5))));
    let again = operation_id(world.ask(update("acme/web", spec("lb", 5))));
    assert_eq!(first, again);
    world.settle();
    assert_eq!(world.ended(&first), Some(Ok(())));
}

#[test]
fn a_later_update_supersedes_an_earlier_one() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 5);
    let view = world.view("acme/web");
    let first = operation_id(world.ask(update("acme/web", spec("lb", 6))));
    let second = operation_id(world.ask(update("acme/web", spec("aes", 7))));
    let superseded = ControlError::Superseded { resource: dag("acme/web").to_string() };
    assert_eq!(world.ended(&first), Some(Err(superseded)));
    while world.answer_one().is_some() {
        assert!(first_stage(&mut world, &view).is_some(), "it is served all the while");
    }
    assert_eq!(world.ended(&second), Some(Ok(())));
    let after = world.view("acme/web");
    assert_eq!((after.generation, after.observed_generation), (3, 3));
    assert_eq!(after.spec, spec("aes", 7));
    assert_eq!(world.reserved().0.iter().flatten().sum::<u64>(), 7_000_000_000);
}

#[test]
fn an_update_before_the_create_is_done_takes_its_place() {
    let mut world = World::new();
    let created = operation_id(world.ask(create("acme/web", spec("nat", 5))));
    let updated = operation_id(world.ask(update("acme/web", spec("lb", 5))));
    assert!(matches!(world.ended(&created), Some(Err(ControlError::Superseded { .. }))));
    world.settle();
    assert_eq!(world.ended(&updated), Some(Ok(())));
    assert_eq!(world.view("acme/web").observed_generation, 2);
    assert_eq!(world.reserved().0.iter().flatten().sum::<u64>(), 5_000_000_000);
}

#[test]
fn a_dag_on_a_full_card_can_still_change_its_bandwidth() {
    let mut world = World::new();
    world.ask(create("acme/web", spec("nat", 40))).expect("there is room");
    for (name, gbps) in [("acme/b", 20), ("acme/c", 20), ("acme/d", 16)] {
        world.ask(create(name, spec("cache", gbps))).expect("there is room");
    }
    for gbps in [30, 40] {
        operation(world.ask(update("acme/web", spec("nat", gbps))));
    }
    world.settle();
    operation(world.ask(update("acme/web", spec("nat", 20))));
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

#[test]
fn a_refused_update_changes_nothing() {
    let mut world = World::new();
    world.deploy("acme/web", "aes", 10);
    let (before, stored) = (world.view("acme/web"), world.durable.clone());
    let error = world.ask(update("acme/web", spec("aes", 90))).expect_err("four regions, 10 each");
    assert!(matches!(error, ControlError::Refused(_)), "{error}");
    let noted = world.durable.remove("refused/acme/web");
    assert!(noted.is_some(), "for recommendations");
    assert_eq!((world.view("acme/web"), world.durable.clone()), (before, stored));
    assert!(world.asked.is_empty());
}

#[test]
fn an_update_waits_and_is_taken_back_before_it_starts() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 5);
    let before = (world.reserved(), world.view("acme/web"));
    // Another load keeps the port busy, so that this update cannot start.
    world.ask(create("beta/web", spec("vpn", 1))).expect("there is room");
    let id = operation_id(world.ask(update("acme/web", spec("lb", 6))));
    assert!(world.operation(&id).cancellable);
    world.ask(cancel(&id)).expect("it has not started");
    assert_eq!(world.ended(&id), Some(Err(ControlError::Cancelled)));
    world.ask(delete("beta/web")).expect("it exists");
    world.settle();
    let after = world.view("acme/web");
    assert_eq!((after.spec, after.mapping), (before.1.spec, before.1.mapping));
    assert_eq!((after.state, after.generation, after.observed_generation), (DagState::Ready, 3, 3));
    assert_eq!(world.reserved(), before.0);
    assert!(!world.card().loads.iter().any(|(_, loaded)| *loaded == digest("lb")));
    world.restart();
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
}

/// Another DAG may have what an update has given up.
#[test]
fn an_update_is_not_taken_back_beyond_the_quota() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 5);
    let quota = Quota { bandwidth_max: Bandwidth::from_gbps(6), ..Quota::default() };
    let (id, weight, etag) = (tenant_id("acme"), None, None);
    let lower = Command::UpdateTenant {
        id,
        patch: snic_domain::TenantPatch { weight, quota: Some(quota.into()), ..Default::default() },
        etag,
    };
    world.ask(lower).expect("what it has is within it");
    // Another load keeps the port busy, so that the update cannot start.
    world.ask(create("beta/web", spec("vpn", 1))).expect("there is room");
    let id = operation_id(world.ask(update("acme/web", spec("lb", 1))));
    world.ask(create("acme/more", spec("nat", 5))).expect("six in all");
    let (quota, limit, asked) = over_quota(world.ask(cancel(&id)));
    assert_eq!((&*quota, &*limit, &*asked), ("bandwidth_max_bps", "6 Gbit/s", "10 Gbit/s"));
    assert_eq!(world.ended(&id), None);
    world.ask(delete("acme/more")).expect("it exists");
    world.ask(cancel(&id)).expect("it is within the quota again");
    assert_eq!(world.tenant("acme").usage.bandwidth, Bandwidth::from_gbps(5));
}

#[test]
fn a_started_update_is_not_taken_back() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 5);
    let id = operation_id(world.ask(update("acme/web", spec("lb", 6))));
    assert!(!world.operation(&id).cancellable);
    let (resource, _) = precondition(world.ask(cancel(&id)));
    assert_eq!(resource, format!("operations/{id}"));
    world.settle();
    assert_eq!(world.ended(&id), Some(Ok(())));
}

#[test]
fn an_update_whose_load_fails_everywhere_keeps_what_serves() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 5);
    let old = world.regions_of("acme/web")[0];
    let broken = LoadFailure::Controller { code: 3 };
    world.card().bad_digests.insert(digest("lb"), broken);
    let id = operation_id(world.ask(update("acme/web", spec("lb", 6))));
    world.settle();
    let ended = world.ended(&id);
    assert!(matches!(ended, Some(Err(ControlError::Refused(_)))), "{ended:?}");
    let view = world.view("acme/web");
    assert_eq!((view.state, view.observed_generation), (DagState::Failed, 1));
    let ready = world.condition("acme/web", ConditionType::Ready);
    assert_eq!((ready.status, &*ready.reason), (ConditionStatus::False, "NO_PLACE"));
    assert!(world.card().routed().contains(&old), "the old generation still serves");
    operation(world.ask(update("acme/web", spec("nat", 5))));
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_eq!(world.regions_of("acme/web"), [RegionId(old.0)]);
}
