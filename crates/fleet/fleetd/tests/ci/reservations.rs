//! Hosts for machines and reservations, over the API.

use std::time::Duration;

use snic_api::fleet_v1 as wire;
use snic_api::fleet_v1::fleet_service_client::FleetServiceClient;
use tonic::Code;
use tonic::transport::Channel;

use crate::cluster::{Cluster, in_time, runtime};
use crate::host;
use crate::rig::Rig;

const ID: &str = "123e4567-e89b-42d3-a456-426614174000";

fn create(functions: u32, gbps: u64) -> wire::CreateReservationRequest {
    wire::CreateReservationRequest {
        parent: "tenants/acme".into(),
        reservation_id: ID.into(),
        selector: Some(wire::Selector { functions, ..Default::default() }),
        ttl: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        bandwidth_bps: gbps * 1_000_000_000,
        ..Default::default()
    }
}

async fn find(
    fleet: &mut FleetServiceClient<Channel>,
    parent: &str,
    functions: u32,
) -> wire::FindHostsResponse {
    let selector = Some(wire::Selector { functions, ..Default::default() });
    let parent = parent.to_owned();
    let request = wire::FindHostsRequest { selector, parent, ..Default::default() };
    fleet.find_hosts(request).await.unwrap().into_inner()
}

#[test]
fn a_reservation_is_made_shown_renewed_and_released() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let rig = Rig::start(cluster, 1).await;
        rig.leader().await;
        let root = rig.client(0, "operator/root").await;
        for tenant in ["acme", "globex"] {
            root.create_tenant(tenant, "").await.unwrap();
        }
        root.create_host("h1").await.unwrap();
        let running = tokio::spawn(host::run(vec![rig.connect(0, "host/h1").await]));
        let starter = rig.client(0, "orchestrator/vms").await;
        let mut fleet = FleetServiceClient::new(starter.0.clone());
        let mut all = find(&mut fleet, "", 0).await;
        while all.hosts.is_empty() {
            assert_eq!(all.refusals[0].reason, "unreachable");
            tokio::time::sleep(Duration::from_millis(50)).await;
            all = find(&mut fleet, "", 0).await;
        }
        let count = all.hosts[0].functions_left;
        for (wrong, code) in [
            (create(0, 0), Code::InvalidArgument),
            (
                wire::CreateReservationRequest { vm: "x".into(), ..create(1, 0) },
                Code::InvalidArgument,
            ),
            (wire::CreateReservationRequest { ttl: None, ..create(1, 0) }, Code::InvalidArgument),
            (create(count + 1, 0), Code::ResourceExhausted),
        ] {
            let denied = fleet.create_reservation(wrong).await.unwrap_err();
            assert_eq!(denied.code(), code, "{denied:?}");
        }
        let made = fleet.create_reservation(create(count, 1)).await.unwrap().into_inner();
        assert_eq!((made.host.as_str(), made.card.as_str()), ("hosts/h1", "card0"));
        let name = format!("tenants/acme/reservations/{ID}");
        let again = fleet.create_reservation(create(count, 1)).await.unwrap().into_inner();
        assert_eq!(again.reservation.unwrap().name, name, "the same request");
        let get = || wire::GetReservationRequest { name: name.clone() };
        let mut shown =
            fleet.get_reservation(get()).await.unwrap().into_inner().reservation.unwrap();
        while !shown.enforced {
            tokio::time::sleep(Duration::from_millis(20)).await;
            shown = fleet.get_reservation(get()).await.unwrap().into_inner().reservation.unwrap();
        }
        assert_eq!((shown.functions, shown.bandwidth_bps), (count, 1_000_000_000));
        let theirs = find(&mut fleet, "tenants/globex", 1).await;
        let refusal = &theirs.refusals[0];
        assert_eq!((theirs.hosts.len(), refusal.reason.as_str()), (0, "functions-reserved"));
        assert!(!format!("{theirs:?}").contains("acme"), "{theirs:?}");
        assert_eq!(find(&mut fleet, "tenants/acme", 1).await.hosts[0].functions_left, count);
        let (parent, reservation_id) = ("tenants/acme".to_owned(), ID.to_owned());
        let renew = wire::RenewReservationRequest { parent: parent.clone(), reservation_id };
        let renewed = fleet.renew_reservation(renew).await.unwrap().into_inner();
        let until = |of: &wire::Reservation| of.expire_time.unwrap();
        let (before, after) = (until(&shown), until(&renewed.reservation.unwrap()));
        assert!((after.seconds, after.nanos) > (before.seconds, before.nanos));
        let list =
            wire::ListReservationsRequest { parent: "tenants/-".into(), ..Default::default() };
        let listed = fleet.list_reservations(list).await.unwrap().into_inner().reservations;
        assert_eq!(listed.iter().map(|of| &of.name).collect::<Vec<_>>(), [&name]);
        let other =
            wire::ListReservationsRequest { parent: "tenants/globex".into(), ..Default::default() };
        assert_eq!(fleet.list_reservations(other).await.unwrap().into_inner().reservations, []);
        let delete = wire::DeleteReservationRequest { parent, reservation_id: ID.to_owned() };
        fleet.delete_reservation(delete).await.unwrap();
        let gone = fleet.get_reservation(get()).await.unwrap_err();
        assert_eq!(gone.code(), Code::NotFound);
        assert_eq!(find(&mut fleet, "tenants/globex", count).await.hosts.len(), 1);
        running.abort();
    }));
}
