//! Tenants: what is allowed, what is refused, and what goes with them.

use snic_controller::{Command, ControlError, Reply, TenantView};
use snic_domain::limits::TENANT_WEIGHT_MAX;
use snic_domain::{Bandwidth, ByteSize, Quota, Rule, RuleId, Tenant};

use crate::support::things::{
    bitstream, bitstream_id, caller, create, dag, delete, delete_nt, delete_tenant, digest, nt,
    spec, tenant, tenant_id,
};
use crate::support::{Answer, World, absent, operation_id, over_quota, precondition, wrong_field};

fn view(answer: Answer) -> TenantView {
    match answer {
        Ok(Reply::Tenant(view)) => view,
        other => panic!("not a tenant: {other:?}"),
    }
}

fn update(id: &str, weight: Option<u32>, etag: Option<String>) -> Command {
    Command::UpdateTenant {
        id: tenant_id(id),
        patch: snic_domain::TenantPatch { weight, ..Default::default() },
        etag,
    }
}

#[test]
fn weights_are_1_to_the_limit() {
    let mut world = World::empty();
    for (id, weight) in [("a", 1), ("b", TENANT_WEIGHT_MAX)] {
        let created = view(world.ask(Command::CreateTenant(Tenant { weight, ..tenant(id) })));
        assert_eq!(created.tenant.weight, weight);
    }
    let stored = world.durable.clone();
    for weight in [0, TENANT_WEIGHT_MAX + 1, u32::MAX] {
        let create = Command::CreateTenant(Tenant { weight, ..tenant("c") });
        assert_eq!(wrong_field(world.ask(create)), "tenant.weight");
        assert_eq!(wrong_field(world.ask(update("a", Some(weight), None))), "tenant.weight");
    }
    assert_eq!(world.durable, stored);
    assert_eq!(world.controller.tenants().count(), 2);
}

#[test]
fn a_second_tenant_of_one_id_is_refused() {
    let mut world = World::without_card();
    let error = world.ask(Command::CreateTenant(tenant("acme")));
    assert_eq!(error, Err(ControlError::AlreadyExists { resource: "tenants/acme".into() }));
}

#[test]
fn an_update_changes_what_it_names_and_the_etag() {
    let mut world = World::without_card();
    let before = world.tenant("acme");
    let after = view(world.ask(update("acme", Some(9), Some(before.etag.clone()))));
    assert_eq!(after.tenant.weight, 9);
    assert_eq!(after.tenant.quota, before.tenant.quota);
    assert_ne!(after.etag, before.etag);
    assert_eq!(after.uid, before.uid);
    let quota = Quota { dags_max: 1, ..before.tenant.quota };
    let only_quota = Command::UpdateTenant {
        id: tenant_id("acme"),
        patch: snic_domain::TenantPatch { quota: Some(quota.into()), ..Default::default() },
        etag: None,
    };
    let last = view(world.ask(only_quota));
    assert_eq!((last.tenant.weight, last.tenant.quota), (9, quota));
    assert_eq!(absent(world.ask(update("nobody", Some(2), None))), "tenants/nobody");
}

#[test]
fn an_old_etag_is_refused_with_the_new_one() {
    let mut world = World::without_card();
    let old = world.tenant("acme").etag;
    let etag = view(world.ask(update("acme", Some(2), None))).etag;
    let resource = "tenants/acme".to_owned();
    let mismatch = Err(ControlError::EtagMismatch { resource, etag });
    assert_eq!(world.ask(update("acme", Some(3), Some(old.clone()))), mismatch);
    let delete =
        Command::DeleteTenant { id: tenant_id("acme"), force: true, etag: Some(old.clone()) };
    assert_eq!(world.ask(delete), mismatch);
    assert_eq!(world.tenant("acme").tenant.weight, 2);
}

#[test]
fn a_uid_outlives_a_restart_and_no_tenant() {
    let mut world = World::empty();
    let first = view(world.ask(Command::CreateTenant(tenant("acme")))).uid;
    let records = world.durable.iter().map(|(key, value)| (key.clone(), value.clone()));
    let other_secret = 8;
    world.controller = snic_controller::Controller::recover(
        snic_controller::ControllerSettings::default(),
        records,
        other_secret,
        world.now,
    )
    .expect("readable");
    assert_eq!(world.tenant("acme").uid, first, "the secret of a store is drawn once");
    world.ask(delete_tenant("acme", false)).expect("it owns nothing");
    world.now = world.now + std::time::Duration::from_nanos(1);
    assert_ne!(view(world.ask(Command::CreateTenant(tenant("acme")))).uid, first);
}

#[test]
fn delete_is_refused_while_it_owns_anything() {
    let mut world = World::new();
    let own_nt = Command::CreateNtType(nt("acme.filter", 40));
    let own_bitstream = Command::CreateBitstream(bitstream("acme.filter", &["acme.filter"]));
    for command in [create("acme/web", spec("nat", 1)), own_nt, own_bitstream] {
        world.ask(command).expect("valid");
        let (resource, text) = precondition(world.ask(delete_tenant("acme", false)));
        assert_eq!(resource, "tenants/acme");
        assert!(text.contains("force"), "{text}");
    }
    let (_, text) = precondition(world.ask(delete_tenant("acme", false)));
    assert!(text.contains("1 DAGs, 1 bitstreams and 1 NT types"), "{text}");
    assert_eq!(absent(world.ask(delete_tenant("nobody", true))), "tenants/nobody");
}

