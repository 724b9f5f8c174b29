//! Parts of a region that several tenants use: who came first keeps no more than its share.

use snic_controller::{Autoscaling, Command, ControllerSettings};
use snic_domain::Bandwidth;

use super::elastic::{kinds, periods, settings};
use crate::support::World;
use crate::support::things::{dag, tenant};

/// Three tenants with an NT that serves 10 Gbit/s, each promised one region; the fourth region is anybody's.
const NAMES: [&str; 3] = ["acme/web", "beta/web", "gamma/web"];

fn deployed(autoscaling: Autoscaling) -> World {
    let mut world = World::new();
    world.ask(Command::CreateTenant(tenant("gamma"))).expect("it is new");
    for name in NAMES {
        world.deploy(name, "aes", 10);
    }
    settings(&mut world, ControllerSettings { autoscaling, ..crate::support::settings() });
    periods(&mut world, 2, &NAMES.map(|name| (name, 0)));
    world
}

/// In Mbit/s.
fn holds(world: &World, name: &str) -> u64 {
    let all = world.controller.fairness(&dag(name).tenant);
    let mut dags = all.iter().flat_map(|view| &view.dags);
    let of = dags.find(|of| of.dag == dag(name)).expect("it is on a card");
    of.holds.get() / Bandwidth::from_mbps(1).get()
}

/// A third of four regions each is 13.3 Gbit/s; the first has taken 16 before the others sent anything.
#[test]
fn who_scaled_out_first_gives_back_what_is_beyond_its_share() {
    for context_switch in [false, true] {
        let mut world = deployed(Autoscaling { context_switch, ..Autoscaling::default() });
        periods(&mut world, 2, &[(NAMES[0], 16), (NAMES[1], 0), (NAMES[2], 0)]);
        assert_eq!(holds(&world, NAMES[0]), 16_000);
        periods(&mut world, 30, &NAMES.map(|name| (name, 16)));
        let held = NAMES.map(|name| holds(&world, name));
        assert!(held.iter().all(|mbps| (13_000..=13_400).contains(mbps)), "{held:?}");
        let (loads, before) = (world.card().loads.len(), kinds(&world).len());
        assert_eq!(loads, 4, "each region was loaded once");
        periods(&mut world, 100, &NAMES.map(|name| (name, 16)));
        let since = kinds(&world).split_off(before);
        assert_eq!((world.card().loads.len(), since), (loads, vec![]), "nothing goes to and fro");
    }
}
