//! Demand outnumbers regions: chains that keep state give their regions to each other and get them
//! back, with packets on them, while wrappers fail, loads fail, the daemon dies and now and then the
//! card loses power. What must hold is in `states`.

use std::time::Duration;

use rand::Rng;
use snic_card_sim::Faults;
use snic_controller::{CallId, Command, Event, Request, StateFigures};
use snic_domain::{
    Bandwidth, Caller, DagId, DagName, DagSpec, NtTypeId, Quota, RegionId, Tenant, TenantId,
};

use crate::world::{CATALOGUE, World, card_id};

/// Seeds with each change and at night.
const SEEDS: u64 = 12;
const SEEDS_OF_A_NIGHT: u64 = 60;
/// The same with the policy, before a merge.
const POLICY_SEEDS: u64 = 2;
const POLICY_SEEDS_OF_CI: u64 = 12;
const PHASES: usize = 9;
/// Long enough to be calm for five monitor periods, and for what follows.
const PHASE: Duration = Duration::from_millis(110);
/// A DAG of each tenant: what it passes, and what it is promised in Gbit/s. Each has a region, and
/// one is left for who sends most.
const DAGS: [(&str, u64); 3] = [("cache", 15), ("lb", 30), ("aes", 8)];

fn name(number: usize) -> DagName {
    let tenant = TenantId::new(&format!("t{number}")).expect("a label");
    DagName { tenant, dag: DagId::new("web").expect("a label") }
}

fn ask(world: &mut World, command: Command) {
    let caller = Caller::Operator("simulation".into());
    let request = Box::new(Request { caller, request_id: None, command });
    world.handle(Event::Request { call: CallId(0), request });
}

fn set_up(world: &mut World) {
    let quota = Quota { bandwidth_max: Bandwidth::from_gbps(1_000), ..Quota::default() };
    for nt in CATALOGUE.nts.iter().cloned() {
        ask(world, Command::CreateNtType(nt));
    }
    for bitstream in CATALOGUE.bitstreams.iter().cloned() {
        ask(world, Command::CreateBitstream(bitstream));
    }
    for (number, (nt, gbps)) in DAGS.into_iter().enumerate() {
        let name = name(number);
        ask(
            world,
            Command::CreateTenant(Tenant {
                id: name.tenant.clone(),
                weight: 1,
                quota,
                notes: Default::default(),
                project: None,
            }),
        );
        let nt = NtTypeId::new(nt).expect("a label");
        let spec = DagSpec::chain(&[nt], Bandwidth::from_gbps(gbps));
        ask(world, Command::CreateDag { name, spec, validate_only: false });
    }
}

/// One after the other sends far more than it was promised.
fn change_loads(world: &mut World, phase: usize) {
    let busy = phase % DAGS.len();
    world.loads.fixed.clear();
    for number in 0..DAGS.len() {
        let Some(dag) = world.controller.dag_view(&name(number)) else { continue };
        let gbps = if number == busy { world.rng.random_range(50..=90) } else { 2 };
        world.loads.fixed.insert(dag.uid, Bandwidth::from_gbps(gbps));
    }
}

fn disturb(world: &mut World) {
    match world.rng.random_range(0..1_000) {
        0..4 => world.crash(),
        4 => world.power_cycle(),
        5..7 => {
            let odds = |p: f64, hit: bool| if hit { p } else { 0.0 };
            let faults = Faults {
                state_fails: odds(0.3, world.chance(50)),
                state_hangs: odds(0.1, world.chance(30)),
                load_fails: odds(0.2, world.chance(30)),
                ..Faults::default()
            };
            world.note(format_args!("{faults:?}"));
            world.set_faults(faults);
        }
        7 => world.set_faults(Faults::default()),
        8..10 => {
            let region = RegionId(world.rng.random_range(0..world.profile.regions.len() as u8));
            ask(world, Command::DrainRegion { card: card_id(), region });
        }
        10..14 => {
            let region = RegionId(world.rng.random_range(0..world.profile.regions.len() as u8));
            ask(world, Command::UndrainRegion { card: card_id(), region });
        }
        _ => {}
    }
}

