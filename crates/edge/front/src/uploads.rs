//! Uploads of bitstreams: the stream, and the check of what arrived.
//!
//! An upload is a header followed by bytes. The buffer never exceeds the declared size.

use std::fmt;
use std::sync::Arc;

use snic_api::error::ApiError;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::upload_bitstream_request::Part;
use snic_bitstream::catalogue::{CheckedImage, UploadRules};
use snic_domain::{Bitstream, Digest, NtType, RegionId, Signer, Slot};
use tonic::{Status, Streaming};

use crate::error::overloaded;
use crate::gate::of_transport;

/// Most bytes of a chunk.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// An upload whose size, digest and NT types have been checked.
#[derive(Debug, Clone, Copy)]
pub struct Upload<'a> {
    pub bytes: &'a [u8],
    pub declared: &'a Bitstream,
    /// The declared NT types, in order.
    pub nts: &'a [NtType],
    /// The signature; may be empty.
    pub signature: &'a [u8],
}

/// Why an upload is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadProblem {
    /// The header field that contradicts the bytes, such as `nts[1]`; `chunk` where the bytes themselves
    /// are invalid.
    pub field: String,
    /// The fault, and advice.
    pub what: String,
}

/// Findings in the bytes of an upload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadFindings {
    /// The trusted key that signed them, if one did.
    pub signed_by: Option<Signer>,
    /// The regions whose frames they have. Empty: every region of the declared kind.
    pub regions: Vec<RegionId>,
    /// The slots that have a WebAssembly module.
    pub modules: Vec<Slot>,
}

/// Function of an [`UploadCheck`].
type UploadValidator = dyn Fn(Upload<'_>) -> Result<UploadFindings, UploadProblem> + Send + Sync;

/// Validates an upload's bytes against their declaration, and returns what they say.
#[derive(Clone)]
pub struct UploadCheck(Arc<UploadValidator>);

impl UploadCheck {
    /// From a function. It may take a while: it runs on a thread of a workshop.
    pub fn new(
        validate: impl Fn(Upload<'_>) -> Result<UploadFindings, UploadProblem> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(validate))
    }

    /// Checks uploads by the keys whose signatures count, and by the profiles of cards with their floor plans.
    pub fn by_rules(rules: UploadRules) -> Self {
        Self::new(move |upload: Upload<'_>| {
            let checked = rules.check(upload.bytes, upload.signature, upload.declared, upload.nts);
            checked
                .map(|CheckedImage { signed_by, regions, modules }| UploadFindings {
                    signed_by,
                    regions,
                    modules,
                })
                .map_err(|error| UploadProblem { field: error.field(), what: error.to_string() })
        })
    }

    /// Validates an upload.
    fn validate(&self, upload: Upload<'_>) -> Result<UploadFindings, UploadProblem> {
        (self.0)(upload)
    }
}

impl fmt::Debug for UploadCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UploadCheck")
    }
}

fn invalid_stream(what: &str) -> ApiError {
    ApiError::new(ErrorReason::InvalidStream, what)
}

/// The next part; `None` at the end.
async fn next(stream: &mut Streaming<v1::UploadBitstreamRequest>) -> Result<Option<Part>, Status> {
    let message = stream.message().await.map_err(|status| {
        let known = of_transport(&status, CHUNK_BYTES_MAX);
        known.map_or(status, Status::from)
    })?;
    match message {
        None => Ok(None),
        Some(message) => match message.part {
            Some(part) => Ok(Some(part)),
            None => {
                Err(invalid_stream("a message has neither a header nor a chunk; set one of them")
                    .into())
            }
        },
    }
}

/// The header, which comes first.
///
/// # Errors
/// Another part, or none, came first.
pub async fn header(
    stream: &mut Streaming<v1::UploadBitstreamRequest>,
) -> Result<v1::BitstreamHeader, Status> {
    match next(stream).await? {
        Some(Part::Header(header)) => Ok(header),
        Some(Part::Chunk(_)) => {
            Err(invalid_stream("the first message is a chunk; send the header first").into())
        }
        None => Err(invalid_stream(
            "the stream ended before the header; send the header, then the chunks",
        )
        .into()),
    }
}

fn size_mismatch(declared: &Bitstream, what: &str) -> ApiError {
    let text = format!("{} bytes declared, but {what}", declared.images.size().get());
    ApiError::in_field(ErrorReason::SizeMismatch, "header.size_bytes", text)
}

/// Collects exactly the declared number of bytes.
///
/// # Errors
/// The stream has more or fewer, or a chunk is invalid.
pub async fn collect(
    stream: &mut Streaming<v1::UploadBitstreamRequest>,
    declared: &Bitstream,
) -> Result<Vec<u8>, Status> {
    let size = usize::try_from(declared.images.first().size.get()).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| {
        let text = format!("no memory for an upload of {size} bytes; try again later");
        overloaded(text, size)
    })?;
    while let Some(part) = next(stream).await? {
        let chunk = match part {
            Part::Chunk(chunk) => chunk,
            Part::Header(_) => {
                return Err(
                    invalid_stream("second header; send the header once, then chunks").into()
                );
            }
        };
        if chunk.is_empty() {
            return Err(invalid_stream("empty chunk (allowed: 1 byte to 1 MiB)").into());
        }
        if chunk.len() > CHUNK_BYTES_MAX {
            let text = format!("chunk of {} bytes is too large (limit: 1 MiB)", chunk.len());
            return Err(ApiError::new(ErrorReason::LimitExceeded, &text)
                .violation("chunk", text)
                .into());
        }
        if chunk.len() > size - bytes.len() {
            return Err(size_mismatch(declared, "more were sent").into());
        }
        bytes.extend_from_slice(&chunk);
    }
    if bytes.len() < size {
        let what = format!("the stream ended after {}", bytes.len());
        return Err(size_mismatch(declared, &what).into());
    }
    Ok(bytes)
}

/// Checks the bytes against their digest and declaration; gives what they say. It takes up to 0.1 s, so
/// it is work for a [`Workshop`](crate::workshop::Workshop).
///
/// # Errors
/// A field that contradicts the bytes.
pub fn check(validator: &UploadCheck, upload: Upload<'_>) -> Result<UploadFindings, ApiError> {
    check_digest(upload.bytes, upload.declared)?;
    validator.validate(upload).map_err(|problem| {
        let field = match problem.field.as_str() {
            "chunk" => problem.field,
            field => format!("header.{field}"),
        };
        ApiError::in_field(ErrorReason::ManifestMismatch, &field, problem.what)
    })
}

impl UploadFindings {
    /// Notes what was found in what was declared.
    pub fn complete(self, declared: &mut Bitstream) {
        declared.signed_by = self.signed_by;
        declared.modules = self.modules;
        if !self.regions.is_empty() {
            declared.images.first_mut().regions = self.regions;
        }
    }
}

fn check_digest(bytes: &[u8], declared: &Bitstream) -> Result<(), ApiError> {
    let actual = Digest::of(bytes);
    let declared = declared.images.first().digest;
    if actual == declared {
        return Ok(());
    }
    let text = format!("declared digest is {declared}, actual digest is {actual}");
    Err(ApiError::in_field(ErrorReason::DigestMismatch, "header.digest", text))
}
