//! A simulated card behind XRT's emulation of hardware: `snic-xrt-device USER CONTROL SEED BULK`.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use snic_bitstream::catalogue;
use snic_card_sim::{SharedSimCard, SimCard};
use snic_integration_xrt::device::{Clock, Device};
use snic_integration_xrt::emulation::SOCKET_ID;
use snic_integration_xrt::{control, serve};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [user, control, seed, has_bulk] = &arguments[..] else {
        bail!("usage: snic-xrt-device USER CONTROL SEED true|false");
    };
    let catalogue = catalogue::builtin().context("read the built-in catalogue")?;
    let profile = catalogue.card(&"sim-16".parse()?).context("the catalogue has it")?.clone();
    let card = SharedSimCard::new(SimCard::with_windows(profile, seed.parse()?)?);
    let shared = serve::Shared::new(Device::new(card.clone(), has_bulk.parse()?, Clock::Wall));
    serve::start(&shared, user, SOCKET_ID)?;
    control::listen(Path::new(control), &shared, &card).context("listen for the tests")
}
