//! Names, quantities and times in short form.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use snic_api::v1::card::Health;
use snic_api::v1::dag::Form;
use snic_domain::{Bandwidth, ByteSize};

/// Labels, as the command line takes them.
pub fn labels(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}

/// The id at the end of a name.
pub fn id(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// A card's name, with its host at a fleet: `card0`, `h1/card0`; a host alone is `h1`.
pub fn card(name: &str) -> String {
    match name.strip_prefix("hosts/") {
        Some(name) => name.replacen("/cards/", "/", 1),
        None => id(name).to_owned(),
    }
}

/// A DAG's name with its tenant: `acme/web`.
pub fn dag(name: &str) -> String {
    name.strip_prefix("tenants/")
        .map_or_else(|| name.into(), |rest| rest.replacen("/dags/", "/", 1))
}

/// A region's name with its card: `card0/3`.
pub fn region(name: &str) -> String {
    name.strip_prefix("cards/")
        .map_or_else(|| name.into(), |rest| rest.replacen("/regions/", "/", 1))
}

/// Any name, in the short form that commands accept.
pub fn name(name: &str) -> String {
    if name.contains("/dags/") {
        dag(name)
    } else if name.contains("/regions/") {
        region(name)
    } else {
        id(name).to_owned()
    }
}

pub fn rate(bps: u64) -> String {
    Bandwidth::from_bps(bps).to_string()
}

pub fn size(bytes: u64) -> String {
    ByteSize::from_bytes(bytes).to_string()
}

/// The age of a time in one unit; empty if the time is unknown.
pub fn age(time: Option<&prost_types::Timestamp>, now: SystemTime) -> String {
    let Some(time) = time.and_then(|time| SystemTime::try_from(*time).ok()) else {
        return String::new();
    };
    let seconds = now.duration_since(time).unwrap_or(Duration::ZERO).as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A time with its date; empty if unknown.
pub fn time(time: Option<&prost_types::Timestamp>) -> String {
    time.map(ToString::to_string).unwrap_or_default()
}

/// `yes` or `no`.
pub const fn yes(truth: bool) -> &'static str {
    if truth { "yes" } else { "no" }
}

/// A form in one word.
pub const fn form_word(form: Form) -> &'static str {
    match form {
        Form::Unspecified => "auto",
        Form::Sequential => "sequential",
        Form::Parallel => "parallel",
    }
}

/// Health of a card in one word, as the API has it.
pub(super) const fn health_word(health: Health) -> &'static str {
    match health {
        Health::Unspecified => "UNKNOWN",
        Health::Ok => "OK",
        Health::Impaired => "IMPAIRED",
        Health::Lost => "LOST",
        Health::Recovering => "RECOVERING",
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("tenants/acme/dags/web", "acme/web")]
    #[case("cards/card0/regions/3", "card0/3")]
    #[case("ntTypes/acme.nat", "acme.nat")]
    #[case("operations/x-1", "x-1")]
    #[case("odd", "odd")]
    fn names_are_short(#[case] long: &str, #[case] short: &str) {
        assert_eq!(name(long), short);
    }

    #[rstest]
    #[case(0, "0s")]
    #[case(119, "119s")]
    #[case(120, "2m")]
    #[case(7_199, "119m")]
    #[case(7_200, "2h")]
    #[case(172_800, "2d")]
    fn ages_have_one_unit(#[case] seconds: u64, #[case] text: &str) {
        let then = prost_types::Timestamp { seconds: 1_000, nanos: 0 };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 + seconds);
        assert_eq!(age(Some(&then), now), text);
        assert_eq!(age(None, now), "");
        assert_eq!(age(Some(&then), SystemTime::UNIX_EPOCH), "0s", "clocks differ");
    }
}
