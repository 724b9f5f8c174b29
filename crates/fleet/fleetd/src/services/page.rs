//! The page for browsers, as a reader of the services with the rights of an operator. What is on a host the host tells, in
//! the name of the operator who looks.

use std::time::Duration;

use snic_api::fleet_v1::fleet_service_server::FleetService as _;
use snic_api::fleet_v1::{
    GetFleetRequest, GetFleetResponse, GetRebalanceRequest, HostView, ListHostsRequest, Rebalance,
};
use snic_api::v1;
use snic_api::v1::EventType;
use snic_api::v1::dag_service_server::DagService as _;
use snic_domain::Caller;
use snic_fleet::HostId;
use snic_front::gate::OwnCaller;
use snic_web::{
    Changes, FleetSource, HostChange, HostChanges, PageChange, PageResource, PageSource,
    TenantAccount,
};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming};

use super::Services;
use crate::passing::HostTransport;

/// Largest page of a list.
const PAGE_SIZE: i32 = 1_000;
/// Interval between questions to a host about what it does not report: its answers come a longer way than a daemon's own.
const HOST_POLL: Duration = Duration::from_secs(2);
/// Changes that wait for the page.
const CHANGES_WAITING_MAX: usize = 64;

/// Source of the page.
#[derive(Clone)]
pub(crate) struct FleetPage {
    services: Services,
}

impl FleetPage {
    pub const fn new(services: Services) -> Self {
        Self { services }
    }
}

/// A request as the gate would pass it on.
fn as_operator<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(OwnCaller(Caller::Operator("web-page".into())));
    request
}

impl FleetSource for FleetPage {
    type Host = HostPage;

    async fn hosts(&self) -> Result<HostChanges, Status> {
        let events = self.services.watch_all_hosts(0, HostView::Basic).await?;
        Ok(Box::pin(events.map(|event| {
            let event = event?;
            let kind = event.r#type();
            Ok(match (kind, event.host) {
                (EventType::Deleted, Some(host)) => HostChange::Deleted(host.name),
                (_, Some(host)) => HostChange::Updated(Box::new(host)),
                (_, None) => HostChange::InitialStateSent,
            })
        })))
    }

    async fn dag_counts(&self) -> Result<Vec<(String, u64)>, Status> {
        let (mut counts, mut page_token) = (Vec::new(), String::new());
        loop {
            let view = HostView::Basic.into();
            let request = ListHostsRequest { page_size: PAGE_SIZE, page_token, view };
            let reply = self.services.list_hosts(as_operator(request)).await?.into_inner();
            counts.extend(reply.hosts.into_iter().map(|host| (host.name, host.dags)));
            page_token = reply.next_page_token;
            if page_token.is_empty() {
                return Ok(counts);
            }
        }
    }

    async fn status(&self) -> Result<(GetFleetResponse, Option<Rebalance>), Status> {
        let fleet = self.services.get_fleet(as_operator(GetFleetRequest {})).await?.into_inner();
        let rebalance = self.services.get_rebalance(as_operator(GetRebalanceRequest {})).await;
        match rebalance {
            Ok(reply) => Ok((fleet, reply.into_inner().rebalance)),
            Err(status) if status.code() == Code::NotFound => Ok((fleet, None)),
            Err(status) => Err(status),
        }
    }

    async fn dags(&self, request: v1::ListDagsRequest) -> Result<v1::ListDagsResponse, Status> {
        Ok(self.services.list_dags(as_operator(request)).await?.into_inner())
    }

    fn host(&self, host: &str, who: &str) -> Option<HostPage> {
        let host = HostId::new(host).ok()?;
        let operator = who.strip_prefix("operator/")?;
        let caller = Caller::Operator(operator.into());
        Some(HostPage(HostTransport::new(self.services.clone(), host, caller, who.to_owned())))
    }
}

/// One host, whose own services answer.
#[derive(Clone)]
pub(crate) struct HostPage(HostTransport);

impl HostPage {
    fn cards(&self) -> v1::card_service_client::CardServiceClient<HostTransport> {
        v1::card_service_client::CardServiceClient::new(self.0.clone())
    }

    fn dags(&self) -> v1::dag_service_client::DagServiceClient<HostTransport> {
        v1::dag_service_client::DagServiceClient::new(self.0.clone())
    }

    fn shares(&self) -> v1::fairness_service_client::FairnessServiceClient<HostTransport> {
        v1::fairness_service_client::FairnessServiceClient::new(self.0.clone())
    }

    /// The last events behind a number, the oldest first.
    async fn events(&self, most: usize, last: &mut Option<u64>) -> Result<Vec<v1::Event>, Status> {
        let mut client = v1::event_service_client::EventServiceClient::new(self.0.clone());
        let page_size = i32::try_from(most).unwrap_or(PAGE_SIZE);
        let request = v1::ListEventsRequest { page_size, ..Default::default() };
        let mut events = client.list_events(request).await?.into_inner().events;
        events.retain(|event| last.is_none_or(|last| event.number > last));
        events.reverse();
        *last = events.last().map(|event| event.number).or(*last);
        Ok(events)
    }
}

