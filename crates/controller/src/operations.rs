//! Operations (AIP-151): what takes longer than a reply, to be polled, waited for, or cancelled
//! before it starts.

use snic_domain::limits::{OPERATION_KEPT, OPERATIONS_KEPT_MAX};
use snic_domain::{CardId, DagName, Digest, OperationId, RegionId};

use crate::protocol::{
    Caller, Change, Command, ControlError, OperationRecord, Reply, Request, Work,
};
use crate::records::{Made, RequestRecord, key};
use crate::state::Controller;
use crate::tx::Tx;

/// Longest request id, in characters: a UUID has 36.
const REQUEST_ID_CHARS_MAX: usize = 64;

impl Controller {
    /// Carries out a request, or repeats the answer to one that was carried out before.
    pub(crate) fn request(&mut self, tx: &mut Tx, request: Request) -> Result<Reply, ControlError> {
        let Some(id) = request.request_id else {
            return self.command(tx, &request.caller, request.command);
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if id.is_empty() || id.len() > REQUEST_ID_CHARS_MAX || !id.chars().all(plain) {
            let rule = format!(
                "{id:.64?} is no request id: 1 to {REQUEST_ID_CHARS_MAX} letters, digits and '-'"
            );
            return Err(ControlError::invalid("request_id", rule));
        }
        let command = Digest::of(format!("{:?}", request.command).as_bytes()).to_string();
        let key = (request.caller.key(), id);
        if let Some(known) = self.requests.get(&key) {
            if known.command != command {
                return Err(ControlError::RequestIdReused { id: key.1 });
            }
            return self.made(&known.made);
        }
        let reply = self.command(tx, &request.caller, request.command)?;
        if let Some(made) = made_by(&reply) {
            let record = RequestRecord { command, made, at: self.now };
            tx.put(key::request(&key.0, &key.1), &record);
            self.requests.insert(key.clone(), record);
            self.requests_by_age.push_back(key);
        }
        Ok(reply)
    }

    fn made(&self, made: &Made) -> Result<Reply, ControlError> {
        match made {
            Made::Tenant(id) => self.tenant_view(id).map(Reply::Tenant),
            Made::NtType(id) => self.nts.get(id).map(|r| Reply::NtType(self.nt_view(r))),
            Made::Bitstream(id) => {
                self.bitstreams.get(id).map(|r| Reply::Bitstream(self.bitstream_view(r, false)))
            }
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
            Command::CreateTenant(tenant) => self.create_tenant(tx, tenant),
            Command::UpdateTenant { id, weight, quota, etag } => {
                self.update_tenant(tx, &id, (weight, quota), etag.as_deref())
            }
            Command::DeleteTenant { id, force, etag } => {
                self.delete_tenant(tx, &id, force, etag.as_deref())
            }
            Command::CreateNtType(nt) => self.create_nt(tx, caller, nt),
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
            Command::CreateRule(rule) => self.create_rule(tx, rule),
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
            Command::DeleteOperation { id } => self.delete_operation(tx, caller, &id),
        }
    }

    /// A new operation. Its id tells nothing about others.
    pub(crate) fn begin_operation(&mut self, tx: &mut Tx, work: Work) -> OperationId {
        self.meta.operations += 1;
        tx.put(key::META.to_owned(), &self.meta);
        let seed = format!("{}/{}", self.meta.secret, self.meta.operations);
        let [a, b, ..] = Digest::of(seed.as_bytes()).words();
        let id = OperationId::new(&format!("op-{a:08x}{b:08x}"))
            .expect("a prefix and sixteen hexadecimal digits are a label");
        let record =
            OperationRecord { id: id.clone(), work, created: self.now, started: None, ended: None };
        tx.put(key::operation(&id), &record);
        match &record.work {
            Work::DrainRegion(card, region) => {
                self.drains.insert(id.clone(), (card.clone(), Some(*region)));
            }
            Work::DrainCard(card) => {
                self.drains.insert(id.clone(), (card.clone(), None));
            }
            _ => {}
        }
        if let Work::OptimizeCard(card) = &record.work {
            self.note_consolidation(&id, card);
        }
        if let Work::LoadRole { card, .. } = &record.work {
            self.note_role(&id, card);
        }
        self.operations.insert(id.clone(), record);
        id
    }

    /// Notes that the card was asked for something on behalf of a DAG's operation: from now on it
    /// cannot be cancelled. It is stored with the operation's end: the card need not wait for it,
    /// since after a crash the operation starts anew.
    pub(crate) fn start_operation(&mut self, name: &DagName) {
        let id = self.dags.get(name).and_then(|entry| entry.operation.clone());
        let Some(record) = id.and_then(|id| self.operations.get_mut(&id)) else { return };
        record.started.get_or_insert(self.now);
    }

    /// Ends an operation, once.
    pub(crate) fn end_operation(
        &mut self,
        tx: &mut Tx,
        id: &OperationId,
        result: Result<(), ControlError>,
    ) {
        let Some(record) = self.operations.get_mut(id) else { return };
        if record.ended.is_some() {
            return;
        }
        record.ended = Some((self.now, result));
        tx.put(key::operation(id), record);
        self.ended.push_back(id.clone());
        self.drains.remove(id);
        self.consolidations.remove(id);
        self.roles.remove(id);
        if let Work::CreateDag(name) | Work::UpdateDag(name) = &record.work
            && let Some(entry) = self.dags.get_mut(name)
            && entry.operation.as_ref() == Some(id)
        {
            entry.operation = None;
        }
        tx.emit(Change::Operation(id.clone()));
    }

    /// The drains that have not ended, with each region that they are of.
    pub(crate) fn pending_drains(&self) -> impl Iterator<Item = (&OperationId, &CardId, RegionId)> {
        self.drains.iter().flat_map(|(id, (card, region))| {
            self.regions_meant(card, *region).map(move |region| (id, card, region))
        })
    }

    fn visible_operation(
        &self,
        caller: &Caller,
        id: &OperationId,
    ) -> Result<&OperationRecord, ControlError> {
        self.operations
            .get(id)
            .filter(|record| caller.may_change(record.tenant()))
            .ok_or_else(|| ControlError::not_found(format!("operations/{id}")))
    }

    fn cancel_operation(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        id: &OperationId,
    ) -> Result<Reply, ControlError> {
        let record = self.visible_operation(caller, id)?;
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

    fn delete_operation(
        &mut self,
        tx: &mut Tx,
        caller: &Caller,
        id: &OperationId,
    ) -> Result<Reply, ControlError> {
        let record = self.visible_operation(caller, id)?;
        if record.ended.is_none() {
            let resource = format!("operations/{id}");
            return Err(ControlError::precondition(
                resource,
                "it has not ended; wait, or cancel it",
            ));
        }
        self.operations.remove(id);
        self.ended.retain(|ended| ended != id);
        tx.delete(key::operation(id));
        Ok(Reply::Done)
    }

    /// Forgets operations and request ids that are old. Amortised O(1) an event.
    pub(crate) fn forget_old(&mut self, tx: &mut Tx) {
        let now = self.now;
        while let Some(id) = self.ended.front() {
            let old = self.operations.get(id).and_then(|record| record.ended.as_ref());
            let keep = old.is_some_and(|(at, _)| now.since(*at) < OPERATION_KEPT);
            if keep && self.ended.len() <= OPERATIONS_KEPT_MAX {
                break;
            }
            tx.delete(key::operation(id));
            self.operations.remove(id);
            self.ended.pop_front();
        }
        while let Some(id) = self.requests_by_age.front() {
            let old = self.requests.get(id).map(|record| record.at);
            let keep = old.is_some_and(|at| now.since(at) < OPERATION_KEPT);
            if keep && self.requests_by_age.len() <= OPERATIONS_KEPT_MAX {
                break;
            }
            tx.delete(key::request(&id.0, &id.1));
            self.requests.remove(id);
            self.requests_by_age.pop_front();
        }
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
