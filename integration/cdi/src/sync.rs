//! Keeps the folder in step with the daemon's bindings.
//!
//! While the daemon is down the files stay: bound functions stay bound. Once it is back, the watch
//! begins with all bindings, and files without a binding are removed.

use std::collections::BTreeSet;

use snic_api::connect::{ConnectError, Target};
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use snic_api::v1::vm_binding::State;
use snic_api::v1::{EventType, VmBinding, WatchBindingsRequest, WatchBindingsResponse};
use tonic::Status;

use crate::{FolderError, SpecFolder, uuid_of};

/// Why the folder is no longer kept in step.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The daemon cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The daemon rejected the watch or ended it with an error.
    #[error("the SmartNIC daemon ended the watch: {}", .0.message())]
    Watch(#[from] Status),
    /// The daemon ended the watch without an error.
    #[error("the SmartNIC daemon ended the watch")]
    Ended,
    /// A file could not be written or removed.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

/// Phase of a watch.
enum Phase {
    /// The existing bindings arrive; holds those that have a file.
    Initial(BTreeSet<String>),
    Following,
}

/// Whether a container may use the binding's devices: only once the card, read back, serves them.
fn is_usable(event: &WatchBindingsResponse, binding: &VmBinding) -> bool {
    event.r#type() != EventType::Deleted
        && binding.state() == State::Bound
        && !binding.functions.is_empty()
}

/// Follows the bindings of all tenants; with `once`, returns after the existing ones are written.
///
/// # Errors
/// [`SyncError`]; the caller retries.
pub async fn follow(target: &Target, folder: &SpecFolder, once: bool) -> Result<(), SyncError> {
    let mut client = OrchestrationServiceClient::new(target.connect().await?);
    let request = WatchBindingsRequest { parent: "tenants/-".into(), resume_revision: 0 };
    let mut events = client.watch_bindings(request).await?.into_inner();
    let mut phase = Phase::Initial(BTreeSet::new());
    while let Some(event) = events.message().await? {
        if let Some(binding) = &event.binding {
            let uuid = uuid_of(binding);
            if is_usable(&event, binding) {
                folder.put(binding)?;
                if let Phase::Initial(current) = &mut phase {
                    current.insert(uuid.to_ascii_lowercase());
                }
            } else {
                folder.remove(uuid)?;
            }
        } else if let Phase::Initial(current) = &phase {
            for uuid in folder.uuids()?.difference(current) {
                folder.remove(uuid)?;
            }
            if once {
                return Ok(());
            }
            phase = Phase::Following;
        }
    }
    Err(SyncError::Ended)
}
