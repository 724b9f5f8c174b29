//! Budgets: what tenants are told of them, what they are refused, and what they keep.

use std::sync::Arc;
use std::time::Duration;

use snic_controller::{
    AssignedCard, BudgetAction, BudgetLevel, BudgetPolicy, Command, ControlError,
    ControllerSettings, DagAssignment, DagBatch, Event, FleetChange, LogKind, Provision,
};
use snic_domain::{
    BindingSpec, BindingTarget, ConditionStatus, ConditionType, DagState, MonthBudget, Quota,
    QuotaPatch, Tenant, VmId,
};
use snic_usage::Prices;

use super::bills::spend;
use super::elastic::{bucket, holds, kinds, periods, settings};
use crate::support::things::{caller, card_id, create, delete, spec, tenant, tenant_id, update};
use crate::support::{World, operator};

const DAY: u64 = 86_400;

/// A load costs 1, and nothing else costs anything.
fn prices() -> Option<Arc<Prices>> {
    let text = r#"
        currency = "EUR"
        provider = "Example"
        [[versions]]
        name = "a"
        from = 1970-01-01T00:00:00Z
        prices = { loads = "1" }
    "#;
    Some(Arc::new(Prices::parse(text).expect("they are valid")))
}

fn budget(name: &str, budget: MonthBudget) -> Command {
    let quota = QuotaPatch { month_budget: Some(budget), ..QuotaPatch::default() };
    Command::UpdateTenant {
        id: tenant_id(name),
        patch: snic_domain::TenantPatch { quota: Some(quota), ..Default::default() },
        etag: None,
    }
}

fn set(world: &mut World, micros: u64) {
    world.ask(budget("acme", MonthBudget::from_micros(micros))).expect("there are prices");
}

/// A world with prices in which acme has loaded one region, and the interval with it is closed.
fn world(at_limit: BudgetAction) -> World {
    let mut world = World::new();
    let budgets = BudgetPolicy { at_limit, ..BudgetPolicy::default() };
    world.settings = ControllerSettings { budgets, ..world.settings };
    world.handle(Event::Settings(Box::new(world.settings)));
    world.handle(Event::PricesChanged(prices()));
    world.deploy("acme/web", "aes", 5);
    spend(&mut world, 12);
    world
}

fn level(world: &World) -> (BudgetLevel, String) {
    let spending = world.tenant("acme").spending.expect("it has a budget");
    (spending.level, spending.spent.expect("there are prices").to_string())
}

/// Kinds of the events about budgets that a tenant sees.
fn told(world: &World, name: &str) -> Vec<LogKind> {
    let caller = caller(name);
    let all = world.controller.log_before(&caller, None).map(|entry| entry.kind);
    let is_of = |kind: &LogKind| {
        matches!(kind, LogKind::BudgetWarning | LogKind::BudgetReached | LogKind::BudgetFreed)
    };
    let mut all: Vec<LogKind> = all.filter(is_of).collect();
    all.reverse();
    all
}

fn refused<T: std::fmt::Debug>(answer: Result<T, ControlError>) -> String {
    match answer {
        Err(error @ ControlError::Budget { .. }) => error.to_string(),
        other => panic!("beyond the budget: {other:?}"),
    }
}

