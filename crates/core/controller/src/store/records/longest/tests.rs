//! Every kind of record at its longest fits the store: what requests may ask for, and what the system adds to it without
//! being asked, such as placements, reasons and errors.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use snic_domain::limits::{
    BINDING_FUNCTIONS_MAX, CHAIN_SLOTS_MAX, DAG_BATCH_MAX, DAG_NODES_MAX, DESCRIPTION_BYTES_MAX,
    FUNCTION_MACS_MAX, FUNCTION_VLANS_MAX, REGIONS_MAX,
};
use snic_domain::{
    Area, Bandwidth, BindingSpec, BindingTarget, Bitstream, BitstreamId, BoundFunction, ByteSize,
    ChainExplanation, Cycles, DagSpec, DagUid, Description, Digest, Embedding, EmbeddingKind, Form,
    FormChoice, ID_CHARS_MAX, ImageSignature, Instance, KeptForTenant, MacAddress, Mapping,
    MemoryTraffic, Node, NodeId, Notes, NtConfiguration, NtNumber, NtType, NtTypeId, OperationId,
    PortLimits, Quota, RegionImage, RegionImages, RegionKind, Rejection, RejectionReason, Resource,
    Rule, RuleId, Shortage, Slot, Stage, Tenant, Timestamp, Traffic, VirtualChain, VmId,
};
use snic_ports::store::{KEY_BYTES_MAX, check_record};

use super::*;
use crate::SET_ASIDE_MAX;
use crate::decide::rows::DAG_INSTANCES_MAX;
use crate::protocol::{AssignedCard, DagMoves, FieldViolation, OperationWork};
use crate::state::dags::EXPLANATION_BYTES_MAX;
use crate::state::kept::KEPT_MAX;

/// Lengths of what is in a record, up to their limits.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    /// Characters of each id.
    id: usize,
    nodes: usize,
    instances: usize,
    /// Bytes of a spec as it is stored.
    spec: usize,
    /// Characters of a reason that a card, a driver or the system gives: there is no limit.
    reason: usize,
    /// Entries of each list of an error: there is no limit.
    list: usize,
}

const LONGEST: Lengths = Lengths {
    id: ID_CHARS_MAX,
    nodes: DAG_NODES_MAX,
    instances: DAG_INSTANCES_MAX,
    spec: DAG_SPEC_BYTES_MAX,
    reason: 4_000,
    list: 2_000,
};

fn lengths() -> impl Strategy<Value = Lengths> {
    let ranges = (
        2..=ID_CHARS_MAX,
        1..=DAG_NODES_MAX,
        1..=DAG_INSTANCES_MAX,
        prop_oneof![Just(DAG_SPEC_BYTES_MAX), 20_000..=DAG_SPEC_BYTES_MAX],
        prop_oneof![Just(0_usize), 0..4_000_usize],
        0..40_usize,
    );
    ranges.prop_map(|(id, nodes, instances, spec, reason, list)| Lengths {
        id,
        nodes,
        instances,
        spec,
        reason,
        list,
    })
}

impl Lengths {
    /// An id with this number at its end.
    fn id<T: std::str::FromStr>(&self, number: usize) -> T {
        let digits = number.to_string();
        let fill = "x".repeat(self.id.saturating_sub(1 + digits.len()));
        let text = format!("n{fill}{digits}");
        text.parse().unwrap_or_else(|_| panic!("{text} is a label"))
    }

    /// The id of something that a tenant owns.
    fn owned<T: std::str::FromStr>(&self, number: usize) -> T {
        let text = format!("{}.{}", self.id::<TenantId>(0), self.id::<TenantId>(number));
        text.parse().unwrap_or_else(|_| panic!("{text} is a name"))
    }

    fn dag_name(&self) -> DagName {
        DagName { tenant: self.id(0), dag: self.id(1) }
    }

    fn vm(&self) -> VmId {
        "123e4567-e89b-12d3-a456-426614174000".parse().expect("a UUID")
    }

    /// Control characters, which take six bytes in JSON.
    fn reason(&self) -> String {
        "\u{1}".repeat(self.reason)
    }

    fn notes(&self) -> Notes {
        let description = Description::new(&"\u{1}".repeat(DESCRIPTION_BYTES_MAX));
        Notes { description: description.expect("within the limit"), ..Notes::default() }
    }

