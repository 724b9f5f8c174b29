//! Choice of an NT's implementation, with how many threads and its buffers where, and why.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use snic_domain::{Bandwidth, ByteSize, MemoryKind, NtTypeId, PacketSizes, ProcessorKind};

use crate::estimate::{Estimate, Setting, ThroughputLimit, estimate, settings};
use crate::model::{Implementation, Intensity, NicModel, PacketWork, Processor};
use crate::option::{Guideline, Objection, PlacementOption};

/// Needs of an NT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NtDemand {
    pub nt: NtTypeId,
    /// Bandwidth that it is to serve.
    pub bandwidth: Bandwidth,
    /// The sizes of its packets.
    pub packets: PacketSizes,
    /// Bytes that it keeps and looks at again: tables, aggregates.
    pub working_set: ByteSize,
    /// Whether its latency matters more than what it takes.
    pub is_latency_sensitive: bool,
    /// The longest latency that is allowed.
    pub latency_max: Option<Duration>,
}

/// The settings to look at. Without a working set, where it would be makes no difference.
fn distinct(
    demand: &NtDemand,
    processor: &Processor,
    implementation: &Implementation,
) -> Vec<Setting> {
    let moves = |work: &PacketWork| work.working_read_permille + work.working_write_permille > 0;
    let has_set = implementation.working_set.unwrap_or_default().max(demand.working_set)
        > ByteSize::ZERO
        || implementation.work.as_ref().is_some_and(moves);
    let mut settings = settings(processor, 0);
    settings.retain(|setting| has_set || setting.working == setting.network);
    settings
}

/// Free part of a card and its host. What is not listed is not free.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Free {
    pub regions: u32,
    pub threads: BTreeMap<ProcessorKind, u32>,
    /// Bytes of memories.
    pub memory: BTreeMap<MemoryKind, ByteSize>,
    /// Bandwidth that processors receive already, by the memory of their buffers; packets smaller than those with which
    /// that was measured count as large as these.
    pub received: BTreeMap<(ProcessorKind, MemoryKind), Bandwidth>,
}

impl Free {
    /// A card that nobody uses. A memory whose size nobody printed has room for anything.
    pub fn all(model: &NicModel) -> Self {
        let threads = model.processors.iter();
        let threads = threads.filter_map(|one| Some((one.kind, one.usable()?))).collect();
        let paths = model.processors.iter().flat_map(|one| &one.memories);
        let largest = ByteSize::from_bytes(u64::MAX);
        let mut memory = BTreeMap::new();
        for path in paths {
            let size = path.size.unwrap_or(largest);
            memory.entry(path.memory).and_modify(|old| *old = size.min(*old)).or_insert(size);
        }
        Self { regions: 0, threads, memory, received: BTreeMap::new() }
    }

    /// Takes what an option needs.
    pub fn take(&mut self, option: &PlacementOption) {
        self.regions = self.regions.saturating_sub(option.regions);
        let Some((kind, setting)) = option.setting else { return };
        if let Some(threads) = self.threads.get_mut(&kind) {
            *threads = threads.saturating_sub(setting.threads);
        }
        if let Some(memory) = self.memory.get_mut(&setting.working) {
            *memory = memory.saturating_sub(option.working_set);
        }
        *self.received.entry((kind, setting.network)).or_default() += option.receives;
    }
}

/// An NT as FPGA regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionOffer {
    /// Bandwidth that it serves in as many regions as are named here.
    pub bandwidth: Bandwidth,
    /// Time of a packet.
    pub latency: Duration,
    /// Regions that it takes.
    pub regions: u32,
}

/// One way to run the NT.
#[derive(Debug, Clone, Copy)]
pub enum Offer<'a> {
    Region(RegionOffer),
    /// On a processor.
    Processor {
        processor: &'a Processor,
        /// The program and what was measured of it.
        implementation: &'a Implementation,
        /// The line of its card.
        line: Bandwidth,
    },
}

