//! Budgets of tenants and projects: notes of spending, refusals, and the orders that hosts get.

use std::time::Duration;

use snic_domain::{
    Bandwidth, BudgetAction, BudgetLevel, BudgetPolicy, DagPatch, MonthBudget, Quota, QuotaPatch,
    TenantPatch,
};
use snic_fleet::protocol::{
    Budgeted, Denied, FleetCommand, FleetItem, FleetName, FleetProject, FleetReply, FleetSpending,
    FleetTenant, SPENDING_NOTES_MAX, SpendingNote,
};
use snic_fleet::{ProjectChange, ProjectId};

use crate::support::leading::{Fleet, new};
use crate::support::{name, tenant};

/// A month that ends 1,000 s after the fleet began.
const MONTH: (u64, u64) = (0, 1_000);

fn project() -> ProjectId {
    ProjectId::new("red").expect("a name of the test")
}

fn policy(at_limit: BudgetAction) -> FleetCommand {
    let files = [("admission.toml".to_owned(), format!("# {}\n", at_limit.word()))].into();
    let budgets = BudgetPolicy { at_limit, ..BudgetPolicy::default() };
    FleetCommand::SetPolicies {
        files,
        promises: Default::default(),
        budgets,
        defaults: Default::default(),
        etag: None,
    }
}

fn quota(budget: MonthBudget) -> QuotaPatch {
    QuotaPatch { month_budget: Some(budget), ..QuotaPatch::default() }
}

fn update(id: &str, budget: Option<MonthBudget>, project: ProjectChange) -> FleetCommand {
    let patch = TenantPatch { quota: budget.map(quota), ..TenantPatch::default() };
    FleetCommand::UpdateTenant { tenant: tenant(id), patch, project, etag: None }
}

fn set(fleet: &mut Fleet, id: &str, micros: u64) {
    let budget = Some(MonthBudget::from_micros(micros));
    fleet.operator(update(id, budget, ProjectChange::Keep));
}

fn item(fleet: &mut Fleet, of: FleetName) -> FleetItem {
    match fleet.ask(None, FleetCommand::Get(of)) {
        Ok(FleetReply::Item(item)) => *item,
        other => panic!("{other:?}"),
    }
}

fn tenant_of(fleet: &mut Fleet, id: &str) -> FleetTenant {
    match item(fleet, FleetName::Tenant(tenant(id))) {
        FleetItem::Tenant(of) => of,
        other => panic!("{other:?}"),
    }
}

fn project_of(fleet: &mut Fleet) -> FleetProject {
    match item(fleet, FleetName::Project(project())) {
        FleetItem::Project(of) => of,
        other => panic!("{other:?}"),
    }
}

fn spending(spent: Option<u64>) -> FleetSpending {
    FleetSpending { month: MONTH, spent, currency: "EUR".into() }
}

fn note_of(fleet: &mut Fleet, id: &str, spent: Option<u64>, is_partial: bool) -> SpendingNote {
    let serial = tenant_of(fleet, id).meta.serial;
    let (of, spending) = (Budgeted::Tenant(tenant(id)), spending(spent));
    SpendingNote { of, serial, spending, is_partial }
}

fn spend(fleet: &mut Fleet, id: &str, spent: Option<u64>) {
    let note = note_of(fleet, id, spent, false);
    fleet.operator(FleetCommand::NoteSpending(vec![note]));
}

fn spend_of_project(fleet: &mut Fleet, spent: u64) {
    let serial = project_of(fleet).meta.serial;
    let (of, spending) = (Budgeted::Project(project()), spending(Some(spent)));
    let note = SpendingNote { of, serial, spending, is_partial: false };
    fleet.operator(FleetCommand::NoteSpending(vec![note]));
}

/// Level and millionths, as everybody sees them.
fn level(fleet: &mut Fleet, id: &str) -> Option<(BudgetLevel, Option<u64>)> {
    let view = tenant_of(fleet, id).spending?;
    Some((view.level, view.spending.spent))
}

fn create(fleet: &mut Fleet, dag: &str) -> Result<(), Denied> {
    fleet.acme(FleetCommand::CreateDag(new("acme", dag, 100))).map(drop)
}

