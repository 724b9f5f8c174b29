//! Messages to the controller's thread.

use snic_controller::{BatchNo, ControlError, Controller, Event, Reply, Request};
use snic_domain::{Digest, TenantId};
use snic_ports::store::StoreError;
use snic_telemetry::trace::Trace;
use tokio::sync::oneshot;

/// Answers a read. Run once all that shows in the reader's reads is durable.
pub(super) type DeferredReply = Box<dyn FnOnce() + Send>;

/// A read of the state; its answer waits until the state that it saw is durable.
pub(super) type Query = Box<dyn FnOnce(&Controller) -> DeferredReply + Send>;

/// Messages to the thread.
pub(super) enum Message {
    Request(Box<Request>, oneshot::Sender<Result<Reply, ControlError>>, Trace),
    /// A read of a tenant, or of somebody who sees everything.
    Read(Query, Option<TenantId>),
    Event(Event),
    /// The batch with this number is durable, or the store failed.
    Durable(BatchNo, Result<(), StoreError>),
    DropIfUnused(Digest),
    Stop,
}
