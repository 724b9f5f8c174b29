//! Interplay of several machines, on a card that answers when it is told to: without a controller, its
//! requests, its log or its outbox.

use std::time::Duration;

use snic_domain::{
    Bandwidth, Bitstream, BitstreamId, CardId, CardModel, DagName, DagSpec, DagState, Digest,
    Match, NtType, OperationId, Quota, RegionId, RegionImages, RegionKind, ReportedChain, Rule,
    RuleId, Tenant, TenantId, Timestamp, VmId,
};
use snic_planner::Objective;
use snic_tables::registers::LOAD_ERROR_MODULE;
use snic_tables::{
    CardCommand, CardReport, CardSnapshot, LoadFailure, ProgramFailure, RegionSnapshot,
    RegionStatus, Table, TableImage,
};

use super::Core;
use crate::fixtures::{catalogue, gbps, name, nt_id, profile};
use crate::place::{classification, contents, drains, placement, work};
use crate::protocol::{Caller, ControlError, ControllerSettings, Effect, OperationWork, Reply};
use crate::react::{reconcile, reports};
use crate::request::{lifecycle, removals};
use crate::restart::check;
use crate::state::card::{CardMachine, ConnectionState, ObservedContent};
use crate::state::dags::DagEntry;
use crate::state::operations::Operations;
use crate::store::records::{LAYOUT, Meta};
use crate::store::tx::Tx;
use crate::view::{quotas, views};

const NOW: Timestamp = Timestamp::from_nanos(5_000_000_000);

fn card() -> CardId {
    CardId::new("card0").expect("a label")
}

fn tenant(id: &str) -> TenantId {
    TenantId::new(id).expect("a label")
}

/// All machines, with the tenant `acme`, the NTs `aes` and `lb` with a bitstream each, and one card.
struct Rig {
    core: Core,
    tx: Tx,
    version: u32,
}

impl Rig {
    /// The card was never opened.
    fn silent(regions: usize) -> Self {
        let meta = Meta { schema: LAYOUT, secret: 7, operations: 0 };
        let operations = Operations::new(meta, true);
        let mut core = Core::new(ControllerSettings::default(), operations, 7, NOW);
        let mut tx = Tx::at(NOW);
        let acme = Tenant {
            id: tenant("acme"),
            weight: 1,
            quota: Quota::default(),
            notes: Default::default(),
            project: None,
        };
        core.registry.create_tenant(&mut tx, acme).expect("a new one");
        let operator = Caller::Operator("ada".into());
        for id in ["aes", "lb"] {
            let nt = catalogue().nt(&nt_id(id)).expect("it is in the catalogue").clone();
            core.registry.create_nt(&mut tx, &operator, nt).expect("a new one");
            core.registry.create_bitstream(&mut tx, &operator, bitstream(id)).expect("a new one");
        }
        let machine = CardMachine::new(card(), profile(regions), Objective::default());
        core.cards.add(card(), machine);
        core.loops.add(card());
        Self { core, tx: Tx::at(NOW), version: 1 }
    }

    /// The card is empty, and has said so.
    fn new(regions: usize) -> Self {
        let mut rig = Self::silent(regions);
        reports::card_appeared(&mut rig.core, &mut rig.tx, card(), profile(regions));
        rig.follow_up();
        rig.answer();
        rig.settle();
        rig
    }

    fn create(&mut self, id: &str, nt: &str, rate: Bandwidth) -> Result<Reply, ControlError> {
        let spec = DagSpec::chain(&[nt_id(nt)], rate);
        let reply = lifecycle::create_dag(&mut self.core, &mut self.tx, name(id), spec, false);
        self.follow_up();
        reply
    }

    /// Follows up on changes, and checks every invariant.
    fn follow_up(&mut self) {
        reconcile::reconcile(&mut self.core, &mut self.tx);
        crate::react::usage::follow(&mut self.core, &mut self.tx);
        self.core.cards.known(&card()).check().expect("the card is consistent");
        check::check(&self.core).expect("the machines agree");
    }

