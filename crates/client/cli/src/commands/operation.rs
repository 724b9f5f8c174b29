//! `snicctl operation`.

use serde_json::json;
use snic_api::v1::{CancelOperationRequest, DeleteOperationRequest, GetOperationRequest};

use super::{CliSession, list, request_id, watch};
use crate::args::OperationCommand;
use snic_client::Failure;
use snic_client::call;
use snic_client::names;
use snic_client::output::{changes, views};

pub async fn run(session: &mut CliSession, command: OperationCommand) -> Result<(), Failure> {
    let client = session.client()?;
    match command {
        OperationCommand::List { running: running_only, target, selected } => {
            let target = target.unwrap_or_default();
            list!(
                session,
                operations.list_operations(ListOperationsRequest { target, running_only }) => operations,
                selected,
                views::operations
            )
        }
        OperationCommand::Watch => {
            watch!(
                session,
                operations.watch_operations(WatchOperationsRequest),
                changes::operation_event
            )
        }
        OperationCommand::Get { name } => {
            let request = GetOperationRequest { name: names::operation(&name)? };
            let operation = call!(client, operations.get_operation => operation, request)?;
            session.output.one(&operation, views::operation)
        }
        OperationCommand::Wait { name } => {
            let request = GetOperationRequest { name: names::operation(&name)? };
            let operation = call!(client, operations.get_operation => operation, request)?;
            session.finish(&client, operation, true).await
        }
        OperationCommand::Cancel { name } => {
            let name = names::operation(&name)?;
            let request = CancelOperationRequest { name: name.clone(), request_id: request_id() };
            let _ = call!(client, operations.cancel_operation, request)?;
            session.output.plain(&json!({}), &format!("cancelled {name}\n"))
        }
        OperationCommand::Delete { name, allow_missing } => {
            let name = names::operation(&name)?;
            let request = DeleteOperationRequest {
                name: name.clone(),
                request_id: request_id(),
                allow_missing,
            };
            let _ = call!(client, operations.delete_operation, request)?;
            session.deleted(&name)
        }
    }
}
