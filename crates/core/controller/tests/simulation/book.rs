//! A second book of what tenants have, kept from what lists show, against what the controller counts;
//! and what each request must be answered with by it: a quota is never exceeded, and nothing that is
//! within it is refused for it.

use std::collections::{BTreeMap, BTreeSet};

use snic_controller::{CallId, Command, ControlError, Controller, Reply};
use snic_domain::limits::PAGE_SIZE;
use snic_domain::{
    BindingSpec, BindingTarget, Caller, DagName, DagSpec, NtTypeId, Quota, TenantId,
};

use crate::callers::{check_said, may_change, operator, owner_of};
use crate::world::{CATALOGUE, TENANTS, tenant};

/// Amounts by the name of their quota.
type Amounts = BTreeMap<&'static str, u64>;

fn quotas(quota: &Quota) -> Amounts {
    BTreeMap::from([
        ("dags_max", quota.dags_max.into()),
        ("bandwidth_max_bps", quota.bandwidth_max.get()),
        ("memory_max_bytes", quota.memory_max.get()),
        ("rules_max", quota.rules_max.into()),
        ("machines_max", quota.machines_max.into()),
        ("operations_max", quota.operations_max.into()),
    ])
}

/// Sum of some DAGs of one tenant.
fn of_dags<'a>(specs: impl Iterator<Item = &'a DagSpec>) -> Amounts {
    let (mut dags, mut bandwidth, mut nts) = (0, 0, BTreeSet::new());
    for spec in specs {
        dags += 1;
        bandwidth += spec.bandwidth.get();
        nts.extend(spec.nodes.iter().map(|node| node.nt.clone()));
    }
    let pages = |nt: &NtTypeId| CATALOGUE.nt(nt).memory.get().div_ceil(PAGE_SIZE.get());
    let memory = nts.iter().map(pages).sum::<u64>() * PAGE_SIZE.get();
    [("dags_max", dags), ("bandwidth_max_bps", bandwidth), ("memory_max_bytes", memory)].into()
}

/// The specs of a tenant's DAGs.
fn specs(controller: &Controller, own: &TenantId) -> BTreeMap<DagName, DagSpec> {
    let dags = controller.dags(None).into_iter().filter(|dag| dag.name.tenant == *own);
    dags.map(|dag| (dag.name, dag.spec)).collect()
}

/// Usage of each tenant.
fn all_amounts(controller: &Controller) -> BTreeMap<TenantId, Amounts> {
    let mut dags: BTreeMap<TenantId, Vec<DagSpec>> = BTreeMap::new();
    for dag in controller.dags(None) {
        dags.entry(dag.name.tenant).or_default().push(dag.spec);
    }
    let mut all: BTreeMap<TenantId, Amounts> = BTreeMap::new();
    for own in (0..TENANTS).map(tenant) {
        let amounts = of_dags(dags.get(&own).into_iter().flatten());
        let none = ["rules_max", "machines_max", "operations_max"].map(|name| (name, 0));
        all.insert(own, amounts.into_iter().chain(none).collect());
    }
    let mut count = |own: &TenantId, name| {
        let amounts = all.get_mut(own).expect("there is no other tenant");
        *amounts.get_mut(name).expect("all have it") += 1;
    };
    controller.rules().for_each(|view| count(&view.rule.dag.tenant, "rules_max"));
    let machines = controller.bindings_after(None, None);
    machines
        .filter(|view| !view.record.state.has_ended())
        .for_each(|view| count(&view.record.spec.tenant, "machines_max"));
    for view in controller.operations(&operator()).filter(|view| !view.is_done()) {
        if let Some(own) = owner_of(&view.record) {
            count(own, "operations_max");
        }
    }
    all
}

/// Usage of one tenant.
fn amounts(controller: &Controller, own: &TenantId) -> Amounts {
    all_amounts(controller).remove(own).expect("it is never deleted")
}

fn quota(controller: &Controller, own: &TenantId) -> Amounts {
    quotas(&controller.tenant_view(own).expect("it is never deleted").tenant.quota)
}

