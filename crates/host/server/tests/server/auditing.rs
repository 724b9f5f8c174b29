//! The audit log: every call of a method that changes something leaves an entry, whatever its
//! result.

use snic_api::v1::audit_service_client::AuditServiceClient;
use snic_api::v1::{self, AuditEntry};
use tonic::Code;

use crate::matrix::MATRIX;
use crate::raw::call;
use crate::rig::{Client, Rig, chain, in_time};

/// The entries that a caller sees, oldest first.
async fn entries(client: &Client, filter: v1::ListAuditEntriesRequest) -> Vec<AuditEntry> {
    let mut log = AuditServiceClient::new(client.channel.clone());
    let mut all = Vec::new();
    let mut page_token = String::new();
    for page in 0.. {
        assert!(page < 1_000, "pages without end");
        let request = v1::ListAuditEntriesRequest { page_size: 7, page_token, ..filter.clone() };
        let reply = log.list_audit_entries(request).await.expect("a page").into_inner();
        all.extend(reply.entries);
        page_token = reply.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    all.reverse();
    all
}

fn told(entry: &AuditEntry) -> String {
    let method = entry.method.split_once('/').map_or("", |(_, method)| method);
    format!("{} {method} {} {} {}", entry.caller, entry.resource, entry.code, entry.reason)
}

#[tokio::test]
async fn audit_entries_show_who_changed_what_without_other_tenants_names() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let (mut acme, mut globex) =
        (rig.client("tenant/acme").await, rig.client("tenant/globex").await);
    acme.ready_dag("tenants/acme/dags/web", chain(&["nat"])).await;
    acme.create_tenant("mine").await.expect_err("it is for operators");
    globex.create_dag("tenants/acme/dags/theft", chain(&["nat"])).await.expect_err("not its own");
    globex.create_dag("tenants/globex/dags/secret", chain(&["nat"])).await.expect("accepted");
    let request =
        v1::DeleteDagRequest { name: "tenants/acme/dags/web".into(), ..Default::default() };
    operator.dags.delete_dag(request).await.expect("deleted");
    // Reads are not audited.
    globex.get_dag("tenants/globex/dags/secret").await.expect("its own");

    let seen: Vec<String> = entries(&acme, Default::default()).await.iter().map(told).collect();
    let expected = [
        "operator CreateTenant tenants/acme OK ",
        "tenant/acme CreateDag tenants/acme/dags/web OK ",
        "tenant/acme CreateTenant tenants/mine PERMISSION_DENIED PERMISSION_DENIED",
        "operator DeleteDag tenants/acme/dags/web OK ",
    ];
    assert_eq!(seen, expected);
    let of_globex = entries(&globex, Default::default()).await;
    let tried = of_globex.iter().find(|entry| entry.resource.ends_with("theft")).expect("its own");
    assert_eq!(tried.caller, "tenant/globex");
    assert_eq!(tried.code, "NOT_FOUND");

    let of_operator = entries(&operator, Default::default()).await;
    assert!(of_operator.len() > 10, "{of_operator:?}");
    let is_local = |entry: &AuditEntry| {
        entry.peer.parse().is_ok_and(|at: std::net::SocketAddr| at.ip().is_loopback())
    };
    assert!(of_operator.iter().all(is_local), "{of_operator:?}");
    assert!(of_operator.windows(2).all(|pair| pair[0].number < pair[1].number), "over pages");
    let upload = of_operator.iter().find(|entry| entry.method.ends_with("UploadBitstream"));
    assert_eq!(
        upload.map(told).as_deref(),
        Some("operator/root UploadBitstream bitstreams/nat-firewall OK ")
    );
    let filter = v1::ListAuditEntriesRequest {
        tenant: "tenants/globex".into(),
        method: "CreateDag".into(),
        ..Default::default()
    };
    let filtered: Vec<String> = entries(&operator, filter).await.iter().map(told).collect();
    let expected = [
        "tenant/globex CreateDag tenants/acme/dags/theft NOT_FOUND RESOURCE_NOT_FOUND",
        "tenant/globex CreateDag tenants/globex/dags/secret OK ",
    ];
    assert_eq!(filtered, expected);
    let filter = v1::ListAuditEntriesRequest {
        tenant: "tenants/globex".into(),
        filter: "code != OK AND method : CreateDag".into(),
        ..Default::default()
    };
    let denied: Vec<String> = entries(&operator, filter).await.iter().map(told).collect();
    assert_eq!(denied, expected[..1], "the filter, over pages of those that it leaves");
    let by_operators =
        v1::ListAuditEntriesRequest { filter: "caller : root".into(), ..Default::default() };
    let named = entries(&acme, by_operators.clone()).await;
    assert_eq!(named, [], "it does not tell a tenant what its entries do not show");
    assert!(!entries(&operator, by_operators).await.is_empty());
    let wrong = v1::ListAuditEntriesRequest { filter: "kode = OK".into(), ..Default::default() };
    let mut log = AuditServiceClient::new(operator.channel.clone());
    let status = log.list_audit_entries(wrong).await.expect_err("there is no such field");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("filter"), "{status}");
    rig.stop().await;
}

