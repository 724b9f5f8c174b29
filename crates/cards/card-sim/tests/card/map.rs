//! The card has the registers of the map, and no others.

use crate::rig;
use snic_card_sim::SimCard;
use snic_ports::card::{CardError, Registers};
use snic_tables::registers::*;

#[test]
fn every_address_is_a_register_exactly_where_the_map_has_one() {
    let mut card = SimCard::new(rig::profile(), 7).expect("a valid profile");
    let absent = region(rig::profile().regions.len() as u8, 0)..PACKETS_IN;
    let behind = SHADOW_BANK + BANK_BYTES + 4_096;
    for at in (0..behind).filter(|at| !absent.contains(at)) {
        let read = card.read(at);
        let expected = if is_register(at) { Ok(()) } else { Err(CardError::NoRegister(at)) };
        assert_eq!(read.map(|_| ()), expected, "{at:#x}");
    }
}
