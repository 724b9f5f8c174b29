//! The page for browsers, as a reader of the services with the rights of an operator.

use snic_api::convert::dag::DagReader;
use snic_api::v1;
use snic_api::v1::card_service_server::CardService as _;
use snic_api::v1::dag_service_server::DagService as _;
use snic_api::v1::fairness_service_server::FairnessService as _;
use snic_controller::{Caller, Controller};
use snic_web::{Changes, PageChange, PageResource, PageSource};
use tonic::{Request, Status};

use super::Services;
use super::cards::regions;
use super::watching::{Event, WatchSpec};
use crate::hub::{ChangeKind, ResourceView, Topic};
use crate::wire;

/// Largest page of a list.
const PAGE_SIZE: i32 = 1_000;

impl PageSource for Services {
    async fn watch(&self, events_max: usize) -> Result<Changes, Status> {
        let all = move |controller: &Controller| everything(controller, events_max);
        let spec = WatchSpec { topic: Topic::Page, caller: operator(), all, event: change };
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

    async fn history(&self, tenant: String) -> Result<Vec<v1::Fairness>, Status> {
        let request = v1::GetFairnessRequest { name: tenant };
        Ok(self.get_fairness(as_operator(request)).await?.into_inner().fairness)
    }
}

fn operator() -> Caller {
    Caller::Operator("web-page".into())
}

/// A request as the gate would pass it on.
fn as_operator<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(operator());
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
    let resource = match event.view {
        Some(ResourceView::Dag(view)) => PageResource::Dag(wire::dag(view, DagReader::Operator)),
        Some(ResourceView::Region(view)) => PageResource::Region(wire::region(view)),
        Some(ResourceView::Entry(entry)) => PageResource::Event(wire::event(entry)),
        // The page's topic has no bindings; only a bookmark has no view.
        Some(ResourceView::Binding(_)) | None => return PageChange::InitialStateSent,
    };
    match event.change_kind {
        ChangeKind::Deleted => PageChange::Deleted(resource),
        ChangeKind::Added | ChangeKind::Modified => PageChange::Updated(resource),
    }
}
