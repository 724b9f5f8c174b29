//! DAGs from the request to READY and away again.

use snic_controller::{Command, ControlError, Reply};
use snic_domain::{
    Bandwidth, ByteSize, ConditionStatus, ConditionType, DagSpec, DagState, Edge, NodeId, NtType,
    Quota, RegionState, Resource, Traffic,
};
use snic_tables::{CardCommand, DagRow, InstanceRow, RateLimiterRow, Table};

use crate::support::things::{
    REGIONS, bitstream, caller, create, dag, delete, nt, nt_id, spec, tenant_id, update,
};
use crate::support::{
    Answer, World, absent, only_replies, operation, operation_id, operator, over_quota, wrong_field,
};

fn would_be(answer: Answer) -> snic_controller::DagView {
    match answer {
        Ok(Reply::WouldBe(view)) => *view,
        other => panic!("not a preview: {other:?}"),
    }
}

fn set_quota(world: &mut World, quota: Quota) {
    let id = tenant_id("acme");
    let command = Command::UpdateTenant {
        id,
        patch: snic_domain::TenantPatch { quota: Some(quota.into()), ..Default::default() },
        etag: None,
    };
    world.ask(command).expect("valid");
}

#[test]
fn a_dag_is_ready_when_the_card_was_read_back_and_not_before() {
    let mut world = World::new();
    let id = operation_id(world.ask(create("acme/web", spec("nat firewall", 5))));
    assert_eq!(world.view("acme/web").observed_generation, 0);
    let not_ready = |world: &World| {
        assert_eq!(world.state("acme/web"), DagState::Provisioning);
        assert_eq!(world.view("acme/web").observed_generation, 0);
        assert_eq!(world.ended(&id), None);
        assert_eq!(
            world.condition("acme/web", ConditionType::Ready).status,
            ConditionStatus::False
        );
    };
    not_ready(&world);
    assert!(matches!(world.answer_one(), Some(CardCommand::Load { .. })));
    not_ready(&world);
    let loaded = world.condition("acme/web", ConditionType::RegionsLoaded);
    assert_eq!((loaded.status, &*loaded.reason), (ConditionStatus::True, "LOADED"));
    assert!(matches!(world.answer_one(), Some(CardCommand::Program { .. })));
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_eq!(world.ended(&id), Some(Ok(())));
    let view = world.view("acme/web");
    assert_eq!((view.generation, view.observed_generation), (1, 1));
    assert!(
        view.conditions.iter().all(|c| c.status == ConditionStatus::True),
        "{:?}",
        view.conditions
    );
    assert!(world.asked.is_empty());
}

#[test]
fn the_card_gets_the_rows_of_the_dag() {
    let mut world = World::new();
    world
        .ask(Command::CreateNtType(NtType { traffic: Traffic::Payload, ..nt("zip", 40) }))
        .expect("valid");
    world
        .ask(Command::CreateBitstream(bitstream("nat-zip", &["lb", "nat", "zip"])))
        .expect("valid");
    world.deploy("acme/web", "nat zip", 5);
    let view = world.view("acme/web");
    let tables = &world.card().tables;
    let row: DagRow = tables.get(view.uid.row()).expect("the DAG has its row");
    assert_eq!((row.uid, row.stages, row.payload), (view.uid.raw(), 1, true));
    let bucket: RateLimiterRow = tables.get(row.rate_limiter).expect("it has a token bucket");
    assert_eq!(bucket.rate_kbps, Bandwidth::from_gbps(5).kbps());
    let instance: InstanceRow = tables.get(0).expect("it has an instance");
    assert_eq!((instance.used_mask(), instance.weight_kbps), (0b110, 5_000_000));
    world.deploy("acme/plain", "nat", 5);
    let plain = world.view("acme/plain").uid.row();
    let row: DagRow = world.card().tables.get(plain).expect("the DAG has its row");
    assert!(!row.payload);
}