#[test]
fn a_tenant_is_told_at_eighty_and_at_a_hundred_percent() {
    let mut world = world(BudgetAction::Nothing);
    assert_eq!(world.tenant("acme").spending, None, "it has no budget");
    // 1 of 1.2516 is 79.9 %, and 1 of 1.25 is 80 %.
    set(&mut world, 1_251_600);
    assert_eq!(level(&world), (BudgetLevel::Within, "1".to_owned()));
    assert_eq!(told(&world, "acme"), []);
    set(&mut world, 1_250_000);
    assert_eq!(level(&world).0, BudgetLevel::Warned);
    assert_eq!(told(&world, "acme"), [LogKind::BudgetWarning]);
    set(&mut world, 1_000_001);
    assert_eq!(level(&world).0, BudgetLevel::Warned, "a millionth is left");
    set(&mut world, 1_000_000);
    assert_eq!(level(&world).0, BudgetLevel::Reached);
    assert_eq!(told(&world, "acme"), [LogKind::BudgetWarning, LogKind::BudgetReached]);
    let last = world.controller.log_before(&operator(), None).next().expect("an event");
    let text = "tenants/acme has spent 1 of 1 EUR in 1970-01";
    assert_eq!((last.text.as_str(), last.kind), (text, LogKind::BudgetReached));
    assert_eq!(told(&world, "beta"), [], "it is nobody else's business");
    // The policy is to do nothing.
    world.deploy("acme/more", "aes", 5);
    set(&mut world, 9_000_000);
    assert_eq!(told(&world, "acme").last(), Some(&LogKind::BudgetFreed));
}

#[test]
fn a_spent_budget_refuses_what_is_new_and_takes_nothing_away() {
    let mut world = world(BudgetAction::NoNewDags);
    set(&mut world, 1_000_000);
    let text = refused(world.ask(create("acme/more", spec("aes", 1))));
    let says = "tenants/acme has spent 1 EUR this month, and its budget is 1 EUR: it gets no new DAGs, machines or \
                bandwidth until 1970-02-01T00:00:00Z, or until an operator raises its month_budget; what it has stays, \
                with its promises";
    assert_eq!(text, says);
    let dry = Command::CreateDag {
        name: crate::support::things::dag("acme/more"),
        spec: spec("aes", 1),
        validate_only: true,
    };
    refused(world.ask(dry));
    refused(world.ask(update("acme/web", spec("aes", 6))));
    let machine = BindingSpec {
        vm: VmId::new("00000001-0000-4000-8000-000000000000").expect("a UUID"),
        tenant: tenant_id("acme"),
        chains: BindingTarget::Dags(vec![crate::support::things::dag("acme/web")]),
        functions: 1,
        ready_within: Duration::from_secs(10),
        lease: None,
        notes: Default::default(),
        limits: Default::default(),
    };
    refused(world.ask(Command::BindVm(machine.clone())));
    // What it has stays, can be changed to no more than that, and can go.
    world.ask(update("acme/web", spec("nat", 5))).expect("as much as before");
    world.settle();
    world.ask(update("acme/web", spec("aes", 4))).expect("less than before");
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
    let kept = world.condition("acme/web", ConditionType::PromiseKept);
    assert_eq!(kept.status, ConditionStatus::True);
    world.deploy("beta/db", "aes", 5);
    set(&mut world, 9_000_000);
    world.ask(Command::BindVm(machine)).expect("its budget was raised");
    world.deploy("acme/more", "aes", 1);
    world.ask(delete("acme/more")).expect("it is there");
    world.settle();
}

#[test]
fn a_batch_beyond_the_budget_is_refused_whole() {
    let mut world = world(BudgetAction::NoNewDags);
    set(&mut world, 1_000_000);
    let batch = super::usage::batch("acme", ["aes", "nat"]);
    let batch = DagBatch { allow_partial: false, ..batch };
    let plan = world.controller.batch_snapshot(&batch).plan();
    let error = world.ask(Command::CreateDags { batch, plan }).expect_err("beyond the budget");
    assert!(error.to_string().contains("its budget is 1 EUR"), "{error}");
    assert_eq!(world.controller.dags_after(None, None).count(), 1);
}

