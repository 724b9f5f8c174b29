//! Answers of one leader, with the model of etcd and hosts that do as they are told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::leading::{Fleet, new};
use crate::support::{
    bitstreams, card_id, catalogue, host, host_spec, name, profile, rack, spec, tenant, zone,
};
use snic_domain::{
    Bandwidth, Bitstream, BitstreamId, ByteSize, DagName, DagPatch, DagSpec, Digest, Labels,
    NotesPatch, NtType, NtTypeId, Quota, QuotaPatch, RegionId, RegionImage, RegionKind,
    TenantPatch,
};
use snic_etcd::Revision;
use snic_fleet::placement::{CardConstraints, CardPolicy, Constraint, RankedHost};
use snic_fleet::protocol::{
    CardFaults, Denied, DrainArea, FleetCommand, FleetEvent, FleetItem, FleetList, FleetName,
    FleetReply, FleetUsage, MachineNeeds, NewFleetDag, RequestId,
};
use snic_fleet::records::Unplaced;
use snic_fleet::{AgentEvent, FleetSettings, ProjectChange, ProjectId, ServeRefused};

fn find(dag: Option<(DagName, u64)>, policy: CardPolicy, most: usize) -> FleetCommand {
    let new = dag.map(|(name, mbit)| (name, Box::new(spec(catalogue(), &[0, 1], mbit))));
    let new_dags = new.into_iter().collect();
    let needs = Box::new(MachineNeeds { new_dags, ..MachineNeeds::default() });
    FleetCommand::FindHosts { constraints: CardConstraints::default(), policy, needs, most }
}

fn reserve(
    reservation: RequestId,
    constraints: CardConstraints,
    policy: CardPolicy,
    seconds: u32,
) -> FleetCommand {
    let (bandwidth, vm, uuid) = (Bandwidth::ZERO, None, String::new());
    FleetCommand::Reserve { reservation, constraints, policy, seconds, bandwidth, vm, uuid }
}

fn hosts(reply: Result<FleetReply, Denied>) -> Vec<RankedHost> {
    match reply {
        Ok(FleetReply::Hosts(found)) => found.hosts,
        other => panic!("{other:?}"),
    }
}

#[test]
fn dags_of_a_batch_share_a_transaction_and_are_apart_if_they_say_so() {
    let mut fleet = Fleet::new(3);
    let mut apart = new("acme", "b", 1_000);
    apart.spec.card_affinity.apart_from.insert(name("acme", "a"));
    let batch = vec![new("acme", "a", 1_000), apart, new("acme", "c", 1_000)];
    let placed = match fleet.acme(FleetCommand::CreateDags(batch)) {
        Ok(FleetReply::AllPlaced(cards)) => cards,
        other => panic!("{other:?}"),
    };
    let records = fleet.records();
    let of_dags = records.iter().filter(|record| record.key.starts_with("/snic/v1/dags/"));
    let created: BTreeSet<Revision> = of_dags.map(|record| record.created).collect();
    assert_eq!(created.len(), 1, "one transaction");
    assert!(placed.len() == 3 && placed[0].card != placed[1].card, "{placed:?}");
    for (dag, card) in ["a", "b", "c"].into_iter().zip(placed) {
        let dag = fleet.dag(dag);
        assert_eq!((dag.card, dag.is_ready), (card.card, true));
    }
}

#[test]
fn a_dag_that_names_one_of_another_tenant_is_refused_at_once_and_learns_nothing() {
    let mut fleet = Fleet::new(2);
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 1_000))).expect("there is room");
    let theirs = FleetCommand::CreateDag(new("beta", "there", 1_000));
    fleet.ask(Some(&tenant("beta")), theirs).expect("there is room");
    for other in ["there", "absent"] {
        let mut wrong = new("acme", "b", 1_000);
        wrong.spec.card_affinity.together_with.insert(name("beta", other));
        let affinity = Some(wrong.spec.card_affinity.clone());
        let patch = Box::new(DagPatch { card_affinity: affinity, ..DagPatch::default() });
        let changed = FleetCommand::UpdateDag { name: name("acme", "a"), patch, etag: None };
        let asked = FleetCommand::FindHosts {
            constraints: CardConstraints::default(),
            policy: CardPolicy::default(),
            needs: Box::new(MachineNeeds {
                new_dags: vec![(name("acme", "b"), Box::new(wrong.spec.clone()))],
                ..MachineNeeds::default()
            }),
            most: 1,
        };
        let expected = format!("beta/dags/{other} is not of tenants/acme");
        for command in [FleetCommand::CreateDag(wrong), changed, asked] {
            let denied = fleet.acme(command);
            let is_told = matches!(&denied, Err(Denied::Invalid(why)) if why.contains(&expected));
            assert!(is_told, "{denied:?}");
        }
    }
}

