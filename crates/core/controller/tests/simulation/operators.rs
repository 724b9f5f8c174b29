//! Operators of the simulation: commands for regions and cards, for bitstreams, and maintenance.

use rand::Rng;
use rand::seq::IndexedRandom;
use snic_controller::{Command, OperationRecord, OperationWork};
use snic_domain::RegionId;

use crate::callers::operator;
use crate::world::{CATALOGUE, World, card_id};

/// Something of a region or of the card. A card that takes in nothing any more tells little: mostly it is opened
/// again next.
pub fn of_card(world: &mut World) -> Command {
    let card = card_id();
    let regions = world.profile.regions.len() as u8;
    let region = RegionId(world.rng.random_range(0..regions));
    let is_open = |region| {
        world.controller.region_view(&card, RegionId(region)).is_some_and(|view| !view.cordoned)
    };
    if !(0..regions).any(is_open) && world.chance(60) {
        return Command::Cordon { card, region: None, on: false };
    }
    match world.rng.random_range(0..11) {
        0 | 1 => Command::DrainRegion { card, region },
        2 => Command::UndrainRegion { card, region },
        3 => Command::LoadRole { card, force: world.rng.random_bool(0.5) },
        4 => Command::ResetRegion { card, region },
        5 => Command::OptimizeCard { card },
        6 | 7 => Command::DrainCard { card },
        8 => Command::ResetCard { card, force: world.rng.random_bool(0.5) },
        _ => {
            let region = world.chance(70).then_some(region);
            Command::Cordon { card, region, on: world.rng.random_bool(0.5) }
        }
    }
}

/// Maintenance begins or ends.
pub fn maintain(world: &mut World) -> Command {
    Command::Maintain { reason: world.chance(30).then(|| "new racks".into()) }
}

/// A bitstream is deleted, or registered again.
pub fn bitstream(world: &mut World) -> Command {
    let bitstream = CATALOGUE.bitstreams.choose(&mut world.rng).expect("there are some");
    match world.controller.bitstream(&operator(), &bitstream.id) {
        Some(_) => Command::DeleteBitstream { id: bitstream.id.clone(), image: None, etag: None },
        None => Command::CreateBitstream(bitstream.clone()),
    }
}

/// Whether it goes on until somebody ends it, or until what it waits for is deleted.
pub const fn is_drain(record: &OperationRecord) -> bool {
    matches!(record.work, OperationWork::DrainRegion(..) | OperationWork::DrainCard(_))
}

/// Whether some region is drained alone, and with its card.
pub fn drains_twice(world: &World) -> bool {
    let staff = operator();
    let open = || world.controller.operations(&staff).filter(|view| !view.is_done());
    open().any(|view| matches!(view.record.work, OperationWork::DrainCard(_)))
        && open().any(|view| matches!(view.record.work, OperationWork::DrainRegion(..)))
}
