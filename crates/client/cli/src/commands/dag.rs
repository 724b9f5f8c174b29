//! `snicctl dag`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use prost_types::FieldMask;
use snic_api::v1::dag::Form;
use snic_api::v1::operation::Result as Ended;
use snic_api::v1::{
    CreateDagRequest, Dag, DeleteDagRequest, DiagnoseDagRequest, ExplainDagRequest, GetDagRequest,
    Operation, UpdateDagRequest, WatchDagsRequest,
};
use tonic::Status;

use super::{CliSession, batch, hints, list, request_id, wait};
use crate::args::{ChangeOptions, DagCommand, DeleteGuard, FormArg, Guard, NewNotes};
use snic_client::call;
use snic_client::follow;
use snic_client::names;
use snic_client::output::{diagnosis, explain, views};
use snic_client::{Client, Failure};
use snic_dagfile::{self as dagfile, DagFile};

/// Fields of a DAG in a DAG file: an update from a file sets all of them.
pub(super) const IN_FILES: &[&str] = &[
    "nodes",
    "edges",
    "bandwidth_bps",
    "form",
    "packet_sizes",
    "trusted_tenants",
    "card_affinity",
    "latency_sensitive",
    "refuse_idle_tasks",
    "latency_bound_nanos",
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
        DagCommand::Create { name, source, allow_partial, notes, change } => match &source.file[..]
        {
            [one] if !allow_partial => create(session, name, noted(one, &notes)?, change).await,
            several if name.is_none() => {
                let files = several.iter().map(|path| noted(path, &notes));
                let files = files.collect::<Result<_, _>>()?;
                batch::create(session, files, allow_partial, change).await
            }
            several => Err(Failure::usage(
                format!("one name for {} files", several.len()),
                "leave the name out, and add `name: web` to each file",
            )),
        },
        DagCommand::Update { file: Some(_), notes, .. } if !notes.paths().is_empty() => {
            let hint = "write labels and description into the file";
            Err(Failure::usage("labels or a description beside a file", hint))
        }
        DagCommand::Update { name, file: Some(file), guard, change, .. } => {
            update_from_file(session, name, read(&file)?, guard, change).await
        }
        DagCommand::Update { name, bandwidth, form, notes, guard, change, .. } => {
            let (labels, description) = notes.values();
            let etag = guard.into_etag();
            let mut dag = Dag { etag, labels, description, ..Dag::default() };
            dag.name = session.dag_name(&name.unwrap_or_default())?;
            let mut paths = notes.paths();
            if let Some(bandwidth) = bandwidth {
                dag.bandwidth_bps = bandwidth.get();
                paths.push("bandwidth_bps".to_owned());
            }
            if let Some(form) = form {
                dag.set_form(form.into());
                paths.push("form".to_owned());
            }
            update(session, dag, paths, change).await
        }
        DagCommand::List { all_tenants, selected } => {
            let parent = session.dags_parent(all_tenants)?;
            let selected = selected.whole();
            let is_ordered = !selected.order_by.is_empty();
            let view = if is_ordered { views::dags } else { views::dags_below_promise_first };
            list!(session, dags.list_dags(ListDagsRequest { parent }) => dags, selected, view)
        }
        DagCommand::Get { name } => {
            let request = GetDagRequest { name: session.dag_name(&name)? };
            let dag = call!(session.client()?, dags.get_dag => dag, request)?;
            session.output.one(&dag, views::dag)
        }
        DagCommand::Diagnose { name } => {
            let request = DiagnoseDagRequest { name: session.dag_name(&name)? };
            let found = call!(session.client()?, dags.diagnose_dag => diagnosis, request)?;
            session.output.one(&found, diagnosis::diagnosis)
        }
        DagCommand::Slo { name, options } => {
            let name = session.dag_name(&name)?;
            super::usage::slo(session, name, &options).await
        }
        DagCommand::Explain { name } => {
            let request = ExplainDagRequest { name: session.dag_name(&name)? };
            let explanation = call!(session.client()?, dags.explain_dag => explanation, request)?;
            session.output.one(&explanation, explain::explanation)
        }
        DagCommand::Watch { name, all_tenants } => watch_dags(session, name, all_tenants).await,
        DagCommand::Delete { name, wait, guard } => delete(session, &name, wait, guard).await,
    }
}

