//! Configurations of NTs on a card whose NTs take them by their windows: wherever packets meet an NT that their DAG
//! configures, that NT has what the DAG's row names.

use std::collections::BTreeSet;

use snic_controller::DagView;
use snic_domain::{DagState, NtCode, RegionId};
use snic_ports::card::windows::HeldConfiguration;
use snic_tables::{ChainRow, DagRow, InstanceRow, NONE, StageRow, Table, TableImage};

use crate::world::World;

/// Region and slot, UID and tag: what packets look for.
type Place = (u8, u8, u32, u32);

/// Codes of the NT types that a DAG configures.
fn configured(dag: &DagView) -> BTreeSet<NtCode> {
    let nodes = dag.spec.nodes.iter().filter(|node| node.configuration.is_some());
    nodes.map(|node| node.nt.code()).collect()
}

/// The configurations that packets look for by the card's tables. Whose NTs are configured says the DAG's spec, and which NT is in a slot says the
/// region itself.
fn wanted(world: &World) -> BTreeSet<Place> {
    let mut wanted = BTreeSet::new();
    for dag in world.controller.dags(None) {
        let row = world.tables.get::<DagRow>(dag.uid.row());
        let row = row.filter(|row| row.uid == dag.uid.raw() && row.configuration != 0);
        let Some(row) = row else { continue };
        let nts = configured(&dag);
        let met = slots(&world.tables, &row).into_iter().filter(|(region, slot)| {
            nts.contains(&world.card.nts_in(RegionId(*region))[usize::from(*slot)])
        });
        wanted.extend(met.map(|(region, slot)| (region, slot, row.uid, row.configuration)));
    }
    wanted
}

fn held(world: &World) -> BTreeSet<Place> {
    let place = |HeldConfiguration { region, slot, uid, tag, .. }: HeldConfiguration| {
        (region, slot, uid, tag)
    };
    world.card.held_configurations().into_iter().map(place).collect()
}

/// When all is quiet: NTs hold what packets look for and nothing else. Gives how many they hold.
pub fn check_quiet(world: &World) -> u64 {
    if !world.card.has_windows() {
        return 0;
    }
    let (wanted, held) = (wanted(world), held(world));
    let missing: Vec<_> = wanted.difference(&held).collect();
    assert!(missing.is_empty(), "packets look for {missing:?} in vain\n{}", world.log);
    let left: Vec<_> = held.difference(&wanted).collect();
    assert!(left.is_empty(), "nobody looks for {left:?}\n{}", world.log);
    held.len() as u64
}

/// At any time: of each row with a configuration that the card's active tables have, some NT has it, and so have all NTs of
/// the same type that its packets meet. Where NTs refused some, that is asked of DAGs that are said to be ready.
pub fn check(world: &mut World) {
    if !world.card.has_windows() {
        return;
    }
    if world.card.refused_configurations() > 0 {
        return check_ready(world);
    }
    let tables = world.card.active_tables();
    let held = held(world);
    let code = |region: u8, slot: u8| world.card.nts_in(RegionId(region))[usize::from(slot)];
    let told: BTreeSet<_> =
        held.iter().map(|&(region, slot, uid, tag)| (uid, tag, code(region, slot))).collect();
    for row in 0..Table::Dag.rows() as u16 {
        let Some(dag) = tables.get::<DagRow>(row).filter(|dag| dag.configuration != 0) else {
            continue;
        };
        let met = slots(&tables, &dag).into_iter().filter(|&(region, slot)| {
            told.contains(&(dag.uid, dag.configuration, code(region, slot)))
        });
        let met: Vec<_> = met.collect();
        assert!(!met.is_empty(), "nobody has the configuration of {dag:?}\n{}", world.log);
        for (region, slot) in met {
            let place = (region, slot, dag.uid, dag.configuration);
            assert!(held.contains(&place), "{place:?} is missing\n{}", world.log);
        }
    }
}

/// While nothing is on its way: no DAG is said to be ready whose packets meet an NT that lacks its configuration.
fn check_ready(world: &World) {
    if !world.is_quiet() {
        return;
    }
    let (wanted, held) = (wanted(world), held(world));
    let missing: BTreeSet<u32> = wanted.difference(&held).map(|&(_, _, uid, _)| uid).collect();
    for dag in world.controller.dags(None) {
        let is_wrong = dag.state == DagState::Ready && missing.contains(&dag.uid.raw());
        assert!(!is_wrong, "{} is ready without its configuration\n{}", dag.name, world.log);
    }
}

fn slots(tables: &TableImage, dag: &DagRow) -> Vec<(u8, u8)> {
    let (mut slots, mut next) = (Vec::new(), dag.first_stage);
    while next != NONE {
        let Some(stage) = tables.get::<StageRow>(next) else { break };
        for chain in stage.chains.iter().filter(|chain| **chain != NONE) {
            let Some(chain) = tables.get::<ChainRow>(*chain) else { continue };
            let rows = chain.first_instance..chain.first_instance + chain.instances;
            for instance in rows.filter_map(|row| tables.get::<InstanceRow>(row)) {
                let used = (0..8).filter(move |slot| instance.used_mask() >> slot & 1 == 1);
                slots.extend(used.map(|slot| (instance.region().expect("on this card"), slot)));
            }
        }
        next = stage.next;
    }
    slots
}