#[test]
fn force_takes_all_that_it_owns_and_nothing_else() {
    let mut world = World::new();
    world.deploy("beta/web", "lb", 1);
    let fresh = (world.reserved(), world.card().dag_rows());
    world.ask(Command::CreateNtType(nt("acme.filter", 40))).expect("valid");
    world.ask(Command::CreateBitstream(bitstream("acme.filter", &["acme.filter"]))).expect("valid");
    world.deploy("acme/web", "acme.filter", 5);
    let pending = operation_id(world.ask(create("acme/late", spec("nat firewall", 5))));
    assert_eq!(world.ask(delete_tenant("acme", true)), Ok(Reply::Done));
    assert_eq!(world.dropped, [digest("acme.filter")]);
    assert!(world.controller.dag_view(&dag("acme/web")).is_none());
    let superseded = ControlError::Superseded { resource: "tenants/acme".into() };
    assert_eq!(world.ended(&pending), Some(Err(superseded)));
    world.settle();
    assert_eq!((world.reserved(), world.card().dag_rows()), fresh);
    // What is remembered is only that they are gone, and the bitstream that was stored, for which it pays.
    let remembered = ["deleted/", "usage-open/accounts/-/"];
    let mentions = |(key, _): &(&String, &Vec<u8>)| {
        key.contains("acme") && !remembered.iter().any(|of| key.starts_with(of))
    };
    let left: Vec<_> = world.durable.iter().filter(mentions).map(|(key, _)| key).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn force_is_refused_while_others_use_what_it_shares() {
    let mut world = World::new();
    world.ask(Command::CreateNtType(nt("acme.filter", 40))).expect("valid");
    world.ask(Command::CreateBitstream(bitstream("acme.filter", &["acme.filter"]))).expect("valid");
    world.deploy("acme/web", "acme.filter", 5);
    let trusted_tenants = [tenant_id("acme")].into();
    let trusting = snic_domain::DagSpec { trusted_tenants, ..spec("acme.filter", 5) };
    world.ask(create("beta/web", trusting)).expect("beta trusts acme");
    world.settle();
    let (resource, text) = precondition(world.ask(delete_tenant("acme", true)));
    assert_eq!(resource, "tenants/acme");
    assert!(!text.contains("beta"), "{text}");
    world.deploy("beta/other", "lb", 1);
    world.ask(delete("beta/web")).expect("it exists");
    assert_eq!(world.ask(delete_tenant("acme", true)), Ok(Reply::Done));
}

#[test]
fn force_is_refused_while_anothers_bitstream_holds_its_nt() {
    let mut world = World::new();
    world.ask(Command::CreateNtType(nt("acme.filter", 40))).expect("valid");
    let foreign = bitstream("beta.mix", &["nat", "acme.filter"]);
    world.ask(Command::CreateBitstream(foreign)).expect("the NT is shareable");
    let (resource, _) = precondition(world.ask(delete_tenant("acme", true)));
    assert_eq!(resource, "tenants/acme");
    assert!(world.controller.tenant_view(&tenant_id("acme")).is_some());
}

#[test]
fn usage_counts_what_is_asked_for() {
    let mut world = World::new();
    world.ask(Command::CreateBitstream(bitstream("acme.mine", &["nat"]))).expect("valid");
    world.deploy("acme/web", "nat firewall", 5);
    world.deploy("acme/api", "nat", 3);
    let usage = world.tenant("acme").usage;
    assert_eq!((usage.dags, usage.bitstreams), (2, 1));
    assert_eq!(usage.bandwidth, Bandwidth::from_gbps(8));
    assert_eq!(usage.bitstream_bytes, ByteSize::from_bytes(8_192));
    assert_eq!(usage.memory, ByteSize::from_mib(4), "`nat` once for both");
    assert_eq!(world.tenant("beta").usage, Default::default());
    assert!(bitstream_id("acme.mine").is_owned_by(&tenant_id("acme")));
}

#[test]
fn tenants_get_numbers_of_their_own_on_the_card() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    world.deploy("beta/web", "nat", 1);
    let row = |world: &mut World, name: &str| {
        let row = world.view(name).uid.row();
        world.card().tables.get::<snic_tables::DagRow>(row).expect("it is served").tenant
    };
    assert_ne!(row(&mut world, "acme/web"), row(&mut world, "beta/web"));
}

fn rule(id: &str, dag_name: &str) -> Rule {
    let matches = snic_domain::Match { vni: Some(7), ..Default::default() };
    let id = RuleId::new(id).expect("a label");
    Rule { id, priority: 1, matches, dag: dag(dag_name), notes: Default::default() }
}