    /// A spec that takes exactly as many bytes as wanted, or as many as its nodes do.
    fn spec(&self) -> DagSpec {
        let mut spec = DagSpec::chain(&[self.id(0)], Bandwidth::from_gbps(4_000));
        let node = |number: usize| Node::new(self.id(number), self.owned(number));
        spec.nodes = (0..self.nodes).map(node).collect();
        let configured = |bytes: usize| {
            let mut spec = spec.clone();
            spec.nodes[0].configuration = Some(NtConfiguration::new(&"x".repeat(bytes)));
            spec
        };
        let without = spec_bytes(&configured(0));
        configured(self.spec.saturating_sub(without))
    }

    fn mapping(&self) -> Mapping {
        let instance = |number: usize| Instance {
            region: RegionId(u8::try_from(number % REGIONS_MAX).expect("32 at most")),
            bitstream: self.owned(number),
            slots: (0..CHAIN_SLOTS_MAX).map(|slot| Slot(u8::try_from(slot).expect("8"))).collect(),
            bandwidth: Bandwidth::from_bps(u64::MAX),
        };
        let stage = |node: usize| {
            let own = (node..self.instances).step_by(self.nodes);
            let chain =
                VirtualChain { nodes: vec![self.id(node)], instances: own.map(instance).collect() };
            Stage { branches: vec![chain] }
        };
        Mapping {
            card: self.id(0),
            form: Form::Sequential,
            stages: (0..self.nodes).map(stage).collect(),
            programs: Vec::new(),
        }
    }

    fn placement(&self) -> Placement {
        Placement {
            serial: u64::MAX,
            generation: u64::MAX,
            spec: self.spec(),
            burst: Some(Bandwidth::from_bps(u64::MAX)),
            mapping: self.mapping(),
            stage_row: u16::MAX,
            chain_row: u16::MAX,
            instance_row: u16::MAX,
        }
    }

    /// A DAG that is being updated, with all that the system adds to what was asked for.
    fn dag(&self) -> DagRecord {
        DagRecord {
            name: self.dag_name(),
            uid: uid(),
            spec: self.spec(),
            generation: u64::MAX,
            placement: Some(self.placement()),
            previous: Some(self.placement()),
            created: LATE,
            updated: LATE,
            assigned: Some(AssignedCard { card: self.id(0), serial: u64::MAX }),
            unconfigured_nts: Some(UnconfiguredNts {
                card: self.id(0),
                at: (0..REGIONS_MAX as u8)
                    .flat_map(|region| (0..CHAIN_SLOTS_MAX as u8).map(move |slot| (region, slot)))
                    .collect(),
            }),
        }
    }

    fn shortage(&self) -> Shortage {
        Shortage {
            resource: Resource::IngressBandwidth,
            required: u64::MAX,
            available: u64::MAX,
            nodes: (0..self.nodes).map(|number| self.id::<NodeId>(number)).collect(),
            detail: self.reason(),
        }
    }

    fn explanation(&self) -> Explanation {
        let embedding = |number: usize| Embedding {
            kind: EmbeddingKind::VictimRegion,
            region: RegionId(31),
            bitstream: self.owned(number),
            bandwidth: Bandwidth::from_bps(u64::MAX),
            skipped: u8::MAX,
            interruptions: u32::MAX,
            reconfigurations: u32::MAX,
            new_regions: u32::MAX,
            passes: u32::MAX,
            unused_permille: u32::MAX,
            headroom: Bandwidth::from_bps(u64::MAX),
        };
        let rejection = Rejection {
            kind: EmbeddingKind::Split,
            reason: RejectionReason::Shortage(self.shortage()),
        };
        let chain = |node: usize| ChainExplanation {
            nodes: vec![self.id(node)],
            nts: vec![self.owned(node)],
            embeddings: (node..self.instances).step_by(self.nodes).map(embedding).collect(),
            rejected: vec![rejection.clone(); 3],
        };
        let form = FormChoice {
            chosen: Form::Sequential,
            sequential: Cycles::new(u64::MAX),
            parallel: Some(Cycles::new(u64::MAX)),
            // Text of the planner itself.
            reason: "x".repeat(1_000),
        };
        Explanation {
            form,
            chains: (0..self.nodes).map(chain).collect(),
            programs: Vec::new(),
            other_cards: Vec::new(),
        }
    }

