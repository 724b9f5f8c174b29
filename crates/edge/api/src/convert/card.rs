//! Areas, region kinds and region states.

use snic_domain::{Area, RegionKind, RegionState};

use super::FieldProblem;
use crate::v1;

/// Converts an area of a request.
pub const fn area(area: &v1::Area) -> Area {
    Area { lut: area.lut, ramb36: area.ramb36, dsp: area.dsp }
}

/// Converts an area.
pub const fn area_to_wire(area: Area) -> v1::Area {
    v1::Area { lut: area.lut, ramb36: area.ramb36, dsp: area.dsp }
}

/// Converts a region kind of a request.
///
/// # Errors
/// [`FieldProblem`] if it is missing or unknown.
pub fn region_kind(field: &str, value: i32) -> Result<RegionKind, FieldProblem> {
    match v1::RegionKind::try_from(value) {
        Ok(v1::RegionKind::KnownNt) => Ok(RegionKind::KnownNt),
        Ok(v1::RegionKind::UserNt) => Ok(RegionKind::UserNt),
        Ok(v1::RegionKind::Unspecified) => Err(FieldProblem::required(field)),
        Err(_) => {
            let rule = format_args!("{value} is not a region kind (expected KNOWN_NT or USER_NT)");
            Err(FieldProblem::invalid(field, rule))
        }
    }
}

/// Converts a region kind.
pub const fn region_kind_to_wire(kind: RegionKind) -> v1::RegionKind {
    match kind {
        RegionKind::KnownNt => v1::RegionKind::KnownNt,
        RegionKind::UserNt => v1::RegionKind::UserNt,
    }
}

/// Converts a region's state.
pub const fn region_state_to_wire(state: RegionState) -> v1::region::State {
    match state {
        RegionState::Free => v1::region::State::Free,
        RegionState::Reconfiguring => v1::region::State::Reconfiguring,
        RegionState::Active => v1::region::State::Active,
        RegionState::Draining => v1::region::State::Draining,
        RegionState::Victim => v1::region::State::Victim,
        RegionState::Faulty => v1::region::State::Faulty,
        RegionState::Unknown => v1::region::State::Unknown,
    }
}
