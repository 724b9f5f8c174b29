//! Why a DAG is as fast as it is: what comes in and goes out, what limits it, who else uses that, and what would help.
//! Computed from values alone, so every place that shows it shows the same.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use snic_domain::{
    Bandwidth, CardId, CardProfile, ConditionStatus, Cycles, DagName, DagState, Headroom, NodeId,
    NtTypeId, RegionId, Slot, TenantId, VirtualChain,
};
use snic_tables::{DropCause, PathPart};

use crate::protocol::{
    DagTraffic, DagView, MeasuredLatencies, MeasuredPart, TrafficWindow, part_of,
};
use crate::state::epoch::{CardResource, DagFairness};

/// A resource limits a DAG that is not rate limited if it is used to this part, in millionths.
const FULL_PPM: u32 = 900_000;
/// Users of a resource that are named, the largest first: an answer is read by people.
const USERS_MAX: usize = 16;

/// Input of a diagnosis.
#[derive(Debug, Clone, Copy)]
pub struct DiagnosisInput<'a> {
    pub dag: &'a DagView,
    /// Its card; `None` while it has no place.
    pub card: Option<&'a CardProfile>,
    /// Latencies of its nodes.
    pub latencies: &'a BTreeMap<NodeId, Cycles>,
    /// The DAGs on its card, itself included.
    pub flows: &'a [DagFairness],
    /// Slack of what it holds.
    pub headroom: &'a [Headroom],
    /// Free regions of its card.
    pub free_regions: usize,
    /// The tenant that reads it, who learns nothing of others; `None` for operators.
    pub reader: Option<&'a TenantId>,
}

/// The answer in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DagVerdict {
    /// It has no place on a card, so none of its packets pass.
    NotPlaced,
    /// It is not known that what was promised is there: a region or a card is lost.
    Unserved,
    /// Its counters were not read twice yet.
    NotMeasured,
    /// Nothing comes in.
    Idle,
    /// All that comes in is served, or lacks a fiftieth at most.
    KeepsUp,
    /// The promise is served, and more comes in than that.
    BeyondPromise,
    /// Less is served than was promised, though it comes in.
    BelowPromise,
}

/// A part of the way of a packet that waits nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyPart {
    /// Part that takes it.
    pub part: PacketPart,
    pub cycles: Cycles,
}

/// Parts of a packet's way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PacketPart {
    /// The card's core, with the first pass through the scheduler.
    Core,
    /// A further pass through the scheduler, before this stage.
    Pass(usize),
    /// A network task; of branches in parallel those of the longest.
    Node(NodeId),
}

/// The resource that limits a DAG, or would do so first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitingResource {
    pub resource: CardResource,
    /// The region, for what a region has.
    pub region: Option<RegionId>,
    /// The network task, if it is one.
    pub nt: Option<NtTypeId>,
    pub capacity: Bandwidth,
    /// Used part of it; unknown to a tenant where others use it too.
    pub used: Option<Bandwidth>,
    /// Whether it limits the DAG now; otherwise it is the fullest of its resources.
    pub is_limiting: bool,
}

/// A DAG's part of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceUser {
    pub dag: DagName,
    /// Used part of the resource.
    pub used: Bandwidth,
}

