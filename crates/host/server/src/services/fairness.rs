//! Fairness: what tenants ask for and have.

use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::fairness_service_server::FairnessService;
use snic_controller::FairnessView;
use snic_front::gate::caller;
use tonic::{Request, Response};

use super::{RpcResult, Services, listing};
use crate::wire;

/// Sort key of an entry: tenant, then card.
fn key(view: &FairnessView) -> String {
    format!("{}/{}", view.tenant, view.card)
}

#[tonic::async_trait]
impl FairnessService for Services {
    async fn list_fairness(
        &self,
        request: Request<v1::ListFairnessRequest>,
    ) -> RpcResult<v1::ListFairnessResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let listing = listing!(v1::Fairness, Query::of("ListFairness"), request)?;
        let (page, _) = self
            .page(
                &caller,
                &listing,
                move |controller, caller, after, limit| {
                    let first = after.and_then(|key| key.split_once('/'));
                    let views = controller
                        .tenants()
                        .map(|view| view.tenant.id)
                        .filter(|id| caller.may_change(Some(id)))
                        .filter(|id| first.is_none_or(|(tenant, _)| id.as_str() >= tenant))
                        .flat_map(|id| controller.fairness(&id));
                    let views = views.filter(|view| {
                        first.is_none_or(|(tenant, card)| {
                            (view.tenant.as_str(), view.card.as_str()) > (tenant, card)
                        })
                    });
                    views.take(limit).collect()
                },
                |view: &FairnessView| (key(view), wire::fairness(view, false)),
            )
            .await?;
        Ok(Response::new(v1::ListFairnessResponse {
            fairness: page.items,
            next_page_token: page.next_page_token,
            unreachable_hosts: Vec::new(),
        }))
    }

    async fn get_fairness(
        &self,
        request: Request<v1::GetFairnessRequest>,
    ) -> RpcResult<v1::GetFairnessResponse> {
        let caller = caller(&request)?;
        let name = request.into_inner().name;
        let id = name::tenant("name", &name).map_err(ApiError::from)?;
        // The same error for an absent tenant and another one.
        self.tenant(&caller, id.clone()).await?;
        let views = self.read(&caller, move |controller, _| controller.fairness(&id)).await?;
        let fairness = views.iter().map(|view| wire::fairness(view, true)).collect();
        Ok(Response::new(v1::GetFairnessResponse { fairness, unreachable_hosts: Vec::new() }))
    }
}
