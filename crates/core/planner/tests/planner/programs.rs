//! Plans on a card with processors: what is chosen, what the ledger counts, what a refusal names.

use snic_domain::{
    Area, Bandwidth, ByteSize, CardId, Cycles, Dag, DagId, DagName, DagSpec, Infeasible,
    MemoryKind, NtType, NtTypeId, PacketSizes, ProcessorKind, Resource, TenantId,
};
use snic_planner::{Ledger, Plan, PlanCatalogue, PlanRequest, plan};
use snic_processors::{NicModel, builtin};

const MIB: u64 = 1 << 20;

fn bluefield() -> NicModel {
    let models = builtin().expect("our own files");
    models.into_iter().find(|model| model.model.as_str() == "bluefield-3").expect("it is there")
}

fn nt_id(id: &str) -> NtTypeId {
    NtTypeId::new(id).expect("a label")
}

fn catalogue(model: NicModel) -> PlanCatalogue {
    let mut catalogue = PlanCatalogue::new();
    for id in ["l2-reflector", "check-ip-header", "kv-aggregation", "nat", "table"] {
        catalogue.insert_nt(NtType::new(
            nt_id(id),
            Bandwidth::from_gbps(10),
            Cycles::new(10),
            Area { lut: 100, ramb36: 0, dsp: 0 },
        ));
    }
    catalogue.set_models([model]);
    catalogue
}

fn ledger() -> Ledger {
    let profile = bluefield().card_profile().expect("it can be a card");
    Ledger::new(CardId::new("dpu0").expect("a label"), profile)
}

fn name(dag: &str) -> DagName {
    let tenant = TenantId::new("acme").expect("a label");
    DagName { tenant, dag: DagId::new(dag).expect("a label") }
}

/// Packets of 1,024 bytes, as the study's.
fn dag(nts: &[&str], gbps: u64) -> Dag {
    let nts: Vec<NtTypeId> = nts.iter().map(|nt| nt_id(nt)).collect();
    let mut spec = DagSpec::chain(&nts, Bandwidth::from_gbps(gbps));
    spec.packet_sizes = PacketSizes::only(1_024);
    Dag::new(spec).expect("a chain")
}

fn planned(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    of: &str,
    dag: &Dag,
) -> Result<Plan, Infeasible> {
    plan(ledger, catalogue, &PlanRequest { name: &name(of), dag, previous: None })
}

#[test]
fn the_fewest_threads_that_keep_the_promise_are_taken_and_the_guideline_is_named() {
    let (ledger, catalogue) = (ledger(), catalogue(bluefield()));
    let plan = planned(&ledger, &catalogue, "web", &dag(&["l2-reflector"], 96)).expect("room");
    let [program] = &plan.mapping.programs[..] else { panic!("{:?}", plan.mapping) };
    assert!(plan.mapping.stages.is_empty() && plan.loads.is_empty());
    // 96 Gbit/s are 96 % of 100, a quarter of what 190 threads serve: 47.5, with packets in Arm memory.
    assert_eq!((program.processor, program.threads), (ProcessorKind::Dpa, 48));
    assert_eq!((program.network, program.working), (MemoryKind::Arm, MemoryKind::Arm));
    assert!(program.serves >= Bandwidth::from_gbps(100), "{}", program.serves);
    assert_eq!(program.latency, None, "nobody measured it");
    let [why] = &plan.explanation.programs[..] else { panic!("{:?}", plan.explanation) };
    assert!(why.chosen.contains("DPA, 48 threads, packets in Arm memory"), "{}", why.chosen);
    assert!(why.guidelines.iter().any(|line| line.starts_with("guideline 2")), "{why:?}");
    assert!(why.chosen.contains("by guideline 2"), "{}", why.chosen);
    assert!(why.chosen.contains("as good as DPA, 48 threads, packets in host memory"), "{why:?}");
    let dpa_memory = why.rejected.iter().find(|line| line.contains("packets in DPA memory"));
    let dpa_memory = dpa_memory.expect("it was looked at");
    assert!(dpa_memory.contains("50 Gbit/s at most"), "{dpa_memory}");
}

