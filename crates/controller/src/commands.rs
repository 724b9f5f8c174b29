//! Requests: each is carried out by the machine that it is about. What concerns several machines is
//! put together here.

use snic_domain::{
    Bitstream, BitstreamId, CardId, DagName, DagSpec, NtTypeId, OperationId, RegionId, TenantId,
};

use crate::dags::DagEntry;
use crate::protocol::{Caller, Command, ControlError, Reply, Request, Work};
use crate::records::{Made, RequestKey};
use crate::registry::{NtUsers, TenantPatch};
use crate::requests::Fingerprint;
use crate::state::Controller;
use crate::tx::Tx;

impl Controller {
    /// Carries out a request, or repeats the answer to one that was carried out before.
    pub(crate) fn request(&mut self, tx: &mut Tx, request: Request) -> Result<Reply, ControlError> {
        let Request { caller, request_id, command } = request;
        let Some(id) = request_id else { return self.command(tx, &caller, command) };
        let key = RequestKey::new(&caller, id)?;
        let fingerprint = Fingerprint::of(&command);
        if let Some(made) = self.requests.made_before(&key, &fingerprint)? {
            return self.made(&caller, made);
        }
        let reply = self.command(tx, &caller, command)?;
        if let Some(made) = made_by(&reply) {
            self.requests.remember(tx, key, fingerprint, made);
        }
        Ok(reply)
    }

    fn made(&self, caller: &Caller, made: &Made) -> Result<Reply, ControlError> {
        match made {
            Made::Tenant(id) => self.registry.tenant_view(id).map(Reply::Tenant),
            Made::NtType(id) => self.registry.nt_view(caller, id).map(Reply::NtType),
            Made::Bitstream(id) => self.registry.bitstream_view(caller, id).map(Reply::Bitstream),
            Made::Rule(id) => self.rule_view(id).map(Reply::Rule),
            Made::Operation(id) => {
                self.operations.get(id).map(|r| Reply::Operation(self.operation_view(r)))
            }
        }
        .ok_or_else(|| ControlError::not_found("what this request made before"))
    }

    fn command(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        command: Command,
    ) -> Result<Reply, ControlError> {
        match command {
            Command::CreateTenant(tenant) => {
                self.registry.create_tenant(tx, tenant).map(Reply::Tenant)
            }
            Command::UpdateTenant { id, weight, quota, etag } => {
                self.update_tenant(tx, &id, TenantPatch { weight, quota }, etag.as_deref())
            }
            Command::DeleteTenant { id, force, etag } => {
                self.delete_tenant(tx, &id, force, etag.as_deref())
            }
            Command::CreateNtType(nt) => self.registry.create_nt(tx, caller, nt).map(Reply::NtType),
            Command::DeleteNtType { id, etag } => self.delete_nt(tx, caller, &id, etag.as_deref()),
            Command::CreateBitstream(bitstream) => self.create_bitstream(tx, caller, bitstream),
            Command::DeleteBitstream { id, etag } => {
                self.delete_bitstream(tx, caller, &id, etag.as_deref())
            }
            Command::CreateDag { name, spec, validate_only } => {
                self.check_maintenance(validate_only)?;
                self.visible_tenant(caller, &name.tenant)?;
                self.create_dag(tx, name, spec, validate_only)
            }
            Command::UpdateDag { name, patch, etag, validate_only } => {
                let spec = patch.apply(self.visible_dag(caller, &name)?.spec());
                self.check_dag_etag(&name, etag.as_deref())?;
                self.update_dag(tx, &name, spec, validate_only)
            }
            Command::DeleteDag { name, etag } => {
                self.visible_dag(caller, &name)?;
                self.check_dag_etag(&name, etag.as_deref())?;
                self.check_unbound(&name)?;
                self.delete_dag(tx, &name)
            }
            Command::CreateRule(rule) => self.install_rule(tx, rule, None),
            Command::DeleteRule { id, etag } => self.delete_rule(tx, &id, etag.as_deref()),
            Command::DrainRegion { card, region } => self.drain_region(tx, &card, region),
            Command::DrainCard { card } => self.drain_card(tx, &card),
            Command::Cordon { card, region, on } => self.cordon_regions(tx, &card, region, on),
            Command::Maintain { reason } => self.maintain(tx, caller, reason),
            Command::UndrainRegion { card, region } => self.undrain_region(tx, &card, region),
            Command::ResetRegion { card, region } => self.reset_region(tx, &card, region),
            Command::BindVm(spec) => {
                // One that is bound already is only told so.
                self.check_maintenance(self.binding_view(&spec.vm).is_some())?;
                self.bind_vm(tx, spec)
            }
            Command::UnbindVm { vm, tenant } => self.unbind_vm(tx, &vm, tenant.as_ref()),
            Command::Heartbeat { vms } => Ok(self.heartbeat(tx, vms)),
            Command::OptimizeCard { card, validate_only } => {
                self.optimize_card(tx, &card, validate_only)
            }
            Command::LoadRole { card, force } => self.load_role(tx, &card, force),
            Command::CancelOperation { id } => self.cancel_operation(tx, caller, &id),
            Command::DeleteOperation { id } => {
                self.operations.delete(tx, caller, &id).map(|()| Reply::Done)
            }
        }
    }

