use std::time::Duration;

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use snic_bitstream::catalogue;
use snic_bitstream::{EmbeddedModule, ModuleBuild};
use snic_card_sim::FrameId;
use snic_domain::{Bandwidth, CardModel, DagSpec, NtConfiguration, NtNumber, NtType, NtTypeId};
use snic_nts::config::InvalidConfiguration;
use snic_nts::{Emitted, InvalidModule, ModuleState, ModuleTask, Pool};
use snic_tables::DagConfiguration;

use super::*;

/// Modules that do what is written behind their name: `bad` cannot be compiled and the compiler panics over `odd`;
/// `slow` takes a millisecond for each packet and `wait` 30, `heavy` 3 for a configuration, and `told` drops what comes
/// before that; `one` and `two` forward two packets, and hand on how many they have had.
#[derive(Debug)]
struct Fake;

#[derive(Debug)]
struct FakeModule(&'static str);

struct FakeTask {
    kind: &'static str,
    told: bool,
    packets: u8,
}

impl ModuleRuntime for Fake {
    fn compile(&self, module: &[u8]) -> Result<Arc<dyn CompiledModule>, InvalidModule> {
        let is = |kind: &&&str| module.windows(kind.len()).any(|part| part == kind.as_bytes());
        match ["bad", "odd", "slow", "wait", "heavy", "told", "one", "two"].iter().find(is).copied()
        {
            Some("bad") => Err(InvalidModule("it is bad".to_owned())),
            Some("odd") => panic!("a mistake of the compiler"),
            kind => Ok(Arc::new(FakeModule(kind.unwrap_or_default()))),
        }
    }
}

impl CompiledModule for FakeModule {
    fn task(&self) -> Box<dyn ModuleTask> {
        Box::new(FakeTask { kind: self.0, told: false, packets: 0 })
    }
}

impl ModuleTask for FakeTask {
    fn configure(&mut self, _: &str) -> Result<(), InvalidConfiguration> {
        if self.kind == "heavy" {
            std::thread::sleep(Duration::from_millis(3));
        }
        self.told = true;
        Ok(())
    }

    fn process(&mut self, _: &mut Packet, _: &mut Context<'_>) -> Verdict {
        match self.kind {
            "slow" => std::thread::sleep(Duration::from_millis(1)),
            "wait" => std::thread::sleep(Duration::from_millis(30)),
            "told" if !self.told => return Verdict::Drop(DropReason::Module),
            "one" | "two" if self.packets == 2 => return Verdict::Drop(DropReason::Module),
            "one" | "two" => self.packets += 1,
            _ => {}
        }
        Verdict::Forward
    }

    fn save(&mut self) -> Option<ModuleState> {
        let keeps = ["one", "two"].contains(&self.kind);
        keeps.then(|| ModuleState { version: 1, bytes: [self.packets].into() })
    }

    fn restore(&mut self, state: ModuleState) {
        self.packets = state.bytes[0];
    }

    fn restarts(&self) -> u64 {
        0
    }
}

/// A bitstream of one NT, whose module has this text in it.
fn bitstream(kind: &str) -> Arc<[u8]> {
    let catalogue = catalogue::builtin().expect("the built-in catalogue");
    let card = catalogue.card(&CardModel::new("sim-16").expect("a label")).expect("it is there");
    let id = NtTypeId::new("acme.filter").expect("a label");
    let nt = NtType { id, ..catalogue.nt_types[0].clone() };
    let mut exports = vec![4];
    for (name, kind) in
        [("memory", 2), ("snic_abi_version", 0), ("snic_buffer", 0), ("snic_process", 0)]
    {
        exports.push(name.len() as u8);
        exports.extend(name.as_bytes());
        exports.extend([kind, 0]);
    }
    let mut bytes = [&b"\0asm\x01\0\0\0\x07"[..], &[exports.len() as u8], &exports].concat();
    bytes.extend([0, kind.len() as u8 + 1, 0]);
    bytes.extend(kind.as_bytes());
    let modules = [EmbeddedModule { slot: 0, nt: "acme.filter", bytes: &bytes }];
    let build = ModuleBuild { card, chain: &[&nt], modules: &modules, identity: None };
    build.build().expect("it fits").into()
}

struct Bench {
    modules: Modules,
    pool: Pool,
    emitted: Emitted,
    random: ChaCha8Rng,
    now: Timestamp,
}

const FORWARDED: Option<Verdict> = Some(Verdict::Forward);

fn uid(row: u16, incarnation: u32) -> DagUid {
    DagUid::new(row, incarnation).expect("it fits")
}

impl Bench {
    fn new() -> Self {
        let pool = Pool::new(4, 2_048);
        Self {
            modules: Modules::new(Some(Arc::new(Fake))),
            emitted: Emitted::new(pool.clone()),
            pool,
            random: ChaCha8Rng::seed_from_u64(1),
            now: Timestamp::from_nanos(1),
        }
    }

    fn load(&mut self, region: u8, kind: &str) -> Preparation {
        self.modules.load_began(region, &bitstream(kind));
        loop {
            match self.modules.preparation(region) {
                Preparation::UnderWay => std::thread::sleep(Duration::from_millis(1)),
                known => return known,
            }
        }
    }

    fn row(&mut self, tenant: u16, of: DagUid, json: Option<&str>) {
        let nt = NtTypeId::new("acme.filter").expect("a label");
        let mut spec = DagSpec::chain(&[nt], Bandwidth::from_gbps(1));
        spec.nodes[0].configuration = json.map(NtConfiguration::new);
        let configuration = DagConfiguration::of(of, &spec, |_| NtNumber(9));
        let row = DagRow {
            tenant,
            uid: of.raw(),
            first_stage: 0,
            stages: 1,
            rate_limiter: 0,
            payload: false,
            configuration: configuration.as_ref().map_or(0, DagConfiguration::tag),
            guest: None,
        };
        self.modules.row_is(&row, configuration.as_ref().map(DagConfiguration::bytes));
    }

    fn send(&mut self, region: u8, of: DagUid) -> Option<Verdict> {
        let mut packet = self.pool.copy_of(&[0; 60]).expect("a buffer");
        let passage = FrameAtNt {
            frame: FrameId(0),
            bytes: 60,
            nt: NtNumber(9),
            region,
            slot: 0,
            uid: of,
            now: self.now,
        };
        let mut context =
            Context { now: self.now, random: &mut self.random, emitted: &mut self.emitted };
        self.modules.process(&passage, &mut packet, &mut context)
    }
}

#[test]
fn packets_meet_the_module_of_their_region_and_no_other() {
    let mut bench = Bench::new();
    assert_eq!(bench.load(3, ""), Preparation::Ready);
    let dag = uid(1, 1);
    bench.row(1, dag, None);
    assert_eq!(bench.send(3, dag), FORWARDED);
    assert_eq!(bench.send(4, dag), None, "a region without modules");
    assert_eq!(bench.load(4, ""), Preparation::Ready);
    assert_eq!(bench.send(4, dag), FORWARDED);
    let seen: Vec<_> = bench.modules.observe().collect();
    assert_eq!((seen.len(), seen[0].received), (1, 2), "the same module, the same instance");
    assert_eq!((seen[0].nt_type.as_str(), seen[0].uid), ("acme.filter", dag.raw()));
    // Another load takes the module away, and brings it back with what the DAG had.
    bench.modules.emptied(3);
    assert_eq!(bench.send(3, dag), None);
    bench.load(3, "");
    bench.send(3, dag);
    assert_eq!(bench.modules.observe().next().map(|seen| seen.received), Some(3));
    bench.modules.clear();
    assert_eq!(bench.send(3, dag), None, "the power failed");
    assert_eq!(bench.load(3, ""), Preparation::Ready, "it compiles again");
}

#[test]
fn a_bitstream_that_cannot_be_run_is_refused_with_its_code() {
    let mut bench = Bench::new();
    assert_eq!(bench.load(0, "bad"), Preparation::Refused(LOAD_ERROR_MODULE));
    assert_eq!(bench.load(0, "odd"), Preparation::Refused(LOAD_ERROR_MODULE));
    assert_eq!(bench.load(0, ""), Preparation::Ready, "and the next one is taken");
    let mut without = Modules::new(None);
    without.load_began(0, &bitstream(""));
    assert_eq!(without.preparation(0), Preparation::Refused(LOAD_ERROR_NO_MODULES));
    assert_eq!(without.preparation(1), Preparation::Ready, "nothing was loaded there");
}

#[test]
fn a_configuration_reaches_the_module_before_and_after_its_first_packet() {
    let mut bench = Bench::new();
    bench.load(0, "told");
    let (early, late) = (uid(1, 1), uid(2, 1));
    bench.row(1, early, Some("{}"));
    assert_eq!(bench.send(0, early), FORWARDED);
    bench.row(1, late, None);
    assert_eq!(bench.send(0, late), Some(Verdict::Drop(DropReason::Module)));
    bench.row(1, late, Some("{}"));
    assert_eq!(bench.send(0, late), FORWARDED);
    bench.row(1, late, None);
    assert_eq!(bench.send(0, late), Some(Verdict::Drop(DropReason::Module)), "told nothing");
    // A row that comes back without its configurations has those that came with its tag before.
    bench.row(1, early, Some("{}"));
    assert_eq!(bench.send(0, early), FORWARDED);
}

#[test]
fn a_tenants_slow_module_is_not_called_beyond_its_share_and_others_are() {
    let mut bench = Bench::new();
    bench.load(0, "slow");
    bench.load(1, "");
    let (slow, other) = (uid(1, 1), uid(2, 1));
    bench.row(1, slow, None);
    bench.row(2, other, None);
    let over = Some(Verdict::Drop(DropReason::ModuleOverBudget));
    // A packet each 100 us for 100 ms: 10 ms at once, and a tenth of the rest.
    let mut called = 0;
    for _ in 0..1_000 {
        bench.now = bench.now + Duration::from_micros(100);
        let verdict = bench.send(0, slow);
        assert!(verdict == FORWARDED || verdict == over, "{verdict:?}");
        called += u32::from(verdict == FORWARDED);
        assert_eq!(bench.send(1, other), FORWARDED);
    }
    assert!((15..=21).contains(&called), "{called}");
    let seen: Vec<_> = bench.modules.observe().collect();
    let dropped = ("module_over_budget".to_owned(), u64::from(1_000 - called));
    assert_eq!(seen[0].dropped, [dropped]);
}

#[test]
fn a_call_that_waited_for_the_machine_does_not_use_up_a_budget() {
    let mut bench = Bench::new();
    bench.load(0, "wait");
    bench.row(1, uid(1, 1), None);
    assert_eq!([bench.send(0, uid(1, 1)), bench.send(0, uid(1, 1))], [FORWARDED; 2]);
}

#[test]
fn a_tenant_that_changes_its_configuration_again_and_again_has_its_share() {
    let mut bench = Bench::new();
    bench.load(0, "heavy");
    let dag = uid(1, 1);
    let mut told = 0;
    // A change and a packet each millisecond for 200 ms: 10 ms at once, and a tenth of the rest.
    for number in 0..200 {
        bench.now = bench.now + Duration::from_millis(1);
        bench.row(1, dag, Some(&format!("{number}")));
        told += u32::from(bench.send(0, dag) == FORWARDED);
    }
    assert!((7..=11).contains(&told), "{told} times 3 ms");
    bench.now = bench.now + Duration::from_secs(1);
    assert_eq!(bench.send(0, dag), FORWARDED, "with the last one");
}

#[test]
fn a_tenant_that_deletes_its_dag_and_makes_another_has_no_new_budget() {
    let mut bench = Bench::new();
    bench.load(0, "slow");
    let mut called = 0;
    for incarnation in 1..=20 {
        let dag = uid(1, incarnation);
        bench.row(1, dag, None);
        for _ in 0..20 {
            bench.now = bench.now + Duration::from_micros(100);
            bench.modules.expire(bench.now);
            called += u32::from(bench.send(0, dag) == FORWARDED);
        }
        bench.modules.row_is_gone(bench.now, 1);
    }
    assert!((10..=15).contains(&called), "{called} of 10 ms at once, and a tenth of 40 ms");
    bench.now = bench.now + PUT_BY;
    bench.modules.expire(bench.now);
    bench.now = bench.now + Duration::from_secs(1);
    bench.modules.expire(bench.now);
    assert!(bench.modules.budgets.is_empty(), "it owes nothing");
}

#[test]
fn a_tenant_has_so_many_instances_and_takes_none_of_others() {
    let mut bench = Bench::new();
    bench.load(0, "");
    let most = TENANT_INSTANCES_MAX as u16;
    for row in 0..=most {
        bench.row(1, uid(row, 1), None);
        let verdict = bench.send(0, uid(row, 1));
        let expected =
            if row < most { Verdict::Forward } else { Verdict::Drop(DropReason::ModuleNoRoom) };
        assert_eq!(verdict, Some(expected), "{row}");
    }
    bench.row(2, uid(100, 1), None);
    assert_eq!(bench.send(0, uid(100, 1)), FORWARDED, "another tenant has its own");
    // What is put by goes first, and what is put by for too long goes.
    bench.modules.row_is_gone(bench.now, 0);
    assert_eq!(bench.send(0, uid(most, 1)), FORWARDED);
    assert_eq!(bench.modules.instances.len(), TENANT_INSTANCES_MAX + 1);
    bench.modules.row_is_gone(bench.now, 1);
    bench.now = bench.now + PUT_BY;
    bench.modules.expire(bench.now);
    assert_eq!(bench.modules.instances.len(), TENANT_INSTANCES_MAX);
    // Another DAG in a row has nothing of the one before.
    bench.row(1, uid(2, 2), None);
    assert_eq!(bench.modules.instances.len(), TENANT_INSTANCES_MAX - 1);
    assert_eq!(
        bench.send(0, uid(2, 1)),
        Some(Verdict::Drop(DropReason::ModuleNoRoom)),
        "an old packet"
    );
}

const DROPPED: Option<Verdict> = Some(Verdict::Drop(DropReason::Module));

#[test]
fn another_module_in_its_place_begins_with_what_the_one_before_has_saved() {
    let mut bench = Bench::new();
    bench.load(0, "one");
    bench.load(1, "two");
    let (dag, other) = (uid(1, 1), uid(2, 1));
    bench.row(1, dag, None);
    bench.row(1, other, None);
    let verdicts = [0, 1, 0, 1].map(|region| bench.send(region, dag));
    assert_eq!(verdicts, [FORWARDED, FORWARDED, DROPPED, DROPPED], "two packets, whoever counts");
    assert_eq!(bench.send(1, other), FORWARDED, "another DAG has nothing of it");
    // A module that saves nothing ends it.
    bench.load(2, "");
    assert_eq!(bench.send(2, dag), FORWARDED);
    assert_eq!(bench.send(0, dag), FORWARDED, "it begins again");
}

#[test]
fn what_makes_room_is_saved_until_its_dag_comes_back_or_a_minute_is_over() {
    let mut bench = Bench::new();
    bench.load(0, "one");
    let most = TENANT_INSTANCES_MAX as u16;
    // Twice as many DAGs as a tenant has instances: those of the first half are away.
    for row in 0..2 * most {
        bench.row(1, uid(row, 1), None);
        assert_eq!([bench.send(0, uid(row, 1)), bench.send(0, uid(row, 1))], [FORWARDED; 2]);
        if row < most {
            bench.now = bench.now + Duration::from_nanos(1);
            bench.modules.row_is_gone(bench.now, row);
        }
    }
    assert_eq!(bench.modules.saved.len(), usize::from(most));
    bench.modules.row_is_gone(bench.now, most);
    bench.row(1, uid(0, 1), None);
    assert_eq!(bench.send(0, uid(0, 1)), DROPPED, "it knows that it has had two");
    bench.now = bench.now + PUT_BY;
    bench.modules.expire(bench.now);
    assert_eq!(bench.modules.saved.len(), 0);
    bench.modules.row_is_gone(bench.now, 0);
    bench.row(1, uid(1, 1), None);
    assert_eq!(bench.send(0, uid(1, 1)), FORWARDED, "away for too long");
    // Another DAG in the row has nothing of it.
    bench.modules.row_is_gone(bench.now, 1);
    bench.row(1, uid(2 * most, 1), None);
    assert_eq!(bench.send(0, uid(2 * most, 1)), FORWARDED);
    bench.modules.row_is_gone(bench.now, 2 * most);
    bench.row(1, uid(2 * most + 1, 1), None);
    assert_eq!(bench.send(0, uid(2 * most + 1, 1)), FORWARDED);
    assert_eq!(bench.modules.saved.len(), 3);
    bench.row(1, uid(1, 2), None);
    assert_eq!(bench.modules.saved.len(), 2, "another DAG in the row");
    bench.modules.clear();
    assert_eq!(bench.modules.saved.len(), 0, "the power failed");
}
