//! Content that the loop has loaded into a region stays there as long as the policy says, a monitor period at
//! least, and no region is switched back within two: whatever loads do. What people ask for, faults and restarts are not the loop's.

use std::collections::BTreeMap;
use std::time::Duration;

use snic_controller::{Controller, ControllerSettings};
use snic_domain::{BitstreamId, CardProfile, RegionId, Timestamp};

use crate::world::card_id;

/// Desired content of regions.
pub type Contents = Vec<Option<BitstreamId>>;

/// A region is to hold something else, by a decision of the loop.
#[derive(Debug)]
struct Switch {
    at: Timestamp,
    from: Option<BitstreamId>,
}

/// The last switch of each region.
#[derive(Debug, Default)]
pub struct Residency {
    last: BTreeMap<RegionId, Switch>,
    /// Desired content after the last sample.
    known: Contents,
    /// Policy in force, and policy from the next edge of an epoch on.
    policy: ControllerSettings,
    next: Option<ControllerSettings>,
    /// Switches that were followed by another one of the same region.
    pub followed: u64,
}

pub fn contents(controller: &Controller) -> Contents {
    let views = (0..).map(|region| controller.region_view(&card_id(), RegionId(region)));
    views.map_while(|view| view).map(|view| view.bitstream).collect()
}

/// The monitor period and the cooldown on a card.
fn periods(settings: &ControllerSettings, profile: &CardProfile) -> (Duration, Duration) {
    let bytes = profile.regions.iter().map(|region| region.bitstream_max.get()).max();
    let load = bytes.unwrap_or(0) as f64 / profile.configuration_bytes_per_second as f64;
    let load = Duration::from_secs_f64(load);
    (settings.autoscaling.period(load), settings.autoscaling.residency(load))
}

impl Residency {
    /// A sample was taken in at `now`: what regions were to hold before, and are to hold since.
    pub fn sampled(
        &mut self,
        profile: &CardProfile,
        now: Timestamp,
        before: &Contents,
        after: Contents,
    ) -> Result<(), String> {
        let (period, residency) = periods(&self.policy, profile);
        let regions = (0..).map(RegionId).zip(before.iter().zip(&after));
        for (number, (region, (held, holds))) in regions.enumerate() {
            if self.known.get(number) != Some(held) {
                // Somebody else changed it since the last sample.
                self.last.remove(&region);
            }
            if held == holds {
                continue;
            }
            let switch = Switch { at: now, from: held.clone() };
            let Some(last) = self.last.insert(region, switch) else { continue };
            let stayed = now.since(last.at);
            self.followed += 1;
            let least = match &last.from {
                // What a free region was loaded with ahead goes to who needs it.
                None => period,
                from if from == holds => residency.max(period * 2),
                Some(_) => residency,
            };
            if stayed < least {
                let of = format!("{:?} to {held:?} to {holds:?}", last.from);
                return Err(format!("region {region} from {of} after {stayed:?}, not {least:?}"));
            }
        }
        self.known = after;
        Ok(())
    }

    /// Other policies were given.
    pub fn asked(&mut self, settings: &ControllerSettings) {
        self.next = Some(*settings);
    }

    /// Puts the policy that was given last in force.
    pub fn applied(&mut self) {
        self.policy = self.next.take().unwrap_or(self.policy);
    }

    /// The daemon began again, with these policies: it does not know when it decided what.
    pub fn begin(&mut self, settings: &ControllerSettings) {
        *self = Self { policy: *settings, followed: self.followed, ..Self::default() };
    }
}