    fn update_tenant(
        &mut self,
        tx: &mut Tx,
        id: &TenantId,
        patch: TenantPatch,
        etag: Option<&str>,
    ) -> Result<Reply, ControlError> {
        let view = self.registry.update_tenant(tx, id, patch, etag)?;
        self.cards.values_mut().for_each(|card| card.epoch.stale = true);
        self.reweigh(id);
        Ok(Reply::Tenant(view))
    }

    /// Rejected while the tenant owns anything, unless forced; rejected even then while others use
    /// what it owns.
    fn delete_tenant(
        &mut self,
        tx: &mut Tx,
        id: &TenantId,
        force: bool,
        etag: Option<&str>,
    ) -> Result<Reply, ControlError> {
        self.registry.check_tenant_etag(id, etag)?;
        let dags: Vec<DagName> = self.dags_of(id).map(|entry| entry.name().clone()).collect();
        let (nts, bitstreams) = self.registry.owned_by(id);
        let resource = format!("tenants/{id}");
        if !force && dags.len() + bitstreams.len() + nts.len() > 0 {
            let owned = format!(
                "it owns {} DAGs, {} bitstreams and {} NT types; delete them first, or use force",
                dags.len(),
                bitstreams.len(),
                nts.len()
            );
            return Err(ControlError::precondition(resource, owned));
        }
        if self.others_use(id, &bitstreams, &nts) {
            let shared = "others use bitstreams or NT types that it shares; they must move first";
            return Err(ControlError::precondition(resource, shared));
        }
        for name in &dags {
            let operation = self.dags.get(name).and_then(|e| e.operation.clone());
            if let Some(operation) = operation {
                let error = ControlError::Superseded { resource: resource.clone() };
                self.end_operation(tx, &operation, Err(error));
            }
            self.remove_dag(tx, name);
        }
        for bitstream in &bitstreams {
            self.remove_bitstream(tx, bitstream);
        }
        for nt in &nts {
            self.registry.remove_nt(tx, nt);
        }
        self.refused.forget(tx, |name| name.tenant == *id);
        self.registry.remove_tenant(tx, id);
        Ok(Reply::Done)
    }

    /// Whether DAGs or bitstreams of other tenants use these.
    fn others_use(&self, id: &TenantId, bitstreams: &[BitstreamId], nts: &[NtTypeId]) -> bool {
        let mut dags = self.dags.values().filter(|entry| entry.name().tenant != *id);
        let dag_uses = |entry: &DagEntry| {
            entry.placements().any(|p| {
                p.spec.nodes.iter().any(|node| nts.contains(&node.nt))
                    || p.mapping.instances().any(|i| bitstreams.contains(&i.bitstream))
            })
        };
        let mut others = self.registry.bitstreams().filter(|b| !b.id.is_owned_by(id));
        dags.any(dag_uses) || others.any(|b| b.nts.iter().any(|nt| nts.contains(nt)))
    }

    fn delete_nt(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        id: &NtTypeId,
        etag: Option<&str>,
    ) -> Result<Reply, ControlError> {
        let uses = |spec: &DagSpec| spec.nodes.iter().any(|node| node.nt == *id);
        let dags = self
            .dags
            .values()
            .filter(|e| uses(e.spec()) || e.placements().any(|p| uses(&p.spec)))
            .count();
        self.registry.check_nt_deletion(caller, id, etag, NtUsers { dags })?;
        self.registry.remove_nt(tx, id);
        Ok(Reply::Done)
    }

    fn create_bitstream(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        bitstream: Bitstream,
    ) -> Result<Reply, ControlError> {
        let view = self.registry.create_bitstream(tx, caller, bitstream)?;
        self.capacity_freed = true;
        Ok(Reply::Bitstream(view))
    }

    fn delete_bitstream(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        id: &BitstreamId,
        etag: Option<&str>,
    ) -> Result<Reply, ControlError> {
        self.registry.check_bitstream_deletion(caller, id, etag)?;
        let used = self
            .dags
            .values()
            .flat_map(|entry| entry.placements())
            .any(|p| p.mapping.instances().any(|instance| instance.bitstream == *id));
        if used {
            let used = "DAGs use it; delete or change them first";
            return Err(ControlError::precondition(format!("bitstreams/{id}"), used));
        }
        self.remove_bitstream(tx, id);
        Ok(Reply::Done)
    }

    /// Removes a bitstream that no DAG uses; regions that hold it are free.
    fn remove_bitstream(&mut self, tx: &mut Tx, id: &BitstreamId) {
        for (card, region) in self.regions_with(id) {
            self.set_content(tx, &card, region, None);
            self.emit_region(tx, &card, region);
        }
        self.registry.remove_bitstream(tx, id);
    }

