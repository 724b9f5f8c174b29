//! Why a DAG is where it is, or nowhere.

use snic_domain::DagName;

use super::Fleet;
use crate::placement::PlaceDag;
use crate::protocol::{Denied, FleetDag, FleetExplanation, FleetReply};

impl Fleet {
    /// Looks at all hosts as they are now, without a plan. Time O(cards).
    pub(super) fn explain(&self, name: &DagName) -> Result<FleetReply, Denied> {
        let entry = self.dags.get(name).ok_or_else(|| Denied::NotFound(name.to_string()))?;
        let record = entry.of();
        let mut constraints = record.constraints_now();
        self.add_affinities(name, &record.spec, &mut constraints);
        let (dag, policy) = (&entry.dag, record.policy);
        let hosts =
            self.inventory.survey(&PlaceDag { name, dag, constraints: &constraints, policy });
        let place = record.place.as_ref();
        let at = place.and_then(|place| {
            let host = self.host(&place.card.host)?.record.value();
            let model = host.spec.cards.get(&place.card.card)?.profile.model.clone();
            Some((model, host.spec.zone.clone(), host.spec.rack.clone()))
        });
        Ok(FleetReply::Explained(Box::new(FleetExplanation {
            dag: FleetDag::of(record),
            at,
            regions: place.map_or(0, |place| place.loads().len()),
            hosts,
            refusals: record.refusals.clone(),
        })))
    }
}
