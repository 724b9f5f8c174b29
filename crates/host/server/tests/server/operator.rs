//! Operators' calls: tenants, NT types, regions, rules.

use prost_types::FieldMask;
use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1::operation::Result as Ended;
use snic_api::v1::operation_metadata::Verb;
use snic_api::v1::{self, ErrorReason};
use tonic::Code;

use crate::rig::{Rig, chain};

const WEB: &str = "tenants/acme/dags/web";
/// Most that one region's `aes` serves (`bitstreams/nt-types.toml`), in bit/s.
pub const AES_BPS: u64 = 30_000_000_000;

#[tokio::test]
async fn a_tenant_is_updated_by_its_mask_and_deleted_with_force() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let get = v1::GetTenantRequest { name: "tenants/acme".into() };
    let made = operator.tenants.get_tenant(get.clone()).await.item().expect("there");
    assert_eq!((made.weight, made.uid.len()), (1, 36));
    assert_eq!(made.quota.expect("always there").dags_max, Some(64));
    let wanted = v1::Tenant {
        name: "tenants/acme".into(),
        weight: 7,
        quota: Some(v1::Quota { dags_max: Some(3), bitstreams_max: Some(4), ..Default::default() }),
        etag: made.etag.clone(),
        ..Default::default()
    };
    let paths = vec!["weight".to_owned(), "quota.dags_max".to_owned()];
    let update = v1::UpdateTenantRequest {
        tenant: Some(wanted),
        update_mask: Some(FieldMask { paths }),
        ..Default::default()
    };
    let updated = operator.tenants.update_tenant(update.clone()).await.item();
    let updated = updated.expect("updated");
    let quota = updated.quota.expect("always there");
    assert_eq!((updated.weight, quota.dags_max, quota.bitstreams_max), (7, Some(3), Some(32)));
    let status = operator.tenants.update_tenant(update).await.expect_err("stale");
    assert_eq!(reason_of(&status), Some(ErrorReason::EtagMismatch));
    operator.ready_dag(WEB, chain(&["nat"])).await;
    let delete = v1::DeleteTenantRequest { name: "tenants/acme".into(), ..Default::default() };
    let status = operator.tenants.delete_tenant(delete.clone()).await.expect_err("it has a DAG");
    assert_eq!(reason_of(&status), Some(ErrorReason::ResourceInUse));
    assert_eq!(status.code(), Code::FailedPrecondition);
    let delete = v1::DeleteTenantRequest { force: true, ..delete };
    operator.tenants.delete_tenant(delete).await.expect("deleted");
    let status = operator.tenants.get_tenant(get).await.expect_err("gone");
    assert_eq!(status.code(), Code::NotFound);
    let again = operator.create_tenant("acme").await.expect("made again");
    assert_ne!(again.uid, made.uid);
    rig.stop().await;
}

#[tokio::test]
async fn resources_in_use_are_not_deleted() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    operator.ready_dag(WEB, chain(&["nat"])).await;
    let request = v1::DeleteNtTypeRequest { name: "ntTypes/nat".into(), ..Default::default() };
    let status = operator.nts.delete_nt_type(request).await.expect_err("used");
    assert_eq!(reason_of(&status), Some(ErrorReason::ResourceInUse));
    let name = "bitstreams/nat-firewall".to_owned();
    let request = v1::DeleteBitstreamRequest { name: name.clone(), ..Default::default() };
    let status = operator.bitstreams.delete_bitstream(request).await.expect_err("used");
    assert_eq!(reason_of(&status), Some(ErrorReason::ResourceInUse));
    let bitstream = operator.bitstreams.get_bitstream(v1::GetBitstreamRequest { name }).await;
    let bitstream = bitstream.item().expect("there");
    assert_eq!(bitstream.loaded_regions.len(), 1);
    assert_eq!(bitstream.area.expect("always there").lut, 864 + 468);
    rig.stop().await;
}