/// A card fails long after it served a DAG: the DAG waits for its turn, gets a place on another host, and nothing goes
/// to the failed card until its host says that it is well again.
#[test]
fn a_dag_that_loses_its_place_is_placed_elsewhere() {
    let mut fleet = Fleet::new(2);
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 1_000))).expect("there is room");
    let before = fleet.dag("a");
    let (at, serial) = (before.card.expect("a place"), before.serial.expect("a place"));
    assert!(before.is_ready);
    let lost = |name: &DagName, serial| AgentEvent::Lost {
        name: name.clone(),
        card: card_id(0),
        serial,
        why: ServeRefused { reason: "its card does not answer".into(), faulty: Vec::new() },
    };
    let gone = CardFaults { is_gone: true, ..CardFaults::default() };
    fleet.agent(&at.host, AgentEvent::Faults([(card_id(0), gone)].into()));
    fleet.agent(&at.host, lost(&before.name, serial));
    let waits = fleet.dag("a");
    assert!(!waits.is_ready && waits.card.is_none(), "{waits:?}");
    assert_eq!(waits.served_generation, waits.generation, "it was served");
    let why = waits.unplaced.expect("it waits");
    let is_told = matches!(&why, Unplaced::Waits(why) if why.contains("does not answer"));
    assert!(is_told, "{why:?}");
    fleet.pass(Duration::from_millis(100));
    let after = fleet.dag("a");
    let other = after.card.expect("there is another host");
    assert!(after.is_ready && other != at, "{other:?}");
    assert_eq!((fleet.held(), after.generation), (1, before.generation));

    // The other one fails as well: there is no room until a card is well again.
    let gone = CardFaults { is_gone: true, ..CardFaults::default() };
    fleet.agent(&other.host, AgentEvent::Faults([(card_id(0), gone)].into()));
    fleet.agent(&other.host, lost(&before.name, after.serial.expect("a place")));
    (0..3).for_each(|_| fleet.pass(Duration::from_secs(1)));
    assert_eq!(fleet.dag("a").card, None);
    fleet.agent(&at.host, AgentEvent::Faults(BTreeMap::new()));
    fleet.pass(Duration::from_secs(1));
    let back = fleet.dag("a");
    assert!(back.is_ready && back.card == Some(at), "{back:?}");
}

/// Where the report of the loss is lost, the digest of the next beat differs: the DAG is ordered once more, and is not
/// called ready until its host serves it.
#[test]
fn a_loss_that_nobody_heard_of_is_seen_with_the_next_beat() {
    let mut fleet = Fleet::new(1);
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 1_000))).expect("there is room");
    let before = fleet.dag("a");
    let (at, serial) = (before.card.expect("a place"), before.serial.expect("a place"));
    let why = ServeRefused { reason: "its card does not answer".into(), faulty: Vec::new() };
    let lost = AgentEvent::Lost { name: before.name, card: card_id(0), serial, why };
    let agent = fleet.agents.get_mut(&at.host).expect("a host");
    assert_eq!(agent.handle(lost).len(), 1, "its report is lost");
    fleet.serves = false;
    fleet.beat();
    let seen = fleet.dag("a");
    assert!(!seen.is_ready && seen.card == Some(at), "{seen:?}");
    fleet.serve_all();
    assert!(fleet.dag("a").is_ready);
}

/// Records that a new leader reads say which DAGs are served: nobody has to ask their hosts.
#[test]
fn a_dag_stays_ready_when_the_leader_changes() {
    let mut fleet = Fleet::new(1);
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 1_000))).expect("there is room");
    fleet.serves = false;
    fleet.acme(FleetCommand::CreateDag(new("acme", "b", 1_000))).expect("there is room");
    fleet.agents.clear();
    fleet.elect_again();
    assert_eq!((fleet.dag("a").is_ready, fleet.dag("b").is_ready), (true, false));
}

/// Whatever is wrong with one of them, and whichever it is, nothing is different afterwards.
#[test]
fn a_batch_of_which_one_is_refused_changes_nothing() {
    let mut fleet = Fleet::new(2);
    fleet.acme(FleetCommand::CreateDag(new("acme", "old", 1_000))).expect("there is room");
    let mut nowhere = new("acme", "z", 1_000);
    nowhere.constraints.hosts.insert(host("elsewhere"));
    let invalid = NewFleetDag { spec: spec(catalogue(), &[], 1_000), ..new("acme", "z", 1_000) };
    let large = new("acme", "z", 200_000);
    let many: Vec<NewFleetDag> =
        (0..10).map(|number| new("acme", &format!("n{number}"), 10)).collect();
    let bad = [vec![nowhere], vec![invalid], vec![large], vec![new("acme", "old", 1_000)], many];
    let cards: Vec<_> = fleet
        .replica
        .inventory()
        .expect("it leads")
        .cards()
        .map(|(card, _)| card.clone())
        .collect();
    let ledgers = |fleet: &Fleet| {
        let inventory = fleet.replica.inventory().expect("it leads");
        cards.iter().map(|card| format!("{:?}", inventory.ledger(card))).collect::<Vec<_>>()
    };
    let before = (ledgers(&fleet), fleet.replica.usage(&tenant("acme")), fleet.orders);
    let stored = (fleet.revision(), fleet.records());
    for bad in bad {
        for at in 0..3 {
            let mut batch = vec![new("acme", "a", 3_000), new("acme", "b", 5_000)];
            let last = batch.split_off(at.min(batch.len()));
            let refused = bad.clone();
            batch.extend(refused);
            batch.extend(last);
            let denied =
                fleet.acme(FleetCommand::CreateDags(batch)).expect_err("one of them is bad");
            assert!(matches!(denied, Denied::OfBatch { .. }), "{denied}");
            let after = (ledgers(&fleet), fleet.replica.usage(&tenant("acme")), fleet.orders);
            assert_eq!(after, before, "{denied}");
            assert_eq!((fleet.revision(), fleet.records()), stored, "{denied}");
        }
    }
    for number in [0, 65] {
        let batch = (0..number).map(|at| new("acme", &format!("n{at}"), 10)).collect();
        let denied = fleet.acme(FleetCommand::CreateDags(batch)).expect_err("not so many");
        assert!(denied.to_string().contains("1 to 64 are allowed"), "{denied}");
    }
    let foreign = vec![new("acme", "a", 10), new("beta", "b", 10)];
    let denied = fleet.acme(FleetCommand::CreateDags(foreign)).expect_err("beta's");
    assert_eq!(denied, Denied::NotFound("tenants/beta/dags/b".into()));
    // And the hosts that were left alone serve what comes.
    fleet.acme(FleetCommand::CreateDags(vec![new("acme", "a", 3_000)])).expect("there is room");
    fleet.beat();
    fleet.beat();
    assert!(fleet.dag("a").is_ready);
}