/// The reflector is measured by the study in Fig. 10 to be quickest on the DPA, with packets in its memory.
#[test]
fn a_dag_that_needs_low_latency_is_placed_by_guideline_1_which_is_named() {
    let (ledger, catalogue) = (ledger(), catalogue(bluefield()));
    let spec = DagSpec { latency_sensitive: true, ..dag(&["l2-reflector"], 24).spec().clone() };
    let sensitive = Dag::new(spec).expect("a chain");
    let plan = planned(&ledger, &catalogue, "web", &sensitive).expect("room");
    let [program] = &plan.mapping.programs[..] else { panic!("{:?}", plan.mapping) };
    // 25 of the 50 Gbit/s that 190 threads serve so; 12 would do with packets in Arm memory.
    assert_eq!((program.processor, program.threads), (ProcessorKind::Dpa, 95));
    assert_eq!((program.network, program.working), (MemoryKind::Dpa, MemoryKind::Dpa));
    let [why] = &plan.explanation.programs[..] else { panic!("{:?}", plan.explanation) };
    assert!(why.guidelines.iter().any(|line| line.starts_with("guideline 1")), "{why:?}");
    assert!(why.chosen.contains("decided by guideline 1"), "{}", why.chosen);
    let plan = planned(&ledger, &catalogue, "web", &dag(&["l2-reflector"], 24)).expect("room");
    assert_eq!(plan.mapping.programs[0].threads, 12);
    assert_eq!(plan.mapping.programs[0].network, MemoryKind::Arm);
}

/// DPA memory receives as many packets of 64 bytes as of 1,024: 50 Gbit/s of these.
#[test]
fn small_packets_take_of_reception_what_large_ones_take() {
    let mut model = bluefield();
    model.implementations.retain(|one| one.on == ProcessorKind::Dpa);
    for one in &mut model.implementations {
        one.points.retain(|point| point.network == MemoryKind::Dpa);
        one.points.iter_mut().for_each(|point| point.threads = 20.try_into().expect("not zero"));
    }
    let (mut ledger, catalogue) = (ledger(), catalogue(model));
    let small = |mbps| {
        let spec = dag(&["l2-reflector"], 1).spec().clone();
        let (packet_sizes, bandwidth) = (PacketSizes::only(64), Bandwidth::from_mbps(mbps));
        Dag::new(DagSpec { packet_sizes, bandwidth, ..spec }).expect("a chain")
    };
    let first = planned(&ledger, &catalogue, "a", &small(1_500)).expect("room");
    ledger.hold(&name("a"), first.reservation.clone()).expect("planned");
    let headroom = ledger.headroom(&name("a"));
    let of = headroom.iter().find(|left| left.resource == Resource::ReceiveBandwidth);
    let of = of.expect("it is held");
    assert_eq!((of.held, of.available), (24_000_000_000, 26_000_000_000));
    let refusal = planned(&ledger, &catalogue, "b", &small(1_650)).expect_err("26.4 of 26");
    let short = &refusal.shortages[0];
    assert_eq!(short.resource, Resource::ReceiveBandwidth, "{refusal}");
    assert!(planned(&ledger, &catalogue, "b", &small(1_500)).is_ok());
}

#[test]
fn threads_are_counted_until_they_are_short_and_come_back() {
    let (mut ledger, catalogue) = (ledger(), catalogue(bluefield()));
    let wide = dag(&["l2-reflector"], 96);
    let mut of_kind = Vec::new();
    let mut taken = 0;
    let refusal = loop {
        let name = format!("d{taken}");
        match planned(&ledger, &catalogue, &name, &wide) {
            Ok(plan) => {
                of_kind.push(plan.mapping.programs[0].processor);
                ledger.hold(&self::name(&name), plan.reservation).expect("it was planned so");
                ledger.check().expect("sound");
                taken += 1;
            }
            Err(refusal) => break refusal,
        }
    };
    // The line: four of 96 Gbit/s are 384 of 400. The ingress is short before threads are.
    assert_eq!(taken, 4, "{of_kind:?}");
    assert_eq!(refusal.shortages[0].resource, Resource::IngressBandwidth, "{refusal}");
    let all: u32 = ProcessorKind::ALL.iter().map(|kind| ledger.threads_used(*kind)).sum();
    assert!(all > 0);
    for number in 0..taken {
        ledger.release(&name(&format!("d{number}"))).expect("it is held");
    }
    assert!(ProcessorKind::ALL.iter().all(|kind| ledger.threads_used(*kind) == 0));
    ledger.check().expect("sound");
}

