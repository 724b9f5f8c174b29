//! The loop: more instances and fewer, and who gives way to whom; `bad_input` has what odd samples do.

use std::time::Duration;

use snic_controller::{
    AdmissionPolicy, Autoscaling, Change, Command, ControlError, ControllerSettings, Event,
    Fairness, Limiter, LogKind, LoopFigures, Reply, Scheme,
};
use snic_domain::{Bandwidth, CardId, DagState, RegionState};
use snic_tables::RateLimiterRow;

use crate::support::things::{card_id, create, dag, delete, spec, tenant_id};
use crate::support::{World, operator};

pub(super) const PERIOD: Duration = Duration::from_millis(10);

/// A monitor period in which DAGs send this much, in Gbit/s.
pub(super) fn period(world: &mut World, loads: &[(&str, u64)]) {
    for (name, gbps) in loads {
        let row = world.view(name).uid.row();
        let counted = world.card().counted.entry(row).or_default();
        *counted = counted.wrapping_add(gbps * 1_250_000);
    }
    world.pass(PERIOD);
    world.handle(Event::Sample);
    world.settle();
}

pub(super) fn periods(world: &mut World, count: usize, loads: &[(&str, u64)]) {
    (0..count).for_each(|_| period(world, loads));
}

/// DAGs of one NT that serves 10 Gbit/s, each promised 10, on a card of four regions; both samples
/// that a load needs are there.
pub(super) fn deployed(names: &[&str]) -> World {
    let mut world = World::new();
    for name in names {
        world.deploy(name, "aes", 10);
    }
    let idle: Vec<(&str, u64)> = names.iter().map(|name| (*name, 0)).collect();
    periods(&mut world, 2, &idle);
    world
}

pub(super) fn kinds(world: &World) -> Vec<LogKind> {
    let mut all: Vec<_> = world.controller.log_before(&operator(), None).map(|e| e.kind).collect();
    all.reverse();
    all
}

pub(super) fn figures(world: &World) -> LoopFigures {
    world.controller.loop_figures(&card_id()).expect("it was seen")
}

pub(super) fn holds(world: &World, name: &str) -> u64 {
    let all = world.controller.fairness(&dag(name).tenant);
    let mut dags = all.iter().flat_map(|view| &view.dags);
    let of = dags.find(|of| of.dag == dag(name)).expect("it is on a card");
    (of.holds.get() + 500_000_000) / 1_000_000_000
}

/// Rate of the card's token bucket of a DAG, in Mbit/s.
pub(super) fn bucket(world: &mut World, name: &str) -> u32 {
    let row = world.view(name).uid.row();
    let bucket: RateLimiterRow = world.card().tables.get(row).expect("it has a bucket");
    (bucket.rate_kbps + 500) / 1_000
}

/// Other policies, in force when this returns: an epoch's edge has passed.
pub(super) fn settings(world: &mut World, settings: ControllerSettings) {
    world.handle(Event::Settings(Box::new(settings)));
    periods(world, 3, &[]);
}

#[test]
fn overload_gets_more_instances_and_calm_gives_them_back_as_victims() {
    let mut world = deployed(&["acme/web"]);
    period(&mut world, &[("acme/web", 25)]);
    assert_eq!((holds(&world, "acme/web"), world.regions_of("acme/web").len()), (25, 3));
    assert_eq!(kinds(&world), [LogKind::ScaleOut, LogKind::Scaled]);
    assert_eq!(world.state("acme/web"), DagState::Ready);
    let entry = world.controller.log_before(&operator(), None).last().expect("the first").clone();
    assert!(entry.text.contains("25 Gbit/s"), "{}", entry.text);
    assert_eq!(entry.regions.len(), 2, "that were loaded");

    periods(&mut world, 4, &[("acme/web", 5)]);
    assert_eq!(holds(&world, "acme/web"), 25, "not before it has been calm for long");
    period(&mut world, &[("acme/web", 5)]);
    assert_eq!((holds(&world, "acme/web"), world.regions_of("acme/web").len()), (10, 1));
    let victims = world.region_states().iter().filter(|s| **s == RegionState::Victim).count();
    assert_eq!(
        (victims, world.card().loads.len()),
        (2, 3),
        "nothing was unloaded, and no more loaded"
    );
    assert_eq!(figures(&world).scale_ins, 1);

    period(&mut world, &[("acme/web", 25)]);
    assert_eq!(world.card().loads.len(), 3, "and nothing is loaded again");
    assert_eq!(figures(&world).scale_outs_hidden, 1);
}

