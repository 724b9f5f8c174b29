//! The health of a card's device: what was read of it last, what that means, and whether new DAGs may go there.
//!
//! ```text
//!            a sensor at its limit, or the firewall blocks
//! fit ───────────────────────────────────────────────────────► unfit: no new placements
//!  ▲                                                              │
//!  └── each sensor that was hot says that it is clearly cooler, ──┘
//!      and the firewall is known to be quiet
//! ```
//!
//! Unknown is no way from one to the other: a card that was never hot takes DAGs though its sensors do not
//! answer, and a hot one takes none until they say that it is not.

use std::collections::BTreeSet;

use snic_domain::{
    AxiFirewall, ConditionStatus, DeviceReading, SENSORS_MAX, Sensor, SensorKind, Timestamp,
};

use crate::protocol::{DeviceAspect, DeviceCondition, DevicePolicy, DeviceView};

/// Result of a reading.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceNews {
    /// Aspects that are not fine any more, or are again, with what is said of each.
    pub changed: Vec<(ConditionStatus, String)>,
    /// Errors of the driver that were not known.
    pub errors: Vec<String>,
    /// Whether the card may take new DAGs is not as before.
    pub fitness_changed: bool,
    /// Something that is shown is not as before.
    pub is_news: bool,
}

/// The health of one card's device.
#[derive(Debug, Default)]
pub(crate) struct DeviceHealth {
    /// Since something was read.
    state: Option<DeviceState>,
}

#[derive(Debug)]
struct DeviceState {
    reading: DeviceReading,
    at: Timestamp,
    /// Sensors that are too hot.
    hot: BTreeSet<String>,
    is_blocked: bool,
    conditions: Vec<DeviceCondition>,
    /// Errors of the driver that were news.
    errors_seen: u64,
}

impl DeviceHealth {
    /// Whether new DAGs may be placed on it.
    pub fn is_fit(&self) -> bool {
        self.state.as_ref().is_none_or(|state| state.hot.is_empty() && !state.is_blocked)
    }

    /// View of it; `None` where nothing was ever read.
    pub fn view(&self) -> Option<DeviceView> {
        let state = self.state.as_ref()?;
        Some(DeviceView {
            reading: state.reading.clone(),
            at: state.at,
            conditions: state.conditions.clone(),
            is_fit: self.is_fit(),
            errors_seen: state.errors_seen,
        })
    }

    /// Takes a reading.
    pub fn read(
        &mut self,
        reading: DeviceReading,
        policy: &DevicePolicy,
        now: Timestamp,
    ) -> DeviceNews {
        let was_fit = self.is_fit();
        let before = self.state.take();
        let mut hot = before.as_ref().map(|state| state.hot.clone()).unwrap_or_default();
        let was_blocked = before.as_ref().is_some_and(|state| state.is_blocked);
        let is_blocked = match &reading.firewall {
            None => was_blocked,
            Some(firewall) => *firewall != AxiFirewall::Quiet,
        };
        let mut news = DeviceNews::default();
        // The errors that a driver kept from before the first reading are no news.
        if let Some(before) = &before {
            let known = |error| before.reading.errors.contains(error);
            let errors = reading.errors.iter().filter(|error| !known(error));
            news.errors.extend(errors.map(|error| error.text.clone()));
        }
        let judged = [
            (DeviceAspect::Temperature, judge_temperature(&reading, policy, &mut hot)),
            (DeviceAspect::Firewall, judge_firewall(&reading)),
            (DeviceAspect::Link, judge_link(&reading)),
        ];
        let mut conditions = Vec::new();
        for (aspect, (status, message)) in judged {
            let last = before.as_ref().and_then(|state| state.condition(aspect));
            let since = last.filter(|last| last.status == status).map_or(now, |last| last.since);
            let was_false = last.is_some_and(|last| last.status == ConditionStatus::False);
            let is_false = status == ConditionStatus::False;
            if is_false && !was_false || was_false && status == ConditionStatus::True {
                news.changed.push((status, message.clone()));
            }
            news.is_news |= last.is_none_or(|last| last.status != status);
            conditions.push(DeviceCondition { aspect, status, message, since });
        }
        self.state = Some(DeviceState {
            reading,
            at: now,
            hot,
            errors_seen: before.map_or(0, |state| state.errors_seen) + news.errors.len() as u64,
            is_blocked,
            conditions,
        });
        news.fitness_changed = self.is_fit() != was_fit;
        news.is_news |= news.fitness_changed;
        news
    }
}

impl DeviceState {
    fn condition(&self, aspect: DeviceAspect) -> Option<&DeviceCondition> {
        self.conditions.iter().find(|condition| condition.aspect == aspect)
    }
}

