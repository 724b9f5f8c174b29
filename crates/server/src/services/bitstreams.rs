//! Bitstreams, and their upload.
//!
//! An upload is a header followed by bytes. The header is validated before any byte is accepted, the
//! buffer never exceeds the declared size, and nothing is stored before the last byte has arrived and
//! every check has passed. An interrupted upload leaves nothing behind.

use snic_api::convert::{bitstream, name};
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::bitstream_service_server::BitstreamService;
use snic_api::v1::upload_bitstream_request::Part;
use snic_controller::{BitstreamView, Caller, Command, Controller, Reply, ResourceKind};
use snic_domain::{Bitstream, BitstreamId, Digest, NtType, NtTypeId, TenantId};
use tonic::{Request, Response, Status, Streaming};

use super::watching::{Event, Events, WatchSpec};
use super::{
    Missing, RpcResult, Services, absent, check_owner, consolidation, etag, listing, repeat_of,
    reply_as, request_id,
};
use crate::error::{OperationKind, failure};
use crate::gate::{caller, of_transport, passage};
use crate::hub::Topic;
use crate::settings::Upload;
use crate::share::{Flow, Level, overloaded};
use crate::wire;

/// Most bytes of a chunk.
pub(crate) const CHUNK_BYTES_MAX: usize = 1 << 20;

#[tonic::async_trait]
impl BitstreamService for Services {
    async fn upload_bitstream(
        &self,
        request: Request<Streaming<v1::UploadBitstreamRequest>>,
    ) -> RpcResult<v1::UploadBitstreamResponse> {
        let caller = caller(&request)?;
        let passage = passage(&request)?;
        let _place = self.0.uploads.enter(Level::of(&caller), Flow::from(&caller))?;
        let mut stream = request.into_inner();
        let header = header(&mut stream).await?;
        passage.decide_asked(&header)?;
        let mut declared = bitstream::bitstream(&header)?;
        let repeat = request_id("header.request_id", &header.request_id).map_err(ApiError::from)?;
        let nts = self.usable_nts(&caller, &declared).await?;
        let bytes = collect(&mut stream, &declared).await?;
        let (bytes, signed_by) = self.check(bytes, &declared, nts, header.signature).await?;
        declared.signed_by = signed_by;
        // In a separate task, so that it completes even if the caller disconnects.
        let (plane, registrant) = (self.0.plane.clone(), caller.clone());
        let registered = tokio::spawn(async move {
            plane.register_bitstream(registrant, repeat, declared, bytes).await
        });
        let reply = match registered.await {
            Ok(result) => result.map_err(|error| failure(error, OperationKind::Upload, &caller))?,
            Err(_) => return Err(ApiError::internal("upload").into()),
        };
        reply_as!(reply, Reply::Bitstream(view) => Response::new(wire::bitstream(&view).into()))
    }

    async fn get_bitstream(
        &self,
        request: Request<v1::GetBitstreamRequest>,
    ) -> RpcResult<v1::GetBitstreamResponse> {
        let caller = caller(&request)?;
        let name = request.into_inner().name;
        let id = name::bitstream("name", &name).map_err(ApiError::from)?;
        let view = self.read(&caller, move |controller, caller| controller.bitstream(caller, &id));
        let view = view.await?.ok_or_else(|| absent(&name))?;
        Ok(Response::new(wire::bitstream(&view).into()))
    }

