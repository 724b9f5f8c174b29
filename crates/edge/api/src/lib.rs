//! The gRPC API: code generated from proto/, conversions to domain types and back.
//!
//! Besides the generated code, it has what every client or server of the API needs: resource names,
//! paging, filters, errors with details, the text map of a card's regions, the check of certificate files, the escapes for text of others.

#![warn(clippy::missing_errors_doc)]

pub mod certificates;
pub mod connect;
pub mod convert;
pub mod error;
pub mod list;
pub mod methods;
pub mod names;
pub mod page;
pub mod render;
pub mod replies;
pub mod text;
pub mod trace_parent;
pub mod usage;
pub mod words;

/// Messages, clients and servers generated from `proto/snic/control/v1`, whose comments are their
/// documentation.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::too_many_lines,
    clippy::missing_errors_doc,
    rustdoc::all
)]
pub mod v1 {
    tonic::include_proto!("snic.control.v1");
}

/// Messages, clients and servers generated from `proto/snic/fleet/v1`, whose comments are their
/// documentation.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::too_many_lines,
    clippy::missing_errors_doc,
    rustdoc::all
)]
pub mod fleet_v1 {
    tonic::include_proto!("snic.fleet.v1");
}

/// The files of `snic.control.v1` and their imports as an encoded
/// `google.protobuf.FileDescriptorSet`, for the reflection service.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The same of `snic.fleet.v1`.
pub const FLEET_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/fleet.bin"));

/// The files of google.rpc, whose messages are in the details of errors: a client that reads the
/// descriptors from the server needs them to show the details.
pub use tonic_types::pb::FILE_DESCRIPTOR_SET as ERROR_DETAILS_DESCRIPTOR_SET;
