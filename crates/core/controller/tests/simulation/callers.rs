//! Callers of the simulation, and what none of them may see: an owner is read from a resource's name and
//! not from what the controller says of it.

use std::collections::BTreeSet;
use std::fmt::Debug;

use rand::Rng;
use snic_controller::{
    Command, ControlError, Controller, LogEntry, OperationRecord, OperationWork, Reply,
};
use snic_domain::{Caller, DagName, OperationId, TenantId};

use crate::world::{TENANTS, World, tenant};

pub fn operator() -> Caller {
    Caller::Operator("simulation".into())
}

fn owner(number: u32) -> Caller {
    Caller::Tenant(tenant(number))
}

/// Mostly whose the DAG is, or an operator; now and then somebody who may not know of it.
pub fn random_caller(world: &mut World, dag: &DagName) -> Caller {
    match world.rng.random_range(0..100) {
        0..70 => Caller::Tenant(dag.tenant.clone()),
        70..85 => operator(),
        85..95 => owner(world.rng.random_range(0..TENANTS)),
        _ => Caller::Orchestrator("simulation".into()),
    }
}

pub fn may_change(caller: &Caller, tenant: &TenantId) -> bool {
    match caller {
        Caller::Operator(_) => true,
        Caller::Tenant(own) => own == tenant,
        Caller::Orchestrator(_) => false,
    }
}

/// Owner of an operation; without a tenant it is of operators.
pub fn owner_of(record: &OperationRecord) -> Option<&TenantId> {
    match &record.work {
        OperationWork::CreateDag(dag)
        | OperationWork::UpdateDag(dag)
        | OperationWork::DeleteDag(dag, _) => Some(&dag.tenant),
        _ => None,
    }
}

/// The names of tenants in a text.
fn tenants_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let names = (0..TENANTS).map(|number| tenant(number).to_string()).collect::<BTreeSet<_>>();
    words.filter(|word| names.contains(*word)).map(str::to_owned).collect()
}

/// Nothing that is said to a tenant names another one, unless the tenant did so itself.
pub fn check_said(caller: &Caller, asked: &Command, result: &Result<Reply, ControlError>) {
    let Caller::Tenant(own) = caller else { return };
    let mut known = match asked {
        // Its plan names whoever gives burst capacity back, and nobody is told of it.
        Command::CreateDags { batch, .. } => tenants_in(&format!("{batch:?}")),
        _ => tenants_in(&format!("{asked:?}")),
    };
    known.insert(own.to_string());
    check_names(own, &known, result);
}

fn check_names(own: &TenantId, known: &BTreeSet<String>, said: &impl Debug) {
    let said = format!("{said:?}");
    let named = tenants_in(&said);
    assert!(named.is_subset(known), "{own} is told of {named:?}: {said}");
}

/// An event is visible to the tenant that it concerns and to operators, and names no other tenant.
pub fn check_entry(entry: &LogEntry) {
    assert_eq!(entry.is_visible_to(&operator()), !entry.is_detail);
    let of = entry.dag.as_ref().map(|dag| &dag.tenant).or(entry.account.as_ref());
    for own in (0..TENANTS).map(tenant) {
        let about = of == Some(&own);
        assert_eq!(entry.is_visible_to(&Caller::Tenant(own.clone())), about, "{own}: {entry:?}");
        if about {
            check_names(&own, &BTreeSet::from([own.to_string()]), entry);
        }
    }
}

/// Each list of a tenant is that part of the operators' list that is its own, and names nobody else.
pub fn check_lists(controller: &Controller) {
    let staff = operator();
    for own in (0..TENANTS).map(tenant) {
        let caller = Caller::Tenant(own.clone());
        let known = BTreeSet::from([own.to_string()]);
        let is_own = |owner: Option<TenantId>| owner.is_none_or(|owner| owner == own);

        let mut all = controller.dags(None);
        all.retain(|dag| dag.name.tenant == own);
        assert_eq!(controller.dags(Some(&own)), all);
        assert_eq!(controller.dags_after(Some(&own), None).collect::<Vec<_>>(), all);
        check_names(&own, &known, &all);

        let all = controller.operations(&staff);
        let ids: Vec<OperationId> = all
            .filter(|view| owner_of(&view.record) == Some(&own))
            .map(|view| view.record.id)
            .collect();
        let seen: Vec<_> = controller.operations(&caller).collect();
        assert_eq!(
            seen.iter().map(|view| &view.record.id).collect::<Vec<_>>(),
            Vec::from_iter(&ids)
        );
        check_names(&own, &known, &seen);
        let paged = controller.operations_after(&caller, |_| true, None);
        let paged: BTreeSet<OperationId> = paged.map(|view| view.record.id).collect();
        assert_eq!(paged, ids.into_iter().collect());

        let all = controller.log_before(&staff, None);
        let all = all.filter(|entry| entry.tenant() == Some(&own));
        // What one cause did to several DAGs is one entry for operators, and one for each DAG for its tenant.
        let seen = controller.log_before(&caller, None);
        assert!(
            seen.filter(|entry| !entry.is_detail).eq(all),
            "{own}: the decisions about it and its DAGs"
        );
        let mut details = controller.log_before(&caller, None).filter(|entry| entry.is_detail);
        let is_about_own =
            |entry: &LogEntry| entry.dag.as_ref().is_some_and(|dag| dag.tenant == own);
        assert!(details.all(is_about_own), "{own}: and no others");

        let nts: Vec<_> = controller.nt_types(&caller).collect();
        let all = controller.nt_types(&staff).filter(|view| is_own(view.nt.id.owner()));
        assert!(all.eq(nts.iter().cloned()), "{own}: {nts:?}");
        let bitstreams: Vec<_> = controller.bitstreams(&caller).collect();
        let ids = bitstreams.iter().map(|view| view.bitstream.id.clone());
        let all = controller.bitstreams(&staff).map(|view| view.bitstream.id);
        assert!(ids.eq(all.filter(|id| is_own(id.owner()))), "{own}: {bitstreams:?}");
        let told = bitstreams.iter().any(|view| !view.regions.is_empty());
        assert!(!told, "{own} is told what regions hold: {bitstreams:?}");
        check_names(&own, &known, &(nts, bitstreams));
    }
    let nobody = Caller::Orchestrator("simulation".into());
    assert_eq!(controller.operations(&nobody).count(), 0);
    assert_eq!(controller.log_before(&nobody, None).count(), 0);
}
