//! Senseless input, and the controller's answer to it: no panic, no share over
//! a whole, and what stands on the card is at least what was promised and at most what a port takes.
//! `crates/core/fairness` has the same for its algorithms, the daemon for its policy files.

use std::time::Duration;

use proptest::prelude::*;
use snic_controller::{
    AdmissionPolicy, Autoscaling, CardCommand, CardReport, Command, ControlError,
    ControllerSettings, Event, Fairness, LogKind, Scheme,
};
use snic_domain::{Bandwidth, DagState, Quota, Tenant, Timestamp};
use snic_tables::{RateLimiterRow, Ticket};

use crate::support::World;
use crate::support::things::{card_id, create, nt, profile, spec, tenant_id};

use super::elastic::{PERIOD, bucket, deployed, figures, kinds, period, periods, settings};

/// Every bucket on the card, in kbit/s: what it lets in, and what was promised.
fn buckets(world: &mut World) -> Vec<(u32, u32)> {
    let rows = 0..64;
    let tables = &world.card().tables;
    let buckets = rows.filter_map(|row| tables.get::<RateLimiterRow>(row));
    buckets.map(|bucket| (bucket.rate_kbps, bucket.promised_kbps)).collect()
}

/// Invariants after any input: [`World::handle`] checks shares and promises inside the controller.
fn is_sound(world: &mut World) {
    let line = profile().ingress.kbps();
    for (rate, promised) in buckets(world) {
        assert!(promised <= rate && rate <= line, "{rate} kbit/s, promised {promised}");
    }
    for id in ["acme", "beta"] {
        for view in world.controller.fairness(&tenant_id(id)) {
            assert!(view.space_ppm <= 1_000_000, "{view:?}");
            assert!(view.busiest.is_none_or(|(_, ppm)| ppm <= 1_000_000), "{:?}", view.history);
        }
    }
}

fn load(world: &World) -> Option<Bandwidth> {
    let shares = &world.controller.fairness(&tenant_id("acme"))[0].dags[0];
    shares.load.map(|_| shares.counted)
}

/// A DAG that has sent 4 Gbit/s.
fn sending() -> World {
    let mut world = deployed(&["acme/web"]);
    periods(&mut world, 2, &[("acme/web", 4)]);
    assert_eq!(load(&world), Some(Bandwidth::from_gbps(4)));
    world
}

fn count(world: &mut World, bytes: u64) {
    world.card().counted.values_mut().for_each(|counted| *counted = bytes);
    period(world, &[]);
    is_sound(world);
}

fn refused_field(world: &mut World, command: Command) -> String {
    crate::support::wrong_field(world.ask(command))
}

#[test]
fn counters_that_go_backwards() {
    let mut world = sending();
    count(&mut world, 3);
    assert_eq!((figures(&world).odd_counters, kinds(&world)), (1, vec![LogKind::OddCounters]));
    assert_eq!(load(&world), Some(Bandwidth::from_gbps(4)), "as before");
    period(&mut world, &[("acme/web", 5)]);
    assert_eq!(load(&world), Some(Bandwidth::from_gbps(5)), "it goes on from there");
}

#[test]
fn counters_that_wrap() {
    let mut world = sending();
    count(&mut world, u64::MAX);
    assert_eq!(load(&world), Some(Bandwidth::from_gbps(100)), "no more than the ports take");
    count(&mut world, 5);
    assert_eq!(figures(&world).odd_counters, 1, "over the end they are smaller");
    period(&mut world, &[("acme/web", 2)]);
    assert_eq!(load(&world), Some(Bandwidth::from_gbps(2)));
    is_sound(&mut world);
}

#[test]
fn counters_that_stop() {
    let mut world = sending();
    periods(&mut world, 3, &[]);
    assert_eq!(load(&world), Some(Bandwidth::ZERO));
    assert!(bucket(&mut world, "acme/web") >= 10_000, "its promise stays");
    // Rows that are not told of any more have not been counted.
    world.card().counted.clear();
    periods(&mut world, 3, &[]);
    assert_eq!((load(&world), figures(&world).odd_counters), (Some(Bandwidth::ZERO), 1));
    is_sound(&mut world);
}

