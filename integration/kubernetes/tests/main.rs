//! The device plugin beside a kubelet, when bindings are lost, and in its manifest; the DRA driver with interfaces of Linux and in a
//! real cluster.

mod cluster;
mod interfaces;
mod kubelet;
mod lost_bindings;
mod manifests;
mod pods;