fn take_next_steps(world: &mut World, time: Duration, disturbed: bool) {
    let end = world.now + time;
    while world.now < end {
        if disturbed {
            disturb(world);
        }
        world.open_card();
        let count = if world.chance(80) { usize::MAX } else { 1 };
        world.commit(count);
        world.keep_traffic();
        let micros = world.rng.random_range(100..1_500);
        world.pass(Duration::from_micros(micros));
        world.card.check().expect("the card's invariants");
    }
    world.replies.clear();
}

/// Runs a seed; says how often a region was switched again, what was restored, and what was done with
/// state by the last daemon.
fn run(seed: u64) -> (u64, u64, StateFigures) {
    let mut world = World::with_regions(seed, 4);
    set_up(&mut world);
    take_next_steps(&mut world, Duration::from_millis(40), false);
    for phase in 0..PHASES {
        change_loads(&mut world, phase);
        take_next_steps(&mut world, PHASE, !seed.is_multiple_of(4));
    }
    world.set_faults(Faults::default());
    world.loads.silent = true;
    for region in 0..4 {
        ask(&mut world, Command::UndrainRegion { card: card_id(), region: RegionId(region) });
    }
    take_next_steps(&mut world, Duration::from_millis(400), false);
    for _ in 0..20 {
        world.commit(usize::MAX);
        world.pass(Duration::from_millis(2));
    }
    crate::states::check_quiet(&world);
    let figures = world.controller.state_figures(&card_id()).expect("it was seen");
    (world.residency.followed, world.states.restored, figures)
}

#[test]
fn state_follows_its_dag_from_region_to_region() {
    if let Some(seed) = crate::number("SNIC_SEED") {
        println!("seed {seed}: {:?}", run(seed));
        return;
    }
    follow_states(SEEDS);
}

#[test]
#[ignore = "nightly: minutes"]
fn state_follows_its_dag_with_more_seeds() {
    follow_states(SEEDS_OF_A_NIGHT);
}

fn follow_states(seeds: u64) {
    let (mut switched, mut restored, mut undisturbed) = (0, 0, 0);
    for seed in 0..seeds {
        let (again, of_seed, figures) = run(seed);
        switched += again;
        restored += of_seed;
        if seed.is_multiple_of(4) {
            assert_eq!(figures.lost, 0, "seed {seed}: nothing failed, and state was lost");
            undisturbed += figures.restored;
        }
    }
    println!(
        "{switched} regions switched again, {restored} contexts restored, {undisturbed} of them where \
         nothing failed"
    );
    assert!(switched > seeds / 4, "residency was seldom asked for: {switched}");
    assert!(restored > seeds / 2 && undisturbed >= seeds / 8, "{restored}, {undisturbed}");
}

/// With a residency longer than any load takes, so that only the policy keeps what a region holds; and
/// with spares, which are given up for what is needed.
#[test]
fn a_region_keeps_what_it_was_given_as_long_as_the_policy_says() {
    keep_as_the_policy_says(POLICY_SEEDS);
}

#[test]
#[ignore = "ci: half a minute"]
fn a_region_keeps_what_it_was_given_with_more_seeds() {
    keep_as_the_policy_says(POLICY_SEEDS_OF_CI);
}

fn keep_as_the_policy_says(seeds: u64) {
    let switched: u64 = (0..seeds)
        .map(|seed| {
            let mut world = World::with_regions(seed, 4);
            set_up(&mut world);
            let mut settings = world.settings;
            settings.autoscaling.residency_periods = 8;
            settings.autoscaling.spare = true;
            world.handle(Event::Settings(Box::new(settings)));
            take_next_steps(&mut world, Duration::from_millis(40), false);
            for phase in 0..24 {
                change_loads(&mut world, phase);
                take_next_steps(&mut world, Duration::from_millis(30), false);
            }
            world.residency.followed
        })
        .sum();
    println!("{switched} regions switched again");
    assert!(switched >= seeds, "residency was seldom asked for: {switched}");
}