/// A change that would help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// A place must become free, or less be asked for.
    MakeRoom,
    /// It is repaired without a request.
    AwaitRepair,
    /// Its packets are smaller than stated: bytes on average.
    StatePacketSizes(u64),
    /// Promise what it needs.
    RaiseBandwidth {
        to: Bandwidth,
        /// Bandwidth that fits where it is, if the reader may know.
        fits: Option<Bandwidth>,
    },
    /// More instances: so many regions are free, if the reader may know.
    MoreInstances(Option<usize>),
    /// Another card: a port of this one is full.
    OtherCard,
    /// Fewer packets on the card at once: the packet store is full.
    ShortenChain,
    /// Its own tasks drop packets as they are configured.
    CheckConfiguration,
    /// Packets met a fault of the control plane.
    ReportFault,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MakeRoom => f.write_str(
                "ask for less bandwidth, or delete DAGs; it is placed as soon as there is room",
            ),
            Self::AwaitRepair => f.write_str(
                "wait: placing it is retried when something changes; events say what was lost",
            ),
            Self::StatePacketSizes(bytes) => write!(
                f,
                "its packets have {bytes} bytes on average, less than it states: say \
                 `packet_sizes: {bytes}` so that enough packets are promised"
            ),
            Self::RaiseBandwidth { to, fits } => {
                write!(f, "promise it more: {to} come in")?;
                fits.map_or(Ok(()), |fits| write!(f, ", and {fits} fit where it is"))
            }
            Self::MoreInstances(None) => f.write_str("more instances, which autoscaling adds"),
            Self::MoreInstances(Some(0)) => {
                f.write_str("more instances, but no region is free: delete or consolidate DAGs")
            }
            Self::MoreInstances(Some(free)) => {
                write!(f, "more instances, which autoscaling adds; free regions: {free}")
            }
            Self::OtherCard => f.write_str("another card for it or for others"),
            Self::ShortenChain => f.write_str(
                "a shorter way through the card, or less load: the packet store is full of \
                 packets on their way",
            ),
            Self::CheckConfiguration => f.write_str(
                "if that is not meant, change the configuration of its tasks: they drop packets",
            ),
            Self::ReportFault => f.write_str(
                "packets met regions that were not ready, which must not happen: report it with a \
                 support bundle",
            ),
        }
    }
}

/// Why a DAG is as fast as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    pub dag: DagName,
    pub card: Option<CardId>,
    /// The answer in a word.
    pub verdict: DagVerdict,
    /// The answer as a sentence.
    pub summary: String,
    pub promised: Bandwidth,
    pub offered: Bandwidth,
    /// Load that its token bucket let in.
    pub admitted: Bandwidth,
    /// Rate of its token bucket.
    pub rate: Bandwidth,
    pub served: Bandwidth,
    /// Shortfall against the smaller of promise and load.
    pub shortfall: Bandwidth,
    /// Its packets of the last second, which verdict and rates are of.
    pub last_second: TrafficWindow,
    pub last_ten_seconds: TrafficWindow,
    /// The clock of its card, for cycles; 0 without a card.
    pub clock_hz: u64,
    /// The way of a packet that waits nowhere, part by part.
    pub latency: Vec<LatencyPart>,
    /// Latencies of its packets lately, as its card measured them.
    pub measured: MeasuredLatencies,
    /// These beside the planned one as a sentence, with the part that takes longer; empty where no packet was sampled.
    pub latency_summary: String,
    /// Resource that limits it, or would do so first.
    pub limit: Option<LimitingResource>,
    /// Users of that resource, the largest first, as far as the reader may know.
    pub users: Vec<ResourceUser>,
    /// Users that are not named, because there are many.
    pub users_left_out: usize,
    /// Changes that would help, the best first.
    pub remedies: Vec<Remedy>,
}

/// Finds out why a DAG is as fast as it is. Time O(DAGs on its card).
pub fn diagnose(input: &DiagnosisInput<'_>) -> Diagnosis {
    let dag = input.dag;
    let traffic = dag.traffic.as_deref().copied().unwrap_or_default();
    let verdict = verdict(dag);
    let own = input.flows.iter().find(|flow| flow.dag == dag.name);
    let loses = traffic.last_second.loses();
    let limit = own.and_then(|own| limit(input, own, loses));
    let (users, users_left_out) =
        limit.as_ref().map(|limit| users(input, limit.resource)).unwrap_or_default();
    let clock_hz = input.card.map_or(0, |card| card.clock_hz);
    let planned = latency(input);
    let measured = dag.measured.as_deref().cloned().unwrap_or_default();
    Diagnosis {
        dag: dag.name.clone(),
        card: dag.mapping.as_ref().map(|mapping| mapping.card.clone()),
        verdict,
        summary: summary(dag, verdict, &traffic, limit.as_ref()),
        promised: dag.spec.bandwidth,
        offered: traffic.offered,
        admitted: traffic.offered.min(dag.rate),
        rate: dag.rate,
        served: traffic.served,
        shortfall: dag.shortfall,
        last_second: traffic.last_second,
        last_ten_seconds: traffic.last_ten_seconds,
        clock_hz,
        latency_summary: latency_summary(&measured, &planned, clock_hz),
        measured,
        latency: planned,
        remedies: remedies(input, verdict, &traffic, limit.as_ref()),
        limit,
        users,
        users_left_out,
    }
}