    /// The steps that the card was asked for and has not been seen to do.
    fn asked(&mut self) -> Vec<CardCommand> {
        let effects = std::mem::take(&mut self.tx).into_parts().effects;
        self.tx = Tx::at(self.core.now());
        let command = |effect| match effect {
            Effect::Card { command, .. } => Some(command),
            _ => None,
        };
        effects.into_iter().filter_map(command).collect()
    }

    fn report(&mut self, report: CardReport) {
        reports::card_reported(&mut self.core, &mut self.tx, &card(), report);
        self.follow_up();
    }

    /// The card does what it was asked for; gives how much that was.
    fn answer(&mut self) -> usize {
        let asked = self.asked();
        let count = asked.len();
        for command in asked {
            let report = self.done(command);
            self.report(report);
        }
        count
    }

    fn done(&mut self, command: CardCommand) -> CardReport {
        match command {
            CardCommand::ReadBack { ticket, .. } => {
                let profile = self.core.cards.known(&card()).profile().clone();
                let (status, chain) = (RegionStatus::Empty, ReportedChain::default());
                let empty =
                    RegionSnapshot { status, decoupled: false, was_decoupled: false, chain };
                let snapshot = CardSnapshot {
                    boot_id: 1,
                    idcode: profile.idcode,
                    version: self.version,
                    tables: TableImage::default(),
                    regions: vec![empty; profile.regions.len()],
                    configures: None,
                    passes_through: false,
                    guards: true,
                };
                CardReport::ReadBack { ticket, snapshot: Box::new(snapshot) }
            }
            CardCommand::Program { ticket, .. } => {
                self.version += 1;
                CardReport::Programmed {
                    ticket,
                    result: Ok(self.version),
                    unconfigured: Vec::new(),
                }
            }
            CardCommand::Load { ticket, region, .. } => {
                CardReport::Loaded { ticket, region, result: Ok(Duration::from_millis(5)) }
            }
            other => panic!("nothing here asks for {other:?}"),
        }
    }

    /// The card does all that it is asked for.
    fn settle(&mut self) {
        for _ in 0..50 {
            if self.answer() == 0 {
                return;
            }
        }
        panic!("it never becomes quiet");
    }

    fn region(&self, region: u8) -> (Option<String>, ObservedContent) {
        let entry =
            self.core.cards.known(&card()).region(RegionId(region)).expect("the card has it");
        (entry.bitstream().map(ToString::to_string), entry.observed())
    }

    fn state(&self, id: &str) -> DagState {
        views::view_of(&self.core, self.core.dags.known(&name(id))).state
    }

    fn rule(&mut self, id: &str, dag: DagName) -> Result<Reply, ControlError> {
        let matches = Match { vni: Some(9), ..Match::default() };
        let rule = Rule {
            id: RuleId::new(id).expect("a label"),
            priority: 3,
            matches,
            dag,
            notes: Default::default(),
        };
        classification::install_rule(&mut self.core, &mut self.tx, rule, None::<VmId>)
    }

    fn rows(&self, table: Table) -> usize {
        self.core.cards.known(&card()).tables().active().rows_used(table)
    }
}

fn bitstream(id: &str) -> Bitstream {
    Bitstream {
        id: BitstreamId::new(id).expect("a label"),
        images: RegionImages::for_all(
            Digest::of(id.as_bytes()),
            snic_domain::ByteSize::from_bytes(8_192),
        ),
        nts: vec![nt_id(id)],
        region_kind: RegionKind::KnownNt,
        card_model: CardModel::new("tiny").expect("a label"),
        shareable: true,
        signed_by: None,
        modules: Vec::new(),
        notes: Default::default(),
        identity: None,
    }
}

fn operation(reply: Result<Reply, ControlError>) -> OperationId {
    match reply {
        Ok(Reply::Operation(view)) => view.record.id,
        other => panic!("no operation: {other:?}"),
    }
}

