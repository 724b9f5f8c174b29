//! Source of the page: implemented by the server on top of its services.

use std::pin::Pin;
use std::time::Duration;

use snic_api::v1;
use tokio_stream::Stream;
use tonic::Status;

/// A resource that the page shows as it changes.
#[derive(Debug, Clone, PartialEq)]
pub enum PageResource {
    Region(v1::Region),
    Dag(Box<v1::Dag>),
    Event(v1::Event),
}

/// Usage of a tenant, and how its promises were kept.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantAccount {
    /// Usage of the last day.
    pub day: v1::UsageEntry,
    /// Availability of its promises in the last 30 days.
    pub slo: v1::GetSloResponse,
    /// The tenant, with its budget and money spent of it.
    pub tenant: v1::Tenant,
}

/// One step of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum PageChange {
    /// The resource exists, and looks like this.
    Updated(PageResource),
    /// The resource is gone; this is how it last looked.
    Deleted(PageResource),
    /// All resources that existed when the watch began have been sent.
    InitialStateSent,
}

/// A watch: what exists, then each change. It ends with an error when the reader is too slow or the
/// server stops.
pub type Changes<T = PageChange> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The page's view of the control plane, with the rights of an operator.
pub trait PageSource: Clone + Send + Sync + 'static {
    /// Interval between reads of cards and shares, which cannot be watched.
    const POLL: Duration = Duration::from_millis(500);

    /// Watches regions, DAGs and the last `events_max` events.
    ///
    /// # Errors
    /// The control plane has ended, or cannot be reached.
    fn watch(&self, events_max: usize) -> impl Future<Output = Result<Changes, Status>> + Send;

    /// All cards, of which no watch tells.
    ///
    /// # Errors
    /// The control plane does not answer.
    fn cards(&self) -> impl Future<Output = Result<Vec<v1::Card>, Status>> + Send;

    /// All tenants' shares of all cards, of which no watch tells.
    ///
    /// # Errors
    /// The control plane does not answer.
    fn fairness(&self) -> impl Future<Output = Result<Vec<v1::Fairness>, Status>> + Send;

    /// Why a DAG is mapped as it is.
    ///
    /// # Errors
    /// NOT_FOUND, INVALID_ARGUMENT for a malformed name.
    fn explanation(
        &self,
        dag: String,
    ) -> impl Future<Output = Result<v1::Explanation, Status>> + Send;

    /// Why a DAG is as fast as it is.
    ///
    /// # Errors
    /// NOT_FOUND, INVALID_ARGUMENT for a malformed name.
    fn diagnosis(&self, dag: String) -> impl Future<Output = Result<v1::Diagnosis, Status>> + Send;

    /// A tenant's shares of each card, with their history.
    ///
    /// # Errors
    /// NOT_FOUND, INVALID_ARGUMENT for a malformed name.
    fn history(
        &self,
        tenant: String,
    ) -> impl Future<Output = Result<Vec<v1::Fairness>, Status>> + Send;

    /// Usage of a tenant, and how its promises were kept.
    ///
    /// # Errors
    /// NOT_FOUND, INVALID_ARGUMENT for a malformed name.
    fn account(&self, tenant: String)
    -> impl Future<Output = Result<TenantAccount, Status>> + Send;
}
