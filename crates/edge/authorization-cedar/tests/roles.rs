//! The four roles of the page about policies, as they stand there.

use snic_authorization_cedar::{CedarPolicies, DEFAULT, PolicyFile};
use snic_front::access::{CONTROL, TABLE};
use snic_front::authorization::{Authorizer as _, BuiltIn, NamedResource, Question};
use snic_front::identity::CallerIdentity;

const PAGE: &str = include_str!("../../../host/daemon/docs/authorization.md");

/// The policy files on the page: name and text.
fn files() -> Vec<(String, String)> {
    let blocks = PAGE.split("```cedar\n").skip(1);
    let block = |text: &str| {
        let (text, _) = text.split_once("```").expect("the end of the block");
        let name = text.lines().next().and_then(|line| line.strip_prefix("// "));
        (name.expect("the file's name").to_owned(), text.to_owned())
    };
    blocks.map(block).collect()
}

fn policies() -> CedarPolicies {
    let (name, text) = DEFAULT;
    let mut all = vec![PolicyFile::parse(name, text).expect("it ships")];
    for (name, text) in files() {
        all.push(PolicyFile::parse(&name, &text).unwrap_or_else(|error| panic!("{error}")));
    }
    CedarPolicies::new(&all)
}

fn decide(
    policies: &CedarPolicies,
    who: &str,
    method: &str,
    name: &str,
    validate_only: bool,
) -> bool {
    let identity = &CallerIdentity::parse(who).expect("an identity");
    let row = CONTROL.named(method).expect(method);
    let resource = &NamedResource::below(name).seen_by(identity);
    policies.decide(&Question { identity, row, resource, validate_only }).allowed
}

#[test]
fn the_page_has_the_four_roles() {
    let names: Vec<String> = files().into_iter().map(|(name, _)| name).collect();
    let expected =
        ["acme-administrators.cedar", "acme-readers.cedar", "card-operators.cedar", "host1.cedar"];
    assert_eq!(names, expected);
}

#[test]
fn each_role_may_what_the_page_says_and_no_more() {
    let policies = policies();
    let web = "tenants/acme/dags/web";
    let machine = "vmBindings/123e4567-e89b-42d3-a456-426614174000";
    let cases = [
        // Administrators.
        ("tenant/acme/alice", "CreateDag", web, true),
        ("tenant/acme/alice", "DeleteNtType", "ntTypes/acme.x", true),
        ("tenant/acme/alice", "CancelOperation", "operations/7", true),
        ("tenant/globex/alice", "GetDag", web, false),
        // Readers.
        ("tenant/acme/bob", "GetDag", web, true),
        ("tenant/acme/bob", "ListDags", "tenants/acme", true),
        ("tenant/acme/bob", "WatchDags", "tenants/-", true),
        ("tenant/acme/bob", "ExplainDag", web, true),
        ("tenant/acme/bob", "GetNtType", "ntTypes/nat", true),
        ("tenant/acme/carol", "GetDag", web, true),
        ("tenant/acme/bob", "CreateDag", web, false),
        ("tenant/acme/bob", "DeleteDag", web, false),
        ("tenant/acme/bob", "WatchPackets", web, false),
        ("tenant/acme/bob", "RunTraffic", web, false),
        ("tenant/acme/bob", "UploadBitstream", "bitstreams/acme.x", false),
        ("tenant/acme/dan", "GetDag", web, false),
        ("tenant/globex/bob", "GetDag", "tenants/globex/dags/web", false),
        // Operators of certain cards.
        ("operator/dave", "CordonCard", "cards/a", true),
        ("operator/dave", "ResetRegion", "cards/a/regions/3", true),
        ("operator/dave", "CordonCard", "cards/b", false),
        ("operator/dave", "ResetRegion", "cards/ab/regions/3", false),
        ("operator/dave", "GetCard", "cards/b", true),
        ("operator/dave", "ListCards", "", true),
        ("operator/dave", "GetDag", web, true),
        ("operator/dave", "DeleteDag", web, false),
        ("operator/dave", "DeleteTenant", "tenants/acme", false),
        ("operator/dave", "SetMaintenance", "", false),
        ("operator/dave", "DownloadBackup", "", false),
        ("operator/erin", "CordonCard", "cards/b", true),
        ("operator/erin", "DownloadBackup", "", true),
        // Orchestrators of certain tenants.
        ("orchestrator/host1", "ListBindings", "tenants/acme", true),
        ("orchestrator/host1", "ListBindings", "tenants/-", false),
        ("orchestrator/host1", "WatchBindings", "tenants/globex", false),
        ("orchestrator/host1", "BindVm", machine, false),
        ("orchestrator/host2", "BindVm", machine, true),
        ("orchestrator/host2", "ListBindings", "tenants/-", true),
        // All others as before.
        ("tenant/acme", "DeleteDag", web, true),
        ("tenant/globex", "CreateDag", "tenants/globex/dags/web", true),
    ];
    for (who, method, name, expected) in cases {
        assert_eq!(decide(&policies, who, method, name, false), expected, "{who} {method} {name}");
    }
    assert!(decide(&policies, "tenant/acme/bob", "CreateDag", web, true), "only checked");
    assert!(!decide(&policies, "tenant/acme/dan", "CreateDag", web, true));
    // With the tenant that the request names.
    let host1 = &CallerIdentity::parse("orchestrator/host1").expect("an identity");
    for (tenant, expected) in [("acme", true), ("globex", false)] {
        for method in ["BindVm", "UnbindVm", "GetBinding", "Heartbeat"] {
            let resource = &NamedResource::named(machine).owned_by(tenant);
            let row = CONTROL.named(method).expect(method);
            let question = Question { identity: host1, row, resource, validate_only: false };
            assert_eq!(policies.decide(&question).allowed, expected, "{method} {tenant}");
        }
    }
}

/// Callers that the page does not speak of are as they were.
#[test]
fn nobody_else_gains_or_loses() {
    let policies = policies();
    for who in ["operator/root", "orchestrator/libvirt", "tenant/globex", "tenant/globex/bob"] {
        let identity = &CallerIdentity::parse(who).expect("an identity");
        for row in TABLE.iter().copied().filter(|row| row.is_decided()) {
            for name in ["", "tenants/acme", "tenants/globex/dags/a", "cards/a", "operations/7"] {
                let resource = &NamedResource::below(name).seen_by(identity);
                let question = Question { identity, row, resource, validate_only: false };
                let expected = BuiltIn.decide(&question).allowed;
                assert_eq!(
                    policies.decide(&question).allowed,
                    expected,
                    "{who} {} {name}",
                    row.path
                );
            }
        }
    }
}
