//! NT types of the fleet.

use snic_api::convert::{name, nt_type};
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::network_task_service_server::NetworkTaskService;
use snic_domain::{NtType, NtTypeId};
use snic_fleet::protocol::{FleetCommand, FleetItem, FleetList, FleetName, FleetReply};
use snic_fleet::records::{FleetNtRecord, RecordMeta};
use snic_front::fields::{etag, repeat_of};
use snic_front::gate::caller;
use snic_front::listing;
use tonic::{Request, Response};

use super::watching::{Event, Events, WatchSpec, read};
use super::{RpcResult, Services, unexpected};
use crate::wire;

fn of_item(item: FleetItem) -> Result<(NtType, RecordMeta), ApiError> {
    match item {
        FleetItem::Nt(nt, meta) => Ok((nt, meta)),
        other => Err(unexpected(&FleetReply::Item(Box::new(other)))),
    }
}

#[tonic::async_trait]
impl NetworkTaskService for Services {
    async fn create_nt_type(
        &self,
        request: Request<v1::CreateNtTypeRequest>,
    ) -> RpcResult<v1::CreateNtTypeResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let nt = nt_type::nt_type(&request.nt_type_id, request.nt_type.as_ref())?;
        let repeat = repeat_of(&request.request_id)?;
        let name = FleetName::Nt(nt.id.clone());
        if request.validate_only {
            self.propose(&caller, None, true, FleetCommand::CreateNt(nt)).await?;
            return Ok(Response::new(Default::default()));
        }
        let made = self.made(&caller, repeat, name, FleetCommand::CreateNt(nt)).await?;
        let (nt, meta) = of_item(made)?;
        Ok(Response::new(wire::nt_type(&nt, &meta).into()))
    }

    async fn get_nt_type(
        &self,
        request: Request<v1::GetNtTypeRequest>,
    ) -> RpcResult<v1::GetNtTypeResponse> {
        let caller = caller(&request)?;
        let id = name::nt_type("name", &request.into_inner().name).map_err(ApiError::from)?;
        let (nt, meta) = of_item(self.item(&caller, FleetName::Nt(id)).await?)?;
        Ok(Response::new(wire::nt_type(&nt, &meta).into()))
    }

    async fn list_nt_types(
        &self,
        request: Request<v1::ListNtTypesRequest>,
    ) -> RpcResult<v1::ListNtTypesResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let listing = listing!(v1::NtType, Query::of("ListNtTypes"), request)?;
        let name = |key: &str| NtTypeId::new(key).ok().map(FleetName::Nt);
        let item = |item| {
            let (nt, meta) = of_item(item).ok()?;
            Some((nt.id.to_string(), wire::nt_type(&nt, &meta)))
        };
        let (page, revision) = self.page(&caller, (&listing, FleetList::Nts), name, item).await?;
        Ok(Response::new(v1::ListNtTypesResponse {
            nt_types: page.items,
            next_page_token: page.next_page_token,
            revision,
        }))
    }

    async fn delete_nt_type(
        &self,
        request: Request<v1::DeleteNtTypeRequest>,
    ) -> RpcResult<v1::DeleteNtTypeResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = name::nt_type("name", &request.name).map_err(ApiError::from)?;
        let (name, etag) = (FleetName::Nt(id), etag(&request.etag));
        let command = FleetCommand::Delete { name, etag, force: false };
        let repeat = repeat_of(&request.request_id)?;
        self.delete(&caller, repeat, request.allow_missing, command).await?;
        Ok(Response::new(v1::DeleteNtTypeResponse {}))
    }

    type WatchNtTypesStream = Events<v1::WatchNtTypesResponse>;

    async fn watch_nt_types(
        &self,
        request: Request<v1::WatchNtTypesRequest>,
    ) -> RpcResult<Self::WatchNtTypesStream> {
        let caller = caller(&request)?;
        let resume = request.into_inner().resume_revision;
        let tenant = caller.tenant().cloned();
        let reader = tenant.clone();
        let event = move |event: Event<'_>, revision| {
            let nt_type = match &event {
                Event::Bookmark => None,
                Event::Seen(_, record) => {
                    let FleetNtRecord { nt, meta } = read(record)?;
                    let is_seen = reader.as_ref().is_none_or(|reader| nt.is_visible_to(reader));
                    Some(is_seen.then(|| wire::nt_type(&nt, &meta))?)
                }
                Event::Gone { name, was_seen } => {
                    let id = NtTypeId::new(name).ok()?;
                    let is_seen =
                        *was_seen || reader.as_ref().is_none_or(|reader| id.is_owned_by(reader));
                    is_seen.then_some(())?;
                    Some(v1::NtType { name: name::of_nt_type(&id), ..Default::default() })
                }
            };
            Some(v1::WatchNtTypesResponse { r#type: event.kind(), nt_type, revision })
        };
        let spec = WatchSpec { kind: "nt-types/", tenant, is_of_tenant: false, event };
        Ok(Response::new(self.watch(spec, resume).await?))
    }
}
