//! Revisions: what a watch that resumes over a restart is told.

use std::time::Duration;

use snic_controller::{Change, Command, ResourceKey, ResourceKind, RevisionTooOld, Stamp};
use snic_domain::limits::TENANT_HISTORY_MAX;

use crate::support::World;
use crate::support::things::{dag, delete_tenant, nt, tenant, tenant_id};

fn name_of(id: &str) -> ResourceKey {
    ResourceKey::Tenant(tenant_id(id))
}

fn stamp(world: &World, id: &str) -> Stamp {
    world.controller.stamp(&name_of(id))
}

fn revision(world: &World) -> u64 {
    world.controller.revision(world.now)
}

fn deleted(world: &World, since: u64) -> Result<Vec<String>, RevisionTooOld> {
    let found = world.controller.deleted_since(ResourceKind::Tenant, None, since)?;
    Ok(found.iter().map(ToString::to_string).collect())
}

#[test]
fn what_was_changed_and_deleted_is_known_after_a_restart() {
    let mut world = World::new();
    let begin = revision(&world);
    for id in ["x", "y", "z"] {
        world.ask(Command::CreateTenant(tenant(id))).expect("valid");
    }
    let made = revision(&world);
    world.ask(delete_tenant("y", false)).expect("it owns nothing");
    let (x, last) = (stamp(&world, "x"), revision(&world));
    assert!(begin < x.created && x.created == x.changed && x.changed <= made && made < last);
    world.restart();
    assert_eq!(stamp(&world, "x"), x, "nothing has changed it");
    assert_eq!(deleted(&world, made), Ok(vec!["tenants/y".to_owned()]));
    assert_eq!(deleted(&world, last), Ok(vec![]), "it was told");
    assert!(revision(&world) > last, "revisions go on");
    // A later one of the same name is new, and the first was deleted.
    world.ask(Command::CreateTenant(tenant("y"))).expect("valid");
    assert!(stamp(&world, "y").created > last);
    assert_eq!(deleted(&world, made), Ok(vec!["tenants/y".to_owned()]));
}

/// Each change that is told has a revision of its own, and its record is stored with it.
#[test]
fn a_record_has_the_revision_that_was_told() {
    let mut world = World::new();
    let before = revision(&world);
    world.deploy("acme/web", "nat", 5);
    let dag = ResourceKey::Dag(dag("acme/web"));
    let after = revision(&world);
    world.restart();
    let found = world.controller.stamp(&dag);
    assert!(before < found.created && found.created <= after, "{found:?}");
    assert!(found.changed > after, "the card was read again");
}

#[test]
fn a_tenants_deletions_are_bounded_and_expire_only_its_own_revisions() {
    let mut world = World::new();
    let begin = revision(&world);
    world.ask(Command::CreateNtType(nt("beta.one", 40))).expect("valid");
    world
        .ask(Command::DeleteNtType { id: "beta.one".parse().expect("an id"), etag: None })
        .expect("unused");
    for number in 0..=TENANT_HISTORY_MAX {
        let id = format!("acme.n{number}");
        world.ask(Command::CreateNtType(nt(&id, 40))).expect("valid");
        let id = id.parse().expect("an id");
        world.ask(Command::DeleteNtType { id, etag: None }).expect("unused");
    }
    for is_restarted in [false, true] {
        let since = |tenant: &str, revision| {
            let of = tenant_id(tenant);
            let found = world.controller.deleted_since(ResourceKind::NtType, Some(&of), revision);
            found.map(|names| names.len())
        };
        assert_eq!(since("acme", begin), Err(RevisionTooOld), "{is_restarted}");
        assert_eq!(since("beta", begin), Ok(1), "{is_restarted}");
        world.restart();
    }
    let kept = world.durable.keys().filter(|key| key.starts_with("deleted/nt-types/acme.")).count();
    assert_eq!(kept, TENANT_HISTORY_MAX);
}

/// A tenant's deletions are shown to no other tenant, and those that all see are shown to all.
#[test]
fn deletions_are_told_to_those_who_saw_the_resource() {
    let mut world = World::new();
    for id in ["gre", "acme.gre", "beta.gre"] {
        world.ask(Command::CreateNtType(nt(id, 40))).expect("valid");
    }
    let begin = revision(&world);
    for id in ["gre", "acme.gre", "beta.gre"] {
        let id = id.parse().expect("an id");
        world.ask(Command::DeleteNtType { id, etag: None }).expect("unused");
    }
    let told = |world: &World, tenant: Option<&str>| {
        let of = tenant.map(tenant_id);
        let found = world.controller.deleted_since(ResourceKind::NtType, of.as_ref(), begin);
        found.map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let both = |own: &str| Ok(vec!["nt-types/gre".to_owned(), format!("nt-types/{own}.gre")]);
    assert_eq!(told(&world, Some("acme")), both("acme"));
    assert_eq!(told(&world, Some("beta")), both("beta"));
    assert_eq!(told(&world, None).map(|all| all.len()), Ok(3));
    // The tenant is deleted, and another one gets its name.
    world.ask(delete_tenant("acme", true)).expect("it can go");
    world.ask(Command::CreateTenant(tenant("acme"))).expect("valid");
    world.restart();
    assert_eq!(told(&world, Some("acme")), Err(RevisionTooOld), "it began later");
    assert_eq!(told(&world, Some("beta")), both("beta"));
    assert_eq!(told(&world, None).map(|all| all.len()), Ok(3), "operators are told all");
}

#[test]
fn a_store_without_revisions_begins_with_the_present() {
    let mut world = World::new();
    let before = revision(&world);
    world.durable.remove("revisions").expect("it is stored");
    world.now = world.now + Duration::from_millis(1);
    world.restart();
    assert_eq!(deleted(&world, before), Err(RevisionTooOld));
    let begin = revision(&world);
    world.ask(Command::CreateTenant(tenant("x"))).expect("valid");
    assert_eq!(deleted(&world, begin), Ok(vec![]));
    world.restart();
    assert_eq!(deleted(&world, begin), Ok(vec![]), "its beginning is stored");
    assert_eq!(deleted(&world, before), Err(RevisionTooOld));
}

#[test]
fn changes_of_all_kinds_are_told() {
    let mut world = World::new();
    world.changes.clear();
    world.ask(Command::CreateNtType(nt("acme.gre", 40))).expect("valid");
    world
        .ask(Command::DeleteNtType { id: "acme.gre".parse().expect("an id"), etag: None })
        .expect("unused");
    let told: Vec<String> = world
        .changes
        .iter()
        .filter_map(|(change, _)| match change {
            Change::Resource { name, tenant, is_new } => {
                Some(format!("{name} of {tenant:?}, new {is_new}"))
            }
            Change::ResourceDeleted { name, tenant } => Some(format!("{name} of {tenant:?}, gone")),
            _ => None,
        })
        .collect();
    let acme = Some(tenant_id("acme"));
    assert_eq!(
        told,
        [
            format!("nt-types/acme.gre of {acme:?}, new true"),
            format!("nt-types/acme.gre of {acme:?}, gone"),
        ]
    );
}
