//! `snicctl dag create` with several files: one request for all DAGs.

use snic_api::v1::batch_create_dags_result::Result as Created;
use snic_api::v1::operation::Result as Ended;
use snic_api::v1::{
    BatchCreateDagsRequest, BatchCreateDagsResult, CreateDagRequest, Dag, Operation,
};
use snic_client::call;
use snic_client::output::views;
use snic_client::{Client, Failure};
use snic_dagfile::DagFile;
use tonic::Status;

use super::{CliSession, hints, request_id, wait};
use crate::args::ChangeOptions;

/// Creates DAGs of one tenant: all or none, or those that can be created.
pub async fn create(
    session: &mut CliSession,
    files: Vec<DagFile>,
    allow_partial: bool,
    change: ChangeOptions,
) -> Result<(), Failure> {
    let mut parent: Option<String> = None;
    let mut names = Vec::new();
    let mut requests = Vec::new();
    for file in &files {
        let name = session.file_name(None, file)?;
        let (tenant, id) = name.split_once("/dags/").unwrap_or((&name, ""));
        if let Some(other) = parent.as_ref().filter(|parent| *parent != tenant) {
            return Err(Failure::usage(
                format!("DAGs of {other} and of {tenant} in one request"),
                "create the DAGs of each tenant by themselves",
            ));
        }
        parent = Some(tenant.to_owned());
        let dag = Some(Dag { etag: String::new(), ..file.resource_of(tenant) });
        requests.push(CreateDagRequest { dag_id: id.to_owned(), dag, ..Default::default() });
        names.push(name);
    }
    let request = BatchCreateDagsRequest {
        parent: parent.unwrap_or_default(),
        requests,
        allow_partial,
        validate_only: change.validate_only,
        request_id: request_id(),
    };
    let client = session.client()?;
    let results = match call!(client, dags.batch_create_dags, request) {
        Ok(reply) => reply.results,
        Err(failure) => return Err(hints::in_files(&client, &files, failure).await),
    };
    let (begun, mut failed) = divide(names, results)?;
    if change.validate_only || change.wait {
        let mut dags = Vec::new();
        for (name, operation) in begun {
            match ended(session, &client, operation).await {
                Ok(dag) => dags.push(dag),
                Err(Failure::Api(status)) => failed.push((name, *status)),
                Err(other) => return Err(other),
            }
        }
        session.output.many(&dags, views::dags)?;
    } else {
        let operations: Vec<Operation> = begun.into_iter().map(|(_, begun)| begun).collect();
        session.output.many(&operations, views::operations)?;
    }
    all_created(failed)
}

/// Values of DAGs, each with the DAG's name.
type Named<T> = Vec<(String, T)>;

/// The DAGs whose creation has begun, and those that are not created.
fn divide(
    names: Vec<String>,
    results: Vec<BatchCreateDagsResult>,
) -> Result<(Named<Operation>, Named<Status>), Failure> {
    let (mut begun, mut failed) = (Vec::new(), Vec::new());
    if names.len() != results.len() {
        let text = format!("{} results for {} DAGs", results.len(), names.len());
        return Err(Failure::Reply(text));
    }
    for (name, result) in names.into_iter().zip(results) {
        match result.result.ok_or_else(|| Failure::without("result"))? {
            Created::Operation(operation) => begun.push((name, operation)),
            Created::Error(error) => failed.push((name, Status::from(error))),
        }
    }
    Ok((begun, failed))
}

/// The DAG at the end of its operation.
async fn ended(
    session: &CliSession,
    client: &Client,
    operation: Operation,
) -> Result<Dag, Failure> {
    let ended = session.wait(client, operation).await?;
    match ended.result {
        Some(Ended::Error(error)) => Err(Status::from(error).into()),
        Some(Ended::Response(any)) => wait::decode::<Dag>(&any)?
            .ok_or_else(|| Failure::Reply(format!("expected a DAG, got {}", any.type_url))),
        None => Err(Failure::without("result")),
    }
}

/// Fails as the first DAG did that is not there, and says why each is not.
fn all_created(failed: Named<Status>) -> Result<(), Failure> {
    let lines: Vec<String> =
        failed.iter().map(|(name, status)| format!("{name}: {}", status.message())).collect();
    let Some((_, first)) = failed.into_iter().next() else { return Ok(()) };
    let details = first.details().to_vec();
    Err(Status::with_details(first.code(), lines.join("\n"), details.into()).into())
}