#[test]
fn levels_follow_what_is_noted() {
    let mut fleet = Fleet::new(1);
    spend(&mut fleet, "acme", Some(5));
    assert_eq!(level(&mut fleet, "acme"), None, "it has no budget");
    set(&mut fleet, "acme", 1_000_000);
    assert_eq!(level(&mut fleet, "acme"), None, "nobody has looked");
    for (spent, expected) in [
        (799_999, BudgetLevel::Within),
        (800_000, BudgetLevel::Warned),
        (999_999, BudgetLevel::Warned),
        (1_000_000, BudgetLevel::Reached),
    ] {
        spend(&mut fleet, "acme", Some(spent));
        assert_eq!(level(&mut fleet, "acme"), Some((expected, Some(spent))));
        let counted = [expected == BudgetLevel::Warned, expected == BudgetLevel::Reached, false];
        assert_eq!(fleet.budget_gauges(), counted.map(usize::from));
    }
    assert_eq!(level(&mut fleet, "beta"), None);
    // What hosts say again may be less: prices were corrected.
    spend(&mut fleet, "acme", Some(1_000));
    assert_eq!(level(&mut fleet, "acme"), Some((BudgetLevel::Within, Some(1_000))));
    fleet.operator(update("acme", Some(MonthBudget::UNLIMITED), ProjectChange::Keep));
    assert_eq!(level(&mut fleet, "acme"), None);
}

#[test]
fn a_spent_budget_refuses_what_is_new_and_takes_nothing_away() {
    let mut fleet = Fleet::new(1);
    set(&mut fleet, "acme", 1_000_000);
    create(&mut fleet, "a").expect("nothing is spent");
    spend(&mut fleet, "acme", Some(1_500_000));
    let denied = create(&mut fleet, "b");
    let Err(Denied::TenantBudget { budget, spent, until, .. }) = &denied else {
        panic!("{denied:?}")
    };
    assert_eq!((budget.as_str(), spent.as_str(), *until), ("1 EUR", "1.5 EUR", MONTH.1));
    let both = vec![new("acme", "b", 100), new("acme", "c", 100)];
    let denied = fleet.acme(FleetCommand::CreateDags(both));
    assert!(denied.is_err(), "{denied:?}");
    let mut wider = |mbit| {
        let bandwidth = Some(Bandwidth::from_mbps(mbit));
        let patch = Box::new(DagPatch { bandwidth, ..DagPatch::default() });
        fleet.acme(FleetCommand::UpdateDag { name: name("acme", "a"), patch, etag: None })
    };
    assert!(matches!(wider(101), Err(Denied::TenantBudget { .. })));
    wider(99).expect("less is no more");
    assert!(fleet.dag("a").card.is_some());
    // It is acme's alone.
    let beta = fleet.ask(Some(&tenant("beta")), FleetCommand::CreateDag(new("beta", "a", 100)));
    beta.expect("it has no budget");
    set(&mut fleet, "acme", 2_000_000);
    create(&mut fleet, "b").expect("the budget is larger");
}

#[test]
fn a_new_month_begins_with_nothing() {
    let mut fleet = Fleet::new(1);
    set(&mut fleet, "acme", 1_000_000);
    spend(&mut fleet, "acme", Some(1_000_000));
    fleet.now = Duration::from_secs(MONTH.1 - 1);
    assert!(matches!(create(&mut fleet, "a"), Err(Denied::TenantBudget { .. })));
    fleet.now = Duration::from_secs(MONTH.1);
    fleet.beat();
    assert_eq!(level(&mut fleet, "acme"), None);
    create(&mut fleet, "a").expect("nothing is spent of this month");
}

#[test]
fn prices_that_are_gone_count_as_spent() {
    let mut fleet = Fleet::new(1);
    set(&mut fleet, "acme", 1_000_000);
    spend(&mut fleet, "acme", None);
    assert_eq!(level(&mut fleet, "acme"), Some((BudgetLevel::Unknown, None)));
    assert_eq!(fleet.budget_gauges(), [0, 0, 1]);
    assert!(matches!(create(&mut fleet, "a"), Err(Denied::BudgetUnknown(_))));
    spend(&mut fleet, "acme", Some(1));
    create(&mut fleet, "a").expect("they are back");
}