impl<'a> Offer<'a> {
    /// All processors of a model that somebody measured an NT on.
    pub fn of_model(model: &'a NicModel, nt: &NtTypeId) -> Vec<Self> {
        let here = model.implementations.iter().filter(|one| one.nt == *nt);
        let offer = |implementation: &'a Implementation| {
            let processor = model.processor(implementation.on)?;
            Some(Self::Processor { processor, implementation, line: model.line })
        };
        here.filter_map(offer).collect()
    }
}

/// Implementation that an NT gets, and what every other option would give.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The option that is taken.
    pub taken: PlacementOption,
    /// The others, the next best first.
    pub others: Vec<PlacementOption>,
}

impl Choice {
    /// Advantage over the next one, as a sentence.
    pub fn decided_by(&self) -> String {
        let Some(next) = self.others.first().filter(|next| next.is_possible()) else {
            return "the only one that serves it".into();
        };
        let (taken, other) = (&self.taken, next.place());
        let against = next.against.iter().find(|one| !taken.against.contains(one));
        let follows = taken.follows.iter().find(|one| !next.follows.contains(one));
        match (against, follows) {
            (Some(one), _) if taken.against.len() < next.against.len() => {
                format!("decided by {one}, which speaks against {other}")
            }
            (_, Some(one)) if taken.follows.len() > next.follows.len() => {
                format!("decided by {one}, which does not speak for {other}")
            }
            _ if taken.share_permille < next.share_permille => format!(
                "it takes less of what is free ({} of 1000) than {other} ({})",
                taken.share_permille, next.share_permille
            ),
            _ => format!("as good as {other}, with a shorter way of its packets"),
        }
    }
}

/// No option serves the demand.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("no implementation of {nt} serves {bandwidth}{}", reasons(.options))]
pub struct NoChoice {
    pub nt: NtTypeId,
    pub bandwidth: Bandwidth,
    /// All options, the one that comes nearest first.
    pub options: Vec<PlacementOption>,
}

fn reasons(options: &[PlacementOption]) -> String {
    match options.first() {
        None => ": nobody measured one here".into(),
        Some(nearest) => format!("; the nearest: {nearest}"),
    }
}