/// The limit of a sensor: its own, else that of the policies. In thousandths of a degree.
fn limit_of(sensor: &Sensor, policy: &DevicePolicy) -> i64 {
    let of_policy = i64::from(policy.temperature_max_celsius) * 1_000;
    sensor.limit_milli.filter(|limit| *limit > 0).unwrap_or(of_policy)
}

/// Sensors in `hot` were at their limit, and did not say since that they are clearly below it.
fn judge_temperature(
    reading: &DeviceReading,
    policy: &DevicePolicy,
    hot: &mut BTreeSet<String>,
) -> (ConditionStatus, String) {
    let margin = i64::from(policy.temperature_margin_celsius) * 1_000;
    let sensors = || reading.of_kind(SensorKind::Temperature);
    let known =
        || sensors().filter_map(|sensor| Some((sensor, sensor.milli?, limit_of(sensor, policy))));
    for (sensor, milli, limit) in known() {
        if milli >= limit && hot.len() < SENSORS_MAX {
            hot.insert(sensor.name.clone());
        }
        if milli <= limit.saturating_sub(margin) {
            hot.remove(&sensor.name);
        }
    }
    // The hot one that is nearest to its limit or farthest beyond it, else the one that is.
    let is_hot = |sensor: &Sensor| hot.contains(&sensor.name);
    let nearest =
        known().max_by_key(|(sensor, milli, limit)| (is_hot(sensor), milli.saturating_sub(*limit)));
    match (hot.first(), nearest) {
        (Some(_), Some((sensor, milli, limit))) if is_hot(sensor) => {
            let text = format!(
                "{} is at {} °C, its limit is {} °C; new DAGs are placed again at {} °C or below",
                sensor.name,
                celsius(milli),
                celsius(limit),
                celsius(limit.saturating_sub(margin))
            );
            (ConditionStatus::False, text)
        }
        (Some(name), _) => {
            let text = format!("{name} was at its limit, and does not answer now");
            (ConditionStatus::Unknown, text)
        }
        (None, Some((sensor, milli, limit))) => {
            let text = format!(
                "{} is at {} °C, below its limit of {} °C",
                sensor.name,
                celsius(milli),
                celsius(limit)
            );
            (ConditionStatus::True, text)
        }
        (None, None) => (ConditionStatus::Unknown, "no temperature sensor answers".to_owned()),
    }
}

/// Thousandths of a degree in degrees, with one place.
fn celsius(milli: i64) -> String {
    format!("{:.1}", milli as f64 / 1e3)
}

fn judge_firewall(reading: &DeviceReading) -> (ConditionStatus, String) {
    match &reading.firewall {
        None => {
            let text = "the state of its AXI firewall is not known".to_owned();
            (ConditionStatus::Unknown, text)
        }
        Some(AxiFirewall::Quiet) => {
            (ConditionStatus::True, "its AXI firewall lets everything pass".to_owned())
        }
        Some(AxiFirewall::Tripped { level, status }) => {
            let text = format!(
                "its AXI firewall {level} has blocked the bus ({status}); reset the card with \
                 `snicctl card reset`"
            );
            (ConditionStatus::False, text)
        }
    }
}

