//! Virtual machines.

use std::collections::BTreeMap;
use std::time::Instant;

use snic_api::convert::{binding, name, timestamp};
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::orchestration_service_server::OrchestrationService;
use snic_controller::{BindingView, Command, Controller, Reply};
use snic_domain::{BindingState, BindingTarget, Caller, TenantId, VmId};
use snic_front::error::shutting_down;
use snic_front::gate::{CallAuthorizer, Deadline, caller, out_of_time, passage};
use snic_front::settings::WAIT_MAX;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::authorization::binding as policy_binding;
use super::watching::{Event, WatchSpec};
use super::{
    MissingPolicy, RpcResult, Services, absent, guarded, listing, repeat_of, reply_as, stopped,
};
use crate::error::OperationKind;
use crate::hub::Topic;

/// Most virtual machines in one heartbeat: far more than a host runs.
const HEARTBEAT_VMS_MAX: usize = 1_000;

#[tonic::async_trait]
impl OrchestrationService for Services {
    async fn bind_vm(&self, request: Request<v1::BindVmRequest>) -> RpcResult<v1::BindVmResponse> {
        let caller = caller(&request)?;
        let deadline = request.extensions().get::<Deadline>().copied();
        let request = request.into_inner();
        let repeat = repeat_of(&request.request_id)?;
        let spec = binding::spec(&request)?;
        let vm = spec.vm.clone();
        let reply = self.ask(&caller, repeat, Command::BindVm(spec), OperationKind::Change).await?;
        let begun = reply_as!(reply, Reply::Binding(view) => view)?;
        let until = deadline.map_or_else(|| Instant::now() + WAIT_MAX, |Deadline(at)| at);
        let view = self.wait_until_bound(&caller, *begun, until).await?;
        match view.record.state {
            BindingState::Bound => Ok(Response::new(binding_to_wire(&view).into())),
            _ => Err(not_bound(&vm, &view).into()),
        }
    }

