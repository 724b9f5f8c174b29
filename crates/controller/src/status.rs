//! How far a DAG is: conditions and state, from what is wanted and what the card said.

use snic_domain::{CardId, Condition, ConditionType, DagName, DagState, Truth};

use crate::card::ConnectionState;
use crate::dags::DagEntry;
use crate::records::Placement;
use crate::state::Controller;
use crate::tx::Tx;

/// A condition without its times.
struct Finding {
    kind: ConditionType,
    status: Truth,
    reason: &'static str,
    message: String,
}

impl Finding {
    fn new(kind: ConditionType, status: Truth, reason: &'static str, message: String) -> Self {
        Self { kind, status, reason, message }
    }
}

impl Controller {
    /// Ends what an arrived placement makes superfluous, and brings the conditions up to date.
    pub(crate) fn settle(&mut self, tx: &mut Tx, name: &DagName) {
        let Some(entry) = self.dags.get(name) else { return };
        if entry.is_ready() {
            self.scaled(tx, name);
        }
        let Some(entry) = self.dags.get(name) else { return };
        if entry.is_ready() {
            let operation = entry.operation.clone();
            self.finish_move(tx, name);
            if let Some(operation) = operation {
                self.end_operation(tx, &operation, Ok(()));
            }
        }
        let Some(entry) = self.dags.get(name) else { return };
        let conditions = self.conditions(entry);
        if conditions != entry.conditions {
            if let Some(entry) = self.dags.get_mut(name) {
                entry.conditions = conditions;
            }
            self.emit_dag(tx, name);
        }
    }

    /// The conditions of a DAG now; a status that did not change keeps its time.
    fn conditions(&self, entry: &DagEntry) -> Vec<Condition> {
        let findings = match entry.shown() {
            None => vec![self.unmapped(entry)],
            Some(placement) => self.mapped(entry, placement),
        };
        let ready = ready(&findings);
        let since = |finding: &Finding| {
            let same = |c: &&Condition| c.kind == finding.kind && c.status == finding.status;
            entry.conditions.iter().find(same).map_or(self.now, |c| c.since)
        };
        findings
            .into_iter()
            .chain([ready])
            .map(|finding| Condition {
                since: since(&finding),
                kind: finding.kind,
                status: finding.status,
                reason: finding.reason.to_owned(),
                message: finding.message,
                generation: entry.generation(),
            })
            .collect()
    }

    fn unmapped(&self, entry: &DagEntry) -> Finding {
        let message = entry.why_unplaced().map_or_else(
            || "no place was found; it is tried again when something is freed".to_owned(),
            ToString::to_string,
        );
        Finding::new(ConditionType::Mapped, Truth::False, "NO_PLACE", message)
    }

    fn mapped(&self, entry: &DagEntry, placement: &Placement) -> Vec<Finding> {
        let text = "it has a place on the card".to_owned();
        vec![
            Finding::new(ConditionType::Mapped, Truth::True, "PLACED", text),
            self.regions_loaded(placement),
            self.tables_programmed(entry, placement),
        ]
    }

    /// Why nothing can be said of a card, if so.
    fn silence(&self, card: &CardId) -> Option<(&'static str, String)> {
        match &self.cards.get(card)?.connection {
            ConnectionState::Ready => None,
            ConnectionState::Adopting(_) => {
                Some(("CARD_ADOPTING", "the card is being asked what it holds".to_owned()))
            }
            ConnectionState::Absent(reason) => {
                Some(("CARD_LOST", format!("the card is lost: {reason}")))
            }
        }
    }

    fn regions_loaded(&self, placement: &Placement) -> Finding {
        let kind = ConditionType::RegionsLoaded;
        if let Some((reason, message)) = self.silence(&placement.mapping.card) {
            return Finding::new(kind, Truth::Unknown, reason, message);
        }
        let regions = crate::placement::regions_of(placement);
        let loaded = self.regions_done(placement);
        if loaded == regions.len() {
            let message = format!("{loaded} of {loaded} regions hold what it needs");
            return Finding::new(kind, Truth::True, "LOADED", message);
        }
        let Some(card) = self.cards.get(&placement.mapping.card) else {
            return Finding::new(kind, Truth::Unknown, "CARD_LOST", "the card is gone".into());
        };
        let failing = regions
            .iter()
            .filter_map(|region| card.region(*region))
            .find(|entry| entry.failures() > 0 && !entry.is_loaded());
        let progress = format!("{loaded} of {} regions hold what it needs", regions.len());
        match failing.and_then(|entry| Some((entry.failures(), entry.last_error()?))) {
            Some((failures, error)) => {
                let message = format!("{progress}; a load failed {failures} times: {error}");
                Finding::new(kind, Truth::False, "LOAD_FAILING", message)
            }
            None => Finding::new(kind, Truth::False, "RECONFIGURING", progress),
        }
    }

    /// How many of a placement's regions hold what it needs.
    pub(crate) fn regions_done(&self, placement: &Placement) -> usize {
        let Some(card) = self.cards.get(&placement.mapping.card) else { return 0 };
        crate::placement::regions_of(placement)
            .into_iter()
            .filter(|region| card.region(*region).is_some_and(|entry| entry.is_loaded()))
            .count()
    }

    fn tables_programmed(&self, entry: &DagEntry, placement: &Placement) -> Finding {
        let kind = ConditionType::TablesProgrammed;
        if let Some((reason, message)) = self.silence(&placement.mapping.card) {
            return Finding::new(kind, Truth::Unknown, reason, message);
        }
        if entry.active() == Some(placement.serial) && entry.target() == entry.active() {
            let message = "the card's tables, read back, hold its rows".to_owned();
            return Finding::new(kind, Truth::True, "READ_BACK", message);
        }
        let error = self.cards.get(&placement.mapping.card).and_then(|card| card.tables.error());
        match error {
            Some(error) => {
                let message = format!("the tables could not be programmed: {error}");
                Finding::new(kind, Truth::False, "PROGRAMMING_FAILING", message)
            }
            None => {
                let message = "its rows are not on the card yet".to_owned();
                Finding::new(kind, Truth::False, "NOT_PROGRAMMED", message)
            }
        }
    }

    /// How far a DAG is, in one word.
    pub(crate) fn dag_state(&self, entry: &DagEntry) -> DagState {
        let Some(placement) = entry.desired() else { return DagState::Failed };
        let silent = self.silence(&placement.mapping.card).is_some();
        let operation = entry.operation.as_ref().and_then(|id| self.operations.get(id));
        match operation {
            None if entry.is_served() && !silent => DagState::Ready,
            None => DagState::Degraded,
            Some(operation) if operation.started.is_some() => DagState::Provisioning,
            Some(_) if entry.previous().is_some() => DagState::Provisioning,
            Some(_) => DagState::Pending,
        }
    }
}

/// Ready is the and of all others: false if one is false, else unknown if one is.
fn ready(findings: &[Finding]) -> Finding {
    let first = |status| findings.iter().find(|f| f.status == status);
    let kind = ConditionType::Ready;
    match first(Truth::False).or_else(|| first(Truth::Unknown)) {
        Some(why) => Finding::new(kind, why.status, why.reason, why.message.clone()),
        None => {
            let message = "the card, read back, holds what it needs".to_owned();
            Finding::new(kind, Truth::True, "READY", message)
        }
    }
}
