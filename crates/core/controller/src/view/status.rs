//! The conditions of a DAG, from desired and observed state.

use snic_domain::{Bandwidth, Condition, ConditionStatus, ConditionType, Timestamp};

use crate::state::card::ConnectionState;
use crate::state::dags::DagEntry;
use crate::store::records::Placement;

/// The reason while a card is asked what it holds.
pub(crate) const ADOPTING: &str = "CARD_ADOPTING";

/// The reason where NTs did not take their configuration.
pub(crate) const UNCONFIGURED: &str = "CONFIGURATION_REFUSED";

/// A condition without its times.
struct ConditionFinding {
    kind: ConditionType,
    status: ConditionStatus,
    reason: &'static str,
    message: String,
}

impl ConditionFinding {
    fn new(
        kind: ConditionType,
        status: ConditionStatus,
        reason: &'static str,
        message: String,
    ) -> Self {
        Self { kind, status, reason, message }
    }
}

/// A region that does not hold what it is to hold, and why.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FailingRegion<'a> {
    /// Its load failed so often in a row.
    Load { failures: u32, error: &'a str },
    /// Its NTs let no packet go.
    Stalled(&'a str),
}

/// Facts about the card that a DAG is placed on, as far as its conditions state them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CardFacts<'a> {
    pub connection: &'a ConnectionState,
    /// Regions of the placement, and how many of them hold what it needs.
    pub regions: usize,
    pub loaded: usize,
    /// One of those that do not.
    pub failing: Option<FailingRegion<'a>>,
    /// Why the last commit failed, where none succeeded since.
    pub table_error: Option<&'a str>,
    /// Promise of the placement that packets take now, if the card carries one.
    pub carried: Option<Bandwidth>,
    /// Whether the placement is in an image that the DAG does not trust.
    pub is_untrusted: bool,
}