#[test]
fn hosts_are_ranked_by_the_policy_and_nothing_is_kept() {
    let mut fleet = Fleet::new(4);
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 20_000))).expect("there is room");
    let (revision, orders) = (fleet.revision(), fleet.orders);
    let packed = hosts(fleet.acme(find(None, CardPolicy::Pack, 16)));
    let headroom = hosts(fleet.acme(find(None, CardPolicy::Headroom, 16)));
    assert_eq!((packed.len(), headroom.len()), (4, 4));
    assert_eq!(packed[0].card, headroom[3].card, "the one that has the DAG");
    assert!(packed[0].ingress_left < packed[1].ingress_left);
    let with = |mbit| Some((name("acme", "b"), mbit));
    let loads: Vec<usize> = hosts(fleet.acme(find(with(1_000), CardPolicy::Pack, 2)))
        .iter()
        .map(|of| of.loads)
        .collect();
    assert_eq!(loads, [0, 1], "the first has the NTs in a region");
    let large = Bandwidth::from_gbps(90);
    let roomy = hosts(fleet.acme(find(with(90_000), CardPolicy::Pack, 16)));
    assert!(roomy.len() == 3 && roomy.iter().all(|of| of.ingress_left > large), "{roomy:?}");
    match fleet.acme(find(with(500_000), CardPolicy::Pack, 1)) {
        Ok(FleetReply::Hosts(found)) => {
            assert!(found.hosts.is_empty(), "no card has it");
            assert_eq!(found.refused, [(Constraint::Bandwidth, 4)].into());
        }
        other => panic!("{other:?}"),
    }
    let taken = fleet.acme(find(Some((name("acme", "a"), 1)), CardPolicy::Pack, 1));
    assert_eq!(taken, Err(Denied::Exists("tenants/acme/dags/a".into())));
    let foreign = fleet.acme(find(Some((name("beta", "a"), 1)), CardPolicy::Pack, 1));
    assert_eq!(foreign, Err(Denied::NotFound("tenants/beta/dags/a".into())));
    for most in [0, 17] {
        let wrong = fleet.acme(find(None, CardPolicy::Pack, most)).expect_err("not so many");
        assert!(wrong.to_string().contains("1 to 16 are allowed"), "{wrong}");
    }
    assert_eq!((fleet.revision(), fleet.orders), (revision, orders), "it was a question");
}

fn delete(name: FleetName, force: bool) -> FleetCommand {
    FleetCommand::Delete { name, etag: None, force }
}

fn dag_name(of: &str, dag: &str) -> FleetName {
    FleetName::Dag(name(of, dag))
}

/// An NT type and a bitstream of acme's own, like one of the catalogue.
fn own(of: &str) -> (NtType, Bitstream) {
    let like = catalogue().nt_types[1].clone();
    let id = NtTypeId::new(&format!("{of}.own")).expect("an id of the test");
    let nt = NtType { id: id.clone(), shareable: false, ..like };
    let like = bitstreams(catalogue()).into_iter().find(|it| it.card_model.as_str() == "sim-16");
    let like = like.expect("there are some for it");
    let image = BitstreamId::new(&format!("{of}.own-sim-16")).expect("an id of the test");
    let (id, nts) = (image, vec![id]);
    let of = Bitstream { id, nts, region_kind: RegionKind::UserNt, shareable: false, ..like };
    (nt, of)
}

fn names(reply: Result<FleetReply, Denied>) -> (Vec<String>, Option<FleetName>) {
    let name = |item: FleetItem| match item {
        FleetItem::Tenant(of) => of.tenant.id.to_string(),
        FleetItem::Project(of) => of.project.to_string(),
        FleetItem::Nt(nt, _) => nt.id.to_string(),
        FleetItem::Bitstream(of, _) => of.id.to_string(),
        FleetItem::Host(of) => of.host.to_string(),
        FleetItem::Dag(of) => of.name.to_string(),
        FleetItem::Reservation(of) => of.of.id.to_string(),
    };
    match reply {
        Ok(FleetReply::Items { items, next, .. }) => (items.into_iter().map(name).collect(), next),
        other => panic!("{other:?}"),
    }
}

fn list(of: FleetList, after: Option<FleetName>, most: usize) -> FleetCommand {
    FleetCommand::List { of, after, most }
}

/// A tenant sees what is its own and the provider's; of others' things it learns not even that they exist.
#[test]
fn tenants_see_and_change_what_is_their_own() {
    let mut fleet = Fleet::new(1);
    let (nt, image) = own("acme");
    fleet.acme(FleetCommand::CreateNt(nt.clone())).expect("it is acme's");
    fleet.acme(FleetCommand::CreateBitstream(image.clone())).expect("it is acme's");
    let again = fleet.acme(FleetCommand::CreateNt(nt.clone()));
    assert_eq!(again, Err(Denied::Exists("ntTypes/acme.own".into())));
    let (theirs, _) = own("beta");
    let wrong = fleet.acme(FleetCommand::CreateNt(theirs)).expect_err("beta's");
    assert_eq!(wrong.to_string(), "the id of something of yours begins with \"acme.\"");
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 100))).expect("there is room");
    let beta = tenant("beta");
    let all = [
        FleetName::Nt(nt.id.clone()),
        FleetName::Bitstream(image.id.clone()),
        dag_name("acme", "a"),
        FleetName::Tenant(tenant("acme")),
        FleetName::Host(host("h0")),
    ];
    for name in all {
        let hidden = Err(Denied::NotFound(name.to_string()));
        assert_eq!(fleet.ask(Some(&beta), FleetCommand::Get(name.clone())), hidden);
        assert_eq!(fleet.ask(Some(&beta), delete(name.clone(), true)), hidden);
        assert!(fleet.ask(None, FleetCommand::Get(name)).is_ok(), "an operator sees it");
    }
    let providers = FleetName::Nt(catalogue().nt_types[0].id.clone());
    assert!(fleet.acme(FleetCommand::Get(providers.clone())).is_ok());
    let denied = fleet.acme(delete(providers.clone(), false));
    assert_eq!(denied, Err(Denied::NotOwner(providers.to_string())));
    let operator = FleetCommand::CordonHost(host("h0"), true);
    assert!(fleet.acme(operator).is_err(), "an operator's");
    let (of_acme, _) = names(fleet.acme(list(FleetList::Nts, None, 1_000)));
    let (of_beta, _) = names(fleet.ask(Some(&beta), list(FleetList::Nts, None, 1_000)));
    assert!(of_acme.contains(&"acme.own".to_owned()) && of_beta.len() + 1 == of_acme.len());
    for listed in [FleetList::Dags(Some(tenant("acme"))), FleetList::Tenants, FleetList::Hosts] {
        let (seen, _) = names(fleet.ask(Some(&beta), list(listed.clone(), None, 10)));
        let own = if listed == FleetList::Tenants { vec!["beta".to_owned()] } else { vec![] };
        assert_eq!(seen, own, "{listed:?}");
    }
}

