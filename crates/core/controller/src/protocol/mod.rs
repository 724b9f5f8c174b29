//! The controller's alphabet: events in, effects out, and what both are made of. Data only.

pub(crate) mod etag;

mod arrangement;
mod assignment;
mod batch;
mod binding;
mod command;
mod device;
mod effect;
mod error;
mod event;
mod latency;
mod log;
mod operation;
mod policy;
mod reply;
mod resource;
mod traffic;
mod usage;
mod view;

pub use arrangement::Arrangement;
pub(crate) use arrangement::PlannedMove;
pub use assignment::{
    AppliedPlace, AssignedCard, AssignedDag, AssignmentProgress, DagAssignment, FleetChange,
    Provision, ProvisionName,
};
pub(crate) use batch::{Admission, Choice, Preemption, SearchNo};
pub use batch::{BatchPlan, DagBatch, NewDag, RoomWait};
pub use binding::{BindingRecord, BindingView, BoundDag};
pub use command::{CallId, Command, Request};
pub use device::{DeviceAspect, DeviceCondition, DeviceView};
pub use effect::{Change, Effect};
pub use error::{ControlError, FieldViolation};
pub use event::Event;
pub use latency::{LatencyQuantiles, MeasuredLatencies, MeasuredLatency, MeasuredPart};
pub use log::{LogEntry, LogKind};
pub use operation::{DagMoves, OperationRecord, OperationWork};
pub use policy::{
    AdmissionPolicy, CardOrder, ConsolidationSettings, ControllerSettings, DevicePolicy, EPOCH_MAX,
    EPOCH_MIN, Fairness, IdleTaskPolicy, PlacementPolicy, Scheduling, Scheme,
};
pub use reply::Reply;
pub use resource::{ResourceKey, ResourceKind};
pub(crate) use snic_domain::Caller;
pub use snic_domain::{BudgetAction, BudgetLevel, BudgetPolicy};
pub use traffic::{DagTraffic, TrafficWindow};
pub(crate) use traffic::{part_of, rate};
pub use usage::{UsageAccount, UsageView};
pub use view::{
    BitstreamAdvice, BitstreamRejection, BitstreamView, CardHealth, CardLoss, CardView,
    ConsolidationView, DagView, MoveView, NtView, OperationView, RecommendationView, RegionUser,
    RegionView, RuleView, SlotView, StatePlace, StateView, TenantSpending, TenantUsage, TenantView,
};
