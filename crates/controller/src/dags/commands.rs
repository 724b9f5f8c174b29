//! DAGs: create, update, delete.

use snic_domain::{Dag, DagId, DagName, DagSpec, TenantId};

use crate::admission::Choice;
use crate::dags::DagEntry;
use crate::etag::check_etag;
use crate::protocol::{Caller, Change, ControlError, DagView, FieldViolation, Reply, Work};
use crate::records::{Key, Placement, Record};
use crate::state::Controller;
use crate::tx::Tx;

impl Controller {
    /// Fails as for an absent one where the caller may not know of the DAG.
    pub(crate) fn visible_dag(
        &self,
        caller: &Caller,
        name: &DagName,
    ) -> Result<&DagEntry, ControlError> {
        self.dags
            .get(name)
            .filter(|_| caller.may_change(Some(&name.tenant)))
            .ok_or_else(|| ControlError::not_found(name))
    }

    /// Fails as for an absent one where the caller may not know of the tenant.
    pub(crate) fn visible_tenant(
        &self,
        caller: &Caller,
        id: &TenantId,
    ) -> Result<(), ControlError> {
        if caller.may_change(Some(id)) && self.registry.tenant(id).is_some() {
            return Ok(());
        }
        Err(ControlError::not_found(format!("tenants/{id}")))
    }

    pub(crate) fn check_dag_etag(
        &self,
        name: &DagName,
        etag: Option<&str>,
    ) -> Result<(), ControlError> {
        let now = self.dags.get(name).map(|entry| self.dag_etag(entry)).unwrap_or_default();
        check_etag(name, etag, now)
    }

    pub(crate) fn create_dag(
        &mut self,
        tx: &mut Tx,
        name: DagName,
        spec: DagSpec,
        validate_only: bool,
    ) -> Result<Reply, ControlError> {
        if self.dags.contains_key(&name) {
            return Err(ControlError::exists(&name));
        }
        let dag = self.check_spec(&name.tenant, spec)?;
        self.check_quota(&name, dag.spec())?;
        let admission = match self.decide(&name, &dag) {
            Ok(admission) => admission,
            Err(error) => {
                if !validate_only {
                    self.note_refused(tx, &name, dag.spec(), &error);
                }
                return Err(error);
            }
        };
        let uid = self.uids.peek().ok_or_else(|| ControlError::Exhausted {
            what: "DAGs of this daemon".into(),
            limit: snic_domain::limits::DAG_ROWS as u64,
            hint: "delete one first".into(),
        })?;
        let entry = DagEntry::new(name.clone(), uid, dag.spec().clone(), self.now);
        if validate_only {
            return Ok(Reply::WouldBe(Box::new(self.preview(entry, admission.choice))));
        }
        self.forget_refused(tx, &name);
        self.registry.charge_dag(&name.tenant, dag.spec());
        if self.dags.is_empty() {
            // Samples were far apart so far: none was missed.
            self.sampled = self.now;
        }
        self.dags.insert(name.clone(), entry);
        self.uids.take(uid);
        tx.put(Record::Uid(uid.row(), uid.incarnation()));
        self.admit(tx, &name, admission);
        Ok(self.begin_dag_operation(tx, &name, Work::CreateDag(name.clone())))
    }

    /// An operation that ends when the DAG is ready.
    fn begin_dag_operation(&mut self, tx: &mut Tx, name: &DagName, work: Work) -> Reply {
        let id = self.begin_operation(tx, work);
        if let Some(entry) = self.dags.get_mut(name) {
            entry.operation = Some(id.clone());
        }
        self.store_dag(tx, name);
        self.operation_reply(&id)
    }

    /// The DAG as it would be.
    fn preview(&self, entry: DagEntry, choice: Choice) -> DagView {
        let placement = Placement {
            serial: 0,
            generation: entry.generation(),
            spec: entry.spec().clone(),
            burst: None,
            mapping: choice.plan.mapping,
            stage_row: 0,
            chain_row: 0,
            instance_row: 0,
        };
        let mut entry = entry.planned_at(placement);
        entry.explanation = Some(choice.plan.explanation);
        let mut view = self.view_of(&entry);
        view.state = snic_domain::DagState::Pending;
        view
    }

    pub(crate) fn update_dag(
        &mut self,
        tx: &mut Tx,
        name: &DagName,
        spec: DagSpec,
        validate_only: bool,
    ) -> Result<Reply, ControlError> {
        let dag = self.check_spec(&name.tenant, spec)?;
        self.check_quota(name, dag.spec())?;
        let Some(entry) = self.dags.get(name) else { return Err(ControlError::not_found(name)) };
        if dag.spec() == entry.spec() && entry.desired().is_some() {
            return Ok(match validate_only {
                true => Reply::WouldBe(Box::new(self.view_of(entry))),
                false => self.nothing_to_update(tx, name),
            });
        }
        let admission = match self.decide(name, &dag) {
            Ok(admission) if validate_only => {
                let mut entry = entry.clone();
                entry.change_spec(dag.spec().clone(), self.now);
                return Ok(Reply::WouldBe(Box::new(self.preview(entry, admission.choice))));
            }
            Ok(admission) => admission,
            Err(error) => {
                if !validate_only {
                    self.note_refused(tx, name, dag.spec(), &error);
                }
                return Err(error);
            }
        };
        self.forget_refused(tx, name);
        self.supersede(tx, name);
        self.set_spec(name, dag.spec());
        self.admit(tx, name, admission);
        Ok(self.begin_dag_operation(tx, name, Work::UpdateDag(name.clone())))
    }