#[test]
fn a_list_goes_on_behind_its_last_name() {
    let mut fleet = Fleet::new(1);
    for dag in ["c", "a", "e", "b", "d"] {
        fleet.acme(FleetCommand::CreateDag(new("acme", dag, 10))).expect("there is room");
    }
    fleet
        .ask(Some(&tenant("beta")), FleetCommand::CreateDag(new("beta", "a", 10)))
        .expect("there is room");
    for most in 1..=6 {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = names(fleet.acme(list(FleetList::Dags(None), after, most)));
            assert!(page.len() <= most);
            all.extend(page);
            if next.is_none() {
                break;
            }
            after = next;
        }
        let expected = ["a", "b", "c", "d", "e"].map(|dag| name("acme", dag).to_string());
        assert_eq!(all, expected, "{most} at a time");
    }
    let (all, _) = names(fleet.ask(None, list(FleetList::Dags(None), None, 10)));
    assert_eq!(all.len(), 6);
    let wrong = fleet.acme(list(FleetList::Nts, Some(dag_name("acme", "a")), 10));
    assert!(wrong.expect_err("a DAG's").to_string().contains("is not a name of what is listed"));
    for most in [0, 1_001] {
        assert!(fleet.acme(list(FleetList::Nts, None, most)).is_err());
    }
}