#[test]
fn everything_that_a_tenant_can_make_more_of_has_a_quota() {
    let mut world = World::new();
    let set = |quota: Quota| Command::UpdateTenant {
        id: tenant_id("acme"),
        patch: snic_domain::TenantPatch { quota: Some(quota.into()), ..Default::default() },
        etag: None,
    };
    let tight = Quota { nt_types_max: 1, rules_max: 1, operations_max: 2, ..tenant("acme").quota };
    world.ask(set(tight)).expect("valid");
    let acme = || caller("acme");
    world.ask_as(acme(), Command::CreateNtType(nt("acme.a", 1))).expect("the first");
    let second = world.ask_as(acme(), Command::CreateNtType(nt("acme.b", 1)));
    assert_eq!(over_quota(second), ("nt_types_max".into(), "1".into(), "2".into()));
    world.ask(delete_nt("acme.a")).expect("unused");
    world.ask_as(acme(), Command::CreateNtType(nt("acme.b", 1))).expect("one again");

    world.deploy("acme/web", "nat", 1);
    world.ask(Command::CreateRule(rule("first", "acme/web"))).expect("the first");
    let second = world.ask(Command::CreateRule(rule("second", "acme/web")));
    assert_eq!(over_quota(second), ("rules_max".into(), "1".into(), "2".into()));
    world.deploy("beta/web", "nat", 1);
    world.ask(Command::CreateRule(rule("second", "beta/web"))).expect("that is another's");

    // What a lost card never confirms stays under way, and is bounded.
    world.lose_card();
    for name in ["acme/a", "acme/b"] {
        world.ask_as(acme(), create(name, spec("nat", 1))).expect("two may be under way");
    }
    let third = world.ask_as(acme(), create("acme/c", spec("nat", 1)));
    assert_eq!(over_quota(third), ("operations_max".into(), "2".into(), "3".into()));
    let usage = world.tenant("acme").usage;
    assert_eq!((usage.nt_types, usage.rules, usage.operations), (1, 1, 2));
    world.restart();
    assert_eq!(world.tenant("acme").usage, usage);
}

#[test]
fn memory_is_counted_once_for_all_dags_of_a_tenant() {
    let mut world = World::new();
    for name in ["acme/a", "acme/b"] {
        world.deploy(name, "nat", 1);
    }
    let page = snic_domain::limits::PAGE_SIZE;
    assert_eq!(world.tenant("acme").usage.memory, page);
    let quota = Quota { memory_max: page, ..tenant("acme").quota };
    let set = Command::UpdateTenant {
        id: tenant_id("acme"),
        patch: snic_domain::TenantPatch { quota: Some(quota.into()), ..Default::default() },
        etag: None,
    };
    world.ask(set).expect("valid");
    world.deploy("acme/c", "nat", 1);
    world.ask(delete("acme/a")).expect("it exists");
    world.settle();
    assert_eq!(world.tenant("acme").usage.memory, page, "two DAGs have it");
    let over = over_quota(world.ask(create("acme/d", spec("nat vpn", 1))));
    assert_eq!(over.0, "memory_max_bytes");
}

/// A dry run ends as the run would, and changes nothing.
#[test]
fn a_dry_run_is_refused_as_the_run_is() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let rule = |id: &str, dag_name: &str| {
        Command::CreateRule(Rule {
            id: RuleId::new(id).expect("a label"),
            priority: 1,
            matches: snic_domain::Match { vni: Some(7), ..Default::default() },
            dag: dag(dag_name),
            notes: Default::default(),
        })
    };
    let heavy = Tenant { weight: TENANT_WEIGHT_MAX + 1, ..tenant("c") };
    let wrong = [
        Command::CreateTenant(heavy),
        Command::CreateTenant(tenant("acme")),
        update("acme", Some(0), None),
        update("acme", Some(2), Some("another".into())),
        update("nobody", Some(2), None),
        Command::CreateNtType(nt("nat", 10)),
        Command::CreateBitstream(bitstream("new", &["nothing"])),
        Command::CreateBitstream(bitstream("new", &[])),
        rule("r", "acme/absent"),
        rule("a.r", "acme/web"),
    ];
    let right = [
        Command::CreateTenant(tenant("c")),
        update("acme", Some(2), None),
        Command::CreateNtType(nt("new", 10)),
        Command::CreateBitstream(bitstream("new", &["nat"])),
        rule("r", "acme/web"),
    ];
    let operator = crate::support::operator();
    let stored = world.durable.clone();
    for command in wrong {
        let dry = world.controller.check_command(&operator, command.clone());
        let real = world.ask(command.clone()).map(drop);
        assert!(dry.is_err(), "{command:?}");
        assert_eq!(dry, real, "{command:?}");
    }
    for command in &right {
        let dry = world.controller.check_command(&operator, command.clone());
        assert_eq!(dry, Ok(()), "{command:?}");
    }
    assert_eq!(world.durable, stored, "nothing was made");
    for command in right {
        let real = world.ask(command.clone()).map(drop);
        assert_eq!(real, Ok(()), "{command:?}");
    }
    let own = caller("globex");
    let foreign = rule("globex.r", "acme/web");
    let dry = world.controller.check_command(&own, foreign.clone());
    assert_eq!(dry, world.ask_as(own, foreign).map(drop), "of a tenant");
}