#[test]
fn validate_only_answers_and_does_nothing_else() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let (stored, batches) = (world.durable.clone(), world.batches);
    let create = |spec| Command::CreateDag { name: dag("acme/new"), spec, validate_only: true };
    let view = would_be(world.ask(create(spec("lb", 2))));
    assert!(only_replies(&world.tx), "{:?}", world.tx);
    assert_eq!((view.state, view.generation, view.observed_generation), (DagState::Pending, 1, 0));
    assert!(view.mapping.is_some() && view.explanation.is_some());
    let update = Command::UpdateDag {
        name: dag("acme/web"),
        patch: spec("lb", 3).into(),
        etag: None,
        validate_only: true,
    };
    let view = would_be(world.ask(update));
    assert!(only_replies(&world.tx), "{:?}", world.tx);
    assert_eq!((view.generation, view.spec.bandwidth), (2, Bandwidth::from_gbps(3)));
    assert_eq!(wrong_field(world.ask(create(spec("nix", 2)))), "dag.nodes[0].nt_type");
    assert_eq!((world.durable.clone(), world.batches), (stored, batches));
    assert!(world.asked.is_empty() && world.controller.dag_view(&dag("acme/new")).is_none());
    assert_eq!(world.view("acme/web").generation, 1);
}

#[test]
fn the_preview_is_what_the_create_then_does() {
    let mut world = World::new();
    world.deploy("acme/web", "nat firewall", 1);
    let spec = spec("nat firewall cache aes", 5);
    let preview =
        Command::CreateDag { name: dag("acme/new"), spec: spec.clone(), validate_only: true };
    let preview = would_be(world.ask(preview));
    world.ask(create("acme/new", spec)).expect("there is room");
    let made = world.view("acme/new");
    assert_eq!(preview.mapping, made.mapping);
    assert_eq!(preview.explanation, made.explanation);
    assert_eq!((preview.uid, preview.latency), (made.uid, made.latency));
}

#[test]
fn invalid_dags_are_refused_with_the_field() {
    let mut world = World::new();
    let node = |id: &str| NodeId::new(id).expect("a label");
    let edge = |from: &str, to: &str| Edge { from: node(from), to: node(to) };
    let with = |edges| DagSpec { edges, ..spec("nat firewall", 1) };
    let wide = Bandwidth::from_bps(1_000_500);
    let cases = [
        (DagSpec { nodes: Vec::new(), edges: Vec::new(), ..spec("nat", 1) }, "dag.nodes"),
        (with(vec![]), "dag.nodes"),
        (with(vec![edge("nat", "firewall"), edge("firewall", "nat")]), "dag.edges"),
        (with(vec![edge("nat", "nix")]), "dag.edges[0]"),
        (with(vec![edge("nat", "firewall"), edge("nat", "firewall")]), "dag.edges[1]"),
        (DagSpec { bandwidth: Bandwidth::ZERO, ..spec("nat", 1) }, "dag.bandwidth_bps"),
        (DagSpec { bandwidth: wide, ..spec("nat", 1) }, "dag.bandwidth_bps"),
        (spec("nat", 4_001), "dag.bandwidth_bps"),
        (spec("nat nix firewall", 1), "dag.nodes[1].nt_type"),
        (spec("nat beta.private", 1), "dag.nodes[1].nt_type"),
    ];
    let private = NtType { shareable: false, ..nt("beta.private", 40) };
    world.ask(Command::CreateNtType(private)).expect("valid");
    world.deploy("acme/there", "nat", 1);
    let (stored, there) = (world.durable.clone(), world.view("acme/there"));
    for (spec, field) in cases {
        let field = field.to_owned();
        assert_eq!(wrong_field(world.ask(create("acme/web", spec.clone()))), field);
        assert_eq!(wrong_field(world.ask(update("acme/there", spec))), field);
    }
    assert_eq!((world.durable.clone(), world.view("acme/there")), (stored, there));
}

