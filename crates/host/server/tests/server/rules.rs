//! Classification rules of tenants.

use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use snic_api::v1::{self, ErrorReason};
use tonic::Code;

use crate::rig::{Client, Rig, chain, in_time};

const ACMES: &str = "tenants/acme/dags/web";
const WEB: &str = "tenants/globex/dags/web";

/// Binds a machine of this number to a DAG, with one function.
pub async fn bind(rig: &Rig, tenant: &str, dag: &str, number: u32) {
    let channel = rig.client("orchestrator/libvirt").await.channel;
    let names = vec![dag.to_owned()];
    let request = v1::BindVmRequest {
        vm: format!("00000000-0000-4000-8000-{number:012}"),
        tenant: tenant.into(),
        chains: Some(v1::bind_vm_request::Chains::Dags(v1::DagNames { names })),
        ..Default::default()
    };
    let mut machines = OrchestrationServiceClient::new(channel);
    in_time(machines.bind_vm(request)).await.expect("bound");
}

/// A rule for TCP packets of the card's function 0, which the first machine has; without name and DAG.
pub fn rule_of_function_0() -> v1::Rule {
    let matches =
        v1::PacketMatch { virtual_function: Some(0), protocol: Some(6), ..Default::default() };
    v1::Rule { priority: 32_000, r#match: Some(matches), ..Default::default() }
}

type Change = fn(&mut v1::Rule);

/// acme with a machine that has function 0 of the card, and globex with a DAG.
async fn neighbours(rig: &Rig) -> Client {
    rig.furnished().await;
    let mut acme = rig.client("tenant/acme").await;
    acme.create_dag(ACMES, chain(&["nat"])).await.expect("a DAG");
    bind(rig, "tenants/acme", ACMES, 1).await;
    let mut globex = rig.client("tenant/globex").await;
    let operation = globex.create_dag(WEB, chain(&["nat"])).await.expect("a DAG");
    globex.wait(&operation.name).await;
    globex
}

fn function(number: u32) -> v1::PacketMatch {
    v1::PacketMatch { virtual_function: Some(number), ..Default::default() }
}

fn create(id: &str, function: v1::PacketMatch, change: Change) -> v1::CreateRuleRequest {
    let r#match = Some(function);
    let mut rule = v1::Rule { dag: WEB.into(), r#match, ..rule_of_function_0() };
    change(&mut rule);
    v1::CreateRuleRequest {
        rule_id: id.into(),
        rule: Some(rule),
        request_id: String::new(),
        validate_only: false,
    }
}

/// Whatever a tenant asks for, its rules concern packets of its own machines and lead to its own DAGs.
#[tokio::test]
async fn a_tenants_rules_are_about_its_own_packets() {
    let rig = Rig::start().await;
    let mut globex = neighbours(&rig).await;
    // Without a machine there is no function to make rules for; function 0 is acme's.
    let request = create("globex.a", function(0), |_| ());
    let status = globex.rules.create_rule(request.clone()).await.expect_err("acme's");
    assert!(status.message().contains("none of your machines"), "{}", status.message());
    bind(&rig, "tenants/globex", WEB, 2).await;
    let status = globex.rules.create_rule(request).await.expect_err("acme's");
    assert!(status.message().ends_with("on the DAG's card: 1"), "{}", status.message());
    let vni = v1::PacketMatch { vni: Some(7), ..Default::default() };
    let cases: [(&str, v1::PacketMatch, Change, &str); 6] = [
        ("globex.a", vni, |_| (), "rule.match.virtual_function: "),
        ("globex.a", function(1), |rule| rule.dag = ACMES.into(), "rule.dag: "),
        ("globex.a", function(1), |rule| rule.priority = 0, "rule.priority: "),
        ("globex.a", function(1), |rule| rule.priority = 32_768, "rule.priority: "),
        ("acme.a", function(1), |_| (), "rule_id: "),
        ("a", function(1), |_| (), "rule_id: "),
    ];
    for (id, function, change, field) in cases {
        let request = create(id, function, change);
        let status = globex.rules.create_rule(request).await.expect_err(field);
        assert!(status.message().starts_with(field), "{}", status.message());
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_tenants_rule_stays_its_own_and_ends_with_its_machine() {
    let rig = Rig::start().await;
    let mut globex = neighbours(&rig).await;
    bind(&rig, "tenants/globex", WEB, 2).await;
    let own = create("globex.a", function(1), |_| ());
    let rule = globex.rules.create_rule(own).await.item().expect("its own");
    let update = |change: Change| {
        let mut rule = rule.clone();
        change(&mut rule);
        v1::UpdateRuleRequest { rule: Some(rule), ..Default::default() }
    };
    let cases: [(Change, &str); 3] = [
        (|rule| rule.r#match = Some(function(0)), "rule.match.virtual_function: "),
        (|rule| rule.dag = ACMES.into(), "rule.dag: "),
        (|rule| rule.priority = 7, "rule.priority: "),
    ];
    for (change, field) in cases {
        let status = globex.rules.update_rule(update(change)).await.expect_err(field);
        assert!(status.message().starts_with(field), "{}", status.message());
    }
    let changed = globex.rules.update_rule(update(|rule| rule.priority = 32_001)).await;
    assert_eq!(changed.item().expect("its own").priority, 32_001);
    let late = globex.rules.update_rule(update(|rule| rule.priority = 32_002)).await;
    let status = late.expect_err("it has changed since");
    assert_eq!(reason_of(&status), Some(ErrorReason::EtagMismatch));
    // With the machine go the rules for its function, which the next one gets.
    let channel = rig.client("orchestrator/libvirt").await.channel;
    let vm = "00000000-0000-4000-8000-000000000002".into();
    let unbind = v1::UnbindVmRequest { vm, ..Default::default() };
    OrchestrationServiceClient::new(channel).unbind_vm(unbind).await.expect("unbound");
    let request = v1::GetRuleRequest { name: rule.name.clone() };
    let status = globex.rules.get_rule(request).await.expect_err("gone with its machine");
    assert_eq!(status.code(), Code::NotFound);
    rig.stop().await;
}