fn verdict(dag: &DagView) -> DagVerdict {
    match &dag.traffic {
        _ if dag.mapping.is_none() => DagVerdict::NotPlaced,
        _ if dag.unserved > Bandwidth::ZERO => DagVerdict::Unserved,
        None => DagVerdict::NotMeasured,
        Some(traffic) if traffic.offered == Bandwidth::ZERO => DagVerdict::Idle,
        Some(_) if dag.shortfall > Bandwidth::ZERO => DagVerdict::BelowPromise,
        Some(traffic) if traffic.last_second.loses() => DagVerdict::BeyondPromise,
        Some(_) => DagVerdict::KeepsUp,
    }
}

/// Amount of a resource that a DAG uses now.
fn used(flow: &DagFairness, resource: CardResource) -> Bandwidth {
    let uses = flow.resources.iter().filter(|of| of.resource == resource);
    let cost: u64 = uses.map(|of| u64::from(of.cost)).sum();
    part_of(flow.served, cost, 1 << 20)
}

/// Resource that keeps it below its load; otherwise the fullest of its resources.
fn limit(input: &DiagnosisInput<'_>, own: &DagFairness, loses: bool) -> Option<LimitingResource> {
    let is_others =
        |flow: &DagFairness| input.reader.is_some_and(|reader| flow.dag.tenant != *reader);
    let load = |resource: CardResource| {
        let all = input.flows.iter().map(|flow| (flow, used(flow, resource)));
        let all = all.filter(|(_, used)| *used > Bandwidth::ZERO);
        all.fold((0_u64, false), |(sum, shared), (flow, used)| {
            (sum.saturating_add(used.get()), shared || is_others(flow))
        })
    };
    let ppm = |used: u64, capacity: u64| {
        let ppm = u128::from(used) * 1_000_000 / u128::from(capacity.max(1));
        u32::try_from(ppm).unwrap_or(u32::MAX)
    };
    let fullness = |resource: CardResource, capacity| ppm(load(resource).0, capacity);
    // Rates are of the last epoch: since then the DAG may have left a region, which limits it no more.
    let told = own.limited_by.filter(|told| loses && is_passed(input.dag, *told));
    let uses = own.resources.iter().filter(|of| is_passed(input.dag, of.resource));
    let uses = uses.filter(|of| told.is_none_or(|told| told == of.resource));
    let fullest = uses.max_by_key(|of| fullness(of.resource, of.capacity))?;
    let (sum, is_shared) = load(fullest.resource);
    let region = fullest.resource.region();
    Some(LimitingResource {
        resource: fullest.resource,
        region,
        nt: fullest
            .resource
            .slot()
            .zip(region)
            .and_then(|(slot, region)| nt_of(input.dag, region, slot)),
        capacity: Bandwidth::from_bps(fullest.capacity),
        used: (!is_shared).then_some(Bandwidth::from_bps(sum)),
        is_limiting: loses && (told.is_some() || ppm(sum, fullest.capacity) >= FULL_PPM),
    })
}

/// Whether packets of the DAG pass the resource by its present mapping.
fn is_passed(dag: &DagView, resource: CardResource) -> bool {
    match (resource.region(), resource.slot()) {
        (Some(region), Some(slot)) => nt_of(dag, region, slot).is_some(),
        (Some(region), None) => dag
            .mapping
            .iter()
            .flat_map(|mapping| mapping.instances())
            .any(|instance| instance.region == region),
        (None, _) => true,
    }
}

/// The network task that serves a DAG there.
fn nt_of(dag: &DagView, region: RegionId, slot: Slot) -> Option<NtTypeId> {
    let mut instances = dag.mapping.iter().flat_map(|mapping| mapping.instances());
    let instance = instances.find(|instance| instance.region == region)?;
    dag.contents.get(&instance.bitstream)?.get(slot.index()).cloned()
}

