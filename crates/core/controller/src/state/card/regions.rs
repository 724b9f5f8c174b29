//! The regions of one card: desired and observed content, and the load under way.
//!
//! ```text
//!                     desired = observed
//!                   ┌──────── loaded ◄──────────────┐
//!      set_desired  ▼                               │ ended: Ok
//!   ┌──────────► waiting ── begin, when it is ──► loading
//!   │               ▲  ▲    used and its time       │
//!   │  next time    │  └── ended: Err, and a wait ──┤ ended: Err, too often
//!   │               │       (twice as long each)    ▼
//!   └────────────── set_faulty(None) ◄──────────── faulty
//! ```
//!
//! At most one load is under way. The observed content is `Unknown` until the card was read back, during a
//! load, and after one whose result is unknown.

use std::time::Duration;

use snic_domain::{
    Bitstream, BitstreamId, Digest, RegionId, RegionState, ReportedChain, TenantId, Timestamp,
};
use snic_planner::RegionCondition;
use snic_tables::{CardCommand, LoadFailure, RegionSnapshot, RegionStatus, Ticket};

use super::stalls::{Stall, Stalls};
use crate::protocol::ControllerSettings;
use crate::store::records::{RegionRecord, storable_reason};

/// Observed content of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObservedContent {
    /// The card did not say (yet).
    Unknown,
    Empty,
    /// The bitstream of this digest: it reports the chain that a bitstream of this digest declares.
    Holds(Digest),
    /// Something that reports to be no bitstream that is known, or another than was loaded.
    Foreign,
    Broken,
}

/// Desired content of a region: the bytes, and what it has to report then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Desired {
    digest: Digest,
    chain: ReportedChain,
}

impl Desired {
    /// `None` where the bitstream has no image for the region.
    fn of(bitstream: &Bitstream, region: RegionId) -> Option<Self> {
        let digest = bitstream.digest_for(region)?;
        Some(Self { digest, chain: bitstream.reported_chain() })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Region {
    record: RegionRecord,
    /// Content of the record's bitstream.
    desired: Option<Desired>,
    observed: ObservedContent,
    /// Chain that it reports, where it holds a bitstream.
    reported: ReportedChain,
    /// It is to be loaded though nobody uses it.
    spare: bool,
    /// Loads that failed in a row.
    failures: u32,
    /// Earliest next load.
    not_before: Timestamp,
    last_error: Option<String>,
    last_error_at: Option<Timestamp>,
    /// Loads that ended, well or not.
    loads: u64,
    /// Times that its NTs let no packet go.
    stalls: u64,
    /// The wait for its load is that of a stall.
    is_stalled: bool,
    /// Bitstream whose stalls it last waited for, since a load of it was good.
    stalled_by: Option<BitstreamId>,
}

impl Region {
    fn new(record: RegionRecord, desired: Option<Desired>) -> Self {
        Self {
            record,
            desired,
            observed: ObservedContent::Unknown,
            reported: ReportedChain::default(),
            spare: false,
            failures: 0,
            not_before: Timestamp::ZERO,
            last_error: None,
            last_error_at: None,
            loads: 0,
            stalls: 0,
            is_stalled: false,
            stalled_by: None,
        }
    }

    pub const fn record(&self) -> &RegionRecord {
        &self.record
    }

    pub const fn bitstream(&self) -> Option<&BitstreamId> {
        self.record.bitstream.as_ref()
    }

    /// Digest of what it is to hold.
    pub fn desired(&self) -> Option<Digest> {
        self.desired.map(|desired| desired.digest)
    }

    pub const fn observed(&self) -> ObservedContent {
        self.observed
    }

    /// Whether it, region `id`, holds a bitstream, by what was loaded and by what it reports.
    pub fn holds(&self, bitstream: &Bitstream, id: RegionId) -> bool {
        bitstream.digest_for(id).is_some_and(|digest| {
            self.observed == ObservedContent::Holds(digest)
                && self.reported == bitstream.reported_chain()
        })
    }

    /// Nothing new is placed in it.
    pub const fn is_cordoned(&self) -> bool {
        self.record.cordoned
    }

    /// Why no load of it is tried any more.
    pub fn fault(&self) -> Option<&str> {
        self.record.faulty.as_deref()
    }

    /// Loads that failed since the last that did not.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Why the last load failed.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Why it is out of use until it is loaded again, where its NTs let no packet go.
    pub fn stall(&self) -> Option<&str> {
        let is_stalled = self.is_stalled && self.failures == 0 && self.is_waiting();
        self.last_error.as_deref().filter(|_| is_stalled)
    }

    /// Times that its NTs let no packet go.
    pub const fn stalls(&self) -> u64 {
        self.stalls
    }

    /// Waits for its load as long as the stalls of its bitstream's owner say.
    fn hold(&mut self, now: Timestamp, stall: Stall) {
        self.not_before = self.not_before.max(stall.until);
        self.is_stalled = true;
        self.stalled_by = self.bitstream().cloned();
        let owner = self.bitstream().and_then(BitstreamId::owner);
        let owner = owner.expect("only a tenant's bitstreams are held");
        self.last_error = Some(format!(
            "network tasks of tenant {owner} let no packet go on this card, {} times by now; none of its bitstreams is loaded here for {:?}",
            stall.count,
            stall.until.since(now),
        ));
    }

    /// When a load last failed.
    pub const fn last_error_at(&self) -> Option<Timestamp> {
        self.last_error_at
    }

    /// Loads that ended, well or not.
    pub const fn loads(&self) -> u64 {
        self.loads
    }

    /// Whether it holds what it is to hold.
    pub fn is_loaded(&self) -> bool {
        self.desired.is_some_and(|desired| {
            self.observed == ObservedContent::Holds(desired.digest)
                && self.reported == desired.chain
        })
    }

    /// Whether it is to hold something that it does not hold.
    pub fn is_waiting(&self) -> bool {
        self.desired.is_some() && !self.is_loaded()
    }

    /// Whether it is to be loaded though nobody uses it.
    pub const fn is_spare(&self) -> bool {
        self.spare
    }

    /// Whether it may be planned with.
    pub const fn condition(&self) -> RegionCondition {
        match (&self.record.faulty, self.record.cordoned) {
            (Some(_), _) => RegionCondition::Faulty,
            (None, true) => RegionCondition::Cordoned,
            (None, false) => RegionCondition::Usable,
        }
    }
}

/// A load under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loading {
    ticket: Ticket,
    content: Desired,
    pub region: RegionId,
    pub bitstream: BitstreamId,
    /// Content before the load.
    before: ObservedContent,
}

impl Loading {
    /// Digest of what is loaded.
    pub const fn digest(&self) -> Digest {
        self.content.digest
    }

