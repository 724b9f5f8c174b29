//! Settings of operators: projects, and drains of racks and zones.

use snic_api::fleet_v1 as wire;
use snic_api::fleet_v1::fleet_service_client::FleetServiceClient;
use snic_api::fleet_v1::project_service_client::ProjectServiceClient;
use tonic::Code;

use crate::cluster::{Cluster, in_time, runtime};
use crate::host;
use crate::rig::Rig;

const CHAIN: [&str; 2] = ["firewall", "nat"];
const UUID: &str = "123e4567-e89b-42d3-a456-426614174009";

#[test]
fn tenants_of_a_project_share_its_limits() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 2).await;
        rig.leader().await;
        let root = rig.client(0, "operator/root").await;
        let mut projects = ProjectServiceClient::new(root.0.clone());
        let request = wire::CreateProjectRequest {
            project_id: "shop".into(),
            project: Some(wire::Project { dags_max: Some(1), ..Default::default() }),
            request_id: UUID.into(),
        };
        let made = projects.create_project(request.clone()).await.unwrap().into_inner();
        let again = projects.create_project(request).await.unwrap().into_inner();
        assert_eq!(again, made);
        let made = made.project.unwrap();
        assert_eq!((made.name.as_str(), made.dags_max), ("projects/shop", Some(1)));
        assert_eq!(made.bandwidth_max_bps, None, "no limit is none");
        for tenant in ["acme", "globex"] {
            root.create_tenant(tenant, "").await.unwrap();
            let (tenant, project) = (format!("tenants/{tenant}"), "projects/shop".to_owned());
            let request = wire::SetTenantProjectRequest { tenant, project, ..Default::default() };
            projects.set_tenant_project(request).await.unwrap();
        }
        let running = tokio::spawn(host::run(vec![
            rig.connect(0, "host/h1").await,
            rig.connect(1, "host/h1").await,
        ]));
        root.provide("h1", &CHAIN).await;
        let acme = rig.client(1, "tenant/acme").await;
        acme.create_dag(("acme", "one"), &CHAIN, "").await.unwrap();
        let globex = rig.client(0, "tenant/globex").await;
        let over = globex.create_dag(("globex", "two"), &CHAIN, "").await.unwrap_err();
        assert_eq!(over.code(), Code::ResourceExhausted, "{over:?}");

        let name = made.name.clone();
        let wider = wire::Project { name, dags_max: Some(2), etag: made.etag.clone(), ..made };
        let request = wire::UpdateProjectRequest { project: Some(wider), ..Default::default() };
        let changed = projects.update_project(request.clone()).await.unwrap().into_inner();
        assert_eq!(changed.project.as_ref().unwrap().dags, 1);
        let stale = projects.update_project(request).await.unwrap_err();
        assert_eq!(stale.code(), Code::Aborted, "{stale:?}");
        globex.create_dag(("globex", "two"), &CHAIN, "").await.unwrap();

        let listed = projects.list_projects(wire::ListProjectsRequest::default()).await.unwrap();
        let name = "projects/shop".to_owned();
        let shown = projects.get_project(wire::GetProjectRequest { name: name.clone() }).await;
        let shown = shown.unwrap().into_inner().project.unwrap();
        assert_eq!((shown.dags, shown.bandwidth_bps), (2, 2_000_000_000));
        assert_eq!(listed.into_inner().projects, [shown]);
        let request = wire::DeleteProjectRequest { name: name.clone(), ..Default::default() };
        let used = projects.delete_project(request.clone()).await.unwrap_err();
        assert_eq!(used.code(), Code::FailedPrecondition, "{used:?}");
        for tenant in ["tenants/acme", "tenants/globex"] {
            let tenant = tenant.to_owned();
            let request = wire::SetTenantProjectRequest { tenant, ..Default::default() };
            projects.set_tenant_project(request).await.unwrap();
        }
        projects.delete_project(request).await.unwrap();
        let gone = projects.get_project(wire::GetProjectRequest { name }).await.unwrap_err();
        assert_eq!(gone.code(), Code::NotFound);
        running.abort();
    }));
}

