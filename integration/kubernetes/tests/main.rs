//! The device plugin beside a kubelet, when bindings are lost, and in its manifest.

mod kubelet;
mod lost_bindings;
mod manifests;
