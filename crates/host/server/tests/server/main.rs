//! The server as its clients see it: real connections, real certificates, a store in memory and a
//! simulated card. Every wait has a time limit ([`rig::in_time`]), so a defect fails and never hangs.

mod access;
mod acting;
mod auditing;
mod authorization;
mod bad_dags;
mod bad_uploads;
mod batches;
mod certificates;
mod contract;
mod dags;
mod fairness;
mod limits;
mod listening;
mod logging;
mod matrix;
mod metering;
mod month;
mod neighbours;
mod operator;
mod orchestration;
mod overload;
mod paging;
mod raw;
mod repeats;
mod rig;
mod rules;
mod traffic;
mod traffic_run;
mod watching;
mod web;