#[test]
fn every_unknown_nt_is_named() {
    let mut world = World::new();
    let error = world.ask(create("acme/web", spec("nix nat nux", 1)));
    let Err(ControlError::Invalid(fields)) = error else { panic!("{error:?}") };
    let fields: Vec<&str> = fields.iter().map(|f| &*f.field).collect();
    assert_eq!(fields, ["dag.nodes[0].nt_type", "dag.nodes[2].nt_type"]);
}

#[test]
fn each_quota_is_kept() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 5);
    let ask = |world: &mut World, name: &str, spec| over_quota(world.ask(create(name, spec)));
    let texts =
        |(quota, limit, asked): (String, String, String)| format!("{quota} {limit} {asked}");
    set_quota(&mut world, Quota { dags_max: 1, ..Quota::default() });
    assert_eq!(texts(ask(&mut world, "acme/b", spec("nat", 1))), "dags_max 1 2");
    let bandwidth_max = Bandwidth::from_gbps(6);
    set_quota(&mut world, Quota { bandwidth_max, ..Quota::default() });
    let over = ask(&mut world, "acme/b", spec("nat", 2));
    assert_eq!(texts(over), "bandwidth_max_bps 6 Gbit/s 7 Gbit/s");
    let over = over_quota(world.ask(update("acme/web", spec("nat", 7))));
    assert_eq!(texts(over), "bandwidth_max_bps 6 Gbit/s 7 Gbit/s");
    world.ask(update("acme/web", spec("nat", 6))).expect("its own old bandwidth does not count");
    let memory_max = ByteSize::from_mib(5);
    set_quota(&mut world, Quota { memory_max, ..Quota::default() });
    let over = ask(&mut world, "acme/b", spec("firewall lb", 1));
    assert_eq!(texts(over), "memory_max_bytes 5 MiB 6 MiB");
    world.ask(create("acme/b", spec("nat firewall", 1))).expect("4 MiB in all: `nat` is shared");
    world.ask(create("beta/b", spec("nat firewall", 1))).expect("another's quota");
}

#[test]
fn a_name_is_taken_once_and_needs_its_tenant() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let exists = ControlError::AlreadyExists { resource: "tenants/acme/dags/web".into() };
    assert_eq!(world.ask(create("acme/web", spec("lb", 1))), Err(exists));
    assert_eq!(absent(world.ask(create("nobody/web", spec("lb", 1)))), "tenants/nobody");
    world.ask(create("beta/web", spec("nat", 1))).expect("another tenant's name");
}

#[test]
fn another_tenants_dag_is_absent() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let stored = world.durable.clone();
    for command in [update("acme/web", spec("nat", 2)), delete("acme/web")] {
        let theirs = world.ask_as(caller("beta"), command);
        assert_eq!(absent(theirs), "tenants/acme/dags/web");
    }
    let create = create("acme/x", spec("nat", 1));
    assert_eq!(absent(world.ask_as(caller("beta"), create.clone())), "tenants/acme");
    assert_eq!(world.durable, stored);
    world.ask_as(caller("acme"), create).expect("its own");
}

#[test]
fn refusals_name_the_short_resource_with_numbers() {
    let mut world = World::new();
    let error = world.ask(create("acme/web", spec("aes", 50)));
    let Err(ControlError::Refused(refusal)) = error else { panic!("{error:?}") };
    let shortage = &refusal.shortages[0];
    assert!(shortage.required > shortage.available, "{shortage}");
    let error = world.ask(create("acme/web", spec("nat", 101)));
    let Err(ControlError::Refused(refusal)) = error else { panic!("{error:?}") };
    assert_eq!(refusal.shortages[0].resource, Resource::IngressBandwidth);
    assert!(world.controller.dags(None).is_empty());
    assert_eq!(world.region_states(), [RegionState::Free; REGIONS]);
}

