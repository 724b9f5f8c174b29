//! Effects: replies, commands to cards, events for watchers.

use snic_domain::{CardId, DagName, DagUid, Digest, OperationId, RegionId, TenantId};
use snic_tables::CardCommand;

use super::binding::BindingView;
use super::command::CallId;
use super::error::ControlError;
use super::log::LogEntry;
use super::reply::Reply;
use super::resource::ResourceKey;
use super::view::DagView;

/// Something to be done once what it follows from is durable: see [`crate::Outbox`].
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Ask a card for a step.
    Card { card: CardId, command: CardCommand },
    /// Answer a request.
    Reply { call: CallId, result: Result<Reply, ControlError> },
    /// Tell those who watch.
    Emit(Change),
    /// Remove a bitstream's bytes that nothing names any more.
    DropBlob(Digest),
    /// Look for a better arrangement of a card, in `Controller::picture` and on another thread; the answer is
    /// `Event::Searched`.
    Search {
        card: CardId,
        /// The most regions that may be loaded for it.
        reconfigurations: u32,
    },
}

/// A change that can be watched: what is different, not how it is now. Who wants to know that reads
/// it, so that a change that nobody watches costs next to nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A DAG is new or different.
    Dag(DagName, DagUid),
    /// A DAG is gone: as it was.
    DagDeleted(Box<DagView>),
    /// A region is different.
    Region(CardId, RegionId),
    /// A binding is new or different: as it is then.
    Binding(Box<BindingView>),
    /// An ended binding is not remembered any more: as it was.
    BindingForgotten(Box<BindingView>),
    /// An operation ended.
    Operation(OperationId),
    /// A resource is new or different; of the kinds that have no change of their own here.
    Resource {
        name: ResourceKey,
        /// Owner; `None` for the provider and operators.
        tenant: Option<TenantId>,
        /// Whether it is new.
        is_new: bool,
    },
    /// A resource is gone; of the kinds that have no change of their own here.
    ResourceDeleted {
        name: ResourceKey,
        /// Owner; `None` for the provider and operators.
        tenant: Option<TenantId>,
    },
    /// A tenant was deleted with all that it owned.
    TenantDeleted(TenantId),
    /// The control plane decided something by itself.
    Logged(Box<LogEntry>),
}

impl Change {
    /// The resource that it is about, if it is one that can be watched.
    pub fn resource(&self) -> Option<ResourceKey> {
        match self {
            Self::Dag(name, _) => Some(ResourceKey::Dag(name.clone())),
            Self::DagDeleted(view) => Some(ResourceKey::Dag(view.name.clone())),
            Self::Region(card, region) => Some(ResourceKey::Region(card.clone(), *region)),
            Self::Binding(view) | Self::BindingForgotten(view) => {
                Some(ResourceKey::Binding(view.record.spec.vm.clone()))
            }
            Self::Resource { name, .. } | Self::ResourceDeleted { name, .. } => Some(name.clone()),
            Self::Operation(_) | Self::TenantDeleted(_) | Self::Logged(_) => None,
        }
    }
}
