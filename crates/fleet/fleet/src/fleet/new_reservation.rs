//! Request for a reservation.

use snic_domain::{Bandwidth, VmId};

use crate::placement::{CardConstraints, CardPolicy};
use crate::protocol::{Denied, RequestId};

/// Longest lease in seconds.
const SECONDS_MAX: u32 = 86_400;

/// A reservation that is asked for.
#[derive(Debug, Clone)]
pub(super) struct NewReservation {
    pub id: RequestId,
    pub constraints: CardConstraints,
    pub policy: CardPolicy,
    pub seconds: u32,
    pub bandwidth: Bandwidth,
    pub vm: Option<VmId>,
    pub uuid: String,
}

impl NewReservation {
    /// # Errors
    /// It keeps nothing, or lasts too long.
    pub fn check(&self) -> Result<(), Denied> {
        if !(1..=SECONDS_MAX).contains(&self.seconds) {
            let wrong = format!("a lease of {} s; 1 to {SECONDS_MAX} are allowed", self.seconds);
            return Err(Denied::Invalid(wrong));
        }
        if self.constraints.functions == 0 && self.bandwidth == Bandwidth::ZERO {
            let wrong = "a reservation of nothing: name functions or bandwidth";
            return Err(Denied::Invalid(wrong.into()));
        }
        Ok(())
    }
}