/// The quotas that a tenant with a new or changed DAG would exceed. What takes no more memory than before is
/// within that one.
fn over_with(controller: &Controller, name: &DagName, spec: &DagSpec) -> BTreeSet<&'static str> {
    let own = &name.tenant;
    let after = after_dag(controller, name, spec);
    let mut over = over(&quota(controller, own), &after);
    if after["memory_max_bytes"] <= amounts(controller, own)["memory_max_bytes"] {
        over.remove("memory_max_bytes");
    }
    over
}

/// The quotas that these amounts would exceed.
fn over(quota: &Amounts, after: &Amounts) -> BTreeSet<&'static str> {
    after.iter().filter(|(name, amount)| **amount > quota[*name]).map(|(name, _)| *name).collect()
}

#[derive(Debug)]
enum Verdict {
    /// As of something that does not exist.
    Absent,
    /// A field is wrong: it names another tenant's NT type.
    Invalid,
    /// Nothing new is taken in.
    Maintained,
    /// One of these quotas does not allow it.
    Over(BTreeSet<&'static str>),
    /// An error; if it is of a quota, of one of these.
    Refused(BTreeSet<&'static str>),
    /// Whatever it is, it is not of a quota.
    Within,
    /// Nothing is known of it.
    Any,
}

/// A request that has no answer yet.
#[derive(Debug)]
struct Open {
    caller: Caller,
    command: Command,
    verdict: Verdict,
}

/// Number of times that something was seen that a run is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Requests about what is another tenant's, answered as if it did not exist.
    pub absent: u64,
    /// Requests that a quota refused, and those that were within all of theirs.
    pub over: u64,
    pub within: u64,
    /// Requests for something new during maintenance.
    pub maintained: u64,
    /// Shares that were compared, of tenants with different weights.
    pub shares: u64,
    /// Steps in which a region was drained alone and with its card.
    pub twice: u64,
    /// Lost cards that were removed, and those whose place another device took.
    pub removed: u64,
    pub replaced: u64,
    /// Bills without a gap that were compared with the packets.
    pub billed: u64,
    /// Tenants whose stored bytes were compared with what was there.
    pub stored: u64,
    /// DAGs whose meters of time were compared with what they take.
    pub rated: u64,
    /// Configurations that NTs held by their windows when all was quiet.
    pub configured: u64,
    /// Requests that waited for DAGs to move.
    pub waited: u64,
    /// Batches that were planned again, for DAGs had moved.
    pub planned_again: u64,
}

impl Seen {
    pub const fn add(&mut self, other: Self) {
        let Self {
            absent,
            over,
            within,
            maintained,
            shares,
            twice,
            removed,
            replaced,
            billed,
            stored,
            rated,
            configured,
            waited,
            planned_again,
        } = other;
        self.configured += configured;
        self.billed += billed;
        self.stored += stored;
        self.rated += rated;
        self.waited += waited;
        self.planned_again += planned_again;
        self.removed += removed;
        self.replaced += replaced;
        self.maintained += maintained;
        self.twice += twice;
        self.absent += absent;
        self.over += over;
        self.within += within;
        self.shares += shares;
    }
}

#[derive(Debug, Default)]
pub struct Book {
    open: BTreeMap<CallId, Open>,
    /// Bound on each tenant's usage. More than its quota only where it had that before the quota was
    /// lowered, or a crash has brought it back.
    most: BTreeMap<TenantId, Amounts>,
    pub seen: Seen,
}

impl Book {
    /// A request is about to be made: notes what it must be answered with.
    pub fn asks(
        &mut self,
        controller: &Controller,
        call: CallId,
        caller: &Caller,
        asked: &Command,
    ) {
        let verdict = verdict(controller, caller, asked);
        let open = Open { caller: caller.clone(), command: asked.clone(), verdict };
        self.open.insert(call, open);
    }

    /// A request waits for room: by the time it is decided, quotas and rights may be others.
    pub fn waits(&mut self, call: CallId) {
        self.seen.waited += 1;
        if let Some(open) = self.open.get_mut(&call) {
            open.verdict = Verdict::Any;
        }
    }

