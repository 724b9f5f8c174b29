//! Bitstreams of the fleet: the image goes to the object store by its digest, then the bitstream is registered.

use snic_api::convert::{bitstream, name};
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::bitstream_service_server::BitstreamService;
use snic_domain::{Bitstream, BitstreamId, Caller, NtType};
use snic_fleet::protocol::{FleetCommand, FleetItem, FleetList, FleetName, FleetReply};
use snic_fleet::records::{FleetBitstreamRecord, RecordMeta};
use snic_front::error::RETRY_SOON;
use snic_front::fields::{etag, repeat_of, request_id};
use snic_front::gate::{caller, passage};
use snic_front::listing;
use snic_front::share::{CallerFlow, CallerLevel};
use snic_front::uploads::{self, Upload};
use snic_ports::store::StoreError;
use tonic::{Request, Response, Streaming};

use super::watching::{Event, Events, WatchSpec, read};
use super::{RpcResult, Services, elsewhere, unexpected};
use crate::wire;

fn of_item(item: FleetItem) -> Result<(Bitstream, RecordMeta), ApiError> {
    match item {
        FleetItem::Bitstream(bitstream, meta) => Ok((bitstream, meta)),
        other => Err(unexpected(&FleetReply::Item(Box::new(other)))),
    }
}

#[tonic::async_trait]
impl BitstreamService for Services {
    async fn upload_bitstream(
        &self,
        request: Request<Streaming<v1::UploadBitstreamRequest>>,
    ) -> RpcResult<v1::UploadBitstreamResponse> {
        let caller = caller(&request)?;
        let passage = passage(&request)?;
        let flow = CallerFlow::from(&caller);
        let place = self.0.uploads.enter(CallerLevel::of(&caller), flow)?;
        let mut stream = request.into_inner();
        let header = uploads::header(&mut stream).await?;
        passage.decide_asked(&header)?;
        let mut declared = bitstream::bitstream(&header)?;
        let repeat = request_id("header.request_id", &header.request_id).map_err(ApiError::from)?;
        let is_dry = header.validate_only;
        let nts = self.nts_of(&caller, &declared).await?;
        let bytes = uploads::collect(&mut stream, &declared).await?;
        let (validator, of) = (self.0.parts.upload_check.clone(), declared.clone());
        // The bytes are there until the work ends, and so is their place.
        let checked = self.0.workshop.run(&caller, move || {
            let signature = &header.signature;
            let upload = Upload { bytes: &bytes, declared: &of, nts: &nts, signature };
            (uploads::check(&validator, upload), bytes, place)
        });
        let (findings, bytes, _place) = checked.await?;
        findings?.complete(&mut declared);
        self.check_allowed(&caller, repeat.is_some() && !is_dry, &declared).await?;
        if is_dry {
            return Ok(Response::new(Default::default()));
        }
        // Before it is registered: hosts fetch it as soon as it is.
        self.0
            .parts
            .images
            .put(declared.images.first().digest, &bytes)
            .await
            .map_err(cannot_store)?;
        let name = FleetName::Bitstream(declared.id.clone());
        let command = FleetCommand::CreateBitstream(declared);
        let (bitstream, meta) = of_item(self.made(&caller, repeat, name, command).await?)?;
        Ok(Response::new(wire::bitstream(&bitstream, &meta).into()))
    }

    async fn get_bitstream(
        &self,
        request: Request<v1::GetBitstreamRequest>,
    ) -> RpcResult<v1::GetBitstreamResponse> {
        let caller = caller(&request)?;
        let id = name::bitstream("name", &request.into_inner().name).map_err(ApiError::from)?;
        let (bitstream, meta) = of_item(self.item(&caller, FleetName::Bitstream(id)).await?)?;
        Ok(Response::new(wire::bitstream(&bitstream, &meta).into()))
    }

