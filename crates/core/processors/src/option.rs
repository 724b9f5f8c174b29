//! One way to run an NT: what it gives, what it lacks, and which guidelines speak for and against it.

use std::fmt;
use std::time::Duration;

use snic_domain::{Bandwidth, ByteSize, MemoryKind, ProcessorKind};

use crate::estimate::{Setting, SizeBound, ThroughputLimit};

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
        /// Bandwidth that it serves.
        bandwidth: Bandwidth,
        limit: ThroughputLimit,
    },
    /// A packet takes too long.
    TooLate { latency: Duration, allowed: Duration },
    /// A latency is asked for, and nobody measured it.
    UnmeasuredLatency,
    /// Nobody measured what limits it.
    Unmeasured(Vec<ThroughputLimit>),
    /// No thread is free.
    NoThreads,
    /// Fewer regions are free than needed.
    NoRegions {
        /// Number of needed threads.
        needed: u32,
        /// Number of free threads.
        free: u32,
    },
    /// A memory has no room for the working set.
    NoMemory { memory: MemoryKind, needed: ByteSize, free: ByteSize },
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
    /// Bandwidth that it serves, at most.
    pub bandwidth: Bandwidth,
    /// Limit of it; for regions what the NT serves.
    pub limit: ThroughputLimit,
    /// Time of a packet, if known.
    pub latency: Option<Duration>,
    /// Sizes of packets that nobody measured.
    pub bounded: Vec<SizeBound>,
    /// Bytes that it keeps in the memory of its working set.
    pub working_set: ByteSize,
    /// Bandwidth that the memory of its packets receives for the demand, as `Free::received` counts it.
    pub receives: Bandwidth,
    /// Part of the free resources that it takes, in thousandths.
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

    /// Distance that packets go: processor, then buffers, the nearest first (Fig. 10). Regions are in the data path.
    pub(crate) fn distance(&self) -> Option<(ProcessorKind, MemoryKind, MemoryKind)> {
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
            write_bounds(f, &self.bounded)?;
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

/// `; not measured: 64 and 594 bytes (counted as 1024), 1518 bytes (at the bandwidth of 1024)`.
fn write_bounds(f: &mut fmt::Formatter<'_>, bounds: &[SizeBound]) -> fmt::Result {
    let mut groups: Vec<(bool, ByteSize, Vec<String>)> = Vec::new();
    for bound in bounds {
        let (is_smaller, size) = (bound.size < bound.measured, bound.size.get().to_string());
        match groups.iter_mut().find(|one| (one.0, one.1) == (is_smaller, bound.measured)) {
            Some((_, _, sizes)) => sizes.push(size),
            None => groups.push((is_smaller, bound.measured, vec![size])),
        }
    }
    for (at, (is_smaller, measured, sizes)) in groups.iter().enumerate() {
        let (sizes, measured) = (sizes.join(" and "), measured.get());
        let how = if *is_smaller { "counted as" } else { "at the bandwidth of" };
        let begin = if at == 0 { "; not measured: " } else { ", " };
        write!(f, "{begin}{sizes} bytes ({how} {measured})")?;
    }
    Ok(())
}
