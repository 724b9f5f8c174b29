//! Which implementation an NT gets, with how many threads and its buffers where, and why.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use snic_domain::{Bandwidth, ByteSize, MemoryKind, NtTypeId, ProcessorKind};

use crate::estimate::{Estimate, Setting, ThroughputLimit, estimate, settings};
use crate::model::{Implementation, Intensity, NicModel, PacketWork, Processor};

/// What an NT needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NtDemand {
    /// Which NT.
    pub nt: NtTypeId,
    /// What it is to serve.
    pub bandwidth: Bandwidth,
    /// The average size of its packets.
    pub packet: ByteSize,
    /// What it keeps and looks at again: tables, aggregates.
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

/// What is free on a card and its host. What is not listed is not free.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Free {
    /// Regions.
    pub regions: u32,
    /// Threads.
    pub threads: BTreeMap<ProcessorKind, u32>,
    /// Bytes of memories.
    pub memory: BTreeMap<MemoryKind, ByteSize>,
    /// What processors receive already, by the memory of their buffers.
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
    pub fn take(&mut self, demand: &NtDemand, option: &PlacementOption) {
        self.regions = self.regions.saturating_sub(option.regions);
        let Some((kind, setting)) = option.setting else { return };
        if let Some(threads) = self.threads.get_mut(&kind) {
            *threads = threads.saturating_sub(setting.threads);
        }
        if let Some(memory) = self.memory.get_mut(&setting.working) {
            *memory = memory.saturating_sub(option.working_set);
        }
        *self.received.entry((kind, setting.network)).or_default() += demand.bandwidth;
    }
}

/// An NT as FPGA regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionOffer {
    /// What it serves in as many regions as are named here.
    pub bandwidth: Bandwidth,
    /// What a packet takes.
    pub latency: Duration,
    /// Regions that it takes.
    pub regions: u32,
}

/// One way to run the NT.
#[derive(Debug, Clone, Copy)]
pub enum Offer<'a> {
    /// In regions.
    Region(RegionOffer),
    /// On a processor.
    Processor {
        /// Which processor.
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

/// The study's guidelines (VI).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guideline {
    /// 1: what is simple and needs low latency goes to the DPA, with packets in DPA memory.
    NearTheNetwork,
    /// 2: what is parallel, with a working set that fits the cache, may go to the DPA.
    ParallelAndSmall,
    /// 3: buffers by use.
    BuffersByUse,
}

impl fmt::Display for Guideline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NearTheNetwork => "guideline 1 (simple, near the network, packets in DPA memory)",
            Self::ParallelAndSmall => "guideline 2 (parallel, working set in the cache)",
            Self::BuffersByUse => "guideline 3 (buffers by use)",
        })
    }
}

/// Why an option is impossible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objection {
    /// It serves less than needed, with all threads it can have.
    TooSlow {
        /// What it serves.
        bandwidth: Bandwidth,
        /// What limits it.
        limit: ThroughputLimit,
    },
    /// A packet takes too long.
    TooLate {
        /// What it takes.
        latency: Duration,
        /// What is allowed.
        allowed: Duration,
    },
    /// A latency is asked for, and nobody measured it.
    UnmeasuredLatency,
    /// Nobody measured what limits it.
    Unmeasured(Vec<ThroughputLimit>),
    /// No thread is free.
    NoThreads,
    /// Fewer regions are free than needed.
    NoRegions {
        /// How many are needed.
        needed: u32,
        /// How many are free.
        free: u32,
    },
    /// A memory has no room for the working set.
    NoMemory {
        /// Which.
        memory: MemoryKind,
        /// What is needed.
        needed: ByteSize,
        /// What is free.
        free: ByteSize,
    },
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSlow { bandwidth, limit } => write!(f, "{bandwidth} at most ({limit})"),
            Self::TooLate { latency, allowed } => {
                write!(f, "a packet takes {latency:?}, {allowed:?} are allowed")
            }
            Self::UnmeasuredLatency => f.write_str("latency unknown: nobody measured it"),
            Self::Unmeasured(limits) => {
                let names: Vec<String> = limits.iter().map(ThroughputLimit::to_string).collect();
                write!(f, "bandwidth unknown: nobody measured {}", names.join(", "))
            }
            Self::NoThreads => f.write_str("no thread is free"),
            Self::NoRegions { needed, free } => write!(f, "{needed} regions needed, {free} free"),
            Self::NoMemory { memory, needed, free } => {
                write!(f, "{needed} needed in {}, {free} free", memory.name())
            }
        }
    }
}

