//! The simulated card is a card: the port's own suite.

use crate::rig;
use std::sync::Arc;
use std::time::Duration;

use crate::rig::Rig;
use snic_card_sim::{SharedSimCard, SimCard};
use snic_ports::card::conformance::Fixture;

/// The first keeps state.
const CHAINS: [&[rig::Nt]; 2] = [&[(4, 100), (1_005, 100)], &[(6, 40)]];

/// Two images of 20 µs each at 800 MB/s.
fn images() -> [Arc<[u8]>; 2] {
    let rig = Rig::new();
    CHAINS.map(|chain| rig.image(chain, 16_000).into())
}

/// One bit in the middle is enough: the CRC of the configuration packets does not fit any more.
fn damaged() -> Arc<[u8]> {
    let mut image = images()[0].to_vec();
    let middle = image.len() / 2;
    image[middle] ^= 0x10;
    image.into()
}

const STEP: Duration = Duration::from_micros(5);

/// Its NTs take configurations.
mod owned {
    use super::*;

    fn fixture() -> Fixture {
        let card = SimCard::with_windows(rig::profile(), 7).expect("valid profile");
        let card = Box::new(card);
        Fixture {
            card,
            start_load: None,
            loads: true,
            images: images(),
            chains: CHAINS.map(Rig::reported),
            damaged: damaged(),
            step: STEP,
            wait: |_| (),
        }
    }

    snic_ports::card_conformance!(fixture());
}

/// Its shell takes them.
mod shared {
    use super::*;

    fn fixture() -> Fixture {
        let card = SimCard::new(rig::profile(), 7).expect("valid profile");
        let card = SharedSimCard::new(card);
        let shared = card.clone();
        Fixture {
            card: Box::new(card),
            start_load: Some(Box::new(move |load| {
                Box::new(shared.start_load(load).expect("a valid load"))
            })),
            loads: true,
            images: images(),
            chains: CHAINS.map(Rig::reported),
            damaged: damaged(),
            step: STEP,
            wait: |_| (),
        }
    }

    snic_ports::card_conformance!(fixture());
}