#[test]
fn a_dag_is_loaded_then_written_then_ready() {
    let mut rig = Rig::new(2);
    let id = operation(rig.create("web", "aes", gbps(5)));
    let [CardCommand::Load { region: RegionId(0), digest, ticket, .. }] = rig.asked()[..] else {
        panic!("one load is asked for")
    };
    assert_eq!(digest, Digest::of(b"aes"));
    assert_eq!(rig.state("web"), DagState::Provisioning);
    let result = Ok(Duration::from_millis(5));
    rig.report(CardReport::Loaded { ticket, region: RegionId(0), result });
    assert_eq!(rig.region(0), (Some("aes".into()), ObservedContent::Holds(digest)));
    let asked = rig.asked();
    let [CardCommand::Program { ticket, .. }] = asked[..] else { panic!("one commit: {asked:?}") };
    assert_eq!(rig.state("web"), DagState::Provisioning, "its rows are not on the card");
    rig.report(CardReport::Programmed { ticket, result: Ok(2), unconfigured: Vec::new() });
    assert_eq!(rig.state("web"), DagState::Ready);
    let record = rig.core.operations.get(&id).expect("it is remembered");
    assert!(matches!(&record.ended, Some((_, Ok(())))), "{record:?}");
    assert_eq!(rig.rows(Table::Dag), 1);
}

#[test]
fn no_row_is_written_while_its_region_is_loaded_and_no_load_begins_while_a_row_leads_there() {
    let mut rig = Rig::new(1);
    operation(rig.create("web", "aes", gbps(5)));
    rig.settle();
    lifecycle::delete_dag(&mut rig.core, &mut rig.tx, &name("web"));
    rig.create("api", "lb", gbps(5)).expect("the region is free for it");
    let asked = rig.asked();
    let [CardCommand::Program { ticket, .. }] = asked[..] else {
        panic!("first the rows leave: {asked:?}")
    };
    assert_eq!(rig.region(0).0, Some("lb".into()), "what it is to hold is known already");
    rig.report(CardReport::Programmed { ticket, result: Ok(9), unconfigured: Vec::new() });
    let asked = rig.asked();
    assert!(matches!(asked[..], [CardCommand::Load { region: RegionId(0), .. }]), "{asked:?}");
}

#[test]
fn a_card_that_was_never_opened_is_planned_on_and_asked_for_nothing() {
    let mut rig = Rig::silent(1);
    rig.create("web", "aes", gbps(5)).expect("a place is known");
    assert_eq!(rig.asked(), []);
    assert!(matches!(rig.core.cards.known(&card()).connection(), ConnectionState::Absent(_)));
    reports::card_appeared(&mut rig.core, &mut rig.tx, card(), profile(1));
    rig.follow_up();
    rig.settle();
    assert_eq!(rig.state("web"), DagState::Ready);
}

#[test]
fn reports_of_an_earlier_session_say_nothing() {
    let mut rig = Rig::new(1);
    rig.create("web", "aes", gbps(5)).expect("there is room");
    let [CardCommand::Load { ticket, region, .. }] = rig.asked()[..] else { panic!("one load") };
    rig.report(CardReport::Lost { reason: "it does not answer".into() });
    assert_eq!(rig.region(0).1, ObservedContent::Unknown, "it may be anything by now");
    rig.report(CardReport::Loaded { ticket, region, result: Ok(Duration::ZERO) });
    rig.report(CardReport::Programmed { ticket, result: Ok(7), unconfigured: Vec::new() });
    assert_eq!(rig.region(0).1, ObservedContent::Unknown);
    assert_eq!(rig.asked(), [], "nothing is asked of a card that is lost");
    reports::card_appeared(&mut rig.core, &mut rig.tx, card(), profile(1));
    rig.follow_up();
    rig.settle();
    assert_eq!(rig.state("web"), DagState::Ready);
}

