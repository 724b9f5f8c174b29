//! DAGs that are created together: planned on a copy of the cards, on a thread of its own.

use std::time::Duration;

use snic_api::convert::{dag, id, name};
use snic_api::error::ApiError;
use snic_api::names::excerpt;
use snic_api::v1;
use snic_api::v1::batch_create_dags_result::Result as Wire;
use snic_api::v1::operation_metadata::Verb;
use snic_controller::{Command, ControlError, DagBatch, NewDag, Reply, Request};
use snic_domain::limits::DAG_BATCH_MAX;
use snic_domain::{Caller, TenantId};
use snic_front::configurations;
use snic_front::share::{CallerFlow, CallerLevel, Permit};

use super::{Services, repeat_of, unexpected};
use crate::error::{OperationKind, failure, of_control};
use crate::shell::ShellError;
use crate::wire;

/// Number of times that a batch is planned where the cards change meanwhile. A plan is outdated only if others took the
/// very place that it has.
const PLANS_MAX: usize = 5;
/// Number of times that a place for another plan is asked for, and the time from one to the next.
const ENTER_TIMES: u32 = 100;
const ENTER_PAUSE: Duration = Duration::from_millis(20);

impl Services {
    /// Creates the DAGs of a batch, or says what would be.
    pub(super) async fn create_batch(
        &self,
        caller: &Caller,
        request: v1::BatchCreateDagsRequest,
    ) -> Result<Vec<v1::BatchCreateDagsResult>, ApiError> {
        let v1::BatchCreateDagsRequest {
            parent,
            requests,
            allow_partial,
            validate_only,
            request_id,
        } = request;
        let tenant = name::tenant("parent", &parent).map_err(ApiError::from)?;
        let count = requests.len();
        if !(1..=DAG_BATCH_MAX).contains(&count) {
            let text = format!("{count} DAGs; 1 to {DAG_BATCH_MAX} are allowed in one request");
            return Err(ApiError::in_field(v1::ErrorReason::InvalidField, "requests", text));
        }
        let repeat = repeat_of(&request_id)?.filter(|_| !validate_only);
        let mut dags = Vec::new();
        // By index: why a DAG cannot even be read.
        let mut unread: Vec<Option<ApiError>> = Vec::new();
        for (index, request) in requests.into_iter().enumerate() {
            match self.read_checked(caller, &parent, request).await {
                Ok(dag) => {
                    dags.push(dag);
                    unread.push(None);
                }
                Err(error) if allow_partial => unread.push(Some(error)),
                Err(error) => return Err(error.within(&format!("requests[{index}]"))),
            }
        }
        let batch = DagBatch { tenant, dags, allow_partial, validate_only };
        self.tenant(caller, batch.tenant.clone()).await?;
        let mut results = if batch.dags.is_empty() {
            Vec::new()
        } else {
            self.carry_out(caller, &batch, repeat).await?
        }
        .into_iter();
        let result = |unread: Option<ApiError>| {
            let result = match unread {
                Some(error) => Wire::Error(error.into()),
                None => results.next()?,
            };
            Some(v1::BatchCreateDagsResult { result: Some(result) })
        };
        let all: Option<Vec<_>> = unread.into_iter().map(result).collect();
        all.ok_or_else(|| ApiError::internal("batch"))
    }

    async fn read_checked(
        &self,
        caller: &Caller,
        parent: &str,
        request: v1::CreateDagRequest,
    ) -> Result<NewDag, ApiError> {
        let dag = read(parent, request)?;
        configurations::check(&self.0.workshop, caller, &dag.spec.nodes).await?;
        Ok(dag)
    }

    /// Takes a place for another plan of a batch. Another batch of the caller may have the place that it had before.
    ///
    /// # Errors
    /// The caller has its share for [`ENTER_TIMES`] × [`ENTER_PAUSE`].
    async fn enter_again(&self, caller: &Caller) -> Result<Permit, ApiError> {
        for _ in 1..ENTER_TIMES {
            let entered = self.0.batches.enter(CallerLevel::of(caller), CallerFlow::from(caller));
            match entered {
                Ok(place) => return Ok(place),
                Err(_) => tokio::time::sleep(ENTER_PAUSE).await,
            }
        }
        self.0.batches.enter(CallerLevel::of(caller), CallerFlow::from(caller))
    }

