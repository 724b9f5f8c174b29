//! Rows of the classifier: they follow their DAG on and off the card.

use std::collections::BTreeSet;

use snic_domain::{DagName, Rule, RuleId, VmId};
use snic_tables::{RowKey, Table};

use crate::protocol::{ControlError, Reply};
use crate::rows;
use crate::rules::VacatedRow;
use crate::state::Controller;
use crate::tx::Tx;

impl Controller {
    /// A new rule, of an operator or of a machine.
    pub(crate) fn install_rule(
        &mut self,
        tx: &mut Tx,
        rule: Rule,
        binding: Option<VmId>,
    ) -> Result<Reply, ControlError> {
        self.rules.check_new(&rule)?;
        let card = self.dags.get(&rule.dag).and_then(|entry| entry.card().cloned());
        let card = card.ok_or_else(|| {
            let rule = format!("{} does not exist, or has no card yet", rule.dag);
            ControlError::invalid("rule.dag", rule)
        })?;
        let id = rule.id.clone();
        let moved = self.rules.install(tx, rule, card, binding)?;
        self.retarget_rules_of(&moved);
        Ok(Reply::Rule(self.rule_view(&id).expect("it was just made")))
    }

    pub(crate) fn delete_rule(
        &mut self,
        tx: &mut Tx,
        id: &RuleId,
        etag: Option<&str>,
    ) -> Result<Reply, ControlError> {
        self.rules.check_deletion(id, etag)?;
        self.remove_rule(tx, id);
        Ok(Reply::Done)
    }

    pub(crate) fn remove_rule(&mut self, tx: &mut Tx, id: &RuleId) {
        let vacated = self.rules.remove(tx, id);
        self.clear_classifier_row(vacated);
    }

    fn clear_classifier_row(&mut self, vacated: VacatedRow) {
        let card = self.cards.get_mut(&vacated.card).expect("a rule is on a card that is known");
        card.tables.clear([vacated.row]);
    }

    /// A DAG's rules go with it.
    pub(crate) fn remove_rules_of(&mut self, tx: &mut Tx, dag: &DagName) {
        let ids: Vec<RuleId> = self.rules.of(dag).map(|record| record.rule.id.clone()).collect();
        for id in ids {
            self.remove_rule(tx, &id);
        }
    }

    /// A DAG's rules go with it to another card. Time O(rules).
    pub(crate) fn move_rules(&mut self, tx: &mut Tx, dag: &DagName) {
        let entry = self.dags.get(dag).expect("it was just given a place");
        let card = entry.card().cloned().expect("it was just given a place");
        let (vacated, moved) = self.rules.follow(tx, dag, &card);
        for row in vacated {
            self.clear_classifier_row(row);
        }
        self.retarget_rules_of(&moved);
    }

    fn retarget_rules_of(&mut self, dags: &BTreeSet<DagName>) {
        dags.iter().for_each(|dag| self.retarget_rules(dag));
    }

    /// Writes the classifier rows of a DAG into the target while its own rows are there, and takes
    /// them away while they are not. Time O(rules).
    pub(crate) fn retarget_rules(&mut self, dag: &DagName) {
        let entry = self.dags.get(dag).expect("a rule's DAG exists as long as the rule");
        let uid = entry.uid();
        let serving = entry.targeted();
        let on = serving.map(|placement| placement.mapping.card.clone());
        for record in self.rules.of(dag) {
            let card = self.cards.get_mut(&record.card);
            let card = card.expect("a rule is on a card that is known");
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
