//! Access to the fleet's own services.

use snic_front::access::{Access, Methods, Row, Span, TABLE, change, row};

/// The methods of `snic.fleet.v1`, sorted by path. Reports of hosts and requests that replicas pass on are not audited:
/// what they lead to was asked for, and audited, elsewhere.
const FLEET: &[Row] = &[
    change("/snic.fleet.v1.FleetService/CordonHost", Access::Operator, Span::Short),
    change("/snic.fleet.v1.FleetService/CreateHost", Access::Operator, Span::Short),
    change("/snic.fleet.v1.FleetService/CreateReservation", Access::Orchestrator, Span::Short),
    change("/snic.fleet.v1.FleetService/DeleteHost", Access::Operator, Span::Short),
    change("/snic.fleet.v1.FleetService/DeleteReservation", Access::Orchestrator, Span::Short),
    change("/snic.fleet.v1.FleetService/DrainArea", Access::Operator, Span::Short),
    change("/snic.fleet.v1.FleetService/DrainHost", Access::Operator, Span::Short),
    row("/snic.fleet.v1.FleetService/FindHosts", Access::Orchestrator, Span::Short),
    row("/snic.fleet.v1.FleetService/GetAreaDrain", Access::Operator, Span::Short),
    row("/snic.fleet.v1.FleetService/GetFleet", Access::Operator, Span::Short),
    row("/snic.fleet.v1.FleetService/GetHost", Access::Operator, Span::Short),
    row("/snic.fleet.v1.FleetService/GetRebalance", Access::Operator, Span::Short),
    row("/snic.fleet.v1.FleetService/ListHosts", Access::Operator, Span::Short),
    row("/snic.fleet.v1.FleetService/RenewReservation", Access::Orchestrator, Span::Short),
    change("/snic.fleet.v1.FleetService/StartRebalance", Access::Operator, Span::Short),
    change("/snic.fleet.v1.FleetService/StopRebalance", Access::Operator, Span::Short),
    change("/snic.fleet.v1.FleetService/UncordonHost", Access::Operator, Span::Short),
    change("/snic.fleet.v1.FleetService/UndrainArea", Access::Operator, Span::Short),
    change("/snic.fleet.v1.FleetService/UndrainHost", Access::Operator, Span::Short),
    row("/snic.fleet.v1.FleetService/WatchHosts", Access::Operator, Span::Stream),
    row("/snic.fleet.v1.HostLinkService/Answer", Access::Host, Span::Dialogue),
    row("/snic.fleet.v1.HostLinkService/FetchImage", Access::Host, Span::Stream),
    row("/snic.fleet.v1.HostLinkService/Link", Access::Host, Span::Dialogue),
    row("/snic.fleet.v1.PolicyService/GetPolicies", Access::Operator, Span::Short),
    change("/snic.fleet.v1.PolicyService/UpdatePolicies", Access::Operator, Span::Short),
    change("/snic.fleet.v1.ProjectService/CreateProject", Access::Operator, Span::Short),
    change("/snic.fleet.v1.ProjectService/DeleteProject", Access::Operator, Span::Short),
    row("/snic.fleet.v1.ProjectService/GetProject", Access::Operator, Span::Short),
    row("/snic.fleet.v1.ProjectService/ListProjects", Access::Operator, Span::Short),
    change("/snic.fleet.v1.ProjectService/SetTenantProject", Access::Operator, Span::Short),
    change("/snic.fleet.v1.ProjectService/UpdateProject", Access::Operator, Span::Short),
    row("/snic.fleet.v1.ReplicaService/Ask", Access::Replica, Span::Short),
    row("/snic.fleet.v1.ReplicaService/CallHost", Access::Replica, Span::Stream),
];

/// All methods of a replica: those that hosts have, too, and its own.
pub const METHODS: Methods = Methods::new(&[TABLE, FLEET]);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost_reflect::{DescriptorPool, MethodDescriptor};

    use super::*;

    #[test]
    fn every_method_of_the_package_has_a_row_in_order() {
        assert!(FLEET.is_sorted_by(|a, b| a.path < b.path));
        let pool = DescriptorPool::decode(snic_api::FLEET_DESCRIPTOR_SET).expect("descriptors");
        let services = pool.services().filter(|of| of.package_name() == "snic.fleet.v1");
        let methods = services.flat_map(|of| of.methods().collect::<Vec<_>>());
        let path =
            |of: MethodDescriptor| format!("/{}/{}", of.parent_service().full_name(), of.name());
        let methods: BTreeSet<String> = methods.map(path).collect();
        let rows: BTreeSet<String> = FLEET.iter().map(|row| row.path.to_owned()).collect();
        assert_eq!(rows, methods);
        assert!(FLEET.iter().all(|row| METHODS.find(row.path) == Some(*row)));
    }
}