/// One way to run an NT, judged.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementOption {
    /// The processor and how it is used; `None` for regions.
    pub setting: Option<(ProcessorKind, Setting)>,
    /// Regions that it takes.
    pub regions: u32,
    /// What it serves, at most.
    pub bandwidth: Bandwidth,
    /// What limits it; for regions what the NT serves.
    pub limit: ThroughputLimit,
    /// What a packet takes, if known.
    pub latency: Option<Duration>,
    /// What it keeps in the memory of its working set.
    pub working_set: ByteSize,
    /// What it takes of what is free, in thousandths.
    pub share_permille: u32,
    /// Why it is impossible. Empty: it serves the demand.
    pub objections: Vec<Objection>,
    /// Guidelines that speak for it.
    pub follows: Vec<Guideline>,
    /// Guidelines that speak against it.
    pub against: Vec<Guideline>,
}

impl PlacementOption {
    /// Whether it serves the demand.
    pub fn is_possible(&self) -> bool {
        self.objections.is_empty()
    }

    /// How far packets go: processor, then buffers, the nearest first (Fig. 10). Regions are in the data path.
    fn distance(&self) -> Option<(ProcessorKind, MemoryKind, MemoryKind)> {
        self.setting.map(|(kind, setting)| (kind, setting.network, setting.working))
    }

    /// Where and how, in words.
    pub fn place(&self) -> String {
        let plural = |count: u32, what: &str| match count {
            1 => format!("1 {what}"),
            count => format!("{count} {what}s"),
        };
        let Some((kind, setting)) = self.setting else {
            return plural(self.regions, "region");
        };
        let threads = plural(setting.threads, "thread");
        let place = format!("{}, {threads}, packets in {}", kind.name(), setting.network.name());
        if setting.working == setting.network {
            return place;
        }
        format!("{place}, working set in {}", setting.working.name())
    }
}

impl fmt::Display for PlacementOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place())?;
        if self.is_possible() {
            write!(f, "up to {} ({}), latency ", self.bandwidth, self.limit)?;
            match self.latency {
                Some(latency) => write!(f, "{latency:?}")?,
                None => f.write_str("unknown")?,
            }
        }
        let list = |parts: Vec<String>| parts.join("; ");
        f.write_str(&list(self.objections.iter().map(Objection::to_string).collect()))?;
        for (word, guidelines) in [("by", &self.follows), ("against", &self.against)] {
            if !guidelines.is_empty() {
                let names = guidelines.iter().map(Guideline::to_string).collect();
                write!(f, "; {word} {}", list(names))?;
            }
        }
        Ok(())
    }
}

/// What an NT gets, and what every other option would give.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The option that is taken.
    pub taken: PlacementOption,
    /// The others, the next best first.
    pub others: Vec<PlacementOption>,
}

impl Choice {
    /// What made it better than the next one, as a sentence.
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
    /// Which NT.
    pub nt: NtTypeId,
    /// What was needed.
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
        working_set: ByteSize::ZERO,
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
    let sizes = (demand.packet, working_set);
    let with = |threads: u32| {
        let setting = Setting { threads, ..setting };
        estimate(processor, implementation, line, sizes, setting)
    };
    let threads = fewest(most, |threads| with(threads).bandwidth >= demand.bandwidth);
    let Estimate { bandwidth, limit, unmeasured, latency } = with(threads.max(1));
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
    let taken = free.received.get(&(processor.kind, setting.network)).copied().unwrap_or_default();
    let most = processor.path(setting.network).and_then(|path| path.receive);
    if let Some(left) = most.map(|most| most.saturating_sub(taken))
        && taken > Bandwidth::ZERO
        && left < demand.bandwidth
    {
        let limit = ThroughputLimit::Receive(setting.network);
        objections.push(Objection::TooSlow { bandwidth: left, limit });
    }
    let sized = NtDemand { working_set, ..demand.clone() };
    let (follows, against) = guidelines(&sized, processor, implementation, setting);
    PlacementOption {
        setting: Some((processor.kind, setting)),
        regions: 0,
        bandwidth,
        limit,
        latency,
        working_set,
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
    if implementation.intensity == Intensity::Compute || demand.is_latency_sensitive && !is_near {
        against.push(Guideline::NearTheNetwork);
    } else if demand.is_latency_sensitive && implementation.intensity == Intensity::Simple {
        follows.push(Guideline::NearTheNetwork);
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

/// `used` of `all` in thousandths, rounded up; all of it where nothing is free.
fn share(used: u32, all: u32) -> u32 {
    let permille = (u64::from(used) * 1_000).div_ceil(u64::from(all.max(1)));
    u32::try_from(permille).unwrap_or(u32::MAX).max(u32::from(all == 0) * 1_000)
}