#[test]
fn a_card_without_traffic_is_looked_at_seldom_and_its_first_packets_at_once() {
    let mut world = deployed(&["acme/web", "beta/db"]);
    let looks = |world: &World| world.controller.fairness(&tenant_id("acme"))[0].step;
    periods(&mut world, 20, &[("acme/web", 0)]);
    let (before, epochs) = (looks(&world), figures(&world).epochs);
    periods(&mut world, 60, &[("acme/web", 0)]);
    assert_eq!(looks(&world) - before, 3, "one in ten epochs of 20 ms");
    assert_eq!(figures(&world).epochs - epochs, 30, "each epoch ends all the same");
    let next = |world: &World| world.controller.next_sample().since(world.now);
    assert_eq!(next(&world), 2 * PERIOD, "that is an epoch");
    periods(&mut world, 40, &[("acme/web", 0)]);
    let before = looks(&world);
    periods(&mut world, 300, &[("acme/web", 0)]);
    assert_eq!(next(&world), 10 * PERIOD, "after a second it is at rest");
    assert_eq!(looks(&world) - before, 3, "once a second");

    period(&mut world, &[("acme/web", 25)]);
    assert_eq!(holds(&world, "acme/web"), 25, "the first period of a load counts");
    assert_eq!(next(&world), PERIOD);
    periods(&mut world, 7, &[("acme/web", 25)]);
    let moving = looks(&world);
    periods(&mut world, 10, &[("acme/web", 25)]);
    assert_eq!(looks(&world) - moving, 10, "each sample counts while somebody sends");
    periods(&mut world, 100, &[("acme/web", 0)]);
    assert_eq!(holds(&world, "acme/web"), 10, "what nobody uses is given back at rest too");
    assert_eq!(figures(&world).scale_ins, 1);
}

/// A part of a monitor period in which a DAG sends this much, in Gbit/s; says whether the card was asked
/// again.
fn moment(world: &mut World, name: &str, gbps: u64) -> bool {
    const MOMENT: Duration = Duration::from_millis(1);
    let row = world.view(name).uid.row();
    let counted = world.card().counted.entry(row).or_default();
    *counted = counted.wrapping_add(gbps * 125_000);
    world.pass(MOMENT);
    let due = world.controller.next_sample() <= world.now;
    if due {
        world.handle(Event::Sample);
        world.settle();
    }
    due
}

#[test]
fn a_load_over_what_serves_it_does_not_wait_where_a_region_is_free() {
    let mut world = deployed(&["acme/web"]);
    assert!(!moment(&mut world, "acme/web", 9), "a load far from its capacity is not looked at");
    // It was at rest, so the counters are read once an epoch of 20 ms.
    (0..19).for_each(|_| _ = moment(&mut world, "acme/web", 9));
    assert_eq!(kinds(&world), []);
    assert!(moment(&mut world, "acme/web", 15), "it was near");
    assert_eq!(kinds(&world), [LogKind::PreLaunch, LogKind::Scaled]);
    assert_eq!((holds(&world, "acme/web"), world.card().loads.len()), (15, 2));
    (0..30).for_each(|_| _ = moment(&mut world, "acme/web", 15));
    assert_eq!(world.card().loads.len(), 2, "what is needed, and no more");

    let mut world = deployed(&["acme/web"]);
    for (name, chain) in [("beta/a", "lb"), ("beta/b", "vpn"), ("beta/c", "pad")] {
        world.deploy(name, chain, 1);
    }
    world.ask(delete("beta/c")).expect("it exists");
    world.settle();
    periods(&mut world, 3, &[("acme/web", 9)]);
    assert!(moment(&mut world, "acme/web", 15), "a victim is there");
    assert_eq!(kinds(&world), [], "it is not given up before a whole period");
}

