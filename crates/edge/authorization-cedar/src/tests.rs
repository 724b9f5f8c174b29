use proptest::prelude::*;
use snic_front::access::{CONTROL, Row, TABLE};
use snic_front::authorization::BuiltIn;

use super::*;

fn default_policies() -> CedarPolicies {
    let (name, text) = DEFAULT;
    CedarPolicies::new([&PolicyFile::parse(name, text).expect("it ships")])
}

/// The default, and these beside it.
fn beside_default(text: &str) -> CedarPolicies {
    let (name, default) = DEFAULT;
    let default = PolicyFile::parse(name, default).expect("it ships");
    let own = PolicyFile::parse("own.cedar", text).expect("valid");
    CedarPolicies::new([&default, &own])
}

fn identity(text: &str) -> CallerIdentity {
    CallerIdentity::parse(text).expect("an identity")
}

/// As the server asks.
fn ask(
    policies: &dyn Authorizer,
    who: &str,
    method: &str,
    name: &str,
    dry: bool,
) -> AccessDecision {
    let identity = identity(who);
    let row = CONTROL.named(method).expect(method);
    let resource = NamedResource::below(name).seen_by(&identity);
    policies.decide(&Question { identity: &identity, row, resource: &resource, validate_only: dry })
}

fn may(policies: &dyn Authorizer, who: &str, method: &str, name: &str) -> bool {
    ask(policies, who, method, name, false).allowed
}

const IDENTITIES: [&str; 6] = [
    "operator/root",
    "orchestrator/libvirt",
    "tenant/acme",
    "tenant/globex",
    "tenant/acme/bob",
    "tenant/all/all",
];

const RESOURCES: [&str; 17] = [
    "",
    "tenants/-",
    "tenants/acme",
    "tenants/globex",
    "tenants/acme/dags/web",
    "tenants/globex/dags/web",
    "ntTypes/nat",
    "ntTypes/acme.x",
    "ntTypes/globex.x",
    "bitstreams/nat",
    "bitstreams/globex.x",
    "classificationRules/r",
    "operations/7",
    "vmBindings/123e4567-e89b-42d3-a456-426614174000",
    "cards/a",
    "cards/a/regions/3",
    "no name",
];

fn rows() -> Vec<Row> {
    TABLE.iter().copied().filter(Row::is_decided).collect()
}

/// The same question to both, as the server asks it and with the resource as its name says.
fn agree(
    default: &CedarPolicies,
    who: &str,
    row: Row,
    resource: &NamedResource,
    validate_only: bool,
) {
    let identity = identity(who);
    for resource in [resource.clone(), resource.seen_by(&identity)] {
        let question = Question { identity: &identity, row, resource: &resource, validate_only };
        let built_in = BuiltIn.decide(&question).allowed;
        // A resource that the server never asks about for a tenant: it lies nowhere.
        if identity.tenant().is_some() && resource.tenant.is_none() {
            continue;
        }
        assert_eq!(default.decide(&question).allowed, built_in, "{who} {} {resource:?}", row.path);
    }
}

#[test]
fn the_default_equals_the_built_in_rules_in_every_cell() {
    let default = default_policies();
    let mut cells = 0;
    for who in IDENTITIES {
        for row in rows() {
            for name in RESOURCES {
                agree(&default, who, row, &NamedResource::below(name), false);
                cells += 1;
            }
        }
    }
    assert!(cells > 6_000, "{cells}");
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{1,2}", Just("all".to_owned()), Just("acme".to_owned())]
}

fn some_identity() -> impl Strategy<Value = String> {
    prop_oneof![
        name().prop_map(|name| format!("operator/{name}")),
        name().prop_map(|name| format!("orchestrator/{name}")),
        name().prop_map(|name| format!("tenant/{name}")),
        (name(), name()).prop_map(|(tenant, name)| format!("tenant/{tenant}/{name}")),
    ]
}