#[tokio::test]
async fn dags_move_before_their_bitstream_is_deleted() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    operator.ready_dag(WEB, chain(&["nat"])).await;
    operator.upload("nat-2", &["nat"]).await.expect("another image with it");
    let name = "bitstreams/nat-firewall".to_owned();
    let request = v1::DeleteBitstreamRequest { name: name.clone(), ..Default::default() };
    let begun = operator.bitstreams.delete_bitstream(request).await.expect("it can move");
    let begun = begun.into_inner().operation.expect("a DAG is in it");
    let metadata = begun.metadata.expect("always there");
    assert_eq!((&metadata.target, metadata.verb()), (&name, Verb::Delete));
    assert_eq!(metadata.progress.expect("always there").dags_left, 1);
    let ended = operator.wait(&begun.name).await;
    assert!(matches!(ended.result, Some(Ended::Response(_))), "{ended:?}");
    let status = operator.bitstreams.get_bitstream(v1::GetBitstreamRequest { name }).await;
    assert_eq!(status.expect_err("deleted").code(), Code::NotFound);
    let dag = operator.get_dag(WEB).await.expect("there");
    let instance = &dag.mapping.as_ref().expect("mapped").stages[0].branches[0].instances[0];
    assert_eq!(instance.bitstream, "bitstreams/nat-2");
    assert_eq!(dag.state(), v1::dag::State::Ready);
    rig.stop().await;
}

#[tokio::test]
async fn a_region_is_drained_and_reset() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let dag = operator.ready_dag(WEB, chain(&["nat"])).await;
    let used = dag.mapping.expect("mapped").stages[0].branches[0].instances[0].region.clone();
    let get = v1::GetRegionRequest { name: used.clone() };
    let region = operator.cards.get_region(get.clone()).await.item().expect("there");
    assert_eq!((region.state(), region.reconfigurations), (v1::region::State::Active, 1));
    assert_eq!(region.users[0].dag, WEB);
    assert_eq!(region.slots[0].reserved_bps, 1_000_000_000);
    let reset = v1::ResetRegionRequest { name: used.clone(), ..Default::default() };
    let status = operator.cards.reset_region(reset.clone()).await.expect_err("in use");
    assert_eq!(reason_of(&status), Some(ErrorReason::ResourceInUse));
    let drain = v1::DrainRegionRequest { name: used.clone(), ..Default::default() };
    let operation = operator.cards.drain_region(drain).await.item().expect("accepted");
    let operation = operator.wait(&operation.name).await;
    let Some(v1::operation::Result::Response(any)) = operation.result else {
        panic!("{operation:?}")
    };
    assert_eq!(any.type_url, "type.googleapis.com/snic.control.v1.Region");
    let region = operator.cards.get_region(get).await.item().expect("there");
    assert!(region.cordoned && region.users.is_empty(), "{region:?}");
    let operation = operator.cards.reset_region(reset).await.item().expect("accepted");
    assert!(operation.done);
    let undrain = v1::UndrainRegionRequest { name: used.clone(), ..Default::default() };
    let region = operator.cards.undrain_region(undrain).await.item().expect("in use again");
    assert!(!region.cordoned);
    assert_eq!(region.state(), v1::region::State::Free, "what it held is forgotten");
    let dag = operator.get_dag(WEB).await.expect("there");
    assert_ne!(dag.mapping.expect("mapped").stages[0].branches[0].instances[0].region, used);
    rig.stop().await;
}

#[tokio::test]
async fn dags_are_moved_together_and_sequences_recommended() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    operator.ready_dag(WEB, chain(&["nat"])).await;
    let name = "cards/card0".to_owned();
    let dry =
        v1::OptimizeCardRequest { name: name.clone(), validate_only: true, ..Default::default() };
    let would_be = operator.cards.optimize_card(dry).await.expect("told").into_inner();
    assert!(would_be.operation.is_none() && would_be.moves.is_empty(), "{would_be:?}");
    assert_eq!((would_be.passes_before, would_be.passes_after), (1, 1));
    let request =
        v1::OptimizeCardRequest { name: name.clone(), validate_only: false, ..Default::default() };
    let reply = operator.cards.optimize_card(request).await.expect("accepted").into_inner();
    let operation = reply.operation.expect("an operation");
    let metadata = operation.metadata.as_ref().expect("always there");
    assert_eq!(metadata.verb(), Verb::Optimize);
    assert_eq!(metadata.target, "cards/card0");
    assert!(operator.wait(&operation.name).await.done);
    let request = v1::RecommendBitstreamsRequest { card: name };
    let told = operator.bitstreams.recommend_bitstreams(request).await.expect("told").into_inner();
    assert_eq!(told.underfilled.len(), 1, "{told:?}");
    assert_eq!(told.underfilled[0].bitstream, "bitstreams/nat-firewall");
    let absent = v1::RecommendBitstreamsRequest { card: "cards/none".into() };
    let status = operator.bitstreams.recommend_bitstreams(absent).await.expect_err("absent");
    assert_eq!(status.code(), Code::NotFound);
    rig.stop().await;
}