/// An image for further regions: hosts fetch it under a new number, its owner is charged for it, and no region has two.
#[test]
fn a_bitstream_gets_further_images() {
    let mut fleet = Fleet::new(2);
    let (nt, of) = own("acme");
    fleet.acme(FleetCommand::CreateNt(nt)).expect("it is acme's");
    let image = |name: &str, regions: &[u8]| {
        let regions = regions.iter().copied().map(RegionId).collect();
        let (digest, size) = (Digest::of(name.as_bytes()), ByteSize::from_mib(1));
        Bitstream {
            images: RegionImage { digest, size, regions, signature: None }.into(),
            ..of.clone()
        }
    };
    let add =
        |fleet: &mut Fleet, of: &Bitstream| fleet.acme(FleetCommand::CreateBitstream(of.clone()));
    let held = |fleet: &mut Fleet| match fleet
        .acme(FleetCommand::Get(FleetName::Bitstream(of.id.clone())))
    {
        Ok(FleetReply::Item(item)) => match *item {
            FleetItem::Bitstream(of, _) => of,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let usage = |fleet: &Fleet| {
        let used = fleet.replica.usage(&tenant("acme")).expect("it is there");
        (used.bitstreams, used.bitstream_bytes)
    };
    let first = image("a", &[0, 1]);
    add(&mut fleet, &first).expect("it is acme's");
    let number = fleet.told[&of.id];
    let second = image("b", &[2]);
    add(&mut fleet, &second).expect("it is for another region");
    let both = first.with_images_of(&second).expect("another region");
    assert_eq!(held(&mut fleet), both);
    assert!(fleet.told[&of.id] > number, "hosts fetch what is new");
    assert_eq!(usage(&fleet), (2, ByteSize::from_mib(2)));
    // Refused, and nothing has changed.
    let quota = Some(QuotaPatch { bitstreams_max: Some(2), ..QuotaPatch::default() });
    let patch = TenantPatch { quota, ..TenantPatch::default() };
    let (id, project) = (tenant("acme"), ProjectChange::Keep);
    fleet.operator(FleetCommand::UpdateTenant { tenant: id, patch, project, etag: None });
    let number = fleet.told[&of.id];
    for (wrong, says) in [
        (image("c", &[1, 3]), "region 1"),
        (Bitstream { region_kind: RegionKind::KnownNt, ..image("c", &[3]) }, "region_kind"),
        (image("c", &[3]), "bitstreams_max"),
    ] {
        let denied = add(&mut fleet, &wrong).expect_err("it does not stand beside the others");
        assert!(format!("{denied:?} {denied}").contains(says), "{says}: {denied:?} {denied}");
    }
    let again = add(&mut fleet, &second).expect_err("it is there");
    assert!(again.to_string().contains("its image for regions 2 has the same bytes"), "{again}");
    assert_eq!((held(&mut fleet), fleet.told[&of.id]), (both.clone(), number));
    assert_eq!(usage(&fleet), (2, ByteSize::from_mib(2)));
    // The next leader knows all of it.
    fleet.elect_again();
    assert_eq!(held(&mut fleet), both);
    assert_eq!(usage(&fleet), (2, ByteSize::from_mib(2)));
    fleet.acme(delete(FleetName::Bitstream(of.id.clone()), false)).expect("nothing uses it");
    assert_eq!(usage(&fleet), (0, ByteSize::ZERO));
}

/// A thing in use stays; its users are not named to a tenant.
#[test]
fn what_is_in_use_is_not_deleted() {
    let mut fleet = Fleet::new(1);
    let (nt, image) = own("acme");
    fleet.acme(FleetCommand::CreateNt(nt.clone())).expect("it is acme's");
    let of_nt = FleetName::Nt(nt.id.clone());
    fleet.acme(FleetCommand::CreateBitstream(image.clone())).expect("it is acme's");
    fleet.beat();
    let mut dag = new("acme", "a", 100);
    dag.spec = DagSpec::chain(std::slice::from_ref(&nt.id), Bandwidth::from_mbps(100));
    fleet.acme(FleetCommand::CreateDag(dag)).expect("there is room");
    let of_image = FleetName::Bitstream(image.id.clone());
    for name in [&of_nt, &of_image] {
        let denied = fleet.acme(delete(name.clone(), false)).expect_err("it is in use");
        assert!(denied.to_string().contains("is in use by bitstreams or DAGs"), "{denied}");
        let denied = fleet.ask(None, delete(name.clone(), false)).expect_err("it is in use");
        assert!(denied.to_string().contains("and 1 DAGs"), "{denied}");
    }
    let of_host = FleetName::Host(host("h0"));
    let denied = fleet.ask(None, delete(of_host.clone(), false)).expect_err("it is in use");
    assert!(denied.to_string().contains("1 DAGs and 0 reservations"), "{denied}");
    let acme = FleetName::Tenant(tenant("acme"));
    let denied = fleet.ask(None, delete(acme, false)).expect_err("it is in use");
    assert!(denied.to_string().contains("1 DAGs, 1 bitstreams, 1 NT types"), "{denied}");
    fleet.acme(delete(dag_name("acme", "a"), false)).expect("it is acme's");
    let denied = fleet.acme(delete(of_nt.clone(), false)).expect_err("it is in the bitstream");
    assert!(matches!(denied, Denied::InUse { .. }), "{denied}");
    fleet.is_dry = true;
    fleet.acme(delete(of_image.clone(), false)).expect("nothing uses it");
    fleet.is_dry = false;
    fleet.acme(delete(of_image, false)).expect("nothing uses it");
    fleet.acme(delete(of_nt, false)).expect("nothing uses it");
    fleet.ask(None, delete(of_host, false)).expect("it is empty");
    let used = fleet.replica.usage(&tenant("acme"));
    assert_eq!(used, Some(FleetUsage::default()));
}

/// More than one transaction's worth of things goes with its tenant, some with each tick, and nothing new comes.
#[test]
fn a_tenant_goes_with_all_that_it_owns() {
    let mut fleet = Fleet::new(2);
    let patch = TenantPatch {
        quota: Some(QuotaPatch { dags_max: Some(100), ..QuotaPatch::default() }),
        ..TenantPatch::default()
    };
    let (tenant_id, project, etag) = (tenant("acme"), ProjectChange::Keep, None);
    fleet.operator(FleetCommand::UpdateTenant { tenant: tenant_id, patch, project, etag });
    let (nt, image) = own("acme");
    fleet.acme(FleetCommand::CreateNt(nt.clone())).expect("it is acme's");
    fleet.acme(FleetCommand::CreateBitstream(image)).expect("it is acme's");
    for number in 0..80 {
        let new = new("acme", &format!("d{number}"), 10);
        fleet.acme(FleetCommand::CreateDag(new)).expect("there is room");
    }
    let (constraints, policy) = (CardConstraints::default(), CardPolicy::Pack);
    let constraints = CardConstraints { functions: 1, ..constraints };
    let reservation = RequestId(7);
    fleet.acme(reserve(reservation, constraints, policy, 100)).expect("there are some");
    let name = FleetName::Tenant(tenant("acme"));
    fleet.ask(None, delete(name.clone(), true)).expect("an operator may");
    let denied = fleet.acme(FleetCommand::CreateDag(new("acme", "more", 10)));
    assert_eq!(denied, Err(Denied::Leaving(tenant("acme"))));
    for tick in 0.. {
        assert!(tick < 10, "it takes too long");
        if fleet.ask(None, FleetCommand::Get(name.clone())).is_err() {
            assert!(tick > 1, "some at a time");
            break;
        }
        fleet.handle(FleetEvent::Tick);
    }
    let left: Vec<String> = fleet.records().into_iter().map(|record| record.key).collect();
    assert!(left.iter().all(|key| !key.contains("acme")), "{left:?}");
    let (names, _) = names(fleet.ask(None, list(FleetList::Dags(None), None, 10)));
    assert_eq!(names, Vec::<String>::new());
}

fn update(dag: &str, mbit: u64, etag: Option<String>) -> FleetCommand {
    let bandwidth = Some(Bandwidth::from_mbps(mbit));
    let patch = Box::new(DagPatch { bandwidth, ..DagPatch::default() });
    FleetCommand::UpdateDag { name: name("acme", dag), patch, etag }
}

#[test]
fn a_dag_is_changed_in_its_place_or_moves_or_stays_as_it_is() {
    let mut fleet = Fleet::new(2);
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 1_000))).expect("there is room");
    fleet.acme(FleetCommand::CreateDag(new("acme", "big", 60_000))).expect("there is room");
    let before = fleet.dag("a");
    let etag = before.meta.etag();
    fleet.is_dry = true;
    fleet.acme(update("a", 2_000, Some(etag.clone()))).expect("there is room");
    fleet.is_dry = false;
    assert_eq!(fleet.dag("a"), before);
    fleet.acme(update("a", 2_000, Some(etag.clone()))).expect("there is room");
    let after = fleet.dag("a");
    assert_eq!((&after.card, after.generation, after.is_ready), (&before.card, 2, true));
    assert_eq!(after.spec.bandwidth, Bandwidth::from_mbps(2_000));
    assert!(after.serial > before.serial && after.meta.etag() != etag);
    let stale = fleet.acme(update("a", 3_000, Some(etag)));
    assert!(matches!(stale, Err(Denied::Stale { .. })), "{stale:?}");
    let used = fleet.replica.usage(&tenant("acme")).expect("it is registered");
    assert_eq!(used.bandwidth, Bandwidth::from_mbps(62_000));
    // The card has no room for more of it, the other one has.
    let over = fleet.acme(update("a", 45_000, None));
    assert!(matches!(over, Err(Denied::TenantQuota(..))), "{over:?}");
    let quota = Some(QuotaPatch {
        bandwidth_max: Some(Bandwidth::from_gbps(500)),
        ..QuotaPatch::default()
    });
    let patch = TenantPatch { quota, ..TenantPatch::default() };
    let (id, project, etag) = (tenant("acme"), ProjectChange::Keep, None);
    fleet.operator(FleetCommand::UpdateTenant { tenant: id, patch, project, etag });
    assert_eq!(fleet.dag("big").card, before.card, "they share a card");
    fleet.acme(update("a", 45_000, None)).expect("the other card has room");
    let moved = fleet.dag("a");
    assert!(moved.card != before.card && moved.is_ready && moved.served_by.is_none());
    let held: usize = fleet.held();
    assert_eq!(held, 2, "the old card serves it no more");
    let nowhere = fleet.acme(update("a", 300_000, None)).expect_err("no card has so much");
    assert!(matches!(nowhere, Denied::NoPlace(_)), "{nowhere}");
    assert_eq!(fleet.dag("a"), moved, "as it was");
    let mut bound = new("acme", "bound", 1_000);
    bound.constraints.hosts.insert(before.card.clone().expect("it has one").host);
    fleet.acme(FleetCommand::CreateDag(bound)).expect("there is room");
    let refused = fleet.acme(update("bound", 60_000, None)).expect_err("it cannot move");
    assert!(matches!(refused, Denied::NoPlace(_)), "{refused}");
}

