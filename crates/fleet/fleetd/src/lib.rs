//! A replica of the fleet's service.
//!
//! ```text
//!  tenants, operators ──► front ──► services ──► Asking ──► leader: runner ──► etcd
//!                                                  └─ a follower passes the request on: ReplicaService
//!  hosts ──► HostLinkService ──► HostLinks ◄── orders ── runner
//!
//!  browsers ──► web ──► services, passing (what is on a host)
//!
//!  what only a host knows: front ──► passing ──► Asking ──► leader: HostCalls ──► the host's own services
//! ```
//!
//! A replica keeps nothing of its own but calls that it has counted and not stored yet: records are in etcd, images in an object
//! store, and what hosts report at the leader. Reads go through the leader, too.
//!
//! One crate, because services, links of hosts and watches all end in what is asked of the runner, or in what it has done:
//! a border would make these types public.

#![warn(clippy::missing_errors_doc)]

mod asking;
mod budget_looks;
mod budgets;
mod call_counting;
mod call_upkeep;
mod calls;
mod error;
mod explanation;
mod history;
mod images;
mod links;
mod metrics;
mod passing;
mod placement;
mod runner;
mod serve;
mod services;
mod setting_checks;
pub mod settings;
mod sweeper;
mod wire;

pub use budgets::BudgetSettings;
pub use metrics::MetricsPage;
pub use runner::{ELECTIONS, Elections, RunnerSettings};
pub use serve::{FleetBound, FleetServerSettings, bind};
pub use snic_api::methods::FLEET as METHODS;
pub use snic_fleet::records::PREFIX as RECORDS;