#[test]
fn a_card_with_another_idcode_or_fewer_regions_is_not_used() {
    for wrong in ["idcode", "regions"] {
        let mut rig = Rig::silent(2);
        reports::card_appeared(&mut rig.core, &mut rig.tx, card(), profile(2));
        rig.follow_up();
        let command = rig.asked().remove(0);
        let CardReport::ReadBack { ticket, mut snapshot } = rig.done(command) else {
            panic!("it was asked what it holds")
        };
        match wrong {
            "idcode" => snapshot.idcode = 0xDEAD_BEEF,
            _ => snapshot.regions.truncate(1),
        }
        rig.report(CardReport::ReadBack { ticket, snapshot });
        let ConnectionState::Absent(reason) = rig.core.cards.known(&card()).connection() else {
            panic!("another {wrong} is not this card")
        };
        assert!(reason.contains("its profile says 0x14b31093 and 2"), "{reason}");
    }
}

#[test]
fn a_commit_that_failed_has_the_card_read_again_before_anything_else() {
    let mut rig = Rig::new(1);
    rig.create("web", "aes", gbps(5)).expect("there is room");
    rig.answer();
    let asked = rig.asked();
    let [CardCommand::Program { ticket, .. }] = asked[..] else { panic!("one commit: {asked:?}") };
    let failure = ProgramFailure::ReadBack { rows: 3 };
    rig.report(CardReport::Programmed { ticket, result: Err(failure), unconfigured: Vec::new() });
    let asked = rig.asked();
    assert!(matches!(asked[..], [CardCommand::ReadBack { .. }]), "{asked:?}");
    assert_eq!(rig.state("web"), DagState::Provisioning, "what the card does is not known");
    rig.settle();
    assert_eq!(rig.asked(), []);
}

#[test]
fn a_region_that_nobody_uses_keeps_what_it_holds_as_a_victim() {
    let mut rig = Rig::new(1);
    rig.create("web", "aes", gbps(5)).expect("there is room");
    rig.settle();
    lifecycle::delete_dag(&mut rig.core, &mut rig.tx, &name("web"));
    rig.follow_up();
    rig.settle();
    assert_eq!(rig.region(0).0, Some("aes".into()));
    rig.create("again", "aes", gbps(5)).expect("it is loaded");
    let asked = rig.asked();
    assert!(matches!(asked[..], [CardCommand::Program { .. }]), "no load: {asked:?}");
}

#[test]
fn a_region_in_use_or_being_loaded_keeps_what_it_is_to_hold() {
    let mut rig = Rig::new(1);
    rig.create("web", "aes", gbps(5)).expect("there is room");
    contents::keep_as_victim(&mut rig.core, &mut rig.tx, &card(), RegionId(0));
    assert_eq!(rig.region(0).0, Some("aes".into()), "a DAG waits for it");
    lifecycle::delete_dag(&mut rig.core, &mut rig.tx, &name("web"));
    rig.follow_up();
    assert_eq!(rig.region(0).0, Some("aes".into()), "nobody does, but the load goes on");
    rig.settle();
    assert_eq!(rig.region(0), (Some("aes".into()), ObservedContent::Holds(Digest::of(b"aes"))));
}

#[test]
fn a_load_that_fails_for_good_moves_its_dags_and_marks_the_region() {
    let mut rig = Rig::new(2);
    rig.create("web", "aes", gbps(5)).expect("there is room");
    let attempts = rig.core.policies.current().load_attempts;
    for attempt in 1..=attempts {
        let [CardCommand::Load { ticket, region: RegionId(0), .. }] = rig.asked()[..] else {
            panic!("attempt {attempt} is of region 0")
        };
        let result = Err(LoadFailure::Controller { code: 2 });
        rig.report(CardReport::Loaded { ticket, region: RegionId(0), result });
        if attempt < attempts {
            let wake = rig.core.cards.known(&card()).next_wake_up(rig.core.now());
            rig.core.advance(wake.expect("it is tried again later"));
            rig.follow_up();
        }
    }
    rig.settle();
    assert_eq!(rig.region(0).0, None);
    assert_eq!(rig.region(1).0, Some("aes".into()));
    assert_eq!(rig.state("web"), DagState::Ready);
}