/// Whatever it was before: no region is loaded for a load that what it has serves.
#[test]
fn a_load_that_is_served_has_nothing_loaded_for_it() {
    let mut world = deployed(&["acme/web"]);
    for gbps in [0, 5, 10, 10, 1, 10, 10] {
        (0..10).for_each(|_| _ = moment(&mut world, "acme/web", gbps));
    }
    assert_eq!((kinds(&world), world.card().loads.len()), (vec![], 1));
}

#[test]
fn a_promise_takes_back_at_once_what_is_lent() {
    let mut world = deployed(&["acme/web"]);
    period(&mut world, &[("acme/web", 40)]);
    assert_eq!(world.regions_of("acme/web").len(), 4);
    world.deploy("beta/web", "lb", 10);
    assert_eq!(holds(&world, "acme/web"), 10);
    assert!(kinds(&world).contains(&LogKind::Preemption), "{:?}", kinds(&world));
    assert_eq!((figures(&world).preemptions, world.state("acme/web")), (1, DagState::Ready));
}

#[test]
fn validation_counts_on_what_would_be_taken_back_and_takes_nothing() {
    let mut world = deployed(&["acme/web"]);
    period(&mut world, &[("acme/web", 40)]);
    let command = |validate_only| {
        let Command::CreateDag { name, spec, .. } = create("beta/web", spec("lb", 10)) else {
            unreachable!("what create makes")
        };
        Command::CreateDag { name, spec, validate_only }
    };
    let reply = world.ask(command(true)).expect("it would fit");
    assert!(matches!(reply, Reply::WouldBe(_)), "{reply:?}");
    assert_eq!(holds(&world, "acme/web"), 40, "nothing was taken");
    world.ask(command(false)).expect("it fits");
    let over = world.ask(create("beta/big", spec("lb", 900))).expect_err("no card takes it");
    assert!(matches!(over, ControlError::Refused(_)), "{over:?}");
}

#[test]
fn preemption_leaves_the_generation_that_is_served() {
    let mut world = deployed(&["acme/web"]);
    period(&mut world, &[("acme/web", 40)]);
    assert_eq!(world.view("acme/web").observed_generation, 1);
    world.ask(create("beta/web", spec("lb", 10))).expect("burst capacity is preempted");
    let view = world.view("acme/web");
    assert_eq!(view.observed_generation, 1, "before the card has flipped: {:?}", view.conditions);
    world.settle();
    assert_eq!(world.view("acme/web").observed_generation, 1);
}

#[test]
fn tenants_above_their_fair_share_are_preempted() {
    let names = ["acme/web", "beta/web"];
    let mut world = deployed(&names);
    periods(&mut world, 1, &[("acme/web", 30), ("beta/web", 5)]);
    assert_eq!((holds(&world, "acme/web"), holds(&world, "beta/web")), (30, 10));
    periods(&mut world, 4, &[("acme/web", 30), ("beta/web", 30)]);
    let held = names.map(|name| holds(&world, name));
    assert_eq!(held, [20, 20], "{:?}", kinds(&world));
    assert!(figures(&world).context_switches > 0);
    let loads = world.card().loads.len();
    periods(&mut world, 20, &[("acme/web", 30), ("beta/web", 30)]);
    assert_eq!(world.card().loads.len(), loads, "nothing goes back and forth");

    let view = &world.controller.fairness(&tenant_id("acme"))[0];
    assert_eq!(((view.space_ppm + 500) / 1_000, view.limiter), (500, Limiter::Area));
    assert_eq!((view.regions_own, (view.dags[0].target_millis + 5) / 10), (2, 200));
}