/// A slow link keeps nobody away: what goes over it is control.
fn judge_link(reading: &DeviceReading) -> (ConditionStatus, String) {
    let link = reading.link.unwrap_or_default();
    let word = |value: Option<u32>| value.map_or_else(|| "?".to_owned(), |value| value.to_string());
    let text = format!(
        "its PCIe link has {} lanes at {} MT/s, of {} at {}",
        word(link.lanes),
        word(link.speed_mts),
        word(link.lanes_max),
        word(link.speed_mts_max)
    );
    let status = match link.is_degraded() {
        None => ConditionStatus::Unknown,
        Some(true) => ConditionStatus::False,
        Some(false) => ConditionStatus::True,
    };
    (status, text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_domain::{DriverError, PcieLink};

    use super::*;

    const POLICY: DevicePolicy =
        DevicePolicy { temperature_max_celsius: 95, temperature_margin_celsius: 5 };

    fn sensor(celsius: Option<i64>, limit: Option<i64>) -> Sensor {
        Sensor {
            name: "fpga".into(),
            kind: SensorKind::Temperature,
            milli: celsius.map(|celsius| celsius * 1_000),
            limit_milli: limit.map(|limit| limit * 1_000),
        }
    }

    fn at(celsius: Option<i64>) -> DeviceReading {
        DeviceReading { sensors: vec![sensor(celsius, None)], ..DeviceReading::default() }
    }

    /// The status of the temperature after each reading, and whether the card is fit.
    fn over(readings: impl IntoIterator<Item = DeviceReading>) -> Vec<(ConditionStatus, bool)> {
        let mut health = DeviceHealth::default();
        let status = |reading| {
            health.read(reading, &POLICY, Timestamp::ZERO);
            let view = health.view().expect("something was read");
            (view.conditions[0].status, view.is_fit)
        };
        readings.into_iter().map(status).collect()
    }

    #[test]
    fn a_hot_card_is_unfit_until_it_is_clearly_cooler() {
        use ConditionStatus::{False, True};
        let readings = [94, 95, 94, 91, 90, 94, 95].map(|celsius| at(Some(celsius)));
        let expected = [
            (True, true),
            (False, false),
            (False, false),
            (False, false),
            (True, true),
            (True, true),
            (False, false),
        ];
        assert_eq!(over(readings), expected);
    }

    #[test]
    fn a_sensor_that_does_not_answer_changes_nothing() {
        use ConditionStatus::{False, Unknown};
        assert_eq!(over([at(None)]), [(Unknown, true)], "never hot");
        let nothing = DeviceReading::default();
        let readings = [at(Some(99)), at(None), nothing];
        assert_eq!(over(readings), [(False, false), (Unknown, false), (Unknown, false)]);
        let other = Sensor { name: "hbm".into(), ..sensor(Some(20), None) };
        let mut both = at(Some(99));
        both.sensors.push(other.clone());
        let silent = DeviceReading { sensors: vec![other, sensor(None, None)], ..both.clone() };
        let told = over([both, silent, at(Some(20))]);
        assert_eq!(told[..2], [(False, false), (Unknown, false)]);
        assert!(told[2].1);
    }

    #[test]
    fn a_sensors_own_limit_counts_before_that_of_the_policies() {
        let of = |celsius, limit| DeviceReading {
            sensors: vec![sensor(Some(celsius), limit)],
            ..DeviceReading::default()
        };
        let fit = |reading| over([reading])[0].1;
        assert!(fit(of(100, Some(105))) && !fit(of(100, None)) && !fit(of(85, Some(85))));
        assert!(fit(of(50, Some(0))), "a limit of 0 is none");
    }

    #[test]
    fn a_firewall_that_blocks_keeps_dags_away_until_it_is_known_to_be_quiet() {
        let with = |firewall| DeviceReading { firewall, ..DeviceReading::default() };
        let tripped = AxiFirewall::Tripped { level: 2, status: "0x80000".into() };
        let readings = [None, Some(tripped), None, Some(AxiFirewall::Quiet)].map(with);
        let fit: Vec<bool> = over(readings).into_iter().map(|(_, fit)| fit).collect();
        assert_eq!(fit, [true, false, false, true]);
    }

    #[test]
    fn what_changes_is_told_once() {
        let mut health = DeviceHealth::default();
        let mut read = |reading| health.read(reading, &POLICY, Timestamp::ZERO);
        let error = |time| DriverError { code: 7, time, text: format!("error {time}") };
        let with = |celsius, errors: &[u64]| DeviceReading {
            errors: errors.iter().map(|time| error(*time)).collect(),
            ..at(Some(celsius))
        };
        let first = read(with(60, &[1]));
        assert_eq!((first.changed.len(), first.errors.len()), (0, 0), "from before");
        let hot = read(with(96, &[1, 2]));
        assert_eq!(hot.errors, ["error 2"]);
        assert_eq!(hot.changed.len(), 1);
        assert!(hot.changed[0].1.contains("96.0 °C") && hot.fitness_changed, "{hot:?}");
        assert_eq!(read(with(97, &[1, 2])), DeviceNews::default());
        assert_eq!(read(with(50, &[1, 2])).changed[0].0, ConditionStatus::True);
    }

    #[test]
    fn a_slow_link_is_told_and_keeps_nobody_away() {
        let mut health = DeviceHealth::default();
        let link = PcieLink {
            speed_mts: Some(8_000),
            lanes: Some(4),
            speed_mts_max: Some(8_000),
            lanes_max: Some(16),
        };
        let reading = DeviceReading { link: Some(link), ..DeviceReading::default() };
        let news = health.read(reading, &POLICY, Timestamp::ZERO);
        assert!(news.changed[0].1.contains("4 lanes at 8000 MT/s, of 16"), "{news:?}");
        assert!(health.is_fit() && !news.fitness_changed);
    }

    proptest! {
        /// Against the rule as one would say it of a whole history.
        #[test]
        fn a_card_is_hot_since_the_last_limit_unless_it_was_cool_since(
            history in prop::collection::vec(prop::option::of(-20_i64..130), 1..30),
        ) {
            let told = over(history.iter().map(|celsius| at(*celsius)));
            for (i, (_, fit)) in told.iter().enumerate() {
                let past = &history[..=i];
                let last_hot = past.iter().rposition(|c| c.is_some_and(|c| c >= 95));
                let last_cool = past.iter().rposition(|c| c.is_some_and(|c| c <= 90));
                prop_assert_eq!(!fit, last_hot.is_some() && last_cool < last_hot);
            }
        }
    }
}
