//! DAGs of the fleet.

use snic_api::convert::{dag, id, name};
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::batch_create_dags_result::Result as OfBatch;
use snic_api::v1::dag_service_server::DagService;
use snic_api::v1::operation_metadata::Verb;
use snic_domain::limits::DAG_BATCH_MAX;
use snic_domain::{Caller, DagName};
use snic_fleet::protocol::{
    FleetCommand, FleetDag, FleetItem, FleetList, FleetName, FleetReply, NewFleetDag, PlacedDag,
};
use snic_front::configurations;
use snic_front::fields::{etag, repeat_of};
use snic_front::gate::{caller, passage};
use snic_front::listing;
use tonic::{Request, Response};

use super::watching::{Event, Events, WatchSpec, dag_of};
use super::{RpcResult, Services, tenant_of_list, unexpected};
use crate::{explanation, placement, wire};

#[tonic::async_trait]
impl DagService for Services {
    async fn create_dag(
        &self,
        request: Request<v1::CreateDagRequest>,
    ) -> RpcResult<v1::CreateDagResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let (repeat, validate_only) = (repeat_of(&request.request_id)?, request.validate_only);
        let new = self.read(&caller, "", request).await?;
        let dag = accepted(&new);
        let command = FleetCommand::CreateDag(new);
        match self.propose(&caller, repeat, validate_only, command).await? {
            FleetReply::Placed(placed) => {
                let operation = begun((dag, &placed), validate_only, &caller);
                Ok(Response::new(operation.into()))
            }
            other => Err(unexpected(&other).into()),
        }
    }

    async fn batch_create_dags(
        &self,
        request: Request<v1::BatchCreateDagsRequest>,
    ) -> RpcResult<v1::BatchCreateDagsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        if request.allow_partial {
            let text = "the fleet creates all DAGs of a batch or none; leave it out, or create the \
                        DAGs one by one";
            return Err(
                ApiError::in_field(v1::ErrorReason::InvalidField, "allow_partial", text).into()
            );
        }
        let count = request.requests.len();
        if !(1..=DAG_BATCH_MAX).contains(&count) {
            let text = format!("{count} DAGs; 1 to {DAG_BATCH_MAX} are allowed in one request");
            return Err(ApiError::in_field(v1::ErrorReason::InvalidField, "requests", text).into());
        }
        let (repeat, validate_only) = (repeat_of(&request.request_id)?, request.validate_only);
        let mut all = Vec::new();
        for (index, one) in request.requests.into_iter().enumerate() {
            let is_of_batch = if one.validate_only { Some("validate_only") } else { None };
            let is_of_batch = is_of_batch.or((!one.request_id.is_empty()).then_some("request_id"));
            if let Some(field) = is_of_batch {
                let text = "set it for the whole batch instead";
                let wrong = ApiError::in_field(v1::ErrorReason::InvalidField, field, text);
                return Err(wrong.within(&format!("requests[{index}]")).into());
            }
            let new = self.read(&caller, &request.parent, one).await;
            all.push(new.map_err(|error| error.within(&format!("requests[{index}]")))?);
        }
        let dags: Vec<_> = all.iter().map(accepted).collect();
        let command = FleetCommand::CreateDags(all);
        match self.propose(&caller, repeat, validate_only, command).await? {
            FleetReply::AllPlaced(placed) => {
                let operation = |(dag, placed)| v1::BatchCreateDagsResult {
                    result: Some(OfBatch::Operation(begun((dag, placed), validate_only, &caller))),
                };
                let results = dags.into_iter().zip(&placed).map(operation).collect();
                Ok(Response::new(v1::BatchCreateDagsResponse { results }))
            }
            other => Err(unexpected(&other).into()),
        }
    }

    async fn get_dag(&self, request: Request<v1::GetDagRequest>) -> RpcResult<v1::GetDagResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let name = name::dag("name", &request.into_inner().name).map_err(ApiError::from)?;
        let found = self.dag(&caller, name).await?;
        let dag = wire::dag(&found, &caller);
        Ok(Response::new(self.seen_by_its_host(&passage, (&found, &caller), dag).await.into()))
    }

    async fn list_dags(
        &self,
        request: Request<v1::ListDagsRequest>,
    ) -> RpcResult<v1::ListDagsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let parent = name::tenant_or_all("parent", &request.parent).map_err(ApiError::from)?;
        let query = Query::of("ListDags").with("parent", &request.parent);
        let listing = listing!(v1::Dag, query, request)?;
        let of = FleetList::Dags(tenant_of_list(&caller, parent));
        let name = |key: &str| name::dag("page_token", key).ok().map(FleetName::Dag);
        let item = |item| {
            let dag = of_item(item).ok()?;
            Some((dag.name.to_string(), wire::dag(&dag, &caller)))
        };
        let (page, revision) = self.page(&caller, (&listing, of), name, item).await?;
        Ok(Response::new(v1::ListDagsResponse {
            dags: page.items,
            next_page_token: page.next_page_token,
            revision,
        }))
    }

    async fn update_dag(
        &self,
        request: Request<v1::UpdateDagRequest>,
    ) -> RpcResult<v1::UpdateDagResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let wanted = request.dag.ok_or_else(|| ApiError::required("dag"))?;
        let name = name::dag("dag.name", &wanted.name).map_err(ApiError::from)?;
        if let Some(placement) = &wanted.placement {
            let stored = self.dag(&caller, name.clone()).await?;
            placement::check_same(placement, (&stored.constraints, stored.policy))?;
        }
        let mut patch = dag::patch(&wanted, request.update_mask.as_ref())?;
        if let Some(nodes) = patch.nodes.as_mut()
            && configurations::name_secrets(nodes, &wanted.etag)?
        {
            let stored = self.dag(&caller, name.clone()).await?;
            configurations::keep_secrets(nodes, &stored.spec.nodes);
        }
        let nodes = patch.nodes.as_deref().unwrap_or_default();
        configurations::check(&self.0.workshop, &caller, nodes).await?;
        let (repeat, validate_only) = (repeat_of(&request.request_id)?, request.validate_only);
        let (patch, etag) = (Box::new(patch), etag(&wanted.etag));
        let command = FleetCommand::UpdateDag { name: name.clone(), patch, etag };
        match self.propose(&caller, repeat, validate_only, command).await? {
            FleetReply::Placed(placed) => {
                let operation = match self.dag(&caller, name.clone()).await {
                    Ok(mut now) => {
                        if validate_only {
                            now.generation = placed.generation;
                        }
                        begun((now, &placed), validate_only, &caller)
                    }
                    Err(error) if validate_only => return Err(error.into()),
                    // It was changed, whatever has become of it since.
                    Err(_) => wire::changed(&name, &placed),
                };
                Ok(Response::new(operation.into()))
            }
            other => Err(unexpected(&other).into()),
        }
    }

    async fn delete_dag(
        &self,
        request: Request<v1::DeleteDagRequest>,
    ) -> RpcResult<v1::DeleteDagResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let dag = name::dag("name", &request.name).map_err(ApiError::from)?;
        let target = dag.to_string();
        let (name, etag) = (FleetName::Dag(dag), etag(&request.etag));
        let command = FleetCommand::Delete { name, etag, force: false };
        let repeat = repeat_of(&request.request_id)?;
        self.delete(&caller, repeat, request.allow_missing, command).await?;
        Ok(Response::new(wire::decided(target, Verb::Delete, wire::nothing()).into()))
    }

    type WatchDagsStream = Events<v1::WatchDagsResponse>;

    async fn watch_dags(
        &self,
        request: Request<v1::WatchDagsRequest>,
    ) -> RpcResult<Self::WatchDagsStream> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let parent = name::tenant_or_all("parent", &request.parent).map_err(ApiError::from)?;
        let tenant = self.watched_tenant(&caller, parent).await?;
        let event = move |event: Event<'_>, revision| {
            let dag = match &event {
                Event::Bookmark => None,
                Event::Seen(_, record) => Some(wire::dag(&dag_of(record)?, &caller)),
                Event::Gone { name, .. } => {
                    let (tenant, dag) = name.split_once('/')?;
                    let name = format!("tenants/{tenant}/dags/{dag}");
                    Some(v1::Dag { name, ..Default::default() })
                }
            };
            Some(v1::WatchDagsResponse { r#type: event.kind(), dag, revision })
        };
        let spec = WatchSpec { kind: "dags/", tenant, is_of_tenant: true, event };
        Ok(Response::new(self.watch(spec, request.resume_revision).await?))
    }

    async fn diagnose_dag(
        &self,
        _: Request<v1::DiagnoseDagRequest>,
    ) -> RpcResult<v1::DiagnoseDagResponse> {
        // `passing` hands them to the DAG's host before they come here.
        Err(ApiError::internal("diagnosis").into())
    }

    async fn explain_dag(
        &self,
        request: Request<v1::ExplainDagRequest>,
    ) -> RpcResult<v1::ExplainDagResponse> {
        let caller = caller(&request)?;
        let name = name::dag("name", &request.into_inner().name).map_err(ApiError::from)?;
        match self.ask(&caller, None, FleetCommand::ExplainDag(name)).await? {
            FleetReply::Explained(found) => {
                Ok(Response::new(explanation::to_wire(&found, &caller).into()))
            }
            other => Err(unexpected(&other).into()),
        }
    }
}

