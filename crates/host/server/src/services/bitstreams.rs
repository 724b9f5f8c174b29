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
use snic_controller::{BitstreamView, Command, Controller, Reply, ResourceKind};
use snic_domain::{Bitstream, BitstreamId, Caller, NtType, NtTypeId, TenantId};
use snic_front::gate::{caller, passage};
use snic_front::share::{CallerFlow, CallerLevel};
use snic_front::uploads::{self, Upload};
use tonic::{Request, Response, Streaming};

use super::watching::{Event, Events, WatchSpec};
use super::{
    MissingPolicy, RpcResult, Services, absent, check_owner, consolidation, etag, listing,
    repeat_of, reply_as, request_id,
};
use crate::error::{OperationKind, failure};
use crate::hub::Topic;
use crate::wire;

#[tonic::async_trait]
impl BitstreamService for Services {
    async fn upload_bitstream(
        &self,
        request: Request<Streaming<v1::UploadBitstreamRequest>>,
    ) -> RpcResult<v1::UploadBitstreamResponse> {
        let caller = caller(&request)?;
        let passage = passage(&request)?;
        let place = self.0.uploads.enter(CallerLevel::of(&caller), CallerFlow::from(&caller))?;
        let mut stream = request.into_inner();
        let header = uploads::header(&mut stream).await?;
        passage.decide_asked(&header)?;
        let mut declared = bitstream::bitstream(&header)?;
        let repeat = request_id("header.request_id", &header.request_id).map_err(ApiError::from)?;
        let is_dry = header.validate_only;
        let nts = self.usable_nts(&caller, &declared).await?;
        let bytes = uploads::collect(&mut stream, &declared).await?;
        let (validator, of) = (self.0.upload_check.clone(), declared.clone());
        // The bytes are there until the work ends, and so is their place.
        let checked = self.0.workshop.run(&caller, move || {
            let signature = &header.signature;
            let upload = Upload { bytes: &bytes, declared: &of, nts: &nts, signature };
            (uploads::check(&validator, upload), bytes, place)
        });
        let (findings, bytes, place) = checked.await?;
        findings?.complete(&mut declared);
        if is_dry {
            self.check(&caller, Command::CreateBitstream(declared)).await?;
            return Ok(Response::new(Default::default()));
        }
        // In a separate task, so that it completes even if the caller disconnects.
        let (plane, registrant) = (self.0.plane.clone(), caller.clone());
        let registered = tokio::spawn(async move {
            let _place = place;
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
        let image = match request.image_digest.as_str() {
            "" => None,
            text => Some(bitstream::digest("image_digest", text).map_err(ApiError::from)?),
        };
        let command = Command::DeleteBitstream { id: id.clone(), image, etag: etag(&request.etag) };
        let reply = match self.check_may_change_bitstream(&caller, &id, &request.name).await {
            Ok(()) => self.ask(&caller, repeat, command, OperationKind::Delete).await,
            Err(failure) => Err(failure),
        };
        let operation = MissingPolicy::from(request.allow_missing).or_begun(reply, &caller)?;
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

/// A bitstream as a reader sees it. The regions that hold it are not for tenants.
fn seen_by(view: &BitstreamView, reader: &Caller) -> v1::Bitstream {
    let mut shown = wire::bitstream(view);
    if reader.tenant().is_some() {
        shown.loaded_regions.clear();
    }
    shown
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
}