/// The result of a consolidation is in its operation, also for those who come later.
#[tokio::test]
async fn a_consolidation_says_how_many_dags_it_moved() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let share =
        |percent: u64| v1::Dag { bandwidth_bps: AES_BPS / 100 * percent, ..chain(&["aes"]) };
    let names = ["a", "b", "c"].map(|id| format!("tenants/acme/dags/{id}"));
    for (name, percent) in names.iter().zip([60, 70, 30]) {
        operator.ready_dag(name, share(percent)).await;
    }
    let request = v1::DeleteDagRequest { name: names[0].clone(), ..Default::default() };
    let deletion = operator.dags.delete_dag(request).await.item().expect("accepted");
    operator.wait(&deletion.name).await;
    let request = v1::OptimizeCardRequest { name: "cards/card0".into(), ..Default::default() };
    let reply = operator.cards.optimize_card(request).await.expect("accepted").into_inner();
    let ended = operator.wait(&reply.operation.expect("an operation").name).await;
    let request = v1::GetOperationRequest { name: ended.name.clone() };
    let later = operator.operations.get_operation(request).await.item().expect("it is kept");
    for operation in [ended, later] {
        let metadata = operation.metadata.expect("always there");
        let progress = metadata.progress.expect("always there");
        assert_eq!((progress.dags_moved, progress.moves_left), (1, 0), "{progress:?}");
        assert!(metadata.stage.contains("DAGs moved: 1"), "{}", metadata.stage);
    }
    rig.stop().await;
}

/// A drain waits if the DAGs have no other place.
#[tokio::test]
async fn a_drain_goes_on_when_there_is_room() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let dag = operator.ready_dag(WEB, chain(&["nat"])).await;
    let used = dag.mapping.expect("mapped").stages[0].branches[0].instances[0].region.clone();
    let all = (0..16).map(|n| format!("cards/card0/regions/{n}"));
    let (last, others): (Vec<String>, Vec<String>) = all.partition(|region| *region == used);
    let mut drains = Vec::new();
    for name in others.iter().chain(&last) {
        let request = v1::DrainRegionRequest { name: name.clone(), ..Default::default() };
        let drain = operator.cards.drain_region(request).await.item().expect("accepted");
        drains.push(drain);
    }
    let waiting = drains.pop().expect("the last");
    for drain in &drains {
        operator.wait(&drain.name).await;
    }
    let get = v1::GetOperationRequest { name: waiting.name.clone() };
    let still = operator.operations.get_operation(get).await.item().expect("there");
    assert!(!still.done, "{still:?}");
    let undrain = v1::UndrainRegionRequest { name: others[3].clone(), ..Default::default() };
    operator.cards.undrain_region(undrain).await.expect("in use again");
    let ended = operator.wait(&waiting.name).await;
    assert!(matches!(ended.result, Some(v1::operation::Result::Response(_))), "{ended:?}");
    let dag = operator.get_dag(WEB).await.expect("there");
    assert_eq!(dag.state(), v1::dag::State::Ready);
    let now = dag.mapping.expect("mapped").stages[0].branches[0].instances[0].region.clone();
    assert_eq!(now, others[3]);
    rig.stop().await;
}

