//! A page token is valid only for the list that issued it.

use std::collections::BTreeSet;

use snic_api::error::reason_of;
use snic_api::replies::ItemOf as _;
use snic_api::v1::audit_service_client::AuditServiceClient;
use snic_api::v1::bind_vm_request::Chains;
use snic_api::v1::event_service_client::EventServiceClient;
use snic_api::v1::fairness_service_client::FairnessServiceClient;
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use snic_api::v1::{self, ErrorReason};
use tonic::Status;

use crate::rig::{Client, Rig, chain};

const WEB: &str = "tenants/acme/dags/web";

/// A list, and its filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Dags(&'static str),
    Bindings(&'static str),
    Regions(&'static str),
    Rules(&'static str),
    /// Target, and whether only running operations.
    Operations(&'static str, bool),
    /// Tenant, caller, method.
    Audit(&'static str, &'static str, &'static str),
    /// Start and end, in seconds.
    AuditTimes(i64, i64),
    Events,
    Bitstreams,
    NtTypes,
    Tenants,
    Fairness,
    Cards,
}

const LISTS: &[List] = &[
    List::Dags("tenants/acme"),
    List::Dags("tenants/globex"),
    List::Dags("tenants/-"),
    List::Bindings("tenants/acme"),
    List::Bindings("tenants/globex"),
    List::Bindings("tenants/-"),
    List::Regions("cards/card0"),
    List::Regions("cards/-"),
    List::Rules(""),
    List::Rules(WEB),
    List::Operations("", false),
    List::Operations("", true),
    List::Operations(WEB, false),
    List::Operations(WEB, true),
    List::Audit("", "", ""),
    List::Audit("tenants/acme", "", ""),
    List::Audit("", "operator/root", ""),
    List::Audit("", "", "CreateTenant"),
    List::AuditTimes(1, 0),
    List::AuditTimes(0, 4_000_000_000),
    List::Events,
    List::Bitstreams,
    List::NtTypes,
    List::Tenants,
    List::Fairness,
    List::Cards,
];

fn time(seconds: i64) -> Option<prost_types::Timestamp> {
    (seconds != 0).then_some(prost_types::Timestamp { seconds, nanos: 0 })
}

/// The next page's token of a page of one item.
async fn next_page(client: &Client, list: List, page_token: &str) -> Result<String, Status> {
    let (page_size, page_token) = (1, page_token.to_owned());
    let channel = client.channel.clone();
    let mut client = client.clone();
    macro_rules! ask {
        ($client:expr, $method:ident,
         $request:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {{
            #[allow(clippy::needless_update, reason = "some requests have no other fields")]
            let request = v1::$request {
                page_size,
                page_token,
                $($field $(: $value)?,)*
                ..Default::default()
            };
            $client.$method(request).await?.into_inner().next_page_token
        }};
    }
    let mut machines = OrchestrationServiceClient::new(channel.clone());
    let mut audit = AuditServiceClient::new(channel.clone());
    Ok(match list {
        List::Dags(parent) => {
            ask!(client.dags, list_dags, ListDagsRequest { parent: parent.into() })
        }
        List::Bindings(parent) => {
            ask!(machines, list_bindings, ListBindingsRequest { parent: parent.into() })
        }
        List::Regions(parent) => {
            ask!(client.cards, list_regions, ListRegionsRequest { parent: parent.into() })
        }
        List::Rules(dag) => ask!(client.rules, list_rules, ListRulesRequest { dag: dag.into() }),
        List::Operations(target, running_only) => ask!(
            client.operations,
            list_operations,
            ListOperationsRequest { target: target.into(), running_only }
        ),
        List::Audit(tenant, caller, method) => ask!(
            audit,
            list_audit_entries,
            ListAuditEntriesRequest {
                tenant: tenant.into(),
                caller: caller.into(),
                method: method.into(),
            }
        ),
        List::AuditTimes(start, end) => ask!(
            audit,
            list_audit_entries,
            ListAuditEntriesRequest { start_time: time(start), end_time: time(end) }
        ),
        List::Events => {
            ask!(EventServiceClient::new(channel), list_events, ListEventsRequest {})
        }
        List::Bitstreams => ask!(client.bitstreams, list_bitstreams, ListBitstreamsRequest {}),
        List::NtTypes => ask!(client.nts, list_nt_types, ListNtTypesRequest {}),
        List::Tenants => ask!(client.tenants, list_tenants, ListTenantsRequest {}),
        List::Fairness => {
            ask!(FairnessServiceClient::new(channel), list_fairness, ListFairnessRequest {})
        }
        List::Cards => ask!(client.cards, list_cards, ListCardsRequest {}),
    })
}

/// Two of everything by which a list can be filtered.
async fn two_of_everything(operator: &mut Client) {
    for (tenant, vm) in [("acme", "a"), ("acme", "b"), ("globex", "c"), ("globex", "d")] {
        let dag = format!("tenants/{tenant}/dags/dag-{vm}");
        operator.ready_dag(&dag, chain(&["nat"])).await;
        let names = vec![dag];
        let request = v1::BindVmRequest {
            vm: format!("00000000-0000-4000-8000-00000000000{vm}"),
            tenant: format!("tenants/{tenant}"),
            chains: Some(Chains::Dags(v1::DagNames { names })),
            ..Default::default()
        };
        let mut machines = OrchestrationServiceClient::new(operator.channel.clone());
        machines.bind_vm(request).await.expect("there are functions");
    }
    operator.ready_dag(WEB, chain(&["nat"])).await;
    let dag = v1::Dag { name: WEB.into(), ..chain(&["nat", "firewall"]) };
    let request = v1::UpdateDagRequest { dag: Some(dag), ..Default::default() };
    let update = operator.dags.update_dag(request).await.item().expect("there is room");
    operator.wait(&update.name).await;
    for (number, rule_id) in ["r1", "r2"].into_iter().enumerate() {
        let vni = u32::try_from(number).ok();
        let matches = Some(v1::PacketMatch { vni, ..Default::default() });
        let rule = Some(v1::Rule { r#match: matches, dag: WEB.into(), ..Default::default() });
        let request = v1::CreateRuleRequest {
            rule_id: rule_id.into(),
            rule,
            request_id: String::new(),
            validate_only: false,
        };
        operator.rules.create_rule(request).await.expect("a rule");
    }
}

#[tokio::test]
async fn a_token_is_good_for_its_own_list_only() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    two_of_everything(&mut operator).await;
    let mut tokens = Vec::new();
    for list in LISTS {
        let token = next_page(&operator, *list, "").await.expect("a page");
        if !token.is_empty() {
            tokens.push((*list, token));
        }
    }
    // A list of at most one item has no token; all other filters are covered.
    let without: Vec<List> = (LISTS.iter().copied())
        .filter(|list| tokens.iter().all(|(other, _)| other != list))
        .filter(|list| !matches!(list, List::Operations(_, true) | List::Events))
        .filter(|list| !matches!(list, List::Fairness | List::Cards))
        .collect();
    assert_eq!(without, []);
    for (from, token) in &tokens {
        for to in LISTS {
            let answer = next_page(&operator, *to, token).await;
            if from == to {
                assert!(answer.is_ok(), "{from:?}: {answer:?}");
                continue;
            }
            let status = answer.expect_err("another list's token");
            let reason = reason_of(&status);
            assert_eq!(reason, Some(ErrorReason::InvalidPageToken), "{from:?} {to:?}: {status:?}");
        }
    }
    let distinct: BTreeSet<&String> = tokens.iter().map(|(_, token)| token).collect();
    assert_eq!(distinct.len(), tokens.len());
    rig.stop().await;
}