fn some_resource() -> impl Strategy<Value = NamedResource> {
    let id = || "[a-c]{0,2}([./-][a-c\"\\\\*]{0,3}){0,2}";
    let collections = [
        "tenants",
        "ntTypes",
        "bitstreams",
        "classificationRules",
        "operations",
        "vmBindings",
        "cards",
        "",
    ];
    let named = (
        prop::sample::select(collections.to_vec()),
        id(),
        prop_oneof!["", "/dags/[a-c]", "/regions/[0-9]"],
    );
    (named, prop::option::of(name())).prop_map(|((collection, id, rest), owner)| {
        let resource = NamedResource::below(&format!("{collection}/{id}{rest}"));
        match owner {
            Some(owner) => resource.owned_by(&owner),
            None => resource,
        }
    })
}

proptest! {
    #[test]
    fn the_default_equals_the_built_in_rules(
        who in some_identity(),
        row in prop::sample::select(rows()),
        resource in some_resource(),
        validate_only: bool,
    ) {
        agree(&default_policies(), &who, row, &resource, validate_only);
    }
}

#[test]
fn without_policies_nothing_is_allowed() {
    let none = CedarPolicies::new([]);
    for who in IDENTITIES {
        for row in rows() {
            assert_eq!(
                ask(&none, who, row.path.rsplit('.').next().expect("a method"), "", false),
                AccessDecision::default()
            );
        }
    }
}

#[test]
fn a_decision_names_the_policies_that_made_it() {
    let policies = beside_default(
        "@id(\"no-deletes\")\nforbid (principal, action == Action::\"DeleteDag\", resource);\n\
         permit (principal == Member::\"acme/bob\", action in Action::\"Read\", resource);",
    );
    let web = "tenants/acme/dags/web";
    let cases = [
        ("tenant/acme", "GetDag", true, &["default.cedar:tenants"][..]),
        ("tenant/acme", "DeleteDag", false, &["own.cedar:no-deletes"]),
        ("operator/root", "DeleteDag", false, &["own.cedar:no-deletes"]),
        ("tenant/acme/bob", "GetDag", true, &["own.cedar:2"]),
        ("tenant/acme/bob", "CreateDag", false, &[]),
    ];
    for (who, method, allowed, by) in cases {
        let decision = ask(&policies, who, method, web, false);
        assert_eq!(
            (decision.allowed, &decision.policies[..]),
            (allowed, &by.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>()[..]),
            "{who} {method}"
        );
    }
}

#[test]
fn errors_say_file_line_and_what_is_allowed() {
    let cases = [
        ("permit (principal, action, resource)\n\n\npermit", 4, "unexpected"),
        ("\npermit (principal, action == Action::\"GetDags\", resource);", 2, "GetDag"),
        (
            "// A comment.\n\npermit (principal == Tennant::\"acme\", action, resource);",
            3,
            "Tenant",
        ),
        ("permit (principal, action, resource)\nwhen {\n  principal.name == \"x\" };", 3, "name"),
        (
            "permit (principal, action, resource)\nwhen { context.validate_onli };",
            2,
            "validate_only",
        ),
        ("permit (principal == ?principal, action, resource);", 1, "template"),
        (
            "@id(\"a\")\npermit (principal, action, resource);\n@id(\"a\")\nforbid (principal, action, resource);",
            1,
            "own.cedar:a",
        ),
    ];
    for (text, line, says) in cases {
        let error = PolicyFile::parse("own.cedar", text).expect_err(text);
        assert_eq!(error.line, line, "{error}");
        assert!(error.message.contains(says), "{error}");
        assert!(error.to_string().starts_with(&format!("own.cedar:{line}: ")), "{error}");
    }
    let many = "permit (principal, action, resource);\n".repeat(POLICIES_MAX + 1);
    let error = PolicyFile::parse("own.cedar", &many).expect_err("too many");
    assert!(error.message.contains("limit 200"), "{error}");
    let long = format!("//{}", "x".repeat(FILE_BYTES_MAX));
    let error = PolicyFile::parse("own.cedar", &long).expect_err("too long");
    assert!(error.message.contains("too many (limit"), "{error}");
}

/// A name in a request is data: it cannot become part of a policy or of another entity.
#[test]
fn a_name_with_quotes_is_only_a_name() {
    let policies =
        beside_default("forbid (principal, action, resource) unless { resource == Card::\"a\" };");
    assert!(may(&policies, "operator/root", "CordonCard", "cards/a"));
    for name in ["cards/a\"", "cards/a\" || \"", "cards/\\a", "cards/b", "cards/a/regions/1"] {
        assert!(!may(&policies, "operator/root", "CordonCard", name), "{name}");
    }
}

