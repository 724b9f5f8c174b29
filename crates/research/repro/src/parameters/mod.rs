//! The inputs of the figures: the card profile, the catalogue, the options of the data plane, the
//! BlueField-3's card model and the [`entries`], each with its source. There are no others, and each can be set for a run.

mod keys;
mod nic;
mod table;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use keys::Field;
use snic_bitstream::catalogue::{BUILTIN, Catalogue, builtin};
use snic_card_sim::PlaneOptions;
use snic_domain::{Bandwidth, CardModel, CardProfile, Cycles, NtType};
use snic_offloads::Panic;
use snic_processors::NicModel;

pub(crate) use table::*;
pub use table::{ParameterEntry, ParameterSource, entries};

/// The card of the figures: as large as the SuperNIC paper's.
const MODEL: &str = "sim-16";

/// Time of SuperNIC's synchronisation buffer between two stages. The product's card has none.
const SYNC_CYCLES: u32 = 4;

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    pub value: String,
    /// Where the value is from.
    pub source: String,
    /// Whether it was set for this run.
    pub changed: bool,
}

/// Why a parameter cannot be set.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidParameter {
    /// No such key.
    #[error("unknown parameter {key}{}", suggestion(.suggestions))]
    Unknown {
        /// The unknown key.
        key: String,
        /// Keys that look like it.
        suggestions: Vec<String>,
    },
    /// Not a number.
    #[error("{key} = {value}: not a number (expected e.g. 1.1, 200MHz or 5,10,15)")]
    NoNumber {
        key: String,
        /// Value that was given.
        value: String,
    },
    /// Not in its range.
    #[error("{key} = {value}: out of range (allowed: {low} to {high})")]
    OutOfRange {
        key: String,
        /// Value that was given.
        value: f64,
        low: f64,
        high: f64,
    },
    /// Not as many numbers as it has.
    #[error("{key}: {given} values given, {needed} needed")]
    Count {
        key: String,
        /// Number of given values.
        given: usize,
        /// Number of needed values.
        needed: usize,
    },
}

fn suggestion(keys: &[String]) -> String {
    match keys {
        [] => "; `snic-repro parameters` lists all".into(),
        keys => format!("; did you mean {}?", keys.join(" or ")),
    }
}

/// The inputs that all figures share.
#[derive(Debug, Clone)]
pub struct Parameters {
    /// The card, with ports of 100 Gbit/s.
    pub card: CardProfile,
    /// The provider's NTs and chains.
    pub catalogue: Catalogue,
    /// The BlueField-3 as its study measured it.
    nic: NicModel,
    options: PlaneOptions,
    values: BTreeMap<&'static str, Vec<f64>>,
    changed: Vec<String>,
}

impl Parameters {
    /// The values of the compiled-in files and of the table.
    ///
    /// # Errors
    /// The catalogue that is compiled in is not valid or lacks the card.
    pub fn load() -> Result<Self> {
        let catalogue = builtin()?;
        let model = CardModel::new(MODEL)?;
        let card = catalogue.card(&model).context("the catalogue has the card")?.clone();
        // SuperNIC's admission counts what NTs serve and no packets, and its credits are those it starts with
        // (4.3, 5.1): its experiments ask for more than ports could promise.
        let card = CardProfile { region_pass: None, ..card };
        let values = entries().map(|entry| (entry.key, entry.default.to_vec())).collect();
        let options = PlaneOptions { sync_cycles: SYNC_CYCLES, ..PlaneOptions::default() };
        let changed = Vec::new();
        let nic = nic::load()?;
        Ok(Self { card, catalogue, nic, options, values, changed })
    }

