//! Bindings of virtual machines, each on the host that serves its DAGs.

use std::collections::BTreeSet;

use snic_api::convert::{binding, name};
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::orchestration_service_client::OrchestrationServiceClient;
use snic_api::v1::orchestration_service_server::OrchestrationService;
use snic_api::v1::vm_binding::State;
use snic_domain::{BindingTarget, Caller, DagName, VmId};
use snic_fleet::HostId;
use snic_front::authorization::NamedResource;
use snic_front::gate::{CallAuthorizer, Deadline, caller, passage};
use snic_front::listing;
use tonic::{Request, Response, Status};

use super::gathering::{HostAnswers, HostList, HostPage, HostScope, on_host};
use super::watching::Events;
use super::{RpcResult, Services, no_watch};
use crate::passing::HostTransport;

/// Most virtual machines in one heartbeat, as on a host.
const HEARTBEAT_VMS_MAX: usize = 1_000;

/// The bindings of hosts, by machine.
struct BindingList {
    /// `tenants/{tenant}`, or `tenants/-`.
    parent: String,
}

/// A binding with the names that the fleet has for its cards. None of its readers is a tenant.
fn named(host: &HostId, binding: v1::VmBinding) -> v1::VmBinding {
    let on_card = |function: v1::BoundFunction| v1::BoundFunction {
        card: on_host(true, host, function.card),
        ..function
    };
    let functions = binding.functions.into_iter().map(on_card).collect();
    v1::VmBinding { functions, ..binding }
}

#[tonic::async_trait]
impl HostList for BindingList {
    type Item = v1::VmBinding;

    async fn page(
        &self,
        host: HostTransport,
        page: HostPage,
    ) -> Result<(Vec<v1::VmBinding>, String), Status> {
        let request = v1::ListBindingsRequest {
            parent: self.parent.clone(),
            page_size: page.size,
            page_token: page.token,
            filter: page.filter,
            order_by: String::new(),
        };
        let reply =
            OrchestrationServiceClient::new(host).list_bindings(request).await?.into_inner();
        Ok((reply.bindings, reply.next_page_token))
    }

    fn named(&self, host: &HostId, item: v1::VmBinding) -> v1::VmBinding {
        named(host, item)
    }

    fn key(&self, host: &HostId, item: &v1::VmBinding) -> String {
        // A machine that was bound on another host before has its ended binding there for a day.
        format!("{} {host}", item.name)
    }

    fn not_before(&self, key: &str) -> Option<String> {
        let (binding, _) = key.split_once(' ')?;
        Some(format!("name >= \"{binding}\""))
    }
}