/// A DAG that is about to be created.
fn accepted(new: &NewFleetDag) -> FleetDag {
    FleetDag {
        name: new.name.clone(),
        spec: new.spec.clone(),
        constraints: new.constraints.clone(),
        defaults: Default::default(),
        policy: new.policy,
        card: None,
        serial: None,
        unplaced: None,
        served_by: None,
        is_ready: false,
        served_generation: 0,
        generation: 1,
        meta: Default::default(),
    }
}

/// The operation of a DAG that has got a place, or would get one.
fn begun(
    (dag, placed): (FleetDag, &PlacedDag),
    validate_only: bool,
    reader: &Caller,
) -> v1::Operation {
    let dag = FleetDag {
        card: placed.card.clone(),
        serial: placed.place,
        generation: placed.generation,
        meta: placed.meta,
        ..dag
    };
    if validate_only {
        let verb = if placed.generation <= 1 { Verb::Create } else { Verb::Update };
        let shown = wire::any_dag(&wire::dag(&dag, reader));
        return wire::decided(dag.name.to_string(), verb, shown);
    }
    wire::operation(&dag, reader)
}

fn of_item(item: FleetItem) -> Result<FleetDag, ApiError> {
    match item {
        FleetItem::Dag(dag) => Ok(dag),
        other => Err(unexpected(&FleetReply::Item(Box::new(other)))),
    }
}

