//! The store: the suite of its port, what opens and what does not, and crashes.

mod conformance;
mod crash;
mod opening;
