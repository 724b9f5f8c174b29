//! The next step for an object: from what it asks for, and what the server has, without I/O.
//!
//! Nothing remembers which step was last. A controller that is killed between two steps takes the next one from the same
//! comparison: the DAG says by its labels whose it is, and the finalizer is there before the DAG is.

use std::collections::BTreeMap;

use snic_api::convert;
use snic_api::v1::Dag;
use snic_api::v1::dag::State;
use snic_domain::DagSpec;

use super::object::ObjectHead;
use super::spec::{SpecRefusal, UID_LABEL, WantedDag};

/// A step.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The object is to wait for the controller before it goes.
    AddFinalizer,
    /// Nothing is left on the server: the object may go.
    RemoveFinalizer,
    /// Creates the DAG.
    Create(Box<Dag>),
    /// Sets all that the object says; the etag in the DAG guards it.
    Update(Box<Dag>),
    /// Deletes the DAG, if this is still its etag.
    Delete { etag: String },
    /// A DAG is going; the server reports when it has gone.
    Wait,
    /// The specification is not accepted.
    Refuse(SpecRefusal),
    /// The server has what the object asks for.
    Settled,
}

/// Whether a DAG was made for this object.
pub fn is_of(dag: &Dag, head: &ObjectHead) -> bool {
    dag.labels.get(UID_LABEL) == Some(&head.uid)
}

/// The part of a DAG that is compared: in the order of ids, and without configurations, whose secrets the server does not show. The
/// label with the specification's digest is for those.
fn comparable(dag: &Dag) -> Option<(DagSpec, BTreeMap<String, String>)> {
    let mut spec = convert::dag::spec(dag).ok()?;
    for node in &mut spec.nodes {
        node.configuration = None;
    }
    spec.nodes.sort_by(|a, b| a.id.cmp(&b.id));
    spec.edges.sort_by(|a, b| (&a.from, &a.to).cmp(&(&b.from, &b.to)));
    Some((spec, dag.labels.clone().into_iter().collect()))
}

