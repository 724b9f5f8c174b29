//! The keys of each policy file, with their ranges and defaults.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;
use snic_controller::{
    AdmissionPolicy, Autoscaling, BudgetAction, BudgetPolicy, CardOrder, ConsolidationSettings,
    ControllerSettings, CreditReservation, DevicePolicy, Fairness, IdleTaskPolicy, Objective,
    PlacementPolicy, Scheduling, Scheme, Spare, Steering,
};
use snic_domain::Bandwidth;
use snic_usage::Retention;

use super::InvalidPolicyText;
use super::source::{Source, Spanned};

/// Range of a percentage.
const PERCENT: RangeInclusive<u32> = 1..=100;
/// Range of a number of monitor periods: more than a quarter of an hour of default periods.
const PERIODS: RangeInclusive<u32> = 1..=100_000;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PlacementFile {
    objective: ObjectiveKeys,
    cards: CardKeys,
    reconfiguration: Reconfiguration,
    consolidation: Consolidation,
    health: Health,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ObjectiveKeys {
    first: Spanned<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CardKeys {
    order: Spanned<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Health {
    temperature_max_celsius: Spanned<u64>,
    temperature_margin_celsius: Spanned<u64>,
}

impl Health {
    fn check(&self, source: &Source<'_>) -> Result<DevicePolicy, InvalidPolicyText> {
        let small = |key: &str, value, default, range| {
            source.small(&format!("health.{key}"), value, default, range)
        };
        let default = DevicePolicy::default();
        Ok(DevicePolicy {
            temperature_max_celsius: small(
                "temperature_max_celsius",
                &self.temperature_max_celsius,
                default.temperature_max_celsius,
                40..=125,
            )?,
            temperature_margin_celsius: small(
                "temperature_margin_celsius",
                &self.temperature_margin_celsius,
                default.temperature_margin_celsius,
                1..=30,
            )?,
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Consolidation {
    after_s: Spanned<u64>,
    reconfigurations_max: Spanned<u64>,
    regions_min: Spanned<u64>,
    passes_min: Spanned<u64>,
}

impl Consolidation {
    fn check(&self, source: &Source<'_>) -> Result<ConsolidationSettings, InvalidPolicyText> {
        let after = source.number("consolidation.after_s", &self.after_s, 60, 0..=86_400)?;
        let small = |key: &str, value, default, range| {
            source.small(&format!("consolidation.{key}"), value, default, range)
        };
        let loads = &self.reconfigurations_max;
        Ok(ConsolidationSettings {
            after: (after > 0).then(|| Duration::from_secs(after)),
            reconfigurations_max: small("reconfigurations_max", loads, 4, 0..=32)?,
            regions_min: small("regions_min", &self.regions_min, 1, 1..=32)?,
            passes_min: small("passes_min", &self.passes_min, 1, 1..=1_024)?,
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Reconfiguration {
    attempts: Spanned<u64>,
    backoff_ms: Spanned<u64>,
    backoff_max_ms: Spanned<u64>,
}

/// Applies `placement.toml` to the settings of the controller.
pub(super) fn placement(
    source: &Source<'_>,
    to: &mut ControllerSettings,
) -> Result<(), InvalidPolicyText> {
    let PlacementFile { reconfiguration: keys, consolidation, objective, cards, health } =
        source.keys()?;
    let default = PlacementPolicy::default();
    let objectives = [
        ("regions", Objective::Regions),
        ("passes", Objective::Passes),
        ("balanced", Objective::Balanced),
    ];
    let orders = [
        ("pack", CardOrder::Pack),
        ("spread", CardOrder::Spread),
        ("headroom", CardOrder::Headroom),
    ];
    to.placement = PlacementPolicy {
        objective: source.word(
            "objective.first",
            &objective.first,
            default.objective,
            &objectives,
        )?,
        cards: source.word("cards.order", &cards.order, default.cards, &orders)?,
    };
    to.consolidation = consolidation.check(source)?;
    to.device = health.check(source)?;
    to.load_attempts = source.small("reconfiguration.attempts", &keys.attempts, 3, PERCENT)?;
    let backoff = source.number("reconfiguration.backoff_ms", &keys.backoff_ms, 20, 1..=60_000)?;
    let longest = source.number(
        "reconfiguration.backoff_max_ms",
        &keys.backoff_max_ms,
        backoff.max(5_000),
        backoff..=600_000,
    )?;
    to.backoff = Duration::from_millis(backoff);
    to.backoff_max = Duration::from_millis(longest);
    Ok(())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FairnessFile {
    sharing: Sharing,
    epoch: Epoch,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Sharing {
    scheme: Spanned<String>,
    spare: Spanned<String>,
    headroom_percent: Spanned<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Epoch {
    length_ms: Spanned<u64>,
}

/// Applies `fairness.toml`. Returns the line that sets the scheme, if the file does.
pub(super) fn fairness(
    source: &Source<'_>,
    to: &mut ControllerSettings,
) -> Result<Option<usize>, InvalidPolicyText> {
    let keys = source.keys::<FairnessFile>()?;
    let default = Fairness::default();
    let schemes = [("static", Scheme::Static), ("drf", Scheme::Drf), ("full", Scheme::Full)];
    let spares = [("level-shares", Spare::LevelShares), ("by-weight", Spare::ByWeight)];
    let sharing = &keys.sharing;
    let epoch = source.number("epoch.length_ms", &keys.epoch.length_ms, 20, 1..=10_000)?;
    to.fairness = Fairness {
        scheme: source.word("sharing.scheme", &sharing.scheme, default.scheme, &schemes)?,
        spare: source.word("sharing.spare", &sharing.spare, default.spare, &spares)?,
        headroom_percent: source.small(
            "sharing.headroom_percent",
            &sharing.headroom_percent,
            default.headroom_percent,
            0..=50,
        )?,
        epoch: Duration::from_millis(epoch),
    };
    Ok(sharing.scheme.as_ref().map(|scheme| source.line(scheme.span().start)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AutoscalingFile {
    enabled: Spanned<bool>,
    monitor: MonitorKeys,
    scale_out: ScaleOut,
    scale_in: ScaleIn,
    residency: Residency,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MonitorKeys {
    period_ms: Spanned<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ScaleOut {
    pre_launch: Option<bool>,
    pre_launch_percent: Spanned<u64>,
    spare: Option<bool>,
    context_switch: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ScaleIn {
    percent: Spanned<u64>,
    periods: Spanned<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Residency {
    periods: Spanned<u64>,
}

/// Applies `autoscaling.toml`. Returns the line that sets `enabled`, if the file does.
pub(super) fn autoscaling(
    source: &Source<'_>,
    to: &mut ControllerSettings,
) -> Result<Option<usize>, InvalidPolicyText> {
    let keys = source.keys::<AutoscalingFile>()?;
    let default = Autoscaling::default();
    let period = source.number("monitor.period_ms", &keys.monitor.period_ms, 10, 1..=60_000)?;
    let (out, calm) = (&keys.scale_out, &keys.scale_in);
    let percent = |key, value, default| source.small(key, value, default, PERCENT);
    let periods = |key, value, default| source.small(key, value, default, PERIODS);
    to.autoscaling = Autoscaling {
        enabled: keys.enabled.as_ref().map_or(default.enabled, |enabled| *enabled.get_ref()),
        monitor_period: Duration::from_millis(period),
        pre_launch: out.pre_launch.unwrap_or(default.pre_launch),
        pre_launch_percent: percent(
            "scale_out.pre_launch_percent",
            &out.pre_launch_percent,
            default.pre_launch_percent,
        )?,
        spare: out.spare.unwrap_or(default.spare),
        context_switch: out.context_switch.unwrap_or(default.context_switch),
        scale_in_percent: percent("scale_in.percent", &calm.percent, default.scale_in_percent)?,
        scale_in_periods: periods("scale_in.periods", &calm.periods, default.scale_in_periods)?,
        residency_periods: periods(
            "residency.periods",
            &keys.residency.periods,
            default.residency_periods,
        )?,
    };
    check_hysteresis(source, &to.autoscaling, calm, out)?;
    Ok(keys.enabled.map(|enabled| source.line(enabled.span().start)))
}

/// An instance that was just scaled in must not be pre-launched again at the same load.
fn check_hysteresis(
    source: &Source<'_>,
    policy: &Autoscaling,
    calm: &ScaleIn,
    out: &ScaleOut,
) -> Result<(), InvalidPolicyText> {
    let (calm_percent, near) = (policy.scale_in_percent, policy.pre_launch_percent);
    if !policy.pre_launch || calm_percent < near {
        return Ok(());
    }
    let given = calm.percent.as_ref().or(out.pre_launch_percent.as_ref());
    let at = given.map_or(0, |value| value.span().start);
    let message = format!(
        "scale_in.percent = {calm_percent} is not below scale_out.pre_launch_percent = {near}: an \
         instance that was just removed would be launched again; change one of them, or set \
         scale_out.pre_launch = false"
    );
    Err(source.wrong(at, message))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SchedulingFile {
    instances: Instances,
    credits: Credits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Instances {
    steering: Spanned<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Credits {
    reservation: Spanned<String>,
}

/// Applies `scheduling.toml` to the settings of the controller.
pub(super) fn scheduling(
    source: &Source<'_>,
    to: &mut ControllerSettings,
) -> Result<(), InvalidPolicyText> {
    let SchedulingFile { instances, credits } = source.keys()?;
    let default = Scheduling::default();
    let steerings = [
        ("round-robin", Steering::RoundRobin),
        ("least-loaded", Steering::LeastLoaded),
        ("by-flow", Steering::ByFlow),
    ];
    let reservations = [("chain", CreditReservation::Chain), ("prefix", CreditReservation::Prefix)];
    let (steering, reservation) = (&instances.steering, &credits.reservation);
    to.scheduling = Scheduling {
        steering: source.word("instances.steering", steering, default.steering, &steerings)?,
        reservation: source.word(
            "credits.reservation",
            reservation,
            default.reservation,
            &reservations,
        )?,
    };
    Ok(())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AdmissionFile {
    promises: Promises,
    tasks: Tasks,
    budgets: Budgets,
    usage: UsageAges,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct UsageAges {
    keep_10s_hours: Spanned<u64>,
    keep_1m_days: Spanned<u64>,
    keep_1h_days: Spanned<u64>,
}

const HOUR: u64 = 3_600;
const DAY: u64 = 86_400;

impl UsageAges {
    /// The ages. Ranges do not overlap, for none may be less than that of shorter intervals: those would be read from the middle of a
    /// longer one on.
    fn check(&self, source: &Source<'_>) -> Result<Retention, InvalidPolicyText> {
        let default = Retention::default();
        let of = |key: &str, value, default: u64, range| {
            source.number(&format!("usage.{key}"), value, default, range)
        };
        let hours = of("keep_10s_hours", &self.keep_10s_hours, default.fine / HOUR, 1..=24)?;
        let minutes = of("keep_1m_days", &self.keep_1m_days, default.minute / DAY, 1..=31)?;
        let days = of("keep_1h_days", &self.keep_1h_days, default.hour / DAY, 32..=3_660)?;
        Ok(Retention { fine: hours * HOUR, minute: minutes * DAY, hour: days * DAY })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Budgets {
    warn_percent: Spanned<u64>,
    at_limit: Spanned<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Tasks {
    idle: Spanned<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Promises {
    ingress_percent: Spanned<u64>,
    availability_ppm: Spanned<u64>,
    dag_bandwidth_max_mbps: Spanned<u64>,
}

/// Applies `admission.toml` to the settings of the controller.
pub(super) fn admission(
    source: &Source<'_>,
    to: &mut ControllerSettings,
) -> Result<(), InvalidPolicyText> {
    let AdmissionFile { promises: keys, tasks, budgets, usage } = source.keys()?;
    to.usage_ages = usage.check(source)?;
    let default = BudgetPolicy::default();
    let (key, actions) = ("budgets.warn_percent", BudgetAction::WORDS);
    to.budgets = BudgetPolicy {
        warn_percent: source.small(key, &budgets.warn_percent, default.warn_percent, PERCENT)?,
        at_limit: source.word("budgets.at_limit", &budgets.at_limit, default.at_limit, &actions)?,
    };
    let idle = [("warn", IdleTaskPolicy::Warn), ("refuse", IdleTaskPolicy::Refuse)];
    let key = "promises.dag_bandwidth_max_mbps";
    let most = source.number(key, &keys.dag_bandwidth_max_mbps, 4_000_000, 1..=4_000_000)?;
    let key = "promises.availability_ppm";
    to.availability_ppm = source.small(key, &keys.availability_ppm, 999_000, 500_000..=999_999)?;
    to.admission = AdmissionPolicy {
        ingress_percent: source.small(
            "promises.ingress_percent",
            &keys.ingress_percent,
            100,
            PERCENT,
        )?,
        dag_bandwidth_max: Bandwidth::from_mbps(most),
        idle_tasks: source.word("tasks.idle", &tasks.idle, IdleTaskPolicy::default(), &idle)?,
    };
    Ok(())
}