/// Notes are no change of what is served.
#[test]
fn a_label_is_noted_without_an_order() {
    let mut fleet = Fleet::new(1);
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 1_000))).expect("there is room");
    let (before, orders) = (fleet.dag("a"), fleet.orders);
    let labels = Some(Labels::new([("app".into(), "web".into())].into()).expect("valid"));
    let notes = NotesPatch { labels, ..NotesPatch::default() };
    let patch = Box::new(DagPatch { notes, ..DagPatch::default() });
    let (name, etag) = (name("acme", "a"), None);
    fleet.acme(FleetCommand::UpdateDag { name, patch, etag }).expect("it is acme's");
    let after = fleet.dag("a");
    assert_eq!((after.generation, after.serial), (before.generation, before.serial));
    assert_eq!((after.meta.revision, fleet.orders), (before.meta.revision + 1, orders));
    assert_ne!(after.spec, before.spec);
}

/// A host that cannot make a change goes on as before until another one serves the DAG.
#[test]
fn a_change_that_a_host_refuses_is_made_elsewhere() {
    let mut fleet = Fleet::new(2);
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 1_000))).expect("there is room");
    let before = fleet.dag("a").card.expect("it has a place");
    fleet.refuses = Some(before.host.clone());
    fleet.acme(update("a", 2_000, None)).expect("the fleet has room");
    let after = fleet.dag("a");
    assert_ne!(after.card.expect("it has a place").host, before.host);
    assert!(after.is_ready && after.served_by.is_none());
    assert_eq!(fleet.held(), 1, "the old place is gone");
}

/// Regions that an operator of a host has cordoned get nothing new; what they serve stays.
#[test]
fn cordoned_regions_of_a_host_get_nothing_new() {
    let mut fleet = Fleet::new(1);
    let create = |fleet: &mut Fleet, dag| {
        fleet.acme(FleetCommand::CreateDag(new("acme", dag, 1_000))).map(drop)
    };
    create(&mut fleet, "a").expect("there is room");
    let cordoned = (0..16).map(RegionId).collect();
    let all = CardFaults { cordoned, ..CardFaults::default() };
    fleet.agent(&host("h0"), AgentEvent::Faults([(card_id(0), all)].into()));
    assert!(create(&mut fleet, "b").is_err());
    fleet.pass(Duration::from_secs(1));
    assert!(fleet.dag("a").is_ready, "it stays");
    fleet.agent(&host("h0"), AgentEvent::Faults(BTreeMap::new()));
    create(&mut fleet, "b").expect("there is room again");
}

/// A drain that finds no host which takes a DAG leaves it where it is served, and tries other hosts later.
#[test]
fn a_dag_that_is_refused_everywhere_stays_where_it_is_served() {
    let mut fleet = Fleet::new(6);
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 1_000))).expect("there is room");
    let before = fleet.dag("a").card.expect("it has a place");
    let all = fleet.agents.keys().filter(|id| **id != before.host);
    fleet.full = all.cloned().collect();
    fleet.operator(FleetCommand::DrainHost(before.host.clone(), true));
    for _ in 0..10 {
        fleet.pass(Duration::from_secs(1));
        let now = fleet.dag("a");
        assert!(now.is_ready && now.served_by.is_none(), "{now:?}");
        assert_eq!(now.card.as_ref(), Some(&before));
        assert_eq!(now.unplaced, None);
    }
    let orders = fleet.orders;
    fleet.pass(Duration::from_secs(1));
    assert_eq!(fleet.orders, orders, "all have refused it: nobody is asked again");
    // A host that is new, or a change of the DAG, is another try.
    let sim = profile(catalogue(), "sim-16");
    fleet.add_host("new", host_spec(0, 9, &[&sim]));
    for _ in 0..4 {
        fleet.pass(Duration::from_secs(1));
    }
    let now = fleet.dag("a");
    assert_eq!(now.card.map(|card| card.host), Some(host("new")));
    assert!(now.is_ready && now.served_by.is_none());
    assert_eq!(fleet.held(), 1);
}