#[test]
fn a_refusal_names_the_threads_that_are_short() {
    let (mut ledger, catalogue) = (ledger(), catalogue(bluefield()));
    // Each of four NTs has threads of its own: two of 144 Gbit/s for 8 NTs do not fit.
    let chain = ["l2-reflector", "check-ip-header", "l2-reflector", "check-ip-header"];
    let chain = dag(&chain, 96);
    let first = planned(&ledger, &catalogue, "a", &chain).expect("room");
    let threads = |plan: &Plan, kind| -> u32 {
        let of = plan.mapping.programs.iter().filter(|program| program.processor == kind);
        of.map(|program| program.threads).sum()
    };
    let dpa = threads(&first, ProcessorKind::Dpa);
    ledger.hold(&name("a"), first.reservation.clone()).expect("planned");
    assert_eq!(ledger.threads_used(ProcessorKind::Dpa), dpa);
    let mut last = None;
    for of in ["b", "c", "d"] {
        match planned(&ledger, &catalogue, of, &chain) {
            Ok(plan) => ledger.hold(&name(of), plan.reservation).expect("planned"),
            Err(refusal) => {
                last = Some(refusal);
                break;
            }
        }
    }
    let refusal = last.expect("16 programs of a quarter of a processor do not fit on three");
    let short = &refusal.shortages[0];
    assert_eq!(short.resource, Resource::Threads, "{refusal}");
    assert!(short.required > short.available && !short.nodes.is_empty(), "{short:?}");
    assert!(short.detail.contains("thread"), "{short:?}");
    // What was planned for an empty card is refused by the ledger as well.
    let over = ledger.hold(&name("late"), first.reservation).expect_err("overbooked");
    assert_eq!(over.resource, Resource::Threads, "{over}");
    ledger.check().expect("sound");
}

#[test]
fn what_nobody_measured_is_refused_as_such() {
    let (ledger, catalogue) = (ledger(), catalogue(bluefield()));
    for (nt, word) in [("nat", "nobody measured one here"), ("kv-aggregation", "nobody measured")] {
        let refusal = planned(&ledger, &catalogue, "x", &dag(&[nt], 1)).expect_err("unknown");
        let short = &refusal.shortages[0];
        assert_eq!((short.resource, short.available), (Resource::NtBandwidth, 0), "{refusal}");
        assert!(short.detail.contains(word), "{short:?}");
    }
    let over = planned(&ledger, &catalogue, "x", &dag(&["l2-reflector"], 390)).expect_err("96 %");
    assert_eq!(over.shortages[0].resource, Resource::NtBandwidth, "{over}");
    assert!(planned(&ledger, &catalogue, "x", &dag(&["l2-reflector"], 384)).is_ok());
}

/// A model with one program whose working set is large, in memories of 64 MiB.
fn with_a_table() -> NicModel {
    let text = format!(
        r#"
        [[models]]
        model = "bluefield-3"
        vendor = "x"
        name = "x"
        architecture = "soc"
        line_bps = 100_000_000_000
        pcie = "x"
        [models.card]
        clock_hz = 1_000_000_000
        width_bits = 512
        packet_store_bytes = 1_048_576
        memory_bytes = 1_048_576
        [[models.processors]]
        kind = "arm"
        name = "x"
        threads = 8
        [[models.processors.memories]]
        memory = "arm"
        size_bytes = {}
        receive_bps = 12_000_000_000
        send_bps = 100_000_000_000
        read_bytes_per_second = 100_000_000_000
        write_bytes_per_second = 100_000_000_000
        [[models.implementations]]
        nt = "table"
        on = "arm"
        parallel = true
        working_set_bytes = {}
        work = {{ thread_nanos = 1_000, working_read_permille = 100 }}
        "#,
        64 * MIB,
        40 * MIB,
    );
    snic_processors::parse("x.toml", &text).expect("a model").remove(0)
}

#[test]
fn memory_and_reception_are_counted_and_named() {
    let model = with_a_table();
    let profile = model.card_profile().expect("a card");
    let catalogue = catalogue(model);
    let mut ledger = Ledger::new(CardId::new("dpu0").expect("a label"), profile.clone());
    let one = dag(&["table"], 4);
    let first = planned(&ledger, &catalogue, "a", &one).expect("room");
    assert_eq!(first.mapping.programs[0].working_set, ByteSize::from_mib(40));
    ledger.hold(&name("a"), first.reservation.clone()).expect("planned");
    let short = planned(&ledger, &catalogue, "b", &one).expect_err("two tables of 40 MiB in 64");
    assert_eq!(short.shortages[0].resource, Resource::ProgramMemory, "{short}");
    assert_eq!((short.shortages[0].required, short.shortages[0].available), (40 * MIB, 24 * MIB));
    let over = ledger.hold(&name("b"), first.reservation).expect_err("overbooked");
    assert_eq!(over.resource, Resource::ProgramMemory);
    let headroom = ledger.headroom(&name("a"));
    let of = |resource| headroom.iter().find(|left| left.resource == resource).expect("it is held");
    assert_eq!(
        (of(Resource::ProgramMemory).held, of(Resource::ProgramMemory).available),
        (40 * MIB, 24 * MIB)
    );
    assert_eq!(of(Resource::ReceiveBandwidth).held, Bandwidth::from_gbps(4).get());
    assert_eq!(u64::from(first.mapping.programs[0].threads), of(Resource::Threads).held);
    // The whole card is its own again when an update replaces the DAG.
    assert!(planned(&ledger, &catalogue, "a", &dag(&["table"], 5)).is_ok());
}