#[test]
fn without_a_card_the_error_says_why() {
    let mut world = World::without_card();
    let error = world.ask(create("acme/web", spec("nat", 1))).expect_err("there is no card");
    assert!(error.to_string().contains("none in its settings"), "{error}");
    let reason = "no such device: /dev/xdma0".to_owned();
    let card = crate::support::things::card_id();
    world.handle(snic_controller::Event::CardAbsent { card: card.clone(), reason });
    let error = world.ask(create("acme/web", spec("nat", 1))).expect_err("there is no card");
    assert_eq!(error, ControlError::NoCard("card card0: no such device: /dev/xdma0".into()));
    assert_eq!(world.controller.absent_cards().count(), 1);
    world.add_card(card);
    world.settle();
    assert_eq!(world.controller.absent_cards().count(), 0);
    world.deploy("acme/web", "nat", 1);
}

#[test]
fn a_loaded_chain_is_shared_without_a_load() {
    let mut world = World::new();
    world.deploy("acme/web", "nat firewall cache aes", 2);
    let loads = world.card().loads.len();
    world.deploy("beta/web", "nat aes", 3);
    assert_eq!(world.card().loads.len(), loads);
    assert_eq!(world.regions_of("beta/web"), world.regions_of("acme/web"));
    let region = world.region(world.regions_of("acme/web")[0].0);
    let reserved: Vec<u64> =
        region.slots.iter().map(|slot| slot.reserved.get() / 1_000_000_000).collect();
    assert_eq!(reserved, [5, 2, 2, 5]);
    assert_eq!(region.users.len(), 2);
    assert_eq!(region.state, RegionState::Active);
}

#[test]
fn deleting_ends_when_the_rows_are_gone() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    assert!(world.card().dag_rows() > 0);
    let id = operation_id(world.ask(delete("acme/web")));
    assert!(world.controller.dag_view(&dag("acme/web")).is_none());
    assert_eq!(world.ended(&id), None, "its rows are still there");
    world.run();
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert_eq!(world.card().dag_rows(), 0);
    assert_eq!(absent(world.ask(delete("acme/web"))), "tenants/acme/dags/web");
}

#[test]
fn a_deleted_dags_room_is_free_at_once_and_its_chain_stays_loaded() {
    let mut world = World::new();
    world.deploy("acme/web", "aes", 10);
    let region = world.regions_of("acme/web")[0];
    world.ask(delete("acme/web")).expect("it exists");
    assert_eq!(world.region(region.0).state, RegionState::Victim);
    let loads = world.card().loads.len();
    world.ask(create("beta/web", spec("aes", 10))).expect("the chain is free at once");
    world.settle();
    assert_eq!(world.state("beta/web"), DagState::Ready);
    assert_eq!(
        (world.card().loads.len(), &world.regions_of("beta/web")[..]),
        (loads, &[region][..])
    );
}

#[test]
fn a_delete_while_the_rows_are_on_their_way_waits_for_the_next_commit() {
    let mut world = World::new();
    world.ask(create("acme/web", spec("nat", 1))).expect("there is room");
    assert!(matches!(world.answer_one(), Some(CardCommand::Load { .. })));
    let id = operation_id(world.ask(delete("acme/web")));
    assert!(matches!(world.answer_one(), Some(CardCommand::Program { .. })));
    assert_eq!(world.ended(&id), None, "that commit wrote the rows");
    world.run();
    assert_eq!(world.ended(&id), Some(Ok(())));
    assert_eq!(world.card().dag_rows(), 0);
}

#[test]
fn a_delete_supersedes_the_create() {
    let mut world = World::new();
    let created = operation_id(world.ask(create("acme/web", spec("nat", 1))));
    let deleted = operation_id(world.ask(delete("acme/web")));
    let superseded = ControlError::Superseded { resource: "tenants/acme/dags/web".into() };
    assert_eq!(world.ended(&created), Some(Err(superseded)));
    world.settle();
    assert_eq!(world.ended(&deleted), Some(Ok(())));
    assert_eq!(world.region_states()[0], RegionState::Victim, "the load that ran is not wasted");
}

