//! Fair time, once per epoch: the fluid limit of DRFQ as ingress rates (SuperNIC, 4.5).
//!
//! With space fixed, the flows share the time of every NT slot, the ingress, the egress and the packet
//! store. A DAG uses all of them in proportion to its ingress rate, so the ingress rates are the only
//! output.
//!
//! # Allocation rule
//!
//! 1. **Guaranteed rates.** Every flow (a DAG) gets min(load, admitted), which admission made
//!    feasible. If it is not feasible (a region was lost), the flows through the short resource share
//!    it as in step 2, and [`Rates::guaranteed`] is `false`; all other flows keep their guarantee.
//! 2. **Spare capacity**, by water-filling. A tenant's share is Σ over its flows of rate × the flow's
//!    *dominant cost*: the largest fraction of any resource that one bit per second takes, all instances of an NT being one resource. Shares
//!    rise in proportion to the weights; a tenant's flows progress together, in proportion to the
//!    load they still miss. A flow stops when its load is served or a resource it uses is full; the
//!    tenant's other flows then get its part of the tenant's growth. [`Spare`] selects where
//!    water-filling starts.
//!
//! The result is work-conserving: a flow below its load uses a full resource.
//!
//! # Several DAGs of one tenant
//!
//! A tenant is one flow of memoryless DRFQ, which charges each packet for its own dominant resource;
//! hence the sum. The sum depends on the total of similar DAGs, not on their number: splitting one
//! DAG into ten changes nothing.
//!
//! A tenant's loads determine how its growth is divided among its DAGs. If its DAGs have different
//! dominant costs, it can shift bits to the cheaper ones at the same share: its total in bits can
//! rise, by less than the ratio of the dominant costs. This takes nothing from other tenants. A tenant
//! with one DAG gains nothing by misreporting its load.

mod bottleneck;
mod demand;
mod fill;
mod network;
mod queue;
mod round;
mod solver;
mod state;

pub use demand::{Demand, Limit, Spare};
pub use network::{
    COSTS_MAX, Cost, FLOWS_MAX, FlowIndex, InvalidNetwork, Network, NetworkBuilder, RESOURCES_MAX,
    TENANTS_MAX, TenantIndex,
};
pub use solver::{Rates, Solver, WrongDemands};