    /// One error of each kind whose texts or lists come from elsewhere.
    fn errors(&self) -> Vec<ControlError> {
        let text = || self.reason();
        let field = FieldViolation { field: text(), description: text() };
        let refused = Infeasible { shortages: vec![self.shortage(); 1 + self.list.min(20)] };
        let error = Box::new(ControlError::Invalid(vec![field.clone(); 2]));
        vec![
            ControlError::Invalid(vec![field; 1 + self.list.min(20)]),
            ControlError::precondition(text(), text()),
            ControlError::Refused(refused),
            ControlError::NoCard(text()),
            ControlError::EtagMismatch { resource: text(), etag: text() },
            ControlError::Exhausted { what: text(), limit: u64::MAX, hint: text() },
            ControlError::Quota {
                tenant: text(),
                quota: text(),
                limit: text(),
                used: text(),
                asked: text(),
            },
            ControlError::InBatch { index: 31, failed: 32, total: 32, error },
        ]
    }
}

const LATE: Timestamp = Timestamp::from_nanos(u64::MAX);

fn uid() -> DagUid {
    DagUid::new(3, 7).expect("a row")
}

fn digest() -> Digest {
    Digest::of(b"image")
}

fn tenant(of: &Lengths) -> TenantRecord {
    let tenant = Tenant {
        id: of.id(0),
        weight: u32::MAX,
        quota: Quota::default(),
        notes: of.notes(),
        project: None,
    };
    let rejection = PastRejection {
        digest: digest(),
        reason: Some(storable_reason(of.reason())),
        at: LATE,
        times: u32::MAX,
    };
    TenantRecord {
        tenant,
        number: u16::MAX,
        generation: u64::MAX,
        created: LATE,
        updated: LATE,
        rejections: vec![rejection; crate::state::registry::rejections::REMEMBERED_MAX],
        fleet_number: Some(u64::MAX),
    }
}

fn nt(of: &Lengths) -> NtRecord {
    let nt = NtType {
        id: of.owned(0),
        shareable: true,
        bandwidth_max: Bandwidth::from_bps(u64::MAX),
        packets_per_second_max: Some(std::num::NonZeroU32::MAX),
        latency: Cycles::new(u64::MAX),
        area: Area { lut: u32::MAX, ramb36: u32::MAX, dsp: u32::MAX },
        memory: ByteSize::from_bytes(u64::MAX),
        memory_traffic: MemoryTraffic {
            bytes_per_packet: u32::MAX,
            bytes_per_packet_byte: u8::MAX,
        },
        state: ByteSize::from_bytes(u64::MAX),
        traffic: Traffic::Payload,
        description: "\u{1}".repeat(DESCRIPTION_BYTES_MAX),
        labels: Default::default(),
    };
    NtRecord { nt, number: NtNumber(u32::MAX), created: LATE, fleet_number: None }
}

/// A bitstream with an image for each region, each signed with ed25519.
fn bitstream(of: &Lengths) -> BitstreamRecord {
    let image = |region| RegionImage {
        digest: Digest::of(&[region]),
        size: ByteSize::from_bytes(u64::MAX),
        regions: vec![RegionId(region)],
        signature: Some(ImageSignature::new(
            &[0xff; 64],
            (0..REGIONS_MAX as u8).map(RegionId).collect(),
        )),
    };
    let mut images = RegionImages::from(image(0));
    for region in 1..REGIONS_MAX as u8 {
        images.add(image(region)).expect("another region");
    }
    let bitstream = Bitstream {
        id: of.owned(0),
        images,
        nts: (0..CHAIN_SLOTS_MAX).map(|number| of.owned(number)).collect(),
        region_kind: RegionKind::KnownNt,
        card_model: of.id(0),
        shareable: true,
        signed_by: None,
        notes: of.notes(),
        identity: None,
        modules: Vec::new(),
    };
    BitstreamRecord {
        bitstream,
        rejected: Some(storable_reason(of.reason())),
        rejected_at: Some(LATE),
        rejections: u32::MAX,
        created: LATE,
        fleet_number: Some(u64::MAX),
    }
}

