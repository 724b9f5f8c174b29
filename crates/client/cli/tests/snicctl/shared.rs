//! Options that many commands have: labels and descriptions, etags, filters and orders.

use snic_api::v1::*;
use snic_client::output::fixtures;

use crate::support::fake::Fake;
use crate::support::{run, with_input};

fn labels(request: &std::collections::BTreeMap<String, String>) -> Vec<(&str, &str)> {
    request.iter().map(|(key, value)| (&**key, &**value)).collect()
}

#[test]
fn labels_select_what_a_list_has() {
    let fake = Fake::start();
    fake.answer("ListDags", &ListDagsResponse::default())
        .answer("ListRules", &ListRulesResponse::default())
        .answer("ListRegions", &ListRegionsResponse::default())
        .answer("ListCards", &ListCardsResponse::default())
        .answer("ListOperations", &ListOperationsResponse::default());
    for line in [
        "dag list -A -l app=web,!old --filter state=READY --order-by bandwidth_bps",
        "rule list --selector app!=web --dag acme/web",
        "region list card0 --filter state=FAULTY --order-by failures",
        "card list --filter health!=OK",
        "operation list --running --filter metadata.verb=DRAIN --order-by name",
    ] {
        let run = run(fake.endpoint(), line);
        assert_eq!(run.code, 0, "{line}: {}", run.stderr);
    }
    let dags = &fake.asked::<ListDagsRequest>("ListDags")[0];
    assert_eq!(dags.filter, r#"labels.app = "web" AND NOT labels.old:* AND state=READY"#);
    assert_eq!(dags.order_by, "bandwidth_bps");
    let rules = &fake.asked::<ListRulesRequest>("ListRules")[0];
    assert_eq!((&*rules.filter, &*rules.dag), (r#"labels.app != "web""#, "tenants/acme/dags/web"));
    let regions = &fake.asked::<ListRegionsRequest>("ListRegions")[0];
    let of_card = (&*regions.parent, &*regions.filter, &*regions.order_by);
    assert_eq!(of_card, ("cards/card0", "state=FAULTY", "failures"));
    assert_eq!(fake.asked::<ListCardsRequest>("ListCards")[0].filter, "health!=OK");
    let operations = &fake.asked::<ListOperationsRequest>("ListOperations")[0];
    assert!(operations.running_only && operations.order_by == "name", "{operations:?}");
    assert_eq!(operations.filter, "metadata.verb=DRAIN");
}

#[test]
fn a_change_of_a_card_or_region_is_guarded_by_what_was_read() {
    let fake = Fake::start();
    let region = &fixtures::regions()[0];
    fake.answer("CordonCard", &fixtures::card())
        .answer("UncordonCard", &fixtures::card())
        .answer("DrainCard", &fixtures::running())
        .answer("LoadRole", &fixtures::running())
        .answer("ResetCard", &fixtures::running())
        .answer("ReplaceCard", &fixtures::card())
        .answer("RemoveCard", &())
        .answer("CordonRegion", region)
        .answer("UndrainRegion", region)
        .answer("DrainRegion", &fixtures::running())
        .answer("ResetRegion", &fixtures::running());
    let operation = Some(fixtures::running());
    fake.answer("OptimizeCard", &OptimizeCardResponse { operation, ..Default::default() });
    let verbs =
        ["cordon", "uncordon", "drain", "load-role", "reset", "replace", "remove", "optimize"];
    for verb in verbs {
        let run = run(fake.endpoint(), &format!("card {verb} card0 --etag e-{verb}"));
        assert_eq!(run.code, 0, "{verb}: {}", run.stderr);
    }
    for verb in ["cordon", "undrain", "drain", "reset"] {
        let run = run(fake.endpoint(), &format!("region {verb} card0/3 --etag e-{verb}"));
        assert_eq!(run.code, 0, "{verb}: {}", run.stderr);
    }
    assert_eq!(fake.asked::<CordonCardRequest>("CordonCard")[0].etag, "e-cordon");
    assert_eq!(fake.asked::<UncordonCardRequest>("UncordonCard")[0].etag, "e-uncordon");
    assert_eq!(fake.asked::<DrainCardRequest>("DrainCard")[0].etag, "e-drain");
    assert_eq!(fake.asked::<LoadRoleRequest>("LoadRole")[0].etag, "e-load-role");
    assert_eq!(fake.asked::<ResetCardRequest>("ResetCard")[0].etag, "e-reset");
    assert_eq!(fake.asked::<ReplaceCardRequest>("ReplaceCard")[0].etag, "e-replace");
    assert_eq!(fake.asked::<RemoveCardRequest>("RemoveCard")[0].etag, "e-remove");
    assert_eq!(fake.asked::<OptimizeCardRequest>("OptimizeCard")[0].etag, "e-optimize");
    assert_eq!(fake.asked::<CordonRegionRequest>("CordonRegion")[0].etag, "e-cordon");
    assert_eq!(fake.asked::<UndrainRegionRequest>("UndrainRegion")[0].etag, "e-undrain");
    assert_eq!(fake.asked::<DrainRegionRequest>("DrainRegion")[0].etag, "e-drain");
    assert_eq!(fake.asked::<ResetRegionRequest>("ResetRegion")[0].etag, "e-reset");
}

#[test]
fn an_update_of_a_rule_sets_what_is_given() {
    let fake = Fake::start();
    for _ in 0..3 {
        fake.answer("UpdateRule", &fixtures::rule());
    }
    let fine = |line: &str| {
        let run = run(fake.endpoint(), line);
        assert_eq!(run.code, 0, "{line}: {}", run.stderr);
    };
    fine("rule update web-http --priority 0 --etag e1");
    fine("rule update acme.r --dag web --tenant acme --vf 3 --protocol udp");
    fine("rule update web-http --label app=web --label tier=1 --description edge");
    let asked: Vec<UpdateRuleRequest> = fake.asked("UpdateRule");
    let paths = |index: usize| asked[index].update_mask.clone().unwrap().paths;
    let rule = |index: usize| asked[index].rule.clone().unwrap();
    assert_eq!(paths(0), ["priority"]);
    assert_eq!((&*rule(0).name, &*rule(0).etag), ("classificationRules/web-http", "e1"));
    assert_eq!(paths(1), ["match", "dag"]);
    let found = rule(1).r#match.unwrap();
    assert_eq!((found.virtual_function, found.protocol), (Some(3), Some(17)));
    assert_eq!(rule(1).dag, "tenants/acme/dags/web");
    assert_eq!(paths(2), ["labels", "description"]);
    assert_eq!(labels(&rule(2).labels), [("app", "web"), ("tier", "1")]);
    assert_eq!(rule(2).description, "edge");

    let nothing = run(fake.endpoint(), "rule update web-http");
    assert_eq!(nothing.code, 2, "{}", nothing.stderr);
    assert!(nothing.stderr.contains("nothing to change"), "{}", nothing.stderr);
}

#[test]
fn what_is_created_gets_labels_and_a_description() {
    let fake = Fake::start();
    fake.answer("CreateTenant", &fixtures::tenant())
        .answer("UpdateTenant", &fixtures::tenant())
        .answer("CreateNtType", &fixtures::nt_type())
        .answer("CreateRule", &fixtures::rule())
        .answer("CreateDag", &fixtures::running())
        .answer("UpdateDag", &fixtures::running());
    let notes = "--label app=web --label env= --description shop";
    let nt = "nt create x --bandwidth-max 1Gbps --latency-cycles 3 --lut 10 --traffic header";
    for line in [
        format!("tenant create acme {notes}"),
        "tenant update acme --no-labels".to_owned(),
        format!("{nt} {notes}"),
        format!("rule create r --dag acme/web --vf 3 {notes}"),
        format!("dag update acme/web {notes}"),
    ] {
        let run = run(fake.endpoint(), &line);
        assert_eq!(run.code, 0, "{line}: {}", run.stderr);
    }
    let file = "name: web\nbandwidth: 10Gbps\nchain: nat\nlabels: {app: old, tier: \"1\"}\n";
    let created =
        with_input(fake.endpoint(), &format!("dag create -f - --tenant acme {notes}"), file);
    assert_eq!(created.code, 0, "{}", created.stderr);

    let expected = [("app", "web"), ("env", "")];
    let tenant = fake.asked::<CreateTenantRequest>("CreateTenant").remove(0).tenant.unwrap();
    assert_eq!((labels(&tenant.labels), &*tenant.description), (expected.to_vec(), "shop"));
    let update = fake.asked::<UpdateTenantRequest>("UpdateTenant").remove(0);
    assert_eq!(update.update_mask.unwrap().paths, ["labels"]);
    assert!(update.tenant.unwrap().labels.is_empty());
    let nt = fake.asked::<CreateNtTypeRequest>("CreateNtType").remove(0).nt_type.unwrap();
    assert_eq!((labels(&nt.labels), &*nt.description), (expected.to_vec(), "shop"));
    let rule = fake.asked::<CreateRuleRequest>("CreateRule").remove(0).rule.unwrap();
    assert_eq!((labels(&rule.labels), &*rule.description), (expected.to_vec(), "shop"));
    let update = fake.asked::<UpdateDagRequest>("UpdateDag").remove(0);
    assert_eq!(update.update_mask.unwrap().paths, ["labels", "description"]);
    assert_eq!(labels(&update.dag.unwrap().labels), expected);
    let dag = fake.asked::<CreateDagRequest>("CreateDag").remove(0).dag.unwrap();
    assert_eq!(labels(&dag.labels), [("app", "web"), ("env", ""), ("tier", "1")]);
    assert_eq!(dag.description, "shop");
}

#[test]
fn labels_and_description_are_shown() {
    let fake = Fake::start();
    let notes = || [("app".to_owned(), "web".to_owned())].into();
    let description = || "for the shop".to_owned();
    fake.answer("GetDag", &Dag { labels: notes(), description: description(), ..fixtures::web() });
    let tenant = Tenant { labels: notes(), description: description(), ..fixtures::tenant() };
    fake.answer("GetTenant", &tenant);
    fake.answer(
        "GetNtType",
        &NtType { labels: notes(), description: description(), ..fixtures::nt_type() },
    );
    let bitstream =
        Bitstream { labels: notes(), description: description(), ..fixtures::bitstream() };
    fake.answer("GetBitstream", &bitstream);
    fake.answer(
        "GetRule",
        &Rule { labels: notes(), description: description(), ..fixtures::rule() },
    );
    for line in ["dag get acme/web", "tenant get acme", "nt get x", "bitstream get x", "rule get x"]
    {
        let run = run(fake.endpoint(), line);
        let has = |text: &str| run.stdout.contains(text);
        assert!(run.code == 0 && has("app=web") && has("for the shop"), "{line}: {}", run.stdout);
    }
}