#[tokio::test]
async fn every_method_that_changes_leaves_an_entry_also_when_it_is_refused() {
    let rig = Rig::start().await;
    let operator = rig.client("operator/root").await;
    for row in MATRIX {
        // Health and reflection reply to anyone; a backup is a long stream.
        let answer = in_time(call(&operator.channel, row.path, vec![vec![0xFF]])).await;
        assert!(answer.is_err() || !row.is_audited, "{}: {answer:?}", row.path);
    }
    let nobody = rig.connect(None).await;
    let changing: Vec<_> = MATRIX.iter().filter(|row| row.is_audited).collect();
    for row in &changing {
        in_time(call(&nobody, row.path, vec![Vec::new()])).await.expect_err("no identity");
    }
    let entries = entries(&operator, Default::default()).await;
    for row in MATRIX {
        let method = row.path.rsplit_once('.').expect("a package").1;
        let of = entries.iter().filter(|e| e.method == method && e.caller == "operator/root");
        assert_eq!(of.count(), usize::from(row.is_audited), "{}: {entries:?}", row.path);
    }
    let nobody: Vec<&AuditEntry> = entries.iter().filter(|e| e.caller == "nobody").collect();
    assert!(!nobody.is_empty() && nobody.len() < changing.len(), "{nobody:?}");
    assert!(nobody.iter().all(|entry| entry.code == "UNAUTHENTICATED"), "{nobody:?}");
    rig.stop().await;
}

/// Methods are told by name: the matrix itself must not miss a new method that changes something.
#[test]
fn only_methods_that_read_leave_no_entry() {
    let reading =
        ["Get", "List", "Watch", "Diagnose", "Explain", "Recommend", "Wait", "Check", "Download"];
    for row in MATRIX {
        let name = row.method();
        let reads = reading.iter().any(|verb| name.starts_with(verb))
            || ["Heartbeat", "ServerReflectionInfo", "WhoAmI"].contains(&name);
        // Watching packets is audited, though it changes nothing.
        let looks_into_packets = name == "WatchPackets";
        assert_eq!(row.is_audited, !reads || looks_into_packets, "{}", row.path);
    }
}

#[tokio::test]
async fn a_server_without_a_log_says_so() {
    let rig = Rig::adjusted(|settings| settings.front.audit = None).await;
    let operator = rig.client("operator/root").await;
    let mut log = AuditServiceClient::new(operator.channel.clone());
    let status = log.list_audit_entries(v1::ListAuditEntriesRequest::default()).await;
    assert_eq!(status.expect_err("none is kept").code(), Code::FailedPrecondition);
    rig.stop().await;
}