fn saved(of: &Lengths) -> StateRecord {
    StateRecord {
        dag: of.dag_name(),
        uid: uid(),
        bitstream: of.owned::<BitstreamId>(0),
        digest: digest(),
        offset: u32::MAX,
        length: u32::MAX,
        boot_id: u32::MAX,
        phase: Phase::Saved(u32::MAX),
        since: LATE,
        attempts: 0,
    }
}

fn rule(of: &Lengths) -> RuleRecord {
    let rule = Rule {
        id: of.owned(0),
        priority: u16::MAX,
        matches: Default::default(),
        dag: of.dag_name(),
        notes: of.notes(),
    };
    RuleRecord {
        rule,
        card: of.id(0),
        row: u16::MAX,
        binding: Some(of.vm()),
        created: LATE,
        updates: u32::MAX,
        updated: Some(LATE),
    }
}

/// A reservation with the longest names and numbers.
fn kept(of: &Lengths) -> KeptRecord {
    let of = KeptForTenant {
        number: u64::MAX,
        revision: u64::MAX,
        tenant: of.id(0),
        vm: Some(of.vm()),
        card: of.id(0),
        functions: u32::MAX,
        used: u32::MAX,
        bandwidth: Bandwidth::from_bps(u64::MAX),
        lasts: Duration::MAX,
    };
    KeptRecord { of, ends: LATE }
}

/// One of each kind; errors have one each.
fn all(of: &Lengths) -> Vec<Record> {
    let (card, region) = (of.id::<CardId>(0), RegionId(31));
    let context = ResidentContext { bitstream: of.owned(0), dag: of.dag_name() };
    let faulty = Some(storable_reason(of.reason()));
    let mut records = vec![
        Record::Meta(Meta { schema: LAYOUT, secret: u64::MAX, operations: u64::MAX }),
        Record::Maintenance(Maintenance {
            reason: "r".repeat(500),
            by: of.id::<TenantId>(0).to_string(),
            since: LATE,
        }),
        Record::Kept(vec![kept(of); KEPT_MAX]),
        Record::Tenant(tenant(of)),
        Record::NtType(nt(of)),
        Record::Bitstream(bitstream(of)),
        Record::Dag(Box::new(of.dag())),
        Record::Explanation(of.dag_name(), storable(&of.explanation(), EXPLANATION_BYTES_MAX)),
        Record::Card(card.clone(), CardRecord { profile: crate::fixtures::profile(REGIONS_MAX) }),
        Record::Region(
            card.clone(),
            region,
            RegionRecord { bitstream: Some(of.owned(0)), cordoned: true, faulty },
        ),
        Record::ResidentContext(card.clone(), region, context),
        Record::PendingErase(card.clone(), region, PendingErase { uid: uid(), digest: digest() }),
        Record::SavedContext(card, saved(of)),
        Record::Rule(rule(of)),
        Record::Binding(binding(of)),
        Record::Refused(RefusedRecord { name: of.dag_name(), spec: of.spec(), at: LATE }),
        Record::Uid(u16::MAX, u32::MAX),
        Record::Revisions(u64::MAX),
        Record::Deletion(
            ResourceKey::Rule(of.owned::<RuleId>(0)),
            DeletionRecord { tenant: Some(of.id(0)), revision: u64::MAX, lost: u64::MAX },
        ),
    ];
    records.extend(of_usage(of));
    for error in of.errors() {
        records.extend(of_error(of, &storable_error(&error)));
    }
    records
}

fn binding(of: &Lengths) -> BindingRecord {
    let function = BoundFunction {
        card: of.id(0),
        function: u16::MAX,
        pci_address: "ffff:ff:1f.7".parse().expect("an address"),
        mac_address: MacAddress([0xff; 6]),
        dag: of.dag_name(),
        rule: of.owned(0),
    };
    let macs = usize::from(BINDING_FUNCTIONS_MAX) * FUNCTION_MACS_MAX;
    let spec = BindingSpec {
        vm: of.vm(),
        tenant: of.id(0),
        chains: BindingTarget::Dags(vec![of.dag_name(); BINDING_FUNCTIONS_MAX.into()]),
        functions: BINDING_FUNCTIONS_MAX,
        ready_within: Duration::MAX,
        lease: Some(Duration::MAX),
        notes: of.notes(),
        limits: PortLimits {
            mac_addresses: vec![MacAddress([0xff; 6]); macs],
            vlans: Some((4_000..).take(FUNCTION_VLANS_MAX).collect()),
            broadcasts_per_second: Some(u32::MAX),
        },
    };
    BindingRecord {
        functions: vec![function; BINDING_FUNCTIONS_MAX.into()],
        own: Some(of.dag_name()),
        reason: Some(storable_reason(of.reason())),
        ..BindingRecord::new(spec, LATE, LATE)
    }
}

