use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message as _;
use rstest::rstest;

use super::*;
use crate::error::ApiError;
use crate::page::{Page, Query};
use crate::v1::dag::State;

fn time(seconds: i64) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds, nanos: 0 }
}

fn web() -> v1::Dag {
    v1::Dag {
        name: "tenants/acme/dags/web".into(),
        bandwidth_bps: 4_000_000_000,
        state: State::Ready.into(),
        nodes: vec![v1::dag::Node {
            id: "nat".into(),
            nt_type: "ntTypes/nat".into(),
            ..v1::dag::Node::default()
        }],
        conditions: vec![
            v1::Condition { r#type: "Mapped".into(), ..v1::Condition::default() },
            v1::Condition {
                r#type: "Ready".into(),
                observed_generation: 7,
                ..v1::Condition::default()
            },
        ],
        trusted_tenants: vec!["tenants/globex".into()],
        mapping: Some(v1::Mapping { latency_cycles: 40, ..v1::Mapping::default() }),
        labels: BTreeMap::from([
            ("app".into(), "web".into()),
            ("example.com/team".into(), "edge".into()),
        ]),
        create_time: Some(time(1_700_000_000)),
        ..v1::Dag::default()
    }
}

fn holds(filter: &str) -> bool {
    let selection = ListSelection::parse::<v1::Dag>(filter, "").expect(filter);
    selection.key_of(&web()).is_some()
}

#[rstest]
#[case("")]
#[case("   ")]
#[case("state = READY")]
#[case("state=READY")]
#[case("state = STATE_READY")]
#[case("state != FAILED")]
#[case("NOT state = FAILED")]
#[case("bandwidth_bps >= 4000000000")]
#[case("bandwidth_bps > 3999999999 AND bandwidth_bps < 4000000001")]
#[case("name = tenants/acme/dags/web")]
#[case("name = \"tenants/acme/dags/web\"")]
#[case("name:web")]
#[case("name : acme")]
#[case("labels.app = web")]
#[case("labels:app")]
#[case("labels.app:*")]
#[case("labels.example.com/team = edge")]
#[case("labels.other != web")]
#[case("NOT labels:other")]
#[case("conditions.type = Ready")]
#[case("conditions.observed_generation > 6")]
#[case("trusted_tenants:globex")]
#[case("nodes.nt_type = ntTypes/nat AND state = READY AND labels.app = web")]
#[case("mapping:*")]
#[case("mapping.latency_cycles = 40")]
#[case("create_time < \"2026-01-31T12:00:00Z\"")]
#[case("create_time = 2023-11-14T22:13:20Z")]
#[case("NOT update_time:*")]
#[case("generation = 0")]
fn it_holds(#[case] filter: &str) {
    assert!(holds(filter), "{filter}");
    let others = if filter.trim().is_empty() {
        "state = FAILED".into()
    } else {
        format!("{filter} AND state = FAILED")
    };
    assert!(!holds(&others), "{others}");
}

#[rstest]
#[case("state = FAILED")]
#[case("state != READY")]
#[case("NOT state = READY")]
#[case("bandwidth_bps > 4000000000")]
#[case("name = web")]
#[case("labels.app = Web")]
#[case("labels.other = web")]
#[case("labels:other")]
#[case("NOT labels:app")]
#[case("conditions.type = Lost")]
#[case("update_time:*")]
#[case("update_time < \"2026-01-31T12:00:00Z\"")]
#[case("create_time > \"2026-01-31T12:00:00Z\"")]
#[case("description:*")]
#[case("state = READY AND labels.app = mail")]
fn it_does_not_hold(#[case] filter: &str) {
    assert!(!holds(filter), "{filter}");
}

/// Each says what is wrong and what is allowed.
#[rstest]
#[case("colour = red", "\"colour\" is not a field of Dag (fields: name, uid, ")]
#[case("mapping.colour = red", "of Mapping: ")]
#[case("name.x = a", "name has no fields within")]
#[case("state = GREEN", "state is one of PENDING, PROVISIONING, READY, ")]
#[case("bandwidth_bps = fast", "bandwidth_bps is a whole number, not \"fast\"")]
#[case("create_time > yesterday", "such as \"2026-01-31T12:00:00Z\"")]
#[case("mapping = x", "ask mapping:*")]
#[case("labels = x", "labels is a map: compare an entry, such as labels.key")]
#[case("state", "a comparison is a field, an operator")]
#[case("state =", "a comparison is a field, an operator")]
#[case("= READY", "a comparison is a field, an operator")]
#[case("state = = READY", "two operators")]
#[case("state = READY AND", "add a comparison")]
#[case("state = READY OR state = FAILED", "OR is not part of filters")]
#[case("(state = READY)", "parentheses are not part of filters")]
#[case("state = READY name = x", "join comparisons by AND")]
#[case("name = \"web", "no closing quote")]
#[case("name = 'web'", "double quotes")]
#[case("nodes.configuration.key = x", "of Node: id, nt_type)")]
fn what_is_wrong_is_said(#[case] filter: &str, #[case] text: &str) {
    let problem = ListSelection::parse::<v1::Dag>(filter, "").expect_err(filter);
    assert_eq!(problem.field, "filter");
    assert!(problem.what.contains(text), "{}", problem.what);
}

#[test]
fn filters_and_orders_are_bounded() {
    let many = vec!["generation = 0"; 17].join(" AND ");
    let problem = ListSelection::parse::<v1::Dag>(&many, "").expect_err("too many");
    assert_eq!(problem.what, "it has 17 comparisons; at most 16 are allowed");
    assert!(ListSelection::parse::<v1::Dag>(&vec!["uid = 0"; 16].join(" AND "), "").is_ok());
    let long = format!("name = \"{}\"", "a".repeat(1_100));
    assert!(
        ListSelection::parse::<v1::Dag>(&long, "").expect_err("too long").what.contains("1024")
    );
    let problem = ListSelection::parse::<v1::Dag>("", "name,uid,state,form").expect_err("too many");
    assert_eq!(
        (problem.field.as_str(), problem.what.as_str()),
        ("order_by", "it has 4 fields; at most 3 are allowed")
    );
}

#[rstest]
#[case("conditions.type", "has no single value")]
#[case("labels", "has no single value")]
#[case("mapping", "has no single value")]
#[case("colour", "is not a field of Dag")]
#[case("name down", "a field and desc")]
#[case("name,", "is not allowed")]
fn what_is_wrong_with_an_order_is_said(#[case] order: &str, #[case] text: &str) {
    let problem = ListSelection::parse::<v1::Dag>("", order).expect_err(order);
    assert_eq!(problem.field, "order_by");
    assert!(problem.what.contains(text), "{}", problem.what);
}

/// Reads a list as a server does: piece by piece, page by page.
fn pages(
    all: &BTreeMap<String, v1::Tenant>,
    fields: ListFields<'_>,
    bytes_max: usize,
) -> Result<Vec<Page<v1::Tenant>>, ApiError> {
    let (mut pages, mut token) = (Vec::new(), String::new());
    loop {
        let fields = ListFields { page_token: &token, ..fields };
        let listing = Listing::parse::<v1::Tenant>(Query::of("ListTenants"), fields)?;
        let mut pieces = listing.begin::<v1::Tenant>(bytes_max)?;
        let page = loop {
            let (after, most) = pieces.next();
            let rest = all.iter().filter(|(key, _)| after.is_none_or(|after| key.as_str() > after));
            let piece = rest.take(most).map(|(key, tenant)| (key.clone(), tenant.clone()));
            if let Some(page) = pieces.add(piece.collect())? {
                break page;
            }
        };
        token.clone_from(&page.next_page_token);
        pages.push(page);
        if token.is_empty() {
            return Ok(pages);
        }
    }
}

fn tenant(name: &str, weight: u32, description: &str) -> (String, v1::Tenant) {
    let tenant = v1::Tenant {
        name: name.into(),
        weight,
        description: description.into(),
        ..v1::Tenant::default()
    };
    (name.to_owned(), tenant)
}

fn fields<'a>(page_size: i32, filter: &'a str, order_by: &'a str) -> ListFields<'a> {
    ListFields { page_size, page_token: "", filter, order_by }
}

fn names(pages: &[Page<v1::Tenant>]) -> Vec<Vec<&str>> {
    let of = |page: &Page<v1::Tenant>| page.items.len();
    assert!(pages.iter().all(|page| of(page) <= 1_000));
    pages.iter().map(|page| page.items.iter().map(|t| t.name.as_str()).collect()).collect()
}

#[test]
fn the_last_page_has_no_token() {
    let all = BTreeMap::from([tenant("a", 3, ""), tenant("b", 1, ""), tenant("c", 2, "")]);
    let read = |size, filter, order| {
        names(&pages(&all, fields(size, filter, order), usize::MAX).expect("valid"))
            .iter()
            .map(|page| page.join(""))
            .collect::<Vec<_>>()
    };
    assert_eq!(read(3, "", ""), ["abc"]);
    assert_eq!(read(2, "", ""), ["ab", "c"]);
    assert_eq!(read(1, "weight > 1", ""), ["a", "c"]);
    assert_eq!(read(2, "", "weight"), ["bc", "a"]);
    assert_eq!(read(2, "", "weight desc"), ["ac", "b"]);
    assert_eq!(read(1, "weight != 2", "weight"), ["b", "a"]);
    assert_eq!(read(1, "weight > 9", ""), [""]);
}

#[test]
fn a_page_ends_before_it_is_too_large() {
    let all = BTreeMap::from(["a", "b", "c"].map(|name| tenant(name, 1, "")));
    let size = all["a"].encoded_len();
    let lengths = |bytes_max, order| {
        let pages = pages(&all, fields(0, "", order), bytes_max).expect("valid");
        pages.iter().map(|page| page.items.len()).collect::<Vec<_>>()
    };
    for order in ["", "name desc"] {
        assert_eq!(lengths(3 * size, order), [3]);
        assert_eq!(lengths(3 * size - 1, order), [2, 1]);
        assert_eq!(lengths(0, order), [1, 1, 1], "one in any case");
    }
}

#[test]
fn a_token_is_valid_only_for_its_filter_and_order() {
    let all = BTreeMap::from(["a", "b", "c"].map(|name| tenant(name, 1, "")));
    let first = |filter, order| {
        pages(&all, fields(1, filter, order), usize::MAX).expect("valid")[0].next_page_token.clone()
    };
    let kinds = [
        ("", ""),
        ("weight = 1", ""),
        ("", "weight"),
        ("weight = 1", "weight"),
        ("", "weight desc"),
    ];
    for (i, (filter, order)) in kinds.iter().enumerate() {
        let token = first(filter, order);
        for (j, (filter, order)) in kinds.iter().enumerate() {
            let fields = ListFields { page_token: &token, ..fields(1, filter, order) };
            let again = Listing::parse::<v1::Tenant>(Query::of("ListTenants"), fields);
            assert_eq!(again.is_ok(), i == j, "{filter} {order}");
        }
    }
}

/// A filter that few resources pass does not look at all of them for one page.
#[test]
fn a_page_looks_at_a_bounded_number_of_resources() {
    let name = |i: usize| format!("t{i:06}");
    let all: BTreeMap<_, _> =
        (0..25_000).map(|i| tenant(&name(i), u32::from(i == 24_000), "")).collect();
    let pages = pages(&all, fields(10, "weight = 1", ""), usize::MAX).expect("valid");
    let lengths: Vec<usize> = pages.iter().map(|page| page.items.len()).collect();
    assert_eq!(lengths, [0, 0, 1]);
    assert_eq!(pages[2].items[0].name, name(24_000));
}

proptest! {
    /// Against a list that is filtered and sorted as a whole.
    #[test]
    fn pages_put_together_are_the_list(
        all in prop::collection::btree_map("[a-z]{1,3}", (0..5_u32, "[xyz]{0,2}"), 0..700),
        size in 1..40_i32,
        least in prop::option::of(0..5_u32),
        order in 0..4_usize,
    ) {
        let all: BTreeMap<String, v1::Tenant> =
            all.into_iter().map(|(name, (weight, text))| tenant(&name, weight, &text)).collect();
        let filter = least.map_or(String::new(), |least| format!("weight >= {least}"));
        let order_by = ["", "weight", "weight desc, description", "description,weight desc"][order];
        let mut wanted: Vec<&v1::Tenant> =
            all.values().filter(|tenant| tenant.weight >= least.unwrap_or(0)).collect();
        match order {
            1 => wanted.sort_by_key(|t| t.weight),
            2 => wanted.sort_by_key(|t| (u32::MAX - t.weight, t.description.clone())),
            3 => wanted.sort_by_key(|t| (t.description.clone(), u32::MAX - t.weight)),
            _ => {}
        }
        let wanted: Vec<&str> = wanted.into_iter().map(|t| t.name.as_str()).collect();
        let pages = pages(&all, fields(size, &filter, order_by), usize::MAX).expect("valid");
        prop_assert!(pages.iter().all(|page| page.items.len() <= usize::try_from(size).expect("small")));
        prop_assert_eq!(names(&pages).concat(), wanted);
    }

    /// Whatever is sent, it is understood or refused with a reason.
    #[test]
    fn no_filter_panics(filter in "[a-z_.=<>!:\"\\\\* 0-9ANDORT()é]{0,60}", order in "[a-z_., ]{0,40}") {
        match ListSelection::parse::<v1::Dag>(&filter, &order) {
            Ok(selection) => drop(selection.key_of(&web())),
            Err(problem) => prop_assert!(!problem.what.is_empty()),
        }
    }
}