/// Computed by hand: both ask for all four regions. Of weights three and one, three parts of four are acme's.
#[test]
fn capacity_follows_the_weights() {
    let names = ["acme/web", "beta/web"];
    let mut world = deployed(&names);
    let (id, weight) = (tenant_id("acme"), Some(3));
    world
        .ask(Command::UpdateTenant {
            id,
            patch: snic_domain::TenantPatch { weight, ..Default::default() },
            etag: None,
        })
        .expect("an operator");
    periods(&mut world, 6, &[("acme/web", 40), ("beta/web", 40)]);
    assert_eq!(names.map(|name| holds(&world, name)), [30, 10], "{:?}", kinds(&world));
    let shares = ["acme", "beta"].map(|id| world.controller.fairness(&tenant_id(id))[0].space_ppm);
    assert_eq!(shares.map(|ppm| (ppm + 500) / 1_000), [750, 250]);
}

/// All rates of an epoch follow one policy, even if another arrives in the middle of it.
#[test]
fn policies_wait_for_the_edge_of_the_epoch() {
    const PERIODS: u32 = 4;
    let mut world = deployed(&["acme/web"]);
    let mut headroom_percent = 10;
    let mut arrive = |world: &mut World| {
        headroom_percent += 1;
        let epoch = PERIOD * PERIODS;
        let fairness = Fairness { epoch, headroom_percent, ..Fairness::default() };
        let other = ControllerSettings { fairness, ..crate::support::settings() };
        world.handle(Event::Settings(Box::new(other)));
    };
    let until_applied = |world: &mut World| {
        let applied = |world: &World| {
            kinds(world).iter().filter(|kind| **kind == LogKind::PoliciesApplied).count()
        };
        let before = applied(world);
        let waited = (1..=2 * PERIODS).find(|_| {
            period(world, &[("acme/web", 5)]);
            applied(world) > before
        });
        waited.expect("within two epochs")
    };
    // The first is in force from an edge of the epochs before, which were shorter.
    for _ in 0..2 {
        arrive(&mut world);
        until_applied(&mut world);
    }
    for since_the_edge in 0..PERIODS {
        (0..since_the_edge).for_each(|_| period(&mut world, &[("acme/web", 5)]));
        arrive(&mut world);
        assert_eq!(until_applied(&mut world), PERIODS - since_the_edge);
    }
}

#[test]
fn a_static_scheme_lends_nothing_and_says_so() {
    let mut world = deployed(&["acme/web"]);
    let fairness = Fairness { scheme: Scheme::Static, ..Fairness::default() };
    settings(&mut world, ControllerSettings { fairness, ..crate::support::settings() });
    periods(&mut world, 6, &[("acme/web", 40)]);
    assert_eq!((holds(&world, "acme/web"), bucket(&mut world, "acme/web")), (10, 10_000));
    assert_eq!(kinds(&world), [LogKind::PoliciesApplied]);
    let off = Autoscaling { enabled: false, ..Autoscaling::default() };
    settings(&mut world, ControllerSettings { autoscaling: off, ..crate::support::settings() });
    world.handle(Event::SettingsRefused { reason: "fairness.toml:3: no".into() });
    periods(&mut world, 6, &[("acme/web", 40)]);
    assert_eq!(holds(&world, "acme/web"), 10);
    let last = world.controller.log_before(&operator(), None).next().expect("one").kind;
    assert_eq!(last, LogKind::PoliciesRefused);
    let applied = kinds(&world).iter().filter(|k| **k == LogKind::PoliciesApplied).count();
    assert_eq!(applied, 2, "those in force stayed");
}