#[test]
fn a_restart_forgets_nothing_and_the_next_month_frees() {
    let mut world = world(BudgetAction::NoNewDags);
    set(&mut world, 1_000_000);
    refused(world.ask(create("acme/more", spec("aes", 1))));
    world.restart();
    let error = world.controller.check_command(&operator(), budget("acme", MonthBudget::UNLIMITED));
    assert_eq!(error, Ok(()));
    refused(world.ask(create("acme/more", spec("aes", 1))));
    world.settle();
    assert_eq!(world.state("acme/web"), DagState::Ready);
    assert_eq!(told(&world, "acme"), [LogKind::BudgetReached], "said again, for the log is new");
    // The last interval of January, and the first of February.
    world.pass(
        Duration::from_secs(31 * DAY - 5)
            .saturating_sub(Duration::from_nanos(world.now.as_nanos())),
    );
    refused(world.ask(create("acme/more", spec("aes", 1))));
    spend(&mut world, 16);
    assert_eq!(level(&world), (BudgetLevel::Within, "0".to_owned()));
    assert_eq!(told(&world, "acme"), [LogKind::BudgetReached, LogKind::BudgetFreed]);
    world.ask(create("acme/more", spec("aes", 1))).expect("another month");
    world.settle();
}

#[test]
fn without_prices_no_budget_is_taken() {
    let mut world = World::new();
    let text = "there are no prices on this host";
    let limited = MonthBudget::from_micros(1);
    let error = world.ask(budget("acme", limited)).expect_err("no prices");
    assert!(error.to_string().contains(text), "{error}");
    let error = world.controller.check_command(&operator(), budget("acme", limited));
    assert!(error.expect_err("no prices").to_string().contains(text));
    let mut third = tenant("third");
    third.quota.month_budget = limited;
    world.ask(Command::CreateTenant(third)).expect_err("no prices");
    world.ask(budget("acme", MonthBudget::UNLIMITED)).expect("that is none");
    world.handle(Event::PricesChanged(prices()));
    world.ask(budget("acme", MonthBudget::from_micros(0))).expect("there are prices");
    refused(world.ask(create("acme/web", spec("aes", 1))));
}

/// Prices that are lost do not make a budget none.
#[test]
fn a_budget_of_which_nobody_knows_what_is_spent_counts_as_spent() {
    let mut world = world(BudgetAction::NoNewDags);
    set(&mut world, 9_000_000);
    world.handle(Event::PricesChanged(None));
    for _ in 0..2 {
        let spending = world.tenant("acme").spending.expect("it has a budget");
        assert_eq!((spending.spent, spending.level), (None, BudgetLevel::Unknown));
        let error = world.ask(create("acme/more", spec("aes", 1))).expect_err("nobody knows");
        let says = "what tenants/acme has spent of its budget of 9 this month is unknown, for this host has no prices any more: \
                    it gets no new DAGs, machines or bandwidth until an operator puts prices.toml back, or takes its \
                    month_budget away; what it has stays, with its promises";
        assert_eq!(error.to_string(), says);
        assert_eq!(told(&world, "acme").last(), Some(&LogKind::BudgetWarning));
        world.restart();
        world.settle();
    }
    let acme = caller("acme");
    let mut all = world.controller.log_before(&acme, None);
    let last = all.find(|entry| entry.kind == LogKind::BudgetWarning).expect("an event").clone();
    drop(all);
    let text = "there are no prices any more, so what tenants/acme has spent of its budget of 9 in 1970-01 is unknown: no new \
                DAGs, machines or bandwidth until there are prices again";
    assert_eq!(last.text, text);
    world.deploy("beta/db", "aes", 1);
    assert_eq!(world.state("acme/web"), DagState::Ready);
    world.handle(Event::PricesChanged(prices()));
    assert_eq!(level(&world), (BudgetLevel::Within, "1".to_owned()));
    assert_eq!(told(&world, "acme").last(), Some(&LogKind::BudgetFreed));
    world.deploy("acme/more", "aes", 1);
    world.handle(Event::PricesChanged(None));
    world.ask(budget("acme", MonthBudget::UNLIMITED)).expect("that is none");
    world.deploy("acme/third", "aes", 1);
}