    fn cancel_operation(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        id: &OperationId,
    ) -> Result<Reply, ControlError> {
        let record = self.operations.visible(caller, id)?;
        let resource = format!("operations/{id}");
        if record.ended.is_some() {
            return Err(ControlError::precondition(resource, "it has ended already"));
        }
        let too_late = "it has started; wait for its end";
        match record.work.clone() {
            Work::CreateDag(name) if record.started.is_none() => {
                self.end_operation(tx, id, Err(ControlError::Cancelled));
                self.remove_dag(tx, &name);
            }
            Work::UpdateDag(name) if record.started.is_none() => {
                self.revert_update(tx, &name)
                    .map_err(|()| ControlError::precondition(&resource, too_late))?;
                self.end_operation(tx, id, Err(ControlError::Cancelled));
            }
            Work::DrainRegion(card, region) => {
                self.end_operation(tx, id, Err(ControlError::Cancelled));
                self.uncordon(tx, &card, region);
            }
            Work::DrainCard(card) => {
                self.end_operation(tx, id, Err(ControlError::Cancelled));
                let regions: Vec<RegionId> = self.regions_meant(&card, None).collect();
                regions.into_iter().for_each(|region| self.uncordon(tx, &card, region));
            }
            Work::OptimizeCard(_) => self.end_operation(tx, id, Err(ControlError::Cancelled)),
            _ => return Err(ControlError::precondition(resource, too_late)),
        }
        Ok(Reply::Done)
    }

    /// Remembers a DAG that was refused for want of room: from it is said what is worth building.
    pub(crate) fn note_refused(
        &mut self,
        tx: &mut Tx,
        name: &DagName,
        spec: &DagSpec,
        error: &ControlError,
    ) {
        if matches!(error, ControlError::Refused(_)) {
            self.refused.note(tx, name, spec);
        }
    }

    /// It was admitted after all.
    pub(crate) fn forget_refused(&mut self, tx: &mut Tx, name: &DagName) {
        self.refused.forget(tx, |refused| refused == name);
    }

    /// A new operation.
    pub(crate) fn begin_operation(&mut self, tx: &mut Tx, work: Work) -> OperationId {
        let optimized = match &work {
            Work::OptimizeCard(card) => Some(card.clone()),
            _ => None,
        };
        let id = self.operations.begin(tx, work, self.now);
        if let Some(card) = optimized {
            self.note_consolidation(&id, &card);
        }
        id
    }

    /// A card was asked for something on behalf of a DAG: its operation, if there is one, has started.
    pub(crate) fn start_operation(&mut self, name: &DagName) {
        if let Some(id) = self.dags.get(name).and_then(|entry| entry.operation.as_ref()) {
            self.operations.start(id, self.now);
        }
    }

    /// Ends an operation.
    pub(crate) fn end_operation(
        &mut self,
        tx: &mut Tx,
        id: &OperationId,
        result: Result<(), ControlError>,
    ) {
        match self.operations.end(tx, id, result, self.now) {
            Work::CreateDag(name) | Work::UpdateDag(name) => {
                // A delete has ended it before the DAG goes.
                if let Some(entry) = self.dags.get_mut(name) {
                    entry.operation.take_if(|operation| operation == id);
                }
            }
            Work::OptimizeCard(_) => {
                self.consolidations.remove(id);
            }
            Work::DeleteDag(..)
            | Work::DrainRegion(..)
            | Work::DrainCard(_)
            | Work::ResetRegion(..)
            | Work::LoadRole { .. } => {}
        }
    }

    /// An operation that exists, as callers see it.
    pub(crate) fn operation_reply(&self, id: &OperationId) -> Reply {
        let record = self.operations.get(id).expect("it was begun or found in this request");
        Reply::Operation(self.operation_view(record))
    }

    /// The drains that have not ended, with each region that they are of.
    pub(crate) fn pending_drains(&self) -> impl Iterator<Item = (&OperationId, &CardId, RegionId)> {
        self.operations.drains().flat_map(|(id, card, region)| {
            self.regions_meant(card, region).map(move |region| (id, card, region))
        })
    }

    /// Forgets operations and request ids that are old. Amortised O(1) an event.
    pub(crate) fn forget_old(&mut self, tx: &mut Tx) {
        self.operations.forget_old(tx, self.now);
        self.requests.forget_old(tx, self.now);
    }
}

fn made_by(reply: &Reply) -> Option<Made> {
    match reply {
        Reply::Tenant(view) => Some(Made::Tenant(view.tenant.id.clone())),
        Reply::NtType(view) => Some(Made::NtType(view.nt.id.clone())),
        Reply::Bitstream(view) => Some(Made::Bitstream(view.bitstream.id.clone())),
        Reply::Rule(view) => Some(Made::Rule(view.rule.id.clone())),
        Reply::Operation(view) => Some(Made::Operation(view.record.id.clone())),
        Reply::Region(_)
        | Reply::Binding(_)
        | Reply::Heartbeat { .. }
        | Reply::WouldBe(_)
        | Reply::Consolidation(_)
        | Reply::Done => None,
    }
}
