//! Whose images packets pass. No DAG here names a tenant as trusted, and the provider signs no tenant's image: so each
//! passes those of the provider and of its own tenant, whatever happens.

use snic_domain::{DagUid, Mapping, RegionId};
use snic_tables::{ChainRow, DagRow, InstanceRow, NONE, StageRow, TableImage};

use crate::world::{World, card_id};

/// What DAGs are mapped to, and when all is quiet where the card's tables lead their packets: before, what a region is to
/// hold and what it holds may be two things.
pub fn check(world: &World) {
    let is_quiet = world.is_quiet();
    for dag in world.controller.dags(None) {
        let mapped = dag.mapping.iter().flat_map(Mapping::instances);
        let mapped = mapped.map(|instance| Some(instance.bitstream.clone()));
        let passed =
            regions_of(&world.tables, dag.uid).into_iter().filter(|_| is_quiet).map(|region| {
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
            regions.extend(instances.map(|instance| RegionId(instance.region)));
        }
        next = stage.next;
    }
    regions
}
