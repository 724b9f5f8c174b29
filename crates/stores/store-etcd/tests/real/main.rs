//! Against real etcd processes: what the model claims, what a connection survives, and images in a folder and a bucket. Each test
//! says so if etcd, or an S3 server, is missing on this machine, and is skipped then; the test command installs it.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

#[cfg(feature = "s3")]
mod bucket;
#[allow(dead_code, reason = "shared with the tests of fleets")]
mod cluster;
mod connection;
mod differential;
mod election;
mod folder;
mod limits;
mod members;
mod refusals;
#[cfg(feature = "s3")]
#[allow(dead_code, reason = "shared with the tests of replicas")]
mod s3;
mod tls;