/// A page of as many intervals as there can be, and all else that is stored of usage.
fn of_usage(of: &Lengths) -> Vec<Record> {
    let meters = snic_usage::Meter::all().count();
    let numbers: Vec<u64> = (0..meters as u64).map(|_| u64::MAX).collect();
    let known = || (0..20_u64).chain(22..39).chain(40..64);
    let amounts: Vec<u64> =
        known().zip(numbers).flat_map(|(number, amount)| [number, amount]).collect();
    assert_eq!((known().count(), amounts.len()), (meters, 2 * meters));
    let meters = known().fold(0_u64, |set, number| set | 1 << number);
    let first = [u64::MAX / 2, u64::MAX / 4, meters].into_iter().chain([u64::MAX; 61]);
    let next = [u64::MAX / 400, u64::MAX / 4, meters].into_iter().chain([u64::MAX; 61]);
    let nts: Vec<NtTypeId> = (0..64).map(|n| of.owned(n)).collect();
    let rests = vec![u64::MAX; nts.len() / 4];
    let instances: BTreeMap<&NtTypeId, u32> = nts.iter().map(|nt| (nt, u32::MAX)).collect();
    let outage = serde_json::json!({"start_ms": u64::MAX, "end_ms": u64::MAX, "cause": "configuration-refused"});
    let outages = vec![outage; 8];
    let page: Vec<u64> = first.chain(std::iter::repeat_n(next, 59).flatten()).collect();
    let account = serde_json::json!({
        "tenant": of.id::<TenantId>(0), "dag": of.id::<snic_domain::DagId>(0), "begun": u64::MAX, "ended": u64::MAX,
        "remainders": {"life": u64::MAX, "promised": u64::MAX, "regions": u64::MAX, "area": u64::MAX,
            "memory": u64::MAX, "functions": u64::MAX, "nts": rests},
        "nts": nts[..snic_usage::ACCOUNT_NTS_MAX], "promised_ms": u64::MAX, "outages": outages,
        "open": amounts.clone(), "fine": page,
    });
    // As many versions of prices as there are hours in a month would be; there are as many as fit.
    let month = serde_json::json!({"month": u64::MAX, "parts": vec![(u64::MAX, amounts); 31]});
    let most = [u64::MAX; snic_tables::DropCause::ALL.len()];
    let row = serde_json::json!({
        "uid": uid(), "account": {"rest": of.id::<TenantId>(0)}, "is_held": false, "seen": most[..4], "drops": most,
        "rates": {"promised": u64::MAX, "packets": u64::MAX, "regions": u32::MAX, "area": u64::MAX, "memory": u64::MAX,
            "functions": u32::MAX, "nts": instances}, "since": u64::MAX,
    });
    let strangers = vec![(u16::MAX, [u64::MAX; 4]); snic_domain::limits::DAG_ROWS];
    let card = serde_json::json!({
        "boot": u32::MAX, "is_read": false, "strangers": strangers,
        "clock": {"nanos": u64::MAX, "floor": u64::MAX, "cycles": u64::MAX, "rest": u64::MAX},
    });
    let name: CardId = of.id(0);
    let rest = format!("{name}/rest/{}", of.id::<TenantId>(0));
    let records = [
        (format!("usage/{rest}/m/{:012}", u64::MAX / 2 / 3_600 * 3_600), serde_json::json!(page)),
        (format!("usage-open/pages/{rest}/h"), serde_json::json!([])),
        (format!("usage-open/accounts/{rest}"), account),
        (format!("usage-open/months/{rest}"), month),
        (format!("usage-open/rows/{name}/{:04}", uid().row()), row),
        (format!("usage-open/cards/{name}"), card),
        ("usage-open/closed".to_owned(), serde_json::json!(u64::MAX)),
    ];
    let parse = |(key, value): (String, serde_json::Value)| {
        let value = serde_json::to_vec(&value).expect("JSON");
        Record::parse(&key, &value).unwrap_or_else(|error| panic!("{key}: {error}"))
    };
    records.into_iter().map(parse).collect()
}

