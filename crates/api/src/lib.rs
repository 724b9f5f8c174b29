//! The gRPC API: code generated from proto/, conversions to domain types and back.
//!
//! Besides the generated code, what every client or server of the API needs in the same way:
//! names of resources, pages of lists, errors with their details, the map of regions.

pub mod connect;
pub mod convert;
pub mod error;
pub mod names;
pub mod page;
pub mod render;
pub mod trace_parent;

/// What the files in `proto/snic/control/v1` define: messages, clients and servers. Its
/// documentation is the comments of those files.
#[allow(missing_docs, unused_qualifications, clippy::all, clippy::too_many_lines, rustdoc::all)]
pub mod v1 {
    tonic::include_proto!("snic.control.v1");
}

/// The files in `proto/` and the well-known ones they import, as an encoded
/// `google.protobuf.FileDescriptorSet`: for the reflection service.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
