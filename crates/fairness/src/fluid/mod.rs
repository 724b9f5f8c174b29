//! Fair time, once an epoch: the fluid limit of [`crate::drfq`] as ingress rates (SuperNIC, 4.5).
//!
//! With space fixed, every NT slot, the ingress, the egress and the packet store are time-shared by
//! intended load. A DAG's use of all of them is proportional to its ingress rate, so the ingress
//! rates are the only output.
//!
//! # Who gets what
//!
//! 1. **The promise.** Every flow (a DAG) gets min(load, admitted), which admission made feasible.
//!    Where it is not (a region is lost), flows through the resource that is short share it as in 2,
//!    and [`Rates::guaranteed`] says so; the others keep what they were promised.
//! 2. **The spare**, by water-filling. A tenant's share is Σ over its flows of rate × the flow's
//!    *dominant cost*: the largest fraction of any resource that one bit per second takes. Shares
//!    rise in proportion to the weights; a tenant's flows progress together, in proportion to the
//!    load they still miss. A flow stops when its load is served or a resource it uses is full; what
//!    it leaves of its tenant's growth goes to the tenant's other flows. [`Spare`] says where
//!    the water starts.
//!
//! Nothing is idle that somebody who waits could use: a flow below its load has a full resource.
//!
//! # Several DAGs of one tenant
//!
//! A tenant is one flow of memoryless DRFQ, whose packets are charged each for its own dominant
//! resource; hence the sum. It depends on the total of like DAGs, not on their number: splitting
//! one DAG into ten changes nothing.
//!
//! A tenant chooses by its loads how its growth is divided among its DAGs. One whose DAGs have
//! different dominant costs can so move bits to the cheaper ones, for the same share: its total in
//! bits, not in shares, can rise, by less than the ratio of the dominant costs. That is a choice
//! and not a gain from others; a tenant with one DAG gains nothing by any load it tells.

mod fill;
mod network;
mod queue;
pub mod reference;
mod round;
mod solver;
mod standing;
mod trunk;

pub use network::{
    COSTS_MAX, Cost, FLOWS_MAX, FlowIndex, InvalidNetwork, Network, NetworkBuilder, RESOURCES_MAX,
    TENANTS_MAX, TenantIndex,
};
pub use solver::{Demand, Limit, Rates, Solver, Spare, WrongDemands};