#[test]
fn a_bitstream_that_no_region_can_run_is_rejected_and_its_region_is_sound() {
    let mut rig = Rig::new(2);
    rig.create("web", "aes", gbps(5)).expect("there is room");
    let [CardCommand::Load { ticket, region: RegionId(0), .. }] = rig.asked()[..] else {
        panic!("a load of region 0")
    };
    let result = Err(LoadFailure::Controller { code: LOAD_ERROR_MODULE });
    rig.report(CardReport::Loaded { ticket, region: RegionId(0), result });
    assert_eq!(rig.asked(), [], "it is tried nowhere else");
    assert_eq!(rig.region(0).0, None);
    let card = rig.core.cards.known(&card());
    let region = card.region(RegionId(0)).expect("it is there");
    assert_eq!(region.fault(), None);
    let id = BitstreamId::new("aes").expect("a label");
    let operator = Caller::Operator("ada".into());
    let view = rig.core.registry.bitstream_view(&operator, &id).expect("it is registered");
    let reason = view.rejection.expect("it is rejected").reason;
    assert!(reason.contains("WebAssembly module that cannot be run"), "{reason}");
}

#[test]
fn a_drain_moves_what_it_can_and_ends_when_the_region_is_empty() {
    let mut rig = Rig::new(2);
    rig.create("web", "aes", gbps(5)).expect("there is room");
    rig.settle();
    let drain = |rig: &mut Rig| {
        let reply = drains::drain_region(&mut rig.core, &mut rig.tx, &card(), RegionId(0));
        rig.follow_up();
        operation(reply)
    };
    let first = drain(&mut rig);
    assert_eq!(drain(&mut rig), first, "it is drained once");
    assert!(rig.core.operations.get(&first).is_some_and(|record| record.ended.is_none()));
    rig.settle();
    assert_eq!(rig.state("web"), DagState::Ready);
    let placed =
        rig.core.dags.known(&name("web")).desired().expect("it serves").mapping.uses(RegionId(1));
    assert!(placed, "it left region 0");
    let record = rig.core.operations.get(&first).expect("it is remembered");
    assert!(matches!(&record.ended, Some((_, Ok(())))), "{record:?}");
}

#[test]
fn an_undrain_supersedes_the_drain_and_lets_the_region_be_used() {
    let mut rig = Rig::new(1);
    rig.create("web", "aes", gbps(5)).expect("there is room");
    rig.settle();
    let reply = drains::drain_region(&mut rig.core, &mut rig.tx, &card(), RegionId(0));
    let drain = operation(reply);
    let refused = rig.create("api", "aes", gbps(1)).expect_err("nothing new is placed there");
    assert_eq!(refused.kind(), "capacity");
    drains::undrain_region(&mut rig.core, &mut rig.tx, &card(), RegionId(0)).expect("it exists");
    let record = rig.core.operations.get(&drain).expect("it is remembered");
    let Some((_, Err(error))) = &record.ended else { panic!("it ended: {record:?}") };
    assert_eq!(error.to_string(), "superseded by a later change of cards/card0/regions/0");
    rig.create("api", "aes", gbps(1)).expect("the region is used again");
}

#[test]
fn a_region_in_use_is_not_reset_and_one_that_is_absent_is_not_found() {
    let mut rig = Rig::new(1);
    rig.create("web", "aes", gbps(5)).expect("there is room");
    let mut reset =
        |region| drains::reset_region(&mut rig.core, &mut rig.tx, &card(), RegionId(region));
    let told = |error: Result<Reply, ControlError>| error.expect_err("refused").to_string();
    assert_eq!(told(reset(0)), "cards/card0/regions/0: DAGs are in it; drain it first");
    assert_eq!(told(reset(7)), "cards/card0/regions/7 does not exist");
}