impl Services {
    /// Reads a request. Without a parent of its own it has that of its batch.
    pub(super) async fn read(
        &self,
        caller: &Caller,
        parent: &str,
        request: v1::CreateDagRequest,
    ) -> Result<NewFleetDag, ApiError> {
        let own = if request.parent.is_empty() { parent } else { &request.parent };
        if !parent.is_empty() && own != parent {
            let text = format!("is not {parent}, the parent of the batch");
            return Err(ApiError::in_field(v1::ErrorReason::InvalidField, "parent", text));
        }
        let tenant = name::tenant("parent", own).map_err(ApiError::from)?;
        let dag = id("dag_id", &request.dag_id).map_err(ApiError::from)?;
        let wanted = request.dag.ok_or_else(|| ApiError::required("dag"))?;
        let spec = dag::spec(&wanted)?;
        configurations::check(&self.0.workshop, caller, &spec.nodes).await?;
        let (constraints, policy) = placement::read(wanted.placement.as_ref())?;
        Ok(NewFleetDag { name: DagName { tenant, dag }, spec, constraints, policy })
    }

    /// A DAG that the caller may see.
    pub(super) async fn dag(&self, caller: &Caller, name: DagName) -> Result<FleetDag, ApiError> {
        of_item(self.item(caller, FleetName::Dag(name)).await?)
    }
}