    /// Sets one for a run. A list that has one value for each point of a figure may have any length; one
    /// whose values have names must keep it.
    ///
    /// # Errors
    /// An unknown key, a value that is no number or out of range. Nothing is changed then.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), InvalidParameter> {
        let values = numbers(key, text)?;
        if let Some(entry) = entries().find(|entry| entry.key == key) {
            self.set_entry(entry, values)?;
        } else {
            let [value] = values[..] else {
                let key = key.to_string();
                return Err(InvalidParameter::Count { key, given: values.len(), needed: 1 });
            };
            self.set_field(key, value)?;
        }
        self.changed.push(key.into());
        Ok(())
    }

    fn set_entry(
        &mut self,
        entry: &ParameterEntry,
        values: Vec<f64>,
    ) -> Result<(), InvalidParameter> {
        let (low, high) = (*entry.range.start(), *entry.range.end());
        for &value in &values {
            within(entry.key, value, low, high)?;
        }
        let needed = entry.default.len();
        if values.len() != needed && (needed == 1 || entry.is_by_name()) {
            let (key, given) = (entry.key.into(), values.len());
            return Err(InvalidParameter::Count { key, given, needed });
        }
        self.values.insert(entry.key, values);
        Ok(())
    }

    fn set_field(&mut self, key: &str, value: f64) -> Result<(), InvalidParameter> {
        let parts: Vec<&str> = key.split('.').collect();
        match parts[..] {
            ["card", name] => {
                if let Some(field) = keys::CARD.iter().find(|field| field.key == name) {
                    return apply(field, key, &mut self.card, value);
                }
            }
            ["nic", processor, ..] => {
                if let Some(set) = nic::set(&mut self.nic, processor, &parts[2..], (key, value)) {
                    return set;
                }
            }
            ["plane", name] => {
                if let Some((field, _)) = keys::PLANE.iter().find(|(field, _)| field.key == name) {
                    return apply(field, key, &mut self.options, value);
                }
            }
            ["nt", id, name] => {
                let nt = self.catalogue.nt_types.iter_mut().find(|nt| nt.id.as_str() == id);
                let field = keys::NT.iter().find(|field| field.key == name);
                if let (Some(nt), Some(field)) = (nt, field) {
                    return apply(field, key, nt, value);
                }
            }
            _ => {}
        }
        Err(InvalidParameter::Unknown { key: key.into(), suggestions: self.like(key) })
    }

    /// Known keys that look like an unknown one.
    fn like(&self, key: &str) -> Vec<String> {
        /// Least similarity; 1 is equal.
        const ALIKE: f64 = 0.75;
        let list = self.list();
        let alike = |parameter: &Parameter| {
            (strsim::jaro_winkler(&parameter.name, key), parameter.name.clone())
        };
        let mut near: Vec<_> = list.iter().map(alike).filter(|(like, _)| *like > ALIKE).collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0));
        near.into_iter().take(3).map(|(_, name)| name).collect()
    }

    /// All values of an entry.
    pub(crate) fn all(&self, entry: &ParameterEntry) -> &[f64] {
        self.values.get(entry.key).map_or(entry.default, Vec::as_slice)
    }

    /// The value of an entry, the first where there are several.
    pub(crate) fn value(&self, entry: &ParameterEntry) -> f64 {
        self.all(entry).first().copied().unwrap_or_default()
    }

    /// The same as a whole number.
    pub(crate) fn count(&self, entry: &ParameterEntry) -> u64 {
        self.value(entry).round() as u64
    }

    /// A value in Gbit/s.
    pub(crate) fn gbps(&self, entry: &ParameterEntry) -> Bandwidth {
        gbps(self.value(entry))
    }

    /// A value in microseconds.
    pub(crate) fn micros(&self, entry: &ParameterEntry) -> Duration {
        Duration::from_secs_f64(self.value(entry) / 1e6)
    }

    /// A value in milliseconds.
    pub(crate) fn millis(&self, entry: &ParameterEntry) -> Duration {
        Duration::from_secs_f64(self.value(entry) / 1e3)
    }

    /// Choices for the data plane.
    pub const fn options(&self) -> PlaneOptions {
        self.options
    }

    /// The same without credits, as the paper has it where it looks at NTs (5.3).
    pub(crate) const fn without_credits(&self) -> PlaneOptions {
        PlaneOptions { credits: false, ..self.options }
    }

    /// The catalogue's NTs.
    pub(crate) fn nt_types(&self) -> Vec<NtType> {
        let percent = self.value(&DELAY_PERCENT);
        let scaled = |nt: &NtType| {
            let latency = (nt.latency.get() as f64 * percent / 100.0).round() as u64;
            NtType { latency: Cycles::new(latency), ..nt.clone() }
        };
        self.catalogue.nt_types.iter().map(scaled).collect()
    }

    /// Time of a cycle, in nanoseconds.
    pub(crate) fn nanos_per_cycle(&self) -> f64 {
        1e9 / self.card.clock_hz as f64
    }

    /// The card with ports as wide as its data path, as the papers simulate it: without the 100 Gbit/s
    /// of PHY and MAC.
    pub fn core(&self) -> CardProfile {
        let full = Bandwidth::from_bps(self.card.clock_hz * u64::from(self.card.width_bits));
        CardProfile { ingress: full, egress: full, ..self.card.clone() }
    }

    /// PANIC's scheduler, as FlexPipe's authors ran it: without detours.
    pub(crate) fn panic(&self) -> Panic {
        Panic {
            unit_credits: self.count(&PANIC_UNIT_CREDITS) as usize,
            queue_clock_hz: (self.card.clock_hz as f64 * self.value(&PANIC_QUEUE_PERCENT) / 100.0)
                as u64,
            descriptor_beats: self.count(&PANIC_DESCRIPTOR_BEATS),
            pass_cycles: self.card.scheduler_pass.get(),
            detour: false,
        }
    }

    /// All parameters, for the page and the command line.
    pub fn list(&self) -> Vec<Parameter> {
        let line = |name: String, value: String, source: String| {
            let changed = self.changed.contains(&name);
            Parameter { name, value, source, changed }
        };
        let sources = profile_sources();
        let source = |key: &str| sources.get(key).cloned().unwrap_or("the card's profile".into());
        let mut list = Vec::new();
        for field in keys::CARD {
            let value = text(&[(field.get)(&self.card)]);
            list.push(line(format!("card.{}", field.key), value, source(field.key)));
        }
        for (field, source) in keys::PLANE {
            let value = text(&[(field.get)(&self.options)]);
            list.push(line(format!("plane.{}", field.key), value, (*source).into()));
        }
        for nt in &self.catalogue.nt_types {
            for field in keys::NT {
                let name = format!("nt.{}.{}", nt.id, field.key);
                let source = "the catalogue (bitstreams/nt-types.toml)".into();
                list.push(line(name, text(&[(field.get)(nt)]), source));
            }
        }
        list.extend(
            nic::list(&self.nic).into_iter().map(|(name, value, source)| line(name, value, source)),
        );
        for entry in entries() {
            let value = format!("{} {}", text(self.all(entry)), entry.unit);
            let source = format!("{}. {}", entry.what, entry.source.text());
            list.push(line(entry.key.into(), value.trim_end().into(), source));
        }
        list
    }
}

