//! Policies, registered at any replica once for all hosts.

use snic_api::fleet_v1 as wire;
use snic_api::fleet_v1::policy_service_client::PolicyServiceClient;
use tonic::{Code, Status};

use crate::cluster::{Cluster, in_time, runtime};
use crate::host;
use crate::rig::Rig;

const UUID: &str = "123e4567-e89b-42d3-a456-426614174010";
const CHAIN: [&str; 2] = ["firewall", "nat"];

struct Operator(PolicyServiceClient<tonic::transport::Channel>);

impl Operator {
    async fn read(&mut self) -> wire::Policies {
        let reply = self.0.get_policies(wire::GetPoliciesRequest {}).await.unwrap();
        reply.into_inner().policies.unwrap()
    }

    async fn set(&mut self, files: &[(&str, &str)], etag: &str) -> Result<wire::Policies, Status> {
        self.ask(files, etag, false, "").await
    }

    async fn ask(
        &mut self,
        files: &[(&str, &str)],
        etag: &str,
        validate_only: bool,
        request_id: &str,
    ) -> Result<wire::Policies, Status> {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let (files, etag) = (files.collect(), etag.to_owned());
        let policies = Some(wire::Policies { files, etag, ..Default::default() });
        let request_id = request_id.to_owned();
        let request = wire::UpdatePoliciesRequest { policies, validate_only, request_id };
        Ok(self.0.update_policies(request).await?.into_inner().policies.unwrap())
    }
}

#[test]
fn policies_are_registered_at_any_replica_and_reach_hosts() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 2).await;
        rig.leader().await;
        let root = rig.client(0, "operator/root").await;
        let mut one = Operator(PolicyServiceClient::new(root.0.clone()));
        let other = rig.client(1, "operator/root").await;
        let mut other = Operator(PolicyServiceClient::new(other.0.clone()));
        let none = one.read().await;
        assert_eq!((none.files.len(), none.etag.as_str(), none.update_time), (0, "", None));
        let running = tokio::spawn(host::run(vec![
            rig.connect(0, "host/h1").await,
            rig.connect(1, "host/h1").await,
        ]));
        root.provide("h1", &CHAIN).await;
        root.create_host("h2").await.unwrap(); // nobody starts it

        let text = "[promises]\ndag_bandwidth_max_mbps = 100\n";
        let checked = one.ask(&[("admission.toml", text)], "", true, "").await.unwrap();
        assert_eq!(checked.files.len(), 0, "only checked");
        let made = one.ask(&[("admission.toml", text)], "", false, UUID).await.unwrap();
        let again = other.ask(&[("admission.toml", text)], "", false, UUID).await.unwrap();
        assert_eq!((made.etag.as_str(), made.files.clone()), (again.etag.as_str(), again.files));
        let found = loop {
            let found = other.read().await;
            if found.hosts_in_force == 1 {
                break found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        };
        assert_eq!(found.files["admission.toml"], text);
        assert_eq!((found.hosts_pending, found.hosts_refusing), (1, 0));
        assert_eq!(found.pending_hosts, ["hosts/h2"]);

        // The fleet keeps to them, too.
        root.create_tenant("acme", "").await.unwrap();
        let acme = rig.client(1, "tenant/acme").await;
        let over = acme.create_dag(("acme", "web"), &CHAIN, "").await.unwrap_err();
        assert_eq!(over.code(), Code::InvalidArgument, "{over:?}");
        assert!(over.message().contains("at most 100 Mbit/s"), "{}", over.message());
        other.set(&[], &found.etag).await.unwrap();
        acme.create_dag(("acme", "web"), &CHAIN, "").await.unwrap();
        running.abort();
    }));
}