#[test]
fn a_name_used_again_has_another_uid() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let first = world.view("acme/web").uid;
    world.ask(delete("acme/web")).expect("it exists");
    world.deploy("acme/web", "nat", 1);
    let second = world.view("acme/web").uid;
    assert_ne!(second.row(), first.row(), "packets of the first may still be counted there");
    world.ask(delete("acme/web")).expect("it exists");
    world.restart();
    world.deploy("beta/api", "nat", 1);
    let third = world.view("beta/api").uid;
    assert!(third != first && third != second, "what the store has is not given out again");
}

#[test]
fn etags_guard_updates_and_deletes() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let old = world.view("acme/web").etag;
    world.ask(update("acme/web", spec("nat", 2))).expect("there is room");
    world.settle();
    let now = world.view("acme/web").etag;
    assert_ne!(old, now);
    let name = dag("acme/web");
    let update = |etag: &String, validate_only| Command::UpdateDag {
        name: name.clone(),
        patch: spec("nat", 3).into(),
        etag: Some(etag.clone()),
        validate_only,
    };
    let resource = name.to_string();
    let mismatch = Err(ControlError::EtagMismatch { resource, etag: now.clone() });
    assert_eq!(world.ask(update(&old, false)), mismatch);
    assert_eq!(world.ask(update(&old, true)), mismatch);
    let delete =
        |etag: &String| Command::DeleteDag { name: name.clone(), etag: Some(etag.clone()) };
    assert_eq!(world.ask(delete(&old)), mismatch);
    operation(world.ask(update(&now, false)));
    world.settle();
    let now = world.view("acme/web").etag;
    operation(world.ask(delete(&now)));
}

#[test]
fn a_dag_without_a_place_is_placed_when_a_bitstream_comes() {
    let mut world = World::new();
    world.ask(Command::CreateNtType(nt("gre", 40))).expect("valid");
    let error = world.ask(create("acme/web", spec("gre", 1)));
    let Err(ControlError::Refused(refusal)) = error else { panic!("{error:?}") };
    assert_eq!(refusal.shortages[0].resource, Resource::Bitstreams);
    world.ask(Command::CreateBitstream(bitstream("gre", &["gre"]))).expect("valid");
    world.deploy("acme/web", "gre", 1);
    let stages = world.card().tables.rows_used(Table::Stage);
    assert_eq!(stages, 1);
    assert!(nt_id("gre").owner().is_none());
}

#[test]
fn lists_are_by_tenant_and_in_pages() {
    let mut world = World::new();
    for name in ["acme/a", "acme/b", "beta/a", "beta/c"] {
        world.deploy(name, "nat", 1);
    }
    let names = |views: Vec<snic_controller::DagView>| -> Vec<String> {
        views.into_iter().map(|v| format!("{}/{}", v.name.tenant, v.name.dag)).collect()
    };
    let acme = tenant_id("acme");
    let beta = tenant_id("beta");
    assert_eq!(names(world.controller.dags(Some(&acme))), ["acme/a", "acme/b"]);
    assert_eq!(names(world.controller.dags(None)).len(), 4);
    let after =
        |tenant, name: &str| names(world.controller.dags_after(tenant, Some(&dag(name))).collect());
    assert_eq!(after(None, "acme/b"), ["beta/a", "beta/c"]);
    assert_eq!(after(Some(&acme), "acme/a"), ["acme/b"]);
    assert_eq!(after(Some(&beta), "acme/b"), ["beta/a", "beta/c"]);
    let operations = world.controller.operations(&caller("acme")).count();
    assert_eq!((operations, world.controller.operations(&operator()).count()), (2, 4));
}