/// While an image is on its way a request waits, and is refused when it takes too long.
#[test]
fn a_request_waits_for_an_image_that_is_on_its_way() {
    let mut fleet = Fleet::new(2);
    let (nt, image) = own("acme");
    fleet.acme(FleetCommand::CreateNt(nt.clone())).expect("it is acme's");
    fleet.fetches = false;
    fleet.acme(FleetCommand::CreateBitstream(image.clone())).expect("it is acme's");
    let with = |dag: &str| {
        let spec = DagSpec::chain(std::slice::from_ref(&nt.id), Bandwidth::from_mbps(100));
        FleetCommand::CreateDag(NewFleetDag { spec, ..new("acme", dag, 100) })
    };
    let first = fleet.begin(&tenant("acme"), with("a"));
    fleet.pass(Duration::from_secs(1));
    assert_eq!(fleet.replies.get(&first), None, "it waits");
    fleet.arrive(&image.id);
    fleet.beat();
    fleet.pass(Duration::from_secs(1));
    let reply = fleet.replies.remove(&first);
    assert!(matches!(reply, Some(Ok(FleetReply::Placed(_)))), "{reply:?}");
    fleet.acme(delete(dag_name("acme", "a"), false)).expect("it is acme's");
    fleet.acme(delete(FleetName::Bitstream(image.id.clone()), false)).expect("nothing uses it");
    fleet.acme(FleetCommand::CreateBitstream(image)).expect("another of the same name");
    let late = fleet.begin(&tenant("acme"), with("b"));
    for _ in 0..20 {
        fleet.pass(Duration::from_secs(1));
        fleet.beat();
    }
    let denied = fleet.replies.remove(&late).expect("it was answered").expect_err("too late");
    assert!(denied.to_string().contains("2 without the image yet"), "{denied}");
    assert_eq!(fleet.replica.usage(&tenant("acme")).expect("it is there").dags, 0);
}

/// A new leader has not heard any host yet: requests wait for the hosts, and not longer than these have leases.
#[test]
fn a_new_leader_waits_for_its_hosts_before_it_refuses() {
    for is_heard in [true, false] {
        let mut fleet = Fleet::new(2);
        fleet.acme(FleetCommand::CreateDag(new("acme", "a", 100))).expect("there is room");
        let before = fleet.dag("a").card.expect("it has a place");
        let linked = std::mem::take(&mut fleet.agents);
        fleet.elect_again();
        let create = FleetCommand::CreateDag(new("acme", "b", 100));
        let created = fleet.begin(&tenant("acme"), create);
        assert_eq!(fleet.replies.get(&created), None, "no host was heard");
        fleet.acme(update("a", 200, None)).expect("it fits where it is");
        assert_eq!(fleet.dag("a").card.as_ref(), Some(&before), "it stays there");
        if is_heard {
            fleet.agents = linked;
        }
        (0..15).for_each(|_| fleet.pass(Duration::from_secs(1)));
        let reply = fleet.replies.remove(&created).expect("it was answered");
        assert_eq!(reply.is_ok(), is_heard, "{reply:?}");
    }
}

/// Hosts with a short lease are suspected before they are linked to a new leader: a request waits for them too.
#[test]
fn a_request_waits_for_hosts_that_are_suspected() {
    let (lease, confirm) = (Duration::from_secs(2), Duration::from_secs(5));
    let mut fleet = Fleet::with(2, FleetSettings { lease, confirm, ..FleetSettings::default() });
    let linked = std::mem::take(&mut fleet.agents);
    fleet.elect_again();
    (0..4).for_each(|_| fleet.pass(Duration::from_secs(1)));
    let created = fleet.begin(&tenant("acme"), FleetCommand::CreateDag(new("acme", "a", 100)));
    assert_eq!(fleet.replies.get(&created), None, "both are suspected and not lost");
    fleet.agents = linked;
    (0..3).for_each(|_| fleet.pass(Duration::from_secs(1)));
    let reply = fleet.replies.remove(&created).expect("it was answered");
    assert!(reply.is_ok(), "{reply:?}");
}

/// SIGSTOP or a suspended machine, for less than the lease of its election: hosts spoke, and nobody heard them. When it
/// goes on, those whose reports come first are no reason to take the others for lost.
#[test]
fn a_leader_that_was_stopped_takes_no_host_for_lost() {
    let mut fleet = Fleet::new(3);
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 1_000))).expect("there is room");
    let at = fleet.dag("a").card.expect("it has a place");
    let one = CardConstraints { functions: 1, ..CardConstraints::default() };
    fleet.acme(reserve(RequestId(7), one, CardPolicy::default(), 30)).expect("there are functions");
    let silent = fleet.agents.remove(&at.host).expect("it is linked");
    fleet.pass(Duration::from_secs(60));
    assert_eq!(fleet.dag("a").card.as_ref(), Some(&at));
    fleet.acme(FleetCommand::Renew(RequestId(7))).expect("nobody could renew it meanwhile");
    fleet.agents.insert(at.host.clone(), silent);
    (0..3).for_each(|_| fleet.pass(Duration::from_secs(1)));
    assert!(fleet.dag("a").is_ready && fleet.moved.is_empty());
    // One that is silent while the leader runs is lost as ever.
    fleet.agents.remove(&at.host);
    (0..20).for_each(|_| fleet.pass(Duration::from_secs(1)));
    assert_ne!(fleet.dag("a").card.map(|card| card.host), Some(at.host));
}

/// The only host: without its place nothing new could be created.
#[test]
fn the_first_tick_after_a_stop_suspects_nobody() {
    let mut fleet = Fleet::new(1);
    let linked = std::mem::take(&mut fleet.agents);
    fleet.pass(Duration::from_secs(3_600));
    fleet.agents = linked;
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 1_000))).expect("it is reachable");
}

