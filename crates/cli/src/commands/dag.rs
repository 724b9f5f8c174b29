//! `snicctl dag`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use prost_types::FieldMask;
use snic_api::v1::dag::Form;
use snic_api::v1::operation::Result as Ended;
use snic_api::v1::{
    CreateDagRequest, Dag, DeleteDagRequest, ExplainDagRequest, GetDagRequest, ListDagsRequest,
    Operation, UpdateDagRequest, WatchDagsRequest,
};
use tonic::Status;

use super::{CliSession, batch, hints, request_id, wait};
use crate::args::{ChangeOptions, DagCommand, FormArg, Selected};
use snic_client::call;
use snic_client::follow;
use snic_client::lists::{PAGE_SIZE, pages};
use snic_client::names;
use snic_client::output::{explain, views};
use snic_client::{Client, Failure};
use snic_dagfile::{self as dagfile, DagFile};

/// What a DAG file says of a DAG: an update from a file sets all of it.
const IN_FILES: &[&str] = &[
    "nodes",
    "edges",
    "bandwidth_bps",
    "form",
    "packet_sizes",
    "trusted_tenants",
    "card_affinity",
    "labels",
    "description",
];

pub async fn run(session: &mut CliSession, command: DagCommand) -> Result<(), Failure> {
    match carry_out(session, command).await {
        Err(failure) if failure.missing().is_some() => {
            Err(hints::missing_dag(&session.client()?, failure).await)
        }
        result => result,
    }
}

async fn carry_out(session: &mut CliSession, command: DagCommand) -> Result<(), Failure> {
    match command {
        DagCommand::Create { name, source, allow_partial, change } => match &source.file[..] {
            [one] if !allow_partial => create(session, name, read(one)?, change).await,
            several if name.is_none() => {
                let files = several.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
                batch::create(session, files, allow_partial, change).await
            }
            several => Err(Failure::usage(
                format!("one name for {} files", several.len()),
                "leave the name out, and add `name: web` to each file",
            )),
        },
        DagCommand::Update { name, file: Some(file), guard, change, .. } => {
            let file = read(&file)?;
            let name = session.file_name(name, &file)?;
            let mut dag = file.resource_of(parent_of(&name));
            dag.name = name;
            dag.etag = guard.etag.unwrap_or(dag.etag);
            match update(session, dag, IN_FILES, change).await {
                Err(failure) => Err(hints::in_file(&session.client()?, &file, failure).await),
                done => done,
            }
        }
        DagCommand::Update { name, bandwidth, form, guard, change, .. } => {
            let mut dag = Dag { etag: guard.into_etag(), ..Dag::default() };
            dag.name = session.dag_name(&name.unwrap_or_default())?;
            let mut paths = Vec::new();
            if let Some(bandwidth) = bandwidth {
                dag.bandwidth_bps = bandwidth.get();
                paths.push("bandwidth_bps");
            }
            if let Some(form) = form {
                dag.set_form(form.into());
                paths.push("form");
            }
            update(session, dag, &paths, change).await
        }
        DagCommand::List { all_tenants, selected } => list(session, all_tenants, selected).await,
        DagCommand::Get { name } => {
            let request = GetDagRequest { name: session.dag_name(&name)? };
            let dag = call!(session.client()?, dags.get_dag => dag, request)?;
            session.output.one(&dag, views::dag)
        }
        DagCommand::Explain { name } => {
            let request = ExplainDagRequest { name: session.dag_name(&name)? };
            let explanation = call!(session.client()?, dags.explain_dag => explanation, request)?;
            session.output.one(&explanation, explain::explanation)
        }
        DagCommand::Watch { name, all_tenants } => watch_dags(session, name, all_tenants).await,
        DagCommand::Delete { name, wait, guard } => {
            let request = DeleteDagRequest {
                name: session.dag_name(&name)?,
                allow_missing: guard.allow_missing,
                etag: guard.guard.into_etag(),
                request_id: request_id(),
            };
            let client = session.client()?;
            let operation = call!(client, dags.delete_dag => operation, request)?;
            session.finish(&client, operation, wait).await
        }
    }
}

impl From<FormArg> for Form {
    fn from(form: FormArg) -> Self {
        match form {
            FormArg::Auto => Self::Unspecified,
            FormArg::Sequential => Self::Sequential,
            FormArg::Parallel => Self::Parallel,
        }
    }
}

impl CliSession {
    /// The full name of the DAG in a file; the command line takes precedence.
    pub(super) fn file_name(
        &self,
        given: Option<String>,
        file: &DagFile,
    ) -> Result<String, Failure> {
        let Some(name) = given.or_else(|| file.name.clone()) else {
            return Err(Failure::usage(
                "the DAG has no name",
                "add `name: web` to the file, or a name on the command line",
            ));
        };
        let tenant = self.global.tenant.clone().or_else(|| file.tenant.clone());
        let tenant = tenant.map_or_else(|| self.tenant(), |tenant| Ok(Some(tenant)))?;
        names::dag(&name, tenant.as_deref())
    }