    /// Content before the load, which it has again if it is not touched.
    pub const fn before(&self) -> ObservedContent {
        self.before
    }
}

/// End of a load.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LoadEnded {
    /// It is not the one that is under way.
    Stale,
    /// The region holds what was loaded.
    Loaded(Loading),
    /// It failed and is tried again later.
    Failed(Loading),
    /// The content cannot work, wherever it is loaded: the region is sound.
    Unusable { load: Loading, reason: String },
    /// It failed for the last time.
    GivenUp { load: Loading, reason: String },
}

/// The regions of one card.
#[derive(Debug)]
pub(crate) struct Regions {
    all: Vec<Region>,
    loading: Option<Loading>,
    /// Loads that ended, well or not.
    loads: u64,
    stalls: Stalls,
}

impl Regions {
    /// So many, of which nothing is known.
    pub fn new(count: usize) -> Self {
        let all = vec![Region::new(RegionRecord::default(), None); count];
        Self { all, loading: None, loads: 0, stalls: Stalls::default() }
    }

    pub const fn len(&self) -> usize {
        self.all.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = RegionId> + use<> {
        (0u8..).map(RegionId).take(self.all.len())
    }

    /// All of them, by id.
    pub fn iter(&self) -> impl Iterator<Item = (RegionId, &Region)> {
        self.ids().zip(&self.all)
    }

    pub fn get(&self, region: RegionId) -> Option<&Region> {
        self.all.get(region.index())
    }

    fn of(&mut self, region: RegionId) -> &mut Region {
        self.all.get_mut(region.index()).expect("commands that name another region were refused")
    }

    /// The load under way.
    pub const fn loading(&self) -> Option<&Loading> {
        self.loading.as_ref()
    }

    /// Whether a load of this region is under way.
    pub fn is_loading(&self, region: RegionId) -> bool {
        self.loading.as_ref().is_some_and(|loading| loading.region == region)
    }

    /// Loads that ended since the daemon started, well or not.
    pub const fn loads(&self) -> u64 {
        self.loads
    }

    /// Times that NTs let no packet go since the daemon started.
    pub fn stalls(&self) -> u64 {
        self.all.iter().map(Region::stalls).sum()
    }

    /// As stored; `desired` is the record's bitstream.
    pub fn restore(&mut self, region: RegionId, record: RegionRecord, desired: Option<&Bitstream>) {
        *self.of(region) = Region::new(record, desired.and_then(|of| Desired::of(of, region)));
    }

    /// It is to hold something else from now on.
    pub fn set_desired(&mut self, region: RegionId, content: Option<&Bitstream>, now: Timestamp) {
        let desired = content.and_then(|bitstream| Desired::of(bitstream, region));
        let held = content.and_then(|bitstream| self.stalls.holds(now, &bitstream.id));
        let region = self.of(region);
        region.record.bitstream = content.map(|bitstream| bitstream.id.clone());
        region.desired = desired;
        region.spare = false;
        region.failures = 0;
        region.not_before = now;
        region.is_stalled = false;
        if let Some(stall) = held.filter(|_| region.is_waiting()) {
            region.hold(now, stall);
        }
    }

    /// It is to be loaded though nobody uses it.
    pub fn keep_spare(&mut self, region: RegionId) {
        self.of(region).spare = true;
    }

    pub fn set_cordoned(&mut self, region: RegionId, cordoned: bool) {
        self.of(region).record.cordoned = cordoned;
    }

    /// No load is tried any more, for this reason; without one it is tried again.
    pub fn set_faulty(&mut self, region: RegionId, reason: Option<String>, now: Timestamp) {
        let region = self.of(region);
        if reason.is_none() {
            region.failures = 0;
            region.not_before = now;
            region.is_stalled = false;
        }
        region.record.faulty = reason.map(storable_reason);
    }

    /// An operator gives a region another chance: the stalls that it waited for count no more.
    pub fn forgive_stalls(&mut self, region: RegionId) {
        if let Some(bitstream) = self.of(region).stalled_by.take() {
            self.stalls.forgive(&bitstream);
        }
    }

    /// Distrusts the content: a DAG that needs it has it loaded again.
    pub fn distrust(&mut self, region: RegionId) {
        let region = self.of(region);
        region.last_error = None;
        if matches!(region.observed, ObservedContent::Holds(_)) {
            region.observed = ObservedContent::Broken;
        }
    }

    /// Its NTs let no packet go for this long, and were reset: it is loaded again, and each further time waits eight times as long
    /// for that, as do all regions that wait for a bitstream of the same tenant. Nothing changes while it is being loaded: the end of
    /// the load says what it holds.
    pub fn stalled(
        &mut self,
        now: Timestamp,
        region: RegionId,
        waited: Duration,
        settings: &ControllerSettings,
    ) {
        if self.is_loading(region) {
            return;
        }
        let bitstream = self.get(region).and_then(Region::bitstream).cloned();
        let stall = bitstream.map(|id| (self.stalls.count(now, &id, settings.backoff), id));
        if let Some((stall, id)) = &stall
            && let Some(owner) = id.owner()
        {
            self.hold_all_of(now, &owner, *stall);
        }
        let region = self.of(region);
        region.stalls += 1;
        region.observed = ObservedContent::Broken;
        region.failures = 0;
        region.last_error_at = Some(now);
        let what = format!("its network tasks let no packet go for {waited:?} and were reset");
        let Some((stall, bitstream)) = stall else {
            region.last_error = Some(what);
            return; // It is to hold nothing.
        };
        (region.is_stalled, region.stalled_by) = (true, Some(bitstream));
        region.not_before = stall.until;
        region.last_error = Some(format!(
            "{what}, {} times by now; it is loaded again after {:?}",
            stall.count,
            stall.until.since(now),
        ));
    }

    /// All regions that wait for a bitstream of this tenant wait for the end of its stall.
    fn hold_all_of(&mut self, now: Timestamp, owner: &TenantId, stall: Stall) {
        let is_theirs =
            |region: &Region| region.bitstream().is_some_and(|id| id.is_owned_by(owner));
        let waiting = self.all.iter_mut().filter(|region| region.is_waiting() && is_theirs(region));
        waiting.for_each(|region| region.hold(now, stall));
    }

    /// The card was read back; `is_known` says whether a bitstream of this digest declares this chain. The
    /// digest is what the host said when it loaded the region: without the region's own report it proves
    /// nothing.
    pub fn adopt(
        &mut self,
        snapshots: &[RegionSnapshot],
        is_known: impl Fn(Digest, &ReportedChain) -> bool,
    ) {
        debug_assert_eq!(self.all.len(), snapshots.len(), "a card of another size was refused");
        for (region, seen) in self.all.iter_mut().zip(snapshots) {
            region.reported = seen.chain;
            region.observed = match seen.status {
                RegionStatus::Empty => ObservedContent::Empty,
                RegionStatus::Loaded(digest) if !is_known(digest, &seen.chain) => {
                    ObservedContent::Foreign
                }
                RegionStatus::Loaded(digest) if !seen.decoupled => ObservedContent::Holds(digest),
                RegionStatus::Loaded(_) | RegionStatus::Broken => ObservedContent::Broken,
                RegionStatus::Loading => ObservedContent::Unknown,
            };
        }
    }

    /// Forgets commands under way: they are not answered any more, and the content is unknown.
    pub fn forget(&mut self) {
        self.loading = None;
        self.all.iter_mut().for_each(|region| region.observed = ObservedContent::Unknown);
    }

    /// The region whose load is due: of those that are free, one that is used before one that is not,
    /// then the one that waits longest. None while another load is under way.
    pub fn next_load<F: Fn(RegionId) -> bool>(
        &self,
        now: Timestamp,
        is_used: impl Fn(RegionId) -> bool,
        find_free: impl FnOnce() -> F,
    ) -> Option<RegionId> {
        let is_due = |(id, region): &(RegionId, &Region)| {
            region.is_waiting()
                && region.record.faulty.is_none()
                && region.not_before <= now
                && (region.spare || is_used(*id))
        };
        let mut due = self.iter().filter(is_due).peekable();
        if self.loading.is_some() || due.peek().is_none() {
            return None;
        }
        let is_free = find_free();
        let due = due.filter(|(id, _)| is_free(*id));
        due.min_by_key(|(id, region)| (!is_used(*id), region.not_before, *id)).map(|(id, _)| id)
    }

    /// Begins the load of what a region is to hold.
    pub fn begin(&mut self, region: RegionId, ticket: Ticket) -> CardCommand {
        debug_assert!(self.loading.is_none(), "one load at a time");
        let waiting = self.of(region);
        let content = waiting.desired.expect("only what is to hold something is loaded");
        let bitstream = waiting.record.bitstream.clone().expect("it has a digest");
        // If it is to hold again what it holds until now, that is not there any more.
        let before = std::mem::replace(&mut waiting.observed, ObservedContent::Unknown);
        self.loading = Some(Loading { ticket, content, region, bitstream, before });
        let Desired { digest, chain } = content;
        CardCommand::Load { ticket, region, digest, chain }
    }

    /// The card answered to a load.
    pub fn ended(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        result: Result<Duration, LoadFailure>,
        settings: &ControllerSettings,
    ) -> LoadEnded {
        let Some(load) = self.loading.take_if(|load| load.ticket == ticket) else {
            return LoadEnded::Stale;
        };
        self.loads += 1;
        let region = self.of(load.region);
        region.loads += 1;
        let Err(failure) = result else {
            region.observed = ObservedContent::Holds(load.content.digest);
            region.reported = load.content.chain;
            (region.failures, region.spare, region.is_stalled) = (0, false, false);
            region.stalled_by = None;
            region.last_error = None;
            return LoadEnded::Loaded(load);
        };
        region.failures += 1;
        region.not_before = now + settings.wait(region.failures);
        region.last_error = Some(failure.to_string());
        region.last_error_at = Some(now);
        match failure {
            LoadFailure::Controller { .. } => region.observed = ObservedContent::Broken,
            LoadFailure::OtherChain(_) => region.observed = ObservedContent::Foreign,
            LoadFailure::Timeout(_) => region.observed = ObservedContent::Unknown,
            // The region was not touched.
            LoadFailure::DrainTimeout { .. } | LoadFailure::NoBytes(_) => {
                region.observed = load.before;
            }
        }
        if failure.is_of_bitstream() {
            (region.failures, region.not_before) = (0, now);
            return LoadEnded::Unusable { load, reason: failure.to_string() };
        }
        // Missing bytes are not the region's fault: another region would fare no better.
        let is_its_fault = !matches!(failure, LoadFailure::NoBytes(_));
        if is_its_fault && region.failures >= settings.load_attempts {
            return LoadEnded::GivenUp { load, reason: failure.to_string() };
        }
        LoadEnded::Failed(load)
    }

    /// State of a region, in one word.
    pub fn state(&self, region: RegionId, is_unused: bool) -> RegionState {
        let entry = self.get(region).expect("a caller's region was looked up before");
        match entry {
            _ if entry.record.faulty.is_some() => RegionState::Faulty,
            _ if self.is_loading(region) => RegionState::Reconfiguring,
            _ if entry.observed == ObservedContent::Unknown => RegionState::Unknown,
            _ if entry.record.cordoned && !is_unused => RegionState::Draining,
            _ if entry.is_loaded() && is_unused => RegionState::Victim,
            _ if entry.is_loaded() => RegionState::Active,
            _ if is_unused && entry.observed == ObservedContent::Foreign => RegionState::Unknown,
            _ if is_unused => RegionState::Free,
            _ => RegionState::Reconfiguring,
        }
    }

    /// When the waits of regions end, each.
    pub fn deadlines(&self) -> impl Iterator<Item = Timestamp> {
        let waiting =
            self.all.iter().filter(|region| self.loading.is_none() && region.is_waiting());
        waiting.map(|region| region.not_before)
    }
}

#[cfg(test)]
mod tests;