async fn delete(
    session: &mut CliSession,
    name: &str,
    wait: bool,
    guard: DeleteGuard,
) -> Result<(), Failure> {
    let request = DeleteDagRequest {
        name: session.dag_name(name)?,
        allow_missing: guard.allow_missing,
        etag: guard.guard.into_etag(),
        request_id: request_id(),
    };
    let client = session.client()?;
    let operation = call!(client, dags.delete_dag => operation, request)?;
    session.finish(&client, operation, wait).await
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
    pub(super) fn dags_parent(&self, is_all: bool) -> Result<String, Failure> {
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

/// The same, with the labels and the description of the command line: these take precedence.
fn noted(path: &Path, notes: &NewNotes) -> Result<DagFile, Failure> {
    let mut file = read(path)?;
    file.dag.labels.extend(notes.labels());
    if !notes.description.is_empty() {
        file.dag.description.clone_from(&notes.description);
    }
    Ok(file)
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

/// Sets all that a file says.
async fn update_from_file(
    session: &mut CliSession,
    name: Option<String>,
    file: DagFile,
    guard: Guard,
    change: ChangeOptions,
) -> Result<(), Failure> {
    let name = session.file_name(name, &file)?;
    let mut dag = file.resource_of(parent_of(&name));
    dag.name = name;
    dag.etag = guard.etag.unwrap_or(dag.etag);
    let paths = IN_FILES.iter().map(|path| (*path).to_owned()).collect();
    match update(session, dag, paths, change).await {
        Err(failure) => Err(hints::in_file(&session.client()?, &file, failure).await),
        done => done,
    }
}

async fn update(
    session: &mut CliSession,
    dag: Dag,
    paths: Vec<String>,
    change: ChangeOptions,
) -> Result<(), Failure> {
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
        snic_client::open!(client, dags.watch_dags, request)
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

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor};
    use snic_api::convert::object;
    use snic_api::v1::dag::{Edge, Node, PacketSize};
    use snic_api::v1::placement::Order;
    use snic_api::v1::{CardAffinity, Placement};
    use snic_client::output::message::JsonMessage;

    use super::*;

    fn descriptor() -> MessageDescriptor {
        let pool = DescriptorPool::decode(snic_api::FILE_DESCRIPTOR_SET).expect("descriptors");
        pool.get_message_by_name("snic.control.v1.Dag").expect("it is there")
    }

    /// Whether a request may set a field, by its annotation in the proto file.
    fn is_settable(field: &FieldDescriptor) -> bool {
        let pool = field.parent_pool();
        let behaviour = pool.get_extension_by_name("google.api.field_behavior").expect("imported");
        let options = field.options();
        let values = options.get_extension(&behaviour);
        let values = values.as_list().expect("a list");
        // 1: OPTIONAL, 2: REQUIRED.
        values.iter().any(|value| matches!(value.as_enum_number(), Some(1 | 2)))
    }

    /// A field that is added to the API must be added to files as well, or an update from a file would
    /// leave it as it was.
    #[test]
    fn files_say_all_that_a_request_may_set() {
        let dag = descriptor();
        let fields = dag.fields().filter(is_settable);
        let mut settable: Vec<String> = fields.map(|field| field.name().to_owned()).collect();
        // The one is no part of what is asked for, the other is set when a DAG is created, and servers refuse another one.
        settable.retain(|field| field != "etag" && field != "placement");
        settable.sort();
        let mut in_files = IN_FILES.to_vec();
        in_files.sort_unstable();
        assert_eq!(in_files, settable);
    }

    #[test]
    fn a_file_sets_each_of_them() {
        let node = |id: &str| Node {
            id: id.into(),
            nt_type: format!("ntTypes/{id}"),
            configuration: Some(object::of_json(&serde_json::json!({"flows": 3}))),
        };
        let mut dag = Dag {
            nodes: vec![node("nat"), node("aes")],
            edges: vec![Edge { from_node: "nat".into(), to_node: "aes".into() }],
            bandwidth_bps: 2_000_000_000,
            packet_sizes: vec![PacketSize { bytes: 64, weight: 1 }],
            trusted_tenants: vec!["tenants/globex".into()],
            card_affinity: Some(CardAffinity {
                together_with: vec!["tenants/acme/dags/db".into()],
                apart_from: vec!["tenants/acme/dags/old".into()],
                preferred: true,
            }),
            placement: Some(Placement {
                zones: vec!["z1".into()],
                hosts: vec!["hosts/h1".into()],
                order: Order::Spread.into(),
                ..Placement::default()
            }),
            latency_sensitive: true,
            refuse_idle_tasks: true,
            latency_bound_nanos: 50_000,
            labels: [("app".to_owned(), "web".to_owned())].into(),
            description: "for the shop".into(),
            ..Dag::default()
        };
        dag.set_form(Form::Parallel);
        let message = DynamicMessage::decode(descriptor(), dag.encode_to_vec().as_slice());
        let message = message.expect("it is one");
        for field in IN_FILES {
            assert!(message.has_field_by_name(field), "{field} is not set here");
        }
        let printed = serde_json::to_string(&JsonMessage::new(&dag).expect("known"));
        let file = dagfile::parse("dag.json", &printed.expect("JSON")).expect("a file");
        assert_eq!(file.resource_of("tenants/acme"), dag);
    }
}