/// A policy about names that questions have too, in each place where a policy can write one.
fn some_policy() -> impl Strategy<Value = String> {
    let effect = prop::sample::select(vec!["permit", "forbid"]);
    let principal = prop_oneof![
        Just("principal".to_owned()),
        Just("principal is Tenant".to_owned()),
        Just("principal is Member".to_owned()),
        name().prop_map(|id| format!("principal == Operator::\"{id}\"")),
        name().prop_map(|id| format!("principal == Tenant::\"{id}\"")),
        (name(), name()).prop_map(|(of, id)| format!("principal == Member::\"{of}/{id}\"")),
        name().prop_map(|id| format!("principal in Tenant::\"{id}\"")),
    ];
    let action = prop::sample::select(vec![
        "action",
        "action == Action::\"GetDag\"",
        "action in Action::\"Read\"",
        "action in Action::\"TenantMethod\"",
    ]);
    let resource = prop_oneof![
        Just("resource".to_owned()),
        name().prop_map(|id| format!("resource in Tenant::\"{id}\"")),
        name().prop_map(|id| format!("resource in Card::\"{id}\"")),
        name().prop_map(|id| format!("resource == Card::\"{id}\"")),
        name().prop_map(|id| format!("resource == NtType::\"{id}\"")),
        (name(), name()).prop_map(|(of, id)| format!("resource == Dag::\"{of}/{id}\"")),
    ];
    let when = prop_oneof![
        Just(String::new()),
        Just(" when { context.validate_only }".to_owned()),
        Just(" when { resource in principal }".to_owned()),
        Just(" when { resource == principal }".to_owned()),
        Just(" when { principal is Member && resource in principal.tenant }".to_owned()),
        name().prop_map(|id| format!(" unless {{ resource in Tenant::\"{id}\" }}")),
        (name(), name()).prop_map(|(of, id)| {
            format!(" when {{ [Tenant::\"{of}\", Tenant::\"{id}\"].contains(resource) }}")
        }),
    ];
    (effect, principal, action, resource, when).prop_map(
        |(effect, principal, action, resource, when)| {
            format!("{effect} ({principal}, {action}, {resource}){when};")
        },
    )
}

proptest! {
    /// Many questions to one set, so that most are answered from what was decided about another.
    #[test]
    fn what_was_decided_is_what_would_be_decided(
        policies in prop::collection::vec(some_policy(), 1..6),
        questions in prop::collection::vec(
            (some_identity(), prop::sample::select(rows()), some_resource(), any::<bool>()),
            64,
        ),
    ) {
        // What the schema finds impossible is no policy; the others stay.
        let valid = policies.iter().enumerate().filter_map(|(number, text)| {
            PolicyFile::parse(&format!("{number}.cedar"), text).ok()
        });
        let files: Vec<PolicyFile> = valid.collect();
        let policies = CedarPolicies::new(&files);
        for (who, row, resource, validate_only) in questions {
            let identity = identity(&who);
            for resource in [resource.clone(), resource.seen_by(&identity)] {
                let resource = &resource;
                let question = Question { identity: &identity, row, resource, validate_only };
                let (kept, made) = (policies.decide(&question), policies.evaluate(&question));
                prop_assert_eq!(kept, made, "{} {} {:?}", who, row.path, resource);
            }
        }
    }
}

/// However many callers and names there are, there are as many decisions as policies can tell apart.
#[test]
fn ten_thousand_callers_and_names_are_one_case() {
    let policies =
        beside_default("forbid (principal == Tenant::\"t7\", action, resource == Dag::\"t7/d7\");");
    for number in 0..10_000 {
        let name = format!("tenants/t{number}/dags/d{number}");
        let allowed = may(&policies, &format!("tenant/t{number}"), "GetDag", &name);
        assert_eq!(allowed, number != 7, "{name}");
    }
    assert_eq!(policies.decided.len(), 2);
}