    /// Plans a batch and has the plan carried out; plans again where the cards have changed meanwhile, or DAGs that move have
    /// made room.
    async fn carry_out(
        &self,
        caller: &Caller,
        batch: &DagBatch,
        request_id: Option<String>,
    ) -> Result<Vec<Wire>, ApiError> {
        let (mut plans, mut wait) = (0, None);
        let mut place = self.0.batches.enter(CallerLevel::of(caller), CallerFlow::from(caller))?;
        let reply = loop {
            plans += 1;
            let asked = batch.clone();
            let snapshot =
                self.read(caller, move |controller, _| controller.batch_snapshot(&asked)).await?;
            let planned = self.0.workshop.run(caller, move || (snapshot.plan(), place));
            let (plan, used) = planned.await?;
            // A batch may wait for seconds now. Others are planned meanwhile.
            drop(used);
            let command = Command::CreateDags { batch: batch.clone(), plan: plan.after(wait) };
            let request =
                Request { caller: caller.clone(), request_id: request_id.clone(), command };
            match self.0.plane.request(request).await {
                Err(ShellError::Control(ControlError::Outdated)) if plans < PLANS_MAX => {}
                Ok(Reply::PlanAgain(waited)) => (plans, wait) = (0, Some(waited)),
                reply => break reply,
            }
            place = self.enter_again(caller).await?;
        };
        match reply.map_err(|error| failure(error, OperationKind::Change, caller))? {
            Reply::Batch(results) => {
                results.into_iter().enumerate().map(|at| to_wire(caller, batch, at)).collect()
            }
            other => Err(unexpected(&other)),
        }
    }
}

/// Result of one DAG.
fn to_wire(
    caller: &Caller,
    batch: &DagBatch,
    (index, result): (usize, Result<Reply, ControlError>),
) -> Result<Wire, ApiError> {
    match result {
        Ok(Reply::Operation(view)) => Ok(Wire::Operation(wire::operation(&view, caller))),
        Ok(Reply::WouldBe(view)) => {
            let target = target(&batch.tenant, &batch.dags[index]);
            let dag = wire::dag(&view, wire::reader(caller));
            Ok(Wire::Operation(wire::decided(target, Verb::Create, wire::any_dag(&dag))))
        }
        Ok(other) => Err(unexpected(&other)),
        Err(error) => {
            let error = of_control(error, OperationKind::Change, caller);
            Ok(Wire::Error(error.into()))
        }
    }
}

fn target(tenant: &TenantId, dag: &NewDag) -> String {
    snic_domain::DagName { tenant: tenant.clone(), dag: dag.id.clone() }.to_string()
}

/// One DAG of the batch of `parent`; its configurations are not checked yet.
fn read(parent: &str, request: v1::CreateDagRequest) -> Result<NewDag, ApiError> {
    let v1::CreateDagRequest { parent: own, dag_id, dag: wanted, validate_only, request_id } =
        request;
    let wrong =
        |field, text: &str| Err(ApiError::in_field(v1::ErrorReason::InvalidField, field, text));
    if !own.is_empty() && own != parent {
        return wrong("parent", &format!("{:?} is not {parent}; leave it empty", excerpt(&own)));
    }
    if validate_only {
        return wrong("validate_only", "set it for the whole batch instead");
    }
    if !request_id.is_empty() {
        return wrong("request_id", "set it for the whole batch instead");
    }
    let id = id("dag_id", &dag_id).map_err(ApiError::from)?;
    let wanted = wanted.ok_or_else(|| ApiError::required("dag"))?;
    super::dags::check_placement(&wanted)?;
    let spec = dag::spec(&wanted)?;
    Ok(NewDag { id, spec })
}