#[test]
fn idle_capacity_is_shared_and_returned_when_its_owner_sends() {
    let mut world = World::new();
    world.deploy("acme/web", "cache", 5);
    world.deploy("beta/web", "cache", 5);
    assert_eq!(world.regions_of("acme/web"), world.regions_of("beta/web"), "they share an NT");
    let off = Autoscaling { enabled: false, ..Autoscaling::default() };
    settings(&mut world, ControllerSettings { autoscaling: off, ..crate::support::settings() });
    periods(&mut world, 6, &[("acme/web", 30), ("beta/web", 0)]);
    // Of 20 Gbit/s five percent stay free.
    assert_eq!(bucket(&mut world, "acme/web"), 19_000);
    assert_eq!(bucket(&mut world, "beta/web"), 5_000, "its promise is never less");
    period(&mut world, &[("acme/web", 30), ("beta/web", 5)]);
    assert_eq!(bucket(&mut world, "acme/web"), 14_000, "without waiting for the epoch's edge");
    periods(&mut world, 4, &[("acme/web", 30), ("beta/web", 30)]);
    let both = (bucket(&mut world, "acme/web"), bucket(&mut world, "beta/web"));
    assert_eq!(both, (9_500, 9_500));
}

#[test]
fn admission_keeps_to_its_policy() {
    let mut world = World::new();
    let admission = AdmissionPolicy {
        ingress_percent: 20,
        dag_bandwidth_max: Bandwidth::from_gbps(15),
        ..AdmissionPolicy::default()
    };
    settings(&mut world, ControllerSettings { admission, ..crate::support::settings() });
    let refused = world.ask(create("acme/big", spec("lb", 16))).expect_err("over the most");
    assert!(matches!(refused, ControlError::Invalid(_)), "{refused:?}");
    world.deploy("acme/web", "lb", 15);
    let refused = world.ask(create("acme/more", spec("vpn", 6))).expect_err("over a fifth");
    assert!(refused.to_string().contains("admission policy"), "{refused}");
    world.deploy("acme/less", "vpn", 5);
}

#[test]
fn tenants_see_what_is_decided_about_their_dags_only() {
    let mut world = deployed(&["acme/web"]);
    period(&mut world, &[("acme/web", 25)]);
    let seen = |tenant: &str| {
        let caller = crate::support::things::caller(tenant);
        world.controller.log_before(&caller, None).count()
    };
    assert_eq!((seen("acme"), seen("beta")), (2, 0));
    let told = world.changes.iter().filter(|(c, _)| matches!(c, Change::Logged(_))).count();
    assert_eq!(told, 2);
    let page: Vec<u64> =
        world.controller.log_before(&operator(), Some(2)).map(|e| e.number).collect();
    assert_eq!(page, [1]);
}

#[test]
fn history_has_a_point_a_second_and_ends_with_its_tenant() {
    let mut world = deployed(&["acme/web"]);
    periods(&mut world, 250, &[("acme/web", 4)]);
    let history = &world.controller.fairness(&tenant_id("acme"))[0].history;
    assert_eq!(history.len(), 3);
    let last = history.last().expect("three");
    assert_eq!((last.load, (last.space_ppm + 500) / 1_000), (Bandwidth::from_gbps(4), 250));
    assert!(world.controller.fairness(&tenant_id("beta")).is_empty());
}

/// Two tenants in one region of four, with different NTs of it.
fn neighbours(acme: u64, beta: u64) -> World {
    let mut world = World::new();
    world.deploy("acme/web", "cache", acme);
    periods(&mut world, 3, &[("acme/web", 0)]);
    let before = world.controller.fairness(&tenant_id("acme"))[0].space_ppm;
    world.deploy("beta/web", "nat", beta);
    assert_eq!(world.regions_of("acme/web"), world.regions_of("beta/web"), "they share a region");
    periods(&mut world, 3, &[("acme/web", 0), ("beta/web", 0)]);
    let after = world.controller.fairness(&tenant_id("acme"))[0].space_ppm;
    assert_eq!(before, after, "a neighbour changes no share");
    world
}

