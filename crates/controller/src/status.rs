//! How far a DAG is: conditions and state, from what is wanted and what the card said.

use snic_domain::{Condition, ConditionType, DagName, DagState, Timestamp, Truth};

use crate::card::{ConnectionState, KNOWN};
use crate::dags::DagEntry;
use crate::placement::regions_of;
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
        let entry = self.dags.get(name).expect("settling ends no DAG");
        if entry.is_ready() {
            let operation = entry.operation.clone();
            self.finish_move(tx, name);
            if let Some(operation) = operation {
                self.end_operation(tx, &operation, Ok(()));
            }
        }
        let entry = self.dags.get(name).expect("settling ends no DAG");
        let facts = entry.shown().map(|placement| self.facts(placement));
        let conditions = conditions(entry, facts.as_ref(), self.now);
        if conditions != entry.conditions {
            if let Some(entry) = self.dags.get_mut(name) {
                entry.conditions = conditions;
            }
            self.emit_dag(tx, name);
        }
    }

    /// What is known of the card of a placement.
    fn facts(&self, placement: &Placement) -> Facts<'_> {
        let card = self.cards.get(&placement.mapping.card).expect(KNOWN);
        let regions = regions_of(placement);
        let entries = || regions.iter().filter_map(|region| card.region(*region));
        let failing = entries().find(|entry| entry.failures() > 0 && !entry.is_loaded());
        Facts {
            connection: &card.connection,
            regions: regions.len(),
            loaded: entries().filter(|entry| entry.is_loaded()).count(),
            failing: failing.and_then(|entry| {
                Some(FailingLoad { failures: entry.failures(), error: entry.last_error()? })
            }),
            table_error: card.tables.error(),
        }
    }

    /// How many of a placement's regions hold what it needs.
    pub(crate) fn regions_done(&self, placement: &Placement) -> usize {
        let Some(card) = self.cards.get(&placement.mapping.card) else { return 0 };
        regions_of(placement)
            .into_iter()
            .filter(|region| card.region(*region).is_some_and(|entry| entry.is_loaded()))
            .count()
    }

    /// How far a DAG is, in one word.
    pub(crate) fn dag_state(&self, entry: &DagEntry) -> DagState {
        let Some(placement) = entry.desired() else { return DagState::Failed };
        let card = self.cards.get(&placement.mapping.card).expect(KNOWN);
        let silent = card.connection != ConnectionState::Ready;
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

/// A region whose load failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailingLoad<'a> {
    pub failures: u32,
    pub error: &'a str,
}

/// What is known of the card that a DAG is placed on, as far as its conditions say it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub connection: &'a ConnectionState,
    /// Regions of the placement, and how many of them hold what it needs.
    pub regions: usize,
    pub loaded: usize,
    /// One of those that do not.
    pub failing: Option<FailingLoad<'a>>,
    /// Why the last commit failed, where none succeeded since.
    pub table_error: Option<&'a str>,
}

/// The conditions of a DAG now, with the facts about the placement that is shown of it, if one is; a
/// status that did not change keeps its time.
pub(crate) fn conditions(
    dag: &DagEntry,
    facts: Option<&Facts<'_>>,
    now: Timestamp,
) -> Vec<Condition> {
    let findings = match dag.shown().zip(facts) {
        None => vec![unmapped(dag)],
        Some((placement, facts)) => vec![
            Finding::new(
                ConditionType::Mapped,
                Truth::True,
                "PLACED",
                "it has a place on the card".to_owned(),
            ),
            regions_loaded(facts),
            tables_programmed(dag, placement, facts),
        ],
    };
    let ready = ready(&findings);
    let since = |finding: &Finding| {
        let same = |c: &&Condition| c.kind == finding.kind && c.status == finding.status;
        dag.conditions.iter().find(same).map_or(now, |c| c.since)
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
            generation: dag.generation(),
        })
        .collect()
}

fn unmapped(dag: &DagEntry) -> Finding {
    let message = dag.why_unplaced().map_or_else(
        || "no place was found; it is tried again when something is freed".to_owned(),
        ToString::to_string,
    );
    Finding::new(ConditionType::Mapped, Truth::False, "NO_PLACE", message)
}

/// Why nothing can be said of a card, if so.
fn silence(kind: ConditionType, connection: &ConnectionState) -> Option<Finding> {
    let (reason, message) = match connection {
        ConnectionState::Ready => return None,
        ConnectionState::Adopting(_) => {
            ("CARD_ADOPTING", "the card is being asked what it holds".to_owned())
        }
        ConnectionState::Absent(reason) => ("CARD_LOST", format!("the card is lost: {reason}")),
    };
    Some(Finding::new(kind, Truth::Unknown, reason, message))
}