#[test]
fn a_sample_from_the_future() {
    let mut world = sending();
    // The clock is set far ahead, then back: were it to go back, time would stand still here.
    world.pass(Duration::from_secs(3_600));
    world.handle(Event::Sample);
    world.settle();
    is_sound(&mut world);
    let (before, now) = (figures(&world).epochs, world.now);
    world.now = Timestamp::ZERO;
    world.handle(Event::Sample);
    world.settle();
    assert_eq!(figures(&world).epochs, before);
    world.now = now;
    periods(&mut world, 3, &[("acme/web", 4)]);
    assert!(figures(&world).epochs > before);
    // A ticket that was not given out yet, and one at the end of all.
    for ticket in [Ticket(1 << 40), Ticket(u64::MAX)] {
        let counters = Box::default();
        let report = CardReport::Sampled { ticket, counters };
        let before = figures(&world).epochs;
        world.handle(Event::Card { card: card_id(), report });
        assert_eq!(figures(&world).epochs, before);
    }
    world.now = Timestamp::from_nanos(u64::MAX);
    world.handle(Event::Sample);
    world.run();
    is_sound(&mut world);
}

#[test]
fn a_sample_that_nobody_asked_for_or_at_no_time() {
    let mut world = deployed(&["acme/web"]);
    let before = figures(&world);
    world.handle(Event::Sample);
    let Some((card, CardCommand::Sample { ticket })) = world.asked.front().cloned() else {
        panic!("a sample is asked for")
    };
    world.settle();
    let counters = Box::default();
    let report = CardReport::Sampled { ticket, counters };
    world.handle(Event::Card { card, report });
    assert_eq!(figures(&world).epochs, before.epochs, "no time has passed, and it was answered");
}

#[test]
fn a_card_that_answers_late() {
    let mut world = deployed(&["acme/web"]);
    periods(&mut world, 1, &[]);
    world.pass(PERIOD);
    world.handle(Event::Sample);
    assert_eq!(world.asked.len(), 1);
    for late in 1..=10 {
        assert_eq!(kinds(&world), [], "{late}: a moment is no event");
        world.pass(PERIOD);
        world.handle(Event::Sample);
    }
    assert_eq!(world.asked.len(), 1, "nothing is queued");
    world.settle();
    assert_eq!((figures(&world).overruns, kinds(&world)), (10, vec![LogKind::Overrun]));
    world.pass(10 * PERIOD);
    world.handle(Event::Sample);
    assert_eq!(figures(&world).overruns, 10 + 4, "what was missed is counted: one in two at rest");
    assert_eq!(kinds(&world).len(), 1, "a daemon that did not run is no event");
}

#[test]
fn a_card_that_has_not_answered_yet_overruns_nothing() {
    let mut world = World::new();
    world.deploy("acme/web", "aes", 10);
    for _ in 0..4 {
        world.pass(PERIOD);
        world.handle(Event::Sample);
    }
    assert_eq!(world.asked.len(), 1, "nothing is queued");
    world.settle();
    assert_eq!((figures(&world).overruns, kinds(&world)), (0, vec![]));
    // From its first answer on it has to keep up.
    for _ in 0..2 {
        world.pass(PERIOD);
        world.handle(Event::Sample);
    }
    assert_eq!(figures(&world).overruns, 1);
}

#[test]
fn zero_demands() {
    let mut world = deployed(&["acme/web"]);
    let none = world.ask(create("beta/web", spec("aes", 0)));
    assert_eq!(crate::support::wrong_field(none), "dag.bandwidth_bps");
    periods(&mut world, 20, &[]);
    is_sound(&mut world);
    let view = &world.controller.fairness(&tenant_id("acme"))[0];
    assert!(view.dags[0].target_millis == 0 && view.space_ppm > 0, "what is promised is held");
}

#[test]
fn zero_capacity() {
    let mut world = World::new();
    assert_eq!(
        refused_field(&mut world, Command::CreateNtType(nt("dead", 0))),
        "nt_type.bandwidth_max_bps"
    );
    // Ports that take nothing, and no memory: nothing can be promised, and nothing breaks.
    let mut world = World::without_card();
    let mut dead = profile();
    (dead.ingress, dead.egress) = (Bandwidth::ZERO, Bandwidth::ZERO);
    (dead.memory, dead.packet_store) = Default::default();
    world.cards.insert(card_id(), crate::support::card::TinyCard::new(dead));
    world.appear(&card_id());
    world.settle();
    let refused = world.ask(create("acme/web", spec("aes", 1))).expect_err("no room");
    assert!(matches!(refused, ControlError::Refused(_)), "{refused:?}");
    periods(&mut world, 3, &[]);
}

#[test]
fn a_resource_that_nobody_asks_for() {
    let mut world = deployed(&["acme/web"]);
    // Nobody asks for memory, three regions are empty: who is alone has what there is of the rest.
    periods(&mut world, 3, &[("acme/web", 10)]);
    is_sound(&mut world);
    assert_eq!(world.state("acme/web"), DagState::Ready);
    let view = &world.controller.fairness(&tenant_id("acme"))[0];
    assert!(view.space_ppm > 0 && view.space_ppm <= 1_000_000, "{view:?}");
}

