//! A dry run asks the server about each resource, as if it were created or changed. What needs a resource that only the
//! files would create cannot be asked about as a whole: the parts that are there are, and the outcome names what is not.

use snic_api::v1::{BitstreamHeader, NtType, Rule};
use snic_client::output::message;
use snic_client::{Client, Failure, names};
use snic_dagfile::{DagFile, DocumentKind};

use super::resources::present;
use super::{Action, ApplyOutcome, CliSession, Target, plain, read_fields};

/// Outcome of a document, if it were applied after those before it.
pub(super) async fn apply(
    session: &CliSession,
    client: &Client,
    target: &Target,
    before: &[ApplyOutcome],
) -> Result<ApplyOutcome, Failure> {
    let is_new = |name: &str| {
        before.iter().any(|outcome| outcome.action == Action::Created && outcome.name == name)
    };
    let needed = needs(session, target)?.into_iter().find(|name| is_new(name));
    if needed.is_none() {
        return super::apply(session, client, target, true).await;
    }
    if target.document.kind == DocumentKind::Dag {
        check_types(client, &target.document.dag()?, is_new).await?;
    }
    Ok(ApplyOutcome { waits_for: needed, ..ApplyOutcome::new(&target.name, Action::Created) })
}

/// The names of the resources that a document's resource needs.
fn needs(session: &CliSession, target: &Target) -> Result<Vec<String>, Failure> {
    let document = &target.document;
    Ok(match document.kind {
        DocumentKind::Tenant | DocumentKind::NtType => Vec::new(),
        DocumentKind::Dag => {
            let owner = target.name.split_once("/dags/").map(|(owner, _)| owner.to_owned());
            let file = document.dag()?;
            let types = file.dag.nodes.into_iter().map(|node| node.nt_type);
            owner.into_iter().chain(types).collect()
        }
        DocumentKind::Bitstream if !document.has("nts") => Vec::new(),
        DocumentKind::Bitstream => {
            let (settable, mut others) = message::fields_of::<BitstreamHeader>()?;
            others.extend(document.paths());
            others.retain(|field| !settable.contains(field));
            let (header, _) = read_fields::<BitstreamHeader>(document, &settable, &others)?;
            header.nts.iter().map(|nt| names::nt_type(nt)).collect::<Result<_, _>>()?
        }
        DocumentKind::Rule => {
            let (rule, _) = plain::<Rule>(document)?;
            let dag = Some(rule.dag).filter(|dag| !dag.is_empty());
            dag.map(|dag| session.dag_name(&dag)).transpose()?.into_iter().collect()
        }
    })
}

/// Checks that the server or the files have the NT types of a DAG.
async fn check_types(
    client: &Client,
    file: &DagFile,
    is_new: impl Fn(&str) -> bool,
) -> Result<(), Failure> {
    for (index, node) in file.dag.nodes.iter().enumerate() {
        let nt_type = &node.nt_type;
        if !is_new(nt_type) && present::<NtType>(client, nt_type).await?.is_none() {
            let help = "`snicctl nt list` shows the types that there are";
            let path = format!("dag.nodes[{index}].nt_type");
            let message = format!("{nt_type} does not exist");
            return Err(match file.error_in(&path, &message, Some(help.to_owned())) {
                Some(invalid) => Box::new(invalid).into(),
                None => Failure::usage(message, help),
            });
        }
    }
    Ok(())
}