    async fn unbind_vm(
        &self,
        request: Request<v1::UnbindVmRequest>,
    ) -> RpcResult<v1::UnbindVmResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let request = request.into_inner();
        let vm = binding::vm("vm", &request.vm).map_err(ApiError::from)?;
        let tenant = match request.tenant.as_str() {
            "" => None,
            text => Some(name::tenant("tenant", text).map_err(ApiError::from)?),
        };
        self.decide_unbind(&passage, &caller, &vm, tenant.as_ref()).await?;
        let repeat = repeat_of(&request.request_id)?;
        let command = guarded(&request.etag, Command::UnbindVm { vm, tenant });
        let reply = self.ask(&caller, repeat, command, OperationKind::Change).await;
        match MissingPolicy::from(request.allow_missing).or_deleted(reply)? {
            None => Ok(Response::new(v1::UnbindVmResponse::default())),
            Some(reply) => {
                reply_as!(reply, Reply::Binding(view) => Response::new(binding_to_wire(&view).into()))
            }
        }
    }

    async fn get_binding(
        &self,
        request: Request<v1::GetBindingRequest>,
    ) -> RpcResult<v1::GetBindingResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let name = request.into_inner().name;
        let vm = binding::name("name", &name).map_err(ApiError::from)?;
        let view = self.read(&caller, move |controller, _| controller.binding_view(&vm)).await?;
        let view = view.ok_or_else(|| absent(&name))?;
        // As if it did not exist: that it does is told only to who may see it.
        let resource = policy_binding(&name, Some(&view.record.spec.tenant));
        passage.decide(vec![resource], false).map_err(|_| absent(&name))?;
        let mut binding = binding_to_wire(&view);
        self.0.card_links.fill_binding(&mut binding);
        Ok(Response::new(binding.into()))
    }

    async fn list_bindings(
        &self,
        request: Request<v1::ListBindingsRequest>,
    ) -> RpcResult<v1::ListBindingsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let tenant = name::tenant_or_all("parent", &request.parent).map_err(ApiError::from)?;
        let query = Query::of("ListBindings").with("parent", &request.parent);
        let listing = listing!(v1::VmBinding, query, request)?;
        let (page, revision) = self
            .page(
                &caller,
                &listing,
                move |controller, _, after, limit| {
                    let after = after.and_then(|key| VmId::new(key).ok());
                    let behind = controller.bindings_after(tenant.as_ref(), after.as_ref());
                    behind.take(limit).collect()
                },
                |view: &BindingView| (view.record.spec.vm.to_string(), binding_to_wire(view)),
            )
            .await?;
        let mut bindings = page.items;
        bindings.iter_mut().for_each(|binding| self.0.card_links.fill_binding(binding));
        Ok(Response::new(v1::ListBindingsResponse {
            bindings,
            next_page_token: page.next_page_token,
            revision,
            unreachable_hosts: Vec::new(),
        }))
    }

    type WatchBindingsStream = ReceiverStream<Result<v1::WatchBindingsResponse, Status>>;

    async fn watch_bindings(
        &self,
        request: Request<v1::WatchBindingsRequest>,
    ) -> RpcResult<Self::WatchBindingsStream> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let tenant = name::tenant_or_all("parent", &request.parent).map_err(ApiError::from)?;
        let topic = Topic::Bindings(tenant.clone());
        let piece =
            move |controller: &Controller, _: &Caller, after: Option<&BindingView>, most| {
                let after = after.map(|view| &view.record.spec.vm);
                controller.bindings_after(tenant.as_ref(), after).take(most).collect()
            };
        let event = |event: Event<'_, BindingView>| v1::WatchBindingsResponse {
            r#type: event.kind().into(),
            binding: event
                .message(binding_to_wire, |name| v1::VmBinding { name, ..Default::default() }),
            revision: event.revision,
        };
        let subject = WatchSpec { topic, caller, piece, event };
        Ok(Response::new(self.watch(subject, request.resume_revision).await?))
    }

    async fn heartbeat(
        &self,
        request: Request<v1::HeartbeatRequest>,
    ) -> RpcResult<v1::HeartbeatResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let vms = request.into_inner().vms;
        if vms.len() > HEARTBEAT_VMS_MAX {
            let text =
                format!("{} machines in one heartbeat (limit {HEARTBEAT_VMS_MAX})", vms.len());
            return Err(ApiError::new(ErrorReason::LimitExceeded, &text)
                .violation("vms", text)
                .into());
        }
        let read = |(i, text): (usize, &String)| binding::vm(&format!("vms[{i}]"), text);
        let vms: Result<Vec<VmId>, _> = vms.iter().enumerate().map(read).collect();
        let (vms, hidden) = self.reachable(&passage, &caller, vms.map_err(ApiError::from)?).await?;
        let command = Command::Heartbeat { vms };
        let reply = self.ask(&caller, None, command, OperationKind::Change).await?;
        reply_as!(reply, Reply::Heartbeat { alive, missing } => {
            Response::new(v1::HeartbeatResponse {
                alive: alive.iter().map(binding_to_wire).collect(),
                missing: missing.iter().chain(&hidden).map(ToString::to_string).collect(),
                unreachable_hosts: Vec::new(),
            })
        })
    }
}

impl Services {
    /// Decides about an UnbindVm. Whoever may do it for certain tenants only must name the tenant, and
    /// another's machine is then as one that is not bound.
    async fn decide_unbind(
        &self,
        passage: &CallAuthorizer,
        caller: &Caller,
        vm: &VmId,
        tenant: Option<&TenantId>,
    ) -> Result<(), ApiError> {
        let name = binding::of_binding(vm);
        if passage.may(&policy_binding(&name, None)) {
            return passage.decide(vec![policy_binding(&name, None)], false);
        }
        passage.decide(vec![policy_binding(&name, tenant)], false).map_err(
            |refused| match tenant {
                None => refused.adding("; a request that names the tenant may be allowed"),
                Some(_) => refused,
            },
        )?;
        match self.owner_of_binding(caller, vm.clone()).await? {
            Some(owner) if Some(&owner) != tenant => Err(absent(&name)),
            _ => Ok(()),
        }
    }

    /// The machines that the caller may keep bound, and those that it may not: they are as missing.
    async fn reachable(
        &self,
        passage: &CallAuthorizer,
        caller: &Caller,
        vms: Vec<VmId>,
    ) -> Result<(Vec<VmId>, Vec<VmId>), ApiError> {
        if passage.may(&policy_binding("", None)) {
            return Ok((vms, Vec::new()));
        }
        let asked = vms.clone();
        let read = move |controller: &Controller, _: &Caller| {
            let owner = |vm| controller.binding_view(vm).map(|view| view.record.spec.tenant);
            asked.iter().map(owner).collect::<Vec<Option<TenantId>>>()
        };
        let owners = self.read(caller, read).await?;
        let mut decided: BTreeMap<TenantId, bool> = BTreeMap::new();
        let (mut reachable, mut hidden) = (Vec::new(), Vec::new());
        for (vm, owner) in vms.into_iter().zip(owners) {
            let may = owner.is_some_and(|owner| {
                let resource = policy_binding(&binding::of_binding(&vm), Some(&owner));
                *decided.entry(owner).or_insert_with(|| passage.may(&resource))
            });
            if may { reachable.push(vm) } else { hidden.push(vm) }
        }
        Ok((reachable, hidden))
    }

