//! All inputs of the figures, with their sources. No figure has a number of its own: the papers'
//! results are beside the checks, the inputs are here. How finely a run is stepped and sampled is no input.

use std::ops::RangeInclusive;

/// The source of a parameter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterSource {
    /// The paper states it: where.
    Paper(&'static str),
    /// It follows from the paper: how.
    Derived(&'static str),
    /// It was fitted to a figure: which.
    Fitted(&'static str),
    /// The paper does not say: why this value.
    Assumption(&'static str),
}

impl ParameterSource {
    pub fn text(self) -> String {
        match self {
            Self::Paper(place) => place.into(),
            Self::Derived(how) => format!("derived: {how}"),
            Self::Fitted(to) => format!("fitted: {to}"),
            Self::Assumption(reason) => format!("assumption: {reason}"),
        }
    }
}

/// One parameter: a number, or several where a figure has one point for each.
#[derive(Debug)]
pub struct ParameterEntry {
    pub key: &'static str,
    pub default: &'static [f64],
    pub unit: &'static str,
    /// The allowed range.
    pub range: RangeInclusive<f64>,
    /// The source of its value.
    pub source: ParameterSource,
    /// Meaning of the parameter.
    pub what: &'static str,
}

impl ParameterEntry {
    /// Whether its values belong to things by their order, so that there must be as many.
    pub(super) fn is_by_name(&self) -> bool {
        let by_name: [&ParameterEntry; 21] = [
            &FIG9_REQUEST_PERCENT,
            &FIG8_CYCLES,
            &FLEXPIPE_MEASURED,
            &FLEXPIPE_DELAYS,
            &FLEXPIPE_WIDTHS,
            &FLEXPIPE_MHZ,
            &FLEXPIPE_HEADER_ONLY,
            &FIG5_EPOCHS,
            &BF3_THREAD_NANOS,
            &CONSOLIDATION_LOAD_GBPS,
            &CAPEX_DOLLARS,
            &OSMOSIS_ITERATIONS,
            &OSMOSIS_WEIGHTS,
            &OSMOSIS_MIX_BYTES,
            &OSMOSIS_MIX_CYCLES,
            &CAPEX_SMALLER,
            &PANIC_RTL_UNIT_GBPS,
            &PANIC_RTL_PATTERN_1,
            &PANIC_RTL_PATTERN_2,
            &PANIC_RTL_PATTERN_3,
            &PANIC_RTL_PATTERN_4,
        ];
        by_name.iter().any(|entry| entry.key == self.key)
    }
}

macro_rules! table {
    ($part:ident: $($name:ident = $key:literal, $default:expr, $unit:literal, $range:expr, $source:ident($why:literal), $what:literal;)*) => {
        $(pub(crate) static $name: ParameterEntry = ParameterEntry {
            key: $key,
            default: &$default,
            unit: $unit,
            range: $range,
            source: ParameterSource::$source($why),
            what: $what,
        };)*

        /// Entries of this part.
        pub(super) static $part: &[&ParameterEntry] = &[$(&$name),*];
    };
}

mod designs;
mod nics;
mod store;
mod supernic;

pub(crate) use designs::*;
pub(crate) use nics::*;
pub(crate) use store::*;
pub(crate) use supernic::*;

/// All entries, in the order of the page.
pub fn entries() -> impl Iterator<Item = &'static ParameterEntry> {
    [SUPERNIC, STORES, DESIGNS, NICS].into_iter().flatten().copied()
}
