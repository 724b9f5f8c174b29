//! Work that may wait for a card, and the error for a DAG that is in no state for it.

use snic_api::error::ApiError;
use snic_api::v1::ErrorReason;
use snic_domain::DagName;
use snic_front::error::shutting_down;

/// Runs work that may wait for a card.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    // It fails only where the work panicked or the runtime stops.
    tokio::task::spawn_blocking(work).await.map_err(|_| shutting_down())
}

pub(super) fn invalid_state(name: &DagName, text: &str) -> ApiError {
    ApiError::new(ErrorReason::InvalidState, text).precondition("STATE", name, text)
}
