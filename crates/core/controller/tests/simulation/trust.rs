//! Trust in images. No DAG here names a tenant as trusted, and the provider signs no tenant's image: so each
//! passes those of the provider and of its own tenant, whatever happens.

use snic_domain::{DagState, DagUid, Mapping, RegionId};
use snic_tables::{ChainRow, DagRow, InstanceRow, NONE, StageRow, TableImage};

use crate::world::{World, card_id};

/// Checks the mappings of DAGs, and for those that are READY where the card's tables, read back, lead their packets: before,
/// the desired and the observed content of a region may differ.
pub fn check(world: &World) {
    for dag in world.controller.dags(None) {
        let is_served = world.is_quiet() && dag.state == DagState::Ready;
        let mapped = dag.mapping.iter().flat_map(Mapping::instances);
        let mapped = mapped.map(|instance| Some(instance.bitstream.clone()));
        let passed =
            regions_of(&world.tables, dag.uid).into_iter().filter(|_| is_served).map(|region| {
                world.controller.region_view(&card_id(), region).and_then(|view| view.bitstream)
            });
        for image in mapped.chain(passed).flatten() {
            let owner = image.as_str().split_once('.').map(|(owner, _)| owner);
            let is_trusted = owner.is_none_or(|owner| owner == dag.name.tenant.as_str());
            assert!(is_trusted, "{} passes {image}\n{}", dag.name, world.log);
        }
    }
}

/// The regions that the rows of a DAG lead to.
fn regions_of(tables: &TableImage, uid: DagUid) -> Vec<RegionId> {
    let row = tables.get::<DagRow>(uid.row()).filter(|row| row.uid == uid.raw());
    let mut regions = Vec::new();
    let mut next = row.map_or(NONE, |row| row.first_stage);
    while next != NONE {
        let Some(stage) = tables.get::<StageRow>(next) else { break };
        for chain in stage.chains.iter().filter(|chain| **chain != NONE) {
            let Some(chain) = tables.get::<ChainRow>(*chain) else { continue };
            let rows = chain.first_instance..chain.first_instance + chain.instances;
            let instances = rows.filter_map(|row| tables.get::<InstanceRow>(row));
            regions.extend(
                instances.map(|instance| RegionId(instance.region().expect("on this card"))),
            );
        }
        next = stage.next;
    }
    regions
}