#[tonic::async_trait]
impl OrchestrationService for Services {
    async fn bind_vm(&self, request: Request<v1::BindVmRequest>) -> RpcResult<v1::BindVmResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let deadline = request.extensions().get::<Deadline>().copied();
        let request = request.into_inner();
        let spec = binding::spec(&request)?;
        let dags = match &spec.chains {
            BindingTarget::Dags(dags) => dags.as_slice(),
            BindingTarget::Template(dag) => std::slice::from_ref(dag),
        };
        let host = self.host_of_all(&caller, dags).await?;
        let HostAnswers { found, .. } = self.places_of_machine(&caller, &spec.vm).await?;
        let is_elsewhere = |(other, of): &&(HostId, v1::VmBinding)| *other != host && is_live(of);
        if let Some((other, _)) = found.iter().find(is_elsewhere) {
            let binding = binding::of_binding(&spec.vm);
            let text = format!(
                "{binding} is on host {other}, and its DAGs are on host {host}; unbind the machine first"
            );
            return Err(ApiError::new(ErrorReason::InvalidState, text).into());
        }
        let mut client = self.bindings_at(&passage, (&caller, deadline), host.clone());
        let reply = client.bind_vm(request).await?.into_inner();
        let binding = reply.binding.map(|binding| named(&host, binding));
        Ok(Response::new(v1::BindVmResponse { binding }))
    }

    async fn unbind_vm(
        &self,
        request: Request<v1::UnbindVmRequest>,
    ) -> RpcResult<v1::UnbindVmResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let request = request.into_inner();
        let vm = binding::vm("vm", &request.vm).map_err(ApiError::from)?;
        let (host, _) = match self.place_of_machine(&passage, &caller, &vm).await {
            Err(error)
                if request.allow_missing && error.reason() == ErrorReason::ResourceNotFound =>
            {
                return Ok(Response::new(v1::UnbindVmResponse::default()));
            }
            place => place?,
        };
        let mut client = self.bindings_at(&passage, (&caller, None), host.clone());
        let reply = client.unbind_vm(request).await?.into_inner();
        let binding = reply.binding.map(|binding| named(&host, binding));
        Ok(Response::new(v1::UnbindVmResponse { binding }))
    }

    async fn get_binding(
        &self,
        request: Request<v1::GetBindingRequest>,
    ) -> RpcResult<v1::GetBindingResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let name = request.into_inner().name;
        let vm = binding::name("name", &name).map_err(ApiError::from)?;
        let (host, binding) = self.place_of_machine(&passage, &caller, &vm).await?;
        Ok(Response::new(named(&host, binding).into()))
    }

    async fn list_bindings(
        &self,
        request: Request<v1::ListBindingsRequest>,
    ) -> RpcResult<v1::ListBindingsResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let request = request.into_inner();
        name::tenant_or_all("parent", &request.parent).map_err(ApiError::from)?;
        let query = Query::of("ListBindings").with("parent", &request.parent);
        let listing = listing!(v1::VmBinding, query, request)?;
        let question = self.question_of(&passage)?;
        let hosts = self.hosts_in(&caller, HostScope::All).await?;
        let list = BindingList { parent: request.parent };
        let (page, missing) = self.gathered_page(&question, &listing, (list, hosts)).await?;
        Ok(Response::new(v1::ListBindingsResponse {
            bindings: page.items,
            next_page_token: page.next_page_token,
            revision: 0,
            unreachable_hosts: missing.to_wire(&caller),
        }))
    }

    type WatchBindingsStream = Events<v1::WatchBindingsResponse>;

    async fn watch_bindings(
        &self,
        request: Request<v1::WatchBindingsRequest>,
    ) -> RpcResult<Self::WatchBindingsStream> {
        caller(&request)?;
        Err(no_watch("bindings", "`snicctl vm list`"))
    }

    async fn heartbeat(
        &self,
        request: Request<v1::HeartbeatRequest>,
    ) -> RpcResult<v1::HeartbeatResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let request = request.into_inner();
        let count = request.vms.len();
        if count > HEARTBEAT_VMS_MAX {
            let text = format!("{count} machines in one heartbeat (limit {HEARTBEAT_VMS_MAX})");
            let error = ApiError::new(ErrorReason::LimitExceeded, &text);
            return Err(error.violation("vms", text).into());
        }
        let vms: Vec<String> = request.vms.iter().map(|vm| vm.to_ascii_lowercase()).collect();
        // Whose the machines are is known to hosts only, which are all asked about all of them.
        passage.decide(vec![NamedResource::named("")], false)?;
        let question = self.question_of(&passage)?;
        let hosts = self.hosts_in(&caller, HostScope::All).await?;
        let beat = move |_: &HostId, transport| {
            let request = request.clone();
            async move {
                let reply = OrchestrationServiceClient::new(transport).heartbeat(request).await?;
                Ok(reply.into_inner())
            }
        };
        let answers = question.ask_all(hosts, beat).await;
        let mut alive = Vec::new();
        for (host, reply) in answers.found {
            alive.extend(reply.alive.into_iter().map(|binding| named(&host, binding)));
        }
        let known: BTreeSet<&str> =
            alive.iter().filter_map(|of| of.name.strip_prefix("vmBindings/")).collect();
        // A machine that is reported as missing is stopped: not while a host may have it.
        let is_complete = answers.missing.is_empty();
        let mut missing = vms;
        missing.retain(|vm| is_complete && !known.contains(vm.as_str()));
        let unreachable_hosts = answers.missing.to_wire(&caller);
        Ok(Response::new(v1::HeartbeatResponse { alive, missing, unreachable_hosts }))
    }
}

