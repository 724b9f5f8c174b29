//! Keeps the folder as the daemon's bindings are.
//!
//! While the daemon is down files stay as they are: what is bound stays bound. Once it is back, all
//! bindings are told again, and a file without a binding goes.

use std::collections::BTreeSet;

use snic_api::connect::{ConnectError, Target};
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use snic_api::v1::vm_binding::State;
use snic_api::v1::{EventType, VmBinding, VmBindingEvent, WatchBindingsRequest};
use tonic::Status;

use crate::{Folder, FolderError, uuid_of};

/// Why the folder is not kept any more.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The daemon does not answer.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The daemon refused, or ended the watch.
    #[error("the SmartNIC's daemon: {}", .0.message())]
    Watch(#[from] Status),
    /// It ended the watch without a word.
    #[error("the SmartNIC's daemon has ended the watch")]
    Ended,
    /// A file could not be written or removed.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

/// How far a watch is.
enum Phase {
    /// Bindings that have been told; files of others are not to stay.
    Telling(BTreeSet<String>),
    Following,
}

/// Whether a binding has devices that a container may use.
fn is_usable(event: &VmBindingEvent, binding: &VmBinding) -> bool {
    event.r#type() != EventType::Deleted
        && binding.state() == State::Bound
        && !binding.functions.is_empty()
}

/// Follows the bindings of all tenants; with `once`, until all that there are have been told.
///
/// # Errors
/// [`SyncError`]; to be called again.
pub async fn follow(target: &Target, folder: &Folder, once: bool) -> Result<(), SyncError> {
    let mut client = OrchestrationServiceClient::new(target.connect().await?);
    let request = WatchBindingsRequest { parent: "tenants/-".into(), resume_revision: 0 };
    let mut events = client.watch_bindings(request).await?.into_inner();
    let mut phase = Phase::Telling(BTreeSet::new());
    while let Some(event) = events.message().await? {
        if let Some(binding) = &event.binding {
            let uuid = uuid_of(binding);
            if is_usable(&event, binding) {
                folder.put(binding)?;
                if let Phase::Telling(told) = &mut phase {
                    told.insert(uuid.to_ascii_lowercase());
                }
            } else {
                folder.remove(uuid)?;
            }
        } else if let Phase::Telling(told) = &phase {
            for uuid in folder.uuids()?.difference(told) {
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