/// A host that does not answer takes nothing back, and neither does a new leader.
#[test]
fn what_is_known_of_a_month_stays() {
    let mut fleet = Fleet::new(1);
    set(&mut fleet, "acme", 1_000_000);
    spend(&mut fleet, "acme", Some(1_000_000));
    let less = note_of(&mut fleet, "acme", Some(10), true);
    fleet.operator(FleetCommand::NoteSpending(vec![less]));
    let spent = Some((BudgetLevel::Reached, Some(1_000_000)));
    assert_eq!(level(&mut fleet, "acme"), spent);
    fleet.elect_again();
    assert_eq!(level(&mut fleet, "acme"), spent);
    let more = note_of(&mut fleet, "acme", Some(3_000_000), true);
    fleet.operator(FleetCommand::NoteSpending(vec![more]));
    assert_eq!(level(&mut fleet, "acme"), Some((BudgetLevel::Reached, Some(3_000_000))));
    // Another month has nothing of it.
    let next = SpendingNote {
        spending: FleetSpending { month: (1_000, 2_000), ..spending(Some(10)) },
        ..note_of(&mut fleet, "acme", None, true)
    };
    fleet.operator(FleetCommand::NoteSpending(vec![next]));
    assert_eq!(level(&mut fleet, "acme"), Some((BudgetLevel::Within, Some(10))));
}

/// Each look at each budget would be a write, of which etcd keeps the history.
#[test]
fn what_changes_by_little_is_not_stored() {
    let mut fleet = Fleet::new(1);
    set(&mut fleet, "acme", 1_000_000);
    spend(&mut fleet, "acme", Some(500_000));
    let before = fleet.revision();
    for spent in [500_000, 500_001, 501_000, 499_000] {
        spend(&mut fleet, "acme", Some(spent));
    }
    assert_eq!(fleet.revision(), before, "a thousandth of the budget");
    spend(&mut fleet, "acme", Some(501_001));
    assert!(fleet.revision() > before);
    spend(&mut fleet, "acme", Some(799_900));
    let before = fleet.revision();
    spend(&mut fleet, "acme", Some(800_000));
    assert!(fleet.revision() > before, "the level is another one");
    let etag = tenant_of(&mut fleet, "acme").meta.etag();
    spend(&mut fleet, "acme", Some(900_000));
    assert_eq!(tenant_of(&mut fleet, "acme").meta.etag(), etag, "nobody changed the tenant");
}

#[test]
fn notes_are_of_the_record_that_they_were_made_for() {
    let mut fleet = Fleet::new(1);
    let old = note_of(&mut fleet, "beta", Some(9_000_000), false);
    let name = FleetName::Tenant(tenant("beta"));
    fleet.operator(FleetCommand::Delete { name, etag: None, force: true });
    fleet.pass(Duration::from_secs(1));
    let again = snic_domain::Tenant {
        id: tenant("beta"),
        weight: 1,
        quota: Quota { month_budget: MonthBudget::from_micros(5), ..Quota::default() },
        notes: Default::default(),
        project: None,
    };
    fleet.operator(FleetCommand::CreateTenant { tenant: again, project: None });
    fleet.operator(FleetCommand::NoteSpending(vec![old.clone()]));
    assert_eq!(level(&mut fleet, "beta"), None, "an earlier tenant had spent it");
    let many = vec![old; SPENDING_NOTES_MAX + 1];
    let denied = fleet.ask(None, FleetCommand::NoteSpending(many));
    assert!(matches!(denied, Err(Denied::Invalid(_))), "{denied:?}");
    let denied = fleet.acme(FleetCommand::NoteSpending(vec![]));
    assert!(matches!(denied, Err(Denied::Invalid(_))), "tenants do not say it: {denied:?}");
}

