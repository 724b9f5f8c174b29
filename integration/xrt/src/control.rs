//! The protocol between tests and a device in a separate process: one request a connection, one
//! reply.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use snic_card_sim::{IMIX, SharedSimCard, SimCard, Sizes, TrafficSource};
use snic_domain::{Bandwidth, DagUid};
use snic_ports::card::Registers as _;
use snic_tables::registers::*;

use crate::serve::{Shared, Trap, lock};

/// A test's request to a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Sends each DAG this many bits per second, for this many microseconds of the card's time.
    Drive {
        /// DAGs by the raw form of their UIDs, and bits per second.
        flows: Vec<(u32, u64)>,
        micros: u64,
    },
    /// Sets the next fault.
    Trap(Option<Trap>),
    /// The accesses over the wire, and the card's counters.
    Report,
}

/// A device's report about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Registers read, one call each.
    pub reads: u64,
    /// Registers written, one call each.
    pub writes: u64,
    /// Bytes copied to the device's memory.
    pub bytes_in: u64,
    /// Words of table rows, by register or in bulk.
    pub table_words: u64,
    pub loads: u64,
    /// Every counter and every table word that is not zero, by address.
    pub registers: Vec<(Address, u32)>,
    /// Configurations that NTs hold: region and slot, UID of the DAG, words.
    pub held: Vec<([u8; 2], u32, Vec<u32>)>,
}

/// Sends traffic at DAGs, by the raw form of their UIDs, and waits until the last packet is out;
/// returns the card's state then, before any other access.
///
/// # Panics
/// Where a source is not valid.
pub fn drive(card: &SharedSimCard, flows: &[(u32, u64)], micros: u64) -> Vec<(Address, u32)> {
    card.with(|card| {
        let sources: Vec<_> = flows
            .iter()
            .map(|&(uid, bps)| {
                let sizes = Sizes::Mix(IMIX.to_vec());
                let uid = DagUid::from_raw(uid);
                let source = TrafficSource::of_dag(uid, Bandwidth::from_bps(bps), sizes).poisson();
                card.attach(source).expect("a valid source")
            })
            .collect();
        let cycles = card.profile().clock_hz / 1_000_000 * micros;
        card.run_for(cycles);
        for source in sources {
            card.detach(source);
        }
        card.run_for(cycles);
        dump(card)
    })
}

/// Every counter, every region's state, and every word of the active bank that is not zero.
///
/// # Panics
/// Where the card is lost.
pub fn dump(card: &mut SimCard) -> Vec<(Address, u32)> {
    let counters = (PACKETS_IN..DAG_LOAD + 1_024 * DAG_LOAD_ROW).step_by(4);
    let bank = (ACTIVE_BANK..ACTIVE_BANK + BANK_BYTES).step_by(4);
    let regions = (REGIONS..PACKETS_IN).step_by(4);
    counters
        .chain(bank)
        .chain(regions)
        .filter(|at| is_register(*at) && !(WINDOW..WINDOW + WINDOW_BYTES).contains(at))
        .map(|at| (at, card.read(at).expect("the card answers")))
        .filter(|(_, word)| *word != 0)
        .collect()
}

/// Serves the requests of tests on a socket, until the process ends.
///
/// # Errors
/// The socket cannot be bound, or a test does not follow the protocol of [`ask`].
pub fn listen(path: &Path, shared: &Arc<Shared>, card: &SharedSimCard) -> io::Result<()> {
    for connection in UnixListener::bind(path)?.incoming() {
        let mut connection = connection?;
        let mut bytes = Vec::new();
        connection.read_to_end(&mut bytes)?;
        let ask = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
        let registers = match ask {
            Ask::Drive { flows, micros } => drive(card, &flows, micros),
            Ask::Trap(trap) => {
                *lock(&shared.trap) = trap;
                card.with(dump)
            }
            Ask::Report => card.with(dump),
        };
        let loads = card.with(|card| card.accesses().loads);
        let held = card.with(|card| card.held_configurations());
        let held = held.into_iter().map(|one| ([one.region, one.slot], one.uid, one.words));
        let report = DeviceReport { held: held.collect(), ..report(shared, loads, registers) };
        connection.write_all(&postcard::to_stdvec(&report).map_err(io::Error::other)?)?;
    }
    Ok(())
}

fn report(shared: &Shared, loads: u64, registers: Vec<(Address, u32)>) -> DeviceReport {
    let traffic = &shared.traffic;
    DeviceReport {
        reads: traffic.reads.load(Ordering::Relaxed),
        writes: traffic.writes.load(Ordering::Relaxed),
        bytes_in: traffic.bytes_in.load(Ordering::Relaxed),
        table_words: traffic.table_words.load(Ordering::Relaxed),
        loads,
        registers,
        held: Vec::new(),
    }
}

/// Sends a request to a device.
///
/// # Errors
/// The device cannot be reached, or does not reply.
pub fn ask(path: &Path, ask: &Ask) -> io::Result<DeviceReport> {
    let mut connection = UnixStream::connect(path)?;
    connection.write_all(&postcard::to_stdvec(ask).map_err(io::Error::other)?)?;
    connection.shutdown(std::net::Shutdown::Write)?;
    let mut bytes = Vec::new();
    connection.read_to_end(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}