#[test]
fn weights_of_zero_negative_or_nan() {
    let mut world = World::new();
    // The type has no negative numbers, fractions or NaN; on the wire it is a uint32.
    for weight in [0, 1_001, u32::MAX] {
        let (id, quota) = (tenant_id("odd"), Quota::default());
        let create = Command::CreateTenant(Tenant {
            id,
            weight,
            quota,
            notes: Default::default(),
            project: None,
        });
        assert_eq!(refused_field(&mut world, create), "tenant.weight");
        let (id, weight) = (tenant_id("acme"), Some(weight));
        let update = Command::UpdateTenant {
            id,
            patch: snic_domain::TenantPatch { weight, ..Default::default() },
            etag: None,
        };
        assert_eq!(refused_field(&mut world, update), "tenant.weight");
    }
}

/// Policy files cannot say this; whoever calls the controller can.
#[test]
fn policies_that_contradict_each_other() {
    let none = Duration::ZERO;
    let fairness = |scheme, epoch| Fairness { scheme, epoch, ..Fairness::default() };
    let odd = [
        ControllerSettings {
            fairness: fairness(Scheme::Static, PERIOD),
            ..crate::support::settings()
        },
        ControllerSettings { fairness: fairness(Scheme::Full, none), ..crate::support::settings() },
        ControllerSettings {
            fairness: fairness(Scheme::Drf, Duration::MAX),
            ..crate::support::settings()
        },
        ControllerSettings {
            fairness: Fairness { headroom_percent: u32::MAX, ..Fairness::default() },
            ..crate::support::settings()
        },
        ControllerSettings {
            autoscaling: Autoscaling {
                monitor_period: none,
                pre_launch_percent: 0,
                scale_in_percent: u32::MAX,
                scale_in_periods: 0,
                residency_periods: 0,
                ..Autoscaling::default()
            },
            ..crate::support::settings()
        },
        ControllerSettings {
            admission: AdmissionPolicy {
                ingress_percent: 0,
                dag_bandwidth_max: Bandwidth::ZERO,
                ..AdmissionPolicy::default()
            },
            load_attempts: 0,
            backoff: Duration::MAX,
            backoff_max: none,
            ..crate::support::settings()
        },
    ];
    for policies in odd {
        let mut world = deployed(&["acme/web", "beta/web"]);
        settings(&mut world, policies);
        for loads in [(30, 0), (0, 30), (30, 30), (0, 0)] {
            periods(&mut world, 4, &[("acme/web", loads.0), ("beta/web", loads.1)]);
            is_sound(&mut world);
        }
        assert!(world.card().loads.len() < 60, "{policies:?}: it loads and loads");
    }
}

/// Anything that a card, its counters or a clock can do.
#[derive(Debug, Clone)]
enum Odd {
    Counted(u64),
    Forgotten,
    Send(u64, u64),
    Pass(u64),
    Sample,
    Late(u32),
    Lost,
}

fn odd() -> impl Strategy<Value = Odd> {
    let bytes = prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0..100_000_000_u64];
    prop_oneof![
        bytes.prop_map(Odd::Counted),
        Just(Odd::Forgotten),
        (0..60_u64, 0..60_u64).prop_map(|(a, b)| Odd::Send(a, b)),
        prop_oneof![Just(0), 1..50_000_000_u64, Just(3_600_000_000_000)].prop_map(Odd::Pass),
        Just(Odd::Sample),
        (1..9_u32).prop_map(Odd::Late),
        Just(Odd::Lost),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_card_stays_consistent_whatever_comes(
        odd in proptest::collection::vec(odd(), 1..30),
    ) {
        let mut world = deployed(&["acme/web", "beta/web"]);
        for odd in odd {
            match odd {
                Odd::Counted(bytes) => count(&mut world, bytes),
                Odd::Forgotten => world.card().counted.clear(),
                Odd::Send(a, b) => period(&mut world, &[("acme/web", a), ("beta/web", b)]),
                Odd::Pass(nanos) => world.pass(Duration::from_nanos(nanos)),
                Odd::Sample => world.handle(Event::Sample),
                Odd::Late(periods) => {
                    world.handle(Event::Sample);
                    for _ in 0..periods {
                        world.pass(PERIOD);
                        world.handle(Event::Sample);
                    }
                }
                Odd::Lost => {
                    world.lose_card();
                    world.appear(&card_id());
                }
            }
            world.settle();
            is_sound(&mut world);
        }
    }
}