    async fn retry_bitstream(
        &self,
        request: Request<v1::RetryBitstreamRequest>,
    ) -> RpcResult<v1::RetryBitstreamResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = name::bitstream("name", &request.name).map_err(ApiError::from)?;
        let repeat = repeat_of(&request.request_id)?;
        self.check_may_change_bitstream(&caller, &id, &request.name).await?;
        let command = Command::RetryBitstream { id, etag: etag(&request.etag) };
        let reply = self.ask(&caller, repeat, command, OperationKind::Change).await?;
        reply_as!(reply, Reply::Bitstream(view) => Response::new(wire::bitstream(&view).into()))
    }

    async fn recommend_bitstreams(
        &self,
        request: Request<v1::RecommendBitstreamsRequest>,
    ) -> RpcResult<v1::RecommendBitstreamsResponse> {
        let caller = caller(&request)?;
        let name = request.into_inner().card;
        let id = name::card("card", &name).map_err(ApiError::from)?;
        let wanted = id.clone();
        let read = self.read(&caller, move |controller, _| {
            controller.picture(&wanted).map(|picture| (picture, controller.dags_without_place()))
        });
        let (picture, waiting) =
            read.await?.map_err(|error| failure(error.into(), OperationKind::Change, &caller))?;
        let found = self.search(move || picture.recommendations(waiting)).await?;
        Ok(Response::new(consolidation::recommended(&id, found)))
    }

    async fn list_bitstreams(
        &self,
        request: Request<v1::ListBitstreamsRequest>,
    ) -> RpcResult<v1::ListBitstreamsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let listing = listing!(v1::Bitstream, Query::of("ListBitstreams"), request)?;
        let (page, revision) = self
            .page(
                &caller,
                &listing,
                move |controller, caller, after, limit| {
                    let after = after.and_then(|key| BitstreamId::new(key).ok());
                    let all = controller.bitstreams(caller);
                    let rest = all.skip_while(|view| Some(&view.bitstream.id) <= after.as_ref());
                    rest.take(limit).collect()
                },
                |view: &BitstreamView| (view.bitstream.id.to_string(), wire::bitstream(view)),
            )
            .await?;
        Ok(Response::new(v1::ListBitstreamsResponse {
            bitstreams: page.items,
            next_page_token: page.next_page_token,
            revision,
        }))
    }

    async fn delete_bitstream(
        &self,
        request: Request<v1::DeleteBitstreamRequest>,
    ) -> RpcResult<v1::DeleteBitstreamResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = name::bitstream("name", &request.name).map_err(ApiError::from)?;
        let repeat = repeat_of(&request.request_id)?;
        let command = Command::DeleteBitstream { id: id.clone(), etag: etag(&request.etag) };
        let reply = match self.check_may_change_bitstream(&caller, &id, &request.name).await {
            Ok(()) => self.ask(&caller, repeat, command, OperationKind::Delete).await,
            Err(failure) => Err(failure),
        };
        let operation = Missing::from(request.allow_missing).or_begun(reply, &caller)?;
        Ok(Response::new(v1::DeleteBitstreamResponse { operation }))
    }

    type WatchBitstreamsStream = Events<v1::WatchBitstreamsResponse>;

    async fn watch_bitstreams(
        &self,
        request: Request<v1::WatchBitstreamsRequest>,
    ) -> RpcResult<Self::WatchBitstreamsStream> {
        let caller = caller(&request)?;
        let resume = request.into_inner().resume_revision;
        let topic = Topic::Resources(ResourceKind::Bitstream, caller.tenant().cloned());
        let reader = caller.clone();
        let piece =
            |controller: &Controller, caller: &Caller, after: Option<&BitstreamView>, most| {
                let after = after.map(|view| &view.bitstream.id);
                let all = controller.bitstreams(caller);
                all.skip_while(|view| Some(&view.bitstream.id) <= after).take(most).collect()
            };
        let event = move |event: Event<'_, BitstreamView>| v1::WatchBitstreamsResponse {
            r#type: event.kind().into(),
            bitstream: event.message(
                |view| seen_by(view, &reader),
                |name| v1::Bitstream { name, ..Default::default() },
            ),
            revision: event.revision,
        };
        let subject = WatchSpec { topic, caller, piece, event };
        Ok(Response::new(self.watch(subject, resume).await?))
    }
}

impl Services {
    async fn check_may_change_bitstream(
        &self,
        caller: &Caller,
        id: &BitstreamId,
        name: &str,
    ) -> Result<(), ApiError> {
        let owner = id.owner();
        if caller.may_change(owner.as_ref()) {
            return Ok(());
        }
        let wanted = id.clone();
        let view =
            self.read(caller, move |controller, caller| controller.bitstream(caller, &wanted));
        let readable = view.await?.is_some();
        check_owner(caller, owner.as_ref(), name, readable)
    }
}

