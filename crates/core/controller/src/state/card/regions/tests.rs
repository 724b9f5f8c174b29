//! The regions of a card against a card that loads well or badly.

use proptest::prelude::*;

use snic_tables::registers::LOAD_ERROR_MODULE;

use super::*;
use crate::fixtures::catalogue;

const REGIONS: usize = 3;

fn bitstream(id: &str) -> Bitstream {
    let id = BitstreamId::new(id).expect("a label");
    catalogue().bitstream(&id).expect("it is in the catalogue").clone()
}

/// Report of a region with the bitstream of this digest.
fn chain_of(digest: Digest) -> ReportedChain {
    let catalogue = catalogue();
    let bitstream =
        catalogue.bitstreams().find(|bitstream| bitstream.images.with_digest(digest).is_some());
    bitstream.expect("it is in the catalogue").reported_chain()
}

fn settings() -> ControllerSettings {
    ControllerSettings {
        load_attempts: 3,
        backoff: Duration::from_secs(1),
        ..ControllerSettings::default()
    }
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    /// Nothing, `aes` or `lb`.
    Desire(u8, Option<&'static str>),
    Use(u8, bool),
    Begin,
    Answer(Outcome),
    Lose,
    Reset(u8),
    Wait,
}

#[derive(Debug, Clone, Copy)]
enum Outcome {
    Well,
    Garbage,
    /// The bitstream has a module that cannot be run.
    Unusable,
    Untouched,
    NobodyKnows,
}

fn verb() -> impl Strategy<Value = Verb> {
    let content = prop::sample::select(vec![None, Some("aes"), Some("lb")]);
    let outcomes = [
        Outcome::Well,
        Outcome::Garbage,
        Outcome::Unusable,
        Outcome::Untouched,
        Outcome::NobodyKnows,
    ];
    let region = || 0u8..REGIONS as u8;
    prop_oneof![
        3 => (region(), content).prop_map(|(region, content)| Verb::Desire(region, content)),
        2 => (region(), any::<bool>()).prop_map(|(region, used)| Verb::Use(region, used)),
        4 => Just(Verb::Begin),
        4 => prop::sample::select(outcomes.to_vec()).prop_map(Verb::Answer),
        1 => Just(Verb::Lose),
        1 => region().prop_map(Verb::Reset),
        3 => Just(Verb::Wait),
    ]
}

/// The machine, the card, and who uses what.
struct World {
    regions: Regions,
    held: [RegionStatus; REGIONS],
    used: [bool; REGIONS],
    asked: Option<(Ticket, RegionId, Digest)>,
    /// Content of the region that is loaded before the load.
    before: RegionStatus,
    now: Timestamp,
    tickets: u64,
    /// When each failed last, and how often in a row.
    failed: [(Timestamp, u32); REGIONS],
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            regions: Regions::new(REGIONS),
            held: [RegionStatus::Empty; REGIONS],
            used: [false; REGIONS],
            asked: None,
            before: RegionStatus::Empty,
            now: Timestamp::from_nanos(1),
            tickets: 0,
            failed: [(Timestamp::ZERO, 0); REGIONS],
        };
        world.read_back();
        world
    }

    fn read_back(&mut self) {
        self.asked = None;
        self.regions.forget();
        let snapshot = |status: &RegionStatus| RegionSnapshot {
            status: *status,
            decoupled: false,
            was_decoupled: false,
            chain: match status {
                RegionStatus::Loaded(digest) => chain_of(*digest),
                _ => ReportedChain::default(),
            },
        };
        let snapshots: Vec<_> = self.held.iter().map(snapshot).collect();
        self.regions.adopt(&snapshots, |digest, chain| chain_of(digest) == *chain);
    }

    fn begin(&mut self) -> Option<RegionId> {
        let used = self.used;
        let is_used = |region: RegionId| used[region.index()];
        let next = self.regions.next_load(self.now, is_used, || |_| true)?;
        assert!(self.asked.is_none(), "two loads at a time");
        let entry = self.regions.get(next).expect("it has been chosen");
        assert!(entry.is_waiting() && entry.fault().is_none() && used[next.index()]);
        let (at, failures) = self.failed[next.index()];
        let wait = if failures == 0 { Duration::ZERO } else { settings().wait(failures) };
        assert!(self.now.since(at) >= wait, "{next} is tried too early");
        self.tickets += 1;
        let command = self.regions.begin(next, Ticket(self.tickets));
        let CardCommand::Load { ticket, region, digest, chain } = command else {
            panic!("{command:?}")
        };
        assert_eq!(chain, chain_of(digest));
        self.asked = Some((ticket, region, digest));
        // While it is loaded it holds neither.
        self.before = std::mem::replace(&mut self.held[region.index()], RegionStatus::Loading);
        Some(next)
    }

    fn answer(&mut self, outcome: Outcome) {
        let Some((ticket, region, digest)) = self.asked.take() else { return };
        let held = &mut self.held[region.index()];
        let result = match outcome {
            Outcome::Well => {
                *held = RegionStatus::Loaded(digest);
                Ok(Duration::from_millis(4))
            }
            Outcome::Garbage => {
                *held = RegionStatus::Broken;
                Err(LoadFailure::Controller { code: 1 })
            }
            Outcome::Unusable => {
                *held = RegionStatus::Broken;
                Err(LoadFailure::Controller { code: LOAD_ERROR_MODULE })
            }
            Outcome::Untouched => {
                *held = self.before;
                let waited = Duration::from_millis(1);
                Err(LoadFailure::DrainTimeout { packets: 1, waited })
            }
            Outcome::NobodyKnows => Err(LoadFailure::Timeout(Duration::from_millis(1))),
        };
        let is_well = result.is_ok();
        let stale = self.regions.ended(self.now, Ticket(0), result.clone(), &settings());
        assert_eq!(stale, LoadEnded::Stale);
        let failed = &mut self.failed[region.index()];
        *failed = if is_well { (self.now, 0) } else { (self.now, failed.1 + 1) };
        match self.regions.ended(self.now, ticket, result, &settings()) {
            LoadEnded::Loaded(load) => assert!(is_well && load.region == region),
            LoadEnded::Failed(_) => {
                assert!(failed.1 < settings().load_attempts);
                assert!(!matches!(outcome, Outcome::Unusable));
            }
            LoadEnded::Unusable { load, .. } => {
                assert!(matches!(outcome, Outcome::Unusable));
                self.regions.set_desired(load.region, None, self.now);
                *failed = (Timestamp::ZERO, 0);
            }
            LoadEnded::GivenUp { load, reason } => {
                assert!(failed.1 >= settings().load_attempts);
                self.regions.set_faulty(load.region, Some(reason), self.now);
                self.regions.set_desired(load.region, None, self.now);
                *failed = (Timestamp::ZERO, 0);
            }
            LoadEnded::Stale => panic!("it was under way"),
        }
        let observed = self.regions.get(region).map(Region::observed);
        if observed == Some(ObservedContent::Unknown) {
            self.read_back();
        }
    }

    fn carry_out(&mut self, verb: Verb) {
        let id = RegionId;
        match verb {
            Verb::Desire(region, content) => {
                let content = content.map(bitstream);
                let is_same = self.regions.get(id(region)).and_then(Region::bitstream)
                    == content.as_ref().map(|bitstream| &bitstream.id);
                if !is_same {
                    self.regions.set_desired(id(region), content.as_ref(), self.now);
                    self.failed[usize::from(region)] = (Timestamp::ZERO, 0);
                }
            }
            Verb::Use(region, used) => self.used[usize::from(region)] = used,
            Verb::Begin => {
                self.begin();
            }
            Verb::Answer(outcome) => self.answer(outcome),
            Verb::Lose => self.read_back(),
            Verb::Reset(region) => {
                self.regions.set_faulty(id(region), None, self.now);
                self.failed[usize::from(region)] = (Timestamp::ZERO, 0);
            }
            Verb::Wait => self.now = self.now + Duration::from_secs(1),
        }
    }
}

