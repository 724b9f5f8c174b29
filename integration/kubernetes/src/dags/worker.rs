//! Work on one object: reads it and its DAG, takes the next steps, and writes the status.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use snic_api::text::escaped_lines;
use snic_api::v1::Dag;
use snic_domain::{DagName, TenantId};
use tonic::{Code, Status};

use super::object::{DagObject, ObjectKey};
use super::objects::{ObjectStore, reason_of};
use super::plan::{Step, is_of, next_step};
use super::queue::WorkResult;
use super::server::DagServer;
use super::settings::TenantRule;
use super::spec::{SpecRefusal, WantedDag, dag_name, wanted_dag};
use super::status::{Standing, status};
use crate::daemon::is_down;

/// Longest work on an object: the server has a change without room wait for ten seconds.
const WORK_MAX: Duration = Duration::from_secs(30);
/// Steps of one work: finalizer, change.
const STEPS_MAX: usize = 3;

/// Why work failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The API server refused, or does not answer.
    #[error("the API server: {}", reason_of(.0))]
    Objects(#[from] kube::Error),
    /// The server refused to be asked, or does not answer.
    #[error("the SmartNIC server: {}", escaped_lines(.0.message()))]
    Server(Box<Status>),
    /// It took too long.
    #[error("not done within {WORK_MAX:?}")]
    Late,
}

/// A worker.
#[derive(Debug)]
pub struct DagWorker {
    pub objects: ObjectStore,
    pub server: DagServer,
    pub rule: TenantRule,
    /// Tenants that any object may trust.
    pub trusted: BTreeSet<String>,
}

fn lost(status: Status) -> WorkError {
    WorkError::Server(Box::new(status))
}