#[test]
fn burst_off_leaves_the_promise_and_takes_the_rest() {
    let mut world = world(BudgetAction::BurstOff);
    let sends = [("acme/web", 25)];
    periods(&mut world, 6, &sends);
    assert!(holds(&world, "acme/web") > 5 && bucket(&mut world, "acme/web") > 5_000, "it bursts");
    periods(&mut world, 100, &[("acme/web", 0)]);
    set(&mut world, 1_000_000);
    periods(&mut world, 6, &sends);
    assert_eq!(bucket(&mut world, "acme/web"), 5_000, "the promise, and no more");
    let outs = |world: &World| kinds(world).iter().filter(|k| **k == LogKind::ScaleOut).count();
    assert_eq!(outs(&world), 1, "no more instances either");
    let kept = world.condition("acme/web", ConditionType::PromiseKept);
    assert_eq!(kept.status, ConditionStatus::True);
    world.deploy("acme/more", "nat", 1);
    set(&mut world, 9_000_000);
    periods(&mut world, 6, &sends);
    assert!(bucket(&mut world, "acme/web") > 5_000, "what is left over is for it again");
    world.handle(Event::PricesChanged(None));
    periods(&mut world, 6, &sends);
    assert_eq!(bucket(&mut world, "acme/web"), 5_000, "nobody knows what it has spent");
}

/// A budget of nothing is how the fleet says that one is spent; this host has no prices, and needs none.
#[test]
fn the_fleet_switches_bursts_off_and_on() {
    let mut world = World::new();
    let budgets = BudgetPolicy { at_limit: BudgetAction::BurstOff, ..BudgetPolicy::default() };
    world.settings = ControllerSettings { budgets, ..world.settings };
    world.handle(Event::Settings(Box::new(world.settings)));
    world.join_fleet(true);
    let customer = |micros: Option<u64>| {
        let month_budget = micros.map_or(MonthBudget::UNLIMITED, MonthBudget::from_micros);
        let id = tenant_id("cust");
        let quota = Quota { month_budget, ..Quota::default() };
        Tenant { id, weight: 1, quota, notes: Default::default(), project: None }
    };
    let to = AssignedCard { card: card_id(), serial: 8 };
    let (name, spec) = (crate::support::things::dag("cust/web"), spec("aes", 5));
    let assignment = DagAssignment { name, tenant: customer(None), tenant_number: 3, spec, to };
    world.ask(Command::Fleet(FleetChange::Assign(Box::new(assignment)))).expect("there is room");
    world.settle();
    let sends = [("cust/web", 25)];
    periods(&mut world, 6, &sends);
    assert!(bucket(&mut world, "cust/web") > 5_000, "it bursts");
    let told = |world: &mut World, micros, number| {
        let what = Box::new(Provision::Tenant(customer(micros)));
        world
            .ask(Command::Fleet(FleetChange::Provide { what, number }))
            .expect("the fleet says so");
        periods(world, 6, &sends);
    };
    told(&mut world, Some(0), 4);
    assert_eq!(bucket(&mut world, "cust/web"), 5_000, "the promise, and no more");
    let reader = caller("cust");
    let last = world.controller.log_before(&reader, None);
    let last: Vec<String> = last.map(|entry| entry.text.clone()).collect();
    let says = "the fleet says that tenants/cust has spent its budget in 1970-01: its DAGs get their promises and no more \
                until it says otherwise";
    assert!(last.iter().any(|text| text == says), "{last:?}");
    world.restart();
    world.settle();
    periods(&mut world, 6, &sends);
    assert_eq!(bucket(&mut world, "cust/web"), 5_000, "it is stored");
    told(&mut world, None, 5);
    assert!(bucket(&mut world, "cust/web") > 5_000, "what is left over is for it again");
}

/// Another policy counts from the edge of an epoch on, for those that have spent their budgets already.
#[test]
fn a_new_policy_counts_for_budgets_that_are_spent() {
    let mut world = world(BudgetAction::Nothing);
    set(&mut world, 1_000_000);
    world.deploy("acme/more", "nat", 1);
    let budgets = BudgetPolicy { warn_percent: 80, at_limit: BudgetAction::BurstOff };
    let changed = ControllerSettings { budgets, ..world.settings };
    settings(&mut world, changed);
    periods(&mut world, 6, &[("acme/web", 25)]);
    assert_eq!(bucket(&mut world, "acme/web"), 5_000);
}