fn regions_loaded(facts: &Facts<'_>) -> Finding {
    let kind = ConditionType::RegionsLoaded;
    if let Some(silence) = silence(kind, facts.connection) {
        return silence;
    }
    let progress = format!("{} of {} regions hold what it needs", facts.loaded, facts.regions);
    match facts.failing {
        _ if facts.loaded == facts.regions => Finding::new(kind, Truth::True, "LOADED", progress),
        Some(FailingLoad { failures, error }) => {
            let message = format!("{progress}; a load failed {failures} times: {error}");
            Finding::new(kind, Truth::False, "LOAD_FAILING", message)
        }
        None => Finding::new(kind, Truth::False, "RECONFIGURING", progress),
    }
}

fn tables_programmed(dag: &DagEntry, placement: &Placement, facts: &Facts<'_>) -> Finding {
    let kind = ConditionType::TablesProgrammed;
    if let Some(silence) = silence(kind, facts.connection) {
        return silence;
    }
    if dag.active() == Some(placement.serial) && dag.target() == dag.active() {
        let message = "the card's tables, read back, hold its rows".to_owned();
        return Finding::new(kind, Truth::True, "READ_BACK", message);
    }
    match facts.table_error {
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

#[cfg(test)]
mod tests {
    use snic_domain::{CardId, DagUid, Form, Mapping, Timestamp};
    use snic_tables::Ticket;

    use super::*;
    use crate::fixtures::{dag, gbps, name};

    fn placed() -> DagEntry {
        let spec = dag("aes", gbps(1)).spec().clone();
        let uid = DagUid::new(1, 1).expect("a row");
        let mut entry = DagEntry::new(name("web"), uid, spec.clone(), Timestamp::ZERO);
        entry.begin(Placement {
            serial: 1,
            generation: 1,
            spec,
            burst: None,
            mapping: Mapping {
                card: CardId::new("card0").expect("a label"),
                form: Form::Sequential,
                stages: Vec::new(),
            },
            stage_row: 0,
            chain_row: 0,
            instance_row: 0,
        });
        entry
    }

    const READY: ConnectionState = ConnectionState::Ready;

    fn facts(loaded: usize) -> Facts<'static> {
        let (failing, table_error) = (None, None);
        Facts { connection: &READY, regions: 2, loaded, failing, table_error }
    }

    /// Status and reason of each condition, the last one being the DAG's as a whole.
    fn told(dag: &DagEntry, facts: &Facts<'_>) -> Vec<(Truth, String)> {
        let all = conditions(dag, Some(facts), Timestamp::from_nanos(7));
        all.into_iter().map(|c| (c.status, c.reason)).collect()
    }

    #[test]
    fn a_dag_on_its_way_says_what_it_waits_for() {
        let mut dag = placed();
        assert_eq!(told(&dag, &facts(1))[3], (Truth::False, "RECONFIGURING".into()));
        assert_eq!(told(&dag, &facts(2))[3], (Truth::False, "NOT_PROGRAMMED".into()));
        dag.set_target(Some(1));
        dag.set_active(Some(1));
        assert_eq!(told(&dag, &facts(2))[3], (Truth::True, "READY".into()));
        let why = Some(FailingLoad { failures: 2, error: "garbage" });
        let failing = Facts { failing: why, ..facts(1) };
        assert_eq!(told(&dag, &failing)[3], (Truth::False, "LOAD_FAILING".into()));
        let failing = Facts { table_error: Some("refused"), ..facts(2) };
        assert_eq!(told(&placed(), &failing)[3], (Truth::False, "PROGRAMMING_FAILING".into()));
    }

    #[test]
    fn of_a_card_that_is_silent_nothing_is_known() {
        let mut dag = placed();
        dag.set_target(Some(1));
        dag.set_active(Some(1));
        let lost = ConnectionState::Absent("no power".into());
        let unknown = told(&dag, &Facts { connection: &lost, ..facts(2) });
        let lost = (Truth::Unknown, "CARD_LOST".to_owned());
        assert_eq!(unknown[1..], [lost.clone(), lost.clone(), lost]);
        let adopting = ConnectionState::Adopting(Ticket(1));
        let unknown = told(&dag, &Facts { connection: &adopting, ..facts(2) });
        assert_eq!(unknown[3], (Truth::Unknown, "CARD_ADOPTING".into()));
    }

    #[test]
    fn a_status_that_did_not_change_keeps_its_time() {
        let mut dag = placed();
        dag.conditions = conditions(&dag, Some(&facts(1)), Timestamp::from_nanos(1));
        let later = conditions(&dag, Some(&facts(2)), Timestamp::from_nanos(9));
        let since: Vec<u64> = later.iter().map(|c| c.since.as_nanos()).collect();
        assert_eq!(since, [1, 9, 1, 1], "only that its regions are loaded is new");
        dag.withdraw();
        let unplaced = conditions(&dag, None, Timestamp::from_nanos(9));
        assert_eq!(unplaced[0].reason, "NO_PLACE");
    }
}