impl DagWorker {
    /// Works on an object.
    pub async fn work(&self, key: &ObjectKey) -> WorkResult {
        let late = |_| Err(WorkError::Late);
        match tokio::time::timeout(WORK_MAX, self.reconcile(key)).await.unwrap_or_else(late) {
            Ok(result) => result,
            Err(error) => {
                tracing::warn!(object = %key, %error, "to be tried again");
                WorkResult::Retry
            }
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<WorkResult, WorkError> {
        let Some(mut object) = self.objects.get(key).await? else { return Ok(WorkResult::Settled) };
        let tenant = self.rule.tenant_of(&key.namespace);
        let tenant = tenant
            .map_err(|error| SpecRefusal::lasting("NAMESPACE_WITHOUT_TENANT", error.to_string()));
        let name = tenant.and_then(|tenant| dag_name(&object.head, &tenant));
        match self.steps(&mut object, &name).await {
            Err(WorkError::Server(status)) => {
                let why = WorkError::Server(status);
                self.report(&object, Standing::Unknown(&why.to_string()), None).await?;
                Err(why)
            }
            other => other,
        }
    }

    async fn steps(
        &self,
        object: &mut DagObject,
        name: &Result<DagName, SpecRefusal>,
    ) -> Result<WorkResult, WorkError> {
        if let Some(result) = self.leave_former_tenant(object, name).await? {
            return Ok(result);
        }
        let wanted = match name {
            Ok(name) => wanted_dag(&object.head, &object.spec, name, &self.trusted),
            Err(refusal) => Err(refusal.clone()),
        };
        for _ in 0..STEPS_MAX {
            let present = self.present(name).await?;
            let ours = present.as_ref().filter(|dag| is_of(dag, &object.head));
            match next_step(&object.head, &wanted, present.as_ref()) {
                Step::AddFinalizer => {
                    self.objects.set_finalizer(&object.head, true).await?;
                    object.head.has_finalizer = true;
                }
                Step::RemoveFinalizer => {
                    self.objects.set_finalizer(&object.head, false).await?;
                    return Ok(WorkResult::Settled);
                }
                Step::Settled => {
                    if !object.head.is_deleting {
                        self.report(object, Standing::Accepted, ours).await?;
                    }
                    return Ok(WorkResult::Settled);
                }
                Step::Wait => {
                    // The server reports when it has gone; the retry is for a report that is missed.
                    self.report(object, waiting(object), ours).await?;
                    return Ok(WorkResult::Retry);
                }
                Step::Refuse(refusal) => {
                    self.report(object, Standing::Refused(&refusal), ours).await?;
                    let may_pass = refusal.may_pass;
                    return Ok(if may_pass { WorkResult::Retry } else { WorkResult::Settled });
                }
                Step::Create(dag) => {
                    let done = self.server.create(*dag).await;
                    return self.changed(object, name, &wanted, done).await;
                }
                Step::Update(dag) => {
                    let done = self.server.update(*dag).await;
                    return self.changed(object, name, &wanted, done).await;
                }
                Step::Delete { etag } => {
                    let done = match name {
                        Ok(name) => self.server.delete(&name.to_string(), &etag).await,
                        Err(_) => Ok(()),
                    };
                    return self.changed(object, name, &wanted, done).await;
                }
            }
        }
        Ok(WorkResult::Retry)
    }

    async fn present(&self, name: &Result<DagName, SpecRefusal>) -> Result<Option<Dag>, WorkError> {
        let Ok(name) = name else { return Ok(None) };
        self.server.get(&name.to_string()).await.map_err(lost)
    }

    /// Reports what became of a change.
    async fn changed(
        &self,
        object: &DagObject,
        name: &Result<DagName, SpecRefusal>,
        wanted: &Result<WantedDag, SpecRefusal>,
        done: Result<(), Status>,
    ) -> Result<WorkResult, WorkError> {
        let has_chain = wanted.as_ref().is_ok_and(|wanted| wanted.has_chain);
        let refusal = match done {
            Ok(()) => None,
            // Somebody else was faster: what there is now is looked at soon.
            Err(status) if [Code::Aborted, Code::AlreadyExists].contains(&status.code()) => {
                tracing::debug!(object = %object.head.key, why = status.message(), "changed meanwhile");
                return Ok(WorkResult::Retry);
            }
            Err(status) if is_down(&status) => return Err(lost(status)),
            Err(status) => Some(SpecRefusal::server(&status, has_chain)),
        };
        let present = self.present(name).await?;
        let ours = present.as_ref().filter(|dag| is_of(dag, &object.head));
        let standing = match &refusal {
            _ if object.head.is_deleting => {
                Standing::Deleting(refusal.as_ref().map(|why| why.message.as_str()))
            }
            Some(refusal) => Standing::Refused(refusal),
            None => Standing::Accepted,
        };
        self.report(object, standing, ours).await?;
        let has_gone = object.head.is_deleting && ours.is_none();
        Ok(if refusal.is_some() || has_gone { WorkResult::Retry } else { WorkResult::Changed })
    }

    /// Deletes the DAG that an object had at another tenant before the operator's settings were changed: only one that says
    /// by its labels that it was made for this object, for others than the controller may write a status too.
    async fn leave_former_tenant(
        &self,
        object: &DagObject,
        name: &Result<DagName, SpecRefusal>,
    ) -> Result<Option<WorkResult>, WorkError> {
        let Some(former) = object.reported_dag().and_then(|name| former_name(object, name)) else {
            return Ok(None);
        };
        // Without a tenant the DAG stays, unless the object goes: a slip in the settings must not delete it.
        let is_former = match name {
            Ok(name) => *name != former,
            Err(_) => object.head.is_deleting,
        };
        if !is_former {
            return Ok(None);
        }
        let former = former.to_string();
        let Some(dag) = self.server.get(&former).await.map_err(lost)? else { return Ok(None) };
        if !is_of(&dag, &object.head) {
            return Ok(None);
        }
        let deleted = self.server.clear(&former, &dag.etag).await;
        if let Err(status) = deleted
            && is_down(&status)
        {
            return Err(lost(status));
        }
        self.report(object, Standing::Deleting(None), Some(&dag)).await?;
        Ok(Some(WorkResult::Retry))
    }

    /// Writes the status, where it is another one.
    async fn report(
        &self,
        object: &DagObject,
        standing: Standing<'_>,
        present: Option<&Dag>,
    ) -> Result<(), WorkError> {
        let status = status(object, standing, present, Timestamp::now());
        if status == object.status {
            return Ok(());
        }
        Ok(self.objects.set_status(&object.head, &status).await?)
    }
}

fn waiting(object: &DagObject) -> Standing<'_> {
    match object.head.is_deleting {
        true => Standing::Deleting(None),
        false => Standing::Accepted,
    }
}

/// The name that a status says, if the object may have had a DAG of that name.
fn former_name(object: &DagObject, text: &str) -> Option<DagName> {
    let (tenant, dag) = text.strip_prefix("tenants/")?.split_once("/dags/")?;
    let tenant = TenantId::new(tenant).ok()?;
    (dag == object.head.key.name).then(|| dag_name(&object.head, &tenant).ok())?
}
