//! Shares of tenants: on each card, as its host computes them, and of all cards of the fleet.

use std::collections::{BTreeMap, BTreeSet};

use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::fairness_service_client::FairnessServiceClient;
use snic_api::v1::fairness_service_server::FairnessService;
use snic_domain::{Caller, TenantId};
use snic_fleet::HostId;
use snic_fleet::protocol::{FleetItem, FleetList, FleetName, FleetTenant};
use snic_front::gate::{caller, passage};
use snic_front::listing;
use tonic::{Request, Response, Status};

use super::gathering::{HostList, HostPage, HostScope, on_host};
use super::{RpcResult, Services};
use crate::passing::HostTransport;

/// Tenants that are read one by one; more are read with all others.
const TENANTS_ONE_BY_ONE: usize = 8;

/// The shares on hosts' cards, by tenant and card.
struct ShareList {
    /// The reader may know which hosts there are.
    is_told: bool,
}

#[tonic::async_trait]
impl HostList for ShareList {
    type Item = v1::Fairness;

    async fn page(
        &self,
        host: HostTransport,
        page: HostPage,
    ) -> Result<(Vec<v1::Fairness>, String), Status> {
        let request = v1::ListFairnessRequest {
            page_size: page.size,
            page_token: page.token,
            filter: page.filter,
            order_by: String::new(),
        };
        let reply = FairnessServiceClient::new(host).list_fairness(request).await?.into_inner();
        Ok((reply.fairness, reply.next_page_token))
    }

    fn named(&self, host: &HostId, share: v1::Fairness) -> v1::Fairness {
        v1::Fairness { card: on_host(self.is_told, host, share.card), ..share }
    }

    fn key(&self, _: &HostId, share: &v1::Fairness) -> String {
        // A tenant sees cards of one name on two hosts. A DAG is on one of them.
        let dag = share.dags.first().map_or("", |dag| dag.dag.as_str());
        format!("{} {} {dag}", share.tenant, share.card)
    }

    fn not_before(&self, key: &str) -> Option<String> {
        let (tenant, _) = key.split_once(' ')?;
        Some(format!("tenant >= \"{tenant}\""))
    }
}

#[tonic::async_trait]
impl FairnessService for Services {
    async fn list_fairness(
        &self,
        request: Request<v1::ListFairnessRequest>,
    ) -> RpcResult<v1::ListFairnessResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let request = request.into_inner();
        let listing = listing!(v1::Fairness, Query::of("ListFairness"), request)?;
        let question = self.question_of(&passage)?;
        let scope = caller.tenant().cloned().map_or(HostScope::All, HostScope::Tenant);
        let hosts = self.hosts_in(&caller, scope).await?;
        let list = ShareList { is_told: caller.tenant().is_none() };
        let (mut page, missing) = self.gathered_page(&question, &listing, (list, hosts)).await?;
        self.add_fleet_shares(&caller, &mut page.items).await?;
        Ok(Response::new(v1::ListFairnessResponse {
            fairness: page.items,
            next_page_token: page.next_page_token,
            unreachable_hosts: missing.to_wire(&caller),
        }))
    }

    async fn get_fairness(
        &self,
        request: Request<v1::GetFairnessRequest>,
    ) -> RpcResult<v1::GetFairnessResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let request = request.into_inner();
        let tenant = name::tenant("name", &request.name).map_err(ApiError::from)?;
        // The same error for an absent tenant and another one.
        self.item(&caller, FleetName::Tenant(tenant.clone())).await?;
        let question = self.question_of(&passage)?;
        let hosts = self.hosts_in(&caller, HostScope::Tenant(tenant)).await?;
        let get = move |_: &HostId, transport| {
            let request = request.clone();
            async move {
                let reply = FairnessServiceClient::new(transport).get_fairness(request).await?;
                Ok(reply.into_inner().fairness)
            }
        };
        let answers = question.ask_all(hosts, get).await;
        let list = ShareList { is_told: caller.tenant().is_none() };
        let mut fairness = Vec::new();
        for (host, shares) in answers.found {
            fairness.extend(shares.into_iter().map(|share| list.named(&host, share)));
        }
        self.add_fleet_shares(&caller, &mut fairness).await?;
        let unreachable_hosts = answers.missing.to_wire(&caller);
        Ok(Response::new(v1::GetFairnessResponse { fairness, unreachable_hosts }))
    }
}

impl Services {
    /// Adds the dominant shares over all cards, which only the leader knows.
    async fn add_fleet_shares(
        &self,
        caller: &Caller,
        all: &mut [v1::Fairness],
    ) -> Result<(), ApiError> {
        let tenants = all.iter().filter_map(|share| name::tenant("tenant", &share.tenant).ok());
        let shares = self.fleet_shares(caller, tenants.collect()).await?;
        for share in all {
            share.fleet_share_ppm = shares.get(&share.tenant).copied().unwrap_or_default();
        }
        Ok(())
    }

    /// Dominant shares of tenants by their names, in millionths.
    async fn fleet_shares(
        &self,
        caller: &Caller,
        tenants: BTreeSet<TenantId>,
    ) -> Result<BTreeMap<String, u32>, ApiError> {
        let items = if tenants.len() > TENANTS_ONE_BY_ONE {
            self.piece(caller, &FleetList::Tenants, None, usize::MAX).await?.0
        } else {
            let mut items = Vec::new();
            for tenant in tenants {
                // It may have been deleted meanwhile.
                items.extend(self.item(caller, FleetName::Tenant(tenant)).await.ok());
            }
            items
        };
        let share = |item: FleetItem| match item {
            FleetItem::Tenant(FleetTenant { tenant, dominant_share_ppb, .. }) => {
                let ppm = u32::try_from(dominant_share_ppb / 1_000).unwrap_or(u32::MAX);
                Some((name::of_tenant(&tenant.id), ppm))
            }
            _ => None,
        };
        Ok(items.into_iter().filter_map(share).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(card: &str, dag: &str) -> v1::Fairness {
        let dags = vec![v1::DagFairness { dag: dag.into(), ..Default::default() }];
        v1::Fairness {
            tenant: "tenants/acme".into(),
            card: card.into(),
            dags,
            ..Default::default()
        }
    }

    /// Cards of one name on two hosts have two keys, and a tenant's have no name of a host in them.
    #[test]
    fn cards_of_two_hosts_are_told_apart() {
        let hosts = ["h1", "h2"].map(|host| HostId::new(host).expect("a name"));
        for is_told in [true, false] {
            let list = ShareList { is_told };
            let shares = hosts.each_ref().map(|host| {
                let dag = format!("tenants/acme/dags/of-{}", host.as_str().len());
                let dag = format!("{dag}-{}", u8::from(host == &hosts[0]));
                list.named(host, share("cards/card0", &dag))
            });
            let keys = [0, 1].map(|at| list.key(&hosts[at], &shares[at]));
            assert_ne!(keys[0], keys[1]);
            assert_eq!(keys[0].contains("h1"), is_told, "{keys:?}");
            assert_eq!(list.not_before(&keys[0]).as_deref(), Some("tenant >= \"tenants/acme\""));
        }
    }
}