    async fn list_bitstreams(
        &self,
        request: Request<v1::ListBitstreamsRequest>,
    ) -> RpcResult<v1::ListBitstreamsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let listing = listing!(v1::Bitstream, Query::of("ListBitstreams"), request)?;
        let name = |key: &str| BitstreamId::new(key).ok().map(FleetName::Bitstream);
        let item = |item| {
            let (bitstream, meta) = of_item(item).ok()?;
            Some((bitstream.id.to_string(), wire::bitstream(&bitstream, &meta)))
        };
        let (page, revision) =
            self.page(&caller, (&listing, FleetList::Bitstreams), name, item).await?;
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
        if !request.image_digest.is_empty() {
            return Err(elsewhere("deletions of single images"));
        }
        let (name, etag) = (FleetName::Bitstream(id), etag(&request.etag));
        let command = FleetCommand::Delete { name, etag, force: false };
        let repeat = repeat_of(&request.request_id)?;
        self.delete(&caller, repeat, request.allow_missing, command).await?;
        Ok(Response::new(v1::DeleteBitstreamResponse { operation: None }))
    }

    async fn retry_bitstream(
        &self,
        _: Request<v1::RetryBitstreamRequest>,
    ) -> RpcResult<v1::RetryBitstreamResponse> {
        Err(elsewhere("retries of bitstreams"))
    }

    async fn recommend_bitstreams(
        &self,
        _: Request<v1::RecommendBitstreamsRequest>,
    ) -> RpcResult<v1::RecommendBitstreamsResponse> {
        Err(elsewhere("recommendations"))
    }

    type WatchBitstreamsStream = Events<v1::WatchBitstreamsResponse>;

    async fn watch_bitstreams(
        &self,
        request: Request<v1::WatchBitstreamsRequest>,
    ) -> RpcResult<Self::WatchBitstreamsStream> {
        let caller = caller(&request)?;
        let resume = request.into_inner().resume_revision;
        let tenant = caller.tenant().cloned();
        let reader = tenant.clone();
        let event = move |event: Event<'_>, revision| {
            let bitstream = match &event {
                Event::Bookmark => None,
                Event::Seen(_, record) => {
                    let FleetBitstreamRecord { bitstream: of, meta } = read(record)?;
                    let is_seen = reader.as_ref().is_none_or(|reader| of.is_loadable_by(reader));
                    Some(is_seen.then(|| wire::bitstream(&of, &meta))?)
                }
                Event::Gone { name, .. } => {
                    let id = BitstreamId::new(name).ok()?;
                    let owner = id.owner();
                    let is_other = owner.is_some() && reader.is_some() && owner != reader;
                    (!is_other).then_some(())?;
                    Some(v1::Bitstream { name: name::of_bitstream(&id), ..Default::default() })
                }
            };
            Some(v1::WatchBitstreamsResponse { r#type: event.kind(), bitstream, revision })
        };
        let spec = WatchSpec { kind: "bitstreams/", tenant, is_of_tenant: false, event };
        Ok(Response::new(self.watch(spec, resume).await?))
    }
}

fn cannot_store(error: StoreError) -> ApiError {
    tracing::error!(error = error.with_source(), "an image cannot be stored");
    let text = "the image cannot be stored at the moment, so nothing was changed; try again later";
    ApiError::new(ErrorReason::StoreUnavailable, text).retry_after(RETRY_SOON)
}

impl Services {
    /// Refuses what will not be registered, so that its image is not stored. A repeated request was perhaps carried out,
    /// which is seen by its number only; its image is there then.
    async fn check_allowed(
        &self,
        caller: &Caller,
        may_be_repeated: bool,
        declared: &Bitstream,
    ) -> Result<(), ApiError> {
        let command = FleetCommand::CreateBitstream(declared.clone());
        let Err(refusal) = self.propose(caller, None, true, command).await else { return Ok(()) };
        if !may_be_repeated {
            return Err(refusal);
        }
        match self
            .0
            .parts
            .images
            .images
            .stored_at(declared.images.first().digest)
            .await
            .map_err(cannot_store)?
        {
            Some(_) => Ok(()),
            None => Err(refusal),
        }
    }

    /// The declared NT types, as far as the caller may see them; all that are missing are named.
    async fn nts_of(&self, caller: &Caller, declared: &Bitstream) -> Result<Vec<NtType>, ApiError> {
        let owner = declared.id.owner();
        if !caller.may_change(owner.as_ref()) {
            let tenant = caller.tenant().map(ToString::to_string).unwrap_or_default();
            let rule = format!("a tenant's bitstream id must begin with \"{tenant}.\"");
            return Err(ApiError::in_field(ErrorReason::InvalidField, "header.bitstream_id", rule));
        }
        // An operator that uploads for a tenant may use what the tenant may use.
        let user = owner.map_or_else(|| caller.clone(), Caller::Tenant);
        let (mut found, mut wrong) = (Vec::new(), None::<ApiError>);
        for (index, id) in declared.nts.iter().enumerate() {
            match self.item(&user, FleetName::Nt(id.clone())).await {
                Ok(FleetItem::Nt(nt, _)) => found.push(nt),
                Ok(other) => return Err(unexpected(&FleetReply::Item(Box::new(other)))),
                Err(error) if error.reason() == ErrorReason::ResourceNotFound => {
                    let field = format!("header.nts[{index}]");
                    let what = format!("ntTypes/{id} does not exist; register it first");
                    wrong = Some(match wrong {
                        None => ApiError::in_field(ErrorReason::UnknownNtType, &field, what),
                        Some(error) => error.field(&field, what),
                    });
                }
                Err(error) => return Err(error),
            }
        }
        wrong.map_or(Ok(found), Err)
    }
}