/// Computed by hand: a tenant is charged for its region as if it were alone there. 5 of 20 Gbit/s of one region
/// of four are a sixteenth of the card, 5 of 40 a thirty-second.
#[test]
fn a_share_does_not_depend_on_who_uses_other_nts_of_the_region() {
    let world = neighbours(5, 5);
    let share = |tenant| world.controller.fairness(&tenant_id(tenant))[0].space_ppm;
    assert_eq!((share("acme"), share("beta")), (62_500, 31_250));
}

/// Both fill their NT, so both are charged the region: what is charged twice can be given out twice.
#[test]
fn a_region_that_is_charged_twice_counts_twice() {
    let world = neighbours(20, 40);
    for tenant in ["acme", "beta"] {
        let view = &world.controller.fairness(&tenant_id(tenant))[0];
        assert_eq!((view.space_ppm, view.limiter), (250_000, Limiter::Demand));
        assert_eq!(view.space.capacity[0], 1_250_000_000);
    }
}

#[test]
fn a_tenant_without_dags_has_no_share_and_frees_its_capacity() {
    let mut world = deployed(&["acme/web", "beta/web"]);
    periods(&mut world, 4, &[("acme/web", 60), ("beta/web", 60)]);
    let share = |world: &World| world.controller.fairness(&tenant_id("acme"))[0].space_ppm;
    assert_eq!(share(&world).div_ceil(1_000), 500);
    world.ask(delete("beta/web")).expect("it exists");
    assert!(world.controller.fairness(&tenant_id("beta")).is_empty(), "at once");
    world.settle();
    period(&mut world, &[("acme/web", 60)]);
    assert_eq!(share(&world).div_ceil(1_000), 1_000, "all there is");
    let shares: Vec<_> = world.controller.dominant_shares(&card_id()).collect();
    assert!(shares.iter().all(|(tenant, ..)| **tenant == tenant_id("acme")), "{shares:?}");
}

/// Computed by hand: 10 of 10 Gbit/s of one region of four; of two equal cards that is an eighth.
#[test]
fn a_dominant_share_spans_all_cards() {
    let mut world = deployed(&["acme/web"]);
    let share = |world: &World| world.controller.fairness(&tenant_id("acme"))[0].daemon_ppm;
    assert_eq!(share(&world), 250_000);
    world.add_card(CardId::new("card1").expect("a label"));
    world.settle();
    assert_eq!(share(&world), 125_000);
}

/// Computed by hand: acme is promised all of one card. On a second, equal one, of which both ask for all, beta
/// has less over both cards whatever it gets, so it gets what acme was not promised: three regions.
#[test]
fn a_large_share_on_one_card_counts_on_the_other() {
    let mut world = World::new();
    world.deploy("acme/first", "aes", 40);
    let second = CardId::new("card1").expect("a label");
    world.add_card(second.clone());
    world.settle();
    for name in ["acme/web", "beta/web"] {
        world.deploy(name, "aes", 10);
        assert_eq!(world.view(name).mapping.map(|m| m.card), Some(second.clone()));
    }
    let rows = ["acme/web", "beta/web"].map(|name| world.view(name).uid.row());
    for _ in 0..20 {
        for row in rows {
            let card = world.cards.get_mut(&second).expect("it was added");
            let counted = card.counted.entry(row).or_default();
            *counted = counted.wrapping_add(40 * 1_250_000);
        }
        period(&mut world, &[]);
    }
    assert_eq!(["acme/web", "beta/web"].map(|name| holds(&world, name)), [10, 30]);
    let on_second = |tenant| {
        let views = world.controller.fairness(&tenant_id(tenant));
        views.into_iter().find(|view| view.card == second).expect("it has a DAG there")
    };
    assert_eq!(on_second("acme").space.elsewhere[0], 1_000_000_000);
    assert_eq!(on_second("beta").space.elsewhere, [0, 0]);
    assert_eq!((on_second("beta").space_ppm, on_second("beta").daemon_ppm), (1_000_000, 500_000));
}
