//! etcd as the fleet's store: requests, which are values ([`snic_etcd`]), are carried out on real members. Images are in
//! an object store.
//!
//! ```text
//!  Request ──► EtcdConnection ──► one member at a time; another one after a failure
//!  Watch   ──► Watching       ──► goes on where it was after a failure
//!  Term    ◄── Campaign       ──► an election among replicas
//!  Digest  ──► Blobs          ──► objects in a folder, or in S3 with the feature `s3`
//! ```
//!
//! A failure is reported as what it means for the request: certainly not done ([`Failed::Unreachable`]), or open
//! ([`Failed::Unknown`]). What is open is not asked again here: only who sent it knows whether it may be.
//!
//! [`Failed::Unreachable`]: snic_etcd::Failed::Unreachable
//! [`Failed::Unknown`]: snic_etcd::Failed::Unknown

mod blobs;
#[cfg(feature = "s3")]
mod bucket;
mod campaign;
mod connection;
mod failures;
mod folder;
mod keys;
mod member;
mod object;
mod objects;
mod watching;

#[cfg(feature = "s3")]
pub use blobs::bucket_of_blobs;
pub use blobs::{Blobs, BlobsUnusable, folder_of_blobs};
#[cfg(feature = "s3")]
pub use bucket::BucketSettings;
pub use campaign::Campaign;
pub use connection::{EtcdConnection, EtcdSettings, MemberInfo, TlsFiles};
pub use objects::Objects;
pub use watching::EtcdWatchStream;