    /// A request was answered.
    pub fn answered(&mut self, call: CallId, result: &Result<Reply, ControlError>) {
        let Some(Open { caller, command, verdict }) = self.open.remove(&call) else { return };
        check_said(&caller, &command, result);
        let named = match result {
            Err(ControlError::Quota { quota, .. }) => Some(quota.as_str()),
            _ => None,
        };
        let is_right = match &verdict {
            Verdict::Absent => matches!(result, Err(ControlError::NotFound { .. })),
            Verdict::Maintained => matches!(result, Err(ControlError::Maintenance { .. })),
            Verdict::Invalid => matches!(result, Err(ControlError::Invalid(_))),
            Verdict::Over(quotas) => named.is_some_and(|named| quotas.contains(named)),
            Verdict::Refused(quotas) => {
                result.is_err() && named.is_none_or(|named| quotas.contains(named))
            }
            Verdict::Within => named.is_none(),
            Verdict::Any => true,
        };
        assert!(is_right, "{caller:?} asked {command:?}: {verdict:?}, and it was {result:?}");
        match verdict {
            Verdict::Absent => self.seen.absent += 1,
            Verdict::Over(_) => self.seen.over += 1,
            Verdict::Within => self.seen.within += 1,
            Verdict::Maintained => self.seen.maintained += 1,
            Verdict::Invalid | Verdict::Refused(_) | Verdict::Any => {}
        }
    }

    /// The daemon died: what was not answered is not, and what it had decided may be undone.
    pub fn crashed(&mut self) {
        self.open.clear();
        self.most.clear();
    }

    /// Checks that the controller counts what the lists come to, and no more than quotas allow.
    pub fn check(&mut self, controller: &Controller) -> Result<(), String> {
        for (own, has) in all_amounts(controller) {
            let view = controller.tenant_view(&own).expect("it is never deleted");
            let usage = view.usage;
            let counted = Amounts::from([
                ("dags_max", usage.dags.into()),
                ("bandwidth_max_bps", usage.bandwidth.get()),
                ("memory_max_bytes", usage.memory.get()),
                ("rules_max", usage.rules.into()),
                ("machines_max", usage.machines.into()),
                ("operations_max", usage.operations.into()),
            ]);
            if counted != has {
                return Err(format!("{own}: {counted:?} is counted, and there is {has:?}"));
            }
            let most = self.most.entry(own.clone()).or_insert_with(|| has.clone());
            for (name, allowed) in quotas(&view.tenant.quota) {
                let most = most.get_mut(name).expect("all have it");
                *most = allowed.max(has[name].min(*most));
                // A delete always may begin.
                let is_free = name == "operations_max";
                if !is_free && has[name] > *most {
                    return Err(format!("{own} has {has:?}; {name} is {allowed}"));
                }
            }
        }
        Ok(())
    }

