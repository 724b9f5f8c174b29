//! Hints about what was probably meant: a refusal at its place in the file, and the name that is most like a missing one.
//!
//! Each takes one more call, only after a refusal; if that fails too, the refusal is shown as it is.

use snic_api::v1::{ErrorReason, ListDagsRequest, ListNtTypesRequest};
use snic_client::call;
use snic_client::lists::PAGE_SIZE;
use snic_client::{Client, Failure};
use snic_dagfile::{DagFile, nearest};

/// A refusal at its place in the file that the request came from.
pub(super) async fn in_file(client: &Client, file: &DagFile, failure: Failure) -> Failure {
    in_files(client, std::slice::from_ref(file), failure).await
}

/// A refusal at its place in one of the files that the request came from.
pub(super) async fn in_files(client: &Client, files: &[DagFile], failure: Failure) -> Failure {
    let types = match failure.reason() {
        Some(ErrorReason::UnknownNtType) => nt_types(client).await,
        _ => Vec::new(),
    };
    failure.in_file(|path, message| {
        let (index, path) = of_request(path);
        let file = files.get(index)?;
        let help = asked_type(file, path).and_then(|asked| {
            let meant = nearest(asked, types.iter().map(String::as_str))?;
            Some(format!(
                "did you mean `{meant}`? `snicctl nt list` shows the types that you may use"
            ))
        });
        file.error_in(path, message, help)
    })
}

/// Number of the request that a path is about, and the path in it: `requests[1].dag_id` is the second one's
/// `dag_id`; of a single request the path stays.
fn of_request(path: &str) -> (usize, &str) {
    let several = path.strip_prefix("requests[").and_then(|rest| rest.split_once("]."));
    several.and_then(|(index, rest)| Some((index.parse().ok()?, rest))).unwrap_or((0, path))
}

/// The type that a file gives the node of a path such as `dag.nodes[2].nt_type`.
fn asked_type<'a>(file: &'a DagFile, path: &str) -> Option<&'a str> {
    let (index, _) = path.strip_prefix("dag.nodes[")?.split_once(']')?;
    let node = file.dag.nodes.get(index.parse::<usize>().ok()?)?;
    node.nt_type.strip_prefix("ntTypes/")
}

/// The ids of the first page of types.
async fn nt_types(client: &Client) -> Vec<String> {
    let request = ListNtTypesRequest { page_size: PAGE_SIZE, ..Default::default() };
    let found = call!(client, nts.list_nt_types, request).map(|reply| reply.nt_types);
    let id = |name: String| name.strip_prefix("ntTypes/").map(str::to_owned);
    found.unwrap_or_default().into_iter().filter_map(|nt| id(nt.name)).collect()
}

/// A missing DAG, with the name of the tenant's DAG that is most like it.
pub(super) async fn missing_dag(client: &Client, failure: Failure) -> Failure {
    let missing = failure.missing();
    let Some((parent, id)) = missing.as_deref().and_then(|name| name.split_once("/dags/")) else {
        return failure;
    };
    let request =
        ListDagsRequest { parent: parent.to_owned(), page_size: PAGE_SIZE, ..Default::default() };
    let found = call!(client, dags.list_dags, request).map(|reply| reply.dags).unwrap_or_default();
    let ids = found.iter().filter_map(|dag| Some(dag.name.split_once("/dags/")?.1));
    match nearest(id, ids) {
        Some(meant) => {
            failure.hinted(format!("did you mean `{meant}`? `snicctl dag list` shows all"))
        }
        None => failure,
    }
}
