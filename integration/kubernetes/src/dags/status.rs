//! Status of an object: conditions of the API and of the controller, what is promised and served, on which card, and why not.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};
use snic_api::text::escaped_lines;
use snic_api::v1::condition::Status as Holds;
use snic_api::v1::{Condition, Dag};
use snic_api::words::EnumWord as _;
use snic_domain::Bandwidth;

use super::object::DagObject;
use super::spec::SpecRefusal;

/// The condition of an object whose specification the server has.
pub const ACCEPTED: &str = "Accepted";
/// The condition that `kubectl wait` waits for.
pub const READY: &str = "Ready";
/// Longest message, in bytes: the API server takes 32 KiB, people read less.
const MESSAGE_BYTES_MAX: usize = 2_048;
/// Longest reason for `kubectl get`, in characters.
const WHY_CHARS_MAX: usize = 200;
/// Digits of a served rate: it is never twice the same, and each write goes to all who watch.
const SERVED_DIGITS: u32 = 2;

/// State of an object's affairs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Standing<'a> {
    /// The server has the specification.
    Accepted,
    /// It does not.
    Refused(&'a SpecRefusal),
    /// Not known, for instance because the server does not answer.
    Unknown(&'a str),
    /// The object is being deleted.
    Deleting(Option<&'a str>),
}

/// A condition without its time.
struct Judged {
    kind: String,
    status: &'static str,
    reason: String,
    message: String,
}

impl Judged {
    fn new(kind: &str, status: &'static str, reason: &str, message: &str) -> Self {
        let reason = if reason.is_empty() { "UNSPECIFIED" } else { reason };
        let message = escaped_lines(message);
        let message = message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)].to_owned();
        Self { kind: kind.to_owned(), status, reason: reason.to_owned(), message }
    }

    fn of(condition: &Condition) -> Self {
        let status = match condition.status() {
            Holds::True => "True",
            Holds::False => "False",
            Holds::Unknown | Holds::Unspecified => "Unknown",
        };
        Self::new(&condition.r#type, status, &condition.reason, &condition.message)
    }

    /// The condition with the time since when it has this status.
    fn timed(&self, object: &DagObject, now: Timestamp) -> Value {
        let before = object.status["conditions"].as_array().into_iter().flatten();
        let before = before.into_iter().find(|one| one["type"] == *self.kind);
        let since = before.filter(|one| one["status"] == self.status);
        let since = since.and_then(|one| one["lastTransitionTime"].as_str());
        let now = || format!("{:.0}", now);
        json!({
            "type": self.kind, "status": self.status, "reason": self.reason,
            "message": self.message, "observedGeneration": object.head.generation,
            "lastTransitionTime": since.map_or_else(now, str::to_owned),
        })
    }
}

fn accepted(standing: Standing<'_>) -> Judged {
    match standing {
        Standing::Accepted => {
            Judged::new(ACCEPTED, "True", "ACCEPTED", "the server has the specification")
        }
        Standing::Refused(why) => Judged::new(ACCEPTED, "False", &why.reason, &why.message),
        Standing::Unknown(why) => Judged::new(ACCEPTED, "Unknown", "UNAVAILABLE", why),
        Standing::Deleting(_) => {
            Judged::new(ACCEPTED, "False", "DELETING", "the object is being deleted")
        }
    }
}

fn ready(standing: Standing<'_>, present: Option<&Dag>) -> Judged {
    let not_accepted = |text: &str| match present {
        Some(_) => format!("the DAG is as it was before: {text}"),
        None => text.to_owned(),
    };
    match (standing, present) {
        (Standing::Refused(why), _) => {
            Judged::new(READY, "False", &why.reason, &not_accepted(&why.message))
        }
        (Standing::Unknown(why), _) => Judged::new(READY, "Unknown", "UNAVAILABLE", why),
        (Standing::Deleting(why), _) => {
            let why = why.unwrap_or("the DAG is being deleted from the server");
            Judged::new(READY, "False", "DELETING", why)
        }
        (Standing::Accepted, None) => {
            Judged::new(READY, "False", "PENDING", "the server has no such DAG yet")
        }
        (Standing::Accepted, Some(dag)) if dag.observed_generation != dag.generation => {
            Judged::new(READY, "False", "CHANGING", "the card does not have the last change yet")
        }
        (Standing::Accepted, Some(dag)) => {
            let found = dag.conditions.iter().find(|condition| condition.r#type == READY);
            let state = dag.state().word();
            found.map_or_else(
                || Judged::new(READY, "Unknown", state, "the server reports no readiness"),
                Judged::of,
            )
        }
    }
}

/// Short name of a card: its id, in a fleet behind that of its host, as in `h0/card0`.
fn short_card(card: &str) -> String {
    let (host, id) = card.rsplit_once("cards/").unwrap_or(("", card));
    format!("{}{id}", host.strip_prefix("hosts/").unwrap_or(host))
}

/// Short names of the cards that a DAG is on. A mapping is of a host, which does not know its own name: in a fleet there is a field.
fn cards(dag: &Dag) -> String {
    if !dag.fleet_card.is_empty() {
        return short_card(&dag.fleet_card);
    }
    let mapping = dag.mapping.iter();
    let chains = mapping.flat_map(|mapping| &mapping.stages).flat_map(|stage| &stage.branches);
    let cards = chains.flat_map(|chain| &chain.instances).map(|instance| instance.card.as_str());
    let names: BTreeSet<String> = cards.map(short_card).filter(|id| !id.is_empty()).collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}

/// A rate in few digits.
pub fn rounded(bps: u64) -> u64 {
    let step = 10_u64.pow(bps.checked_ilog10().unwrap_or(0).saturating_sub(SERVED_DIGITS - 1));
    (bps / step + u64::from(bps % step >= step.div_ceil(2))).saturating_mul(step)
}

/// The served rate of a DAG, as the status says it.
pub fn served(dag: &Dag) -> u64 {
    rounded(dag.traffic.as_ref().map_or(0, |traffic| traffic.served_bps))
}

/// Why an object is not as it should be: the first condition that does not hold, and that no other explains.
fn why(conditions: &[Judged]) -> Option<String> {
    let rank = |kind: &str| match kind {
        ACCEPTED => 0,
        READY => 2,
        _ => 1,
    };
    let broken = conditions.iter().filter(|condition| condition.status != "True");
    let first = broken.min_by_key(|condition| rank(&condition.kind))?;
    let text = format!("{}: {}", first.kind, first.message);
    Some(snic_api::text::shortened(&text, WHY_CHARS_MAX))
}

/// The status of an object. It is equal to the one before where nothing has changed.
pub fn status(
    object: &DagObject,
    standing: Standing<'_>,
    present: Option<&Dag>,
    now: Timestamp,
) -> Value {
    let others = present.into_iter().flat_map(|dag| &dag.conditions);
    let others = others.filter(|condition| ![READY, ACCEPTED].contains(&condition.r#type.as_str()));
    let mut conditions = vec![accepted(standing), ready(standing, present)];
    conditions.extend(others.map(Judged::of));
    let mut status = Map::new();
    let mut set = |key: &str, value: Value| status.insert(key.to_owned(), value);
    set("observedGeneration", json!(object.head.generation));
    if let Some(dag) = present {
        set("dag", json!(dag.name));
        set("state", json!(dag.state().word()));
        set("promisedBps", json!(dag.bandwidth_bps));
        set("promised", json!(Bandwidth::from_bps(dag.bandwidth_bps).to_string()));
        set("servedBps", json!(served(dag)));
        set("served", json!(Bandwidth::from_bps(served(dag)).to_string()));
        let cards = cards(dag);
        if !cards.is_empty() {
            set("card", json!(cards));
        }
    }
    if let Some(why) = why(&conditions) {
        set("why", json!(why));
    }
    let timed = conditions.iter().map(|condition| condition.timed(object, now));
    set("conditions", timed.collect());
    Value::Object(status)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use snic_api::v1::dag::State;
    use snic_api::v1::{DagTraffic, Instance, Mapping, Stage, VirtualChain};

    use super::*;
    use crate::dags::object::{ObjectHead, ObjectKey};

    fn object(status: Value) -> DagObject {
        let head = ObjectHead {
            key: ObjectKey { namespace: "shop".to_owned(), name: "web".to_owned() },
            uid: "u".to_owned(),
            generation: 3,
            is_deleting: false,
            has_finalizer: true,
        };
        DagObject { head, spec: Value::Null, status }
    }

    fn condition(kind: &str, holds: Holds, reason: &str, message: &str) -> Condition {
        Condition {
            r#type: kind.to_owned(),
            status: holds.into(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..Condition::default()
        }
    }

    fn dag() -> Dag {
        let instance = |region: &str| Instance {
            card: "cards/card0".to_owned(),
            region: format!("cards/card0/regions/{region}"),
            ..Instance::default()
        };
        let chain = VirtualChain {
            instances: vec![instance("0"), instance("1")],
            ..VirtualChain::default()
        };
        Dag {
            name: "tenants/acme/dags/web".to_owned(),
            state: State::Ready.into(),
            generation: 2,
            observed_generation: 2,
            bandwidth_bps: 1_000_000_000,
            conditions: vec![
                condition("Mapped", Holds::True, "MAPPED", "on card0"),
                condition("Ready", Holds::True, "READY", "the card has all of it"),
            ],
            mapping: Some(Mapping {
                stages: vec![Stage { branches: vec![chain] }],
                ..Mapping::default()
            }),
            traffic: Some(DagTraffic { served_bps: 123_456_789, ..DagTraffic::default() }),
            ..Dag::default()
        }
    }

    fn find<'a>(status: &'a Value, kind: &str) -> &'a Value {
        let mut all = status["conditions"].as_array().expect("a list").iter();
        all.find(|one| one["type"] == kind).expect(kind)
    }

    #[test]
    fn a_card_of_a_fleet_is_named_with_its_host() {
        for (name, short) in
            [("cards/card0", "card0"), ("hosts/h0/cards/card0", "h0/card0"), ("", "")]
        {
            assert_eq!(short_card(name), short);
        }
        let mut placed = dag();
        assert_eq!(cards(&placed), "card0");
        "hosts/h7/cards/card1".clone_into(&mut placed.fleet_card);
        assert_eq!(cards(&placed), "h7/card1");
    }

    const T1: Timestamp = Timestamp::constant(1_000, 0);
    const T2: Timestamp = Timestamp::constant(2_000, 0);

    #[test]
    fn a_ready_dag_says_what_it_is_promised_and_served_and_where() {
        let status = status(&object(Value::Null), Standing::Accepted, Some(&dag()), T1);
        assert_eq!(status["observedGeneration"], 3);
        assert_eq!(status["dag"], "tenants/acme/dags/web");
        assert_eq!(
            (&status["promisedBps"], &status["promised"]),
            (&json!(1_000_000_000), &json!("1 Gbit/s"))
        );
        assert_eq!((&status["servedBps"], &status["card"]), (&json!(120_000_000), &json!("card0")));
        assert_eq!(
            (find(&status, "Ready")["status"].as_str(), &status["why"]),
            (Some("True"), &Value::Null)
        );
        assert_eq!(find(&status, "Mapped")["reason"], "MAPPED");
        assert_eq!(find(&status, "Ready")["lastTransitionTime"], "1970-01-01T00:16:40Z");
    }

    #[test]
    fn what_does_not_change_is_written_once_and_keeps_its_time() {
        let first = status(&object(Value::Null), Standing::Accepted, Some(&dag()), T1);
        let again = status(&object(first.clone()), Standing::Accepted, Some(&dag()), T2);
        assert_eq!(first, again);
        let mut lost = dag();
        lost.conditions[1] = condition("Ready", Holds::False, "LOST", "a region is lost");
        let changed = status(&object(first), Standing::Accepted, Some(&lost), T2);
        assert_eq!(find(&changed, "Ready")["lastTransitionTime"], "1970-01-01T00:33:20Z");
        assert_eq!(find(&changed, "Mapped")["lastTransitionTime"], "1970-01-01T00:16:40Z");
        assert_eq!(changed["why"], "Ready: a region is lost");
    }

    #[test]
    fn a_refused_change_is_not_ready_and_shows_what_still_serves() {
        let refusal = SpecRefusal::passing("INSUFFICIENT_CAPACITY", "spec.bandwidth: too much");
        let status = status(&object(Value::Null), Standing::Refused(&refusal), Some(&dag()), T1);
        assert_eq!(find(&status, "Accepted")["reason"], "INSUFFICIENT_CAPACITY");
        let ready = find(&status, "Ready");
        assert_eq!(ready["status"], "False");
        assert_eq!(ready["message"], "the DAG is as it was before: spec.bandwidth: too much");
        assert_eq!(find(&status, "Mapped")["status"], "True");
        assert_eq!(status["why"], "Accepted: spec.bandwidth: too much");
        assert_eq!(status["promised"], "1 Gbit/s");
    }

    #[test]
    fn a_change_that_the_card_does_not_have_is_not_ready() {
        let changing = Dag { generation: 3, ..dag() };
        let changing = status(&object(Value::Null), Standing::Accepted, Some(&changing), T1);
        assert_eq!(find(&changing, "Ready")["reason"], "CHANGING");
        let unknown =
            status(&object(Value::Null), Standing::Unknown("no answer"), Some(&dag()), T1);
        assert_eq!(find(&unknown, "Ready")["status"], "Unknown");
        let pending = status(&object(Value::Null), Standing::Accepted, None, T1);
        assert_eq!(
            (&find(&pending, "Ready")["reason"], &pending["dag"]),
            (&json!("PENDING"), &Value::Null)
        );
    }

    #[test]
    fn a_condition_that_explains_another_is_the_reason() {
        let mut dag = dag();
        dag.conditions = vec![
            condition("Ready", Holds::False, "NOT_CONFIGURED", "it is not configured"),
            condition(
                "Configured",
                Holds::False,
                "NOT_TAKEN",
                "the NAT of region 3 did not take it",
            ),
        ];
        let status = status(&object(Value::Null), Standing::Accepted, Some(&dag), T1);
        assert_eq!(status["why"], "Configured: the NAT of region 3 did not take it");
    }

    #[test]
    fn texts_are_bounded() {
        let refusal = SpecRefusal::passing("REFUSED", "é".repeat(100_000));
        let status = status(&object(Value::Null), Standing::Refused(&refusal), None, T1);
        assert!(status.to_string().len() < 3 * MESSAGE_BYTES_MAX);
    }

    #[rstest]
    #[case(0, 0)]
    #[case(7, 7)]
    #[case(99, 99)]
    #[case(994, 990)]
    #[case(995, 1_000)]
    #[case(123_456_789, 120_000_000)]
    #[case(u64::MAX, 18_000_000_000_000_000_000)]
    fn served_rates_have_two_digits(#[case] bps: u64, #[case] shown: u64) {
        assert_eq!(rounded(bps), shown);
    }
}