#[tokio::test]
async fn cards_and_regions_are_listed_and_those_absent_are_not_found() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    operator.ready_dag(WEB, chain(&["nat"])).await;
    let cards = operator.cards.list_cards(v1::ListCardsRequest::default()).await;
    let cards = cards.expect("a list").into_inner().cards;
    assert_eq!(cards.len(), 1);
    assert_eq!((&*cards[0].name, cards[0].regions), ("cards/card0", 16));
    assert_eq!(cards[0].health(), v1::card::Health::Ok, "{:?}", cards[0]);
    assert_eq!((cards[0].reconfigurations, cards[0].clock_hz), (1, 250_000_000));
    assert!(cards[0].words_written > 0 && cards[0].table_version > 0);
    let request = v1::ListRegionsRequest {
        parent: "cards/card0".into(),
        page_size: 10,
        ..Default::default()
    };
    let first = operator.cards.list_regions(request.clone()).await.expect("a page").into_inner();
    let page_token = first.next_page_token;
    let request = v1::ListRegionsRequest { page_token, ..request };
    let second = operator.cards.list_regions(request).await.expect("a page").into_inner();
    assert_eq!((first.regions.len(), second.regions.len()), (10, 6));
    // By number, not by text.
    assert_eq!(second.regions[0].name, "cards/card0/regions/10");
    for name in ["cards/card0/regions/31", "cards/other/regions/0"] {
        let request = v1::GetRegionRequest { name: name.into() };
        let status = operator.cards.get_region(request).await.expect_err("absent");
        assert_eq!(reason_of(&status), Some(ErrorReason::ResourceNotFound), "{status:?}");
    }
    for name in ["cards/card0/regions/32", "cards/card0/regions/01", "cards/card0/regions/x"] {
        let request = v1::DrainRegionRequest { name: name.into(), ..Default::default() };
        let status = operator.cards.drain_region(request).await.expect_err("no name");
        assert_eq!(reason_of(&status), Some(ErrorReason::InvalidName), "{status:?}");
    }
    let request = v1::GetCardRequest { name: "cards/other".into() };
    let status = operator.cards.get_card(request).await.expect_err("absent");
    assert_eq!(status.code(), Code::NotFound);
    rig.stop().await;
}

#[tokio::test]
async fn rules_lead_to_dags_and_go_with_them() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    operator.ready_dag(WEB, chain(&["nat"])).await;
    let create = |rule_id: &str, matches: v1::PacketMatch, dag: &str| v1::CreateRuleRequest {
        rule_id: rule_id.into(),
        rule: Some(v1::Rule { r#match: Some(matches), dag: dag.into(), ..Default::default() }),
        request_id: String::new(),
        validate_only: false,
    };
    let matches = v1::PacketMatch {
        vni: Some(7),
        source_prefix: "10.1.0.0/16".into(),
        destination_prefix: "10.2.0.1".into(),
        protocol: Some(6),
        vlan: Some(4_094),
        ..Default::default()
    };
    let rule = operator.rules.create_rule(create("r1", matches.clone(), WEB)).await;
    let rule = rule.item().expect("made");
    let read = rule.r#match.clone().expect("always there");
    assert_eq!((&*read.source_prefix, &*read.destination_prefix), ("10.1.0.0/16", "10.2.0.1/32"));
    assert_eq!((read.vni, read.vlan), (Some(7), Some(4_094)));
    let list = v1::ListRulesRequest { dag: WEB.into(), ..Default::default() };
    let rules = operator.rules.list_rules(list.clone()).await.expect("a list").into_inner().rules;
    assert_eq!(rules, std::slice::from_ref(&rule));
    let bad = |change: fn(&mut v1::PacketMatch)| {
        let mut matches = matches.clone();
        change(&mut matches);
        create("r2", matches, WEB)
    };
    let cases = [
        (bad(|m| m.vni = Some(1 << 24)), "rule.match.vni"),
        (bad(|m| m.vlan = Some(0)), "rule.match.vlan"),
        (bad(|m| m.vlan = Some(4_095)), "rule.match.vlan"),
        (bad(|m| m.source_port = Some(65_536)), "rule.match.source_port"),
        (bad(|m| m.protocol = Some(256)), "rule.match.protocol"),
        (bad(|m| m.source_prefix = "10.1.0.1/16".into()), "rule.match.source_prefix"),
        (bad(|m| m.destination_prefix = "10.1/16".into()), "rule.match.destination_prefix"),
        (bad(|m| *m = v1::PacketMatch::default()), "rule.match"),
        (create("r2", matches.clone(), "tenants/acme/dags/other"), "rule.dag"),
        (create("R", matches.clone(), WEB), "rule_id"),
    ];
    for (request, field) in cases {
        let status = operator.rules.create_rule(request).await.expect_err(field);
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().starts_with(&format!("{field}: ")), "{}", status.message());
    }
    let request = v1::DeleteDagRequest { name: WEB.into(), ..Default::default() };
    operator.dags.delete_dag(request).await.expect("accepted");
    let rules = operator.rules.list_rules(list).await.expect("a list").into_inner().rules;
    assert_eq!(rules, []);
    let request = v1::DeleteRuleRequest { name: rule.name, ..Default::default() };
    let status = operator.rules.delete_rule(request).await.expect_err("gone with the DAG");
    assert_eq!(status.code(), Code::NotFound);
    rig.stop().await;
}