/// A region is to hold again what it held until a load of something else began.
#[test]
fn a_region_that_is_being_loaded_does_not_hold_what_it_held() {
    let mut world = World::new();
    let desire = |world: &mut World, content| world.carry_out(Verb::Desire(0, Some(content)));
    let is_loaded = |world: &World| world.regions.get(RegionId(0)).is_some_and(Region::is_loaded);
    world.carry_out(Verb::Use(0, true));
    desire(&mut world, "aes");
    world.begin();
    world.answer(Outcome::Well);
    assert!(is_loaded(&world));
    desire(&mut world, "lb");
    world.begin().expect("it holds something else");
    desire(&mut world, "aes");
    assert!(!is_loaded(&world), "packets would meet a load");
    let untouched = {
        let (ticket, ..) = world.asked.expect("it was asked");
        let failure = LoadFailure::DrainTimeout { packets: 1, waited: Duration::from_millis(1) };
        world.regions.ended(world.now, ticket, Err(failure), &settings())
    };
    assert!(matches!(untouched, LoadEnded::Failed(_)));
    assert!(is_loaded(&world), "it was not touched");
}

proptest! {
    /// Whatever happens in whatever order: one load at a time, of what is used and waits and not
    /// before its time; what is observed is what the card holds; and when it is quiet every region
    /// that is used holds what it is to hold, or is faulty.
    #[test]
    fn regions_in_use_are_loaded_or_given_up(verbs in prop::collection::vec(verb(), 0..60)) {
        let mut world = World::new();
        for verb in verbs {
            world.carry_out(verb);
            for (region, entry) in world.regions.iter() {
                if let ObservedContent::Holds(digest) = entry.observed() {
                    prop_assert_eq!(world.held[region.index()], RegionStatus::Loaded(digest));
                }
            }
        }
        for _ in 0..REGIONS * 2 {
            world.answer(Outcome::Well);
            world.now = world.now + Duration::from_secs(60);
            world.begin();
        }
        world.answer(Outcome::Well);
        for (region, entry) in world.regions.iter() {
            let waits = world.used[region.index()] && entry.is_waiting();
            prop_assert!(!waits || entry.fault().is_some(), "{region}: {entry:?}");
        }
    }
}

