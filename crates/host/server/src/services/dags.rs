//! DAGs.

use snic_api::convert::{dag, id, name};
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::dag_service_server::DagService;
use snic_api::v1::operation_metadata::Verb;
use snic_controller::{Command, Controller, DagView, Reply};
use snic_domain::{Caller, DagName, Headroom, TenantId};
use snic_front::configurations;
use snic_front::gate::caller;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::watching::{Event, WatchSpec};
use super::{MissingPolicy, RpcResult, Services, absent, etag, listing, repeat_of, unexpected};
use crate::error::OperationKind;
use crate::hub::Topic;
use crate::wire;

/// A change, or a dry run of it.
struct Proposal {
    target: String,
    verb: Verb,
    command: Command,
    request_id: Option<String>,
    validate_only: bool,
}

/// Refuses what only a fleet can look at.
///
/// # Errors
/// The DAG says where in a fleet it may go.
pub(super) fn check_placement(wanted: &v1::Dag) -> Result<(), ApiError> {
    if wanted.placement.is_none() {
        return Ok(());
    }
    let text = "a host has no zones, racks and other hosts to choose from; leave it out, or create the DAG at the \
                fleet's endpoint";
    Err(ApiError::in_field(v1::ErrorReason::InvalidField, "dag.placement", text))
}

#[tonic::async_trait]
impl DagService for Services {
    async fn create_dag(
        &self,
        request: Request<v1::CreateDagRequest>,
    ) -> RpcResult<v1::CreateDagResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let tenant = name::tenant("parent", &request.parent).map_err(ApiError::from)?;
        let dag_id = id("dag_id", &request.dag_id).map_err(ApiError::from)?;
        let wanted = request.dag.ok_or_else(|| ApiError::required("dag"))?;
        check_placement(&wanted)?;
        let spec = dag::spec(&wanted)?;
        configurations::check(&self.0.workshop, &caller, &spec.nodes).await?;
        let name = DagName { tenant, dag: dag_id };
        let validate_only = request.validate_only;
        let proposal = Proposal {
            target: name.to_string(),
            verb: Verb::Create,
            command: Command::CreateDag { name, spec, validate_only },
            request_id: repeat_of(&request.request_id)?,
            validate_only,
        };
        Ok(Response::new(self.propose(&caller, proposal).await?.into()))
    }

    async fn batch_create_dags(
        &self,
        request: Request<v1::BatchCreateDagsRequest>,
    ) -> RpcResult<v1::BatchCreateDagsResponse> {
        let caller = caller(&request)?;
        let results = self.create_batch(&caller, request.into_inner()).await?;
        Ok(Response::new(v1::BatchCreateDagsResponse { results }))
    }

    async fn get_dag(&self, request: Request<v1::GetDagRequest>) -> RpcResult<v1::GetDagResponse> {
        let caller = caller(&request)?;
        let name = name::dag("name", &request.into_inner().name).map_err(ApiError::from)?;
        let view = self.dag(&caller, name).await?;
        let mut dag = wire::dag(&view, wire::reader(&caller));
        self.0.card_links.fill_dag(&mut dag);
        Ok(Response::new(dag.into()))
    }

    async fn list_dags(
        &self,
        request: Request<v1::ListDagsRequest>,
    ) -> RpcResult<v1::ListDagsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let tenant = self.tenants_dags(&caller, &request.parent).await?;
        let query = Query::of("ListDags").with("parent", &request.parent);
        let listing = listing!(v1::Dag, query, request)?;
        let (page, revision) = self
            .page(
                &caller,
                &listing,
                move |controller, _, after, limit| {
                    let after = after.and_then(|key| name::dag("page_token", key).ok());
                    controller.dags_after(tenant.as_ref(), after.as_ref()).take(limit).collect()
                },
                |view: &DagView| {
                    let mut dag = wire::dag(view, wire::reader(&caller));
                    self.0.card_links.fill_dag(&mut dag);
                    (view.name.to_string(), dag)
                },
            )
            .await?;
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
        check_placement(&wanted)?;
        let mut patch = dag::patch(&wanted, request.update_mask.as_ref())?;
        if let Some(nodes) = patch.nodes.as_mut()
            && configurations::name_secrets(nodes, &wanted.etag)?
        {
            let stored = self.dag(&caller, name.clone()).await?;
            configurations::keep_secrets(nodes, &stored.spec.nodes);
        }
        let nodes = patch.nodes.as_deref().unwrap_or_default();
        configurations::check(&self.0.workshop, &caller, nodes).await?;
        let validate_only = request.validate_only;
        let proposal = Proposal {
            target: name.to_string(),
            verb: Verb::Update,
            command: Command::UpdateDag { name, patch, etag: etag(&wanted.etag), validate_only },
            request_id: repeat_of(&request.request_id)?,
            validate_only,
        };
        Ok(Response::new(self.propose(&caller, proposal).await?.into()))
    }

    async fn delete_dag(
        &self,
        request: Request<v1::DeleteDagRequest>,
    ) -> RpcResult<v1::DeleteDagResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let name = name::dag("name", &request.name).map_err(ApiError::from)?;
        let target = name.to_string();
        let repeat = repeat_of(&request.request_id)?;
        let command = Command::DeleteDag { name, etag: etag(&request.etag) };
        let reply = self.ask(&caller, repeat, command, OperationKind::Delete).await;
        let operation = match MissingPolicy::from(request.allow_missing).or_deleted(reply)? {
            Some(Reply::Operation(view)) => wire::operation(&view, &caller),
            Some(other) => return Err(unexpected(&other).into()),
            None => wire::decided(target, Verb::Delete, wire::nothing()),
        };
        Ok(Response::new(operation.into()))
    }

    type WatchDagsStream = ReceiverStream<Result<v1::WatchDagsResponse, Status>>;

    async fn watch_dags(
        &self,
        request: Request<v1::WatchDagsRequest>,
    ) -> RpcResult<Self::WatchDagsStream> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let tenant = self.tenants_dags(&caller, &request.parent).await?;
        let (topic, reader) = (Topic::Dags(tenant.clone()), caller.clone());
        let piece = move |controller: &Controller, _: &Caller, after: Option<&DagView>, most| {
            let after = after.map(|view| &view.name);
            controller.dags_after(tenant.as_ref(), after).take(most).collect()
        };
        let event = move |event: Event<'_, DagView>| v1::WatchDagsResponse {
            r#type: event.kind().into(),
            dag: event.message(
                |view| wire::dag(view, wire::reader(&reader)),
                |name| v1::Dag { name, ..Default::default() },
            ),
            revision: event.revision,
        };
        let subject = WatchSpec { topic, caller, piece, event };
        Ok(Response::new(self.watch(subject, request.resume_revision).await?))
    }

    async fn diagnose_dag(
        &self,
        request: Request<v1::DiagnoseDagRequest>,
    ) -> RpcResult<v1::DiagnoseDagResponse> {
        let caller = caller(&request)?;
        let name = name::dag("name", &request.into_inner().name).map_err(ApiError::from)?;
        let reader = caller.tenant().cloned();
        let query = move |controller: &Controller, name: &DagName| {
            let uid = controller.dag_view(name)?.uid;
            Some((uid, controller.dag_diagnosis(name, reader.as_ref())?))
        };
        let (uid, found) = self.of_dag(&caller, name, query).await?;
        let nt_drops = self.0.card_links.nt_drops(uid.raw());
        Ok(Response::new(v1::Diagnosis { nt_drops, ..wire::diagnosis(&found) }.into()))
    }

    async fn explain_dag(
        &self,
        request: Request<v1::ExplainDagRequest>,
    ) -> RpcResult<v1::ExplainDagResponse> {
        let caller = caller(&request)?;
        let name = name::dag("name", &request.into_inner().name).map_err(ApiError::from)?;
        let (view, headroom) = self.dag_with_headroom(&caller, name).await?;
        let explanation = wire::explanation(&view, &headroom, wire::reader(&caller));
        Ok(Response::new(
            explanation
                .unwrap_or_else(|| v1::Explanation {
                    dag: Some(wire::dag(&view, wire::reader(&caller))),
                    // Without a mapping, the conditions say why.
                    lines: view
                        .conditions
                        .iter()
                        .map(|condition| condition.message.clone())
                        .collect(),
                    ..v1::Explanation::default()
                })
                .into(),
        ))
    }
}

