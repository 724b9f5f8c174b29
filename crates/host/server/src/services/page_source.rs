//! The page for browsers, as a reader of the services with the rights of an operator.

use snic_api::convert::dag::DagReader;
use snic_api::convert::name;
use snic_api::v1;
use snic_api::v1::card_service_server::CardService as _;
use snic_api::v1::dag_service_server::DagService as _;
use snic_api::v1::fairness_service_server::FairnessService as _;
use snic_api::v1::tenant_service_server::TenantService as _;
use snic_api::v1::usage_service_server::UsageService as _;
use snic_controller::{Controller, ResourceKey};
use snic_domain::Caller;
use snic_front::gate::OwnCaller;
use snic_web::{Changes, PageChange, PageResource, PageSource, TenantAccount};
use tonic::{Request, Status};

use super::Services;
use super::cards::regions;
use super::watching::{Event, WatchContent, WatchSpec};
use crate::hub::{ChangeKind, ResourceView, Topic};
use crate::wire;

/// Largest page of a list.
const PAGE_SIZE: i32 = 1_000;

impl PageSource for Services {
    async fn watch(&self, events_max: usize) -> Result<Changes, Status> {
        let piece = move |controller: &Controller, _: &Caller, after: Option<&ResourceView>, _| {
            after.map_or_else(|| everything(controller, events_max), |_| Vec::new())
        };
        let spec = WatchSpec { topic: Topic::Page, caller: operator(), piece, event: change };
        Ok(Box::pin(Self::watch(self, spec, 0).await?))
    }

    async fn cards(&self) -> Result<Vec<v1::Card>, Status> {
        let request = v1::ListCardsRequest { page_size: PAGE_SIZE, ..Default::default() };
        Ok(self.list_cards(as_operator(request)).await?.into_inner().cards)
    }

    async fn fairness(&self) -> Result<Vec<v1::Fairness>, Status> {
        let request = v1::ListFairnessRequest { page_size: PAGE_SIZE, ..Default::default() };
        Ok(self.list_fairness(as_operator(request)).await?.into_inner().fairness)
    }

    async fn explanation(&self, dag: String) -> Result<v1::Explanation, Status> {
        let request = v1::ExplainDagRequest { name: dag };
        Ok(self
            .explain_dag(as_operator(request))
            .await?
            .into_inner()
            .explanation
            .unwrap_or_default())
    }

    async fn diagnosis(&self, dag: String) -> Result<v1::Diagnosis, Status> {
        let request = v1::DiagnoseDagRequest { name: dag };
        let reply = self.diagnose_dag(as_operator(request)).await?.into_inner();
        Ok(reply.diagnosis.unwrap_or_default())
    }

    async fn history(&self, tenant: String) -> Result<Vec<v1::Fairness>, Status> {
        let request = v1::GetFairnessRequest { name: tenant };
        Ok(self.get_fairness(as_operator(request)).await?.into_inner().fairness)
    }

    async fn account(&self, tenant: String) -> Result<TenantAccount, Status> {
        let request = v1::GetTenantRequest { name: tenant.clone() };
        let found = self.get_tenant(as_operator(request)).await?.into_inner().tenant;
        let request = v1::GetUsageRequest { name: tenant.clone(), ..Default::default() };
        let day = self.get_usage(as_operator(request)).await?.into_inner().total;
        let request = v1::GetSloRequest { name: tenant, ..Default::default() };
        let slo = self.get_slo(as_operator(request)).await?.into_inner();
        let (day, tenant) = (day.unwrap_or_default(), found.unwrap_or_default());
        Ok(TenantAccount { day, slo, tenant })
    }
}

fn operator() -> Caller {
    Caller::Operator("web-page".into())
}

/// A request as the gate would pass it on.
fn as_operator<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(OwnCaller(operator()));
    request
}

/// Everything that the page shows and that can be watched.
fn everything(controller: &Controller, events_max: usize) -> Vec<ResourceView> {
    let reader = operator();
    let regions = regions(controller, None, None, usize::MAX).into_iter();
    let dags = controller.dags_after(None, None).map(ResourceView::Dag);
    let entries = controller.log_before(&reader, None).take(events_max).cloned();
    regions.map(ResourceView::Region).chain(dags).chain(entries.map(ResourceView::Entry)).collect()
}

fn change(event: Event<'_, ResourceView>) -> PageChange {
    let (kind, view) = match event.told {
        WatchContent::Seen(kind, view) => (kind, view),
        WatchContent::Gone(ResourceKey::Region(card, region)) => {
            let region = v1::Region { name: name::of_region(card, *region), ..Default::default() };
            return PageChange::Deleted(PageResource::Region(region));
        }
        WatchContent::Bookmark | WatchContent::Gone(_) => return PageChange::InitialStateSent,
    };
    let resource = match view {
        ResourceView::Dag(view) => {
            PageResource::Dag(Box::new(wire::dag(view, DagReader::Operator)))
        }
        ResourceView::Region(view) => PageResource::Region(wire::region(view)),
        ResourceView::Entry(entry) => PageResource::Event(wire::event(entry)),
        // The page's topic has no others.
        _ => return PageChange::InitialStateSent,
    };
    match kind {
        ChangeKind::Deleted => PageChange::Deleted(resource),
        ChangeKind::Added | ChangeKind::Modified => PageChange::Updated(resource),
    }
}