    /// The next generation of a DAG.
    fn set_spec(&mut self, name: &DagName, spec: &DagSpec) {
        let entry = self.dags.get_mut(name).expect("only a DAG that exists is changed");
        let before = entry.change_spec(spec.clone(), self.now);
        let card = entry.card().cloned();
        if let Some(card) = card {
            self.topology_changed(&card);
        }
        self.registry.discharge_dag(&name.tenant, &before);
        self.registry.charge_dag(&name.tenant, spec);
    }

    /// An update to what is there already: the operation under way, or one that has ended.
    fn nothing_to_update(&mut self, tx: &mut Tx, name: &DagName) -> Reply {
        let pending = self.dags.get(name).and_then(|e| e.operation.clone());
        let id = pending.unwrap_or_else(|| {
            let id = self.begin_operation(tx, Work::UpdateDag(name.clone()));
            self.end_operation(tx, &id, Ok(()));
            id
        });
        self.operation_reply(&id)
    }

    /// Ends the operation that an earlier change of the DAG began.
    fn supersede(&mut self, tx: &mut Tx, name: &DagName) {
        let operation = self.dags.get(name).and_then(|entry| entry.operation.clone());
        if let Some(operation) = operation {
            let error = ControlError::Superseded { resource: name.to_string() };
            self.end_operation(tx, &operation, Err(error));
        }
    }

    /// Takes an update back that has not started: what serves is what is wanted again.
    /// Fails where nothing serves.
    pub(crate) fn revert_update(&mut self, tx: &mut Tx, name: &DagName) -> Result<(), ()> {
        let entry = self.dags.get(name).ok_or(())?;
        let spec = entry.previous().ok_or(())?.spec.clone();
        self.uninstall(name);
        self.set_spec(name, &spec);
        let entry = self.dags.get_mut(name).ok_or(())?;
        entry.abort();
        entry.explanation = None;
        self.unscheduled.remove(name);
        tx.delete(Key::Explanation(name.clone()));
        self.hold_again(name);
        self.store_dag(tx, name);
        self.dirty_dags.insert(name.clone());
        Ok(())
    }

    pub(crate) fn delete_dag(
        &mut self,
        tx: &mut Tx,
        name: &DagName,
    ) -> Result<Reply, ControlError> {
        self.supersede(tx, name);
        let card = self.remove_dag(tx, name);
        let id = self.begin_operation(tx, Work::DeleteDag(name.clone(), card.clone()));
        match card.and_then(|card| self.cards.get_mut(&card)) {
            Some(card) => card.tables.wait_for_removal(id.clone()),
            None => self.end_operation(tx, &id, Ok(())),
        }
        Ok(self.operation_reply(&id))
    }

    /// Removes a DAG and the rules that lead to it; says which card still has rows of it.
    pub(crate) fn remove_dag(
        &mut self,
        tx: &mut Tx,
        name: &DagName,
    ) -> Option<snic_domain::CardId> {
        self.end_bindings_of(tx, name);
        self.remove_rules_of(tx, name);
        let last = self.dag_view(name);
        let card = self.evict(tx, name);
        if let Some(entry) = self.dags.remove(name) {
            self.registry.discharge_dag(&name.tenant, entry.spec());
        }
        tx.delete(Key::Dag(name.clone()));
        tx.delete(Key::Explanation(name.clone()));
        if let Some(mut view) = last {
            view.state = snic_domain::DagState::Deleting;
            tx.emit(Change::DagDeleted(Box::new(view)));
        }
        self.capacity_freed = true;
        card
    }

    /// Checks a spec: its structure, and that its tenant may use its NTs.
    fn check_spec(&self, tenant: &TenantId, spec: DagSpec) -> Result<Dag, ControlError> {
        let unknown: Vec<FieldViolation> = spec
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| self.registry.usable_nt(tenant, &node.nt).is_none())
            .map(|(i, node)| FieldViolation {
                field: format!("dag.nodes[{i}].nt_type"),
                description: format!(
                    "ntTypes/{} does not exist; list NT types to see which do",
                    node.nt
                ),
            })
            .collect();
        let dag = Dag::new(spec)?;
        if unknown.is_empty() { Ok(dag) } else { Err(ControlError::Invalid(unknown)) }
    }

    /// Checks that a DAG, new or changed, is within its tenant's quota.
    fn check_quota(&self, name: &DagName, spec: &DagSpec) -> Result<(), ControlError> {
        let before = self.dags.get(name).map(|entry| entry.spec());
        self.registry.check_dag_quota(&name.tenant, before, spec)
    }

    /// The DAGs of a tenant, by id. Time O(log DAGs + its DAGs).
    pub(crate) fn dags_of<'a>(&'a self, id: &'a TenantId) -> impl Iterator<Item = &'a DagEntry> {
        let first = DagId::new("a").expect("the smallest label");
        let from = DagName { tenant: id.clone(), dag: first };
        self.dags.range(from..).take_while(move |(name, _)| name.tenant == *id).map(|(_, e)| e)
    }
}
