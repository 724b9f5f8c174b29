//! etcd as the fleet's store: what is asked of it as values ([`snic_etcd`]) is carried out on real members.
//!
//! ```text
//!  Request ──► EtcdConnection ──► one member at a time; another one after a failure
//!  Watch   ──► Watching       ──► goes on where it was after a failure
//!  Term    ◄── Campaign       ──► an election among replicas
//!  Batch   ──► EtcdStore      ──► records in etcd, blobs in an object store
//! ```
//!
//! A failure is reported as what it means for the request: certainly not done ([`Failed::Unreachable`]), or open
//! ([`Failed::Unknown`]). What is open is not asked again here: only who sent it knows whether it may be.
//!
//! [`Failed::Unreachable`]: snic_etcd::Failed::Unreachable
//! [`Failed::Unknown`]: snic_etcd::Failed::Unknown

mod campaign;
mod connection;
mod failures;
mod keys;
mod member;
mod store;
mod watching;

pub use campaign::Campaign;
pub use connection::{EtcdConnection, EtcdSettings, MemberInfo, TlsFiles};
pub use store::{
    Blobs, BlobsUnusable, BucketSettings, EtcdStore, EtcdStoreSettings, bucket_of_blobs,
    folder_of_blobs,
};
pub use watching::Watching;