impl PageSource for HostPage {
    const POLL: Duration = HOST_POLL;

    async fn watch(&self, events_max: usize) -> Result<Changes, Status> {
        let request = v1::WatchRegionsRequest { parent: "cards/-".into(), resume_revision: 0 };
        let regions = Self::cards(self).watch_regions(request).await?.into_inner();
        let request = v1::WatchDagsRequest { parent: "tenants/-".into(), resume_revision: 0 };
        let dags = Self::dags(self).watch_dags(request).await?.into_inner();
        let (sender, changes) = mpsc::channel(CHANGES_WAITING_MAX);
        let host = self.clone();
        tokio::spawn(async move {
            let told = host.forward_changes(regions, dags, events_max, &sender);
            let ended = tokio::select! {
                ended = told => ended,
                () = sender.closed() => return,
            };
            // The feed may have ended, too.
            let _ = sender.send(Err(ended)).await;
        });
        Ok(Box::pin(ReceiverStream::new(changes)))
    }

    async fn cards(&self) -> Result<Vec<v1::Card>, Status> {
        let request = v1::ListCardsRequest { page_size: PAGE_SIZE, ..Default::default() };
        Ok(Self::cards(self).list_cards(request).await?.into_inner().cards)
    }

    async fn fairness(&self) -> Result<Vec<v1::Fairness>, Status> {
        let request = v1::ListFairnessRequest { page_size: PAGE_SIZE, ..Default::default() };
        Ok(self.shares().list_fairness(request).await?.into_inner().fairness)
    }

    async fn explanation(&self, name: String) -> Result<v1::Explanation, Status> {
        let reply = Self::dags(self).explain_dag(v1::ExplainDagRequest { name }).await?;
        Ok(reply.into_inner().explanation.unwrap_or_default())
    }

    async fn diagnosis(&self, name: String) -> Result<v1::Diagnosis, Status> {
        let reply = Self::dags(self).diagnose_dag(v1::DiagnoseDagRequest { name }).await?;
        Ok(reply.into_inner().diagnosis.unwrap_or_default())
    }

    async fn history(&self, name: String) -> Result<Vec<v1::Fairness>, Status> {
        let reply = self.shares().get_fairness(v1::GetFairnessRequest { name }).await?;
        Ok(reply.into_inner().fairness)
    }

    async fn account(&self, name: String) -> Result<TenantAccount, Status> {
        let mut tenants = v1::tenant_service_client::TenantServiceClient::new(self.0.clone());
        let mut usage = v1::usage_service_client::UsageServiceClient::new(self.0.clone());
        let request = v1::GetTenantRequest { name: name.clone() };
        let tenant = tenants.get_tenant(request).await?.into_inner().tenant;
        let request = v1::GetUsageRequest { name: name.clone(), ..Default::default() };
        let day = usage.get_usage(request).await?.into_inner().total;
        let request = v1::GetSloRequest { name, ..Default::default() };
        let slo = usage.get_slo(request).await?.into_inner();
        let (day, tenant) = (day.unwrap_or_default(), tenant.unwrap_or_default());
        Ok(TenantAccount { day, slo, tenant })
    }
}

type HostUpdate = mpsc::Sender<Result<PageChange, Status>>;

impl HostPage {
    /// Tells what the host tells, until that ends: why.
    async fn forward_changes(
        &self,
        mut regions: Streaming<v1::WatchRegionsResponse>,
        mut dags: Streaming<v1::WatchDagsResponse>,
        events_max: usize,
        sender: &HostUpdate,
    ) -> Status {
        let mut ticks = tokio::time::interval(HOST_POLL);
        let (mut last, mut begun) = (None, 0);
        let ended = || Status::unavailable("the host has ended its watch");
        loop {
            let changes = tokio::select! {
                event = regions.message() => match event {
                    Ok(Some(event)) => {
                        let kind = event.r#type();
                        vec![event.region.map(|region| change(kind, PageResource::Region(region)))]
                    }
                    Ok(None) => return ended(),
                    Err(status) => return status,
                },
                event = dags.message() => match event {
                    Ok(Some(event)) => {
                        let kind = event.r#type();
                        vec![event.dag.map(|dag| change(kind, PageResource::Dag(dag.into())))]
                    }
                    Ok(None) => return ended(),
                    Err(status) => return status,
                },
                _ = ticks.tick() => match self.events(events_max, &mut last).await {
                    Ok(events) => {
                        let told = |event| change(EventType::Added, PageResource::Event(event));
                        events.into_iter().map(|event| Some(told(event))).collect()
                    }
                    Err(status) => return status,
                },
            };
            for change in changes {
                // A bookmark of each of both watches: then all is told that there was.
                begun += usize::from(change.is_none());
                let is_begun = change.is_none() && begun == 2;
                let change = change.or(is_begun.then_some(PageChange::InitialStateSent));
                if let Some(change) = change
                    && sender.send(Ok(change)).await.is_err()
                {
                    return ended();
                }
            }
        }
    }
}

fn change(kind: EventType, resource: PageResource) -> PageChange {
    match kind {
        EventType::Deleted => PageChange::Deleted(resource),
        _ => PageChange::Updated(resource),
    }
}
