//! Stations behind functions: what a switch learns from the frames that come in.
//!
//! A station belongs to the function that sent from it first, and to no other until it was silent for
//! [`SILENT_MAX`]: who sends with another's address does not get its frames. Each function has
//! [`STATIONS_MAX`] stations at most. A station that a guard names is its function's from the beginning. Stations of a
//! [`Failover`] belong to who sent from them last, among those that may.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
struct StationHome {
    function: u16,
    heard: Timestamp,
}

#[derive(Debug, Default)]
pub(crate) struct Stations {
    homes: HashMap<Station, StationHome>,
    counts: HashMap<u16, usize>,
    /// Stations that move at once, and the functions that may have them.
    moving: BTreeMap<Station, Vec<u16>>,
    /// Stations that guards name, and the functions whose they are.
    held: BTreeMap<Station, BTreeSet<u16>>,
    /// Changes of homes so far.
    changes: u64,
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
    pub(crate) fn learn_outside(&mut self, frame: &[u8]) {
        let station = frame.get(6..12).and_then(|bytes| Station::try_from(bytes).ok());
        if let Some(station) = station.filter(|station| self.moving.contains_key(station)) {
            self.forget(station);
        }
    }

    /// The card stood still for so long: meanwhile no station was heard.
    pub(crate) fn postpone_silence(&mut self, by: Duration) {
        self.homes.values_mut().for_each(|home| home.heard = home.heard + by);
    }

    /// These stations are these functions' alone from now on, and no others are anybody's before they are heard. Those of
    /// failovers go on moving.
    pub(crate) fn hold(&mut self, mut held: BTreeMap<Station, BTreeSet<u16>>) {
        held.retain(|station, _| !self.moving.contains_key(station));
        let is_taken = |(station, functions): (&Station, &BTreeSet<u16>)| {
            let home = self.homes.get(station).filter(|home| !functions.contains(&home.function));
            home.map(|_| *station)
        };
        let taken: Vec<Station> = held.iter().filter_map(is_taken).collect();
        taken.into_iter().for_each(|station| self.forget(station));
        self.held = held;
    }

    /// The stations of failovers that a function may send from.
    pub(crate) fn shared_by(&self, function: u16) -> Vec<Station> {
        let all = self.moving.iter().filter(|(_, functions)| functions.contains(&function));
        all.map(|(station, _)| *station).collect()
    }

    /// Number of times that a station came, moved or went.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    fn forget(&mut self, station: Station) {
        if let Some(home) = self.homes.remove(&station) {
            self.changes += 1;
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
        if self.held.get(&station).is_some_and(|functions| !functions.contains(&function)) {
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
            self.changes += 1;
            self.homes.insert(station, StationHome { function, heard: now });
        }
        true
    }

    fn forget_silent(&mut self, function: u16, now: Timestamp) {
        let keeps =
            |home: &StationHome| home.function != function || now.since(home.heard) < SILENT_MAX;
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
            Some(station) => match (self.homes.get(&station), self.held.get(&station)) {
                (Some(home), _) => Receiver::Function(home.function),
                // A guest that has not said anything yet is found all the same.
                (None, Some(functions)) => match functions.first() {
                    Some(function) if functions.len() == 1 => Receiver::Function(*function),
                    _ => Receiver::Unknown,
                },
                (None, None) => Receiver::Unknown,
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
        stations.postpone_silence(Duration::from_secs(60));
        assert!(!stations.learn(&frame(9, 1), 5, START + Duration::from_secs(359)), "not heard");
        assert!(stations.learn(&frame(9, 1), 5, START + Duration::from_secs(361)));
        assert_eq!(stations.receiver(&frame(1, 9)), Receiver::Function(5));
        assert_eq!(stations.receiver(&frame(2, 9)), Receiver::Unknown);
        assert_eq!(stations.receiver(&[0xff; 14]), Receiver::Group);
        assert_eq!(stations.receiver(&[2]), Receiver::Unknown);
    }

    #[test]
    fn a_station_that_a_guard_names_is_its_functions_before_it_is_heard() {
        let mut stations = Stations::default();
        assert!(stations.learn(&frame(9, 1), 5, START), "nobody has named it");
        let hold = |stations: &mut Stations, functions: &[u16]| {
            let functions = functions.iter().copied().collect();
            stations.hold([([2, 0, 0, 0, 0, 1], functions)].into());
        };
        hold(&mut stations, &[4]);
        assert_eq!(stations.receiver(&frame(1, 9)), Receiver::Function(4), "taken back");
        for later in [START, START + 2 * SILENT_MAX] {
            assert!(!stations.learn(&frame(9, 1), 5, later), "not by silence either");
        }
        assert!(stations.learn(&frame(9, 1), 4, START));
        hold(&mut stations, &[4, 5]);
        assert_eq!(stations.receiver(&frame(1, 9)), Receiver::Function(4), "it was heard there");
        stations.hold(BTreeMap::new());
        assert!(!stations.learn(&frame(9, 1), 5, START), "first come, as ever");
        assert!(stations.learn(&frame(9, 1), 5, START + SILENT_MAX));
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
            stations.learn_outside(&frame(9, from));
        }
        assert_eq!(stations.receiver(&frame(1, 9)), Receiver::Unknown, "it is in the network");
        assert_eq!(stations.receiver(&frame(2, 9)), Receiver::Function(4), "no theft");
        assert!(!stations.learn(&frame(9, 1), 6, START), "nor while it is there");
        assert_eq!(stations.receiver(&frame(1, 9)), Receiver::Unknown, "it may not");
        stations.learn_outside(&[2; 11]);
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
