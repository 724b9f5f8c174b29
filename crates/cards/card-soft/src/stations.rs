//! Stations behind functions: what a switch learns from the frames that come in.
//!
//! A station belongs to the function that sent from it first, and to no other until it was silent for
//! [`SILENT_MAX`]: who sends with another's address does not get its frames. Each function has
//! [`STATIONS_MAX`] stations at most. Stations of a [`Failover`] belong to who sent from them last, among those
//! that may.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use snic_domain::Timestamp;

use crate::failover::Failover;

/// Stations of one function: a guest with some containers behind it.
const STATIONS_MAX: usize = 64;
/// Time that a silent station keeps its function, as a bridge does by default.
const SILENT_MAX: Duration = Duration::from_secs(300);

/// An Ethernet address.
pub(crate) type Station = [u8; 6];

#[derive(Debug, Clone, Copy)]
struct Home {
    function: u16,
    heard: Timestamp,
}

#[derive(Debug, Default)]
pub(crate) struct Stations {
    homes: HashMap<Station, Home>,
    counts: HashMap<u16, usize>,
    /// Stations that move at once, and the functions that may have them.
    moving: BTreeMap<Station, Vec<u16>>,
}

/// Receiver of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiver {
    /// A station behind this function.
    Function(u16),
    /// All, or many.
    Group,
    /// Nobody that is known.
    Unknown,
}

/// Whether an address names a group, or all.
const fn is_group(station: Station) -> bool {
    station[0] & 1 == 1
}

impl Stations {
    /// No station is known yet; those of failovers move.
    pub(crate) fn new(failovers: &[Failover]) -> Self {
        Self { moving: Failover::by_station(failovers), ..Self::default() }
    }

    /// A frame came from the network: a station of a failover that sends there is there.
    pub(crate) fn hear_outside(&mut self, frame: &[u8]) {
        let station = frame.get(6..12).and_then(|bytes| Station::try_from(bytes).ok());
        if let Some(station) = station.filter(|station| self.moving.contains_key(station)) {
            self.forget(station);
        }
    }

    fn forget(&mut self, station: Station) {
        if let Some(home) = self.homes.remove(&station) {
            self.counts.entry(home.function).and_modify(|count| *count -= 1);
        }
    }

    /// A frame came from a function; `false` if its source is another function's.
    pub(crate) fn learn(&mut self, frame: &[u8], function: u16, now: Timestamp) -> bool {
        let Some(station) = frame.get(6..12).and_then(|bytes| Station::try_from(bytes).ok()) else {
            return true;
        };
        if is_group(station) {
            return true;
        }
        let moving = self.moving.get(&station);
        if moving.is_some_and(|functions| !functions.contains(&function)) {
            return false;
        }
        if let Some(home) = self.homes.get_mut(&station) {
            if home.function == function {
                home.heard = now;
                return true;
            }
            if moving.is_none() && now.since(home.heard) < SILENT_MAX {
                return false;
            }
            self.forget(station);
        }
        if self.counts.get(&function).is_some_and(|count| *count >= STATIONS_MAX) {
            self.forget_silent(function, now);
        }
        let count = self.counts.entry(function).or_default();
        if *count < STATIONS_MAX {
            *count += 1;
            self.homes.insert(station, Home { function, heard: now });
        }
        true
    }

    fn forget_silent(&mut self, function: u16, now: Timestamp) {
        let keeps = |home: &Home| home.function != function || now.since(home.heard) < SILENT_MAX;
        self.homes.retain(|_, home| keeps(home));
        let left = self.homes.values().filter(|home| home.function == function).count();
        self.counts.insert(function, left);
    }

    /// The function of the station that a frame is from; `None` where it is of the network, or not known.
    pub(crate) fn sender(&self, frame: &[u8]) -> Option<u16> {
        let station = Station::try_from(frame.get(6..12)?).ok()?;
        self.homes.get(&station).map(|home| home.function)
    }

