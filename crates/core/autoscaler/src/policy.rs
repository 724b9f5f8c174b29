//! The policy of the autoscaler: thresholds, periods and cooldown.

use std::time::Duration;

/// Longest monitor period: with a longer one, bursts would end before the autoscaler sees them.
pub const PERIOD_MAX: Duration = Duration::from_secs(60);

/// Number of checks of a load near its capacity within one monitor period.
const LOOKS: u32 = 10;

/// The policy of the autoscaler, as in `policies/autoscaling.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Whether DAGs are scaled at all.
    pub enabled: bool,
    /// Time that a chain must be overloaded before it gets another instance. Where a reconfiguration takes
    /// longer than this, that counts instead: see [`Policy::period`].
    pub monitor_period: Duration,
    /// Load, in percent of the capacity (1 to 100), from which on a chain is checked more often than once a
    /// monitor period, so that a free region is loaded as soon as the load exceeds the capacity.
    pub pre_launch_percent: u32,
    /// Scale-in threshold, in percent (1 to 100) of the capacity without one of the instances.
    pub scale_in_percent: u32,
    /// Number of monitor periods in a row in which the load must stay below the scale-in threshold; at least 1.
    pub scale_in_periods: u32,
    /// Cooldown: monitor periods that must pass after a decision before the next one; at least 1.
    pub residency_periods: u32,
    /// Whether free regions are loaded at once for a load that exceeds the capacity, before a whole period has
    /// passed.
    pub pre_launch: bool,
    /// Whether a chain that was scaled out keeps one spare region loaded, where one is free.
    pub spare: bool,
    /// Whether a DAG below its fair share may take a region from one above its fair share.
    pub context_switch: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            enabled: true,
            monitor_period: Duration::from_millis(10),
            pre_launch_percent: 90,
            scale_in_percent: 80,
            scale_in_periods: 5,
            residency_periods: 1,
            pre_launch: true,
            spare: false,
            context_switch: true,
        }
    }
}

/// Why a policy is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    /// The monitor period is zero or too long.
    #[error("a monitor period of {0:?} is not allowed: over zero, at most {PERIOD_MAX:?}")]
    Period(Duration),
    /// A percentage outside of its range.
    #[error("{key} = {percent} is not allowed: 1 to 100")]
    Percent { key: &'static str, percent: u32 },
    #[error("{key} = 0 is not allowed: at least 1")]
    NoPeriods { key: &'static str },
}

impl Policy {
    /// Whether it can be followed.
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`] names the first key that is out of range, its value and what is allowed.
    pub fn check(&self) -> Result<(), InvalidPolicy> {
        if self.monitor_period.is_zero() || self.monitor_period > PERIOD_MAX {
            return Err(InvalidPolicy::Period(self.monitor_period));
        }
        let percents = [
            ("pre_launch_percent", self.pre_launch_percent),
            ("scale_in_percent", self.scale_in_percent),
        ];
        if let Some(&(key, percent)) = percents.iter().find(|(_, p)| !(1..=100).contains(p)) {
            return Err(InvalidPolicy::Percent { key, percent });
        }
        let periods = [
            ("scale_in_periods", self.scale_in_periods),
            ("residency_periods", self.residency_periods),
        ];
        match periods.iter().find(|(_, n)| *n == 0) {
            Some(&(key, _)) => Err(InvalidPolicy::NoPeriods { key }),
            None => Ok(()),
        }
    }

    /// The monitor period on a card whose longest reconfiguration takes `reconfiguration`: never
    /// shorter than that, or a chain would be judged before the last decision about it took effect.
    pub fn period(&self, reconfiguration: Duration) -> Duration {
        self.monitor_period.max(reconfiguration)
    }

    /// Interval between checks of a load that is near its capacity.
    pub fn check_interval(&self) -> Duration {
        self.monitor_period / LOOKS
    }

    /// Cooldown: how long a decision stays.
    pub fn residency(&self, reconfiguration: Duration) -> Duration {
        self.period(reconfiguration).saturating_mul(self.residency_periods.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_policy_is_valid_and_errors_name_the_field() {
        let good = Policy::default();
        assert_eq!(good.check(), Ok(()));
        let bad = [
            (Policy { monitor_period: Duration::ZERO, ..good }, "monitor period of 0ns"),
            (Policy { monitor_period: Duration::from_secs(61), ..good }, "61s"),
            (Policy { pre_launch_percent: 0, ..good }, "pre_launch_percent = 0"),
            (Policy { scale_in_percent: 101, ..good }, "scale_in_percent = 101"),
            (Policy { scale_in_periods: 0, ..good }, "scale_in_periods = 0"),
            (Policy { residency_periods: 0, ..good }, "residency_periods = 0"),
        ];
        for (policy, says) in bad {
            let error = policy.check().expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_period_is_never_shorter_than_a_reconfiguration() {
        let policy = Policy { residency_periods: 3, ..Policy::default() };
        let millis = Duration::from_millis;
        assert_eq!(policy.period(millis(5)), millis(10));
        assert_eq!(policy.period(millis(40)), millis(40));
        assert_eq!(policy.residency(millis(40)), millis(120));
    }
}