/// The conditions of a DAG now, with the facts about the placement that is shown of it, if one is; a
/// status that did not change keeps its time.
pub(crate) fn conditions(
    dag: &DagEntry,
    facts: Option<&CardFacts<'_>>,
    now: Timestamp,
) -> Vec<Condition> {
    let findings = match dag.shown().zip(facts) {
        None => vec![unmapped(dag)],
        Some((placement, facts)) => {
            let programmed = tables_programmed(dag, placement, facts);
            let mut all = vec![mapped(facts), regions_loaded(facts), programmed];
            all.extend(unconfigured(dag, facts));
            all
        }
    };
    let promise = promise_status(dag, facts, &findings);
    let ready = ready(&findings);
    let since = |finding: &ConditionFinding| {
        let same = |c: &&Condition| c.kind == finding.kind && c.status == finding.status;
        dag.conditions().iter().find(same).map_or(now, |c| c.since)
    };
    findings
        .into_iter()
        .chain(promise)
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

fn mapped(facts: &CardFacts<'_>) -> ConditionFinding {
    let (reason, message) = match facts.is_untrusted {
        true => (
            "IMAGE_NOT_TRUSTED",
            "its packets pass an image that it does not trust, or not any more: another tenant's, or one that no key \
             signed that counts now; it gets another place as soon as there is one",
        ),
        false => ("PLACED", "it has a place on the card"),
    };
    ConditionFinding::new(ConditionType::Mapped, ConditionStatus::True, reason, message.to_owned())
}

fn unmapped(dag: &DagEntry) -> ConditionFinding {
    let message = dag.why_unplaced().map_or_else(
        || "no place was found; it is tried again when something is freed".to_owned(),
        ToString::to_string,
    );
    ConditionFinding::new(ConditionType::Mapped, ConditionStatus::False, "NO_PLACE", message)
}

/// Why nothing can be said of a card, if so.
fn silence(kind: ConditionType, connection: &ConnectionState) -> Option<ConditionFinding> {
    let (reason, message) = match connection {
        ConnectionState::Ready => return None,
        ConnectionState::Adopting(_) => {
            (ADOPTING, "the card is being asked what it holds".to_owned())
        }
        ConnectionState::Absent(reason) => ("CARD_LOST", format!("the card is lost: {reason}")),
    };
    Some(ConditionFinding::new(kind, ConditionStatus::Unknown, reason, message))
}

fn regions_loaded(facts: &CardFacts<'_>) -> ConditionFinding {
    let kind = ConditionType::RegionsLoaded;
    if let Some(silence) = silence(kind, facts.connection) {
        return silence;
    }
    let progress = format!("{} of {} regions hold what it needs", facts.loaded, facts.regions);
    match facts.failing {
        _ if facts.loaded == facts.regions => {
            ConditionFinding::new(kind, ConditionStatus::True, "LOADED", progress)
        }
        Some(FailingRegion::Stalled(why)) => {
            let message = format!("{progress}; of another, {why}");
            ConditionFinding::new(kind, ConditionStatus::False, "REGION_STALLED", message)
        }
        Some(FailingRegion::Load { failures, error }) => {
            let message = format!("{progress}; a load failed {failures} times: {error}");
            ConditionFinding::new(kind, ConditionStatus::False, "LOAD_FAILING", message)
        }
        None => ConditionFinding::new(kind, ConditionStatus::False, "RECONFIGURING", progress),
    }
}

fn tables_programmed(
    dag: &DagEntry,
    placement: &Placement,
    facts: &CardFacts<'_>,
) -> ConditionFinding {
    let kind = ConditionType::TablesProgrammed;
    if let Some(silence) = silence(kind, facts.connection) {
        return silence;
    }
    if dag.active() == Some(placement.serial) && dag.target() == dag.active() {
        let message = "the card's tables, read back, hold its rows".to_owned();
        return ConditionFinding::new(kind, ConditionStatus::True, "READ_BACK", message);
    }
    match facts.table_error {
        Some(error) => {
            let message = format!("the tables could not be programmed: {error}");
            ConditionFinding::new(kind, ConditionStatus::False, "PROGRAMMING_FAILING", message)
        }
        None => {
            let message = "its rows are not on the card yet".to_owned();
            ConditionFinding::new(kind, ConditionStatus::False, "NOT_PROGRAMMED", message)
        }
    }
}

/// NTs that lack the DAG's configuration, where some do.
fn unconfigured(dag: &DagEntry, facts: &CardFacts<'_>) -> Option<ConditionFinding> {
    let kind = ConditionType::Configured;
    let why = dag.lacking_configuration()?;
    let found = || ConditionFinding::new(kind, ConditionStatus::False, UNCONFIGURED, why);
    Some(silence(kind, facts.connection).unwrap_or_else(found))
}

/// Whether what was promised is there, as the other findings say; nothing before a promise was given: by a
/// creation that ended, whether the DAG became ready or not.
fn promise_status(
    dag: &DagEntry,
    facts: Option<&CardFacts<'_>>,
    findings: &[ConditionFinding],
) -> Option<ConditionFinding> {
    let kind = ConditionType::PromiseKept;
    let is_given = dag.promise().is_some()
        || dag.is_ready()
        || dag.previous().is_some()
        || dag.operation().is_none();
    if !is_given {
        return None;
    }
    let carried = facts.and_then(|facts| facts.carried);
    let lacking = findings.iter().find(|finding| finding.reason == UNCONFIGURED);
    if let (Some(carried), Some(lacking)) = (carried, lacking) {
        let message = format!("not all of the promised {carried} are served: {}", lacking.message);
        return Some(ConditionFinding::new(kind, ConditionStatus::False, UNCONFIGURED, message));
    }
    if let Some(carried) = carried {
        let message = format!("the card carries the {carried} that were promised");
        return Some(ConditionFinding::new(kind, ConditionStatus::True, "CARRIED", message));
    }
    let promised = dag.spec().bandwidth;
    let unmet = findings.iter().find(|finding| finding.status != ConditionStatus::True);
    let (status, reason, why) = unmet
        .map_or((ConditionStatus::Unknown, "NOT_PROGRAMMED", ""), |finding| {
            (finding.status, finding.reason, &*finding.message)
        });
    let message = match status {
        ConditionStatus::Unknown => {
            format!("whether any of the promised {promised} are served is not known: {why}")
        }
        _ => format!("none of the promised {promised} are served: {why}"),
    };
    Some(ConditionFinding::new(kind, status, reason, message))
}

/// Ready is the and of all others: false if one is false, else unknown if one is.
fn ready(findings: &[ConditionFinding]) -> ConditionFinding {
    let first = |status| findings.iter().find(|f| f.status == status);
    let kind = ConditionType::Ready;
    match first(ConditionStatus::False).or_else(|| first(ConditionStatus::Unknown)) {
        Some(why) => ConditionFinding::new(kind, why.status, why.reason, why.message.clone()),
        None => {
            let message = "the card, read back, holds what it needs".to_owned();
            ConditionFinding::new(kind, ConditionStatus::True, "READY", message)
        }
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::{CardId, DagUid, Form, Mapping, OperationId, Timestamp};
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
                programs: Vec::new(),
            },
            stage_row: 0,
            chain_row: 0,
            instance_row: 0,
        });
        entry
    }

    const READY: ConnectionState = ConnectionState::Ready;

    fn facts(loaded: usize) -> CardFacts<'static> {
        let (failing, table_error) = (None, None);
        let (regions, carried) = (2, None);
        let is_untrusted = false;
        CardFacts {
            connection: &READY,
            regions,
            loaded,
            failing,
            table_error,
            carried,
            is_untrusted,
        }
    }

    /// Status and reason of each condition but the promise's, the last one being the DAG's as a whole.
    fn told(dag: &DagEntry, facts: &CardFacts<'_>) -> Vec<(ConditionStatus, String)> {
        let all = conditions(dag, Some(facts), Timestamp::from_nanos(7));
        let all = all.into_iter().filter(|c| c.kind != ConditionType::PromiseKept);
        all.map(|c| (c.status, c.reason)).collect()
    }

    /// Status, reason and message of the promise's condition, where there is one.
    fn promise(
        dag: &DagEntry,
        facts: Option<&CardFacts<'_>>,
    ) -> Option<(ConditionStatus, String, String)> {
        let all = conditions(dag, facts, Timestamp::ZERO);
        let promise = all.into_iter().find(|c| c.kind == ConditionType::PromiseKept);
        promise.map(|c| (c.status, c.reason, c.message))
    }

    #[test]
    fn a_promise_is_kept_where_a_place_carries_it_and_says_else_what_is_not_served() {
        let told =
            |dag: &DagEntry, facts: &CardFacts<'_>| promise(dag, Some(facts)).expect("given");
        let carried = CardFacts { carried: Some(gbps(3)), ..facts(1) };
        let (status, reason, message) = told(&placed(), &carried);
        assert_eq!((status, &*reason), (ConditionStatus::True, "CARRIED"));
        assert!(message.contains("3 Gbit/s"), "of the place that serves: {message}");
        let why = Some(FailingRegion::Load { failures: 2, error: "garbage" });
        let (status, reason, message) = told(&placed(), &CardFacts { failing: why, ..facts(1) });
        assert_eq!((status, &*reason), (ConditionStatus::False, "LOAD_FAILING"));
        assert!(
            message.starts_with("none of the promised 1 Gbit/s are served: 1 of 2"),
            "{message}"
        );
        let lost = ConnectionState::Absent("no power".into());
        let (status, reason, message) =
            told(&placed(), &CardFacts { connection: &lost, ..facts(2) });
        assert_eq!((status, &*reason), (ConditionStatus::Unknown, "CARD_LOST"));
        assert!(message.contains("is not known: the card is lost: no power"), "{message}");
        let mut unplaced = placed();
        unplaced.withdraw();
        let (status, reason, _) = promise(&unplaced, None).expect("given");
        assert_eq!((status, &*reason), (ConditionStatus::False, "NO_PLACE"));
        let mut new = placed();
        new.set_operation(OperationId::new("op-1").expect("a label"));
        assert_eq!(promise(&new, Some(&facts(1))), None, "it is being made");
    }

    #[test]
    fn a_dag_on_its_way_says_what_it_waits_for() {
        let mut dag = placed();
        assert_eq!(told(&dag, &facts(1))[3], (ConditionStatus::False, "RECONFIGURING".into()));
        assert_eq!(told(&dag, &facts(2))[3], (ConditionStatus::False, "NOT_PROGRAMMED".into()));
        dag.set_target(Some(1));
        dag.set_active(Some(1));
        assert_eq!(told(&dag, &facts(2))[3], (ConditionStatus::True, "READY".into()));
        let why = Some(FailingRegion::Load { failures: 2, error: "garbage" });
        let failing = CardFacts { failing: why, ..facts(1) };
        assert_eq!(told(&dag, &failing)[3], (ConditionStatus::False, "LOAD_FAILING".into()));
        let failing = CardFacts { table_error: Some("refused"), ..facts(2) };
        assert_eq!(
            told(&placed(), &failing)[3],
            (ConditionStatus::False, "PROGRAMMING_FAILING".into())
        );
    }

    #[test]
    fn of_a_card_that_is_silent_nothing_is_known() {
        let mut dag = placed();
        dag.set_target(Some(1));
        dag.set_active(Some(1));
        let lost = ConnectionState::Absent("no power".into());
        let unknown = told(&dag, &CardFacts { connection: &lost, ..facts(2) });
        let lost = (ConditionStatus::Unknown, "CARD_LOST".to_owned());
        assert_eq!(unknown[1..], [lost.clone(), lost.clone(), lost]);
        let adopting = ConnectionState::Adopting(Ticket(1));
        let unknown = told(&dag, &CardFacts { connection: &adopting, ..facts(2) });
        assert_eq!(unknown[3], (ConditionStatus::Unknown, "CARD_ADOPTING".into()));
    }

    #[test]
    fn a_status_that_did_not_change_keeps_its_time() {
        let mut dag = placed();
        dag.set_conditions(conditions(&dag, Some(&facts(1)), Timestamp::from_nanos(1)));
        let later = conditions(&dag, Some(&facts(2)), Timestamp::from_nanos(9));
        let since: Vec<u64> = later.iter().map(|c| c.since.as_nanos()).collect();
        assert_eq!(since, [1, 9, 1, 1, 1], "only that its regions are loaded is new");
        dag.withdraw();
        let unplaced = conditions(&dag, None, Timestamp::from_nanos(9));
        assert_eq!(unplaced[0].reason, "NO_PLACE");
    }
}