/// Gbit/s as a bandwidth.
pub(crate) fn gbps(gbps: f64) -> Bandwidth {
    Bandwidth::from_bps((gbps * 1e9).round() as u64)
}

fn text(values: &[f64]) -> String {
    let values: Vec<String> = values.iter().map(|value| crate::outcome::number(*value)).collect();
    values.join(",")
}

fn apply<T>(field: &Field<T>, key: &str, to: &mut T, value: f64) -> Result<(), InvalidParameter> {
    within(key, value, field.low, field.high)?;
    (field.set)(to, value);
    Ok(())
}

fn within(key: &str, value: f64, low: f64, high: f64) -> Result<(), InvalidParameter> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(InvalidParameter::OutOfRange { key: key.into(), value, low, high })
}

/// Numbers with commas between them; a frequency may have its unit.
fn numbers(key: &str, text: &str) -> Result<Vec<f64>, InvalidParameter> {
    let error = || InvalidParameter::NoNumber { key: key.into(), value: text.into() };
    let number = |part: &str| -> Option<f64> {
        let part = part.trim();
        let units = [("GHz", 1e9), ("MHz", 1e6), ("kHz", 1e3), ("Hz", 1.0)];
        let unit = units.into_iter().find_map(|(unit, by)| Some((part.strip_suffix(unit)?, by)));
        let (digits, by) = unit.unwrap_or((part, 1.0));
        f64::from_str(digits.trim()).ok().map(|value| value * by).filter(|value| value.is_finite())
    };
    text.split(',').map(|part| number(part).ok_or_else(error)).collect()
}