#[test]
fn rules_follow_their_dag_into_the_tables_and_out_again() {
    let mut rig = Rig::new(1);
    let error = rig.rule("r1", name("web")).expect_err("there is no such DAG");
    assert_eq!(
        error.to_string(),
        "rule.dag: tenants/acme/dags/web does not exist, or has no card yet"
    );
    rig.create("web", "aes", gbps(5)).expect("there is room");
    rig.rule("r1", name("web")).expect("the DAG has a card");
    assert_eq!(rig.rows(Table::Classifier), 0);
    rig.settle();
    assert_eq!(rig.rows(Table::Classifier), 1, "with the DAG's rows");
    rig.follow_up();
    assert_eq!(rig.asked(), [], "what is right is not written again");
    lifecycle::delete_dag(&mut rig.core, &mut rig.tx, &name("web"));
    rig.follow_up();
    rig.settle();
    assert_eq!((rig.rows(Table::Classifier), rig.core.rules.all().count()), (0, 0));
}

#[test]
fn quotas_name_the_limit_and_what_was_asked() {
    let mut rig = Rig::new(1);
    rig.create("web", "aes", gbps(5)).expect("there is room");
    let quota = Quota { rules_max: 1, machines_max: 0, operations_max: 1, ..Quota::default() };
    let few =
        Tenant { id: tenant("few"), weight: 1, quota, notes: Default::default(), project: None };
    rig.core.registry.create_tenant(&mut rig.tx, few).expect("a new one");
    let few = tenant("few");
    let told = |error: Result<(), ControlError>| error.expect_err("over its quota").to_string();
    assert_eq!(quotas::check_rules(&rig.core, &few, 1), Ok(()));
    let text = told(quotas::check_rules(&rig.core, &few, 2));
    assert_eq!(text, "tenants/few may have 1 (rules_max); it has 0, and this would make it 2");
    let text = told(quotas::check_machine(&rig.core, &few));
    assert_eq!(text, "tenants/few may have 0 (machines_max); it has 0, and this would make it 1");
    assert_eq!(quotas::check_operation(&rig.core, &few), Ok(()));
    let of = DagName { tenant: few.clone(), ..name("x") };
    work::begin(&mut rig.core, &mut rig.tx, OperationWork::DeleteDag(of, None));
    let text = told(quotas::check_operation(&rig.core, &few));
    assert_eq!(text, "tenants/few may have 1 (operations_max); it has 1, and this would make it 2");
    assert!(quotas::check_rules(&rig.core, &few, u32::MAX).is_err(), "no overflow");
    let absent = quotas::check_machine(&rig.core, &tenant("nobody")).expect_err("no such tenant");
    assert_eq!(absent.kind(), "not_found");
}

#[test]
fn a_dag_without_a_place_gets_one_when_something_is_freed() {
    let mut rig = Rig::new(1);
    rig.create("web", "aes", gbps(10)).expect("there is room");
    rig.settle();
    // Its region fails for good: there is no other one.
    placement::abandon_content(&mut rig.core, &mut rig.tx, &card(), RegionId(0));
    rig.core.cards.known_mut(&card()).set_cordoned(&mut rig.tx, RegionId(0), true);
    placement::abandon_content(&mut rig.core, &mut rig.tx, &card(), RegionId(0));
    rig.follow_up();
    rig.settle();
    assert_eq!(rig.core.dags.unscheduled().count(), 1);
    assert_eq!(rig.state("web"), DagState::Failed);
    drains::undrain_region(&mut rig.core, &mut rig.tx, &card(), RegionId(0)).expect("it exists");
    rig.follow_up();
    rig.settle();
    assert_eq!((rig.core.dags.unscheduled().count(), rig.state("web")), (0, DagState::Ready));
}