    /// A quota is about to be lowered: what a tenant has stays.
    pub fn keeps(&mut self, controller: &Controller, own: &TenantId) {
        self.most.insert(own.clone(), amounts(controller, own));
    }
}

fn verdict(controller: &Controller, caller: &Caller, command: &Command) -> Verdict {
    let is_maintained = controller.maintenance().is_some();
    match command {
        Command::CreateDag { .. } | Command::CreateDags { .. } if is_maintained => {
            Verdict::Maintained
        }
        Command::CreateDags { batch, .. } if !may_change(caller, &batch.tenant) => Verdict::Absent,
        // Each DAG has its own answer; that no quota is exceeded is seen after it.
        Command::CreateDags { .. } => Verdict::Any,
        Command::BindVm(spec) if is_maintained && !is_bound(controller, spec) => {
            Verdict::Maintained
        }
        Command::CreateDag { name, spec, .. } => dag_verdict(controller, caller, name, spec),
        Command::UpdateDag { name, patch, .. } => {
            let spec = controller.dag_view(name).map(|dag| patch.clone().apply(&dag.spec));
            let spec = spec.expect("only what exists is updated");
            dag_verdict(controller, caller, name, &spec)
        }
        Command::DeleteDag { name, .. } if !may_change(caller, &name.tenant) => Verdict::Absent,
        Command::CancelOperation { id } | Command::DeleteOperation { id } => {
            let view = controller.operation(&operator(), id);
            let owner = view.as_ref().and_then(|view| owner_of(&view.record)).cloned();
            let sees = match owner {
                Some(owner) => may_change(caller, &owner),
                None => matches!(caller, Caller::Operator(_)),
            };
            // A cancel may be refused for a quota: what served before the update counts again. By how much
            // is not shown; that no quota is exceeded by it is seen after it.
            if sees { Verdict::Any } else { Verdict::Absent }
        }
        Command::BindVm(spec) => binding_verdict(controller, spec),
        Command::CreateRule(rule) => {
            let own = &rule.dag.tenant;
            let after = amounts(controller, own)["rules_max"] + 1;
            refused(over(&quota(controller, own), &[("rules_max", after)].into()))
        }
        _ => Verdict::Within,
    }
}

/// Refused for one of these, or for something that is looked at before.
fn refused(quotas: BTreeSet<&'static str>) -> Verdict {
    if quotas.is_empty() { Verdict::Within } else { Verdict::Refused(quotas) }
}

fn dag_verdict(
    controller: &Controller,
    caller: &Caller,
    name: &DagName,
    spec: &DagSpec,
) -> Verdict {
    let own = &name.tenant;
    if !may_change(caller, own) {
        return Verdict::Absent;
    }
    let is_others = |nt: &NtTypeId| nt.owner().is_some_and(|owner| owner != *own);
    if spec.nodes.iter().any(|node| is_others(&node.nt)) {
        return Verdict::Invalid;
    }
    let over = over_with(controller, name, spec);
    if over.is_empty() { Verdict::Within } else { Verdict::Over(over) }
}

/// Usage of a tenant with a DAG, new or changed.
fn after_dag(controller: &Controller, name: &DagName, spec: &DagSpec) -> Amounts {
    let mut specs = specs(controller, &name.tenant);
    let before = specs.insert(name.clone(), spec.clone());
    let mut after = of_dags(specs.values());
    let staff = operator();
    let mut open = controller.operations(&staff).filter(|view| !view.is_done());
    // An update takes the place of what is under way for its DAG, and nothing is to be done where
    // it changes nothing.
    let is_instead = open.any(|view| {
        use snic_controller::OperationWork::{CreateDag, UpdateDag};
        matches!(&view.record.work, CreateDag(dag) | UpdateDag(dag) if dag == name)
    });
    if before.as_ref() != Some(spec) && !is_instead {
        let open = amounts(controller, &name.tenant)["operations_max"];
        after.insert("operations_max", open + 1);
    }
    after
}

fn is_bound(controller: &Controller, spec: &BindingSpec) -> bool {
    let before = controller.binding_view(&spec.vm);
    before.is_some_and(|before| !before.record.state.has_ended())
}

fn binding_verdict(controller: &Controller, spec: &BindingSpec) -> Verdict {
    let own = &spec.tenant;
    if is_bound(controller, spec) {
        return Verdict::Within;
    }
    let (quota, has) = (quota(controller, own), amounts(controller, own));
    let machine = Amounts::from([
        ("machines_max", has["machines_max"] + 1),
        ("rules_max", has["rules_max"] + u64::from(spec.functions)),
    ]);
    let first = over(&quota, &machine);
    if !first.is_empty() {
        return Verdict::Over(first);
    }
    let BindingTarget::Template(like) = &spec.chains else { return Verdict::Within };
    let like = controller.dag_view(like).expect("only what exists is a template");
    let mut name = like.name;
    // The machine's own DAG has another name than any other.
    name.dag = snic_domain::DagId::new("vm-of-nobody").expect("a label");
    refused(over_with(controller, &name, &like.spec))
}