#[test]
fn a_rack_is_drained_and_used_again() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 1).await;
        rig.leader().await;
        let root = rig.client(0, "operator/root").await;
        root.create_host("h1").await.unwrap();
        let mut fleet = FleetServiceClient::new(root.0.clone());
        for (area, moves_max, code) in [
            ("zones/z1/racks/r9", 1, Code::NotFound),
            ("zones/z1/racks/r1", 0, Code::InvalidArgument),
            ("racks/r1", 1, Code::InvalidArgument),
            ("zones/z1/racks/", 1, Code::InvalidArgument),
        ] {
            let request = wire::DrainAreaRequest { area: area.into(), moves_max };
            assert_eq!(fleet.drain_area(request).await.unwrap_err().code(), code, "{area}");
        }
        let area = "zones/z1/racks/r1".to_owned();
        let request = wire::DrainAreaRequest { area: area.clone(), moves_max: 3 };
        let begun = fleet.drain_area(request).await.unwrap().into_inner().drain.unwrap();
        assert_eq!((begun.area.as_str(), begun.moves_max, begun.hosts), (area.as_str(), 3, 1));
        let request = wire::GetAreaDrainRequest { area: area.clone() };
        let shown = fleet.get_area_drain(request.clone()).await.unwrap().into_inner();
        assert_eq!(shown.drain, Some(begun));
        assert_eq!(root.fleet().await.unwrap().drains, std::slice::from_ref(&area));
        assert!(root.host("h1").await.unwrap().draining);
        fleet.undrain_area(wire::UndrainAreaRequest { area }).await.unwrap();
        assert!(!root.host("h1").await.unwrap().draining);
        let gone = fleet.get_area_drain(request).await.unwrap_err();
        assert_eq!(gone.code(), Code::NotFound);
    }));
}

#[test]
fn a_rebalance_is_begun_watched_and_stopped() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 1).await;
        rig.leader().await;
        let root = rig.client(0, "operator/root").await;
        root.create_host("h1").await.unwrap();
        let mut fleet = FleetServiceClient::new(root.0.clone());
        let none = fleet.get_rebalance(wire::GetRebalanceRequest {}).await.unwrap_err();
        assert_eq!(none.code(), Code::NotFound);
        let of = |zone: &str, moves_max, tolerance_percent| wire::StartRebalanceRequest {
            zone: zone.into(),
            moves_max,
            tolerance_percent,
            ..Default::default()
        };
        for (request, code) in [
            (of("zones/z9", 1, 10), Code::NotFound),
            (of("z1", 1, 10), Code::InvalidArgument),
            (of("", 0, 10), Code::InvalidArgument),
            (of("", 1, 99), Code::InvalidArgument),
        ] {
            let wrong = fleet.start_rebalance(request.clone()).await.unwrap_err();
            assert_eq!(wrong.code(), code, "{request:?}");
        }
        let dry = wire::StartRebalanceRequest { validate_only: true, ..of("", 3, 10) };
        let preview = fleet.start_rebalance(dry).await.unwrap().into_inner().rebalance.unwrap();
        assert_eq!(preview.state(), wire::rebalance::State::Preview);
        let none = fleet.get_rebalance(wire::GetRebalanceRequest {}).await.unwrap_err();
        assert_eq!(none.code(), Code::NotFound, "it was only asked about");
        // The host is never heard: it goes on until the host is lost, and is level then, for no card is left.
        let begun = fleet.start_rebalance(of("zones/z1", 3, 10)).await.unwrap();
        let begun = begun.into_inner().rebalance.unwrap();
        assert_eq!(begun.state(), wire::rebalance::State::Running);
        assert_eq!((begun.zone.as_str(), begun.moves_max), ("zones/z1", 3));
        let other = fleet.start_rebalance(of("", 3, 10)).await.unwrap_err();
        assert_eq!(other.code(), Code::FailedPrecondition, "{other:?}");
        let stopped = fleet.stop_rebalance(wire::StopRebalanceRequest::default()).await.unwrap();
        let stopped = stopped.into_inner().rebalance.unwrap();
        assert_eq!(stopped.state(), wire::rebalance::State::Stopped);
        let shown = fleet.get_rebalance(wire::GetRebalanceRequest {}).await.unwrap().into_inner();
        assert_eq!(shown.rebalance, Some(stopped));
    }));
}