/// Source of each key, from the profile's file.
fn profile_sources() -> BTreeMap<&'static str, String> {
    let name = format!("bitstreams/cards/{MODEL}.toml");
    let file = BUILTIN.cards.iter().find(|file| file.name == name);
    // Up to the regions, a line is a key, a value and its source.
    let lines = file.map_or("", |file| file.text).lines();
    let source = |line: &'static str| {
        let (key, rest) = line.split_once(" = ").filter(|_| !line.starts_with('#'))?;
        Some((key.trim(), rest.split_once('#')?.1.trim().to_string()))
    };
    lines.take_while(|line| !line.starts_with("[[")).filter_map(source).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters {
        Parameters::load().expect("our own files")
    }

    #[test]
    fn the_list_has_card_plane_nts_and_table_with_their_sources() {
        let list = parameters().list();
        let find = |name: &str| list.iter().find(|p| p.name == name).expect("it is listed");
        assert_eq!(find("card.scheduler_pass_cycles").value, "16");
        assert_eq!(find("card.core_cycles").source, "SuperNIC, 5.1: 196 ns");
        assert_eq!(find("nt.aes.gbps").value, "30");
        assert_eq!(find("fig14.loads_gbps").value, "5,10,15,20,30,45,60 Gbit/s");
        assert!(find("fig8.cycles").source.contains("fitted: SuperNIC, Fig. 8"));
        assert!(list.iter().all(|parameter| !parameter.source.is_empty() && !parameter.changed));
        assert_eq!(parameters().core().egress, Bandwidth::from_gbps(128));
    }

    #[test]
    fn keys_are_unique_and_defaults_are_allowed() {
        for entry in entries() {
            assert_eq!(entries().filter(|other| other.key == entry.key).count(), 1);
            let allowed = entry.default.iter().all(|value| entry.range.contains(value));
            assert!(allowed && !entry.default.is_empty(), "{}", entry.key);
        }
    }

    #[test]
    fn a_parameter_is_set_for_a_run_and_listed_as_changed() {
        let mut parameters = parameters();
        for (key, value) in [
            ("card.clock_hz", "200MHz"),
            ("card.credits_initial", "3"),
            ("plane.pace_cycles", "4"),
            ("nt.aes.gbps", "100"),
            ("fig14.loads_gbps", "1, 2"),
            ("nt.delay_percent", "50"),
        ] {
            parameters.set(key, value).expect("allowed");
        }
        assert_eq!((parameters.card.clock_hz, parameters.card.credits_initial), (200_000_000, 3));
        assert_eq!(parameters.options().region_pace.cycles.get(), 4);
        assert_eq!(parameters.all(&FIG14_LOADS_GBPS), [1.0, 2.0]);
        let nts = parameters.nt_types();
        let aes = nts.iter().find(|nt| nt.id.as_str() == "aes").expect("in the catalogue");
        assert_eq!((aes.bandwidth_max, aes.latency.get()), (Bandwidth::from_gbps(100), 22));
        assert_eq!(parameters.list().iter().filter(|parameter| parameter.changed).count(), 6);
    }

    #[test]
    fn unknown_parameters_and_values_are_refused_with_what_is_allowed() {
        let mut parameters = parameters();
        let mut refused = |key: &str, value: &str| {
            parameters.set(key, value).expect_err("not allowed").to_string()
        };
        let unknown = refused("card.clock_mhz", "200");
        assert!(
            unknown.starts_with("unknown parameter card.clock_mhz; did you mean card.clock_hz")
        );
        assert!(refused("fig16.mroe", "2").contains("fig16.more"));
        assert!(refused("zzz", "2").contains("`snic-repro parameters` lists all"));
        assert_eq!(
            refused("fig16.more", "-1"),
            "fig16.more = -1: out of range (allowed: 1 to 100)"
        );
        assert!(refused("fig16.more", "two").contains("not a number"));
        assert_eq!(refused("fig16.more", "1,2"), "fig16.more: 2 values given, 1 needed");
        assert_eq!(refused("fig8.cycles", "1,2"), "fig8.cycles: 2 values given, 7 needed");
        assert!(parameters.list().iter().all(|parameter| !parameter.changed));
    }
}