/// Whether a machine has functions by this binding, or is about to.
fn is_live(binding: &v1::VmBinding) -> bool {
    matches!(binding.state(), State::Initial | State::BindStarted | State::Bound)
}

impl Services {
    /// The host that serves all of these DAGs.
    ///
    /// # Errors
    /// The caller has no such DAG, one has no place, or they are on different hosts.
    async fn host_of_all(&self, caller: &Caller, dags: &[DagName]) -> Result<HostId, ApiError> {
        let mut first: Option<(&DagName, HostId)> = None;
        for dag in dags {
            let host = self.host_of(caller, dag.clone()).await?;
            match &first {
                Some((other, at)) if *at != host => {
                    let text = format!(
                        "{other} is on host {at}, and {dag} on host {host}; the DAGs of a machine have to be on one host: \
                         create them with a placement on that host"
                    );
                    return Err(ApiError::in_field(ErrorReason::InvalidState, "dags", text));
                }
                Some(_) => {}
                None => first = Some((dag, host)),
            }
        }
        first.map(|(_, host)| host).ok_or_else(|| ApiError::required("dags"))
    }

    /// The bindings of a host, in the caller's name.
    fn bindings_at(
        &self,
        passage: &CallAuthorizer,
        (caller, deadline): (&Caller, Option<Deadline>),
        host: HostId,
    ) -> OrchestrationServiceClient<HostTransport> {
        let identity = passage.identity().to_string();
        let transport = HostTransport::new(self.clone(), host, caller.clone(), identity);
        OrchestrationServiceClient::new(transport.until(deadline))
    }

    /// Hosts with a binding of a machine.
    async fn places_of_machine(
        &self,
        caller: &Caller,
        vm: &VmId,
    ) -> Result<HostAnswers<v1::VmBinding>, ApiError> {
        let question = self.question_for(caller)?;
        let hosts = self.hosts_in(caller, HostScope::All).await?;
        let name = binding::of_binding(vm);
        let get = move |_: &HostId, transport| {
            let request = v1::GetBindingRequest { name: name.clone() };
            async move {
                let reply = OrchestrationServiceClient::new(transport).get_binding(request).await?;
                let binding = reply.into_inner().binding;
                binding.ok_or_else(|| Status::internal("a binding without a binding"))
            }
        };
        Ok(question.ask_all(hosts, get).await)
    }

    /// The host of a machine's binding, and the binding: the live one, or the last that ended.
    ///
    /// # Errors
    /// There is none, the caller may not see it, or a host that did not answer may have it.
    async fn place_of_machine(
        &self,
        passage: &CallAuthorizer,
        caller: &Caller,
        vm: &VmId,
    ) -> Result<(HostId, v1::VmBinding), ApiError> {
        let name = binding::of_binding(vm);
        let absent = || ApiError::not_found("binding", &name);
        let HostAnswers { found, missing } = self.places_of_machine(caller, vm).await?;
        let time = |of: &v1::VmBinding| of.update_time.map(|at| (at.seconds, at.nanos));
        let last = found.into_iter().max_by_key(|(_, of)| (is_live(of), time(of)));
        let (host, binding) = match last {
            // A live one may be on a host that did not answer.
            Some((_, of)) if !is_live(&of) && !missing.is_empty() => {
                return Err(missing.may_have(&name, caller));
            }
            None if !missing.is_empty() => return Err(missing.may_have(&name, caller)),
            None => return Err(absent()),
            Some(last) => last,
        };
        let resource = NamedResource::named(&name);
        let owner = name::tenant("tenant", &binding.tenant);
        let resource = match owner {
            Ok(owner) => resource.owned_by(owner.as_str()),
            Err(_) => resource,
        };
        // As if it did not exist: that it does is told only to who may see it.
        passage.decide(vec![resource], false).map_err(|_| absent())?;
        Ok((host, binding))
    }
}