    /// Receiver of a frame.
    pub(crate) fn receiver(&self, frame: &[u8]) -> Receiver {
        match frame.get(..6).and_then(|bytes| Station::try_from(bytes).ok()) {
            None => Receiver::Unknown,
            Some(station) if is_group(station) => Receiver::Group,
            Some(station) => match self.homes.get(&station) {
                Some(home) => Receiver::Function(home.function),
                None => Receiver::Unknown,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::ZERO;

    fn frame(to: u8, from: u8) -> [u8; 14] {
        let mut frame = [0; 14];
        (frame[0], frame[5], frame[6], frame[11]) = (2, to, 2, from);
        frame
    }

    #[test]
    fn a_station_belongs_to_who_sent_first_until_it_is_silent() {
        let mut stations = Stations::default();
        assert!(stations.learn(&frame(9, 1), 4, START));
        assert_eq!(stations.receiver(&frame(1, 9)), Receiver::Function(4));
        assert!(!stations.learn(&frame(9, 1), 5, START + Duration::from_secs(299)));
        assert_eq!(stations.receiver(&frame(1, 9)), Receiver::Function(4), "no theft");
        assert_eq!(stations.sender(&frame(9, 1)), Some(4));
        assert_eq!((stations.sender(&frame(1, 9)), stations.sender(&[2; 11])), (None, None));
        assert!(stations.learn(&frame(9, 1), 5, START + Duration::from_secs(301)));
        assert_eq!(stations.receiver(&frame(1, 9)), Receiver::Function(5));
        assert_eq!(stations.receiver(&frame(2, 9)), Receiver::Unknown);
        assert_eq!(stations.receiver(&[0xff; 14]), Receiver::Group);
        assert_eq!(stations.receiver(&[2]), Receiver::Unknown);
    }

    #[test]
    fn a_station_of_a_failover_goes_to_who_sent_last_among_those_that_may() {
        let macs = vec![snic_nts::config::Mac([2, 0, 0, 0, 0, 1])];
        let mut stations = Stations::new(&[Failover { macs, functions: vec![4, 5] }]);
        for _ in 0..1_000 {
            for function in [4, 5] {
                assert!(stations.learn(&frame(9, 1), function, START));
                assert_eq!(stations.receiver(&frame(1, 9)), Receiver::Function(function));
                assert!(!stations.learn(&frame(9, 1), 6, START + SILENT_MAX), "another's");
                assert_eq!(stations.receiver(&frame(1, 9)), Receiver::Function(function));
            }
        }
        assert_eq!((stations.counts[&4], stations.counts[&5]), (0, 1));
        stations.learn(&frame(9, 2), 4, START);
        for from in [1, 2] {
            stations.hear_outside(&frame(9, from));
        }
        assert_eq!(stations.receiver(&frame(1, 9)), Receiver::Unknown, "it is in the network");
        assert_eq!(stations.receiver(&frame(2, 9)), Receiver::Function(4), "no theft");
        assert!(!stations.learn(&frame(9, 1), 6, START), "nor while it is there");
        assert_eq!(stations.receiver(&frame(1, 9)), Receiver::Unknown, "it may not");
        stations.hear_outside(&[2; 11]);
    }

    #[test]
    fn a_function_that_sends_from_every_address_takes_a_bounded_number() {
        let mut stations = Stations::default();
        for from in 0..=255 {
            assert!(stations.learn(&frame(9, from), 1, START));
        }
        assert_eq!(stations.homes.len(), STATIONS_MAX);
        assert!(stations.learn(&frame(9, 200), 2, START));
        assert_eq!(
            stations.receiver(&frame(200, 9)),
            Receiver::Function(2),
            "others have their own"
        );
        let later = START + SILENT_MAX;
        assert!(stations.learn(&frame(9, 250), 1, later));
        assert_eq!(stations.receiver(&frame(250, 9)), Receiver::Function(1), "the silent went");
        assert_eq!(stations.homes.len(), 2);
    }
}
