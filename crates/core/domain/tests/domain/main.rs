//! The values of the domain, as one program, so that what its tests share is compiled once.

mod dags;
mod limits;
mod packets;
mod places;
mod programs;
mod refusals;
mod rules;
mod stored;
mod values;
