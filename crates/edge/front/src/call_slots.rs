//! Permits for the calls of one connection.

use std::sync::Arc;

use crate::settings::Limits;

/// Permits for the calls of one connection.
pub(crate) type CallSlots = Arc<tokio::sync::Semaphore>;

/// The permits of a new connection.
pub(crate) fn call_slots(limits: &Limits) -> CallSlots {
    Arc::new(tokio::sync::Semaphore::new(limits.calls_per_connection_max))
}