    async fn owner_of_binding(
        &self,
        caller: &Caller,
        vm: VmId,
    ) -> Result<Option<TenantId>, ApiError> {
        let read = move |controller: &Controller, _: &Caller| {
            controller.binding_view(&vm).map(|view| view.record.spec.tenant)
        };
        self.read(caller, read).await
    }
}

/// The error for a binding that ended before it was bound.
fn not_bound(vm: &VmId, view: &BindingView) -> ApiError {
    let name = binding::of_binding(vm);
    let reason = view.record.reason.as_deref().unwrap_or("it was unbound concurrently");
    let text = format!("{name} is not bound: {reason}");
    ApiError::new(ErrorReason::BindFailed, &text).resource("binding", name, text)
}

impl Services {
    /// Waits until the binding is bound or has ended.
    async fn wait_until_bound(
        &self,
        caller: &Caller,
        begun: BindingView,
        until: Instant,
    ) -> Result<BindingView, ApiError> {
        let (since, vm) = (Instant::now(), begun.record.spec.vm.clone());
        let mut follower = self.0.hub.follow_from_now(Topic::Binding(vm.clone()));
        let mut stopping = self.0.stopping.clone();
        let mut view = begun;
        loop {
            let state = view.record.state;
            if state == BindingState::Bound || state.has_ended() {
                return Ok(view);
            }
            // Before the state is read, so that a later change wakes us. After lost changes the state is
            // read again anyway.
            let _ = follower.next(usize::MAX);
            let wanted = vm.clone();
            let now = self.read(caller, move |controller, _| controller.binding_view(&wanted));
            view = now.await?.ok_or_else(|| absent(&binding::of_binding(&vm)))?;
            if view.record.state == state {
                tokio::select! {
                    () = follower.changed() => {}
                    () = tokio::time::sleep_until(until.into()) => {
                        return Err(out_of_time(since.elapsed()));
                    }
                    () = stopped(&mut stopping) => return Err(shutting_down()),
                }
            }
        }
    }
}

fn binding_to_wire(view: &BindingView) -> v1::VmBinding {
    let record = &view.record;
    let functions = record.functions.iter().enumerate().map(|(number, function)| {
        let limits = record.limits_of(number);
        let vlans = limits
            .vlans
            .map(|vlans| v1::VlanIds { ids: vlans.into_iter().map(u32::from).collect() });
        v1::BoundFunction {
            card: name::of_card(&function.card),
            virtual_function: function.function.into(),
            pci_address: function.pci_address.to_string(),
            mac_address: function.mac_address.to_string(),
            dag: function.dag.to_string(),
            programmed: view.programmed[number],
            allowed_mac_addresses: limits.mac_addresses.iter().map(ToString::to_string).collect(),
            allowed_vlans: vlans,
            broadcasts_per_second: limits.broadcasts_per_second.unwrap_or_default(),
            guarded: view.guarded[number],
            refused_frames: None,
        }
    });
    let dags = view.dags.iter().map(|dag| v1::BoundDag {
        name: dag.name.to_string(),
        uid: dag.uid.map_or(0, snic_domain::DagUid::raw),
        state: dag.state.map_or(0, |state| snic_api::convert::dag::state_to_wire(state).into()),
    });
    v1::VmBinding {
        name: binding::of_binding(&record.spec.vm),
        tenant: name::of_tenant(&record.spec.tenant),
        state: binding::state_to_wire(record.state).into(),
        reason: record.reason.clone().unwrap_or_default(),
        functions: functions.collect(),
        dags: dags.collect(),
        template: match &record.spec.chains {
            BindingTarget::Template(dag) => dag.to_string(),
            BindingTarget::Dags(_) => String::new(),
        },
        lease: record.spec.lease.map(binding::duration_to_wire),
        expire_time: view.expires.map(timestamp),
        deadline_time: Some(timestamp(record.deadline)),
        create_time: Some(timestamp(record.created)),
        update_time: Some(timestamp(record.changed)),
        etag: view.etag.clone(),
        labels: record.spec.notes.labels.as_map().clone(),
        description: record.spec.notes.description.as_str().to_owned(),
    }
}
