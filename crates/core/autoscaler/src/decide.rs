//! The decision for one DAG: scale out, scale in, or keep.

use std::fmt;
use std::time::Duration;

use snic_domain::{Bandwidth, Timestamp};

use crate::{Monitor, Policy};

/// The load must exceed the capacity by 1/50 of it to count as overload, and a target must exceed what is held
/// by as much to count as a change: smaller differences are rounding, and packets on either side of a sample.
const OVERLOAD_PART: u64 = 50;

/// The capacity of a DAG, beside which its load is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DagCapacity {
    /// Bandwidth that its instances can serve now, given the traffic of others.
    pub capacity: Bandwidth,
    /// Bandwidth of one more instance: the least maximum of its NTs.
    pub unit: Bandwidth,
    /// Bandwidth that is held for it now.
    pub holds: Bandwidth,
    /// Its guaranteed rate; it never holds less.
    pub admitted: Bandwidth,
    /// Its fair share.
    pub fair: Bandwidth,
    /// When what it holds last changed.
    pub settled: Timestamp,
}

/// The reason for a decision, with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The load exceeded the capacity for a whole period.
    Overloaded {
        /// The least load of the period.
        load: Bandwidth,
        /// The capacity then.
        capacity: Bandwidth,
    },
    /// The load has exceeded the capacity since the last period ended.
    Exceeding {
        /// The load since then.
        load: Bandwidth,
        /// The capacity now.
        capacity: Bandwidth,
    },
    /// The load stayed below the scale-in threshold for this many whole periods.
    Calm {
        /// The largest load of the last period.
        load: Bandwidth,
        holds: Bandwidth,
        /// Number of monitor periods.
        periods: u32,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overloaded { load, capacity } => {
                write!(
                    f,
                    "its load was at least {load} for a whole period, over the {capacity} that its instances serve"
                )
            }
            Self::Exceeding { load, capacity } => write!(
                f,
                "its load rose to {load}, over the {capacity} that its instances serve, and a region is free"
            ),
            Self::Calm { load, holds, periods } => write!(
                f,
                "its load stayed below the scale-in threshold for {periods} whole monitor periods: at most {load}, and it holds {holds}"
            ),
        }
    }
}

/// Decision about one DAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Keep,
    /// Let it hold this much, in any regions.
    ScaleOut {
        to: Bandwidth,
        why: Why,
    },
    /// Let it hold this much, in free regions only.
    PreLaunch {
        to: Bandwidth,
        why: Why,
    },
    /// Let it hold only this much; the regions that it leaves stay cached.
    ScaleIn {
        to: Bandwidth,
        why: Why,
    },
}

/// Number of instances that a DAG should have, in thousandths: min(load, fair share) / what one instance
/// serves. Below a thousand it is served by sharing. Zero where an instance serves nothing.
pub fn target_millis(load: Bandwidth, fair: Bandwidth, unit: Bandwidth) -> u64 {
    let wanted = u128::from(load.min(fair).get()) * 1_000;
    let millis = wanted.checked_div(u128::from(unit.get())).unwrap_or(0);
    u64::try_from(millis).unwrap_or(u64::MAX)
}

/// Decides about a DAG when a monitor period has ended. `residency` is the cooldown. The monitor notes
/// how many calm periods followed each other.
#[inline]
pub fn decide(
    policy: &Policy,
    residency: Duration,
    chain: &DagCapacity,
    monitor: &mut Monitor,
    now: Timestamp,
) -> Decision {
    let Some(last) = monitor.last() else { return Decision::Keep };
    let is_calm = would_fewer_do(policy, chain, last.most);
    monitor.calm = if is_calm { monitor.calm.saturating_add(1) } else { 0 };
    if !policy.enabled || now.since(chain.settled) < residency {
        return Decision::Keep;
    }
    if is_over(last.least, chain.capacity) {
        let why = Why::Overloaded { load: last.least, capacity: chain.capacity };
        let more = more_for(chain, last.mean);
        return more.map_or(Decision::Keep, |to| Decision::ScaleOut { to, why });
    }
    if monitor.calm >= policy.scale_in_periods {
        let (periods, holds) = (std::mem::take(&mut monitor.calm), chain.holds);
        let why = Why::Calm { load: last.most, holds, periods };
        let to = last.most.max(chain.admitted);
        return if to < holds { Decision::ScaleIn { to, why } } else { Decision::Keep };
    }
    Decision::Keep
}

/// Whether something is over a limit by more than noise. What a DAG is to hold must be over what it
/// holds: where it holds that and is served less, for its NTs are shared up to the headroom, another
/// plan for the same brings nothing.
pub fn is_over(amount: Bandwidth, limit: Bandwidth) -> bool {
    amount.get() > limit.get().saturating_add(limit.get() / OVERLOAD_PART)
}

/// Bandwidth that a DAG is to hold for a load, where that is more than it has.
fn more_for(chain: &DagCapacity, load: Bandwidth) -> Option<Bandwidth> {
    let to = load.min(chain.fair).max(chain.admitted);
    (to > chain.capacity && is_over(to, chain.holds)).then_some(to)
}

/// Whether a DAG is looked at again before its period ends ([`Policy::check_interval`]): its load is near
/// the capacity, and it may have more.
pub fn is_near(policy: &Policy, chain: &DagCapacity, load: Bandwidth) -> bool {
    let near = u128::from(chain.capacity.get()) * u128::from(policy.pre_launch_percent);
    let may_have_more = is_over(chain.fair, chain.holds);
    policy.enabled && policy.pre_launch && may_have_more && u128::from(load.get()) * 100 >= near
}

/// Decides about a DAG while a period is under way: `load` is that since the last one ended. A load that is
/// over the capacity does not wait for the end of the period where free regions do; no region is loaded
/// for a load that only may come.
pub fn decide_early(
    policy: &Policy,
    residency: Duration,
    chain: &DagCapacity,
    load: Bandwidth,
    now: Timestamp,
) -> Decision {
    let rests = now.since(chain.settled) < residency;
    if rests || !is_near(policy, chain, load) || !is_over(load, chain.capacity) {
        return Decision::Keep;
    }
    let why = Why::Exceeding { load, capacity: chain.capacity };
    more_for(chain, load).map_or(Decision::Keep, |to| Decision::PreLaunch { to, why })
}

/// Whether `most` is below the scale-in threshold of the capacity without one instance, and there is one to
/// spare.
fn would_fewer_do(policy: &Policy, chain: &DagCapacity, most: Bandwidth) -> bool {
    if chain.holds <= chain.admitted {
        return false;
    }
    let instances = chain.holds.get().div_ceil(chain.unit.get().max(1));
    let fewer = chain.unit.get().saturating_mul(instances.saturating_sub(1));
    let fewer = fewer.max(chain.admitted.get());
    u128::from(most.get()) * 100 <= u128::from(fewer) * u128::from(policy.scale_in_percent)
}
