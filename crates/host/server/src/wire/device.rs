//! A card's device on the wire.

use snic_api::convert::timestamp;
use snic_api::v1;
use snic_controller::{DeviceAspect, DeviceCondition, DeviceView};
use snic_domain::{ConditionStatus, Sensor, SensorKind};

/// Thousandths in whole units.
pub(crate) fn units(milli: i64) -> f64 {
    milli as f64 / 1e3
}

fn sensor(of: &Sensor) -> v1::CardSensor {
    v1::CardSensor {
        sensor: of.name.clone(),
        value: of.milli.map(units),
        limit: of.limit_milli.map(units),
    }
}

pub(super) fn device(view: &DeviceView) -> v1::CardDevice {
    let reading = &view.reading;
    v1::CardDevice {
        read_time: Some(timestamp(view.at)),
        accepts_dags: view.is_fit,
        temperatures: reading.of_kind(SensorKind::Temperature).map(sensor).collect(),
        powers: reading.of_kind(SensorKind::Power).map(sensor).collect(),
        pcie_link: reading.link.map(|link| v1::CardPcieLink {
            megatransfers_per_second: link.speed_mts,
            lanes: link.lanes,
            megatransfers_per_second_max: link.speed_mts_max,
            lanes_max: link.lanes_max,
        }),
        driver_errors: reading.errors.iter().map(|error| error.text.clone()).collect(),
    }
}

/// The aspect, as a condition's type and as a label of metrics.
pub(crate) const fn aspect_word(aspect: DeviceAspect) -> &'static str {
    match aspect {
        DeviceAspect::Temperature => "Temperature",
        DeviceAspect::Firewall => "Firewall",
        DeviceAspect::Link => "Link",
    }
}

/// The status of a condition, on the wire and as a word.
pub(crate) const fn status_of(status: ConditionStatus) -> (v1::condition::Status, &'static str) {
    match status {
        ConditionStatus::True => (v1::condition::Status::True, "TRUE"),
        ConditionStatus::False => (v1::condition::Status::False, "FALSE"),
        ConditionStatus::Unknown => (v1::condition::Status::Unknown, "UNKNOWN"),
    }
}

const fn reason(of: &DeviceCondition) -> &'static str {
    match (of.aspect, of.status) {
        (_, ConditionStatus::True) => "AS_IT_SHOULD_BE",
        (_, ConditionStatus::Unknown) => "NOT_KNOWN",
        (DeviceAspect::Temperature, _) => "TOO_HOT",
        (DeviceAspect::Firewall, _) => "FIREWALL_TRIPPED",
        (DeviceAspect::Link, _) => "LINK_DEGRADED",
    }
}

pub(super) fn conditions(view: &DeviceView) -> Vec<v1::Condition> {
    let condition = |of: &DeviceCondition| v1::Condition {
        r#type: aspect_word(of.aspect).to_owned(),
        status: status_of(of.status).0.into(),
        reason: reason(of).to_owned(),
        message: of.message.clone(),
        last_transition_time: Some(timestamp(of.since)),
        observed_generation: 0,
    };
    view.conditions.iter().map(condition).collect()
}

/// Why new DAGs are not placed on the card, if they are not.
pub(super) fn why_unfit(view: &DeviceView) -> Option<String> {
    if view.is_fit {
        return None;
    }
    let keeps_away = |of: &&DeviceCondition| {
        of.aspect != DeviceAspect::Link && of.status != ConditionStatus::True
    };
    let why: Vec<&str> =
        view.conditions.iter().filter(keeps_away).map(|of| of.message.as_str()).collect();
    Some(format!("no new DAGs are placed on it: {}", why.join("; ")))
}
