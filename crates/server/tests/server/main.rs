//! The server as its clients meet it: real connections, real certificates, a store in memory and a
//! simulated card.

mod access;
mod auditing;
mod bad_dags;
mod bad_uploads;
mod dags;
mod limits;
mod listening;
mod logging;
mod operator;
mod orchestration;
mod raw;
mod rig;
mod watching;
mod web;
