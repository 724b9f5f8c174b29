//! The Card and Store ports, the card driver, and the conformance suites.
//!
//! A port is what the control plane needs from the outside, in its own terms; an adapter
//! (`card-sim`, `card-xrt`, `store-sled`) provides it and passes the conformance suite that
//! belongs to the port.
//!
//! One crate, because a port's conformance suite runs the driver, and the driver's tests run the suite's cards.

#![warn(clippy::missing_errors_doc)]

pub mod card;
pub mod device;
pub mod driver;
pub mod generator;
pub mod packets;
pub mod remote;
pub mod store;