/// The next step for an object, with the DAG of its name on the server.
pub fn next_step(
    head: &ObjectHead,
    wanted: &Result<WantedDag, SpecRefusal>,
    present: Option<&Dag>,
) -> Step {
    let ours = present.filter(|dag| is_of(dag, head));
    let is_going = |dag: &Dag| dag.state() == State::Deleting;
    if head.is_deleting {
        return match ours {
            _ if !head.has_finalizer => Step::Settled,
            None => Step::RemoveFinalizer,
            Some(dag) if is_going(dag) => Step::Wait,
            Some(dag) => Step::Delete { etag: dag.etag.clone() },
        };
    }
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(refusal) => return Step::Refuse(refusal.clone()),
    };
    match (present, ours) {
        (Some(dag), _) if is_going(dag) => Step::Wait,
        (Some(_), None) => Step::Refuse(SpecRefusal::passing(
            "RESOURCE_EXISTS",
            format!(
                "{} exists and was not made for this object; delete it, or choose another name",
                wanted.dag.name
            ),
        )),
        _ if !head.has_finalizer => Step::AddFinalizer,
        (None, _) => Step::Create(Box::new(wanted.dag.clone())),
        (Some(_), Some(dag)) if comparable(dag) == comparable(&wanted.dag) => Step::Settled,
        (Some(_), Some(dag)) => {
            Step::Update(Box::new(Dag { etag: dag.etag.clone(), ..wanted.dag.clone() }))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};
    use snic_domain::TenantId;

    use super::*;
    use crate::dags::object::ObjectKey;
    use crate::dags::spec::{SPEC_LABEL, dag_name, wanted_dag};

    fn head() -> ObjectHead {
        ObjectHead {
            key: ObjectKey { namespace: "shop".to_owned(), name: "web".to_owned() },
            uid: "0c5f4b9e-0d4c-4b3e-9a55-6f1f5f0f2f11".to_owned(),
            generation: 1,
            is_deleting: false,
            has_finalizer: true,
        }
    }

    fn spec() -> Value {
        json!({
            "bandwidth": "1Gbps",
            "nodes": [{"id": "b", "type": "aes"}, {"id": "a", "type": "nat", "configuration": {"secret": "x"}}],
            "edges": [{"from": "a", "to": "b"}],
        })
    }

    fn wanted(spec: &Value) -> Result<WantedDag, SpecRefusal> {
        let name = dag_name(&head(), &TenantId::new("acme").expect("an id"))?;
        wanted_dag(&head(), spec, &name, &BTreeSet::new())
    }

    /// The DAG as the server shows it: ready, with defaults filled in and secrets as digests.
    fn shown() -> Dag {
        let mut dag = wanted(&spec()).expect("valid").dag;
        dag.etag = "7".to_owned();
        dag.set_state(State::Ready);
        dag.packet_sizes = convert::dag::packet_sizes_to_wire(&snic_domain::PacketSizes::default());
        let digest = json!({"secret": "sha256:00"});
        dag.nodes[1].configuration = Some(convert::object::of_json(&digest));
        dag.nodes.reverse();
        dag
    }

    #[test]
    fn from_an_object_to_a_dag_that_is_as_it_says() {
        let without = ObjectHead { has_finalizer: false, ..head() };
        let wanted = wanted(&spec());
        assert_eq!(next_step(&without, &wanted, None), Step::AddFinalizer);
        let create = Step::Create(Box::new(wanted.as_ref().expect("valid").dag.clone()));
        assert_eq!(next_step(&head(), &wanted, None), create);
        assert_eq!(next_step(&head(), &wanted, Some(&shown())), Step::Settled);
        // Killed after it was created, by a controller that did not write the status: nothing is created twice.
        assert_eq!(next_step(&without, &wanted, Some(&shown())), Step::AddFinalizer);
    }

    #[test]
    fn what_differs_is_set_under_the_etag() {
        for change in [
            |dag: &mut Dag| dag.bandwidth_bps = 2_000_000_000,
            |dag: &mut Dag| drop(dag.edges.pop()),
            |dag: &mut Dag| dag.latency_sensitive = true,
            |dag: &mut Dag| dag.description = "by hand".to_owned(),
            |dag: &mut Dag| drop(dag.labels.insert("by".to_owned(), "hand".to_owned())),
            |dag: &mut Dag| drop(dag.labels.insert(SPEC_LABEL.to_owned(), "0".to_owned())),
        ] {
            let mut dag = shown();
            change(&mut dag);
            let Step::Update(update) = next_step(&head(), &wanted(&spec()), Some(&dag)) else {
                panic!("{dag:?}")
            };
            assert_eq!((update.etag.as_str(), update.bandwidth_bps), ("7", 1_000_000_000));
        }
    }

    #[test]
    fn a_dag_of_somebody_else_is_neither_changed_nor_deleted() {
        let mut other = shown();
        other.labels.remove(UID_LABEL);
        let Step::Refuse(refusal) = next_step(&head(), &wanted(&spec()), Some(&other)) else {
            panic!("not refused")
        };
        assert_eq!((refusal.reason.as_str(), refusal.may_pass), ("RESOURCE_EXISTS", true));
        let deleting = ObjectHead { is_deleting: true, ..head() };
        assert_eq!(next_step(&deleting, &wanted(&spec()), Some(&other)), Step::RemoveFinalizer);
        other.labels.insert(UID_LABEL.to_owned(), "that of an earlier object".to_owned());
        assert_eq!(next_step(&deleting, &wanted(&spec()), Some(&other)), Step::RemoveFinalizer);
    }

    #[test]
    fn an_object_goes_when_its_dag_has_gone() {
        let deleting = ObjectHead { is_deleting: true, ..head() };
        // Whatever it asks for by then.
        let invalid = Err(SpecRefusal::lasting("INVALID_FIELD", "no"));
        let mut dag = shown();
        assert_eq!(
            next_step(&deleting, &invalid, Some(&dag)),
            Step::Delete { etag: "7".to_owned() }
        );
        dag.set_state(State::Deleting);
        assert_eq!(next_step(&deleting, &invalid, Some(&dag)), Step::Wait);
        assert_eq!(next_step(&deleting, &invalid, None), Step::RemoveFinalizer);
        let free = ObjectHead { has_finalizer: false, ..deleting };
        assert_eq!(next_step(&free, &invalid, None), Step::Settled);
    }

    #[test]
    fn an_object_of_the_same_name_waits_for_the_dag_that_goes() {
        let mut dag = shown();
        dag.labels.insert(UID_LABEL.to_owned(), "that of an earlier object".to_owned());
        dag.set_state(State::Deleting);
        assert_eq!(next_step(&head(), &wanted(&spec()), Some(&dag)), Step::Wait);
    }

    #[test]
    fn an_invalid_specification_leaves_the_dag_as_it_is() {
        let refusal = SpecRefusal::lasting("INVALID_FIELD", "no");
        let step = next_step(&head(), &Err(refusal.clone()), Some(&shown()));
        assert_eq!(step, Step::Refuse(refusal));
    }
}