#[test]
fn a_region_waits_twice_as_long_after_each_failure_and_is_given_up() {
    let mut world = World::new();
    world.carry_out(Verb::Desire(0, Some("aes")));
    world.carry_out(Verb::Use(0, true));
    for seconds in [1, 2] {
        assert_eq!(world.begin(), Some(RegionId(0)));
        world.answer(Outcome::Garbage);
        let due = world.now + Duration::from_secs(seconds);
        assert_eq!(world.regions.deadlines().collect::<Vec<_>>(), [due]);
        assert_eq!(world.begin(), None);
        world.now = due;
    }
    assert_eq!(world.begin(), Some(RegionId(0)));
    world.answer(Outcome::Garbage);
    assert_eq!(world.regions.state(RegionId(0), false), RegionState::Faulty);
    let entry = world.regions.get(RegionId(0)).expect("there are three");
    assert_eq!((entry.condition(), entry.loads()), (RegionCondition::Faulty, 3));
}

#[test]
fn missing_bytes_are_not_the_regions_fault() {
    let mut world = World::new();
    world.carry_out(Verb::Desire(0, Some("aes")));
    world.carry_out(Verb::Use(0, true));
    for _ in 0..9 {
        world.now = world.now + Duration::from_secs(60);
        assert_eq!(world.begin(), Some(RegionId(0)));
        let (ticket, ..) = world.asked.take().expect("it was asked");
        let failure = Err(LoadFailure::NoBytes("gone".into()));
        let ended = world.regions.ended(world.now, ticket, failure, &settings());
        assert!(matches!(ended, LoadEnded::Failed(_)), "{ended:?}");
        world.failed[0] = (world.now, world.failed[0].1 + 1);
    }
}

#[test]
fn a_spare_is_loaded_when_nobody_waits_for_another_load() {
    let mut world = World::new();
    for region in [0, 1] {
        world.carry_out(Verb::Desire(region, Some("aes")));
    }
    assert_eq!(world.regions.next_load(world.now, |_| false, || |_| true), None);
    world.regions.keep_spare(RegionId(0));
    let next = |used: u8| world.regions.next_load(world.now, |r| r.0 == used, || |_| true);
    assert_eq!((next(9), next(1)), (Some(RegionId(0)), Some(RegionId(1))));
    let routed = world.regions.next_load(world.now, |_| false, || |region: RegionId| region.0 > 0);
    assert_eq!(routed, None, "packets may be sent there");
}
