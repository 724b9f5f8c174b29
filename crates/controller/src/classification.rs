//! Rows of the classifier: they follow their DAG on and off the card.

use std::collections::BTreeSet;

use snic_domain::{DagName, Rule, RuleId, VmId};

use crate::protocol::{ControlError, Reply};
use crate::rules::VacatedRow;
use crate::state::Core;
use crate::tx::Tx;
use crate::{quotas, rows, views};

/// A new rule, of an operator or of a machine.
pub(crate) fn install_rule(
    core: &mut Core,
    tx: &mut Tx,
    rule: Rule,
    binding: Option<VmId>,
) -> Result<Reply, ControlError> {
    core.rules.check_new(&rule)?;
    let card = core.dags.get(&rule.dag).and_then(|entry| entry.card().cloned());
    let card = card.ok_or_else(|| {
        let rule = format!("{} does not exist, or has no card yet", rule.dag);
        ControlError::invalid("rule.dag", rule)
    })?;
    quotas::check_rules(core, &rule.dag.tenant, 1)?;
    let id = rule.id.clone();
    let moved = core.rules.install(tx, rule, card, binding)?;
    retarget_rules_of(core, &moved);
    Ok(Reply::Rule(views::rule_view(core, &id).expect("it was just made")))
}

pub(crate) fn delete_rule(
    core: &mut Core,
    tx: &mut Tx,
    id: &RuleId,
    etag: Option<&str>,
) -> Result<Reply, ControlError> {
    core.rules.check_deletion(id, etag)?;
    remove_rule(core, tx, id);
    Ok(Reply::Done)
}

pub(crate) fn remove_rule(core: &mut Core, tx: &mut Tx, id: &RuleId) {
    let vacated = core.rules.remove(tx, id);
    clear_classifier_row(core, vacated);
}

fn clear_classifier_row(core: &mut Core, vacated: VacatedRow) {
    core.cards.known_mut(&vacated.card).clear_rule(vacated.row.row);
}

/// A DAG's rules go with it.
pub(crate) fn remove_rules_of(core: &mut Core, tx: &mut Tx, dag: &DagName) {
    let ids: Vec<RuleId> = core.rules.of(dag).map(|record| record.rule.id.clone()).collect();
    for id in ids {
        remove_rule(core, tx, &id);
    }
}

/// A DAG's rules go with it to another card. Time O(rules).
pub(crate) fn move_rules(core: &mut Core, tx: &mut Tx, dag: &DagName) {
    let entry = core.dags.known(dag);
    let card = entry.card().cloned().expect("it was just given a place");
    let (vacated, moved) = core.rules.follow(tx, dag, &card);
    for row in vacated {
        clear_classifier_row(core, row);
    }
    retarget_rules_of(core, &moved);
}

fn retarget_rules_of(core: &mut Core, dags: &BTreeSet<DagName>) {
    dags.iter().for_each(|dag| retarget_rules(core, dag));
}

/// Writes the classifier rows of a DAG into the target while its own rows are there, and takes
/// them away while they are not. Time O(rules).
pub(crate) fn retarget_rules(core: &mut Core, dag: &DagName) {
    let entry = core.dags.known(dag);
    let uid = entry.uid();
    let serving = entry.targeted();
    let on = serving.map(|placement| placement.mapping.card.clone());
    for record in core.rules.of(dag) {
        let card = core.cards.known_mut(&record.card);
        if on.as_ref() == Some(&record.card) {
            card.put_rule(record.row, &rows::classifier(&record.rule, uid));
        } else {
            card.clear_rule(record.row);
        }
    }
}
