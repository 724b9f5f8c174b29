//! Readings of a card's own sensors, its link to the host and its driver, beside what is planned with.
//!
//! A sensor that does not answer is unknown, and never zero or fine.

use serde::{Deserialize, Serialize};

/// Most sensors that count; a card has some twenty.
pub const SENSORS_MAX: usize = 64;

/// Quantity that a sensor measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SensorKind {
    /// A temperature; one is a thousandth of a degree Celsius.
    Temperature,
    /// Power; one is a milliwatt.
    Power,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sensor {
    /// Its name, as its driver has it: `fpga`, `FPGA HBM`.
    pub name: String,
    /// Quantity that it measures.
    pub kind: SensorKind,
    /// Reading in thousandths of the unit; `None` where it does not answer.
    pub milli: Option<i64>,
    /// The value from which on its own driver counts it as too high, if it says so.
    pub limit_milli: Option<i64>,
}

/// A link to the host over PCI Express.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PcieLink {
    /// Megatransfers per second and lane: 8,000 for generation 3.
    pub speed_mts: Option<u32>,
    pub lanes: Option<u32>,
    /// Fastest speed of the card, likewise.
    pub speed_mts_max: Option<u32>,
    /// The lanes that it has.
    pub lanes_max: Option<u32>,
}

impl PcieLink {
    /// Whether it is slower or narrower than the card can be; `None` where that is not known.
    pub fn is_degraded(&self) -> Option<bool> {
        let slower = self.speed_mts? < self.speed_mts_max?;
        Some(slower || self.lanes? < self.lanes_max?)
    }
}

/// The firewall between a card's bus and what is loaded into it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AxiFirewall {
    /// It lets everything pass.
    Quiet,
    /// It has blocked the bus.
    Tripped {
        /// Number of the firewall on the card, counted from 1.
        level: u32,
        /// Status that its driver reports.
        status: String,
    },
}

/// An error that a card's driver reported by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverError {
    /// The driver's code.
    pub code: u64,
    /// When, in the driver's own time: two with the same are one.
    pub time: u64,
    /// Text for people.
    pub text: String,
}

/// Everything that is known of a card's device at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReading {
    /// Its sensors, [`SENSORS_MAX`] at most.
    pub sensors: Vec<Sensor>,
    /// Its link, where it has one that can be read.
    pub link: Option<PcieLink>,
    /// Its firewall; `None` where that is not known.
    pub firewall: Option<AxiFirewall>,
    /// The last error of each class that its driver knows.
    pub errors: Vec<DriverError>,
}

impl DeviceReading {
    /// The sensors of a kind.
    pub fn of_kind(&self, kind: SensorKind) -> impl Iterator<Item = &Sensor> {
        self.sensors.iter().filter(move |sensor| sensor.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_degraded_only_where_all_of_it_is_known() {
        let full = PcieLink {
            speed_mts: Some(8_000),
            lanes: Some(16),
            speed_mts_max: Some(8_000),
            lanes_max: Some(16),
        };
        assert_eq!(full.is_degraded(), Some(false));
        assert_eq!(PcieLink { lanes: Some(8), ..full }.is_degraded(), Some(true));
        assert_eq!(PcieLink { speed_mts: Some(2_500), ..full }.is_degraded(), Some(true));
        assert_eq!(PcieLink { lanes: None, ..full }.is_degraded(), None);
        assert_eq!(PcieLink::default().is_degraded(), None);
    }

    fn sensor(kind: SensorKind, name: &str) -> Sensor {
        Sensor { name: name.into(), kind, milli: None, limit_milli: Some(97_000) }
    }

    #[test]
    fn sensors_are_found_by_what_they_measure_in_their_order() {
        let (hot, power) = (SensorKind::Temperature, SensorKind::Power);
        let sensors = vec![sensor(hot, "FPGA"), sensor(power, "Card"), sensor(hot, "HBM")];
        let reading = DeviceReading { sensors, ..DeviceReading::default() };
        let names =
            |kind| reading.of_kind(kind).map(|sensor| sensor.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names(hot), ["FPGA", "HBM"]);
        assert_eq!(names(power), ["Card"]);
        assert_eq!(DeviceReading::default().of_kind(hot).count(), 0);
    }

    #[test]
    fn what_one_process_reads_another_one_gets() {
        let reading = DeviceReading {
            sensors: vec![sensor(SensorKind::Power, "Card")],
            link: Some(PcieLink { lanes: Some(16), ..PcieLink::default() }),
            firewall: Some(AxiFirewall::Tripped { level: 2, status: "0x80000".into() }),
            errors: vec![DriverError { code: u64::MAX, time: 7, text: "trip".into() }],
        };
        let text = serde_json::to_string(&reading).expect("it has no odd keys");
        assert_eq!(serde_json::from_str::<DeviceReading>(&text).expect("just written"), reading);
        assert!(serde_json::from_str::<DeviceReading>("{}").is_err(), "nothing is left out");
    }
}
