//! Whether a card may be closed for another role: all regions are empty, and no load is under way.

use snic_domain::limits::REGIONS_MAX;
use snic_tables::registers::{
    COMMIT_BUSY, COMMIT_STATUS, LOAD_BUSY, LOAD_STATUS, REGION_COUNT, REGION_IN_FLIGHT, region,
};

use crate::card::{Card, CardError};

/// Obstacle to it, if there is one.
pub(super) fn obstacle(card: &mut dyn Card) -> Result<Option<String>, CardError> {
    if card.read(LOAD_STATUS)? == LOAD_BUSY {
        return Ok(Some("a region is being loaded; try again when it is done".to_owned()));
    }
    if card.read(COMMIT_STATUS)? == COMMIT_BUSY {
        return Ok(Some("packets of an old table version are under way; try again".to_owned()));
    }
    let regions = card.read(REGION_COUNT)?.min(REGIONS_MAX as u32) as u8;
    for number in 0..regions {
        let packets = card.read(region(number, REGION_IN_FLIGHT))?;
        if packets > 0 {
            let text = format!("region {number} still has {packets} packets; try again");
            return Ok(Some(text));
        }
    }
    Ok(None)
}