/// Users of a resource, the largest first, and the number of those that are left out.
fn users(input: &DiagnosisInput<'_>, resource: CardResource) -> (Vec<ResourceUser>, usize) {
    let may_know =
        |flow: &&DagFairness| input.reader.is_none_or(|reader| flow.dag.tenant == *reader);
    let of =
        |flow: &DagFairness| ResourceUser { dag: flow.dag.clone(), used: used(flow, resource) };
    let passes = |flow: &&DagFairness| flow.resources.iter().any(|of| of.resource == resource);
    let mut all: Vec<ResourceUser> =
        input.flows.iter().filter(passes).filter(may_know).map(of).collect();
    all.sort_by(|left, right| right.used.cmp(&left.used).then_with(|| left.dag.cmp(&right.dag)));
    let left_out = all.len().saturating_sub(USERS_MAX);
    all.truncate(USERS_MAX);
    (all, left_out)
}

/// The parts sum up to the latency of the mapping.
fn latency(input: &DiagnosisInput<'_>) -> Vec<LatencyPart> {
    let (Some(card), Some(mapping)) = (input.card, &input.dag.mapping) else { return Vec::new() };
    let of_node = |id: &NodeId| input.latencies.get(id).copied().unwrap_or(Cycles::ZERO);
    let of_chain = |chain: &VirtualChain| -> Cycles { chain.nodes.iter().map(of_node).sum() };
    let mut parts = vec![LatencyPart { part: PacketPart::Core, cycles: card.core }];
    for (index, stage) in mapping.stages.iter().enumerate() {
        if index > 0 {
            let part = PacketPart::Pass(index + 1);
            parts.push(LatencyPart { part, cycles: card.scheduler_pass });
        }
        let longest = stage.branches.iter().max_by_key(|chain| of_chain(chain));
        let nodes = longest.into_iter().flat_map(|chain| &chain.nodes);
        parts.extend(
            nodes.map(|id| LatencyPart { part: PacketPart::Node(id.clone()), cycles: of_node(id) }),
        );
    }
    parts
}

/// Measured latency beside the planned one.
fn latency_summary(measured: &MeasuredLatencies, planned: &[LatencyPart], clock_hz: u64) -> String {
    let lately = [&measured.last_second, &measured.last_ten_seconds];
    let Some(lately) = lately.into_iter().find(|lately| lately.samples > 0) else {
        return String::new();
    };
    let time = |cycles: Cycles| cycles.duration(clock_hz);
    let all: Cycles = planned.iter().map(|part| part.cycles).sum();
    let of_part = |part: &MeasuredPart| -> Duration {
        let is_it = |of: &&LatencyPart| match (part, &of.part) {
            (MeasuredPart::Task(node), PacketPart::Node(of)) => node == of,
            (MeasuredPart::Path(PathPart::Pipeline), PacketPart::Core | PacketPart::Pass(_)) => {
                true
            }
            _ => false,
        };
        planned.iter().filter(is_it).map(|of| time(of.cycles)).sum()
    };
    let total = &lately.total;
    let text = format!(
        "99 % of its packets take {} or less, half of them {}, the longest {}; {} without waiting",
        short(total.p99),
        short(total.p50),
        short(total.max),
        short(time(all)),
    );
    match lately.slowest(of_part) {
        Some((part, excess)) => {
            format!("{text}; longer is mostly {part}: {} at p99", short(excess))
        }
        None => text,
    }
}

/// A time for people.
fn short(time: Duration) -> String {
    match time.as_nanos() {
        nanos @ ..10_000 => format!("{nanos} ns"),
        nanos @ ..10_000_000 => format!("{}.{} µs", nanos / 1_000, nanos / 100 % 10),
        nanos => format!("{}.{} ms", nanos / 1_000_000, nanos / 100_000 % 10),
    }
}