impl Services {
    /// One DAG that the caller may see.
    pub(super) async fn dag(&self, caller: &Caller, name: DagName) -> Result<DagView, ApiError> {
        let query = |controller: &Controller, name: &DagName| controller.dag_view(name);
        self.of_dag(caller, name, query).await
    }

    /// The same, with what its card has left of what it holds.
    async fn dag_with_headroom(
        &self,
        caller: &Caller,
        name: DagName,
    ) -> Result<(DagView, Vec<Headroom>), ApiError> {
        let query = |controller: &Controller, name: &DagName| {
            Some((controller.dag_view(name)?, controller.dag_headroom(name)))
        };
        self.of_dag(caller, name, query).await
    }

    /// Result of a query about a DAG that the caller may see.
    async fn of_dag<T: Send + 'static>(
        &self,
        caller: &Caller,
        name: DagName,
        query: impl FnOnce(&Controller, &DagName) -> Option<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let text = name.to_string();
        let visible = caller.may_change(Some(&name.tenant));
        let found = self.read(caller, move |controller, _| query(controller, &name)).await?;
        found.filter(|_| visible).ok_or_else(|| absent(&text))
    }

    /// The tenant of a list or watch; for tenants always their own.
    async fn tenants_dags(
        &self,
        caller: &Caller,
        parent: &str,
    ) -> Result<Option<TenantId>, ApiError> {
        match name::tenant_or_all("parent", parent)? {
            None => Ok(caller.tenant().cloned()),
            Some(tenant) => Ok(Some(self.tenant(caller, tenant).await?.tenant.id)),
        }
    }

    /// Carries out a change of a DAG, or a dry run.
    async fn propose(
        &self,
        caller: &Caller,
        proposal: Proposal,
    ) -> Result<v1::Operation, ApiError> {
        let Proposal { target, verb, command, request_id, validate_only } = proposal;
        let request_id = request_id.filter(|_| !validate_only);
        match self.ask(caller, request_id, command, OperationKind::Change).await? {
            Reply::Operation(view) => Ok(wire::operation(&view, caller)),
            Reply::WouldBe(view) => {
                let dag = wire::dag(&view, wire::reader(caller));
                Ok(wire::decided(target, verb, wire::any_dag(&dag)))
            }
            other => Err(unexpected(&other)),
        }
    }
}
