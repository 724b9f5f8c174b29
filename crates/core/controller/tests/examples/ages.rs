//! Ages of usage: settings that count while the daemon runs and over a restart.

use std::time::Duration;

use snic_controller::{ControllerSettings, Event};
use snic_usage::{IntervalLevel, Retention};

use crate::support::World;

use super::bills::spend;

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

fn set(world: &mut World, usage_ages: Retention) {
    world.settings = ControllerSettings { usage_ages, ..world.settings };
    world.handle(Event::Settings(Box::new(world.settings)));
}

/// Age of the oldest page that readers find, in minutes.
fn age(world: &World, level: IntervalLevel) -> u64 {
    let view = world.controller.usage(None);
    (view.closed - view.kept.from(level)) / 60
}

/// Pages of ten seconds that are durable.
fn stored(world: &World) -> usize {
    let is_fine = |key: &&String| key.starts_with("usage/card") && key.contains("/f/");
    world.durable.keys().filter(is_fine).count()
}

/// Lets minutes pass in which the card is read once a minute.
fn minutes(world: &mut World, count: u32) {
    for _ in 0..count {
        world.pass(Duration::from_secs(60));
        world.handle(Event::Sample);
        world.settle();
    }
}

#[test]
fn ages_of_usage_change_with_the_policies_and_over_restarts() {
    let mut world = World::new();
    world.deploy("acme/web", "nat", 1);
    let long = Retention { fine: 3 * HOUR, minute: DAY, hour: 92 * DAY };
    set(&mut world, long);
    minutes(&mut world, 150);
    assert!((149..=151).contains(&stored(&world)), "{}", stored(&world));
    set(&mut world, Retention::default());
    minutes(&mut world, 5);
    assert!((59..=62).contains(&age(&world, IntervalLevel::Fine)), "an hour is kept");
    assert!((59..=64).contains(&stored(&world)), "{}", stored(&world));

    // What is gone does not come back with longer ages, not over a restart either.
    world.settings = ControllerSettings { usage_ages: long, ..world.settings };
    world.restart();
    minutes(&mut world, 30);
    let fine = age(&world, IntervalLevel::Fine);
    assert!(
        (88..=94).contains(&fine),
        "an hour that was kept, and half an hour more: {fine} minutes"
    );
    assert!((88..=95).contains(&stored(&world)), "{}", stored(&world));

    world.settings = ControllerSettings { usage_ages: Retention::default(), ..world.settings };
    world.restart();
    spend(&mut world, 200);
    assert!((59..=62).contains(&age(&world, IntervalLevel::Fine)));
    assert!((59..=64).contains(&stored(&world)), "{}", stored(&world));
}