/// However many DAGs there are: an event of a removal looks at those that it changes, and at no others.
#[test]
fn a_tenant_that_goes_has_few_dags_looked_at_with_each_event() {
    const DAGS: usize = 450;
    let mut rig = Rig::new(1);
    let Rig { core, tx, .. } = &mut rig;
    let beta = Tenant {
        id: tenant("beta"),
        weight: 1,
        quota: Quota::default(),
        notes: Default::default(),
        project: None,
    };
    core.registry.create_tenant(tx, beta).expect("a new one");
    for id in ["beta.one", "beta.two"] {
        let nt = NtType { id: nt_id(id), ..catalogue().nt(&nt_id("aes")).expect("there").clone() };
        let beta = Caller::Tenant(tenant("beta"));
        core.registry.create_nt(tx, &beta, nt).expect("a new one");
    }
    for number in 0..DAGS {
        let chain = DagSpec::chain(&[nt_id("aes")], gbps(1));
        let spec = DagSpec { trusted_tenants: [tenant("beta")].into(), ..chain };
        let uid = core.dags.next_uid(&card(), &[]).expect("a row");
        let name = name(&format!("d{number:03}"));
        core.dags.add(tx, DagEntry::new(name.clone(), uid, spec, NOW));
        core.dags.set_unscheduled(&name);
    }
    let before = core.dags.looked_at();
    let reply = removals::delete_tenant(core, tx, &tenant("beta"), true, None);
    let mut looks = vec![core.dags.looked_at() - before];
    operation(reply);
    while core.registry.tenant(&tenant("beta")).is_some() {
        core.planning.begin();
        let before = core.dags.looked_at();
        removals::take_next_steps(core, tx);
        looks.push(core.dags.looked_at() - before);
        assert!(looks.len() < 100, "it makes progress with each event: {looks:?}");
    }
    // Each is looked at once, and one more at the end of an event, which is left for the next.
    assert_eq!(looks.iter().sum::<usize>(), DAGS + looks.len() - 1, "{looks:?}");
    assert!(looks.iter().all(|looks| *looks <= DAGS / 4), "{looks:?}");
}

/// A tenant that asks for it all the time looks at one DAG each time.
#[test]
fn a_tenant_that_may_not_delete_an_nt_type_has_one_dag_looked_at() {
    let mut rig = Rig::new(1);
    for number in 0..9 {
        rig.create(&format!("d{number}"), "aes", gbps(1)).expect("there is room");
    }
    let core = &mut rig.core;
    let before = core.dags.looked_at();
    assert!(core.dags.is_used(&nt_id("aes"), None));
    assert!(!core.dags.is_used(&nt_id("aes"), Some(&tenant("acme"))), "they are all its own");
    assert!(!core.dags.is_used(&nt_id("lb"), None));
    assert_eq!(core.dags.looked_at() - before, 1);
    assert_eq!(core.dags.count_users(&nt_id("aes")), 9, "as an operator is told");
}

/// A create, what the card answers, and a delete look at the same few DAGs, however many there are.
#[test]
fn a_create_and_a_delete_look_at_as_many_dags_beside_many_as_beside_few() {
    let spec = || DagSpec::chain(&[nt_id("aes")], Bandwidth::from_mbps(1));
    let looks = [5, 50].map(|residents| {
        let mut rig = Rig::new(4);
        for number in 0..residents {
            rig.create(&format!("d{number}"), "aes", Bandwidth::from_mbps(1)).expect("room");
            rig.settle();
        }
        let before = rig.core.dags.looked_at();
        let created = lifecycle::create_dag(&mut rig.core, &mut rig.tx, name("new"), spec(), false);
        created.expect("there is room");
        for delete in [false, true] {
            if delete {
                lifecycle::delete_dag(&mut rig.core, &mut rig.tx, &name("new"));
            }
            reconcile::reconcile(&mut rig.core, &mut rig.tx);
            let asked = rig.asked();
            assert_eq!(asked.len(), 1, "its rows come or go: {asked:?}");
            for command in asked {
                let report = rig.done(command);
                reports::card_reported(&mut rig.core, &mut rig.tx, &card(), report);
            }
            reconcile::reconcile(&mut rig.core, &mut rig.tx);
        }
        rig.core.dags.looked_at() - before
    });
    assert_eq!(looks[0], looks[1]);
}