/// Chooses for one NT. Options against fewer guidelines go first, then those that more speak for; among these
/// the lowest latency where it matters, else the smallest share of what is free; then the shortest way of
/// packets.
///
/// # Errors
/// [`NoChoice`] if no option serves the demand, with what each would give.
pub fn choose(demand: &NtDemand, offers: &[Offer<'_>], free: &Free) -> Result<Choice, NoChoice> {
    let mut options = options(demand, offers, free);
    if options.first().is_some_and(PlacementOption::is_possible) {
        let taken = options.remove(0);
        return Ok(Choice { taken, others: options });
    }
    Err(NoChoice { nt: demand.nt.clone(), bandwidth: demand.bandwidth, options })
}

/// All options, judged, the best first: each implementation with each pair of buffers and the fewest threads
/// that serve the demand, or all that are free where none do.
pub fn options(demand: &NtDemand, offers: &[Offer<'_>], free: &Free) -> Vec<PlacementOption> {
    let mut options = Vec::new();
    for offer in offers {
        match offer {
            Offer::Region(region) => options.push(in_regions(demand, *region, free)),
            Offer::Processor { processor, implementation, line } => {
                let first = options.len();
                for setting in distinct(demand, processor, implementation) {
                    let offer = (*processor, *implementation, *line);
                    options.push(on_processor(demand, offer, setting, free));
                }
                name_buffers_by_use(&mut options[first..]);
            }
        }
    }
    let possible = options.iter().filter(|option| option.is_possible());
    let are_latencies_known = possible.clone().all(|option| option.latency.is_some());
    options.sort_by(|a, b| compare(demand, are_latencies_known, a, b));
    options
}

fn compare(
    demand: &NtDemand,
    are_latencies_known: bool,
    a: &PlacementOption,
    b: &PlacementOption,
) -> Ordering {
    let by_latency = || {
        let latency = if are_latencies_known { a.latency.cmp(&b.latency) } else { Ordering::Equal };
        latency.then_with(|| a.distance().cmp(&b.distance()))
    };
    let by_share = || a.share_permille.cmp(&b.share_permille);
    b.is_possible()
        .cmp(&a.is_possible())
        // Of what is impossible, the fastest is nearest.
        .then_with(|| if a.is_possible() { Ordering::Equal } else { b.bandwidth.cmp(&a.bandwidth) })
        .then_with(|| a.against.len().cmp(&b.against.len()))
        .then_with(|| b.follows.len().cmp(&a.follows.len()))
        .then_with(|| match demand.is_latency_sensitive {
            true => by_latency().then_with(by_share),
            false => by_share().then_with(by_latency),
        })
}

fn in_regions(demand: &NtDemand, offer: RegionOffer, free: &Free) -> PlacementOption {
    let RegionOffer { bandwidth, latency, regions } = offer;
    let mut objections = judge(demand, bandwidth, ThroughputLimit::Measured, Some(latency));
    if regions > free.regions {
        objections.push(Objection::NoRegions { needed: regions, free: free.regions });
    }
    PlacementOption {
        setting: None,
        regions,
        bandwidth,
        limit: ThroughputLimit::Measured,
        latency: Some(latency),
        bounded: Vec::new(),
        working_set: ByteSize::ZERO,
        receives: Bandwidth::ZERO,
        share_permille: share(regions, free.regions),
        objections,
        follows: Vec::new(),
        against: Vec::new(),
    }
}

fn on_processor(
    demand: &NtDemand,
    (processor, implementation, line): (&Processor, &Implementation, Bandwidth),
    setting: Setting,
    free: &Free,
) -> PlacementOption {
    let all = free.threads.get(&processor.kind).copied().unwrap_or_default();
    let most = if implementation.parallel { all } else { all.min(1) };
    let working_set = implementation.working_set.unwrap_or_default().max(demand.working_set);
    let sizes = (&demand.packets, working_set);
    let with = |threads: u32| {
        let setting = Setting { threads, ..setting };
        estimate(processor, implementation, line, sizes, setting)
    };
    let threads = fewest(most, |threads| with(threads).bandwidth >= demand.bandwidth);
    let Estimate { bandwidth, limit, unmeasured, latency, bounded } = with(threads.max(1));
    let setting = Setting { threads, ..setting };
    let mut objections = Vec::new();
    if unmeasured.is_empty() {
        objections = judge(demand, bandwidth, limit, latency);
    } else {
        objections.push(Objection::Unmeasured(unmeasured));
    }
    if threads == 0 {
        objections.push(Objection::NoThreads);
    }
    let room = free.memory.get(&setting.working).copied().unwrap_or_default();
    let size = processor.path(setting.working).and_then(|path| path.size);
    let room = size.map_or(room, |size| size.min(room));
    if room < working_set {
        let (memory, needed) = (setting.working, working_set);
        objections.push(Objection::NoMemory { memory, needed, free: room });
    }
    let path = processor.path(setting.network);
    let of = |bandwidth| path.map_or(bandwidth, |path| path.received(&demand.packets, bandwidth));
    let receives = of(demand.bandwidth);
    let taken = free.received.get(&(processor.kind, setting.network)).copied().unwrap_or_default();
    if let Some(left) = path.and_then(|path| Some(path.receive?.saturating_sub(taken)))
        && taken > Bandwidth::ZERO
        && left < receives
    {
        let limit = ThroughputLimit::Receive(setting.network);
        // Of these packets, which may count as larger ones.
        let bandwidth = scaled(left, demand.bandwidth, receives);
        objections.push(Objection::TooSlow { bandwidth, limit });
    }
    let sized = NtDemand { working_set, ..demand.clone() };
    let (follows, against) = guidelines(&sized, processor, implementation, setting);
    PlacementOption {
        setting: Some((processor.kind, setting)),
        regions: 0,
        bandwidth,
        limit,
        latency,
        bounded,
        working_set,
        receives,
        share_permille: share(threads, all),
        objections,
        follows,
        against,
    }
}

/// The fewest threads that are enough; all of them if none are. What they serve never falls with their number.
fn fewest(most: u32, is_enough: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (1, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_enough(middle) { high = middle } else { low = middle + 1 }
    }
    high
}

fn judge(
    demand: &NtDemand,
    bandwidth: Bandwidth,
    limit: ThroughputLimit,
    latency: Option<Duration>,
) -> Vec<Objection> {
    let mut objections = Vec::new();
    if bandwidth < demand.bandwidth {
        objections.push(Objection::TooSlow { bandwidth, limit });
    }
    if let Some(allowed) = demand.latency_max {
        match latency {
            None => objections.push(Objection::UnmeasuredLatency),
            Some(latency) if latency > allowed => {
                objections.push(Objection::TooLate { latency, allowed });
            }
            Some(_) => {}
        }
    }
    objections
}

/// Guidelines for and against one setting. They are about the DPA; other processors have none.
fn guidelines(
    demand: &NtDemand,
    processor: &Processor,
    implementation: &Implementation,
    setting: Setting,
) -> (Vec<Guideline>, Vec<Guideline>) {
    let (mut follows, mut against) = (Vec::new(), Vec::new());
    if processor.kind != ProcessorKind::Dpa {
        return (follows, against);
    }
    let is_near = setting.network == MemoryKind::Dpa && setting.working == MemoryKind::Dpa;
    match implementation.intensity {
        Intensity::Compute => against.push(Guideline::NearTheNetwork),
        Intensity::Memory if demand.is_latency_sensitive => against.push(Guideline::NearTheNetwork),
        // With packets elsewhere it is still nearer than other processors, which `compare` sees.
        Intensity::Simple if demand.is_latency_sensitive && is_near => {
            follows.push(Guideline::NearTheNetwork);
        }
        Intensity::Simple | Intensity::Memory => {}
    }
    let cache = processor.memories.iter().filter_map(|path| path.cache).max();
    let is_small = demand.working_set <= cache.unwrap_or_default();
    if !is_small {
        against.push(Guideline::ParallelAndSmall);
    } else if implementation.parallel && !demand.is_latency_sensitive {
        follows.push(Guideline::ParallelAndSmall);
    }
    (follows, against)
}

/// Says where other buffers of the same implementation would not do.
fn name_buffers_by_use(options: &mut [PlacementOption]) {
    let is_slow = |option: &PlacementOption| {
        option.objections.iter().any(|objection| matches!(objection, Objection::TooSlow { .. }))
    };
    if !options.iter().any(is_slow) {
        return;
    }
    let of_dpa = |option: &&mut PlacementOption| {
        option.is_possible() && option.setting.is_some_and(|(kind, _)| kind == ProcessorKind::Dpa)
    };
    for option in options.iter_mut().filter(of_dpa) {
        option.follows.push(Guideline::BuffersByUse);
    }
}

/// `of` times `part` over `whole`.
fn scaled(of: Bandwidth, part: Bandwidth, whole: Bandwidth) -> Bandwidth {
    let all = u128::from(of.get()) * u128::from(part.get()) / u128::from(whole.get().max(1));
    Bandwidth::from_bps(u64::try_from(all).unwrap_or(u64::MAX))
}

/// `used` of `all` in thousandths, rounded up; all of it where nothing is free.
fn share(used: u32, all: u32) -> u32 {
    let permille = (u64::from(used) * 1_000).div_ceil(u64::from(all.max(1)));
    u32::try_from(permille).unwrap_or(u32::MAX).max(u32::from(all == 0) * 1_000)
}