/// Which regions hold a bitstream is not for tenants.
fn seen_by(view: &BitstreamView, reader: &Caller) -> v1::Bitstream {
    let mut shown = wire::bitstream(view);
    if reader.tenant().is_some() {
        shown.loaded_regions.clear();
    }
    shown
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

async fn header(
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
    let text = format!("{} bytes declared, but {what}", declared.size.get());
    ApiError::in_field(ErrorReason::SizeMismatch, "header.size_bytes", text)
}

/// Collects exactly the declared number of bytes.
async fn collect(
    stream: &mut Streaming<v1::UploadBitstreamRequest>,
    declared: &Bitstream,
) -> Result<Vec<u8>, Status> {
    let size = usize::try_from(declared.size.get()).unwrap_or(usize::MAX);
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

impl Services {
    /// The declared NT types. Unknown ones, and those that the owner may not use, are errors; so is an
    /// owner that the caller may not upload for.
    async fn usable_nts(
        &self,
        caller: &Caller,
        declared: &Bitstream,
    ) -> Result<Vec<NtType>, ApiError> {
        let owner: Option<TenantId> = declared.id.owner();
        if !caller.may_change(owner.as_ref()) {
            let tenant = caller.tenant().map(ToString::to_string).unwrap_or_default();
            let rule = format!("a tenant's bitstream id must begin with \"{tenant}.\"");
            return Err(ApiError::in_field(ErrorReason::InvalidField, "header.bitstream_id", rule));
        }
        let wanted: Vec<NtTypeId> = declared.nts.clone();
        let found = self
            .read(caller, move |controller, caller| {
                // An operator that uploads for a tenant may use what the tenant may use.
                let user = owner.map_or_else(|| caller.clone(), Caller::Tenant);
                let of = |id: &NtTypeId| controller.nt_type(&user, id).map(|view| view.nt);
                wanted.iter().map(|id| (id.clone(), of(id))).collect::<Vec<_>>()
            })
            .await?;
        let unknown = |(index, (id, _)): (usize, &(NtTypeId, Option<NtType>))| {
            let what = format!("ntTypes/{id} does not exist; register it first");
            (format!("header.nts[{index}]"), what)
        };
        let missing = found.iter().enumerate().filter(|(_, (_, nt))| nt.is_none());
        let mut missing = missing.map(unknown);
        if let Some((field, what)) = missing.next() {
            let first = ApiError::in_field(ErrorReason::UnknownNtType, &field, what);
            return Err(missing.fold(first, |failure, (field, what)| failure.field(&field, what)));
        }
        Ok(found.into_iter().filter_map(|(_, nt)| nt).collect())
    }

    /// Checks the bytes against the declaration, on a blocking thread.
    async fn check(
        &self,
        bytes: Vec<u8>,
        declared: &Bitstream,
        nts: Vec<NtType>,
        signature: Vec<u8>,
    ) -> Result<(Vec<u8>, Option<Box<str>>), ApiError> {
        let (declared, validator) = (declared.clone(), self.0.upload_check.clone());
        let checked = tokio::task::spawn_blocking(move || {
            check_digest(&bytes, &declared)?;
            let upload =
                Upload { bytes: &bytes, declared: &declared, nts: &nts, signature: &signature };
            let signed_by = validator.validate(upload).map_err(|problem| {
                let field = match problem.field.as_str() {
                    "chunk" => problem.field,
                    field => format!("header.{field}"),
                };
                ApiError::in_field(ErrorReason::ManifestMismatch, &field, problem.what)
            })?;
            Ok((bytes, signed_by))
        });
        checked.await.unwrap_or_else(|_| Err(ApiError::internal("upload check")))
    }
}

fn check_digest(bytes: &[u8], declared: &Bitstream) -> Result<(), ApiError> {
    let actual = Digest::of(bytes);
    if actual == declared.digest {
        return Ok(());
    }
    let text = format!("declared digest is {}, actual digest is {actual}", declared.digest);
    Err(ApiError::in_field(ErrorReason::DigestMismatch, "header.digest", text))
}
