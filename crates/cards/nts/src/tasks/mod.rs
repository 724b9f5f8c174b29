//! The network tasks.

#[cfg(test)]
mod chains;
pub(crate) mod checksum;
pub(crate) mod ecn;
pub(crate) mod esp;
pub(crate) mod firewall;
pub(crate) mod fragments;
pub(crate) mod go_back_n;
pub(crate) mod icmp_errors;
pub(crate) mod kv_cache;
pub(crate) mod kv_replication;
pub(crate) mod load_balancer;
pub(crate) mod memcached;
pub(crate) mod nat;
pub(crate) mod path_mtu;
pub(crate) mod policer;
mod read_ip;
#[cfg(test)]
pub(crate) mod support;
pub(crate) mod tracking;
pub(crate) mod vxlan;
