//! The device plugin beside a kubelet, when bindings are lost, and in its manifest; the DRA driver with interfaces of Linux and in a
//! real cluster, and the policy of its claims; the controller of DAGs with a real API server.

mod admission;
mod cluster;
mod dags;
mod interfaces;
mod kubelet;
mod kustomize;
mod lost_bindings;
mod manifests;
mod pods;
mod quotas;
mod throughput;
