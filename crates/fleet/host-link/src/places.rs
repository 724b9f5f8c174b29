//! Places of DAGs as the host's daemon reports them.

use snic_controller::{AppliedPlace, ControlError};
use snic_fleet::protocol::HostChoice;

/// Why a DAG has no place, in words.
pub(crate) fn reason_of(why: Option<ControlError>) -> String {
    let why = why.map(|why| why.to_string());
    why.unwrap_or_else(|| "its card cannot serve it any more".to_owned())
}

/// Where a DAG is, if it borrows nothing.
pub(crate) fn choice_of(place: AppliedPlace) -> Option<HostChoice> {
    let AppliedPlace { mapping, reservation } = place;
    reservation.map(|reservation| HostChoice { mapping, reservation })
}