/// Where DAGs go whose tenants leave it open; hosts are not sent it, and a tenant sees what was added.
#[test]
fn defaults_of_placements_are_a_policy_of_the_fleet() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 1).await;
        rig.leader().await;
        let root = rig.client(0, "operator/root").await;
        let mut operator = Operator(PolicyServiceClient::new(root.0.clone()));
        let running = tokio::spawn(host::run(vec![rig.connect(0, "host/h1").await]));
        root.provide("h1", &CHAIN).await;
        root.create_tenant("acme", "").await.unwrap();
        let acme = rig.client(0, "tenant/acme").await;
        let file = "fleet-placement.toml";
        for (text, said) in [
            ("[default]\nzone = []\n", "fleet-placement.toml:2: unknown field `zone`"),
            ("[tenants.acme]\nzones = [\"Z!\"]\n", "fleet-placement.toml:2: "),
        ] {
            let status = operator.set(&[(file, text)], "").await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().contains(said), "{}", status.message());
        }
        let made = operator.set(&[(file, "[default]\nzones = [\"z9\"]\n")], "").await.unwrap();
        let refused = acme.create_dag(("acme", "web"), &CHAIN, "").await.unwrap_err();
        assert!(refused.message().contains("1 in another zone"), "{refused:?}");
        let text = "[default]\nzones = [\"z9\"]\n[tenants.acme]\nzones = [\"z1\"]\n";
        let made = operator.set(&[(file, text)], &made.etag).await.unwrap();
        assert_eq!(made.files[file], text);
        acme.create_dag(("acme", "web"), &CHAIN, "").await.unwrap();
        let shown = acme.dag("acme", "web").await.unwrap();
        assert_eq!(shown.placement, None, "the tenant said nothing");
        assert_eq!(shown.placement_defaults.expect("the policy did").zones, ["z1"]);
        while operator.read().await.hosts_in_force < 1 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        running.abort();
    }));
}

#[test]
fn files_that_are_wrong_stale_or_a_tenants_are_refused() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 1).await;
        rig.leader().await;
        let root = rig.client(0, "operator/root").await;
        let mut operator = Operator(PolicyServiceClient::new(root.0.clone()));
        let refused = async |operator: &mut Operator, files: &[(&str, &str)], etag: &str| {
            let status = operator.set(files, etag).await.unwrap_err();
            (status.code(), status.message().to_owned())
        };
        let wrong = [("fairness.toml", "[epoch]\nlength_ms = 0")];
        let (code, text) = refused(&mut operator, &wrong, "").await;
        assert_eq!(code, Code::InvalidArgument);
        assert!(text.contains("fairness.toml:2: epoch.length_ms = 0 is not allowed"), "{text}");
        let (code, text) = refused(&mut operator, &[("../x", "")], "").await;
        assert_eq!(code, Code::InvalidArgument);
        assert!(text.contains("there is no such policy file"), "{text}");
        let long = format!("#{}", "x".repeat(64 << 10));
        let (code, text) = refused(&mut operator, &[("fairness.toml", &long)], "").await;
        assert_eq!(code, Code::InvalidArgument);
        assert!(text.contains("65536 are allowed"), "{text}");
        let fine = [("fairness.toml", "[epoch]\nlength_ms = 40")];
        let (code, _) = refused(&mut operator, &fine, "0011223344556677").await;
        assert_eq!(code, Code::Aborted);
        let made = operator.set(&fine, "").await.unwrap();
        operator.set(&[], &made.etag).await.unwrap();
        let (code, _) = refused(&mut operator, &fine, &made.etag).await;
        assert_eq!(code, Code::Aborted);

        root.create_tenant("acme", "").await.unwrap();
        let acme = rig.client(0, "tenant/acme").await;
        let mut acme = Operator(PolicyServiceClient::new(acme.0.clone()));
        let (code, _) = refused(&mut acme, &[], "").await;
        assert_eq!(code, Code::PermissionDenied);
        let read = acme.0.get_policies(wire::GetPoliciesRequest {}).await.unwrap_err();
        assert_eq!(read.code(), Code::PermissionDenied);
    }));
}