/// The records that hold an error: an operation has one, a batch one for each of its DAGs.
fn of_error(of: &Lengths, error: &ControlError) -> [Record; 2] {
    let operation = OperationRecord {
        id: OperationId::new("op-1").expect("a label"),
        work: OperationWork::DeleteDag(of.dag_name(), Some(of.id(0))),
        created: LATE,
        started: Some(LATE),
        ended: Some((LATE, Err(error.clone()))),
        regions: Some((u32::MAX, u32::MAX)),
        moves: Some(DagMoves { made: u32::MAX, left: u32::MAX }),
    };
    let key =
        RequestKey { caller: format!("operator:{}", of.id::<TenantId>(0)), id: "r".repeat(64) };
    let made = CreatedResource::Batch(vec![Err(error.clone()); DAG_BATCH_MAX]);
    let request = RequestRecord { command: "c".repeat(64), made, at: LATE };
    [Record::Operation(operation), Record::Request(key, request)]
}

/// A number for each kind. Whoever adds one adds it to [`all`], too.
fn kind(record: &Record) -> u8 {
    match record {
        Record::Meta(_) => 0,
        Record::Maintenance(_) => 1,
        Record::Tenant(_) => 2,
        Record::NtType(_) => 3,
        Record::Bitstream(_) => 4,
        Record::Dag(_) => 5,
        Record::Explanation(..) => 6,
        Record::Card(..) => 7,
        Record::Region(..) => 8,
        Record::ResidentContext(..) => 9,
        Record::PendingErase(..) => 10,
        Record::SavedContext(..) => 11,
        Record::Rule(_) => 12,
        Record::Binding(_) => 13,
        Record::Operation(_) => 14,
        Record::Request(..) => 15,
        Record::Refused(_) => 16,
        Record::Uid(..) => 17,
        Record::Revisions(_) => 18,
        Record::Deletion(..) => 19,
        Record::Usage(_) => 20,
        Record::Kept(_) => 21,
    }
}

/// Checks a record as the store does, with its stamp; its key also where it is set aside.
fn check(record: &Record) -> Result<(), TestCaseError> {
    let (key, mut value) = (record.key().to_string(), record.encode());
    stamp(&mut value, Stamp { created: u64::MAX, changed: u64::MAX });
    let checked = check_record(&key, &value);
    prop_assert!(checked.is_ok(), "{} bytes of {}: {:?}", value.len(), key, checked);
    prop_assert!(set_aside_key(&key, SET_ASIDE_MAX).len() <= KEY_BYTES_MAX, "{}", key);
    Ok(())
}

#[test]
fn each_kind_of_record_fits_the_store_at_its_longest() {
    let records = all(&LONGEST);
    let kinds: BTreeSet<u8> = records.iter().map(kind).collect();
    assert_eq!(kinds.len(), 22, "{kinds:?}");
    for record in &records {
        check(record).expect("it fits");
    }
    // The limits have their reason: with a quarter more instances or bytes the record of a DAG would not fit.
    let more = [
        Lengths { instances: DAG_INSTANCES_MAX * 2, ..LONGEST },
        Lengths { spec: DAG_SPEC_BYTES_MAX / 4 * 5, ..LONGEST },
    ];
    for lengths in more {
        check(&Record::Dag(Box::new(lengths.dag()))).expect_err("too long");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// So does each at any other length, with any text of a card, a driver or the system in it.
    #[test]
    fn each_kind_of_record_fits_the_store(lengths in lengths()) {
        for record in &all(&lengths) {
            check(record)?;
        }
    }
}

#[test]
fn a_reason_is_cut_between_characters_and_a_short_one_stays() {
    for (reason, kept) in [("short", "short"), ("", "")] {
        assert_eq!(storable_reason(reason.to_owned()), kept);
    }
    for bytes in REASON_BYTES_MAX - 3..REASON_BYTES_MAX + 6 {
        let reason = format!("{}é", "x".repeat(bytes));
        let stored = storable_reason(reason.clone());
        assert!(stored.len() <= REASON_BYTES_MAX, "{} bytes", stored.len());
        match stored.strip_suffix('…') {
            Some(begin) => assert!(reason.starts_with(begin) && reason.len() > REASON_BYTES_MAX),
            None => assert_eq!(stored, reason),
        }
    }
}
