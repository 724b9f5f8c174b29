//! Three replicas over a real etcd, with real TLS; hosts are agents without a daemon. Each test says so if etcd, or an
//! S3 server, is missing on this machine, and is skipped then; the test command installs it.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod access;
#[cfg(feature = "s3")]
mod buckets;
mod certificates;
mod checking;
#[allow(dead_code, reason = "shared with the tests of the connection to etcd")]
#[path = "../../../../stores/store-etcd/tests/real/cluster.rs"]
mod cluster;
mod gathering;
mod going_on;
mod host;
mod host_watching;
mod images;
#[path = "../../../../edge/api/tests/openssl/mod.rs"]
mod openssl;
mod operators;
mod policies;
mod refusing;
mod reservations;
mod rig;
#[cfg(feature = "s3")]
#[allow(dead_code, reason = "shared with the tests of the store")]
#[path = "../../../../stores/store-etcd/tests/real/s3.rs"]
mod s3;
mod tenants;
mod watching;
