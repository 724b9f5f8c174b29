//! Classification rules: rows of the classifier that follow their DAG on and off the card.

use std::collections::BTreeSet;

use snic_domain::{DagName, Rule, RuleId, VmId};
use snic_tables::{RowKey, Table};

use crate::dags::check_etag;
use crate::protocol::{ControlError, Reply};
use crate::records::{RuleRecord, key};
use crate::rows;
use crate::state::Controller;
use crate::tx::Tx;

/// VNIs have 24 bits.
const VNI_MAX: u32 = (1 << 24) - 1;

impl Controller {
    pub(crate) fn create_rule(&mut self, tx: &mut Tx, rule: Rule) -> Result<Reply, ControlError> {
        self.install_rule(tx, rule, None)
    }

    /// A new rule, of an operator or of a machine.
    pub(crate) fn install_rule(
        &mut self,
        tx: &mut Tx,
        rule: Rule,
        binding: Option<VmId>,
    ) -> Result<Reply, ControlError> {
        let resource = format!("classificationRules/{}", rule.id);
        if self.rules.contains_key(&rule.id) {
            return Err(ControlError::exists(resource));
        }
        check_match(&rule)?;
        let card =
            self.dags.get(&rule.dag).and_then(|entry| entry.card().cloned()).ok_or_else(|| {
                let rule = format!("{} does not exist, or has no card yet", rule.dag);
                ControlError::invalid("rule.dag", rule)
            })?;
        let state = self.cards.get_mut(&card);
        let row = state.and_then(|card| card.classifier_free.pop_first()).ok_or_else(|| {
            ControlError::Exhausted {
                what: "classification rules of the card".into(),
                limit: Table::Classifier.rows() as u64,
                hint: "delete one first".into(),
            }
        })?;
        let dag = rule.dag.clone();
        let id = rule.id.clone();
        let record = RuleRecord { rule, card, row, binding, created: self.now };
        tx.put(key::rule(&id), &record);
        self.rules.insert(id.clone(), record);
        self.retarget_rules(&dag);
        self.order_rows(tx, &id);
        self.rule_view(&id).map(Reply::Rule).ok_or_else(|| ControlError::not_found(resource))
    }

    /// Of rules of one priority the card takes the one in the first row, and tenants were promised
    /// the first by id: so these rules' rows rise with their ids. Time O(rules).
    fn order_rows(&mut self, tx: &mut Tx, id: &RuleId) {
        let Some(new) = self.rules.get(id) else { return };
        let (card, priority) = (new.card.clone(), new.rule.priority);
        let alike = |r: &RuleRecord| r.card == card && r.rule.priority == priority;
        let mut rows: Vec<u16> = self.rules.values().filter(|r| alike(r)).map(|r| r.row).collect();
        rows.sort_unstable();
        let mut moved = BTreeSet::new();
        for (record, row) in self.rules.values_mut().filter(|r| alike(r)).zip(rows) {
            if record.row != row {
                record.row = row;
                tx.put(key::rule(&record.rule.id), record);
                moved.insert(record.rule.dag.clone());
            }
        }
        for dag in moved {
            self.retarget_rules(&dag);
        }
    }

    pub(crate) fn delete_rule(
        &mut self,
        tx: &mut Tx,
        id: &RuleId,
        etag: Option<&str>,
    ) -> Result<Reply, ControlError> {
        let resource = format!("classificationRules/{id}");
        match self.rule_view(id) {
            Some(view) => check_etag(resource, etag, view.etag)?,
            None => return Err(ControlError::not_found(resource)),
        }
        if let Some(vm) = self.rules.get(id).and_then(|record| record.binding.as_ref()) {
            let text = format!("it is of vmBindings/{vm}; unbind the machine instead");
            return Err(ControlError::precondition(format!("classificationRules/{id}"), text));
        }
        self.remove_rule(tx, id);
        Ok(Reply::Done)
    }

    pub(crate) fn remove_rule(&mut self, tx: &mut Tx, id: &RuleId) {
        let Some(record) = self.rules.remove(id) else { return };
        tx.delete(key::rule(id));
        if let Some(card) = self.cards.get_mut(&record.card) {
            card.tables.clear([RowKey { table: Table::Classifier, row: record.row }]);
            card.classifier_free.insert(record.row);
        }
    }

    /// A DAG's rules go with it.
    pub(crate) fn remove_rules_of(&mut self, tx: &mut Tx, dag: &DagName) {
        let of = self.rules.iter().filter(|(_, record)| record.rule.dag == *dag);
        let ids: Vec<RuleId> = of.map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.remove_rule(tx, &id);
        }
    }

    /// A DAG's rules go with it to another card, but not those of machines, whose functions are of
    /// this card. Those for which that card's classifier has no row
    /// stay behind, and lead nowhere. Time O(rules).
    pub(crate) fn move_rules(&mut self, tx: &mut Tx, dag: &DagName) {
        let Some(card) = self.dags.get(dag).and_then(|entry| entry.card().cloned()) else { return };
        let astray = |r: &RuleRecord| r.rule.dag == *dag && r.card != card && r.binding.is_none();
        let of = self.rules.iter().filter(|(_, record)| astray(record));
        let ids: Vec<RuleId> = of.map(|(id, _)| id.clone()).collect();
        for id in ids {
            let to = self.cards.get_mut(&card).and_then(|card| card.classifier_free.pop_first());
            let (Some(to), Some(record)) = (to, self.rules.get_mut(&id)) else { return };
            let row = std::mem::replace(&mut record.row, to);
            let from = std::mem::replace(&mut record.card, card.clone());
            tx.put(key::rule(&id), record);
            if let Some(from) = self.cards.get_mut(&from) {
                from.tables.clear([RowKey { table: Table::Classifier, row }]);
                from.classifier_free.insert(row);
            }
            self.order_rows(tx, &id);
        }
    }

    /// Writes the classifier rows of a DAG into the target while its own rows are there, and takes
    /// them away while they are not. Time O(rules).
    pub(crate) fn retarget_rules(&mut self, dag: &DagName) {
        let Some(entry) = self.dags.get(dag) else { return };
        let uid = entry.uid();
        let serving = entry.targeted();
        let on = serving.map(|placement| placement.mapping.card.clone());
        for record in self.rules.values().filter(|record| record.rule.dag == *dag) {
            let Some(card) = self.cards.get_mut(&record.card) else { continue };
            if on.as_ref() == Some(&record.card) {
                let row = rows::classifier(&record.rule, uid);
                card.tables.put(record.row, &row);
            } else {
                let key = RowKey { table: Table::Classifier, row: record.row };
                card.tables.clear([key]);
            }
        }
    }
}

fn check_match(rule: &Rule) -> Result<(), ControlError> {
    let matches = &rule.matches;
    if *matches == snic_domain::Match::default() {
        let text = "it would match every packet; set at least one field";
        return Err(ControlError::invalid("rule.match", text));
    }
    if let Some(vni) = matches.vni.filter(|vni| *vni > VNI_MAX) {
        let text = format!("{vni} is not allowed: 0 to {VNI_MAX}");
        return Err(ControlError::invalid("rule.match.vni", text));
    }
    for (field, prefix) in [("source", matches.source), ("destination", matches.destination)] {
        if let Some(prefix) = prefix.filter(|prefix| prefix.length > 32) {
            let text = format!("/{} is not allowed: /0 to /32", prefix.length);
            return Err(ControlError::invalid(format!("rule.match.{field}"), text));
        }
    }
    Ok(())
}
