//! Network task types.

use snic_api::convert::{name, nt_type};
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::network_task_service_server::NetworkTaskService;
use snic_controller::{Command, Controller, NtView, Reply, ResourceKind};
use snic_domain::{Caller, NtTypeId};
use snic_front::gate::caller;
use tonic::{Request, Response};

use super::watching::{Event, Events, WatchSpec};
use super::{
    MissingPolicy, RpcResult, Services, absent, check_owner, etag, listing, repeat_of, reply_as,
};
use crate::error::OperationKind;
use crate::hub::Topic;
use crate::wire;

#[tonic::async_trait]
impl NetworkTaskService for Services {
    async fn create_nt_type(
        &self,
        request: Request<v1::CreateNtTypeRequest>,
    ) -> RpcResult<v1::CreateNtTypeResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let nt = nt_type::nt_type(&request.nt_type_id, request.nt_type.as_ref())?;
        if request.validate_only {
            self.check(&caller, Command::CreateNtType(nt)).await?;
            return Ok(Response::new(Default::default()));
        }
        let repeat = repeat_of(&request.request_id)?;
        let reply =
            self.ask(&caller, repeat, Command::CreateNtType(nt), OperationKind::Change).await?;
        reply_as!(reply, Reply::NtType(view) => Response::new(wire::nt_type(&view).into()))
    }

    async fn get_nt_type(
        &self,
        request: Request<v1::GetNtTypeRequest>,
    ) -> RpcResult<v1::GetNtTypeResponse> {
        let caller = caller(&request)?;
        let name = request.into_inner().name;
        let id = name::nt_type("name", &name).map_err(ApiError::from)?;
        let view = self.read(&caller, move |controller, caller| controller.nt_type(caller, &id));
        let view = view.await?.ok_or_else(|| absent(&name))?;
        Ok(Response::new(wire::nt_type(&view).into()))
    }

    async fn list_nt_types(
        &self,
        request: Request<v1::ListNtTypesRequest>,
    ) -> RpcResult<v1::ListNtTypesResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let listing = listing!(v1::NtType, Query::of("ListNtTypes"), request)?;
        let (page, revision) = self
            .page(
                &caller,
                &listing,
                move |controller, caller, after, limit| {
                    let after = after.and_then(|key| NtTypeId::new(key).ok());
                    let all = controller.nt_types(caller);
                    let rest = all.skip_while(|view| Some(&view.nt.id) <= after.as_ref());
                    rest.take(limit).collect()
                },
                |view: &NtView| (view.nt.id.to_string(), wire::nt_type(view)),
            )
            .await?;
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
        let repeat = repeat_of(&request.request_id)?;
        let command = Command::DeleteNtType { id: id.clone(), etag: etag(&request.etag) };
        let reply = match self.check_may_delete_nt_type(&caller, &id, &request.name).await {
            Ok(()) => self.ask(&caller, repeat, command, OperationKind::Delete).await,
            Err(failure) => Err(failure),
        };
        MissingPolicy::from(request.allow_missing).or_done(reply)?;
        Ok(Response::new(Default::default()))
    }

    type WatchNtTypesStream = Events<v1::WatchNtTypesResponse>;

    async fn watch_nt_types(
        &self,
        request: Request<v1::WatchNtTypesRequest>,
    ) -> RpcResult<Self::WatchNtTypesStream> {
        let caller = caller(&request)?;
        let resume = request.into_inner().resume_revision;
        let topic = Topic::Resources(ResourceKind::NtType, caller.tenant().cloned());
        let piece = |controller: &Controller, caller: &Caller, after: Option<&NtView>, most| {
            let after = after.map(|view| &view.nt.id);
            let all = controller.nt_types(caller);
            all.skip_while(|view| Some(&view.nt.id) <= after).take(most).collect()
        };
        let event = move |event: Event<'_, NtView>| v1::WatchNtTypesResponse {
            r#type: event.kind().into(),
            nt_type: event.message(wire::nt_type, |name| v1::NtType { name, ..Default::default() }),
            revision: event.revision,
        };
        let subject = WatchSpec { topic, caller, piece, event };
        Ok(Response::new(self.watch(subject, resume).await?))
    }
}

impl Services {
    async fn check_may_delete_nt_type(
        &self,
        caller: &Caller,
        id: &NtTypeId,
        name: &str,
    ) -> Result<(), ApiError> {
        let owner = id.owner();
        if caller.may_change(owner.as_ref()) {
            return Ok(());
        }
        let wanted = id.clone();
        let view = self.read(caller, move |controller, caller| controller.nt_type(caller, &wanted));
        let readable = view.await?.is_some();
        check_owner(caller, owner.as_ref(), name, readable)
    }
}