/// A rack is emptied some DAGs at a time; those whose machines are there stay, and are named.
#[test]
fn a_rack_is_emptied_within_its_budget() {
    let mut fleet = Fleet::new(4);
    for number in 0..6 {
        let mut new = new("acme", &format!("d{number}"), 1_000);
        if number == 0 {
            new.constraints.hosts.insert(host("h0"));
        }
        fleet.acme(FleetCommand::CreateDag(new)).expect("there is room");
    }
    assert!(
        (0..6).all(|dag| fleet.dag(&format!("d{dag}")).card.expect("placed").host == host("h0"))
    );
    let area = DrainArea::Rack(zone(0), rack(0));
    fleet.serves = false;
    for moves_max in [0, 1_001] {
        let drain = FleetCommand::Drain { area: area.clone(), moves_max };
        assert!(fleet.ask(None, drain).is_err(), "{moves_max}");
    }
    let drain = FleetCommand::Drain { area: area.clone(), moves_max: 2 };
    let progress = |reply: Result<FleetReply, Denied>| match reply {
        Ok(FleetReply::Drain(of)) => (of.left, of.moving, of.bound.len(), of.bound_count),
        other => panic!("{other:?}"),
    };
    assert_eq!(progress(fleet.ask(None, drain)), (5, 0, 1, 1));
    let get = FleetCommand::GetDrain(area.clone());
    for _ in 0..5 {
        fleet.pass(Duration::from_secs(1));
        assert_eq!(progress(fleet.ask(None, get.clone())), (3, 2, 1, 1), "two at a time");
    }
    fleet.serves = true;
    fleet.serve_all();
    for _ in 0..5 {
        fleet.pass(Duration::from_secs(1));
    }
    assert_eq!(progress(fleet.ask(None, get.clone())), (0, 0, 1, 1));
    let elsewhere = |fleet: &mut Fleet, of: &str| {
        let placed = fleet.acme(FleetCommand::CreateDag(new("acme", of, 100)));
        assert!(placed.is_ok(), "{placed:?}");
        fleet.dag(of).card.expect("placed").host != host("h0")
    };
    assert!(elsewhere(&mut fleet, "x"), "nothing new comes");
    fleet.operator(FleetCommand::EndDrain(area));
    assert!(matches!(fleet.ask(None, get), Err(Denied::NotFound(_))));
    let mut here = new("acme", "y", 100);
    here.constraints.hosts.insert(host("h0"));
    fleet.acme(FleetCommand::CreateDag(here)).expect("it takes new ones again");
}

/// A tenant's weight reaches the hosts that serve it, and a project's quota holds for its tenants together.
#[test]
fn weights_reach_hosts_and_projects_limit_their_tenants() {
    let mut fleet = Fleet::new(1);
    let project = ProjectId::new("p1").expect("a name of the test");
    let quota = Quota { dags_max: 2, ..Quota::default() };
    fleet.operator(FleetCommand::CreateProject { project: project.clone(), quota });
    let join = |of: &str, weight| FleetCommand::UpdateTenant {
        tenant: tenant(of),
        patch: TenantPatch { weight, ..TenantPatch::default() },
        project: ProjectChange::Join(project.clone()),
        etag: None,
    };
    fleet.acme(FleetCommand::CreateDag(new("acme", "a", 100))).expect("there is room");
    fleet.operator(join("acme", Some(5)));
    assert_eq!(fleet.weights.get(&tenant("acme")), Some(&5), "the host was told");
    fleet.operator(join("beta", None));
    fleet
        .ask(Some(&tenant("beta")), FleetCommand::CreateDag(new("beta", "b", 100)))
        .expect("there is room");
    let denied = fleet.acme(FleetCommand::CreateDag(new("acme", "c", 100)));
    assert!(matches!(denied, Err(Denied::ProjectQuota(..))), "{denied:?}");
    let denied = fleet.ask(None, delete(FleetName::Project(project.clone()), false));
    assert!(matches!(denied, Err(Denied::InUse { .. })), "{denied:?}");
    let lower = QuotaPatch { dags_max: Some(1), ..QuotaPatch::default() };
    let (quota, etag) = (lower, None);
    fleet.operator(FleetCommand::UpdateProject { project, quota, etag });
    fleet.acme(update("a", 50, None)).expect("less is always allowed");
}

/// Memory is counted for each DAG and type, in whole pages, wherever the DAG is.
#[test]
fn a_tenant_has_no_more_memory_than_its_quota() {
    let mut fleet = Fleet::new(1);
    let types = &catalogue().nt_types;
    let large = types.iter().position(|nt| nt.memory.get() > 0).expect("some keep state in memory");
    let page = 2 << 20;
    let memory = types[large].memory.get().div_ceil(page) * page;
    let quota = |dags: u64| FleetCommand::UpdateTenant {
        tenant: tenant("acme"),
        patch: TenantPatch {
            quota: Some(QuotaPatch {
                memory_max: Some(ByteSize::from_bytes(dags * memory)),
                ..QuotaPatch::default()
            }),
            ..TenantPatch::default()
        },
        project: ProjectChange::Keep,
        etag: None,
    };
    let create = |dag: &str| {
        let spec = spec(catalogue(), &[large, 1, large], 10);
        FleetCommand::CreateDag(NewFleetDag { spec, ..new("acme", dag, 10) })
    };
    fleet.operator(quota(1));
    fleet.acme(create("a")).expect("twice in a DAG is once");
    let used = |fleet: &Fleet| fleet.replica.usage(&tenant("acme")).expect("registered").memory;
    assert_eq!(used(&fleet), ByteSize::from_bytes(memory));
    let over = fleet.acme(create("b")).expect_err("two are more than one");
    assert!(over.to_string().contains("memory_max_bytes"), "{over}");
    fleet.operator(quota(2));
    fleet.acme(create("b")).expect("the quota is larger");
    fleet.operator(quota(1));
    fleet.acme(update("a", 20, None)).expect("what does not grow is allowed");
    for dag in ["a", "b"] {
        fleet.acme(delete(dag_name("acme", dag), false)).expect("it is acme's");
    }
    assert_eq!(used(&fleet), ByteSize::ZERO);
}