#[test]
fn a_project_has_a_budget_that_its_tenants_spend_together() {
    let mut fleet = Fleet::new(1);
    let quota = Quota { month_budget: MonthBudget::from_micros(1_000_000), ..Quota::UNLIMITED };
    fleet.operator(FleetCommand::CreateProject { project: project(), quota });
    fleet.operator(update("acme", None, ProjectChange::Join(project())));
    create(&mut fleet, "a").expect("nothing is spent");
    spend_of_project(&mut fleet, 1_000_000);
    let shown = project_of(&mut fleet).spending.expect("it has a budget");
    assert_eq!((shown.level, shown.spending.spent), (BudgetLevel::Reached, Some(1_000_000)));
    assert_eq!(fleet.budget_gauges(), [0, 1, 0]);
    let denied = create(&mut fleet, "b").expect_err("it is spent");
    assert!(matches!(&denied, Denied::ProjectBudget { .. }), "{denied:?}");
    let text = denied.to_string();
    assert!(!text.contains('1') && text.contains("projects/red"), "no amounts of others: {text}");
    assert_eq!(level(&mut fleet, "acme"), None, "it has no budget of its own");
    fleet.operator(update("acme", None, ProjectChange::Leave));
    create(&mut fleet, "b").expect("it is in none");
    fleet.operator(update("acme", None, ProjectChange::Join(project())));
    let none = QuotaPatch { month_budget: Some(MonthBudget::UNLIMITED), ..QuotaPatch::default() };
    fleet.operator(FleetCommand::UpdateProject { project: project(), quota: none, etag: None });
    create(&mut fleet, "c").expect("the project has none");
    assert_eq!(project_of(&mut fleet).spending, None);
}

/// Hosts that serve the tenant hear a budget of nothing, and nothing is refused.
#[test]
fn burst_off_reaches_the_hosts_that_serve_the_tenant() {
    let mut fleet = Fleet::new(2);
    fleet.operator(policy(BudgetAction::BurstOff));
    set(&mut fleet, "acme", 1_000_000);
    create(&mut fleet, "a").expect("there is room");
    fleet.beat();
    let none = MonthBudget::UNLIMITED;
    let told = |fleet: &Fleet| fleet.budgets.get(&tenant("acme")).copied();
    assert_eq!(told(&fleet), Some(none), "the budget is the fleet's business");
    let orders = fleet.orders;
    spend(&mut fleet, "acme", Some(900_000));
    assert_eq!(fleet.orders, orders, "it is warned, and no more");
    spend(&mut fleet, "acme", Some(1_000_000));
    assert_eq!(told(&fleet), Some(MonthBudget::from_micros(0)));
    assert_eq!(fleet.orders, orders + 1, "one host serves it");
    create(&mut fleet, "b").expect("only bursts are off");
    fleet.elect_again();
    fleet.beat();
    spend(&mut fleet, "acme", Some(1_000_000));
    assert!(tenant_of(&mut fleet, "acme").is_burst_off);
    // A larger budget counts at once, and so does another policy with the next look.
    set(&mut fleet, "acme", 2_000_000);
    assert_eq!(told(&fleet), Some(none));
    spend(&mut fleet, "acme", Some(2_000_000));
    assert_eq!(told(&fleet), Some(MonthBudget::from_micros(0)));
    fleet.operator(policy(BudgetAction::Nothing));
    spend(&mut fleet, "acme", Some(2_000_000));
    assert_eq!(told(&fleet), Some(none));
    create(&mut fleet, "c").expect("it is only told");
}

#[test]
fn a_project_without_money_takes_bursts_from_whoever_joins() {
    let mut fleet = Fleet::new(1);
    fleet.operator(policy(BudgetAction::BurstOff));
    let quota = Quota { month_budget: MonthBudget::from_micros(10), ..Quota::UNLIMITED };
    fleet.operator(FleetCommand::CreateProject { project: project(), quota });
    spend_of_project(&mut fleet, 10);
    fleet.operator(update("acme", None, ProjectChange::Join(project())));
    assert!(tenant_of(&mut fleet, "acme").is_burst_off);
    fleet.operator(update("acme", None, ProjectChange::Leave));
    assert!(!tenant_of(&mut fleet, "acme").is_burst_off);
}