    /// The parent for lists: the tenant, or all tenants.
    fn dags_parent(&self, is_all: bool) -> Result<String, Failure> {
        match self.tenant()? {
            Some(tenant) if !is_all => names::tenant(&tenant),
            _ => Ok("tenants/-".to_owned()),
        }
    }

    /// Prints the result of a validation, or continues with the operation.
    async fn changed(
        &mut self,
        client: &Client,
        operation: Operation,
        change: ChangeOptions,
    ) -> Result<(), Failure> {
        if !change.validate_only {
            return self.finish(client, operation, change.wait).await;
        }
        match operation.result {
            Some(Ended::Error(error)) => Err(Status::from(error).into()),
            Some(Ended::Response(any)) => match wait::decode::<Dag>(&any)? {
                Some(dag) => self.output.one(&dag, views::trial),
                None => Err(Failure::Reply(format!("expected a DAG, got {}", any.type_url))),
            },
            None => Err(Failure::Reply("the validation has no result".into())),
        }
    }
}

/// Reads a DAG file, or standard input for `-`.
pub(super) fn read(path: &Path) -> Result<DagFile, Failure> {
    let failed = |source| Failure::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let limit = dagfile::FILE_BYTES_MAX;
    let is_stdin = path.as_os_str() == "-";
    let read = if is_stdin {
        io::stdin().lock().take(limit + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
    };
    if read.map_err(failed)? as u64 > limit {
        let message = format!("{} is larger than the limit of {limit} bytes", path.display());
        return Err(Failure::usage(
            message,
            "a DAG has at most 64 network tasks and needs a few kilobytes; check the file",
        ));
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error.utf8_error())))?;
    let name = if is_stdin { "<standard input>".into() } else { path.display().to_string() };
    Ok(dagfile::parse(&name, &text)?)
}

/// The tenant of a DAG, as in its full name.
fn parent_of(name: &str) -> &str {
    name.split_once("/dags/").map_or(name, |(parent, _)| parent)
}

async fn create(
    session: &mut CliSession,
    name: Option<String>,
    file: DagFile,
    change: ChangeOptions,
) -> Result<(), Failure> {
    let name = session.file_name(name, &file)?;
    let (parent, id) = name.split_once("/dags/").unwrap_or((&name, ""));
    let dag = Dag { etag: String::new(), ..file.resource_of(parent) };
    let request = CreateDagRequest {
        parent: parent.to_owned(),
        dag_id: id.to_owned(),
        dag: Some(dag),
        validate_only: change.validate_only,
        request_id: request_id(),
    };
    let client = session.client()?;
    let operation = match call!(client, dags.create_dag => operation, request) {
        Ok(operation) => operation,
        Err(failure) => return Err(hints::in_file(&client, &file, failure).await),
    };
    session.changed(&client, operation, change).await
}

async fn update(
    session: &mut CliSession,
    dag: Dag,
    paths: &[&str],
    change: ChangeOptions,
) -> Result<(), Failure> {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    let request = UpdateDagRequest {
        dag: Some(dag),
        update_mask: Some(FieldMask { paths }),
        validate_only: change.validate_only,
        request_id: request_id(),
    };
    let client = session.client()?;
    let operation = call!(client, dags.update_dag => operation, request)?;
    session.changed(&client, operation, change).await
}

async fn list(session: &mut CliSession, is_all: bool, selected: Selected) -> Result<(), Failure> {
    let parent = session.dags_parent(is_all)?;
    let client = session.client()?;
    let dags = pages(async |page_token| {
        let request = ListDagsRequest {
            parent: parent.clone(),
            page_size: PAGE_SIZE,
            page_token,
            filter: selected.filter.clone(),
            order_by: selected.order_by.clone(),
        };
        let reply = call!(client, dags.list_dags, request)?;
        Ok((reply.dags, reply.next_page_token))
    });
    let dags = dags.await?;
    session.output.many(&dags, views::dags)
}

async fn watch_dags(
    session: &mut CliSession,
    name: Option<String>,
    is_all: bool,
) -> Result<(), Failure> {
    let name = name.map(|name| session.dag_name(&name)).transpose()?;
    let parent = match &name {
        Some(name) => name.split_once("/dags/").map_or(name.clone(), |(tenant, _)| tenant.into()),
        None => session.dags_parent(is_all)?,
    };
    let client = session.client()?;
    let open = async |resume_revision| {
        let request = WatchDagsRequest { parent: parent.clone(), resume_revision };
        Ok(client.dags().watch_dags(request).await?.into_inner())
    };
    follow(&client, open, |event| {
        let other = |wanted: &String| event.dag.as_ref().is_some_and(|dag| dag.name != *wanted);
        if !name.as_ref().is_some_and(other) {
            session.output.event(&event, views::dag_event)?;
        }
        Ok(event.revision)
    })
    .await
}