fn summary(
    dag: &DagView,
    verdict: DagVerdict,
    traffic: &DagTraffic,
    limit: Option<&LimitingResource>,
) -> String {
    let (promised, offered, served) = (dag.spec.bandwidth, traffic.offered, traffic.served);
    let wrong = dag.conditions.iter().find(|condition| condition.status != ConditionStatus::True);
    let why = wrong.map_or("", |condition| &condition.message);
    let limited =
        limit.filter(|limit| limit.is_limiting).map_or_else(String::new, |limit| {
            match (&limit.nt, limit.region) {
                (Some(nt), Some(region)) => format!("; limited by {nt} in region {region}"),
                _ => format!("; limited by {}", limit.resource),
            }
        });
    match verdict {
        DagVerdict::NotPlaced => format!("it has no place on a card, so no packet passes: {why}"),
        DagVerdict::Unserved => format!("{} of its promise are not served: {why}", dag.unserved),
        DagVerdict::NotMeasured if dag.state == DagState::Ready => {
            "its counters were not read twice yet; ask again in a moment".to_owned()
        }
        DagVerdict::NotMeasured => format!("it is not ready: {why}"),
        DagVerdict::Idle => {
            "nothing comes in; see that packets reach the card, and that a rule or \
                          their descriptor leads them to this DAG"
                .to_owned()
        }
        DagVerdict::KeepsUp => match traffic.last_second.lost() {
            0 => format!("all that comes in is served: {served} of {offered}"),
            lost => format!(
                "{offered} come in and {served} are served; {lost} of {} packets were dropped",
                traffic.last_second.packets_in
            ),
        },
        DagVerdict::BeyondPromise => format!(
            "the promise of {promised} is kept; {offered} come in and {served} are served{limited}"
        ),
        DagVerdict::BelowPromise => format!(
            "below its promise of {promised}: {offered} come in and {served} are served{limited}"
        ),
    }
}

fn remedies(
    input: &DiagnosisInput<'_>,
    verdict: DagVerdict,
    traffic: &DagTraffic,
    limit: Option<&LimitingResource>,
) -> Vec<Remedy> {
    let (dag, recent) = (input.dag, &traffic.last_ten_seconds);
    let mut found = match verdict {
        DagVerdict::NotPlaced => vec![Remedy::MakeRoom],
        DagVerdict::Unserved => vec![Remedy::AwaitRepair],
        _ => Vec::new(),
    };
    let faults = DropCause::ALL.into_iter().filter(|cause| cause.is_error());
    if faults.map(|cause| recent.dropped(cause)).sum::<u64>() > 0 {
        found.push(Remedy::ReportFault);
    }
    if matches!(verdict, DagVerdict::BeyondPromise | DagVerdict::BelowPromise) {
        let stated = u64::from(dag.spec.packet_sizes.mean_bytes());
        // A tenth less may be chance.
        let small = recent.mean_bytes().filter(|mean| mean * 10 < stated * 9);
        found.extend(small.map(Remedy::StatePacketSizes));
        if traffic.offered > dag.spec.bandwidth {
            found.push(Remedy::RaiseBandwidth { to: traffic.offered, fits: fits(input) });
        }
        let limiting = limit.filter(|limit| limit.is_limiting);
        found.extend(limiting.map(|limit| match limit.region {
            Some(_) => Remedy::MoreInstances(input.reader.is_none().then_some(input.free_regions)),
            None if limit.resource == CardResource::PACKET_STORE => Remedy::ShortenChain,
            None => Remedy::OtherCard,
        }));
        let is_told = found.contains(&Remedy::ShortenChain);
        if recent.dropped(DropCause::StoreFull) > 0 && !is_told {
            found.push(Remedy::ShortenChain);
        }
    }
    if recent.dropped(DropCause::ByNt) > 0 {
        found.push(Remedy::CheckConfiguration);
    }
    found
}

/// Bandwidth that the DAG could be promised where it is, by the slack of all that it holds; unknown where a resource tells of
/// others.
fn fits(input: &DiagnosisInput<'_>) -> Option<Bandwidth> {
    let is_hidden = |left: &Headroom| left.of_others && input.reader.is_some();
    if input.headroom.iter().any(is_hidden) {
        return None;
    }
    let promised = input.dag.spec.bandwidth;
    let most = input.headroom.iter().filter(|left| left.held > 0);
    let most =
        most.map(|left| part_of(promised, left.held.saturating_add(left.available), left.held));
    most.min().filter(|most| *most > promised)
}

#[cfg(test)]
mod tests;
